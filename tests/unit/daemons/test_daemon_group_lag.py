"""Lag of groups in the metrics: what it says, that it is bounded, and what it costs the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.topics import Topic
from dray.broker.topics.model import TopicSettings
from dray.daemons.broker import group_lag
from dray.daemons.broker.group_lag import GroupLag, GroupOffsets
from dray.log.entries import BatchReference, HighWatermark, IndexEntry, pack_batches
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Put, StoredValue
from dray.metadata.memory import MemoryStore

NOW = 1_000_000


class StoppedClock(SystemRuntime):
    def wall_ms(self) -> int:
        return NOW


class CountingStore(MemoryStore):
    def __init__(self, runtime: SystemRuntime) -> None:
        super().__init__(runtime)
        self.calls: Counter[str] = Counter()
        self.broken = False

    async def get(self, domain: int, key: str) -> StoredValue | None:
        self.calls["get"] += 1
        if self.broken:
            raise MetadataError("away")
        return await super().get(domain, key)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        self.calls["scan"] += 1
        return await super().scan(domain, start, end, limit)


@dataclass
class Group:
    group_id: str
    committed: Mapping[tuple[str, int], int]

    def offsets(self) -> Mapping[tuple[str, int], CommittedOffset]:
        return {place: CommittedOffset(offset, -1, "", 0) for place, offset in self.committed.items()}


@dataclass
class Source:
    found: list[Group]
    topics: dict[str, Topic]

    def groups(self) -> Iterator[GroupOffsets]:
        yield from self.found

    async def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)


def topic(name: str, *streams: int) -> Topic:
    return Topic(name, UUID(int=1), streams, {}, 0, TopicSettings.of({}, {}))


def wal(start: int, end: int) -> IndexEntry:
    """Batches of one record; the record at offset n is of second n."""
    batches = [BatchReference(100, 50, 1, 0, 1000 * n, 1000 * n, -1, -1, -1) for n in range(start, end)]
    times = 1000 * start, 1000 * end
    return IndexEntry(
        start, end, end, 7, *times, times[1], end - 1, UUID(int=end), f"wal/{end}", pack_batches(batches)
    )


class World:
    def __init__(self, show: int = 100) -> None:
        self.runtime = StoppedClock()
        self.store = CountingStore(self.runtime)
        self.metrics = Metrics(process=False)
        self.source = Source([], {})
        self.lag = GroupLag(
            self.source, StreamStore(self.store, 1, 0), self.runtime, self.metrics, show, interval=0.001
        )

    async def log(self, stream: int, *filed: IndexEntry, head: IndexEntry) -> None:
        operations = [
            Put(keys.index_entry(stream, entry.end, entry.cumulative_size), entry.encode()) for entry in filed
        ]
        mark = HighWatermark.at(head)
        await self.store.write(0, [*operations, Put(keys.high_watermark(stream), mark.encode())])

    def shown(self, name: str) -> dict[tuple[str, str], float]:
        return {
            (sample.labels["group"], sample.labels["topic"]): sample.value
            for family in text_string_to_metric_families(self.metrics.exposition().decode())
            for sample in family.samples
            if sample.name == name
        }

    @property
    def records(self) -> dict[tuple[str, str], float]:
        return self.shown("dray_group_lag_records")

    @property
    def seconds(self) -> dict[tuple[str, str], float]:
        return self.shown("dray_group_lag_seconds")


@pytest.fixture
async def world() -> World:
    return World()


async def test_lag_in_records_and_seconds(world: World) -> None:
    world.source.topics = {"orders": topic("orders", 1, 2), "quiet": topic("quiet", 3)}
    world.source.found = [
        Group("billing", {("orders", 0): 12, ("orders", 1): 3, ("quiet", 0): 5}),
        Group("audit", {("orders", 0): 20}),
    ]
    await world.log(1, wal(0, 10), head=wal(10, 20))
    await world.log(2, wal(0, 4), wal(4, 8), head=wal(8, 9))
    await world.log(3, head=wal(0, 5))
    await world.lag.look()
    assert world.records == {("billing", "orders"): 8 + 6, ("billing", "quiet"): 0, ("audit", "orders"): 0}
    # The oldest unread record is at offset 3 of partition 1, written in second 3.
    assert world.seconds == {("billing", "orders"): 997.0, ("billing", "quiet"): 0, ("audit", "orders"): 0}


async def test_the_time_of_a_record_is_asked_for_once(world: World) -> None:
    world.source.topics = {"orders": topic("orders", 1)}
    world.source.found = [Group("stuck", {("orders", 0): 3})]
    await world.log(1, wal(0, 10), head=wal(10, 20))
    for _ in range(3):
        await world.lag.look()
    assert world.seconds == {("stuck", "orders"): 997.0}
    assert world.store.calls == {"get": 3, "scan": 1}
    world.source.found = [Group("stuck", {("orders", 0): 14})]
    await world.lag.look()
    assert world.seconds == {("stuck", "orders"): 986.0}
    assert world.store.calls["scan"] == 1, "the head was read with the end, and says it"


async def test_what_expired_is_not_waited_for(world: World) -> None:
    world.source.topics = {"orders": topic("orders", 1)}
    world.source.found = [Group("slow", {("orders", 0): 0})]
    await world.log(1, wal(50, 60), head=wal(60, 70))
    await world.lag.look()
    assert world.seconds == {("slow", "orders"): 950.0}


async def test_series_are_bounded_to_what_lags_most() -> None:
    world = World(show=3)
    world.source.topics = {"orders": topic("orders", 1)}
    world.source.found = [Group(f"group-{number:03}", {("orders", 0): number}) for number in range(100)]
    await world.log(1, head=wal(0, 100))
    await world.lag.look()
    assert world.records == {(f"group-00{number}", "orders"): 100 - number for number in range(3)}
    assert world.metrics.group_lag_left_out.value == 97
    world.source.found = world.source.found[50:]
    await world.lag.look()
    assert set(world.records) == {(f"group-0{number}", "orders") for number in (50, 51, 52)}
    assert set(world.seconds) == set(world.records)
    assert world.metrics.group_lag_left_out.value == 47


async def test_a_round_reads_a_bounded_number_of_ends_and_the_next_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_lag, "READS_A_ROUND", 40)
    streams = range(1, 101)
    world.source.topics = {f"topic-{stream}": topic(f"topic-{stream}", stream) for stream in streams}
    world.source.found = [
        Group(f"group-{number}", {(f"topic-{stream}", 0): 0 for stream in streams}) for number in range(2)
    ]
    for stream in streams:
        await world.log(stream, head=wal(0, 5))
    seen = []
    for _ in range(3):
        world.store.calls.clear()
        await world.lag.look()
        assert world.store.calls["get"] == 40, "streams that groups share are read once"
        seen.append(world.metrics.group_lag_left_out.value)
    # 80 pairs are known after the first round, 160 after the second, all 200 after the third; 100 are shown.
    assert seen == [120, 100, 100]
    assert len(world.lag._ends) == 100


async def test_lookups_of_times_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "LOOKUPS_A_ROUND", 5)
    streams = range(1, 21)
    world.source.topics = {"orders": topic("orders", *streams)}
    world.source.found = [Group("billing", {("orders", place): 1 for place in range(20)})]
    for stream in streams:
        await world.log(stream, wal(0, 4), head=wal(4, 9))
    for round_number in range(1, 5):
        await world.lag.look()
        assert world.store.calls["scan"] == 5 * round_number
    await world.lag.look()
    assert world.store.calls["scan"] == 20


async def test_a_store_that_is_away_leaves_what_was_known(world: World) -> None:
    world.source.topics = {"orders": topic("orders", 1)}
    world.source.found = [Group("billing", {("orders", 0): 3})]
    await world.log(1, head=wal(0, 5))
    await world.lag.look()
    world.store.broken = True
    await world.lag.look()
    assert world.records == {("billing", "orders"): 2}


async def test_what_is_gone_is_forgotten(world: World) -> None:
    world.source.topics = {"orders": topic("orders", 1)}
    world.source.found = [Group("billing", {("orders", 0): 3, ("gone", 0): 5})]
    await world.log(1, head=wal(0, 5))
    await world.lag.look()
    assert set(world.records) == {("billing", "orders")}
    world.source.found = []
    await world.lag.look()
    assert world.records == world.seconds == {}
    assert not world.lag._ends
    assert not world.lag._times
