"""Whose the foreign segments of a stream are: borrowed, adopted where they lie, or copied into our store.

Borrowed ones belong to their source. Nothing here or elsewhere deletes them: no object key names them, and
the collector goes by object keys alone. The source may still delete them, so they are looked after
(`audit`).

A segment is ours once it has an object key, and then every index entry that names it has a reference. The
references come first: an object key without them would say that nothing needs the segment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename, splitext
from typing import Final
from uuid import UUID, uuid5

import structlog

from dray.log import wal_keys
from dray.log.entries import IndexEntry
from dray.log.foreign_segments import OWN_STORE, ForeignSegments
from dray.log.foreign_tables import ForeignLayout
from dray.log.jobs import JobState, Packed, Packing, advance
from dray.log.retention import Retention
from dray.log.segment_presence import SegmentPresence, presences
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import ForeignSegmentFault, LogUnavailable, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import Delete, MetadataError, Operation, Put
from dray.objects.contract import Buffer, ObjectError, ObjectStore
from dray.runtime import Runtime

_log = structlog.get_logger(__name__)

COPIED: Final = "foreign/v1"
"""Where copied segments lie in our store."""

_COPY_BYTES: Final = 8 << 20
_KAFKA_BESIDE: Final = (".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint", ".txnindex")
_TRIES: Final = 16


def _unseen(_: int) -> None:
    """Progress that nothing shows."""


Entries = list[Versioned[IndexEntry]]


@dataclass(slots=True)
class ForeignFinding:
    """What an audit saw of a stream."""

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
                table = value.segment()
                owned = wal_keys.encode_segment(table.store, paths_of(value))
                await self._own_segment(stream, segment_id, entries, owned)
                done(1)
        except MetadataError as error:
            raise LogUnavailable(f"stream {stream}: its segments could not be adopted: {error}") from error
        return len(borrowed)

    async def _own_segment(self, stream: int, segment_id: UUID, entries: Entries, owned: bytes) -> None:
        references = [wal_keys.refer_to_segment(segment_id, stream, entry.value.end) for entry in entries]
        step = max(1, self._store.limits.operations // 2)
        for first in range(0, len(references), step):
            await self._store.write(stream, references[first : first + step])
        await self._store.write(stream, [Put(keys.wal_object(segment_id), owned)])
        # An entry may have gone meanwhile, and with it a reference that was not there yet.
        await self._store.barrier(stream)
        left = {entry.value.end for entry in (await self._foreign(stream)).get(segment_id, [])}
        gone: list[Operation] = [
            Delete(keys.segment_reference(segment_id, stream, entry.value.end))
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
        table = value.segment()
        folder = f"{COPIED}/{copy_id.hex}"
        path = f"{folder}/{basename(value.path)}"
        manifest = f"{folder}/{basename(table.manifest)}" if table.manifest else ""
        paths = [path, *([manifest] if manifest else [])]
        # The keys first: a copy that nothing knows would lie there for ever.
        await self._own_segment_to_be(stream, copy_id, entries, wal_keys.encode_segment(OWN_STORE, paths))
        source = self._segments.objects_of(table.store)
        try:
            await self._own.put_stream(path, _pieces(source, value.path, table.object_size, done))
            if manifest:
                await self._own.put(manifest, [await source.get(table.manifest)])
            if (await self._own.head(path)).size != table.object_size:
                raise ForeignSegmentFault(f"{value.path}: it is not of the size that its index entry says")
        except ObjectError as error:
            raise LogUnavailable(f"{value.path} could not be copied: {error}") from error
        for entry in entries:
            moved = replace(table if entry is entries[0] else entry.value.segment(), store=OWN_STORE)
            moved = replace(moved, manifest=manifest)
            await self._swap(
                stream,
                entry,
                replace(entry.value, object_id=copy_id, path=path, table=moved.encode()),
            )

    async def _own_segment_to_be(self, stream: int, copy_id: UUID, entries: Entries, owned: bytes) -> None:
        operations: list[Operation] = [
            wal_keys.refer_to_segment(copy_id, stream, entry.value.end) for entry in entries
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
                return  # compacted, expired, or moved by another process
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
        took: the start is raised over them. Where all are gone, or one between others, or one is there with
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
            if entry.value.is_foreign:
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
    table = entry.segment()
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
