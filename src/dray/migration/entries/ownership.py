"""The ownership of a stream's foreign segments: borrowed, adopted where they lie, or copied into our store.

Borrowed ones belong to their source. Nothing here or elsewhere deletes them: no object key names them, and
the collector goes by object keys alone. The source may still delete them, so they are looked after.

A segment is ours once it has an object key, and then every index entry that names it has a reference. The
references come first: an object key without them would say that nothing needs the segment.

Every broker looks after them, some minutes after its start and then about once a day; what a fetch does not
find is looked after at once (`log/life/lost_objects.py`). A topic that was born here has the first leader
epoch, and costs nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename, splitext
from typing import Final
from uuid import UUID, uuid5

import structlog

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.broker.topics.live import TopicSource
from dray.broker.topics.model import FIRST_LEADER_EPOCH
from dray.kafka.records import LEADER_EPOCH
from dray.log import wal_keys
from dray.log.entries import IndexEntry
from dray.log.jobs.machine import JobState, Packed, Packing, advance
from dray.log.life.retention import Retention
from dray.log.outside_table import OWN_STORE, OutsideTable
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import LogError, LogUnavailable, OutsideFault, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import Delete, MetadataError, Operation, Put
from dray.migration.entries.pieces import check_offsets, prepare
from dray.migration.entries.segments import ForeignLayout, ForeignSegments, SegmentPresence, presences
from dray.objects.contract import Buffer, ObjectError, ObjectMissing, ObjectStore, OwnBuffer

_log = structlog.get_logger(__name__)

COPIED: Final = "foreign/v1"
"""The folder of copied segments in our store."""

_COPY_BYTES: Final = 8 << 20
_KAFKA_BESIDE: Final = (".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint", ".txnindex")
_TRIES: Final = 16


def _unseen(_: int) -> None:
    """Progress that nothing shows."""


Entries = list[Versioned[IndexEntry]]


@dataclass(slots=True)
class ForeignFinding:
    """The findings of an audit of a stream."""

    segments: int = 0
    borrowed: int = 0
    missing: list[str] = field(default_factory=list)  # paths: gone, or of another size
    raised_to: int | None = None  # the start, where the source has expired the oldest

    @property
    def is_complete(self) -> bool:
        """Can every offset below the boundary be read? The seed's `tieringComplete`."""
        return not self.missing


class ForeignOwnership:
    def __init__(
        self,
        store: StreamStore,
        segments: ForeignSegments,
        own: ObjectStore,
        runtime: Runtime,
        retention: Retention,
    ) -> None:
        self._store = store
        self._segments = segments
        self._own = own
        self._runtime = runtime
        self._retention = retention

    # --- adopting

    async def adopt(self, stream: int, done: Callable[[int], None] = _unseen) -> int:
        """Take over the segments that are borrowed; how many. Only once their source is shut down: from now
        on the collector deletes what nothing needs. May be called again. `done` hears of each segment."""
        try:
            borrowed = await self._borrowed(stream)
            for segment_id, entries in borrowed.items():
                value = entries[0].value
                table = value.outside()
                owned = wal_keys.encode_owned(table.store, paths_of(value))
                await self._own_segment(stream, segment_id, entries, owned)
                done(1)
        except MetadataError as error:
            raise LogUnavailable(f"stream {stream}: its segments could not be adopted: {error}") from error
        return len(borrowed)

    async def _own_segment(self, stream: int, segment_id: UUID, entries: Entries, owned: bytes) -> None:
        references = [wal_keys.refer_to_entry(segment_id, stream, entry.value.end) for entry in entries]
        step = max(1, self._store.limits.operations // 2)
        for first in range(0, len(references), step):
            await self._store.write(stream, references[first : first + step])
        await self._store.write(stream, [Put(keys.wal_object(segment_id), owned)])
        # An entry may have gone meanwhile, and with it a reference that was not there yet.
        await self._store.barrier(stream)
        left = {entry.value.end for entry in (await self._foreign(stream)).get(segment_id, [])}
        gone: list[Operation] = [
            Delete(keys.entry_reference(segment_id, stream, entry.value.end))
            for entry in entries
            if entry.value.end not in left
        ]
        if gone:
            await self._store.write(stream, gone)

    # --- copying

    async def copy(self, stream: int, done: Callable[[int], None] = _unseen) -> int:
        """Copy the segments that are borrowed into our store, and let the index name the copies; how many.
        May be called again. `done` hears of the bytes, as they are read."""
        copied = 0
        try:
            for segment_id, entries in (await self._borrowed(stream)).items():
                await self._copy(stream, uuid5(segment_id, COPIED), entries, done)
                copied += 1
        except MetadataError as error:
            raise LogUnavailable(f"stream {stream}: its segments could not be copied: {error}") from error
        return copied

    async def _copy(self, stream: int, copy_id: UUID, entries: Entries, done: Callable[[int], None]) -> None:
        value = entries[0].value
        table = value.outside()
        folder = f"{COPIED}/{copy_id.hex}"
        path = f"{folder}/{basename(value.path)}"
        manifest = f"{folder}/{basename(table.manifest)}" if table.manifest else ""
        paths = [path, *([manifest] if manifest else [])]
        # The keys first: a copy that nothing knows would lie there for ever.
        await self._own_segment_to_be(stream, copy_id, entries, wal_keys.encode_owned(OWN_STORE, paths))
        source = self._segments.objects_of(table.store)
        try:
            await self._own.put_stream(path, _pieces(source, value.path, table.object_size, done))
            if manifest:
                await self._own.put(manifest, [await source.get(table.manifest)])
            if (await self._own.head(path)).size != table.object_size:
                raise OutsideFault(f"{value.path}: it is not of the size that its index entry says")
        except ObjectError as error:
            raise LogUnavailable(f"{value.path} could not be copied: {error}") from error
        copies: list[IndexEntry] = []
        for entry in entries:
            moved = replace(table if entry is entries[0] else entry.value.outside(), store=OWN_STORE)
            moved = replace(moved, manifest=manifest)
            copies.append(replace(entry.value, object_id=copy_id, path=path, table=moved.encode()))
            await self._check(copies[-1], moved)
        for entry, copied in zip(entries, copies, strict=True):
            await self._swap(stream, entry, copied)

    async def _check(self, copied: IndexEntry, table: OutsideTable) -> None:
        """Every batch of a copy, read back: its source may be switched off then, and nothing else has it."""
        for number in range(len(table.rows)):
            begin, end = table.bounds_of(number)

            def check(data: OwnBuffer, number: int = number, begin: int = begin) -> None:
                check_offsets(prepare(data, copied.path, begin, LEADER_EPOCH), copied, table, number)

            try:
                await self._segments.with_range(copied, table, begin, end - begin, check)
            except ObjectMissing as error:
                raise LogUnavailable(f"{copied.path}: the copy could not be read: {error}") from error

    async def _own_segment_to_be(self, stream: int, copy_id: UUID, entries: Entries, owned: bytes) -> None:
        operations: list[Operation] = [
            wal_keys.refer_to_entry(copy_id, stream, entry.value.end) for entry in entries
        ]
        operations.append(Put(keys.wal_object(copy_id), owned))
        step = max(1, self._store.limits.operations // 2)
        for first in range(0, len(operations), step):
            await self._store.write(stream, operations[first : first + step])

    async def _swap(self, stream: int, entry: Versioned[IndexEntry], copied: IndexEntry) -> None:
        """The copy takes the place of what was borrowed, by a job as a pack does: nothing else may change the
        index meanwhile."""
        for _ in range(_TRIES):
            job = await self._store.job(stream)
            if job.value.state is not JobState.DONE:
                await self._retention.carry_on(stream, job)
                continue
            await self._store.barrier(stream)
            found = await self._store.entry(stream, entry.value.end, entry.value.cumulative_size)
            if found is None or found.value.object_id != entry.value.object_id:
                # Compacted, expired, or moved by another process. Unless it is the copy that is there by now,
                # nothing will ever need that for this entry.
                if found is None or found.value.object_id != copied.object_id:
                    gone = keys.entry_reference(copied.object_id, stream, entry.value.end)
                    await self._store.write(stream, [Delete(gone)])
                return
            packing = Packing.of([found], copied)
            moved = await self._store.perform(stream, job, advance(stream, job.value, Packed(packing)))
            if moved is not None:
                await self._retention.finish(stream, moved)
                return
        raise LogUnavailable(f"stream {stream}: its index changes too fast, try again")

    # --- looking after what is borrowed

    async def audit(self, stream: int) -> ForeignFinding:
        """Are the objects still there, and of their size?

        The oldest ones that are gone, with a later one in its place, are what the source's own retention
        took: the start is raised over them. If all are gone, or one between others, or one is there with
        another size, nothing is concluded: records are not given up for what may be a mistake."""
        finding = ForeignFinding()
        present: list[tuple[IndexEntry, SegmentPresence]] = []
        try:
            borrowed = await self._borrowed(stream)
            foreign = await self._foreign(stream)
            firsts = {segment_id: entries[0].value for segment_id, entries in foreign.items()}
            seen = await presences(self._segments, firsts)
            for segment_id, entries in foreign.items():
                presence = seen[segment_id]
                finding.segments += 1
                finding.borrowed += segment_id in borrowed
                if presence is not SegmentPresence.THERE:
                    finding.missing.append(entries[0].value.path)
                present += [(entry.value, presence) for entry in entries]
            oldest = _gone_from_the_front(present)
            if oldest and all(entry.object_id in borrowed for entry in oldest):
                finding.raised_to = await self._retention.raise_start(stream, oldest[-1].end)
                gone = {entry.path for entry in oldest}
                finding.missing = [path for path in finding.missing if path not in gone]
                _log.info("the source has expired its oldest segments", stream=stream, segments=len(gone))
        except MetadataError as error:
            raise LogUnavailable(f"stream {stream}: its segments were not looked at: {error}") from error
        if finding.missing:
            _log.error(
                "foreign segments are gone: what they held cannot be read",
                stream=stream,
                segments=len(finding.missing),
                examples=finding.missing[:3],
            )
        return finding

    # --- reading the index

    async def _foreign(self, stream: int) -> dict[UUID, Entries]:
        """The live entries of each foreign segment, in order."""
        view = await self._store.view(stream)
        if view is None or view.high_watermark.value.closed:
            raise StreamClosed(f"stream {stream} is closed")
        found: dict[UUID, Entries] = {}
        for entry in view.split()[0]:
            if entry.value.is_outside:
                found.setdefault(entry.value.object_id, []).append(entry)
        return found

    async def _borrowed(self, stream: int) -> dict[UUID, Entries]:
        domain = self._store.domain(stream)
        await self._store.barrier(stream)
        found = await self._foreign(stream)
        return {
            segment_id: entries
            for segment_id, entries in found.items()
            if await self._store.get_in(domain, keys.wal_object(segment_id)) is None
        }


def paths_of(entry: IndexEntry) -> list[str]:
    """All that there is of a segment: its bytes, and what lies beside them."""
    table = entry.outside()
    stem = splitext(entry.path)[0]
    match table.layout:
        case ForeignLayout.AIVEN:
            return [entry.path, f"{stem}.indexes", table.manifest]
        case ForeignLayout.KAFSCALE:
            return [entry.path, f"{stem}.index"]
        case _:
            return [entry.path, *[f"{stem}{suffix}" for suffix in _KAFKA_BESIDE]]


def _gone_from_the_front(present: Sequence[tuple[IndexEntry, SegmentPresence]]) -> list[IndexEntry]:
    """The oldest entries whose segments are gone, if there is a later one whose segment is there."""
    gone: list[IndexEntry] = []
    for entry, presence in present:
        if presence is SegmentPresence.CHANGED:
            return []
        if presence is SegmentPresence.THERE:
            return gone
        gone.append(entry)
    return []


async def _pieces(
    source: ObjectStore, path: str, size: int, done: Callable[[int], None]
) -> AsyncIterator[Sequence[Buffer]]:
    for position in range(0, size, _COPY_BYTES):
        length = min(_COPY_BYTES, size - position)
        yield await source.get_ranges(path, [(position, length)])
        done(length)


# --- looking after them

FIRST_LOOK_SECONDS: Final = 600.0


class ForeignAuditLoop:
    def __init__(
        self,
        audit: Callable[[int], Awaitable[ForeignFinding]],
        topics: TopicSource,
        runtime: Runtime,
        interval_seconds: float = 86_400.0,
    ) -> None:
        self._audit = audit
        self._topics = topics
        self._runtime = runtime
        self._interval = interval_seconds
        self._task: KeptTask | None = None
        self._missing: dict[int, int] = {}  # by stream, as it was last seen

    @property
    def missing(self) -> int:
        """Segments that were gone at the last look. A look that was interrupted says nothing."""
        return sum(self._missing.values())

    def start(self) -> None:
        self._task = keep_running(self._runtime, "audit foreign segments", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    async def _run(self) -> None:
        pause = min(self._interval, FIRST_LOOK_SECONDS)  # a broker may be restarted every day
        while True:
            await self._runtime.sleep(pause * (0.75 + 0.5 * self._runtime.random.random()))
            await self.once()
            pause = self._interval

    async def once(self) -> dict[str, int]:
        """One round; by topic, how many segments are gone."""
        gone: dict[str, int] = {}
        try:
            topics = (await self._topics.live()).known
        except MetadataError as error:
            _log.warning("audit of foreign segments interrupted", error=str(error))
            return gone
        attached = {stream for topic in topics for stream in topic.streams}
        self._missing = {stream: count for stream, count in self._missing.items() if stream in attached}
        for topic in topics:
            if topic.leader_epoch == FIRST_LEADER_EPOCH:
                continue
            for partition, stream in enumerate(topic.streams):
                try:
                    finding = await self._audit(stream)
                except LogError as error:
                    _log.warning(
                        "audit of foreign segments interrupted",
                        topic=topic.name,
                        partition=partition,
                        error=str(error),
                    )
                    continue
                self._missing[stream] = len(finding.missing)
                if not finding.is_complete:
                    gone[topic.name] = gone.get(topic.name, 0) + len(finding.missing)
        return gone
