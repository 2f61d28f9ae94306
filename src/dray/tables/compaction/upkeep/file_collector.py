"""Collecting files: compacted ones that no job, table or index names any more, and metadata of tables.

A file is named first by its job, then by the table, then by the index. So they are read in that order, after
the bucket was listed, and a file that none of them names will never be named again. The rest are attempts
that lost, merged files, expired ones, and those of deleted topics.

Of a stream that has left its table that is not so: a commit may still be on its way that names the file. So
its files wait for longer than any commit takes, or until the table was brought up to the log: the commit that
does that stops all before it.

That is proof as long as the file's stream is this metadata's: closed, or one of the topic that the file
names. Any other file may still be needed, if this metadata store was restored from a backup: such files are
held against the brake.

Files of jobs to come (`ahead.py`) are spared, too. If the compactor that wrote them died, their jobs may be
long in coming: so what was seen for a while spends its number, which no job can have any more then.

Metadata files that no table needs any more are collected here too. Most go with the snapshots that needed
them. The rest lies there because a commit lost its race and could not clear up, or because the table was
dropped. A commit writes its files before it is one, so a file counts as garbage only once it is older than
any commit takes: a table would be broken without it for good.

A topic that exists and whose table the catalog does not know is a reason to look at the catalog, and none to
delete: its metadata stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

import structlog

from dray.base.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.broker.topics.live import TopicSource
from dray.log.jobs.machine import JobState, NumbersSpent, advance
from dray.log.life.deletions import HELD, Brake, DeletionSummary, MayDelete
from dray.log.stream_store import StreamStore
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError, ObjectStore
from dray.tables.compaction.paths import PREFIX, TABLES_PREFIX, FilePath, parse_file_path, parse_metadata_path
from dray.tables.compaction.planning.job_board import JobBoard
from dray.tables.compaction.planning.shares import WHOLE, TopicShare
from dray.tables.contract import Tables, TablesError, TopicTable

_log = structlog.get_logger(__name__)

_ALL = 1 << 63  # more than the number of any job
REST_SECONDS: Final = 6 * 3600.0
"""A topic in which nothing seems to change is looked at again all the same: the end of a cleaning round is no
job, nor is that of what a late write brought back."""
AHEAD_GRACES = 6
"""A file waits for its job that many graces: a round writes files for longer than readers know old ones."""


@dataclass(slots=True)
class FileCollection:
    """The results of a round of collection."""

    listed: int = 0
    pending: int = 0  # that nothing knows, waiting out their grace
    deleted: int = 0  # in a dry run: that would be
    undecided: int = 0  # whose table or stream could not be asked
    held: str | None = None  # why nothing was deleted
    braked: str | None = None  # why only what is proven to be garbage was
    paths: Collection[str] = ()  # of the files that were listed


@dataclass(frozen=True, slots=True)
class _Seen:
    """A topic when all of its files had a use, with the versions of its streams' jobs and of its table."""

    paths: frozenset[str]
    jobs: tuple[int, ...]
    table: str | None
    at: float


class FileCollector:
    """`tables` is None where Iceberg is off: no table is asked then, so none may be in use."""

    def __init__(
        self,
        store: StreamStore,
        objects: ObjectStore,
        runtime: Runtime,
        tables: Tables | None,
        grace_seconds: float,
        *,
        may_delete: MayDelete,
        topics: TopicSource | None = None,
        brake: Brake | None = None,
        commit_seconds: float = 0.0,
        at_once: int = 8,
    ) -> None:
        """Without `topics`, only the files of closed streams are proven to be garbage. `commit_seconds`: more
        than any commit of a table takes. `at_once`: topics that are looked at side by side."""
        self._at_once = at_once
        self._board = JobBoard(store, runtime)
        self._resting: dict[TopicTable, _Seen] = {}  # topics of which every file had a use
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._tables = tables
        self._grace = grace_seconds
        self._commit_seconds = commit_seconds
        self._left: set[int] = set()  # streams that have left their table, as this round saw them
        self._may_delete = may_delete
        self._topics = topics
        self._brake = brake or Brake()
        self._unknown_since: dict[str, float] = {}  # on this collector's own clock
        self._ahead_since: dict[str, float] = {}  # files of jobs to come

    async def run(self, share: TopicShare = WHOLE, *, dry_run: bool = False) -> FileCollection:
        seen = FileCollection(held=await self._may_delete())
        if seen.held is not None:
            _log.error(HELD, of="files", reason=seen.held)
            return seen
        sizes: dict[str, int] = {}
        by_topic: dict[TopicTable, dict[str, FilePath]] = {}
        async for info in self._objects.list(PREFIX):
            parsed = parse_file_path(info.path)
            if parsed is not None and share.has(parsed.topic_id):
                seen.listed += 1
                sizes[info.path] = info.size
                by_topic.setdefault(TopicTable(parsed.topic, parsed.topic_id), {})[info.path] = parsed
        seen.paths = sizes.keys()
        self._left.clear()
        waiting: dict[str, float] = {}
        proven: list[str] = []
        unproven: list[str] = []
        await self._board.read()
        known, self._resting = self._resting, {}
        limit = asyncio.Semaphore(self._at_once)

        async def look(topic: TopicTable, files: dict[str, FilePath]) -> None:
            async with limit:
                try:
                    if not dry_run:
                        await self._spend_numbers(files)
                    unknown = await self._look(topic, files, known.get(topic))
                    streams = await self._known_streams(topic.topic_id, [files[path] for path in unknown])
                except Exception as error:
                    if not isinstance(error, (MetadataError, TablesError)):
                        self._runtime.background.report("collect files", error)
                    _log.warning("files of a topic not collected", topic=topic.topic, error=str(error))
                    seen.undecided += len(files)
                    waiting.update(
                        {path: since for path, since in self._unknown_since.items() if path in files}
                    )
                    return
            for path in unknown:
                (proven if files[path].stream in streams else unproven).append(path)

        self._ahead_since = {path: at for path, at in self._ahead_since.items() if path in sizes}
        await asyncio.gather(*[look(*each) for each in by_topic.items()])
        if self._brake.stops(len(unproven), seen.listed):
            seen.braked = self._brake.line("files", len(unproven), seen.listed)
            seen.pending += len(unproven)
            _log.error(HELD, of="files", reason=seen.braked)
            now = self._runtime.monotonic()
            waiting |= {path: self._unknown_since.get(path, now) for path in unproven}
            unproven = []
        deleted = DeletionSummary("files")
        try:
            for path in [*proven, *unproven]:
                grace = self._grace_of(path)
                if await self._delete_when_due(path, grace, waiting, seen, dry_run) and not dry_run:
                    deleted.add(path, sizes[path])
        finally:
            deleted.say()
        self._unknown_since = waiting
        return seen

    async def _look(self, topic: TopicTable, files: dict[str, FilePath], known: _Seen | None) -> list[str]:
        """The files that nothing knows. None, where all of them had a use and nothing has changed since: no
        file comes into question by that, so it need not be a proof."""
        version = await self._tables.version(topic) if self._tables is not None else None
        streams = sorted({parsed.stream for parsed in files.values()})
        jobs = self._board.versions(streams)
        at = self._runtime.monotonic()
        seen = _Seen(frozenset(files), jobs, version, at)
        if known is not None and replace(seen, at=known.at) == known and at - known.at < REST_SECONDS:
            self._resting[topic] = known
            return []
        unknown = await self._unknown(topic, files)
        if not unknown and all(jobs):
            self._resting[topic] = seen
        return unknown

    async def _known_streams(self, topic_id: UUID, files: list[FilePath]) -> set[int]:
        """The streams of the files that this metadata knows: closed ones, and those of the topic with that
        id."""
        if not files:
            return set()
        topics = [] if self._topics is None else (await self._topics.live()).known
        known = {stream for topic in topics if topic.topic_id == topic_id for stream in topic.streams}
        for stream in sorted({parsed.stream for parsed in files} - known):
            high_watermark = await self._store.high_watermark(stream)
            if high_watermark is not None and high_watermark.value.closed:
                known.add(stream)
        return known

    async def _spend_numbers(self, files: dict[str, FilePath]) -> None:
        """Of files whose jobs do not come. A compactor that still wants to begin one finds its number gone,
        and writes its file again."""
        now = self._runtime.monotonic()
        due: dict[int, int] = {}  # by stream: the highest number
        for path, parsed in files.items():
            found = self._board.jobs.get(parsed.stream)
            if found is None or parsed.job <= found.value.number:
                self._ahead_since.pop(path, None)
            elif now - self._ahead_since.setdefault(path, now) >= AHEAD_GRACES * self._grace:
                due[parsed.stream] = max(parsed.job, due.get(parsed.stream, 0))
        for stream, number in due.items():
            found = self._board.jobs[stream]
            if found.value.state is JobState.DONE:
                await self._store.perform(stream, found, advance(stream, found.value, NumbersSpent(number)))

    async def _unknown(self, topic: TopicTable, files: dict[str, FilePath]) -> list[str]:
        settled = await settled_files(self._store, files, self._left)
        if not settled:
            return []
        in_table = await self._tables.live_files(topic) if self._tables is not None else None
        indexed = await indexed_files(self._store, {parsed.stream for parsed in settled.values()})
        return sorted(path for path in settled if path not in indexed and path not in (in_table or ()))

    def _grace_of(self, path: str) -> float:
        parsed = parse_file_path(path)
        left = self._tables is not None and parsed is not None and parsed.stream in self._left
        return max(self._grace, self._commit_seconds) if left else self._grace

    async def _delete_when_due(
        self, path: str, grace: float, waiting: dict[str, float], seen: FileCollection, dry_run: bool
    ) -> bool:
        now = self._runtime.monotonic()
        since = self._unknown_since.get(path, now)
        if now - since < grace:
            waiting[path] = since
            seen.pending += 1
            return False
        if dry_run:
            waiting[path] = since
        else:
            try:
                await self._objects.delete(path)
            except ObjectError as error:
                _log.warning("file not deleted", path=path, error=str(error))
                waiting[path] = since
                seen.pending += 1
                return False
        seen.deleted += 1
        return True


async def settled_files(
    store: StreamStore, files: dict[str, FilePath], left: set[int] | None = None
) -> dict[str, FilePath]:
    """The files whose job is over: it is done, or a later job is there. A file of any other job may still be
    used. Streams that have left their table are added to `left`."""
    settled: dict[str, FilePath] = {}
    for stream in sorted({parsed.stream for parsed in files.values()}):
        await store.barrier(stream)
        found = await store.job(stream)
        job = found.value
        if left is not None and job.left_table is not None:
            left.add(stream)
        over = job.number + (job.state is JobState.DONE)  # the first job that is not
        if not found.version:  # the job's key was deleted with its stream: only the closed mark proves that
            mark = await store.high_watermark(stream)
            over = _ALL if mark is not None and mark.value.closed else 0
        settled |= {
            path: parsed for path, parsed in files.items() if parsed.stream == stream and parsed.job < over
        }
    return settled


async def indexed_files(store: StreamStore, streams: set[int]) -> set[str]:
    """The files that any entry of these streams names, live or not, and the keys of their cleaning rounds."""
    found: set[str] = set()
    for stream in sorted(streams):
        await store.barrier(stream)
        cleaned = (await store.cleaned(stream)).value
        if cleaned.round is not None:
            found.add(cleaned.round.keys)
        for entry in await store.entries_above(stream, -1):
            if entry.value.is_parquet:
                found.add(entry.value.path)
    return found


# --- metadata files of tables


@dataclass(slots=True)
class MetadataCollection:
    listed: int = 0
    deleted: int = 0  # in a dry run: that would be
    undecided: int = 0  # whose table could not be asked, or is not in the catalog though its topic exists
    held: str | None = None  # why nothing was deleted


class MetadataCollector:
    def __init__(
        self,
        objects: ObjectStore,
        runtime: Runtime,
        tables: Tables,
        topics: TopicSource,
        orphan_seconds: float,
        *,
        may_delete: MayDelete,
        expiry: ExpiryClock | None = None,
        at_once: int = 8,
    ) -> None:
        """`at_once`: topics."""
        self._at_once = at_once
        self._objects = objects
        self._runtime = runtime
        self._expiry = expiry or UndoubtedClock(runtime)
        self._tables = tables
        self._topics = topics
        self._orphan_seconds = orphan_seconds
        self._may_delete = may_delete

    async def run(self, share: TopicShare = WHOLE, *, dry_run: bool = False) -> MetadataCollection:
        """List first, then ask the tables: what is listed, old, and not in use then, never will be."""
        seen = MetadataCollection(held=await self._may_delete())
        if seen.held is not None:
            _log.error(HELD, of="metadata of tables", reason=seen.held)
            return seen
        now_ms = self._expiry.now_ms()
        if now_ms is None:
            return seen  # while the clock is doubted, every file may look old
        oldest_ms = now_ms - int(self._orphan_seconds * 1000)
        by_topic: dict[TopicTable, list[str]] = {}
        async for info in self._objects.list(TABLES_PREFIX):
            parsed = parse_metadata_path(info.path)
            if parsed is not None and share.has(parsed[1]):
                seen.listed += 1
                if info.modified_ms <= oldest_ms:
                    by_topic.setdefault(TopicTable(*parsed), []).append(info.path)
        deleted = DeletionSummary("metadata of tables")
        limit = asyncio.Semaphore(self._at_once)

        async def collect(topic: TopicTable, paths: list[str]) -> None:
            async with limit:
                await self._collect(topic, paths, seen, None if dry_run else deleted)

        try:
            await asyncio.gather(*[collect(*each) for each in by_topic.items()])
        finally:
            deleted.say()
        return seen

    async def _collect(
        self, topic: TopicTable, paths: list[str], seen: MetadataCollection, deleted: DeletionSummary | None
    ) -> None:
        """`deleted`: None where nothing is."""
        try:
            needed = await self._needed(topic)
        except Exception as error:
            if not isinstance(error, (TablesError, MetadataError)):
                self._runtime.background.report("collect metadata of tables", error)
            _log.warning("metadata of a table not collected", topic=topic.topic, error=str(error))
            needed = None
        if needed is None:
            seen.undecided += len(paths)
            return
        for path in sorted(set(paths) - needed):
            if deleted is None or await self._delete(path):
                seen.deleted += 1
                if deleted is not None:
                    deleted.add(path)

    async def _needed(self, topic: TopicTable) -> set[str] | None:
        """The metadata files that the table needs; None if that is not known."""
        needed = await self._tables.live_metadata(topic)
        if needed is not None:
            return needed
        gone = (await self._topics.live()).are_without(topic.topic, topic.topic_id)
        return set() if gone else None

    async def _delete(self, path: str) -> bool:
        try:
            await self._objects.delete(path)
        except ObjectError as error:
            _log.warning("metadata file not deleted", path=path, error=str(error))
            return False
        return True
