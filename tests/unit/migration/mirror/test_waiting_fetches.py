"""What all topics of a source wait for is one fetch at a time to each leader."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from uuid import UUID

import pytest
from tests.unit.migration.mirror.mirror_harness import MirrorWorld, SourceLog

from dray.kafka.client.cluster import Address, Cluster
from dray.kafka.client.errors import ClientError, RequestFailed
from dray.kafka.client.records import joined
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dray.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.migration.live.leader_reads import MirrorLimits, MirrorMemory
from dray.migration.live.topic_mirror import TopicMirror
from dray.migration.source import mirror as mirror_module
from dray.migration.source.mirror import WAIT_MS, MirrorReader, WaitingFetches
from dray.migration.source.source import SourceTopic

A: Address = ("a", 9092)
B: Address = ("b", 9092)
PARTITIONS = 3


@dataclass
class FakeKafka:
    """Brokers that answer fetches as Kafka does: in the order of the request, one after the other on a
    connection, and late where there is nothing."""

    world: MirrorWorld
    logs: dict[tuple[str, int], SourceLog] = field(default_factory=dict)
    errors: dict[tuple[str, int], ErrorCode] = field(default_factory=dict)
    hanging: set[Address] = field(default_factory=set)
    connections: int = 0
    fetches: list[tuple[Address, FetchRequest]] = field(default_factory=list)
    names_ids: bool = True

    async def __call__(self, host: str, port: int) -> Connection:
        self.connections += 1
        return Connection(self, (host, port))

    def cluster(self) -> Cluster:
        return Cluster([A], self, self.world.runtime)

    def named(self) -> list[list[str]]:
        return [[topic.topic for topic in request.topics] for _, request in self.fetches]


def id_of(topic: str) -> UUID:
    return UUID(int=1 + int(topic.removeprefix("t")))


@dataclass
class Connection:
    kafka: FakeKafka
    address: Address
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def close(self) -> None:
        pass

    def version_for(self, _: int) -> int:
        return 0

    async def request(self, message: Any, _: int | None = None) -> Any:
        async with self.turn:
            await self.kafka.world.runtime.sleep(0.001)
            if isinstance(message, MetadataRequest):
                return self._metadata(message)
            assert isinstance(message, FetchRequest)
            return await self._fetch(message)

    def _metadata(self, message: MetadataRequest) -> MetadataResponse:
        partitions = [MetadataResponsePartition(0, each, 1, 4) for each in range(PARTITIONS)]
        topics = [
            MetadataResponseTopic(0, each.name, id_of(each.name or ""), partitions=partitions)
            for each in message.topics or ()
        ]
        return MetadataResponse(brokers=[MetadataResponseBroker(1, *A)], topics=topics)

    async def _fetch(self, message: FetchRequest) -> FetchResponse:
        kafka = self.kafka
        kafka.fetches.append((self.address, message))
        deadline = kafka.world.runtime.monotonic() + message.max_wait_ms / 1000
        while True:
            if self.address in kafka.hanging:
                await kafka.world.runtime.sleep(10)
                raise ClientError("silent for 10 s")
            answer = self._answer(message)
            is_there = any(each.records or each.error_code for t in answer.responses for each in t.partitions)
            if is_there or kafka.world.runtime.monotonic() >= deadline:
                return answer
            await kafka.world.runtime.sleep(0.05)

    def _answer(self, message: FetchRequest) -> FetchResponse:
        left = message.max_bytes
        topics = []
        for topic in message.topics:
            found = []
            for each in topic.partitions:
                place = (topic.topic, each.partition)
                log = self.kafka.logs.setdefault(place, SourceLog())
                most = min(left, each.partition_max_bytes)
                data, _ = log.answer(each.fetch_offset, 1 << 30, most) if left > 0 else (memoryview(b""), [])
                left -= len(data)
                error = self.kafka.errors.get(place, 0)
                found.append(
                    PartitionData(each.partition, error, log.end, log.end, 0, records=b"" if error else data)
                )
            by_id = self.kafka.names_ids
            named = {"topic_id": id_of(topic.topic)} if by_id else {"topic": topic.topic}
            topics.append(FetchableTopicResponse(**cast(Any, named), partitions=found))
        return FetchResponse(responses=topics)


def wanted(topic: str, offset: int = 0, partitions: int = PARTITIONS) -> FetchTopic:
    asked = [
        FetchPartition(each, fetch_offset=offset, partition_max_bytes=1 << 16) for each in range(partitions)
    ]
    return FetchTopic(topic_id=id_of(topic), topic=topic, partitions=asked)


@pytest.fixture
def kafka() -> FakeKafka:
    return FakeKafka(MirrorWorld())


@pytest.fixture
async def waiting(kafka: FakeKafka) -> AsyncIterator[WaitingFetches]:
    made = WaitingFetches(kafka.cluster(), kafka.world.runtime)
    yield made
    await made.close()


@asynccontextmanager
async def mirrored(kafka: FakeKafka, topics: int) -> AsyncIterator[dict[str, dict[int, int]]]:
    """Mirrors of so many topics, as a migrator has them."""
    log, runtime, limits = kafka.world.log(), kafka.world.runtime, MirrorLimits()
    control, reading = kafka.cluster(), kafka.cluster()
    waiting = WaitingFetches(kafka.cluster(), runtime)
    memory = MirrorMemory(1)
    streams = {
        f"t{each}": {part: await kafka.world.classic(log) for part in range(3)} for each in range(topics)
    }
    tasks = []
    for topic, its in streams.items():
        source = SourceTopic(control, topic)
        reader = MirrorReader(
            reading, source, max_bytes=1 << 20, partition_bytes=1 << 20, checksums=False, waiting=waiting
        )
        made = TopicMirror(source, reader, log.mirror, its, runtime, limits, memory)
        tasks.append(asyncio.ensure_future(made.run()))
    try:
        yield streams
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await waiting.close()


async def until_end(kafka: FakeKafka, stream: int, end: int) -> None:
    log = kafka.world.log()
    for _ in range(2000):
        if (await log.bounds(stream)).end >= end:
            return
        await kafka.world.runtime.sleep(0.05)
    raise AssertionError(f"stream {stream} never came to {end}")


async def test_connections_and_fetches_of_idle_topics_do_not_grow_with_their_number() -> None:
    found = []
    for topics in (2, 200):
        kafka = FakeKafka(MirrorWorld())
        async with mirrored(kafka, topics):
            await kafka.world.runtime.sleep(2)
            kafka.fetches.clear()
            await kafka.world.runtime.sleep(6)
            found.append((kafka.connections, len(kafka.fetches)))
            named = [len(each) for each in kafka.named()]
            assert sum(named) >= 0.9 * topics * len(named), "nearly each fetch names nearly all"
    assert found[0][0] == found[1][0] == 2, "one for what is asked, one for what waits"
    few, many = found[0][1], found[1][1]
    assert 6 <= many <= few + 2 <= 16


async def test_a_record_of_one_of_many_topics_comes_soon_and_whole_backlogs_hold_up_nobody() -> None:
    kafka = FakeKafka(MirrorWorld())
    for each in range(PARTITIONS):
        for _ in range(300):
            kafka.logs.setdefault(("t0", each), SourceLog()).append([b"x" * 20_000])
    async with mirrored(kafka, 20) as streams:
        await kafka.world.runtime.sleep(2)
        began = kafka.world.runtime.monotonic()
        kafka.logs["t13", 2].append([b"new"])
        await until_end(kafka, streams["t13"][2], 1)
        assert kafka.world.runtime.monotonic() - began < 3, "in virtual time"
        for each in range(PARTITIONS):
            await until_end(kafka, streams["t0"][each], 300)
        assert kafka.connections == 3, "and one for what is known to be there"


async def test_who_has_nothing_new_is_not_answered_when_another_is(
    kafka: FakeKafka, waiting: WaitingFetches
) -> None:
    kafka.logs["t2", 1] = SourceLog()
    idle, busy = [asyncio.ensure_future(waiting.read(A, wanted(topic), 1000)) for topic in ("t1", "t2")]
    await kafka.world.runtime.sleep(0.02)
    kafka.logs["t2", 1].append([b"x"])
    assert [bool(each.records) for each in await busy] == [False, True, False]
    busy = asyncio.ensure_future(waiting.read(A, wanted("t2", 1), 1000))
    await kafka.world.runtime.sleep(0.15)
    assert kafka.named() == [["t1", "t2"], ["t1", "t2"]]
    assert not idle.done()
    assert [bool(each.records) for each in await idle] == [False] * 3, "in its time"
    await busy


@pytest.mark.parametrize("names_ids", [True, False])
async def test_each_topic_gets_its_own_and_keeps_no_other_in_memory(
    kafka: FakeKafka, waiting: WaitingFetches, *, names_ids: bool
) -> None:
    kafka.names_ids = names_ids
    reads = [asyncio.ensure_future(waiting.read(A, wanted(f"t{each}"), 1000)) for each in range(3)]
    for each in range(2):
        kafka.logs.setdefault((f"t{each}", each), SourceLog()).append([b"%d" % each])
    kafka.errors["t2", 2] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    found = [await read for read in reads]
    assert kafka.named() == [["t0", "t1", "t2"]]
    for each in range(2):
        records = found[each][each].records
        assert isinstance(records, bytes), "a piece of its own, not a view of the whole answer"
        assert records == b"".join(kafka.logs[f"t{each}", each].batches)
    assert [each.error_code for each in found[2]] == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [each.error_code for one in found[:2] for each in one] == [0] * 6


async def test_a_leader_that_hangs_fails_all_of_its_topics_and_no_other(
    kafka: FakeKafka, waiting: WaitingFetches
) -> None:
    kafka.hanging.add(A)
    reads = [asyncio.ensure_future(waiting.read(A, wanted(f"t{each}"), 1000)) for each in range(2)]
    await kafka.world.runtime.sleep(0.5)
    kafka.logs[("t2", 0)] = SourceLog()
    kafka.logs["t2", 0].append([b"x"])
    assert (await waiting.read(B, wanted("t2"), 1000))[0].records
    assert not any(read.done() for read in reads)
    for read in reads:
        with pytest.raises(ClientError, match="silent"):
            await read
    kafka.hanging.clear()
    connections = kafka.connections
    assert len(await waiting.read(A, wanted("t0"), 1000)) == PARTITIONS
    assert kafka.connections == connections + 1, "another one"


async def test_too_many_partitions_for_one_fetch_are_asked_for_in_turn(
    kafka: FakeKafka, waiting: WaitingFetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "MOST_PARTITIONS", 6)
    reads = {each: asyncio.ensure_future(waiting.read(A, wanted(f"t{each}"), 1000)) for each in range(7)}
    large = asyncio.ensure_future(waiting.read(A, wanted("t7", partitions=9), 1000))
    await kafka.world.runtime.sleep(0.01)
    assert kafka.fetches[0][1].max_wait_ms < WAIT_MS, "the others would wait for nothing"
    await asyncio.gather(*reads.values(), large)
    assert all(
        len(each) == 1 or sum(len(topic.partitions) for topic in request.topics) <= 6
        for each, (_, request) in zip(kafka.named(), kafka.fetches, strict=True)
    )
    assert {topic for each in kafka.named()[:5] for topic in each} == {f"t{each}" for each in range(8)}


async def test_a_topic_with_much_does_not_starve_others(
    kafka: FakeKafka, waiting: WaitingFetches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer is filled in the order of the request."""
    monkeypatch.setattr(mirror_module, "MOST_WAITING_BYTES", 300)
    for topic in ("t0", "t1"):
        for partition in range(PARTITIONS):
            kafka.logs[topic, partition] = SourceLog()
            for _ in range(100):
                kafka.logs[topic, partition].append([b"x" * 200])
    got = {"t0": 0, "t1": 0}

    async def take(topic: str) -> None:
        while True:
            found = await waiting.read(A, wanted(topic), 1 << 20)
            got[topic] += sum(len(joined(each.records)) for each in found if each.records)

    tasks = [asyncio.ensure_future(take(topic)) for topic in got]
    await kafka.world.runtime.sleep(5)
    for task in tasks:
        task.cancel()
    assert min(got.values()) > 0.4 * sum(got.values()) > 0
    assert max(request.max_bytes for _, request in kafka.fetches) == 300


async def test_who_has_left_is_not_asked_for(kafka: FakeKafka, waiting: WaitingFetches) -> None:
    staying = asyncio.ensure_future(waiting.read(A, wanted("t0"), 1000))
    await kafka.world.runtime.sleep(0.01)
    leaving = asyncio.ensure_future(waiting.read(A, wanted("t1"), 1000))
    other = asyncio.ensure_future(waiting.read(A, wanted("t2"), 1000))
    await kafka.world.runtime.sleep(0.01)
    leaving.cancel()
    await asyncio.gather(staying, other)
    assert kafka.named() == [["t0"], ["t2"]]
    await kafka.world.runtime.sleep(5)
    assert len(kafka.fetches) == 2, "nobody waits"


async def test_those_that_wait_hear_of_the_end(kafka: FakeKafka) -> None:
    waiting = WaitingFetches(kafka.cluster(), kafka.world.runtime)
    reads = [asyncio.ensure_future(waiting.read(A, wanted(f"t{each}"), 1000)) for each in range(2)]
    await kafka.world.runtime.sleep(0.01)
    await waiting.close()
    for read in reads:
        with pytest.raises(ClientError, match="stopped"):
            await read


async def test_what_nobody_has_thought_of_is_heard_by_all_and_ends_nothing(
    kafka: FakeKafka, waiting: WaitingFetches
) -> None:
    failures: list[Exception] = [ZeroDivisionError("no"), RequestFailed("no", 1)]
    genuine = waiting._give

    def give(*given: Any) -> None:
        if failures:
            raise failures.pop()
        genuine(*given)

    cast(Any, waiting)._give = give
    reads = [asyncio.ensure_future(waiting.read(A, wanted(f"t{each}"), 1000)) for each in range(2)]
    for read in reads:
        with pytest.raises(RequestFailed):
            await read
    with pytest.raises(ZeroDivisionError):
        await waiting.read(A, wanted("t0"), 1000)
    assert len(await waiting.read(A, wanted("t0"), 1000)) == PARTITIONS
