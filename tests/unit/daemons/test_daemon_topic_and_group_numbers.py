"""Numbers of single topics and groups in a broker's metrics, from requests to the scraped text."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from prometheus_client.parser import text_string_to_metric_families
from tests.services.batches import batch, plain

from dray.base.runtime import SystemRuntime
from dray.daemons.broker.group_lag import GroupLag
from dray.daemons.broker.node import Node
from dray.daemons.config import FlagValue, load
from dray.kafka.client import KafkaConnection
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.metadata.memory import MemoryStore
from dray.objects.memory import MemoryObjects

HOUR = 3600.0


@asynccontextmanager
async def running(lag_interval: float = 15.0, **environment: str) -> AsyncIterator[Node]:
    flags = [
        FlagValue("--listen", "broker.listen", "127.0.0.1:0"),
        FlagValue("--http", "broker.http", "off"),
    ]
    runtime = SystemRuntime()
    settings = load(None, environment, flags).settings
    settings = replace(settings, metrics=replace(settings.metrics, lag_interval=lag_interval))
    node = Node(settings, runtime, MemoryStore(runtime), MemoryObjects(runtime))
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def connected(node: Node) -> AsyncIterator[KafkaConnection]:
    async with await KafkaConnection.connect(*node.address) as connection:
        await connection.negotiate()
        yield connection


async def make_topic(connection: KafkaConnection, name: str) -> MetadataRequestTopic:
    """By auto-creation, as a producer's first metadata request does it."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    while True:
        [topic] = (await connection.request(asked)).topics
        if topic.error_code == 0:
            return MetadataRequestTopic(topic_id=topic.topic_id, name=name)


def numbers(node: Node, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(node.metrics.exposition().decode())
        for sample in family.samples
        if sample.name == name
    }


async def produce(connection: KafkaConnection, topic: MetadataRequestTopic, records: int) -> int:
    """The bytes that were sent."""
    data = bytes(batch(plain(*[b"value"] * records)))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic.name or "",
                topic_id=topic.topic_id,
                partition_data=[PartitionProduceData(index=0, records=data)],
            )
        ],
    )
    [answer] = (await connection.request(request)).responses
    assert [part.error_code for part in answer.partition_responses] == [0]
    return len(data)


async def fetch(connection: KafkaConnection, topic: MetadataRequestTopic) -> int:
    """The bytes that came."""
    request = FetchRequest(
        max_bytes=1 << 20,
        topics=[
            FetchTopic(
                topic=topic.name or "",
                topic_id=topic.topic_id,
                partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)],
            )
        ],
    )
    [answer] = (await connection.request(request)).responses
    [part] = answer.partitions
    assert part.error_code == 0
    assert isinstance(part.records, memoryview)
    return len(part.records)


async def commit(connection: KafkaConnection, group: str, topic: MetadataRequestTopic, offset: int) -> None:
    place = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = OffsetCommitRequest(
        group_id=group,
        topics=[OffsetCommitRequestTopic(name=topic.name or "", topic_id=topic.topic_id, partitions=[place])],
    )
    [answer] = (await connection.request(request)).topics
    assert [part.error_code for part in answer.partitions] == [0]


async def test_produce_and_fetch_are_counted_by_topic() -> None:
    async with running(HOUR, DRAY_METRICS__TOPICS="2") as node, connected(node) as connection:
        sent = {}
        for name, records in (("orders", 3), ("payments", 5), ("refunds", 7), ("returns", 1)):
            topic = await make_topic(connection, name)
            sent[name] = await produce(connection, topic, records)
            assert await fetch(connection, topic) == sent[name]
        others = sent["refunds"] + sent["returns"]
        shown = {("orders",): sent["orders"], ("payments",): sent["payments"], ("(other)",): others}
        assert numbers(node, "dray_topic_produce_bytes_total") == shown
        assert numbers(node, "dray_topic_fetch_bytes_total") == shown
        assert numbers(node, "dray_topic_produce_records_total") == {
            ("orders",): 3,
            ("payments",): 5,
            ("(other)",): 8,
        }
        requests = {("orders",): 1, ("payments",): 1, ("(other)",): 2}
        assert numbers(node, "dray_topic_produce_requests_total") == requests
        assert numbers(node, "dray_topic_fetch_requests_total") == requests


async def test_a_refused_batch_is_not_counted() -> None:
    async with running(HOUR) as node, connected(node) as connection:
        topic = await make_topic(connection, "orders")
        damaged = bytearray(batch(plain(b"value")))
        damaged[-1] ^= 1
        part = PartitionProduceData(index=0, records=bytes(damaged))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name="orders", topic_id=topic.topic_id, partition_data=[part])],
        )
        [answer] = (await connection.request(request)).responses
        assert answer.partition_responses[0].error_code != 0
        assert numbers(node, "dray_topic_produce_requests_total") == {("(other)",): 0}


async def test_the_coordinator_shows_the_lag_of_its_groups() -> None:
    async with (
        running(lag_interval=1.0, DRAY_METRICS__GROUPS="1") as node,
        connected(node) as connection,
    ):
        topic = await make_topic(connection, "orders")
        await produce(connection, topic, 10)
        await commit(connection, "audit", topic, 9)
        await commit(connection, "billing", topic, 4)
        lag = node.parts.need(GroupLag)
        assert lag._task is not None
        assert lag.interval == 1.0
        await lag.look()
        assert numbers(node, "dray_group_lag_left_out") == {(): 1}
        assert numbers(node, "dray_group_lag_records") == {("billing", "orders"): 6}
        assert list(numbers(node, "dray_group_lag_seconds")) == [("billing", "orders")]


async def test_lag_is_not_looked_for_where_it_is_not_shown() -> None:
    async with running(DRAY_METRICS__GROUPS="0") as node:
        assert node.parts.need(GroupLag)._task is None
