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
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes
from tests.unit.log.parquet_harness import compact, entries_of, seal, thin

from dray.inspection.sql.tail import Tail, TailReader, TailRefused
from dray.inspection.storage.stored import ReadOnlyMetadataStore
from dray.log import Log
from dray.log.stream_state import advance_to_filed
from dray.log.stream_store import StreamStore

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
    return TailReader(store, world.objects, world.runtime, DOMAINS, world.settings, most)


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
