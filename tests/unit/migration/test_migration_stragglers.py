"""Records that came late to the source: found, read as committed, and produced again once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any, cast
from uuid import UUID

import pytest
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes

from dray.kafka.client.errors import RequestFailed
from dray.kafka.records import Record, patch, read_header
from dray.kafka.records.header import CONTROL, TRANSACTIONAL
from dray.kafka.records.twin import decode, encode
from dray.log.stream_store import StreamStore
from dray.metadata.contract import Ambiguous
from dray.metadata.memory import MemoryState
from dray.migration.attach.found import MigrationRefused
from dray.migration.live.stragglers import (
    KnownHere,
    ProducedStragglers,
    StragglerReader,
    Straggling,
    committed_records,
    find_stragglers,
    left_of,
    produce_again,
)
from dray.migration.source.mirror import Aborted
from dray.migration.source.source import Failure, Leadership, SourceEnd, no_leader
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

TOPIC_ID = UUID(int=3)
LATE = [Record(10 + n, 1000 + n, f"k{n}".encode(), b"v", [("h", b"1")]) for n in range(4)]
RANGES = {0: Straggling(10, 16, 15)}  # a marker, and what is undecided, at the end


class LateRecords:
    async def read(self, partition: int, start: int, end: int) -> AsyncIterator[Record]:
        for record in LATE:
            if partition == 0 and start <= record.offset < end:
                yield record


LATE_RECORDS = cast(StragglerReader, LateRecords())


class LogHere:
    """Takes a producer's batch once, as the log does. `dies_after` so many batches were stored."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.sequences: dict[int, int] = {}
        self.producers = 0
        self.dies_after: int | None = None

    async def producer(self) -> tuple[int, int]:
        self.producers += 1
        return 1000 + self.producers, 0

    async def send(self, partition: int, batch: bytes) -> None:
        assert partition == 0
        [(header, records)] = decode(batch)
        last = self.sequences.get(header.producer_id, -1)
        if header.base_sequence > last + 1:
            raise AssertionError(f"sequence {header.base_sequence} follows {last}")
        if header.base_sequence == last + 1:
            self.sequences[header.producer_id] = header.base_sequence
            self.records += records
        if self.dies_after == len(self.records):
            self.dies_after = None
            raise Died


class Died(Exception):
    pass


def produced(store: ScriptedStore, topic_id: UUID = TOPIC_ID) -> ProducedStragglers:
    return ProducedStragglers(store, SimulatedRuntime(1), "t", topic_id)


def told(records: list[Record]) -> list[Any]:
    return [(each.timestamp, each.key, each.value, list(each.headers)) for each in records]


def test_each_is_produced_once_with_all_that_it_has() -> None:
    async def play() -> None:
        store, log = ScriptedStore(SimulatedRuntime(1), MemoryState()), LogHere()
        assert await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send) == 4
        assert told(log.records) == told(LATE)
        assert await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send) == 0
        assert len(log.records) == 4
        assert log.producers == 1

    run(play())


@pytest.mark.parametrize("stored", [1, 2, 4])
def test_a_process_that_died_before_it_noted_a_record_sends_it_once(stored: int) -> None:
    async def play() -> None:
        store, log = ScriptedStore(SimulatedRuntime(1), MemoryState()), LogHere()
        log.dies_after = stored
        with pytest.raises(Died):
            await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send)
        await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send)
        assert told(log.records) == told(LATE)

    run(play())


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_REPLY, Fate.REFUSE])
def test_one_producer_serves_all_calls(fate: Fate) -> None:
    async def play() -> None:
        store, log = ScriptedStore(SimulatedRuntime(1), MemoryState()), LogHere()
        store.trap(fate, part="stragglers/")
        await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send)
        assert told(log.records) == told(LATE)
        assert len(log.sequences) == 1

    run(play())


def test_what_was_produced_is_left_behind_no_more() -> None:
    """Nor are markers, and what was aborted. What a transaction has not decided is."""

    async def play() -> None:
        store, log = ScriptedStore(SimulatedRuntime(1), MemoryState()), LogHere()
        assert left_of(RANGES, await produced(store).read()) == RANGES
        await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send)
        progress = await produced(store).read()
        assert left_of(RANGES, progress) == {0: Straggling(15, 16, 15)}
        assert left_of({0: Straggling(10, 15, 15)}, progress) == {}
        await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send)
        assert await produced(store).read() == progress
        assert told(log.records) == told(LATE)

    run(play())


async def test_what_is_here_too_is_no_straggler() -> None:
    """A broker of Dray that had stood still sent it to a source whose writers were said to be stopped, and
    appended it here when it woke up."""
    world = World()
    log = world.log()
    [stream] = await log.create_streams(1)
    ours = await log.allocate_producer_id()
    for sequence in range(3):
        await append(log, stream, batch_bytes([b"x"], producer=(17, 4, sequence)))
    streams = StreamStore(world.store, DOMAINS, world.settings.producer_expiry_ms)
    known = KnownHere(streams, [stream], world.store)
    await known.look([0])

    def is_here(producer: tuple[int, int, int], count: int = 1) -> bool:
        return known.is_here(0, read_header(batch_bytes([b"x"] * count, producer=producer)))

    assert [is_here((17, 4, sequence)) for sequence in range(5)] == [True, True, True, False, False]
    assert not is_here((17, 4, 2), 2), "a part of it is not"
    assert not is_here((17, 3, 2)), "of another epoch"
    assert not is_here((18, 4, 0)), "of one that is not known here"
    assert not is_here((-1, -1, -1)), "nothing tells"
    assert is_here((ours + 5, 0, 900)), "an id that Dray gave: nobody else sends it there"
    assert not is_here((ours ^ (1 << 50), 0, 0)), "that of another Dray"
    second = batch_bytes([b"y"], producer=(17, 4, 3))
    patch(second, 0, 1, 0)
    batches = bytes(batch_bytes([b"x"], producer=(17, 4, 2)) + second)
    found = committed_records(memoryview(batches), (), lambda header: known.is_here(0, header))
    assert [record.value for record in found] == [b"y"]


def test_an_earlier_topic_of_the_name_says_nothing() -> None:
    async def play() -> None:
        store, log = ScriptedStore(SimulatedRuntime(1), MemoryState()), LogHere()
        await produced(store, UUID(int=9)).begin(log.producer)
        with pytest.raises(MigrationRefused, match="an earlier topic"):
            await produced(store).read()

    run(play())


def test_what_was_aborted_is_no_straggler() -> None:
    def batch(offset: int, producer: int, attributes: int) -> bytes:
        return bytes(
            encode(
                [Record(offset, 0, b"\0\0\0\0", b"x")],
                attributes=attributes,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
            )
        )

    batches = b"".join(
        [
            batch(5, 1, TRANSACTIONAL),  # aborted
            batch(6, 2, TRANSACTIONAL),
            batch(7, -1, 0),
            batch(8, 1, TRANSACTIONAL | CONTROL),
            batch(9, 1, TRANSACTIONAL),  # of the next one, which was committed
            batch(10, 1, TRANSACTIONAL | CONTROL),
        ]
    )
    assert read_header(batches).base_offset == 5
    found = committed_records(memoryview(batches), (Aborted(1, 5),))
    assert [record.offset for record in found] == [6, 7, 9]


class MeasuredSource:
    """As far as stragglers ask a source."""

    def __init__(self, ends: dict[int, int], last_stable: int = 1 << 40) -> None:
        self.ends = ends
        self.last_stable = last_stable

    async def learn(self) -> None:
        return None

    async def measure(self, partitions: Collection[int]) -> dict[int, SourceEnd | Failure]:
        return {partition: self._end(partition) for partition in partitions}

    def _end(self, partition: int) -> SourceEnd | Failure:
        end = self.ends.get(partition)
        if end is None:
            return no_leader("orders", partition)
        return SourceEnd(Leadership(1, 1), 0, min(self.last_stable, end), end, end)


def test_what_is_beyond_the_boundary_is_named() -> None:
    source = MeasuredSource({0: 10, 1: 12})
    found = run(find_stragglers(source, {0: 10, 1: 10}))  # type: ignore[arg-type]
    assert found == {1: Straggling(10, 12, 12)}
    source.last_stable = 11
    assert run(find_stragglers(source, {1: 10})) == {1: Straggling(10, 12, 11)}  # type: ignore[arg-type]
    with pytest.raises(RequestFailed, match="orders-2 has no leader"):
        run(find_stragglers(source, {2: 10}))  # type: ignore[arg-type]


def test_an_unclear_store_is_not_taken_for_one_that_knows_nothing() -> None:
    async def play() -> None:
        store, log = ScriptedStore(SimulatedRuntime(1), MemoryState()), LogHere()
        await produced(store).begin(log.producer)
        store.script(*[Fate.LOSE] * 8, part="stragglers/")
        with pytest.raises(Ambiguous):
            await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send)
        await produce_again(LATE_RECORDS, RANGES, produced(store), log.producer, log.send)
        assert told(log.records) == told(LATE)

    run(play())
