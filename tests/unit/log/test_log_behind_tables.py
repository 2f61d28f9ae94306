"""A topic's table and the records behind it, read while producers, a compactor, a cleaner and DeleteRecords
work: each record once, as the log had them between two offsets that were true at one moment.

The table is one in memory, committed before the index is swapped, as the saga does it; the log is the real
one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import pytest
from tests.services import compaction_cluster
from tests.services.attached_log import CACHE_BYTES
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes
from tests.unit.log.parquet_harness import compact, entries_of, seal, thin
from tests.unit.migration.entries.foreign_harness import Source, kafka, written
from tests.unit.tables.compaction.foreign_attached import PRODUCER, Attached, aborted, transactional

from dray.broker.cluster.identity import ClusterInfo
from dray.daemons.assembly.stores import Stores
from dray.daemons.compactor.catalogs import tail_reader
from dray.daemons.config import Settings
from dray.inspection.sql.tail import Tail, TailReader, TailRefused
from dray.inspection.storage.stored import ReadOnlyMetadataStore
from dray.kafka.records.header import CONTROL, TRANSACTIONAL
from dray.log import Log
from dray.log.outside_table import AbortedRange
from dray.log.stream_state import advance_to_filed
from dray.log.stream_store import StreamStore
from dray.migration.entries.kind import ForeignEntries
from dray.migration.entries.pieces import as_data

PARTITIONS = 2


@dataclass(frozen=True)
class Snapshot:
    version: int = 0
    ends: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    rows: frozenset[tuple[int, int]] = frozenset()


@dataclass
class Topic:
    world: World
    log: Log
    streams: list[int]
    random: random.Random
    table: Snapshot = Snapshot()
    start: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    offsets: dict[int, set[int]] = field(default_factory=lambda: {each: set() for each in range(PARTITIONS)})
    end: dict[int, int] = field(default_factory=lambda: dict.fromkeys(range(PARTITIONS), 0))
    moments: dict[int, set[tuple[int, int, frozenset[int]]]] = field(
        default_factory=lambda: {each: set() for each in range(PARTITIONS)}
    )

    def note(self, partition: int) -> None:
        start = self.start[partition]
        left = frozenset(each for each in self.offsets[partition] if each >= start)
        self.moments[partition].add((start, self.end[partition], left))

    async def step(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        work = self.random.choices(
            (self.produce, self.delete_records, self.compact, self.clean), (6, 1, 2, 2)
        )[0]
        await work(partition)
        self.note(partition)

    async def produce(self, partition: int) -> None:
        count = self.random.randint(1, 4)
        data = batch_bytes([b"%d" % each for each in range(count)])
        base = (await append(self.log, self.streams[partition], data)).base_offset
        self.offsets[partition] |= set(range(base, base + count))
        self.end[partition] = base + count

    async def delete_records(self, partition: int) -> None:
        before = self.random.randint(self.start[partition], self.end[partition])
        await self.log.delete_records(self.streams[partition], before)
        self.start[partition] = max(self.start[partition], before)

    async def compact(self, partition: int) -> None:
        stream = self.streams[partition]
        await seal(self.world, stream)
        now = self.world.runtime.wall_ms()
        await advance_to_filed(StreamStore(self.world.store, DOMAINS, 0), stream, now)
        from_ = self.table.ends.get(partition, 0)
        inputs = [each for each in await entries_of(self.world, stream) if each.start >= from_]
        if not inputs:
            return
        end = inputs[-1].end
        new = {(partition, each) for each in self.offsets[partition] if from_ <= each < end}
        self.table = Snapshot(
            self.table.version + 1, {**self.table.ends, partition: end}, self.table.rows | new
        )
        await asyncio.sleep(self.random.random())
        await compact(self.world, stream, inputs, self.table.version)

    async def clean(self, partition: int) -> None:
        """Takes some rows away, of what the table has."""
        stream = self.streams[partition]
        files = [each for each in await entries_of(self.world, stream) if each.is_parquet]
        if not files:
            return
        inputs = files[self.random.randrange(len(files)) :]
        inside = {each for each in self.offsets[partition] if inputs[0].start <= each < inputs[-1].end}
        gone = {each for each in inside if self.random.random() < 0.4} - {max(inside)}
        kept = self.table.rows - {(partition, each) for each in gone}
        self.table = Snapshot(self.table.version + 1, self.table.ends, kept)
        await asyncio.sleep(self.random.random())
        await thin(self.world, stream, inputs, inside - gone, self.table.version)
        self.offsets[partition] -= gone


async def started(world: World, seed: int) -> Topic:
    log = world.log()
    await log.start()
    streams = await log.create_streams(PARTITIONS)
    topic = Topic(world, log, streams, random.Random(seed))
    for partition in range(PARTITIONS):
        topic.note(partition)
    return topic


def reader(topic: Topic, most: int = 1 << 30) -> TailReader:
    world = topic.world
    store = ReadOnlyMetadataStore(world.store)
    outside = ForeignEntries(world.objects, world.runtime, {}, CACHE_BYTES)
    return TailReader(store, world.objects, world.runtime, DOMAINS, world.settings, lambda: outside, most)


def rows_of(tail: Tail) -> list[tuple[int, int]]:
    return [
        (row["partition"], row["offset"])
        for batch in tail.batches
        for row in batch.select(["partition", "offset"]).to_pylist()
    ]


async def asked(topic: Topic) -> tuple[Tail, list[tuple[int, int]]]:
    """As a query does: again, if the table changed while the records behind it were read."""
    while True:
        table = topic.table
        tail = await reader(topic).read("orders", topic.streams, table.ends)
        if topic.table.version == table.version or not tail.batches:
            kept = [each for each in table.rows if each[1] >= tail.starts[each[0]]]
            return tail, kept + rows_of(tail)


@pytest.mark.parametrize("seed", range(6))
async def test_each_record_once_up_to_a_moment(world: World, seed: int) -> None:
    topic = await started(world, seed)
    done = False

    async def ask() -> list[tuple[Tail, list[tuple[int, int]]]]:
        found = []
        while not done:
            found.append(await asked(topic))
            await asyncio.sleep(0.01)
        return found

    asking = asyncio.ensure_future(ask())
    for _ in range(50):
        await topic.step()
        await asyncio.sleep(topic.random.random() / 10)
    done = True
    queries = [*await asking, await asked(topic)]
    assert len(queries) > 5
    for tail, rows in queries:
        assert len(rows) == len(set(rows))
        for partition in range(PARTITIONS):
            mine = frozenset(offset for of, offset in rows if of == partition)
            seen = tail.starts[partition], tail.ends[partition], mine
            assert seen in topic.moments[partition]
    await topic.log.stop()


async def test_the_log_as_it_was_at_a_time(world: World) -> None:
    topic = await started(world, 1)
    for time in (1_000, 2_000, 3_000):
        await append(topic.log, topic.streams[0], batch_bytes([b"a", b"b"], timestamps=[time] * 2))
    assert rows_of(await reader(topic).read("orders", topic.streams, {0: 1}, 2_500)) == [
        (0, 1),
        (0, 2),
        (0, 3),
    ]
    then = await reader(topic).read("orders", topic.streams, {0: 6}, 1_500, {0: 4})
    assert (then.ends[0], rows_of(then)) == (4, [])
    await topic.log.stop()


async def test_more_than_fits_is_refused(world: World) -> None:
    topic = await started(world, 1)
    await append(topic.log, topic.streams[0], batch_bytes([bytes(2_000)] * 1_000))
    with pytest.raises(TailRefused, match="more than 1 MiB of records that no compactor has touched"):
        await reader(topic, 1 << 20).read("orders", topic.streams, {})
    await topic.log.close_streams(topic.streams)
    with pytest.raises(TailRefused, match="the topic was deleted"):
        await reader(topic).read("orders", topic.streams, {})
    await topic.log.stop()


# --- what other systems wrote


async def behind(world: Attached, table_end: int = 0) -> list[tuple[int, bytes]]:
    """As processes read it."""
    cluster = world.cluster
    stores = Stores(cluster.store, cluster.objects, cluster.foreign)
    made = tail_reader(Settings(), stores, ClusterInfo("c", compaction_cluster.DOMAINS, 0), cluster.runtime)
    tail = await made.read("orders", [world.stream], {0: table_end})
    return [
        (row["offset"], row["value"])
        for batch in tail.batches
        for row in batch.select(["offset", "value"]).to_pylist()
    ]


async def test_what_another_system_wrote_is_read_where_it_lies() -> None:
    world = await Attached(kafka(0, 100_000)).start()
    await world.cluster.append(world.stream, b"first here", b"second here")
    end = world.source.end
    expected = [*world.committed(), (end, b"first here"), (end + 1, b"second here")]
    assert await behind(world) == expected
    middle = expected[len(expected) // 2][0]
    assert await behind(world, middle) == [row for row in expected if row[0] >= middle]


def transactions() -> Source:
    """An aborted one, and a committed one of the same producer."""
    marker = transactional([b"\0\0\0\0\0\0"], TRANSACTIONAL | CONTROL)
    batches = [
        (0, batch_bytes([b"plain"])),
        aborted(1),
        (3, marker),
        (4, transactional([b"committed"], TRANSACTIONAL)),
        (5, marker),
    ]
    return written(batches, 6, aborted=[AbortedRange(PRODUCER, 1, 3)])


@pytest.mark.parametrize("table_end", [0, 2])
async def test_what_was_aborted_never_shows(table_end: int) -> None:
    world = await Attached(transactions()).start()
    rows = [(0, b"plain"), (4, b"committed")]
    assert await behind(world, table_end) == [row for row in rows if row[0] >= table_end]


async def test_what_two_segments_have_is_there_once() -> None:
    values = [b"%d" % number for number in range(6)]
    first = written([(0, batch_bytes(values[:4]))], 2)
    second = written([(2, batch_bytes(values[2:]))], 6)
    second.bucket.objects.update(first.bucket.objects)
    second.segments, second.contents = first.segments + second.segments, first.contents + second.contents
    world = await Attached(second).start()
    assert await behind(world) == list(enumerate(values))


async def test_what_the_source_has_expired_is_left_to_brokers() -> None:
    """They raise the start. A query writes nothing, and nothing fails behind it."""
    world = await Attached(kafka(0)).start()
    world.source.bucket.delete(world.source.segments[0][0].path)
    with pytest.raises(TailRefused, match="the segment is gone from its store"):
        await behind(world)
    await asyncio.sleep(60)
    assert world.cluster.runtime.background.failures == {}


async def test_a_record_that_cannot_be_read_is_one_line() -> None:
    """Of the batches of another system the log knows the checksum alone."""
    torn = batch_bytes([b"x"])
    torn[-1] = 2  # a header that is not there
    world = await Attached(written([(0, as_data(torn))], 1)).start()
    with pytest.raises(TailRefused, match="behind its table cannot be read: partition 0: batch at byte 0"):
        await behind(world)
