"""Collecting compacted files that no job, table or index names any more.

A file is named first by its job, then by the table, then by the index. So they are read in that order, after
the bucket was listed, and a file that none of them names will never be named again. What is left are attempts
that lost, merged files, expired ones, and those of deleted topics.

That is proof as long as the file's stream is this metadata's: closed, or one of the topic that the file
names. Any other file may still be needed, if this metadata store was restored from a backup: such files are
held against the brake.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import structlog

from dray.compaction.paths import PREFIX, FilePath, parse_file_path
from dray.log.deletions import HELD, Brake, DeletionSummary, MayDelete
from dray.log.jobs import JobState
from dray.log.stream_store import StreamStore
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError, ObjectStore
from dray.runtime import Runtime
from dray.tables.contract import Tables, TablesError, TopicTable
from dray.topics.live import TopicSource

_log = structlog.get_logger(__name__)

_ALL = 1 << 63  # more than the number of any job


@dataclass(slots=True)
class FileCollection:
    """What a round of collection saw and did."""

    listed: int = 0
    pending: int = 0  # that nothing knows, waiting out their grace
    deleted: int = 0  # in a dry run: that would be
    undecided: int = 0  # whose table or stream could not be asked
    held: str | None = None  # why nothing was deleted
    braked: str | None = None  # why only what is proven to be garbage was


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
    ) -> None:
        """Without `topics`, only the files of closed streams are proven to be garbage."""
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._tables = tables
        self._grace = grace_seconds
        self._may_delete = may_delete
        self._topics = topics
        self._brake = brake or Brake()
        self._unknown_since: dict[str, float] = {}  # on this collector's own clock

    async def run(self, *, dry_run: bool = False) -> FileCollection:
        seen = FileCollection(held=await self._may_delete())
        if seen.held is not None:
            _log.error(HELD, of="files", reason=seen.held)
            return seen
        sizes: dict[str, int] = {}
        by_topic: dict[TopicTable, dict[str, FilePath]] = {}
        async for info in self._objects.list(PREFIX):
            parsed = parse_file_path(info.path)
            if parsed is not None:
                seen.listed += 1
                sizes[info.path] = info.size
                by_topic.setdefault(TopicTable(parsed.topic, parsed.topic_id), {})[info.path] = parsed
        waiting: dict[str, float] = {}
        proven: list[str] = []
        unproven: list[str] = []
        for topic, files in by_topic.items():
            try:
                unknown = await self._unknown(topic, files)
                known_streams = await self._known_streams(topic.topic_id, [files[path] for path in unknown])
            except Exception as error:
                if not isinstance(error, (MetadataError, TablesError)):
                    self._runtime.background.report("collect files", error)
                _log.warning("files of a topic not collected", topic=topic.topic, error=str(error))
                seen.undecided += len(files)
                waiting |= {path: since for path, since in self._unknown_since.items() if path in files}
                continue
            for path in unknown:
                (proven if files[path].stream in known_streams else unproven).append(path)
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
                if await self._delete_when_due(path, waiting, seen, dry_run) and not dry_run:
                    deleted.add(path, sizes[path])
        finally:
            deleted.say()
        self._unknown_since = waiting
        return seen

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

    async def _unknown(self, topic: TopicTable, files: dict[str, FilePath]) -> list[str]:
        settled = await settled_files(self._store, files)
        if not settled:
            return []
        in_table = await self._tables.live_files(topic) if self._tables is not None else None
        indexed = await indexed_files(self._store, {parsed.stream for parsed in settled.values()})
        return sorted(path for path in settled if path not in indexed and path not in (in_table or ()))

    async def _delete_when_due(
        self, path: str, waiting: dict[str, float], seen: FileCollection, dry_run: bool
    ) -> bool:
        now = self._runtime.monotonic()
        since = self._unknown_since.get(path, now)
        if now - since < self._grace:
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


async def settled_files(store: StreamStore, files: dict[str, FilePath]) -> dict[str, FilePath]:
    """The files whose job is over: it is done, or a later job is there. A file of any other job may still be
    used."""
    settled: dict[str, FilePath] = {}
    for stream in sorted({parsed.stream for parsed in files.values()}):
        await store.barrier(stream)
        found = await store.job(stream)
        job = found.value
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
