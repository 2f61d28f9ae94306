"""Topics made, changed and deleted over the wire, and their configs."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.services import room_settings
from tests.unit.broker.api.fakes import Harness, running

from dray.broker.api.shared.broker_defaults import BROKER_DEFAULTS
from dray.broker.topics import CONFIGS, NewTopic
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from dray.kafka.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from dray.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from dray.kafka.protocol.messages.incremental_alter_configs import AlterableConfig as IncrementalConfig
from dray.kafka.protocol.messages.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from dray.kafka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from dray.log.types import LogUnavailable

TOPIC, BROKER = 2, 4


# --- CreateTopics


def new(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **fields)


def creation(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=30_000, validate_only=validate_only)


async def test_a_topic_of_kafka_itself_is_not_created(broker: Harness) -> None:
    [result] = (await broker.ask(creation(new("__consumer_offsets", 50, 3)), 7)).topics
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "metadata store" in str(result.error_message)


@pytest.mark.parametrize("version", range(2, 8))
async def test_every_version_creates(broker: Harness, version: int) -> None:
    config = [CreatableTopicConfig(name="retention.ms", value="5")]
    response = await broker.ask(creation(new("orders", 3, 3, configs=config)), version)
    [result] = response.topics
    assert (result.name, result.error_code, result.error_message) == ("orders", 0, None)
    topic = broker.topics.cached("orders")
    assert topic is not None
    assert (len(topic.streams), topic.config) == (3, {"retention.ms": "5"})
    assert result.topic_id == (topic.topic_id if version >= 7 else ZERO_UUID)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        assert result.configs is not None
        configs = {one.name: (one.value, one.config_source) for one in result.configs}
        assert configs["retention.ms"] == ("5", 1)
        assert configs["max.message.bytes"] == ("1048588", 5)
        assert list(configs) == sorted(CONFIGS)


@pytest.mark.parametrize("version", [4, 5, 7])
async def test_defaults_and_assignments(broker: Harness, version: int) -> None:
    assigned = [CreatableReplicaAssignment(partition_index=index, broker_ids=[0]) for index in (1, 0)]
    response = await broker.ask(
        creation(new("plain", -1, -1), new("assigned", -1, -1, assignments=assigned)), version
    )
    assert [(one.name, one.error_code) for one in response.topics] == [("plain", 0), ("assigned", 0)]
    topic = broker.topics.cached("assigned")
    assert topic is not None
    assert len(topic.streams) == 2


WRONG_ASSIGNMENTS: list[list[tuple[int, list[int]]]] = [
    [(1, [0])],
    [(0, [])],
    [(0, [7])],
    [(0, [0]), (1, [7])],
    [(0, [0, 0])],
]


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("version", [2, 5, 7])
@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("taken"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new("t.aken_"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new("a", 0), ErrorCode.INVALID_PARTITIONS),
        (new("a", 100_000), ErrorCode.INVALID_PARTITIONS),
        (new("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new("a", configs=[CreatableTopicConfig("retention.ms", "x")]), ErrorCode.INVALID_CONFIG),
        (new("a", configs=[CreatableTopicConfig("nonsense", "x")]), ErrorCode.INVALID_CONFIG),
        (new("a", configs=[CreatableTopicConfig("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (new("a", assignments=[CreatableReplicaAssignment(0, [1])]), ErrorCode.INVALID_REQUEST),
        *(
            (
                new("a", -1, -1, assignments=[CreatableReplicaAssignment(*one) for one in assignments]),
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            )
            for assignments in WRONG_ASSIGNMENTS
        ),
        (
            new("taken", -1, -1, assignments=[CreatableReplicaAssignment(0, [7])]),
            ErrorCode.TOPIC_ALREADY_EXISTS,
        ),
    ],
)
async def test_refused_creations(
    broker: Harness, topic: CreatableTopic, code: ErrorCode, version: int, validate_only: bool
) -> None:
    await broker.topics.create(NewTopic("taken"))
    await broker.topics.create(NewTopic("t_aken."))
    response = await broker.ask(creation(topic, new("good"), validate_only=validate_only), version)
    refused, good = response.topics
    assert (ErrorCode(refused.error_code), good.error_code) == (code, 0)
    assert refused.error_message
    assert (broker.topics.cached("good") is None) == validate_only, "one does not hold the other up"


async def test_a_name_that_is_there_twice(broker: Harness) -> None:
    response = await broker.ask(creation(new("a"), new("b"), new("a", 2)), 5)
    assert [(one.name, one.error_code) for one in response.topics] == [
        ("b", 0),
        ("a", ErrorCode.INVALID_REQUEST),
    ]
    assert broker.topics.cached("a") is None


async def test_a_creation_that_takes_too_long_is_timed_out_and_goes_on(broker: Harness) -> None:
    release = asyncio.Event()
    create = broker.log.create_streams

    async def slow(count: int) -> list[int]:
        await release.wait()
        return await create(count)

    broker.log.create_streams = slow  # type: ignore[method-assign]
    request = creation(new("orders"))
    request.timeout_ms = 1
    [result] = (await broker.ask(request, 5)).topics
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
    release.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert broker.topics.cached("orders") is not None


async def test_a_refusal_is_the_clients_business_and_not_in_the_log(broker: Harness) -> None:
    with capture_logs() as lines:
        await broker.ask(creation(new("a b"), new("a", 0)), 7)
        await broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState("x")], timeout_ms=1000), 6)
    assert lines == []


async def test_a_failure_after_the_client_left_is_in_the_log(broker: Harness) -> None:
    release = asyncio.Event()

    async def failing(count: int) -> list[int]:
        await release.wait()
        raise LogUnavailable("no more streams")

    broker.log.create_streams = failing  # type: ignore[method-assign]
    request = creation(new("orders"))
    request.timeout_ms = 1
    with capture_logs() as lines:
        await broker.ask(request, 5)
        assert lines == []
        release.set()
        for _ in range(20):
            await asyncio.sleep(0)
    [line] = lines
    assert (line["log_level"], line["request"]) == ("error", "CREATE_TOPICS")
    assert "no more streams" in line["error"]


async def test_no_timeout_waits(broker: Harness) -> None:
    request = creation(new("orders"))
    request.timeout_ms = 0
    assert (await broker.ask(request, 5)).topics[0].error_code == 0


async def test_a_store_that_is_away_leaves_it_open(broker: Harness) -> None:
    broker.store.down = True
    [result] = (await broker.ask(creation(new("orders")), 5)).topics
    assert result.error_code == ErrorCode.REQUEST_TIMED_OUT


# --- DeleteTopics


@pytest.mark.parametrize("version", range(1, 7))
async def test_every_version_deletes_by_name(broker: Harness, version: int) -> None:
    topic = await broker.topics.create(NewTopic("orders", 2))
    request = DeleteTopicsRequest(
        topic_names=["orders", "x"],
        topics=[DeleteTopicState("orders"), DeleteTopicState("x")],
        timeout_ms=1000,
    )
    response = await broker.ask(request, version)
    assert [(one.name, one.error_code) for one in response.responses] == [
        ("orders", 0),
        ("x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert broker.log.closed == set(topic.streams)
    assert await broker.topics.refresh("orders") is None


async def test_deleting_by_id(broker: Harness) -> None:
    topic = await broker.topics.create(NewTopic("orders"))
    asked = [DeleteTopicState(None, topic.topic_id), DeleteTopicState(None, UUID(int=5))]
    response = await broker.ask(DeleteTopicsRequest(topics=asked, timeout_ms=1000), 6)
    assert [(one.name, one.topic_id, one.error_code) for one in response.responses] == [
        ("orders", topic.topic_id, 0),
        (None, UUID(int=5), ErrorCode.UNKNOWN_TOPIC_ID),
    ]


async def test_deletions_that_contradict_themselves(broker: Harness) -> None:
    topic = await broker.topics.create(NewTopic("orders"))
    for asked in (
        [DeleteTopicState(None, ZERO_UUID)],
        [DeleteTopicState("orders", topic.topic_id)],
        [DeleteTopicState("orders"), DeleteTopicState("orders")],
        [DeleteTopicState(None, topic.topic_id), DeleteTopicState(None, topic.topic_id)],
    ):
        response = await broker.ask(DeleteTopicsRequest(topics=asked, timeout_ms=1000), 6)
        assert [one.error_code for one in response.responses] == [ErrorCode.INVALID_REQUEST]
    assert await broker.topics.refresh("orders") == topic


async def test_a_topic_named_by_name_and_by_id_is_deleted_once(broker: Harness) -> None:
    topic = await broker.topics.create(NewTopic("orders"))
    asked = [DeleteTopicState("orders"), DeleteTopicState(None, topic.topic_id)]
    response = await broker.ask(DeleteTopicsRequest(topics=asked, timeout_ms=1000), 6)
    assert [one.error_code for one in response.responses] == [0, ErrorCode.INVALID_REQUEST]


async def test_deleted_and_made_anew_at_once(broker: Harness) -> None:
    async with running(beside=broker, broker_id=1) as other:
        ids = set()
        for round_number in range(5):
            here, there = (broker, other) if round_number % 2 else (other, broker)
            [made] = (await here.ask(creation(new("orders")), 7)).topics
            assert made.error_code == 0
            ids.add(made.topic_id)
            gone = await there.ask(DeleteTopicsRequest(topics=[DeleteTopicState("orders")], timeout_ms=0), 6)
            assert gone.responses[0].error_code == 0
        assert len(ids) == 5
        assert not broker.log.open


async def test_a_deletion_whose_streams_cannot_be_closed_is_left_open(broker: Harness) -> None:
    await broker.topics.create(NewTopic("orders"))
    broker.log.failing = {"close"}
    response = await broker.ask(DeleteTopicsRequest(topics=[DeleteTopicState("orders")], timeout_ms=0), 6)
    assert response.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT


# --- CreatePartitions


@pytest.mark.parametrize("version", range(4))
async def test_partitions_are_added(broker: Harness, version: int) -> None:
    before = await broker.topics.create(NewTopic("orders", 2))
    asked = [CreatePartitionsTopic(name="orders", count=4, assignments=None)]
    response = await broker.ask(CreatePartitionsRequest(topics=asked, timeout_ms=1000), version)
    assert [(one.name, one.error_code) for one in response.results] == [("orders", 0)]
    after = broker.topics.cached("orders")
    assert after is not None
    assert (len(after.streams), after.streams[:2]) == (4, before.streams)


@pytest.mark.parametrize("validate_only", [True, False])
async def test_refused_partitions(broker: Harness, validate_only: bool) -> None:
    await broker.topics.create(NewTopic("orders", 2))
    one_too_few, unknown, nobody, doubled = (
        [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments]
        for assignments in ([[0]], [[0], [7]], [[0], []], [[0, 0], [0, 0]])
    )
    for name, count, assignments, code in (
        ("orders", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("orders", 2**31 - 1, None, ErrorCode.INVALID_PARTITIONS),
        ("x", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("orders", 4, one_too_few, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 4, unknown, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 4, nobody, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 4, doubled, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("orders", 2, unknown, ErrorCode.INVALID_PARTITIONS),
    ):
        asked = [CreatePartitionsTopic(name=name, count=count, assignments=assignments)]
        request = CreatePartitionsRequest(topics=asked, timeout_ms=1000, validate_only=validate_only)
        assert (await broker.ask(request, 3)).results[0].error_code == code
    twice = [CreatePartitionsTopic(name="orders", count=count, assignments=None) for count in (3, 4)]
    response = await broker.ask(CreatePartitionsRequest(topics=twice, validate_only=validate_only), 3)
    assert [one.error_code for one in response.results] == [ErrorCode.INVALID_REQUEST]
    topic = await broker.topics.refresh("orders")
    assert topic is not None
    assert len(topic.streams) == 2


async def test_an_assignment_may_name_every_live_broker(broker: Harness) -> None:
    async with running(beside=broker, broker_id=1) as other:
        assigned = [CreatableReplicaAssignment(0, [0, 1]), CreatableReplicaAssignment(1, [1, 0])]
        [made] = (await other.ask(creation(new("orders", -1, -1, assignments=assigned)), 7)).topics
        assert (made.error_code, made.num_partitions) == (0, 2)
        grown = CreatePartitionsTopic("orders", 3, [CreatePartitionsAssignment(broker_ids=[1])])
        [result] = (await other.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=1000), 3)).results
        assert result.error_code == 0


async def test_validate_only_adds_no_partitions(broker: Harness) -> None:
    await broker.topics.create(NewTopic("orders", 2))
    asked = [CreatePartitionsTopic(name="orders", count=4, assignments=None)]
    response = await broker.ask(CreatePartitionsRequest(topics=asked, validate_only=True), 3)
    assert response.results[0].error_code == 0
    topic = await broker.topics.refresh("orders")
    assert topic is not None
    assert len(topic.streams) == 2


# --- DescribeConfigs


async def describe(
    broker: Harness, kind: int, name: str, version: int = 4, keys: list[str] | None = None, **fields: bool
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    response = await broker.ask(DescribeConfigsRequest(resources=[resource], **fields), version)
    [result] = response.results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topics_configs(version: int) -> None:
    defaults = {"retention.ms": "9"}
    options = room_settings.topics(reread_interval=3600, sweep_interval=3600, defaults=defaults)
    async with running(options=options) as broker:
        await broker.topics.create(NewTopic("orders", config={"max.message.bytes": "77"}))
        result = await describe(broker, TOPIC, "orders", version, include_synonyms=True)
        assert (result.error_code, result.error_message) == (0, "")
        assert [config.name for config in result.configs] == sorted(CONFIGS)
        shown = {config.name: config for config in result.configs}
        own, inherited, plain = (
            shown[name] for name in ("max.message.bytes", "retention.ms", "dray.iceberg.enabled")
        )
        assert (own.value, own.config_source) == ("77", 1)
        assert [(one.name, one.value, one.source) for one in own.synonyms] == [
            ("max.message.bytes", "77", 1),
            ("message.max.bytes", "1048588", 5),
        ]
        assert (inherited.value, inherited.config_source) == ("9", 4)
        assert [(one.name, one.value, one.source) for one in inherited.synonyms] == [
            (
                "log.retention.ms",
                "9",
                4,
            ),  # which has no default of its own: it is that of log.retention.hours
        ]
        assert (plain.value, plain.config_source, plain.synonyms) == ("true", 5, [])
        assert not any(config.read_only or config.is_sensitive for config in result.configs)
        if version >= 3:
            assert (own.config_type, inherited.config_type, plain.config_type) == (3, 5, 1)


async def test_only_what_is_asked_for(broker: Harness) -> None:
    await broker.topics.create(NewTopic("orders"))
    result = await describe(broker, TOPIC, "orders", keys=["retention.ms", "nonsense"])
    [config] = result.configs
    assert (config.name, config.synonyms, config.documentation) == ("retention.ms", [], None)
    documented = await describe(broker, TOPIC, "orders", include_documentation=True)
    assert all(config.documentation for config in documented.configs)
    assert len((await describe(broker, TOPIC, "orders", keys=[])).configs) == len(CONFIGS)


async def test_configs_of_what_is_not_there(broker: Harness) -> None:
    for kind, name, code in (
        (TOPIC, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "a b", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (BROKER, "7", ErrorCode.INVALID_REQUEST),
        (BROKER, "zero", ErrorCode.INVALID_REQUEST),
        (8, "7", ErrorCode.INVALID_REQUEST),
        (99, "", ErrorCode.INVALID_REQUEST),
    ):
        result = await describe(broker, kind, name)
        assert (ErrorCode(result.error_code), result.configs) == (code, [])


async def test_what_one_listener_has_is_shown_under_its_prefix() -> None:
    """As Kafka: with the type of the config itself, which has its say behind it."""
    own, base = "listener.name.people.sasl.enabled.mechanisms", "sasl.enabled.mechanisms"
    settings = room_settings.api(broker_configs={own: "PLAIN", base: "PLAIN,SCRAM-SHA-512"})
    async with running(settings, broker_id=4) as broker:
        result = await describe(broker, BROKER, "4", include_synonyms=True)
        shown = {one.name: one for one in result.configs}
        assert (shown[own].value, shown[own].config_type, shown[own].is_sensitive) == ("PLAIN", 7, False)
        assert [(one.name, one.value, one.source) for one in shown[own].synonyms] == [
            (own, "PLAIN", 4),
            (base, "PLAIN,SCRAM-SHA-512", 4),
            (base, "GSSAPI", 5),
        ]


async def test_a_brokers_configs_are_shown_read_only() -> None:
    options = room_settings.topics(
        reread_interval=3600, sweep_interval=3600, defaults={"retention.ms": " 9 "}
    )
    settings = room_settings.api(broker_configs={"num.partitions": "3"})
    async with running(settings, options=options, broker_id=4) as broker:
        result = await describe(broker, BROKER, "4", include_synonyms=True, include_documentation=True)
        names = [one.name for one in result.configs]
        assert names == sorted(set(names))
        assert {definition.synonym for definition in CONFIGS.values()} - {None} < set(names)
        assert all(one.read_only for one in result.configs)
        shown = {one.name: one for one in result.configs}
        assert {
            name: (shown[name].value, shown[name].config_source, shown[name].config_type)
            for name in ("broker.id", "node.id", "num.partitions", "log.retention.ms", "message.max.bytes")
        } == {
            "broker.id": ("4", 4, 3),
            "node.id": ("4", 4, 3),
            "num.partitions": ("3", 4, 3),
            "log.retention.ms": ("9", 4, 5),
            "message.max.bytes": ("1048588", 5, 3),
        }
        assert [(one.name, one.value, one.source) for one in shown["log.retention.ms"].synonyms] == [
            ("log.retention.ms", "9", 4),
        ]
        assert [(one.value, one.source) for one in shown["num.partitions"].synonyms] == [("3", 4), ("1", 5)]
        assert shown["advertised.listeners"].value == (
            "PLAINTEXT://127.0.0.1:9096,OUTSIDE://broker.example:9196"
        )
        assert set(BROKER_DEFAULTS) <= set(names)
        nothing_here = shown["num.io.threads"]
        assert (nothing_here.value, nothing_here.config_source) == ("8", 5)
        assert "no effect" in str(nothing_here.documentation)
        secret = shown["ssl.key.password"]
        assert (secret.value, secret.is_sensitive) == (None, True)
        assert shown["log.retention.ms"].documentation
        assert (await describe(broker, BROKER, "", keys=None)).configs == []
        [only] = (await describe(broker, BROKER, "4", keys=["message.max.bytes"])).configs
        assert (only.name, only.synonyms, only.documentation) == ("message.max.bytes", [], None)


# --- AlterConfigs and IncrementalAlterConfigs


@pytest.mark.parametrize("version", range(3))
@pytest.mark.parametrize("validate_only", [True, False])
async def test_overrides_are_replaced(broker: Harness, version: int, validate_only: bool) -> None:
    await broker.topics.create(NewTopic("orders", config={"segment.ms": "5"}))
    resources = [
        AlterConfigsResource(TOPIC, "orders", [AlterableConfig("retention.ms", "7")]),
        AlterConfigsResource(TOPIC, "x", []),
        AlterConfigsResource(BROKER, "0", [AlterableConfig("a", "b")]),
    ]
    request = AlterConfigsRequest(resources=resources, validate_only=validate_only)
    response = await broker.ask(request, version)
    assert [(one.resource_type, one.resource_name, one.error_code) for one in response.responses] == [
        (TOPIC, "orders", 0),
        (TOPIC, "x", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "0", ErrorCode.INVALID_REQUEST),
    ]
    topic = await broker.topics.refresh("orders")
    assert topic is not None
    assert topic.config == ({"segment.ms": "5"} if validate_only else {"retention.ms": "7"})


async def test_refused_replacements(broker: Harness) -> None:
    await broker.topics.create(NewTopic("orders"))
    for resource, code in (
        (
            AlterConfigsResource(TOPIC, "orders", [AlterableConfig("retention.ms", "x")]),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            AlterConfigsResource(TOPIC, "orders", [AlterableConfig("retention.ms", None)]),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            AlterConfigsResource(TOPIC, "orders", [AlterableConfig("retention.ms", n) for n in ("1", "2")]),
            ErrorCode.INVALID_REQUEST,
        ),
        (AlterConfigsResource(TOPIC, "a b", []), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (AlterConfigsResource(TOPIC, "x", [AlterableConfig("retention.ms", "x")]), ErrorCode.INVALID_CONFIG),
        (AlterConfigsResource(TOPIC, "orders", [AlterableConfig("nonsense", "1")]), ErrorCode.INVALID_CONFIG),
        (AlterConfigsResource(TOPIC, "", []), ErrorCode.INVALID_REQUEST),
        (AlterConfigsResource(99, "x", []), ErrorCode.INVALID_REQUEST),
    ):
        for validate_only in (True, False):
            request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
            assert (await broker.ask(request, 2)).responses[0].error_code == code
    twice = [AlterConfigsResource(TOPIC, "orders", [AlterableConfig("retention.ms", str(n))]) for n in (5, 6)]
    response = await broker.ask(AlterConfigsRequest(resources=twice), 2)
    assert [one.error_code for one in response.responses] == [ErrorCode.INVALID_REQUEST] * 2


def change(name: str, operation: int, value: str | None) -> IncrementalConfig:
    return IncrementalConfig(name=name, config_operation=operation, value=value)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("validate_only", [True, False])
async def test_overrides_are_changed_one_by_one(broker: Harness, version: int, validate_only: bool) -> None:
    await broker.topics.create(NewTopic("orders", config={"segment.ms": "5", "retention.ms": "6"}))
    changes = [
        change("retention.ms", 0, "7"),
        change("segment.ms", 1, None),
        change("cleanup.policy", 2, "compact"),
    ]
    resources = [IncrementalResource(TOPIC, "orders", changes), IncrementalResource(TOPIC, "x", [])]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=validate_only)
    response = await broker.ask(request, version)
    assert [one.error_code for one in response.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    topic = await broker.topics.refresh("orders")
    assert topic is not None
    assert topic.config == (
        {"segment.ms": "5", "retention.ms": "6"}
        if validate_only
        else {"retention.ms": "7", "cleanup.policy": "delete,compact"}
    )


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([change("retention.ms", 9, "1")], ErrorCode.INVALID_REQUEST),
        ([change("retention.ms", 0, "1"), change("retention.ms", 1, None)], ErrorCode.INVALID_REQUEST),
        ([change("retention.ms", 2, "1")], ErrorCode.INVALID_CONFIG),
        ([change("retention.ms", 0, None)], ErrorCode.INVALID_REQUEST),
        ([change("cleanup.policy", 2, None)], ErrorCode.INVALID_REQUEST),
        ([change("cleanup.policy", 3, None)], ErrorCode.INVALID_REQUEST),
        ([change("nonsense", 0, "1")], ErrorCode.INVALID_CONFIG),
        ([change("segment.ms", 0, "9"), change("retention.ms", 0, "-5")], ErrorCode.INVALID_CONFIG),
    ],
)
async def test_refused_changes_change_nothing(
    broker: Harness, changes: list[IncrementalConfig], code: ErrorCode
) -> None:
    await broker.topics.create(NewTopic("orders"))
    resources = [IncrementalResource(TOPIC, "orders", changes)]
    response = await broker.ask(IncrementalAlterConfigsRequest(resources=resources), 1)
    assert ErrorCode(response.responses[0].error_code) is code
    assert response.responses[0].error_message
    topic = await broker.topics.refresh("orders")
    assert topic is not None
    assert topic.config == {}


@pytest.mark.parametrize(("kind", "named"), [(16, "CLIENT_METRICS"), (7, "Unknown resource type 7")])
async def test_a_kind_of_resource_that_is_not_served_is_named(broker: Harness, kind: int, named: str) -> None:
    change = IncrementalAlterConfigsRequest(resources=[IncrementalResource(kind, "0", [])])
    look = DescribeConfigsRequest(resources=[DescribeConfigsResource(kind, "0")])
    for answer in ((await broker.ask(change, 1)).responses[0], (await broker.ask(look, 4)).results[0]):
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert answer.error_message is not None
        assert answer.error_message.startswith(named)
