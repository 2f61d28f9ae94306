"""Growth counted: operations at the store, keys heard, entries read. Never time.

Each test stands for a row of what was measured to grow (docs/design/0163): the same work is done in a small
log and in a larger one, and what is counted must not know which.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.services import room_settings
from tests.services.room_settings import EMBEDDED
from tests.simulation.scripted import ScriptedObjects, ScriptedStore, bucket_is_ours
from tests.unit.log.harness import DOMAINS, EVERYTHING, World, append, batch_bytes, soon, start_append

from dray.base.runtime import DAY_MS
from dray.broker.topics import NewTopic
from dray.broker.topics import Topics as TopicsOfBroker
from dray.broker.topics import service as topics_service
from dray.broker.topics.live import LiveTopics
from dray.broker.topics.model import Topic, TopicSettings
from dray.broker.topics.retention import BrokersPart, RetentionLoop
from dray.log import Log
from dray.log.life import collector, retention
from dray.log.life.retention import Retention, RetentionMemory
from dray.log.read.reader import StreamReader
from dray.log.types import ReadRequest, ReadResult
from dray.metadata import keys
from dray.metadata.contract import Change, Limits, Put, StoredValue

PARTITIONS = 600
WAIT_MS = 500


class CountingStore(ScriptedStore):
    """Counts what is asked of it, and what its watches hand out."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.asked: Counter[str] = Counter()
        self.heard: list[str | None] = []
        self.read = 0  # keys, by scans
        self.most = 0  # of one scan

    async def get(self, domain: int, key: str) -> StoredValue | None:
        self.asked["get"] += 1
        return await super().get(domain, key)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        found = await super().scan(domain, start, end, limit)
        self.asked["scan"] += 1
        self.read += len(found)
        self.most = max(self.most, len(found))
        return found

    async def barrier(self, domain: int) -> None:
        self.asked["barrier"] += 1
        await super().barrier(domain)

    async def write(self, domain: int, operations: Any) -> Any:
        self.asked["write"] += 1
        return await super().write(domain, operations)

    async def mark(self, domain: int, name: str) -> None:
        self.asked["mark"] += 1
        self._hub.publish(domain, [name])

    async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncGenerator[Change, None]:
        async for change in super().watch(domain, endings):
            self.heard.append(change.key)
            yield change

    def forget(self) -> None:
        self.asked.clear()
        self.heard.clear()
        self.read = self.most = 0


class Topics:
    def __init__(self, topics: list[Topic]) -> None:
        self.topics = topics

    async def live(self) -> LiveTopics:
        return LiveTopics(self.topics)


class Reading:
    """A broker of which only reads are asked."""

    stream: int  # where there is one

    def __init__(self, world: World) -> None:
        self.store = CountingStore(world.runtime, world.state, world.limits)
        objects = ScriptedObjects(world.runtime, world.bucket)
        settings = world.settings
        self.log = Log(self.store, objects, world.runtime, DOMAINS, settings, may_delete=bucket_is_ours)

    async def poll(self, streams: Sequence[int], ends: int = 0) -> list[ReadResult]:
        return await self.log.fetch(
            [ReadRequest(stream, ends, EVERYTHING) for stream in streams],
            min_bytes=1,
            max_bytes=EVERYTHING,
            max_wait_ms=WAIT_MS,
        )


@pytest.mark.parametrize("partitions", [2, PARTITIONS])
async def test_an_idle_poll_asks_at_most_twice_per_domain(world: World, partitions: int) -> None:
    reading = Reading(world)
    await reading.log.start()
    streams = await world.log().create_streams(partitions)
    await reading.poll(streams)
    for _ in range(5):
        reading.store.forget()
        assert [result.error for result in await reading.poll(streams)] == [None] * partitions
        assert reading.store.asked.total() <= 2 * DOMAINS
    await reading.log.stop()


async def test_polls_share_what_is_asked_for_them(world: World) -> None:
    reading = Reading(world)
    await reading.log.start()
    streams = await world.log().create_streams(PARTITIONS)
    await reading.poll(streams)
    reading.store.forget()
    polls = [reading.poll(streams[each::50]) for each in range(50)]
    await asyncio.gather(*polls)
    assert reading.store.asked.total() <= 2 * DOMAINS
    await reading.log.stop()


async def test_a_commit_to_one_partition_plans_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(world)
    await reading.log.start()
    writer = world.log()
    streams = await writer.create_streams(PARTITIONS)
    await reading.poll(streams)
    planned: list[int] = []
    kept = StreamReader.plan

    async def plan(self: StreamReader, request: ReadRequest, *given: Any, **named: Any) -> Any:
        planned.append(request.stream)
        return await kept(self, request, *given, **named)

    monkeypatch.setattr(StreamReader, "plan", plan)
    polling = await soon(reading.poll(streams))
    planned.clear()
    reading.store.forget()
    await append(writer, streams[7], batch_bytes([b"v"]))
    assert sum(bool(result.size) for result in await polling) == 1
    assert planned == [streams[7]]
    assert reading.store.asked.total() <= 4
    await reading.log.stop()


async def test_who_does_not_read_a_domain_does_not_hear_it(world: World) -> None:
    reading = Reading(world)
    await reading.log.start()
    writer = world.log()
    streams = await writer.create_streams(2 * DOMAINS)
    await append(writer, streams[0], batch_bytes([b"v"]))
    assert reading.store.heard == [], "nobody was asked for anything"
    served = [stream for stream in streams if stream % DOMAINS == 0]
    await reading.poll(served)
    reading.store.forget()
    for stream in streams:
        await append(writer, stream, batch_bytes([b"v"]))
    await asyncio.sleep(0.01)
    assert len(reading.store.heard) == len(served)
    await reading.log.stop()


async def test_who_reads_a_domain_no_longer_does_not_hear_it_any_more(world: World) -> None:
    reading = Reading(world)
    await reading.log.start()
    writer = world.log()
    streams = await writer.create_streams(DOMAINS)
    await reading.poll(streams)
    await asyncio.sleep(3 * world.settings.cache_idle_seconds)
    reading.store.forget()
    for stream in streams:
        await append(writer, stream, batch_bytes([b"v"]))
    await asyncio.sleep(0.01)
    assert reading.store.heard == []
    assert [len(result.buffers) for result in await reading.poll(streams)] == [1] * DOMAINS
    await reading.log.stop()


async def test_a_commit_is_heard_by_one_key_of_each_partition(world: World) -> None:
    """Of some that it changes. And a thousand at once are told as they are, not as "anything"."""
    reading = Reading(world)
    await reading.log.start()
    writer = world.log()
    streams = await writer.create_streams(2 * PARTITIONS)
    await reading.poll(streams)
    polling = await soon(reading.poll(streams[:1]))
    for _ in range(2):
        reading.store.forget()
        await asyncio.gather(*(start_append(writer, each, batch_bytes([b"v"])) for each in streams))
        await asyncio.sleep(0.01)
        assert None not in reading.store.heard
        assert len(reading.store.heard) <= len(streams)
    await polling
    assert reading.store.asked["get"] <= 4, "of those that nobody waits for nothing is read"
    await reading.log.stop()


# --- what deletes the oldest reads the oldest

AGED = 20
PAGE = 32


@pytest.fixture(params=[AGED + 100, AGED + 700])
async def aged(request: pytest.FixtureRequest, world: World, monkeypatch: pytest.MonkeyPatch) -> Reading:
    """A broker with one stream of so many entries. Only the first have expired."""
    monkeypatch.setattr(retention, "_PAGE", PAGE)
    reading = Reading(world)
    now = world.runtime.wall_ms()
    [reading.stream] = await reading.log.create_streams(1)
    for number in range(request.param):
        time = now - (DAY_MS if number < AGED else 0)
        await append(reading.log, reading.stream, batch_bytes([b"v"], timestamps=[time]))
    await asyncio.sleep(1)
    reading.store.forget()
    return reading


@pytest.mark.parametrize("by", ["time", "size"])
async def test_retention_costs_by_what_it_deletes(aged: Reading, world: World, by: str) -> None:
    streams, size = aged.log._streams, await aged.log.size(aged.stream)
    kept = Retention(streams, world.runtime, world.settings)
    left = size - AGED * (size // (await aged.log.bounds(aged.stream)).end)
    aged.store.forget()
    assert await kept.keep(aged.stream, DAY_MS // 2 if by == "time" else -1, left if by == "size" else -1)
    assert (await aged.log.bounds(aged.stream)).start == AGED
    assert aged.store.asked.total() <= 40
    assert (aged.store.read, aged.store.most) <= (8 * PAGE, PAGE)


async def test_records_are_deleted_by_what_is_deleted(aged: Reading, world: World) -> None:
    assert await aged.log.delete_records(aged.stream, AGED) == AGED
    await asyncio.sleep(1)
    assert [
        key
        for key in world.keys(keys.offset_index(aged.stream))
        if key < keys.index_from(aged.stream, AGED + 1)
    ] == []
    assert aged.store.asked.total() <= 40
    assert (aged.store.read, aged.store.most) <= (8 * PAGE, PAGE)


async def test_what_is_deleted_is_read_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_PAGE", PAGE)
    reading = Reading(world)
    [stream] = await reading.log.create_streams(1)
    for _ in range(10 * PAGE):
        await append(reading.log, stream, batch_bytes([b"v"]))
    await asyncio.sleep(1)
    reading.store.forget()
    assert await reading.log.delete_records(stream, 10 * PAGE - 1) == 10 * PAGE - 1
    await asyncio.sleep(1)
    assert len(world.keys(keys.offset_index(stream))) <= 1
    assert reading.store.read <= 14 * PAGE


async def test_whoever_deletes_records_waits_for_the_start_alone(aged: Reading) -> None:
    held = aged.store.hold("write", "/offset-index/")
    assert await aged.log.delete_records(aged.stream, AGED) == AGED
    await held.reached()
    assert (await aged.log.bounds(aged.stream)).start == AGED


async def test_deletes_that_take_many_writes_are_no_trouble(world: World) -> None:
    world.limits = Limits(operations=8, value_bytes=1 << 20)
    log = world.log()
    [stream] = await log.create_streams(1)
    for _ in range(300):
        await append(log, stream, batch_bytes([b"v"]))
    assert await log.delete_records(stream, 299) == 299
    await asyncio.sleep(1)
    assert len(world.keys(keys.offset_index(stream))) <= 1


@pytest.mark.parametrize("partitions", [20, 400])
async def test_a_round_of_retention_asks_what_has_moved(world: World, partitions: int) -> None:
    reading, memory = Reading(world), RetentionMemory()
    await reading.log.start()
    streams = await reading.log.create_streams(partitions)
    now = world.runtime.wall_ms()
    for stream in streams:
        await append(reading.log, stream, batch_bytes([b"v"], timestamps=[now]))
    settings = TopicSettings.of({"retention.ms": "600000", "retention.bytes": "1000"}, {})
    topic = Topic("t", UUID(int=1), tuple(streams), {}, now, settings)
    kept = Retention(reading.log._streams, world.runtime, world.settings, memory=memory)
    share = BrokersPart(DOMAINS, lambda domain: domain == 0, reading.log, memory)
    loop = RetentionLoop(kept, Topics([topic]), world.runtime, 100.0, share)
    for expected in (3 * partitions // DOMAINS, 0, 0):
        loop._follow()
        await asyncio.sleep(1)
        reading.store.forget()
        assert await loop.once() == 0
        assert reading.store.asked["get"] + reading.store.asked["scan"] == expected
    for _ in range(4):
        await append(reading.log, streams[0], batch_bytes([b"v" * 1000], timestamps=[now]))
    await asyncio.sleep(1)
    reading.store.forget()
    assert await loop.once() == 1, "by size"
    assert reading.store.asked.total() <= 40
    await asyncio.sleep(600)
    assert await loop.once() == partitions // DOMAINS, "by time, though nothing moved"
    assert (await reading.log.bounds(streams[1])).start == 0, "another broker's"
    await reading.log.stop()


async def test_what_moves_while_retention_asks_is_asked_again(world: World) -> None:
    reading, memory = Reading(world), RetentionMemory()
    [stream] = await reading.log.create_streams(1)
    kept = Retention(reading.log._streams, world.runtime, world.settings, memory=memory)
    held = reading.store.hold("get", keys.start(stream))
    asking = await soon(kept.keep(stream, DAY_MS, -1))
    await held.reached()
    memory.moved(stream)
    held.release()
    assert not await asking
    assert memory.may_expire(stream, DAY_MS, -1, world.runtime.wall_ms())
    assert not await kept.keep(stream, DAY_MS, -1)
    assert not memory.may_expire(stream, DAY_MS, -1, world.runtime.wall_ms())


@pytest.mark.parametrize("partitions", [20, 400])
async def test_the_collector_asks_whether_there_is_one_reference(world: World, partitions: int) -> None:
    reading = Reading(world)
    streams = await reading.log.create_streams(partitions)
    for _ in range(10):
        await asyncio.gather(*(append(reading.log, each, batch_bytes([b"v"])) for each in streams))
    await asyncio.sleep(1)
    objects = len(world.keys(keys.OBJECTS))
    assert len(world.keys(keys.REFERENCES)) == 10 * partitions
    reading.store.forget()
    found = await reading.log.collector.run(audit=False)
    assert (found.objects, found.pending) == (objects, 0)
    assert reading.store.read <= collector._PAGE * DOMAINS + 4 * objects


async def test_objects_of_one_partition_are_asked_about_together(world: World) -> None:
    reading = Reading(world)
    [stream] = await reading.log.create_streams(1)
    for _ in range(200):
        await append(reading.log, stream, batch_bytes([b"v"]))
    reading.store.forget()
    await reading.log.collector.run(audit=False)
    assert reading.store.asked["scan"] <= 8 * DOMAINS


# --- no loop spins


@pytest.mark.parametrize("partitions", [20, 400])
async def test_heads_that_cannot_be_packed_are_not_read(world: World, partitions: int) -> None:
    carry = replace(EMBEDDED, pack_bytes=2_000, pack_entries=100, few_entries=0)
    world.settings = replace(world.settings, carry=carry, pack_look_seconds=1e9)
    reading = Reading(world)
    reading.log.carry(True)
    streams = await reading.log.create_streams(partitions)
    for stream in streams:
        await append(reading.log, stream, batch_bytes([b"v" * 100]))
    for rounds in reading.log._packing:
        await rounds.run()  # the hints, which are new
    reading.store.forget()
    for rounds in reading.log._packing:
        await rounds.run()
    assert reading.store.asked.total() == 0
    await append(reading.log, streams[0], batch_bytes([b"v" * 2_000]))
    await append(reading.log, streams[0], batch_bytes([b"v"]))
    for rounds in reading.log._packing:
        await rounds.run()
    assert 0 < reading.store.asked.total() <= 40, "one stream is packed, and no other is looked at"


@pytest.mark.parametrize("minutes", [1, 3, 10])
async def test_a_trickle_is_packed_by_fewer_requests_than_it_was_appended_by(
    world: World, minutes: int
) -> None:
    """A pack takes about a dozen for each stream: so it waits for entries, and at most for fifty minutes."""
    world.settings = replace(world.settings, carry=EMBEDDED, pack_look_seconds=1e9)
    reading, appends = Reading(world), 120 // minutes
    reading.log.carry(True)
    streams = await reading.log.create_streams(20)
    asked: Counter[str] = Counter()
    for _ in range(appends):
        await asyncio.gather(*(append(reading.log, stream, batch_bytes([b"v"])) for stream in streams))
        await asyncio.sleep(60 * minutes)
        reading.store.forget()
        for rounds in reading.log._packing:
            await rounds.run(follows=False)
        asked += reading.store.asked
    assert 0 < asked.total() <= len(streams) * max(appends, 2 * 14)


@pytest.mark.parametrize("partitions", [200, 600])
async def test_a_start_does_not_ask_about_every_partition(world: World, partitions: int) -> None:
    world.settings = replace(world.settings, carry=EMBEDDED)
    before = world.log()
    before.carry(True)
    for stream in await before.create_streams(partitions):
        await append(before, stream, batch_bytes([b"v"]))
    reading = Reading(world)
    reading.log.carry(True)
    await reading.log.start()
    await asyncio.sleep(world.settings.pack_look_seconds / 2)
    assert reading.store.asked["get"] + reading.store.asked["scan"] <= DOMAINS * (2 * 32 + 8)
    await asyncio.sleep(5 * world.settings.pack_look_seconds)
    carried = sum([len(list(rounds._backlog)) for rounds in reading.log._packing])
    assert carried == partitions, "a round at a time, all that was carried is known"
    await reading.log.stop()


async def test_a_snapshot_of_many_producers_is_not_written_for_a_few(world: World) -> None:
    world.settings = replace(world.settings, snapshot_every_entries=16)
    log = world.log()
    [stream] = await log.create_streams(1)
    for producer in range(640):
        await append(log, stream, batch_bytes([b"v"], producer=(producer, 0, 0)))
    await asyncio.sleep(1)
    world.store.writes.clear()
    for sequence in range(1, 161):
        await append(log, stream, batch_bytes([b"v"], producer=(1, 0, sequence)))
    await asyncio.sleep(1)
    written = [put.key for write in world.store.writes for put in write if isinstance(put, Put)]
    assert 0 < written.count(keys.producers(stream)) <= 160 * 16 // 640 + 1


# --- topics are followed, and not read again and again


@pytest.mark.parametrize("topics", [4, 40])
async def test_topics_are_read_again_at_a_pace(
    world: World, monkeypatch: pytest.MonkeyPatch, topics: int
) -> None:
    monkeypatch.setattr(topics_service, "REREAD_A_SECOND", 1)
    reading = Reading(world)
    known = TopicsOfBroker(
        reading.store, world.runtime, reading.log, room_settings.topics(sweep_interval=1e9)
    )
    await known.start()
    for number in range(topics):
        await known.create(NewTopic(f"t{number}", 1, 1))
    reading.store.forget()
    await asyncio.sleep(200)
    assert 200 // 2 <= reading.store.read <= 200 * 1.5, "one a second, however many there are"
    await known.stop()


@pytest.mark.parametrize("topics", [4, 40])
async def test_topics_are_followed_by_what_changes(world: World, topics: int) -> None:
    reading, log = Reading(world), world.log()
    options = room_settings.topics(sweep_interval=1e9, reread_interval=1e9)
    known = TopicsOfBroker(reading.store, world.runtime, reading.log, options)
    elsewhere = TopicsOfBroker(world.store, world.runtime, log, options)
    for number in range(topics):
        await elsewhere.create(NewTopic(f"t{number}", 1, 1))
    await known.start()
    await asyncio.sleep(1)
    reading.store.forget()
    await elsewhere.create(NewTopic("new", 1, 1))
    await asyncio.sleep(1)
    assert known.cached("new") is not None
    assert (reading.store.asked["get"], reading.store.asked["scan"]) == (1, 0)
    await known.stop()
