"""Holding a topic's table against the log, and keeping its metadata small.

The table follows the log. A file whose job is over and which no live index entry names has been merged, has
expired or was deleted, and leaves the table. A file that the index names and the table lacks (the table was
dropped, or Iceberg was off for a while) is added again. Both are commits like any other: of two compactors,
the slower one loses.

A stream that has left its table (`LeftTable`) is passed over here: `left_tables.py` brings it up to the log.

A file that reaches below the start is not added: what was deleted must not come back. It is about to be
trimmed, and what is left of it comes with that job.

Tables are gone over all the time, so that a property which protects the log's files is set back soon.
`gc.enabled=false` keeps other engines from deleting files of the log. Whoever may write a table may change
that, and has a reason: the engine's own error says so. Collection comes by too seldom to rely on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.topics.live import TopicSource
from dray.broker.topics.model import Topic
from dray.log.entries import IndexEntry
from dray.log.jobs.machine import JobState
from dray.log.jobs.values import WrittenFile
from dray.log.stream_store import StreamStore, StreamView
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectMissing, ObjectStore
from dray.tables.compaction.paths import parse_file_path
from dray.tables.compaction.planning.shares import WHOLE, ShareNow
from dray.tables.compaction.upkeep.file_collector import indexed_files, settled_files
from dray.tables.contract import (
    CommitOutcome,
    TableChange,
    TableChanged,
    TableFile,
    TableMissing,
    TableRefused,
    Tables,
    TablesError,
    TopicTable,
)

_log = structlog.get_logger(__name__)

_AT_ONCE: Final = 16
GONE: Final = "files of the log are not in the bucket, and so not in the table"


class TableKeeper:
    def __init__(self, store: StreamStore, objects: ObjectStore, runtime: Runtime, tables: Tables) -> None:
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._tables = tables

    async def remove_expired(self, topic: Topic, streams: Collection[int] | None = None) -> int | None:
        """Take the files out of the table that the log no longer has (of these streams, or of all); how many
        went. None: not now. Then nothing may be restored either, or its records would be in the table
        twice."""
        table = table_of(topic)
        current = await self._tables.current_files(table)
        files = {path: parsed for path in current or () if (parsed := parse_file_path(path)) is not None}
        files = {
            path: parsed
            for path, parsed in files.items()
            if parsed.topic_id == topic.topic_id and (streams is None or parsed.stream in streams)
        }
        if not files:
            return 0
        left: set[int] = set()
        settled = await settled_files(self._store, files, left)
        settled = {path: parsed for path, parsed in settled.items() if parsed.stream not in left}
        live = await self.live_files({parsed.stream for parsed in settled.values()})
        gone = tuple(sorted(path for path in settled if path not in live))
        if not gone:
            return 0
        # Safe whatever happens meanwhile: these paths never come back into the log.
        committed = await self._commit(table, TableChange(new_name(self._runtime, "expired"), (), gone))
        return len(gone) if committed else None

    async def restore(self, topic: Topic) -> int | None:
        """Add the files to the table that only the log knows; how many came. None: not all of them. A file
        that is not seen in the bucket is left out: queries of a table fail at an entry without a file."""
        table = table_of(topic)
        await self._tables.ensure(table)
        current = await self._tables.current_files(table) or set()
        missing: dict[str, tuple[int, int, IndexEntry]] = {}  # by path: partition, stream, entry
        for partition, stream in enumerate(topic.streams):
            for entry in await self._settled_entries(stream):
                if entry.path not in current:
                    missing[entry.path] = partition, stream, entry
        unseen = await self.not_there(missing)
        if unseen:
            _log.error(
                GONE,
                topic=topic.name,
                files=len(unseen),
                examples=sorted(unseen)[:3],
            )
        missing = {path: place for path, place in missing.items() if path not in unseen}
        if not missing:
            return None if unseen else 0
        added = tuple(described(*place) for place in missing.values())
        change = TableChange(new_name(self._runtime, "restored"), added)

        async def still_missing(_: TableChange) -> bool:
            """Asked once the commit has loaded the table. A merge under way has taken files out of the table
            that the index still names, so its job must be over, and the entries there after that."""
            if (await self._tables.current_files(table) or set()) & missing.keys():
                return False
            for stream in sorted({stream for _, stream, _ in missing.values()}):
                known = {entry.path for entry in await self._settled_entries(stream)}
                if any(path not in known for path, place in missing.items() if place[1] == stream):
                    return False
            return True

        outcomes = await self._tables.commit(table, [change], still_missing)
        if outcomes[change.job] is not CommitOutcome.COMMITTED:
            return None
        _log.warning("files added to a table that lacked them", topic=topic.name, files=len(added))
        return len(added)

    async def why_changed(self, topic: Topic) -> TableChanged | None:
        """How another writer changed the table; None if none did, or that was undone."""
        try:
            await self._tables.ensure(table_of(topic))
        except TableChanged as changed:
            return changed
        return None

    async def put_back(self, topic: Topic) -> bool:
        """Make the table hold the log's files and nothing else, after another writer had changed it. Raises
        `TableRefused` where one of these files is gone: the table may have rows that the log has lost."""
        done = await self._tables.put_back(
            table_of(topic), new_name(self._runtime, "put-back"), lambda: self.log_files(topic)
        )
        if done:
            _log.warning("the log's files were put back into a changed table", topic=topic.name)
        return done

    async def log_files(self, topic: Topic) -> list[TableFile] | None:
        """All files of the topic that belong into its table. None while a job's file is in the table, and not
        yet in the index. Raises `TableRefused` where one is gone."""
        found: list[TableFile] = []
        for partition, stream in enumerate(topic.streams):
            live = await self._live_entries(stream)
            if live is None:
                return None
            found += [described(partition, stream, entry) for entry in live]
        unseen = await self.not_there([file.path for file in found])
        if unseen:
            raise TableRefused(
                f"the table of {topic.name} may have rows that the log has lost: {len(unseen)} files are "
                f"gone, such as {min(unseen)}. Do not drop it: drayd admin lost {topic.name} --recover "
                "brings such rows back"
            )
        return found

    async def _live_entries(self, stream: int) -> list[IndexEntry] | None:
        """Files that wait for their table are not among them: they come with their jobs."""
        await self._store.barrier(stream)
        job = (await self._store.job(stream)).value
        if job.state is JobState.ICEBERG_COMMITTED:
            return None
        view = await self._store.view(stream)
        if view is None or view.high_watermark.value.closed:
            return []
        return _of_tables(view)

    async def not_there(self, paths: Collection[str]) -> set[str]:
        limit = asyncio.Semaphore(_AT_ONCE)

        async def is_there(path: str) -> bool:
            async with limit:
                try:
                    await self._objects.head(path)
                except ObjectMissing:
                    return False
                return True

        found = await asyncio.gather(*[is_there(path) for path in paths])
        return {path for path, there in zip(paths, found, strict=True) if not there}

    async def live_files(self, streams: set[int]) -> set[str]:
        """The files that count. An entry below the start does not, though it may still be there, and neither
        does one of which only offsets without a record lie above it; of a stream that is about to go,
        whatever is left does."""
        found: set[str] = set()
        for stream in sorted(streams):
            await self._store.barrier(stream)
            view = await self._store.view(stream)
            if view is None or view.high_watermark.value.closed:
                found |= await indexed_files(self._store, {stream})
            else:
                found |= {
                    entry.value.path
                    for entry in view.split()[0]
                    if entry.value.is_parquet and entry.value.last_record >= view.start
                }
        return found

    async def _settled_entries(self, stream: int) -> list[IndexEntry]:
        """The live Parquet entries of a stream without a job under way, from its start on; none of one that
        has one, or that has left its table."""
        await self._store.barrier(stream)
        job = (await self._store.job(stream)).value
        if job.state is not JobState.DONE or job.left_table is not None:
            return []
        return await self.entries_of_tables(stream)

    async def entries_of_tables(self, stream: int) -> list[IndexEntry]:
        view = await self._store.view(stream)
        if view is None or view.high_watermark.value.closed:
            return []
        return _of_tables(view)

    async def _commit(self, table: TopicTable, change: TableChange) -> bool:
        async def always(_: TableChange) -> bool:
            return True

        try:
            outcomes = await self._tables.commit(table, [change], always)
        except TableMissing:
            return False
        return outcomes[change.job] is CommitOutcome.COMMITTED


def new_name(runtime: Runtime, what: str) -> str:
    """Of a change that is no job's."""
    return f"{what}-{runtime.uuid().hex}"


def _of_tables(view: StreamView) -> list[IndexEntry]:
    return [
        entry.value
        for entry in view.split()[0]
        if entry.value.is_parquet and not entry.value.is_gap and entry.value.start >= view.start
    ]


def table_of(topic: Topic) -> TopicTable:
    return TopicTable(topic.name, topic.topic_id, topic.settings.partition_by_day)


def described(partition: int, stream: int, entry: IndexEntry) -> TableFile:
    named = parse_file_path(entry.path)
    job = 0 if named is None else named.job
    return TableFile(partition, WrittenFile.of_entry(entry, stream=stream, job=job))


# --- the guard

ROUND_SECONDS: Final = 5.0
"""For all tables, as long as they are not too many:"""
LEAST_SECONDS: Final = 0.1
"""from one table to the next. Each is a request to the catalog."""


class TableGuard:
    def __init__(
        self, tables: Tables, topics: TopicSource, runtime: Runtime, share: ShareNow = lambda: WHOLE
    ) -> None:
        self._tables = tables
        self._topics = topics
        self._runtime = runtime
        self._share = share
        self._task: KeptTask | None = None

    def start(self) -> None:
        self._task = keep_running(self._runtime, "guard tables", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                live = (await self._topics.live()).known
            except MetadataError:
                live = []
            share = self._share()
            topics = [each for each in live if each.settings.iceberg_enabled and share.has(each.topic_id)]
            for topic in topics:
                try:
                    await self._tables.guard(table_of(topic))
                except TablesError as error:
                    _log.debug("a table was not looked at", topic=topic.name, error=str(error))
                except Exception as error:  # of one table: all others are guarded
                    self._runtime.background.report("guard a table", error)
                await self._runtime.sleep(max(LEAST_SECONDS, ROUND_SECONDS / len(topics)))
            if not topics:
                await self._runtime.sleep(ROUND_SECONDS)
