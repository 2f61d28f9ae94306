"""What tools of administrators ask for. `tests/referee/test_referee.py` compares it with Kafka; here is
what Kafka cannot show: stores that are away, and several brokers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.services import room_settings
from tests.unit.broker.api.fakes import Harness, batch, running
from tests.unit.broker.topics.fakes import eventually

from dray.broker.topics import NewTopic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.kafka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from dray.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dray.kafka.protocol.messages.describe_quorum import DescribeQuorumRequest
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dray.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.log.types import LogUnavailable, StreamClosed

GROUP = 32


async def log_dir(broker: Harness) -> DescribeLogDirsResult:
    [result] = (await broker.ask(DescribeLogDirsRequest(topics=None), 4)).results
    return result


async def fill(broker: Harness, topic: str, partition: int, *values: bytes) -> int:
    records = batch(*values, now_ms=broker.runtime.wall_ms())
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(partition, records)])]
    await broker.ask(ProduceRequest(acks=-1, topic_data=data), 9)
    return len(records)


async def replicas(broker: Harness, topic: str) -> list[list[int]]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    [found] = (await broker.ask(request, 12)).topics
    return [partition.replica_nodes for partition in found.partitions]


async def test_each_replica_is_told_of_by_its_broker_alone() -> None:
    async with (
        running(room_settings.api(log_dir="s3://bucket/prefix")) as first,
        running(beside=first, broker_id=1) as second,
    ):
        await eventually(lambda: len(first.membership.brokers()) == 2)
        await first.topics.create(NewTopic("orders", 8))
        size = await fill(first, "orders", 3, b"some", b"records")
        await second.topics.read_all()
        assert (await log_dir(first)).log_dir == "s3://bucket/prefix"
        expected = await replicas(first, "orders")
        told: dict[int, list[int]] = {}
        for broker in (first, second):
            [topic] = (await log_dir(broker)).topics
            for partition in topic.partitions:
                own = broker.membership.me.broker_id
                told.setdefault(partition.partition_index, []).append(own)
                assert partition.partition_size == (size if partition.partition_index == 3 else 0)
        assert told == {index: sorted(nodes) for index, nodes in enumerate(expected)}


async def test_sizes_that_cannot_be_read_are_not_told_in_part(broker: Harness) -> None:
    topic = await broker.topics.create(NewTopic("orders", 3))
    broker.log.fail[topic.streams[1]] = LogUnavailable("away")
    result = await log_dir(broker)
    assert (result.error_code, result.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
    broker.log.fail[topic.streams[1]] = StreamClosed("deleted a moment ago")
    [described] = (await log_dir(broker)).topics
    assert [partition.partition_index for partition in described.partitions] == [0, 2]


@pytest.mark.parametrize("change", [lambda nodes: [*nodes, 77], lambda nodes: [77], lambda nodes: []])
async def test_a_partition_that_would_have_to_move_is_refused_with_a_reason(
    broker: Harness, change: Callable[[list[int]], list[int]]
) -> None:
    await broker.topics.create(NewTopic("orders", 1))
    [present] = await replicas(broker, "orders")

    async def reassigned(nodes: list[int]) -> tuple[int, str | None]:
        partition = ReassignablePartition(partition_index=0, replicas=nodes)
        topics = [ReassignableTopic(name="orders", partitions=[partition])]
        [answer] = (await broker.ask(AlterPartitionReassignmentsRequest(topics=topics), 1)).responses
        return answer.partitions[0].error_code, answer.partitions[0].error_message

    assert await reassigned(present) == (ErrorCode.NONE, None)
    code, message = await reassigned(change(present))
    assert code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert message is not None
    assert "object store" in message
    assert await replicas(broker, "orders") == [present]


async def test_how_many_replicas_a_topic_shows_can_be_changed() -> None:
    """As kafkactl asks for it: for all partitions at once, with brokers that they show already, or beside
    those."""
    async with (
        running() as broker,
        running(beside=broker, broker_id=1),
        running(beside=broker, broker_id=2),
    ):
        await broker.topics.create(NewTopic("orders", 4, replication_factor=3))
        await eventually(lambda: len(broker.membership.brokers()) == 3)

        async def ask(nodes: list[list[int]], may_change: bool = True) -> set[int]:
            partitions = [
                ReassignablePartition(partition_index=index, replicas=each)
                for index, each in enumerate(nodes)
            ]
            topics = [ReassignableTopic(name="orders", partitions=partitions)]
            request = AlterPartitionReassignmentsRequest(
                topics=topics, allow_replication_factor_change=may_change
            )
            [answer] = (await broker.ask(request, 1)).responses
            return {each.error_code for each in answer.partitions}

        full = await replicas(broker, "orders")
        assert {len(each) for each in full} == {3}
        fewer = [[each[0], each[2]] for each in full]
        assert await ask(fewer, may_change=False) == {ErrorCode.INVALID_REPLICATION_FACTOR}
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT in await ask(fewer[:3])
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT in await ask([*fewer[:3], full[3][:1]])
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT in await ask([each[1:] for each in full])
        assert ErrorCode.INVALID_REPLICA_ASSIGNMENT in await ask([[*each, 77] for each in full])
        assert await replicas(broker, "orders") == full
        assert await ask(fewer) == {ErrorCode.NONE}
        assert await replicas(broker, "orders") == [each[:2] for each in full]
        assert await ask(full) == {ErrorCode.NONE}
        assert await replicas(broker, "orders") == full


async def test_producers_that_cannot_be_read_are_an_error_and_not_none(broker: Harness) -> None:
    topic = await broker.topics.create(NewTopic("orders", 1))
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])])
    [[partition]] = [one.partitions for one in (await broker.ask(request, 0)).topics]
    [producer] = partition.active_producers
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (1001, 2, 30)
    broker.log.fail[topic.streams[0]] = LogUnavailable("away")
    [[partition]] = [one.partitions for one in (await broker.ask(request, 0)).topics]
    assert partition.error_code == ErrorCode.KAFKA_STORAGE_ERROR


async def test_a_quorum_is_said_not_to_be_there(broker: Harness) -> None:
    response = await broker.ask(DescribeQuorumRequest(), 2)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.error_message is not None
    assert "no KRaft quorum" in response.error_message


async def test_groups_with_configs_are_listed(broker: Harness) -> None:
    config = AlterableConfig(name="consumer.session.timeout.ms", config_operation=0, value="50000")
    resource = AlterConfigsResource(resource_type=GROUP, resource_name="billing", configs=[config])
    await broker.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    listed = await broker.ask(ListConfigResourcesRequest(resource_types=[GROUP]), 1)
    assert [(one.resource_name, one.resource_type) for one in listed.config_resources] == [("billing", GROUP)]
    described = DescribeConfigsResource(resource_type=GROUP, resource_name="billing", configuration_keys=None)
    [result] = (await broker.ask(DescribeConfigsRequest(resources=[described]), 4)).results
    assert {one.name: one.value for one in result.configs}["consumer.session.timeout.ms"] == "50000"
