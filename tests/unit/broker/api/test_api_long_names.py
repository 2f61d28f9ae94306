"""A name of a client may be as long as a string of the protocol: the message that repeats it still fits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.unit.broker.api.fakes import Harness, batch

from dray.broker.api.shared import ResourceType
from dray.broker.topics import NewTopic
from dray.kafka.protocol.messages import alter_client_quotas as quotas
from dray.kafka.protocol.messages import alter_configs, create_topics, incremental_alter_configs
from dray.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from dray.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from dray.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from dray.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from dray.kafka.protocol.wire import LONGEST_STRING

LONGEST = ["n" * LONGEST_STRING, "\x01" * LONGEST_STRING, "\N{EURO SIGN}" * (LONGEST_STRING // 3)]
"""A letter, one that becomes four where it is quoted, and one of three bytes."""

TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP


def described(kind: int) -> Callable[[str], Any]:
    return lambda name: DescribeConfigsRequest(
        [DescribeConfigsResource(kind, name, None), DescribeConfigsResource(BROKER, "0", [name])]
    )


def altered(kind: int, named: str, *configs: tuple[str | None, str | None]) -> Callable[[str], Any]:
    """None stands for the long name."""

    def request(name: str) -> alter_configs.AlterConfigsRequest:
        made = [alter_configs.AlterableConfig(key or name, value) for key, value in configs]
        return alter_configs.AlterConfigsRequest(
            [alter_configs.AlterConfigsResource(kind, named or name, made)]
        )

    return request


def valued(kind: int, named: str, key: str) -> Callable[[str], Any]:
    return lambda name: altered(kind, named, (key, name))(name)


def increased(
    kind: int, named: str, operation: int, value: str | None = "1", times: int = 1
) -> Callable[[str], Any]:
    def request(name: str) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
        configs = [incremental_alter_configs.AlterableConfig(name, operation, value)] * times
        resource = incremental_alter_configs.AlterConfigsResource(kind, named or name, configs)
        return incremental_alter_configs.IncrementalAlterConfigsRequest([resource])

    return request


def created(name: str, configs: dict[str, str | None]) -> Any:
    made = [create_topics.CreatableTopicConfig(key, value) for key, value in configs.items()]
    topic = create_topics.CreatableTopic(name, 1, 1, configs=made)
    return create_topics.CreateTopicsRequest([topic], 1000)


def limited(parts: dict[str, str | None], key: str = "producer_byte_rate") -> Any:
    entity = [quotas.EntityData(kind, name) for kind, name in parts.items()]
    return quotas.AlterClientQuotasRequest([quotas.RequestedEntryData(entity, [quotas.OpData(key, 1.0)])])


def twice(request: Any) -> Any:
    request.entries *= 2
    return request


def beat(**fields: Any) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(**{"group_id": "g", "member_id": "m", "member_epoch": 1, **fields})


def joins(name: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    return beat(member_epoch=0, rebalance_timeout_ms=1000, topic_partitions=[], **fields)


def produced(name: str) -> ProduceRequest:
    data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, batch(b"1"))])]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data)


REPEATED: dict[str, tuple[int, Callable[[str], Any]]] = {
    "describe a broker": (4, described(BROKER)),
    "describe a topic": (4, described(TOPIC)),
    "a broker, before compact strings": (1, described(BROKER)),
    "alter a topic": (2, altered(TOPIC, "", ("retention.ms", "1"))),
    "set an unknown config": (2, altered(TOPIC, "t", (None, "1"))),
    "a config without a value": (2, altered(TOPIC, "t", (None, None))),
    "a config twice": (2, altered(TOPIC, "t", (None, "1"), (None, "2"))),
    "a wrong value": (2, valued(TOPIC, "t", "retention.ms")),
    "a value that is none of some": (2, valued(TOPIC, "t", "message.timestamp.type")),
    "an unknown config of a group": (2, altered(GROUP, "g", (None, "1"))),
    "a wrong value of a group": (2, valued(GROUP, "g", "consumer.session.timeout.ms")),
    "increase a topic": (1, increased(TOPIC, "", 0)),
    "increase an unknown config": (1, increased(TOPIC, "t", 2)),
    "an unknown operation": (1, increased(TOPIC, "t", 99)),
    "increase without a value": (1, increased(TOPIC, "t", 0, None)),
    "increase twice": (1, increased(TOPIC, "t", 0, times=2)),
    "append to a group": (1, increased(GROUP, "g", 2)),
    "create a topic": (7, lambda name: created(name, {})),
    "create with an unknown config": (7, lambda name: created("new", {name: "1"})),
    "create with a config without a value": (7, lambda name: created("new", {name: None})),
    "create with a wrong value": (7, lambda name: created("new", {"retention.ms": name})),
    "add partitions": (3, lambda name: CreatePartitionsRequest([CreatePartitionsTopic(name, 2, None)], 1000)),
    "update a feature": (2, lambda name: UpdateFeaturesRequest(1000, [FeatureUpdateKey(name, 1)])),
    "describe a user": (0, lambda name: DescribeUserScramCredentialsRequest([UserName(name)])),
    "describe a user twice": (0, lambda name: DescribeUserScramCredentialsRequest([UserName(name)] * 2)),
    "ask for an unknown quota": (1, lambda name: DescribeClientQuotasRequest([ComponentData(name, 2, None)])),
    "limit an unknown kind": (1, lambda name: limited({name: "a"})),
    "limit with an unknown key": (1, lambda name: limited({"user": "a"}, name)),
    "limit twice": (1, lambda name: twice(limited({"user": name}))),
    "describe a group": (6, lambda name: DescribeGroupsRequest([name])),
    "describe a consumer group": (1, lambda name: ConsumerGroupDescribeRequest([name])),
    "a beat for an unknown group": (1, lambda name: beat(group_id=name)),
    "produce": (12, produced),
}
"""Its message repeats the name: with the version to ask in."""

SILENT: dict[str, tuple[int, Callable[[str], Any]]] = {
    "describe the configs of a group": (4, described(GROUP)),
    "alter a group": (2, altered(GROUP, "", ("consumer.session.timeout.ms", "46000"))),
    "delete a topic": (6, lambda name: DeleteTopicsRequest([DeleteTopicState(name)], timeout_ms=1000)),
    "find a coordinator": (6, lambda name: FindCoordinatorRequest("", 0, [name])),
    "set a password": (
        0,
        lambda name: AlterUserScramCredentialsRequest(
            [], [ScramCredentialUpsertion(name, 1, 4096, b"s", b"p")]
        ),
    ),
    "delete a password": (
        0,
        lambda name: AlterUserScramCredentialsRequest([ScramCredentialDeletion(name, 1)], []),
    ),
    "add an ACL": (3, lambda name: CreateAclsRequest([AclCreation(2, name, 3, name, name, 3, 3)])),
    "the name of a quota": (1, lambda name: limited({"user": name, "client-id": name})),
    "join as an instance": (1, lambda name: joins(name, instance_id=name, subscribed_topic_names=["t"])),
    "join with a pattern": (1, lambda name: joins(name, subscribed_topic_regex=f"({name[3:]}")),
    "join with an assignor": (
        1,
        lambda name: joins(name, server_assignor=name, subscribed_topic_names=["t"]),
    ),
    "join a group": (1, lambda name: joins(name, group_id=name, subscribed_topic_names=["t"])),
}
"""Its message, if any, need not repeat the name: it is answered all the same."""


def messages(found: Any) -> Iterator[str]:
    """Of an answer, wherever they are in it."""
    if isinstance(found, list | tuple):
        for each in found:
            yield from messages(each)
    elif dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            value = getattr(found, field.name)
            if field.name.endswith("error_message") and value:
                yield value
            else:
                yield from messages(value)


@pytest.mark.parametrize("name", LONGEST, ids=["letters", "quoted", "of three bytes"])
@pytest.mark.parametrize("request_of", REPEATED)
async def test_a_message_that_repeats_the_longest_name_fits(
    broker: Harness, request_of: str, name: str
) -> None:
    await broker.topics.create(NewTopic("t", 1))
    version, made = REPEATED[request_of]
    told = list(messages(await broker.ask(made(name), version)))
    shown = name[:100]
    assert any(shown in text or repr(shown)[1:-1] in text for text in told)
    assert max(map(len, told)) < 2500


@pytest.mark.parametrize("name", LONGEST, ids=["letters", "quoted", "of three bytes"])
@pytest.mark.parametrize("request_of", SILENT)
async def test_whatever_has_the_longest_name_is_answered(broker: Harness, request_of: str, name: str) -> None:
    await broker.topics.create(NewTopic("t", 1))
    version, made = SILENT[request_of]
    answer = await broker.ask(made(name), version)
    assert all(len(text) < 2500 for text in messages(answer))


async def test_a_thousand_names_fit_too(broker: Harness) -> None:
    await broker.topics.create(NewTopic("t", 1))
    configs: list[tuple[str | None, str | None]] = [(f"{number:0250}", None) for number in range(1000)]
    answer = await broker.ask(altered(TOPIC, "t", *configs)("-"), 2)
    assert max(map(len, messages(answer))) < 2500
    answer = await broker.ask(twice(limited({f"{number:0250}": "a" for number in range(1000)})), 1)
    assert max(map(len, messages(answer))) < 2500
