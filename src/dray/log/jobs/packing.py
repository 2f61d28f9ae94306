"""Packing: carried entries of many streams become one ordinary WAL object.

The job key of a stream is to a pack what the high watermark is to an append. It is read before the pack is
staged; one compare-and-set on it, from DONE to PACKED, decides; and a collector moves it before it judges
what was left. From then on any process finishes the job (`machine.py`): producer snapshot, merged entry onto
the key of the last input, what it replaced goes. A pack is never aimed again: a clear no is final. After an
unclear reply a job that moved may be ours, finished by another: then references and mark stay, and the
collector decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar
from uuid import UUID

import structlog

from dray.base.runtime import DAY_MS, Runtime
from dray.log import wal_keys
from dray.log.append.carry import CarriedBacklog
from dray.log.entries import NO_TIMESTAMP, BatchReference, IndexEntry
from dray.log.jobs.machine import Awaits, Job, JobState, Packed, Packing, StreamGone, advance, put_job
from dray.log.life.retention import Retention, sweep
from dray.log.observer import LogObserver
from dray.log.settings import LogSettings
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.log.types import LogError, StreamClosed
from dray.log.wal import Chunk as WalChunk
from dray.log.wal import ChunkBatch, EncodedObject, encode, object_path
from dray.metadata import keys
from dray.metadata.contract import Ambiguous, Delete, MetadataError, Operation, Outcome, Unavailable
from dray.metadata.values import UnreadableValue
from dray.objects.contract import ObjectError, ObjectStore

_log = structlog.get_logger(__name__)

_MOST_BYTES: Final = 8 << 20  # of one object
_MOST_STREAMS: Final = 512
_AT_ONCE: Final = 256  # entries that the event loop itself looks at
# A job holds the merged entry as base64, beside little else.
_JOB_BYTES: Final = 4096
_BATCH_BYTES: Final = 64  # an encoded batch reference, as base64

Entries = list[Versioned[IndexEntry]]
T = TypeVar("T")


@dataclass(slots=True)
class PackAim:
    """A stream's part of a pack: adjoining carried entries, and the job as it was read before them."""

    job: Versioned[Job]
    inputs: Entries
    references: list[BatchReference]  # of all batches, with their places once the object is encoded
    unsure: bool = False  # a reply was lost at this version
    tries: int = 0

    @property
    def size(self) -> int:
        return sum([len(entry.value.data) for entry in self.inputs])

    def put(self, stream: int, wal_id: UUID, path: str) -> tuple[Job, Operation]:
        """The job that decides, over the version that was read."""
        merged = IndexEntry.packed([entry.value for entry in self.inputs], wal_id, path, self.references)
        following = advance(stream, self.job.value, Packed(Packing.of(self.inputs, merged))).following
        assert following is not None
        return following, put_job(stream, following, self.job.version)


@dataclass(slots=True)
class PackResult:
    """The outcome of a pack, by stream."""

    taken: dict[int, Versioned[Job] | None]  # with the job, where its version is known
    failed: list[int]
    undecided: bool = False


class Packer:
    """Packs the streams of one domain."""

    def __init__(
        self,
        domain: int,
        store: StreamStore,
        objects: ObjectStore,
        runtime: Runtime,
        settings: LogSettings,
        retention: Retention,
        backlog: CarriedBacklog,
        observer: LogObserver | None = None,
    ) -> None:
        self._domain = domain
        self._store = store
        self._objects = objects
        self._runtime = runtime
        self._settings = settings
        self._retention = retention
        self._backlog = backlog
        self._pace = PackingPace(runtime, backlog)
        self._observer = observer or LogObserver()
        limits = store.limits
        self._most_streams = min(_MOST_STREAMS, max(1, limits.operations - 2))
        self._most_batches = max(1, (limits.value_bytes - _JOB_BYTES) // _BATCH_BYTES)

    async def pack(self, streams: Sequence[int], *, heads: bool = False) -> int:
        """Pack what these streams carry; how many entries were packed. `heads`: what is not filed yet too.
        Raises the errors of the metadata store, and `ObjectError` if the object was not uploaded."""
        aims: dict[int, PackAim] = {}
        size = 0
        self._pace.begin()
        for stream in streams:
            try:
                aim = await self._plan(stream, _MOST_BYTES - size, seal=heads)
            except (LogError, UnreadableValue) as error:
                # Of this stream alone: others are packed all the same.
                _log.warning("stream not packed", stream=stream, error=str(error))
                continue
            if aim is not None:
                aims[stream] = aim
                size += aim.size
            if size >= _MOST_BYTES or len(aims) >= self._most_streams:
                break
            await self._pace.give_way()
        return await self._pack(aims) if aims else 0

    # --- planning

    async def _plan(self, stream: int, room: int, *, seal: bool) -> PackAim | None:
        """The job first, then the view: a plan that is older than another job cannot start."""
        job = await self._store.job(stream)
        if job.value.awaits is Awaits.PACK:
            await self.finish(stream, job)
            job = await self._store.job(stream)
        await self._store.barrier(stream)
        view = await self._view(stream)
        if seal and view is not None and _has_carried_head(view):
            view = await self._sealed(stream, view)
        await self._count(stream, view)
        if job.version == 0 or job.value.state is not JobState.DONE:
            return None  # a pack is never aimed at a job that is not there: a collector could not fence it
        carried = await self._beside(_entries_in(view), _carried, view)
        inputs = await self._beside(len(carried), self._cut, carried, room)
        references = await self._beside(len(inputs), _references, inputs)
        return PackAim(job, inputs, references) if inputs else None

    async def _sealed(self, stream: int, view: StreamView) -> StreamView | None:
        """With its head filed. If all of that applied, it is what was read and the head; else it is read."""
        sealed = view.high_watermark.value.sealed()
        write = self._store.advance(stream, view.high_watermark, sealed)
        outcomes = await self._store.write(stream, write)
        head = view.high_watermark.value.head
        if head is None or not all(outcome.applied for outcome in outcomes):
            return await self._view(stream)
        moved, filed = outcomes
        entries = [*view.entries, Versioned(head, filed.version)]
        return replace(view, high_watermark=Versioned(sealed, moved.version), entries=entries)

    def _cut(self, carried: Entries, room: int) -> Entries:
        """The oldest run that adjoins, is of one day, and fits."""
        taken: Entries = []
        batches = 0
        days: set[int] = set()
        for entry in carried:
            days |= _days(entry.value)
            if taken and (taken[-1].value.end != entry.value.start or len(days) > 1):
                break
            room -= len(entry.value.data)
            batches += entry.value.batch_count
            if taken and (room < 0 or batches > self._most_batches):
                break
            taken.append(entry)
        return taken

    # --- one object, from stage to settle

    async def _pack(self, aims: dict[int, PackAim]) -> int:
        wal_id, created_ms = self._runtime.uuid(), self._runtime.wall_ms()
        path = object_path(self._settings.zone, self._domain, created_ms, wal_id)
        mark = wal_keys.Staging(path, tuple(sorted(aims)), wal_keys.StagingKind.PACK)
        # If this raises, the id is burnt: nothing is ever uploaded under it.
        staged = (await self._store.write_in(self._domain, wal_keys.stage(wal_id, mark)))[0].version
        encoded = await self._runtime.in_thread(_encode, wal_id, self._domain, created_ms, aims)
        try:
            await self._objects.put(path, encoded.parts)
        except ObjectError:
            await self._settle(wal_id, staged, list(aims))
            raise
        result = await self._decide(aims, wal_id, path)
        if result.undecided:
            # A write may still apply: the references and the mark stay, and the collector decides.
            _log.debug("pack left to the collector", path=path)
        else:
            await self._settle(wal_id, staged, result.failed)
        entries = sum([len(aims[stream].inputs) for stream in result.taken])
        self._observer.packed(entries, encoded.size)
        for stream, job in result.taken.items():
            await self._pace.give_way()
            await self.finish(stream, job)
        return entries

    async def _settle(self, wal_id: UUID, staged: int, failed: list[int]) -> None:
        try:
            await self._store.write_in(self._domain, wal_keys.settle(wal_id, staged, failed))
        except MetadataError as error:
            _log.debug("pack not settled: the collector does it", wal_id=wal_id.hex, error=str(error))

    async def _decide(self, aims: dict[int, PackAim], wal_id: UUID, path: str) -> PackResult:
        result = PackResult({}, [])
        waiting = dict(aims)
        puts = {
            stream: await self._beside(len(aim.inputs), aim.put, stream, wal_id, path)
            for stream, aim in aims.items()
        }
        while waiting:
            outcomes = await self._write({stream: puts[stream][1] for stream in waiting})
            for stream, aim in list(waiting.items()):
                outcome = outcomes[stream]
                if outcome is not None and outcome.applied:
                    result.taken[stream] = Versioned(puts[stream][0], outcome.version)
                    del waiting[stream]
                elif outcome is not None and not aim.unsure:
                    self._observer.pack_lost()
                    result.failed.append(stream)  # never there, and never will be
                    del waiting[stream]
                else:
                    aim.unsure = True
                    self._observer.pack_lost()
                    if not await self._is_again(stream, aim, wal_id, result):
                        del waiting[stream]
            if waiting:
                await self._runtime.sleep(self._settings.retry_seconds)
        return result

    async def _is_again(self, stream: int, aim: PackAim, wal_id: UUID, result: PackResult) -> bool:
        """After an unclear reply: is the same write sent again?"""
        aim.tries += 1
        try:
            await self._store.barrier(stream)  # no rule: but what a stale read shows would be sent in vain
            found = await self._store.job(stream)
        except MetadataError:
            found = None
        if found is not None and found.value.packs_into(wal_id):
            result.taken[stream] = found
            return False
        if found is not None and found.version == aim.job.version and aim.tries <= self._settings.retry_limit:
            return True
        result.undecided = True  # one that moved may be ours, and finished
        return False

    async def _write(self, puts: dict[int, Operation]) -> dict[int, Outcome | None]:
        """Each stream's outcome; None if the reply was lost, or nothing is known of it. Streams do not depend
        on each other, so they may be in several writes."""
        found: dict[int, Outcome | None] = {}
        limits = self._store.limits
        part: dict[int, Operation] = {}
        size = 0
        for stream, put in puts.items():
            more = len(getattr(put, "value", b""))
            if part and (size + more > limits.value_bytes or len(part) >= limits.operations):
                found |= await self._write_part(part)
                part, size = {}, 0
            part[stream] = put
            size += more
        return found | await self._write_part(part)

    async def _write_part(self, part: dict[int, Operation]) -> dict[int, Outcome | None]:
        try:
            outcomes = await self._store.write_in(self._domain, list(part.values()))
        except (Ambiguous, Unavailable):
            return dict.fromkeys(part)
        return dict(zip(part, outcomes, strict=True))

    # --- finishing

    async def finish(self, stream: int, job: Versioned[Job] | None) -> None:
        """Carry a pack on to its end; None: its job is read first. Steps that cannot be done now are left for
        any other process."""
        try:
            left = await self._retention.finish(stream, job or await self._store.job(stream))
            if left.value.awaits is Awaits.PACK:
                await self._unpack(stream)  # if it was swept, the snapshot will never cover the range
            await self._count(stream, await self._view(stream))
        except StreamClosed:
            await self._unpack(stream)
        except (MetadataError, LogError) as error:
            _log.debug("pack not finished: the next look does it", stream=stream, error=str(error))

    async def look(self, stream: int) -> int:
        """How many entries the stream carries. An unfinished pack counts too, and is finished here; and so do
        entries that a late write brought back, which go."""
        job = await self._store.job(stream)
        if job.value.awaits is Awaits.PACK:
            await self.finish(stream, job)
            return 1
        await self._store.barrier(stream)
        view = await self._view(stream)
        dead = await self._beside(_entries_in(view), _dead, view)
        await sweep(self._store, stream, dead)
        return await self._count(stream, view) + len(dead)

    async def _view(self, stream: int) -> StreamView | None:
        """To be counted."""
        self._backlog.looking_at(stream, self._runtime.monotonic())
        records = await self._store.records(stream)
        return await self._beside(len(records), StreamView.of, stream, records)

    async def _beside(self, entries: int, work: Callable[..., T], *arguments: Any) -> T:
        """In a thread where there are many: a thousand entries take tens of milliseconds, and appends wait
        for the event loop meanwhile."""
        if entries <= _AT_ONCE:
            return work(*arguments)
        return await self._runtime.in_thread(work, *arguments)

    async def _count(self, stream: int, view: StreamView | None) -> int:
        live = await self._beside(_entries_in(view), _carried, view)
        carried = [entry.value for entry in live]
        head = view.high_watermark.value.head if view is not None and _has_carried_head(view) else None
        if head is not None:
            carried.append(head)
        size = sum([len(entry.data) for entry in carried])
        unfiled = None if head is None else len(head.data)
        self._backlog.recount(stream, size, len(carried), self._runtime.monotonic(), unfiled)
        return len(carried)

    async def _unpack(self, stream: int) -> None:
        try:
            await self._give_up(stream)
        except MetadataError as error:
            _log.debug("pack of a closed stream left", stream=stream, error=str(error))

    async def _give_up(self, stream: int) -> None:
        """The stream was closed: its part of the object is not needed. If the stream is swept already, so is
        its job."""
        await self._store.barrier(stream)
        mark = await self._store.high_watermark(stream)
        job = await self._store.job(stream)
        if (mark is not None and not mark.value.closed) or job.value.awaits is not Awaits.PACK:
            return
        moved = await self._store.perform(stream, job, advance(stream, job.value, StreamGone()))
        self._backlog.recount(stream, 0, 0, self._runtime.monotonic())
        if moved is not None and (await self._store.start(stream)).version == 0:
            await self._store.write(stream, [Delete(keys.job(stream), moved.version)])


def _has_carried_head(view: StreamView) -> bool:
    head = view.high_watermark.value.head
    return head is not None and head.is_carried and not view.high_watermark.value.closed


def _entries_in(view: StreamView | None) -> int:
    return 0 if view is None else len(view.entries)


def _carried(view: StreamView | None) -> Entries:
    """The live carried entries below the head."""
    if view is None or view.high_watermark.value.closed:
        return []
    return [entry for entry in view.split()[0] if entry.value.is_carried]


def _dead(view: StreamView | None) -> Entries:
    return [] if view is None else [entry for entry in view.split()[1] if entry.value.is_carried]


def _days(entry: IndexEntry) -> set[int]:
    """Of the append times in it. A table that is partitioned by day is made of entries of one day. Producers'
    own times jump, and are never in such a table: they do not part objects either."""
    times = [reference.append_time_ms for _, reference in entry.batches()]
    return {time // DAY_MS for time in times if time != NO_TIMESTAMP}


def _references(inputs: Entries) -> list[BatchReference]:
    return [reference for entry in inputs for _, reference in entry.value.batches()]


def _encode(wal_id: UUID, domain: int, created_ms: int, aims: dict[int, PackAim]) -> EncodedObject:
    """The object, and in the aims where their batches lie in it."""
    chunks = []
    for stream, aim in sorted(aims.items()):
        batches = []
        for entry in aim.inputs:
            data = memoryview(entry.value.data)
            for _, reference in entry.value.batches():
                view = data[reference.position : reference.position + reference.length]
                batches.append(
                    ChunkBatch(view, reference.record_count, reference.min_timestamp, reference.max_timestamp)
                )
        chunks.append(WalChunk(stream, batches))
    encoded = encode(wal_id, domain, created_ms, chunks)
    for stream, aim in aims.items():
        placement = encoded.placements[stream]
        aim.references = [
            reference._replace(position=placement.offset + position)
            for reference, position in zip(aim.references, placement.batch_positions, strict=True)
        ]
    return encoded


# --- packs give way to appends
#
# A pack takes a dozen reads and writes of the metadata store for each of its streams, by the event loop and
# the threads that appends need too: at full speed it takes a third of theirs. It is in no hurry while the
# backlog is far from its bound. So while small appends come, packing takes a part of the time only: a tenth
# of it at the least, more as the backlog fills, and all of it from half of the bound on.


BUSY_SECONDS: Final = 0.05
"""After so long without an append there is nobody to give way to."""

_LEAST_SHARE: Final = 0.1
_LONGEST_PAUSE: Final = 0.5


def share_of_time(size: int, bound: int) -> float:
    """The share of the time that packing may take, with so much carried."""
    return min(1.0, max(_LEAST_SHARE, 2 * size / bound)) if bound else 1.0


class PackingPace:
    """Of one domain."""

    def __init__(self, runtime: Runtime, backlog: CarriedBacklog) -> None:
        self._runtime = runtime
        self._backlog = backlog
        self._went_on = 0.0

    def begin(self) -> None:
        self._went_on = self._runtime.monotonic()

    async def give_way(self) -> None:
        """Between two streams: rest for as long as the work since the last time asks for."""
        now = self._runtime.monotonic()
        if now - self._backlog.latest < BUSY_SECONDS:
            share = share_of_time(self._backlog.size, self._backlog.limits.backlog)
            pause = min((now - self._went_on) * (1 / share - 1), _LONGEST_PAUSE)
            if pause > 0:
                await self._runtime.sleep(pause)
        self.begin()
