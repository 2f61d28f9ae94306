"""Replicas are shown as they were asked for, as far as there are brokers: everywhere alike, and for good."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

import pytest
from tests.unit.broker.api.fakes import Harness, running, sees_brokers
from tests.unit.broker.topics.fakes import eventually

from dray.broker.topics import NewTopic
from dray.broker.topics.alterations import Alteration, AlterOperation
from dray.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.kafka.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

BROKER = 4
CLIENTS = ("app", "zone_id=a", "zone_id=b", "zone_id=nowhere")


@pytest.fixture(params=[("a", "a", "a"), ("a", "b", "c"), (None, None, None), ("a", "a", "b")])
async def brokers(request: pytest.FixtureRequest) -> AsyncIterator[list[Harness]]:
    async with AsyncExitStack() as stack:
        made: list[Harness] = []
        for number, zone in enumerate(request.param):
            beside = made[0] if made else None
            made.append(await stack.enter_async_context(running(beside=beside, broker_id=number, zone=zone)))
        for broker in made:
            await eventually(partial(sees_brokers, broker, 3))
        yield made


async def created(broker: Harness, name: str, asked: int, partitions: int = 8) -> int:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=asked)
    [result] = (await broker.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)).topics
    assert result.error_code == 0
    return result.replication_factor


async def shown(brokers: list[Harness], name: str) -> set[int]:
    """The numbers of replicas that any broker shows to any client, by either API."""
    counts = set()
    for broker in brokers:
        await broker.topics.refresh(name)
        for client_id in CLIENTS:
            metadata = await broker.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12, client_id=client_id
            )
            described = await broker.ask(
                DescribeTopicPartitionsRequest(topics=[TopicRequest(name)], response_partition_limit=99),
                0,
                client_id=client_id,
            )
            for ours, theirs in zip(
                metadata.topics[0].partitions, described.topics[0].partitions, strict=True
            ):
                assert ours.replica_nodes == ours.isr_nodes == theirs.replica_nodes == theirs.isr_nodes
                assert ours.replica_nodes[0] == ours.leader_id == theirs.leader_id
                assert len(set(ours.replica_nodes)) == len(ours.replica_nodes)
                counts.add(len(ours.replica_nodes))
    return counts


@pytest.mark.parametrize(("asked", "expected"), [(1, 1), (2, 2), (3, 3), (5, 3)])
async def test_what_was_asked_for_is_shown(brokers: list[Harness], asked: int, expected: int) -> None:
    assert await created(brokers[0], "orders", asked) == expected
    assert await shown(brokers, "orders") == {expected}


async def test_where_nothing_was_asked_every_zone_has_one(brokers: list[Harness]) -> None:
    zones = {broker.membership.me.zone for broker in brokers}
    assert await created(brokers[0], "orders", -1) == len(zones)
    assert await shown(brokers, "orders") == {len(zones)}
    request = DescribeConfigsResource(
        resource_type=BROKER, resource_name="0", configuration_keys=["default.replication.factor"]
    )
    [result] = (await brokers[0].ask(DescribeConfigsRequest(resources=[request]), 4)).results
    assert [config.value for config in result.configs] == [str(len(zones))]


async def test_an_assignment_asks_for_as_many_as_it_names(brokers: list[Harness]) -> None:
    assignments = [CreatableReplicaAssignment(partition_index=0, broker_ids=[2, 0])]
    topic = CreatableTopic(name="given", num_partitions=-1, replication_factor=-1, assignments=assignments)
    [result] = (await brokers[0].ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)).topics
    assert result.replication_factor == 2
    assert await shown(brokers, "given") == {2}


async def test_changes_of_a_topic_and_of_the_brokers_do_not_lose_it(brokers: list[Harness]) -> None:
    await created(brokers[0], "orders", 3)
    await brokers[1].topics.alter_config("orders", [Alteration("retention.ms", AlterOperation.SET, "1000")])
    await brokers[2].topics.add_partitions("orders", 12)
    assert await shown(brokers, "orders") == {3}
    await brokers[2].membership.stop()
    for broker in brokers[:2]:
        await eventually(partial(sees_brokers, broker, 2))
    assert await shown(brokers[:2], "orders") == {2}
    topic = await brokers[0].topics.get("orders")
    assert topic is not None
    assert topic.replication_factor == 3


async def test_a_lone_broker_is_all_the_replicas_there_are(broker: Harness) -> None:
    await broker.topics.create(NewTopic("orders", 2, replication_factor=3))
    assert await shown([broker], "orders") == {1}
