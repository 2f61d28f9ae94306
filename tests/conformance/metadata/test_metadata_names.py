"""Any legal name will do, whatever it looks like: no broker minds what a topic or a group is called.

Two whole brokers on each engine. Every word of the key schema becomes the name of a topic, of a group and of
a client, beside others that look like keys, parts of keys, or nothing much.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.conformance.metadata.engines import ENGINES
from tests.services.batches import batch as sample
from tests.services.batches import plain

from dray.base.runtime import SystemRuntime
from dray.daemons.broker.node import Node
from dray.daemons.config import FlagValue, load
from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.list_groups import ListGroupsRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.metadata import keys
from dray.objects.memory import MemoryBucket, MemoryObjects

T = TypeVar("T")

KEYS = [
    *(value for value in vars(keys).values() if isinstance(value, str) and value.startswith(keys.ROOT)),
    *(keys.high_watermark(1), keys.start(1), keys.producers(1), keys.index_entry(1, 1, 1), keys.job(1)),
]
WORDS = sorted({part for key in KEYS for part in key.split("/") if part and not part.isdigit()})
MIB = 1 << 20
NUMBER, ID = keys.number(1), "0123456789abcdef" * 2
TOPICS = [*WORDS, NUMBER, ID, "...", "-", "_", "x" * 249]
GROUPS = [
    *WORDS,
    *(NUMBER, ID, "...", "x" * 249, ".", "..", "/", "/hwm", "hwm/", "a/b"),
    *(keys.high_watermark(1), keys.high_watermark(1)[1:], keys.topic("hwm"), keys.group("hwm")),
    *("%2Fhwm", "%", " ", "a\nb", "a\0b", "группа", "組", "\U0001f600"),
]


class WatchedRuntime(SystemRuntime):
    def __init__(self) -> None:
        super().__init__()
        self.spawned: list[asyncio.Task[Any]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        task = super().spawn(coroutine, name)
        self.spawned.append(task)
        return task


class Broker:
    """A node with a client."""

    def __init__(self, node: Node, runtime: WatchedRuntime, client: KafkaConnection) -> None:
        self.node = node
        self.client = client
        self.runtime = runtime
        self._lasting = [task for task in runtime.spawned if not task.done()]

    def check_tasks(self) -> None:
        ended = [task for task in self.runtime.spawned if task.done() and not task.cancelled()]
        failed = [task for task in ended if task.exception() is not None]
        assert failed == []
        lasting = [task for task in self._lasting if any(word in task.get_name() for word in LASTING)]
        assert len(lasting) >= len(LASTING)
        assert [task for task in lasting if task.done()] == []


LASTING = (
    *("follow-domain", "watch", "re-read", "sweep deleted topics", "sweep groups", "topics of groups"),
    *("retention", "keep this broker registered", "collect"),
)


@asynccontextmanager
async def serving(engine: Any, bucket: MemoryBucket) -> AsyncIterator[Broker]:
    flags = [FlagValue(f"--{name}", f"broker.{name}", "127.0.0.1:0") for name in ("listen", "http")]
    runtime = WatchedRuntime()
    node = Node(load(None, {}, flags).settings, runtime, await engine.open(), MemoryObjects(runtime, bucket))
    await node.start()
    try:
        async with await KafkaConnection.connect(*node.address) as client:
            await client.negotiate()
            yield Broker(node, runtime, client)
    finally:
        await node.stop()
        runtime.close()


async def insist(asking: Callable[[], Coroutine[Any, Any, T]], good: Callable[[T], bool]) -> T:
    """Until it is good: a coordinator takes its time, and brokers hear of each other."""
    async with asyncio.timeout(60):
        while not good(answer := await asking()):  # noqa: ASYNC110 - brokers say not what they heard of
            await asyncio.sleep(0.01)
        return answer


@pytest.mark.parametrize("name", ENGINES)
async def test_any_legal_name_will_do(name: str, tmp_path: Path) -> None:
    runtime, bucket = SystemRuntime(), MemoryBucket()
    engine = ENGINES[name](tmp_path, runtime)
    async with AsyncExitStack() as stack:
        stack.callback(runtime.close)
        brokers = [await stack.enter_async_context(serving(engine, bucket)) for _ in range(2)]
        here, there = brokers
        ids = await create_and_list(here, there)
        for topic in TOPICS:
            await produce(here, topic, ids[topic])
            assert await fetch(there, ids[topic], 0) > 0
        await wake(here, there, ids["hwm"])
        for group in GROUPS:
            await use_group(brokers, group, ids)
        for broker in brokers:
            broker.check_tasks()
        await delete_everything(brokers, ids)
        for broker in brokers:
            broker.check_tasks()


async def create_and_list(here: Broker, there: Broker) -> dict[str, Any]:
    """Created at one broker, listed by the other, which hears of them by its watch or when it reads again."""
    made = await here.client.request(
        CreateTopicsRequest(
            topics=[
                CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
                for topic in TOPICS
            ],
            timeout_ms=60_000,
        )
    )
    assert {topic.name: topic.error_code for topic in made.topics} == dict.fromkeys(TOPICS, 0)

    async def listed() -> dict[str, Any]:
        answer = await there.client.request(MetadataRequest(topics=None))
        return {topic.name or "": topic.topic_id for topic in answer.topics if topic.error_code == 0}

    return await insist(listed, lambda found: set(found) == set(TOPICS))


async def produce(at: Broker, topic: str, topic_id: Any) -> None:
    batch = sample(plain(b"value"))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            TopicProduceData(
                name=topic, topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch)]
            )
        ],
    )
    answer = await at.client.request(request)
    assert answer.responses[0].partition_responses[0].error_code == 0, topic


async def fetch(at: Broker, topic_id: Any, offset: int, wait_ms: int = 0) -> int:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=MIB)
    topics = [FetchTopic(topic_id=topic_id, partitions=[wanted])]
    answer = await at.client.request(
        FetchRequest(replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, topics=topics)
    )
    [part] = answer.responses[0].partitions
    assert part.error_code == 0
    return len(part.records or b"")


async def wake(here: Broker, there: Broker, topic_id: Any) -> None:
    """A poll at one broker hears of what is produced at the other long before its deadline."""
    waiting = asyncio.ensure_future(fetch(there, topic_id, 1, wait_ms=300_000))
    async with asyncio.timeout(60):
        while not waiting.done():
            await produce(here, "hwm", topic_id)
            await asyncio.wait([waiting], timeout=0.5)
    assert waiting.result() > 0


async def coordinator(brokers: list[Broker], group: str) -> Broker:
    found = await insist(
        lambda: brokers[0].client.request(FindCoordinatorRequest(coordinator_keys=[group])),
        lambda answer: answer.coordinators[0].error_code == 0,
    )
    [node] = found.coordinators
    assert node.key == group
    return next(broker for broker in brokers if broker.node.address[1] == node.port)


async def use_group(brokers: list[Broker], group: str, ids: dict[str, Any]) -> None:
    at = await coordinator(brokers, group)
    topic = group if group in ids else "hwm"
    place = OffsetCommitRequestTopic(
        name=topic,
        topic_id=ids[topic],
        partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
    )
    commit = OffsetCommitRequest(group_id=group, topics=[place])
    await insist(
        lambda: at.client.request(commit), lambda answer: answer.topics[0].partitions[0].error_code == 0
    )
    asked = OffsetFetchRequestTopics(name=topic, topic_id=ids[topic], partition_indexes=[0])
    answer = await at.client.request(
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])])
    )
    [found] = answer.groups[0].topics[0].partitions
    assert (found.error_code, found.committed_offset) == (0, 1)
    if not group.strip():
        return  # KIP-848 asks for more than blanks
    async with await KafkaConnection.connect(*at.node.address, client_id=group) as client:
        await client.negotiate()
        for epoch, topics in ((0, [topic]), (-1, None)):
            beat = ConsumerGroupHeartbeatRequest(
                group_id=group,
                member_id="member",
                member_epoch=epoch,
                rebalance_timeout_ms=60_000 if epoch == 0 else -1,
                subscribed_topic_names=topics,
                topic_partitions=[] if epoch == 0 else None,
            )
            assert (await client.request(beat)).error_code == 0, (group, epoch)


async def delete_everything(brokers: list[Broker], ids: dict[str, Any]) -> None:
    listed: list[str] = []
    for broker in brokers:
        listed += [group.group_id for group in (await broker.client.request(ListGroupsRequest())).groups]
    assert sorted(listed) == sorted(GROUPS)
    for group in GROUPS:
        at = await coordinator(brokers, group)
        deleted = await at.client.request(DeleteGroupsRequest(groups_names=[group]))
        assert [each.error_code for each in deleted.results] == [0], group
    topics = [DeleteTopicState(name=topic, topic_id=ids[topic].__class__(int=0)) for topic in TOPICS]
    gone = await brokers[0].client.request(DeleteTopicsRequest(topics=topics, timeout_ms=60_000))
    assert {topic.name: topic.error_code for topic in gone.responses} == dict.fromkeys(TOPICS, 0)
    for broker in brokers:
        await insist(
            lambda broker=broker: broker.client.request(MetadataRequest(topics=None)),  # type: ignore[misc]
            lambda answer: not answer.topics,
        )
