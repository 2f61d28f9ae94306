"""Metadata, DescribeCluster, DescribeTopicPartitions and FindCoordinator: who is there, and what."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.services import room_settings
from tests.unit.broker.api.fakes import FakeConnection, Harness, running

from dray.broker.cluster import ALL_ZONES, owner_of, owners
from dray.broker.topics import NewTopic
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from dray.kafka.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from dray.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Put


def by_name(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=create
    )


def codes(response: MetadataResponse) -> dict[str | None, int]:
    return {topic.name: topic.error_code for topic in response.topics}


# --- Metadata


@pytest.mark.parametrize("version", range(14))
async def test_every_version_describes_brokers_and_topics(broker: Harness, version: int) -> None:
    topic = await broker.topics.create(NewTopic("orders", 2))
    response = await broker.ask(by_name("orders", create=True), version)
    [node] = response.brokers
    assert (node.node_id, node.host, node.port) == (0, "127.0.0.1", 9092)
    assert node.rack == ("rack-0" if version >= 1 else None)
    assert response.cluster_id == (broker.services.cluster.cluster_id if version >= 2 else None)
    assert response.controller_id == (0 if version >= 1 else -1)
    [found] = response.topics
    assert (found.name, found.error_code, found.is_internal) == ("orders", 0, False)
    assert found.topic_id == (topic.topic_id if version >= 10 else ZERO_UUID)
    for index, partition in enumerate(found.partitions):
        assert (partition.partition_index, partition.leader_id, partition.error_code) == (index, 0, 0)
        assert partition.leader_epoch == (0 if version >= 7 else -1)
        assert (partition.replica_nodes, partition.isr_nodes) == ([0], [0])
        assert partition.offline_replicas == []
    assert len(found.partitions) == 2


async def test_all_topics_or_none(broker: Harness) -> None:
    for name in ("b", "a"):
        await broker.topics.create(NewTopic(name))
    assert list(codes(await broker.ask(MetadataRequest(topics=[]), 0))) == ["a", "b"]
    assert list(codes(await broker.ask(MetadataRequest(topics=[]), 1))) == []
    assert list(codes(await broker.ask(MetadataRequest(topics=None), 1))) == ["a", "b"]
    assert list(codes(await broker.ask(MetadataRequest(topics=None), 12))) == ["a", "b"]


async def test_unknown_and_impossible_names(broker: Harness) -> None:
    impossible = ["a b", "x" * 250, ".", "..", ""]
    for create in (True, False):
        response = await broker.ask(by_name(*impossible, create=create), 9)
        assert codes(response) == dict.fromkeys(impossible, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert codes(await broker.ask(by_name("nothing"), 9)) == {"nothing": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert await broker.topics.read_all() == []


@pytest.mark.parametrize("version", [0, 3, 4, 13])
async def test_topics_are_created_when_both_sides_allow_it(broker: Harness, version: int) -> None:
    response = await broker.ask(by_name("orders", create=True), version)
    assert codes(response) == {"orders": 0}
    assert len(response.topics[0].partitions) == 1, "and described at once"
    assert [topic.name for topic in await broker.topics.read_all()] == ["orders"]
    if version >= 4:
        assert codes(await broker.ask(by_name("other"), version)) == {
            "other": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }


async def test_no_topic_is_created_where_the_broker_forbids_it() -> None:
    async with running(options=room_settings.topics(auto_create=False)) as broker:
        for version in (0, 9):
            response = await broker.ask(by_name("orders", create=True), version)
            assert codes(response) == {"orders": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_names_that_collide_are_not_created(broker: Harness) -> None:
    await broker.topics.create(NewTopic("a.b"))
    with capture_logs() as lines:
        response = await broker.ask(by_name("a_b", create=True), 9)
    assert lines == [], "a refusal is not the server's failure"
    assert codes(response) == {"a_b": ErrorCode.INVALID_TOPIC_EXCEPTION}


async def test_many_who_ask_at_once_create_one_topic(broker: Harness) -> None:
    answers = await asyncio.gather(*(broker.ask(by_name("orders", create=True), 12) for _ in range(8)))
    assert len({answer.topics[0].topic_id for answer in answers}) == 1
    assert [event for event, _ in broker.log.events] == ["create"]


@pytest.mark.parametrize("version", [12, 13])
async def test_topics_by_id(broker: Harness, version: int) -> None:
    topic = await broker.topics.create(NewTopic("orders"))
    asked = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in (topic.topic_id, UUID(int=5))]
    response = await broker.ask(MetadataRequest(topics=asked), version)
    assert [(one.name, one.topic_id, one.error_code) for one in response.topics] == [
        ("orders", topic.topic_id, 0),
        (None, UUID(int=5), ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_are_refused_where_kafka_does_not_take_them(broker: Harness, version: int) -> None:
    topic = await broker.topics.create(NewTopic("orders"))
    asked = [MetadataRequestTopic(topic_id=topic.topic_id, name=None)]
    response = await broker.ask(MetadataRequest(topics=asked), version)
    assert [one.error_code for one in response.topics] == [ErrorCode.INVALID_REQUEST]


async def test_a_topic_named_twice_is_described_once(broker: Harness) -> None:
    assert len((await broker.ask(by_name("orders", "orders", create=True), 9)).topics) == 1


async def test_authorized_operations_are_shown_where_asked_for(broker: Harness) -> None:
    await broker.topics.create(NewTopic("orders"))
    request = by_name("orders")
    quiet = await broker.ask(request, 9)
    assert (quiet.cluster_authorized_operations, quiet.topics[0].topic_authorized_operations) == (
        -(2**31),
        -(2**31),
    )
    request.include_cluster_authorized_operations = request.include_topic_authorized_operations = True
    told = await broker.ask(request, 9)
    assert (told.cluster_authorized_operations, told.topics[0].topic_authorized_operations) == (8096, 3576)


async def test_a_store_that_is_away_is_worth_another_try(broker: Harness) -> None:
    topic = await broker.topics.create(NewTopic("orders"))
    broker.store.down = True
    response = await broker.ask(by_name("orders", "other", create=True), 9)
    assert codes(response) == {"orders": 0, "other": ErrorCode.LEADER_NOT_AVAILABLE}
    asked = [MetadataRequestTopic(topic_id=UUID(int=5), name=None)]
    response = await broker.ask(MetadataRequest(topics=asked), 12)
    assert response.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert topic.name == "orders"


async def test_the_leaders_are_spread_over_the_brokers(broker: Harness) -> None:
    async with running(beside=broker, broker_id=1) as other:
        topic = await other.topics.create(NewTopic("orders", 8))
        answers = [await one.ask(by_name("orders"), 9) for one in (other,)]
        leaders = [partition.leader_id for partition in answers[0].topics[0].partitions]
        assert sorted(leaders) == [0] * 4 + [1] * 4
        assert leaders == [owner_of(owners(ALL_ZONES, (0, 1), 4), stream) for stream in topic.streams]
        assert [node.node_id for node in answers[0].brokers] == [0, 1]
        assert answers[0].controller_id == 1


async def test_brokers_are_shown_as_the_clients_listener_reaches_them(broker: Harness) -> None:
    for listener, address in (("OUTSIDE", ("broker.example", 9192)), ("OTHER", ("127.0.0.1", 9092))):
        connection = FakeConnection(listener)
        response = await broker.ask(by_name(), 9, connection)
        assert [(node.host, node.port) for node in response.brokers] == [address]
        described = await broker.ask(DescribeClusterRequest(), 1, connection)
        assert [(node.host, node.port) for node in described.brokers] == [address]
        found = await broker.ask(FindCoordinatorRequest(key="g"), 2, connection)
        assert (found.host, found.port) == address


# --- DescribeCluster


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_the_cluster_is_described(broker: Harness, version: int) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    response = await broker.ask(request, version)
    assert (response.error_code, response.controller_id) == (0, 0)
    assert response.cluster_id == broker.services.cluster.cluster_id
    assert [(node.broker_id, node.port, node.rack) for node in response.brokers] == [(0, 9092, "rack-0")]
    assert response.cluster_authorized_operations == 8096
    assert not response.brokers[0].is_fenced


@pytest.mark.parametrize(
    ("endpoint", "code"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
async def test_controllers_are_not_to_be_had(broker: Harness, endpoint: int, code: ErrorCode) -> None:
    response = await broker.ask(DescribeClusterRequest(endpoint_type=endpoint), 1)
    assert (response.error_code, response.brokers) == (code, [])


# --- DescribeTopicPartitions


async def page(
    broker: Harness, names: Sequence[str] = (), limit: int = 2000, cursor: Cursor | None = None
) -> tuple[list[tuple[str | None, int, list[int]]], tuple[str, int] | None]:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
    )
    response = await broker.ask(request, 0)
    topics = [
        (topic.name, topic.error_code, [partition.partition_index for partition in topic.partitions])
        for topic in response.topics
    ]
    following = response.next_cursor
    return topics, None if following is None else (following.topic_name, following.partition_index)


async def test_topics_are_described_page_by_page(broker: Harness) -> None:
    for name, count in (("b", 3), ("a", 2), ("c", 1)):
        await broker.topics.create(NewTopic(name, count))
    everything = [("a", 0, [0, 1]), ("b", 0, [0, 1, 2]), ("c", 0, [0])]
    assert await page(broker) == (everything, None)
    assert await page(broker, ["c", "a", "b"]) == (everything, None)
    assert await page(broker, limit=4) == ([("a", 0, [0, 1]), ("b", 0, [0, 1])], ("b", 2))
    assert await page(broker, limit=4, cursor=Cursor(topic_name="b", partition_index=2)) == (
        [("b", 0, [2]), ("c", 0, [0])],
        None,
    )
    assert await page(broker, limit=2) == ([("a", 0, [0, 1])], ("b", 0))
    assert await page(broker, limit=0) == ([("a", 0, [0])], ("a", 1)), "one at the least"
    assert await page(broker, ["a", "x", "a b"]) == (
        [
            ("a", 0, [0, 1]),
            ("a b", ErrorCode.INVALID_TOPIC_EXCEPTION, []),
            ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []),
        ],
        None,
    )


async def test_the_brokers_own_limit_holds() -> None:
    async with running(room_settings.api(describe_partition_limit=3)) as broker:
        await broker.topics.create(NewTopic("a", 5))
        assert await page(broker) == ([("a", 0, [0, 1, 2])], ("a", 3))


async def test_a_partition_is_described_in_full(broker: Harness) -> None:
    topic = await broker.topics.create(NewTopic("orders"))
    response = await broker.ask(DescribeTopicPartitionsRequest(), 0)
    [found] = response.topics
    assert (found.topic_id, found.topic_authorized_operations) == (topic.topic_id, 3576)
    [partition] = found.partitions
    assert (partition.leader_id, partition.leader_epoch) == (0, 0)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([0], [0], [])


async def test_cursors_that_point_nowhere(broker: Harness) -> None:
    await broker.topics.create(NewTopic("a"))
    none: list[int] = []
    refused = ([("a", ErrorCode.INVALID_REQUEST, none)], None)
    assert await page(broker, ["a"], cursor=Cursor(topic_name="b", partition_index=0)) == refused
    assert await page(broker, ["a"], cursor=Cursor(topic_name="a", partition_index=-1)) == refused
    assert await page(broker, cursor=Cursor(topic_name="a", partition_index=-1)) == ([], None)
    assert await page(broker, cursor=Cursor(topic_name="zzz", partition_index=0)) == ([], None)
    assert await page(broker, cursor=Cursor(topic_name="a", partition_index=50)) == ([("a", 0, [])], None)


# --- FindCoordinator


@pytest.mark.parametrize("version", range(7))
async def test_a_groups_coordinator_is_this_broker(broker: Harness, version: int) -> None:
    request = FindCoordinatorRequest(key="group", coordinator_keys=["group", "other"])
    response = await broker.ask(request, version)
    if version < 4:
        assert (response.error_code, response.node_id, response.host, response.port) == (
            0,
            0,
            "127.0.0.1",
            9092,
        )
    else:
        assert [(one.key, one.error_code, one.node_id, one.port) for one in response.coordinators] == [
            ("group", 0, 0, 9092),
            ("other", 0, 0, 9092),
        ]


@pytest.mark.parametrize("version", range(1, 7))
@pytest.mark.parametrize("kind", [1, 2])
async def test_other_coordinators_there_are_none(broker: Harness, version: int, kind: int) -> None:
    code = ErrorCode.INVALID_REQUEST
    if kind == 1:  # of transactions: each client by the code that stops it
        librdkafka = version in (2, 3)
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if librdkafka else ErrorCode.UNSUPPORTED_VERSION
        )
    request = FindCoordinatorRequest(key="t", key_type=kind, coordinator_keys=["t"])
    response = await broker.ask(request, version)
    found = response if version < 4 else response.coordinators[0]
    assert (found.error_code, found.node_id, found.port) == (code, -1, -1)
    assert found.error_message


@pytest.mark.parametrize("version", [3, 6])
async def test_kafkas_admin_is_led_on_to_where_an_id_is_not_found(broker: Harness, version: int) -> None:
    request = FindCoordinatorRequest(key="t", key_type=1, coordinator_keys=["t"])
    response = await broker.ask(request, version, client_id="adminclient-1")
    found = response if version < 4 else response.coordinators[0]
    assert (found.error_code, found.node_id, found.port) == (0, 0, 9092)
    described = await broker.ask(DescribeTransactionsRequest(transactional_ids=["t"]), 0)
    assert described.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("software", "code"),
    [
        ("sarama", ErrorCode.UNSUPPORTED_VERSION),
        ("librdkafka", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("confluent-kafka-python", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
async def test_clients_that_ask_in_one_version_are_told_apart_by_what_they_call_themselves(
    broker: Harness, software: str, code: ErrorCode
) -> None:
    named = ApiVersionsRequest(client_software_name=software, client_software_version="1.0")
    assert (await broker.ask(named, 3)).error_code == ErrorCode.NONE
    request = FindCoordinatorRequest(key="t", key_type=1)
    assert (await broker.ask(request, 2)).error_code == code


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
async def test_topics_of_kafka_itself_are_refused_and_never_made(
    broker: Harness, name: str, create: bool
) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            response = await broker.ask(by_name(name, "orders", create=create), 9)
    unknown = ErrorCode.NONE if create else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(response) == {name: ErrorCode.INVALID_TOPIC_EXCEPTION, "orders": unknown}
    assert response.topics[0].is_internal
    [line] = [line for line in logs if line.get("topic") == name]
    assert "no topic" in line["reason"]
    assert await broker.topics.refresh(name) is None


async def test_a_topic_of_kafka_itself_that_an_older_build_made_is_still_there(broker: Harness) -> None:
    name = "__consumer_offsets"
    await broker.topics.create(NewTopic("orders", 3))
    record = await broker.store.get(0, keys.topic("orders"))
    assert record is not None
    await broker.store.write(0, [Put(keys.topic(name), record.value, ABSENT)])
    response = await broker.ask(by_name(name), 9)
    assert codes(response) == {name: 0}
    assert len(response.topics[0].partitions) == 3
