"""Holding a topic's table against the log, and keeping its metadata small.

The table follows the log. A file whose job is over and which no live index entry names has been merged, has
expired or was deleted, and leaves the table. A file that the index names and the table lacks (the table was
dropped, or Iceberg was off for a while) is added again. Both are commits like any other: of two compactors,
the slower one loses.

A file that reaches below the start is not added: what was deleted must not come back. It is about to be
trimmed, and what is left of it comes with that job.
"""

from __future__ import annotations

from collections.abc import Collection

import structlog

from dray.compaction.file_collector import indexed_files, settled_files
from dray.compaction.paths import parse_file_path
from dray.log.entries import IndexEntry
from dray.log.jobs import JobState
from dray.log.stream_store import StreamStore
from dray.log.written_file import WrittenFile
from dray.runtime import Runtime
from dray.tables.contract import (
    CommitOutcome,
    TableChange,
    TableFile,
    TableMissing,
    Tables,
    TopicTable,
)
from dray.topics.model import Topic

_log = structlog.get_logger(__name__)


class TableKeeper:
    def __init__(self, store: StreamStore, runtime: Runtime, tables: Tables) -> None:
        self._store = store
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
        settled = await settled_files(self._store, files)
        live = await self._live_files({parsed.stream for parsed in settled.values()})
        gone = tuple(sorted(path for path in settled if path not in live))
        if not gone:
            return 0
        # Safe whatever happens meanwhile: these paths never come back into the log.
        committed = await self._commit(table, TableChange(self._name("expired"), (), gone))
        return len(gone) if committed else None

    async def restore(self, topic: Topic) -> int:
        """Add the files to the table that only the log knows; how many came."""
        table = table_of(topic)
        await self._tables.ensure(table)
        current = await self._tables.current_files(table) or set()
        missing: dict[str, tuple[int, int, IndexEntry]] = {}  # by path: partition, stream, entry
        for partition, stream in enumerate(topic.streams):
            for entry in await self._settled_entries(stream):
                if entry.path not in current:
                    missing[entry.path] = partition, stream, entry
        if not missing:
            return 0
        added = tuple(_described(*place) for place in missing.values())
        change = TableChange(self._name("restored"), added)

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
            return 0
        _log.warning("files added to a table that lacked them", topic=topic.name, files=len(added))
        return len(added)

    async def _live_files(self, streams: set[int]) -> set[str]:
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
        has one."""
        await self._store.barrier(stream)
        if (await self._store.job(stream)).value.state is not JobState.DONE:
            return []
        view = await self._store.view(stream)
        if view is None or view.high_watermark.value.closed:
            return []
        return [
            entry.value
            for entry in view.split()[0]
            if entry.value.is_parquet and entry.value.start >= view.start
        ]

    async def _commit(self, table: TopicTable, change: TableChange) -> bool:
        async def always(_: TableChange) -> bool:
            return True

        try:
            outcomes = await self._tables.commit(table, [change], always)
        except TableMissing:
            return False
        return outcomes[change.job] is CommitOutcome.COMMITTED

    def _name(self, what: str) -> str:
        return f"{what}-{self._runtime.uuid().hex}"


def table_of(topic: Topic) -> TopicTable:
    return TopicTable(topic.name, topic.topic_id, topic.settings.partition_by_day)


def _described(partition: int, stream: int, entry: IndexEntry) -> TableFile:
    named = parse_file_path(entry.path)
    job = 0 if named is None else named.job
    return TableFile(partition, WrittenFile.of_entry(entry, stream=stream, job=job))
