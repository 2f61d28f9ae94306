"""The log's world with a stream that began elsewhere: its source owned it, it is switched, maybe adopted."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from random import Random
from typing import Any

from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.foreign_source import EPOCH, HOLE, STORE, SimulatedSource
from tests.simulation.log.players import (
    IdempotentProducer,
    Sent,
    crashed_under_us,
    play_chance,
    play_deletion,
    play_lanes,
    play_plain_producer,
    play_retention,
    play_sealer,
)
from tests.simulation.log.run import SECONDS, first_trouble, until_calm
from tests.simulation.log.world import DOMAINS, Broker, LogWorld, Report

from dray.kafka.records import decode
from dray.kafka.records.header import CONTROL, TRANSACTIONAL
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.life.retention import Retention
from dray.log.stream_store import StreamStore
from dray.log.types import LogError, LogUnavailable, OffsetOutOfRange, ReadRequest, StreamClosed
from dray.metadata import keys
from dray.migration.entries.lay_down import lay_down
from dray.migration.entries.ownership import ForeignOwnership
from dray.migration.entries.pieces import as_data
from dray.migration.entries.segments import ForeignSegments, ForeignStore
from dray.migration.formats import walk_batches
from dray.migration.mirror.switching import switch_stream
from dray.objects.memory import MemoryObjects
from dray.objects.read_only import ReadOnlyStore
from dray_simulation.checks.log_truth import Identity, LogTruth, StreamTruth, Violation, identity_of
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime, true_wall_ms

_MANY = 1 << 30


class ForeignTruth(LogTruth):
    """What is true of a stream that began elsewhere, too."""

    def __init__(self, source: SimulatedSource) -> None:
        super().__init__()
        self._source = source
        self.stream = -1
        self.boundary: int | None = None

    def attach(self, stream: int, entries: Iterable[IndexEntry], boundary: int) -> None:
        self.create([stream])
        self.stream, self.boundary = stream, boundary
        truth = self.streams[stream]
        truth.records += self._source.records
        truth.filed |= {
            keys.index_entry(stream, entry.end, entry.cumulative_size): entry for entry in entries
        }
        self.objects |= set(self._source.bucket.objects)
        for producer, (_, _, number, _) in self._source.last.items():
            self._last[stream, f"p{producer}"] = 0, number
        self._check_readable(truth)

    def _high_watermark(self, truth: StreamTruth, new: HighWatermark) -> None:
        end = len(truth.records)
        super()._high_watermark(truth, new)
        if truth.number != self.stream:
            return
        if new.origin is None or new.origin.leader_epoch != EPOCH or new.origin.tier_end != self._source.end:
            raise Violation("where the stream began is forgotten")
        boundary = new.origin.boundary
        if self.boundary == -2 and boundary != -2 and boundary != end:
            raise Violation(f"switched at {boundary}, though the log ended at {end}")
        if self.boundary != -2 and boundary != self.boundary:
            raise Violation(f"the boundary moved from {self.boundary} to {boundary}")
        if boundary == -2 and len(truth.records) > end:
            raise Violation("something was appended while the source owned the log")
        self.boundary = boundary

    def held(self, entry: IndexEntry) -> list[Identity]:
        if not entry.is_outside:
            return super().held(entry)
        table = entry.outside()
        stored = self._source.bucket.objects.get(entry.path)
        if stored is None:
            raise Violation(f"{entry.path} is gone, and live")
        found: dict[int, Identity] = {}
        aborted = {offset for one in self._source.aborted for offset in range(*one[1:])}
        for batch in walk_batches(stored.data[table.rows[0].position : table.end_position]):
            if batch.is_control or (batch.is_transactional and batch.header.base_offset in aborted):
                continue
            plain = as_data(stored.data[batch.position : batch.end])
            for record in decode(plain, sparse=True).records():
                found[record.offset] = identity_of(record.value or b"")
        return [found.get(offset, HOLE) for offset in range(entry.start, entry.end)]

    def check_leftovers(
        self, objects: Iterable[str], references: Iterable[str], marks: Iterable[str], known: Iterable[str]
    ) -> None:
        """Of foreign segments only what is live must be there: what was borrowed is not ours to tidy up."""
        truth = self.streams[self.stream]
        foreign = {key: entry for key, entry in truth.filed.items() if entry.is_outside}
        self._check_readable(truth)
        ids = {entry.object_id for entry in self._source_entries}
        start = truth.start
        for key in foreign:
            del truth.filed[key]
        truth.start = max([start, *[entry.end for entry in foreign.values()]])
        super().check_leftovers(
            objects,
            [key for key in references if keys.wal_id_of(key) not in ids],
            marks,
            [key for key in known if keys.wal_id_of(key) not in ids],
        )
        truth.start = start
        truth.filed |= foreign

    _source_entries: list[IndexEntry]


class SourceObjects(MemoryObjects):
    """The source's store: the world hears of every deletion."""

    def __init__(self, world: ForeignLogWorld, runtime: SimulatedRuntime) -> None:
        super().__init__(runtime, world.source.bucket)
        self._world = world

    async def delete(self, path: str) -> None:
        await super().delete(path)
        self._world.source_deleted(path)


class ForeignLogWorld(LogWorld):
    def __init__(self, seed: int, conditions: LogConditions | None = None) -> None:
        super().__init__(seed, conditions)
        self.source = SimulatedSource(Random(seed ^ 0xF03E16), true_wall_ms())
        self.source.write()
        self.foreign = ForeignTruth(self.source)
        self.truth = self.foreign
        self.adopts = self.random.random() < 0.6
        self.adopted = False

    def foreign_stores(self, runtime: SimulatedRuntime) -> dict[str, ForeignStore]:
        return {STORE: ForeignStore(ReadOnlyStore(SourceObjects(self, runtime)))}

    def may_refuse(self, _error: BaseException) -> bool:
        """Whether the source's store has done something for which a reader may be refused."""
        return False

    def may_be_empty(self, _offset: int) -> bool:
        """Whether the source's store is so slow that a reader may get nothing for now."""
        return False

    def source_deleted(self, path: str) -> None:
        def judge() -> None:
            if not self.adopted:
                raise Violation(f"{path}: a borrowed segment was deleted")
            self.truth.deleted(path)

        self._judge(judge)

    async def _create_streams(self) -> None:
        await super()._create_streams()
        attached = self.source.attached()
        self.foreign._source_entries = list(attached.entries)
        while True:
            broker = self.brokers[0]
            store = StreamStore(broker.store, DOMAINS, self.conditions.settings.producer_expiry_ms)
            try:
                [stream] = await broker.log.take_stream_ids(1)
                await lay_down(store, stream, attached)
                break
            except LogError:
                self.counts["streams burnt"] += 1
        self.attached.add(stream)
        self.foreign.attach(stream, attached.entries, -2)
        self.streams.insert(self.random.randint(0, len(self.streams)), stream)

    def ownership(self, broker: Broker) -> ForeignOwnership:
        store = StreamStore(broker.store, DOMAINS, self.conditions.settings.producer_expiry_ms)
        segments = ForeignSegments(broker.objects, broker.runtime, self.foreign_stores(broker.runtime))
        retention = Retention(store, broker.runtime, self.conditions.settings)
        return ForeignOwnership(store, segments, broker.objects, broker.runtime, retention)


def foreign_players(world: ForeignLogWorld) -> list[Coroutine[Any, Any, None]]:
    cast = [play_chance(world), play_retention(world), play_sealer(world), play_lanes(world)]
    stream = world.foreign.stream
    if world.conditions.closes and len(world.streams) > 1:
        cast.append(play_deletion(world, world.streams[-1]))
    for producer, (values, data, number, sequence) in world.source.last.items():
        moved = IdempotentProducer(world, stream, producer)
        moved._number, moved._sequence = number + 1, sequence + len(values)
        moved._window.append(Sent(values, data))  # its answer was lost at the source
        cast.append(moved.play())
    cast += [play_plain_producer(world, stream), play_committed_consumer(world, stream)]
    cast += [play_switch(world, stream), play_switch(world, stream)]
    if world.adopts:
        cast.append(play_adoption(world, stream))
    return cast


async def play_switch(world: ForeignLogWorld, stream: int) -> None:
    await asyncio.sleep(world.random.uniform(0.0, 2.0))
    while stream not in world.closing:
        broker = world.any_broker()
        store = StreamStore(broker.store, DOMAINS, world.conditions.settings.producer_expiry_ms)
        try:
            boundary = await asyncio.wait_for(switch_stream(store, broker.runtime, stream), 5.0)
        except (LogUnavailable, TimeoutError):
            continue
        except StreamClosed:
            return
        except asyncio.CancelledError:
            if not crashed_under_us():
                raise
            continue
        if boundary != world.source.end:
            raise Violation(f"the source ended at {world.source.end}, and B0 is {boundary}")
        world.counts["switches"] += 1
        return


async def play_adoption(world: ForeignLogWorld, stream: int) -> None:
    await asyncio.sleep(world.random.uniform(0.5, 5.0))
    world.adopted = True
    while stream not in world.closing:
        try:
            await asyncio.wait_for(world.ownership(world.any_broker()).adopt(stream), 5.0)
        except (LogUnavailable, TimeoutError):
            continue
        except StreamClosed:
            return
        except asyncio.CancelledError:
            if not crashed_under_us():
                raise
            continue
        world.counts["adopted"] += 1
        return


async def play_committed_consumer(world: ForeignLogWorld, stream: int) -> None:
    """As Java's consumer reads what is committed: from the start, again and again."""
    while stream not in world.closing:
        offset = world.truth.start(stream)
        while offset < world.truth.end(stream) or world.random.random() < 0.5:
            await asyncio.sleep(world.random.uniform(0.0, 0.1))
            following = await consume(world, stream, offset)
            if following is None:
                break
            offset = following


async def consume(world: ForeignLogWorld, stream: int, offset: int) -> int | None:
    broker, committed = world.any_broker(), world.truth.end(stream)
    request = ReadRequest(stream, offset, world.random.choice((1, 500, _MANY)))
    may_be_empty = world.may_be_empty(offset)
    try:
        [result] = await asyncio.wait_for(
            broker.log.fetch([request], min_bytes=1, max_bytes=_MANY, max_wait_ms=200), 2.0
        )
    except TimeoutError:
        return offset
    except asyncio.CancelledError:
        if not crashed_under_us():
            raise
        return offset
    error = result.error
    may_be_empty = may_be_empty or world.may_be_empty(offset)
    if isinstance(error, LogUnavailable):
        return offset
    if isinstance(error, OffsetOutOfRange) and offset < world.truth.start(stream):
        return None
    if isinstance(error, StreamClosed) and stream in world.closing:
        return None
    if error is not None:
        if offset < world.truth.start(stream) or stream in world.closing:
            return None  # what lay there has expired, and its segment with it
        if world.may_refuse(error):
            world.counts["reads refused"] += 1
            return offset
        raise Violation(f"stream {stream}: reading at {offset} failed: {error!r}") from error
    if not result.buffers and offset < committed and not may_be_empty:
        raise Violation(f"stream {stream}: nothing at {offset}, though it reached {committed} before")
    ahead, aborted = sorted(result.aborted, key=lambda one: one[1]), set()
    for buffer in result.buffers:
        for batch in walk_batches(buffer):
            header = batch.header
            if header.leader_epoch != EPOCH:
                raise Violation(f"stream {stream}: epoch {header.leader_epoch} at {header.base_offset}")
            crosses = header.base_offset < world.source.end <= batch.last_offset
            if crosses:
                raise Violation(f"stream {stream}: a batch reaches over the boundary")
            while ahead and ahead[0][1] <= batch.last_offset:
                aborted.add(ahead.pop(0)[0])
            if header.attributes & CONTROL:
                aborted.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborted):
                plain = as_data(buffer[batch.position : batch.end])
                for record in decode(plain, sparse=True).records():
                    if record.offset >= offset:
                        _take(world, stream, offset, record.offset, record.value or b"")
                        offset = record.offset + 1
            _skip(world, stream, offset, batch.last_offset + 1)
            offset = max(offset, batch.last_offset + 1)
    return offset


def _take(world: ForeignLogWorld, stream: int, at: int, offset: int, value: bytes) -> None:
    _skip(world, stream, at, offset)
    world.truth.consumed(stream, offset, value)
    world.counts["consumed"] += 1


def _skip(world: ForeignLogWorld, stream: int, at: int, offset: int) -> None:
    missed = [record for record in world.truth.streams[stream].records[at:offset] if record != HOLE]
    if missed:
        raise Violation(f"stream {stream}: a consumer at {at} was not given {missed[0]}")


def simulate_foreign(seed: int, seconds: float = SECONDS) -> Report:
    """As `simulate_log`, with a stream that began elsewhere."""
    return run(_simulate(seed, seconds))


async def _simulate(seed: int, seconds: float) -> Report:
    world = ForeignLogWorld(seed)
    await world.start()
    tasks = [asyncio.ensure_future(player) for player in foreign_players(world)]
    try:
        await first_trouble(world, tasks, seconds)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await until_calm(world)
    finally:
        for broker in world.brokers:
            broker.crash()
        await asyncio.sleep(1)
    return world.report()
