"""What the admin commands make of a broker's answers, the bad ones above all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.unit.kafka.client.client_fakes import ScriptedBroker as Answers

from dray.base.runtime import SystemRuntime
from dray.kafka.client import Cluster, RequestFailed, admin
from dray.kafka.client.records import EARLIEST
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.create_partitions import (
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from dray.kafka.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from dray.kafka.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterResponse
from dray.kafka.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from dray.kafka.protocol.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    TopicResponse,
)
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = UUID(int=7)


def cluster_of(first: Answers, others: dict[tuple[str, int], Answers]) -> Cluster:
    async def dial(host: str, port: int) -> Any:
        return first if host == "first" else others[(host, port)]

    return Cluster([("first", 0)], dial, SystemRuntime(threads=1))


def created(code: int, message: str | None = None) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name="t", error_code=code, error_message=message)]
    )


async def test_create_sends_what_was_asked_for() -> None:
    broker = Answers(CreateTopicsRequest=created(0))
    assert await admin.create_topic(
        broker, "t", partitions=3, configs={"retention.ms": "5"}, validate_only=True
    )
    [request] = broker.seen
    [topic] = request.topics
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 3, -1)
    assert [(config.name, config.value) for config in topic.configs] == [("retention.ms", "5")]
    assert request.validate_only


async def test_an_error_is_one_line_with_its_name_and_the_brokers_words() -> None:
    broker = Answers(CreateTopicsRequest=created(ErrorCode.INVALID_CONFIG, "Invalid value x\nfor y"))
    with pytest.raises(RequestFailed) as caught:
        await admin.create_topic(broker, "t")
    assert str(caught.value) == "cannot create topic t: INVALID_CONFIG: Invalid value x for y"


async def test_an_error_that_nobody_knows_still_has_a_number() -> None:
    with pytest.raises(RequestFailed, match="cannot create topic t: ERROR_999"):
        await admin.create_topic(Answers(CreateTopicsRequest=created(999)), "t")


async def test_a_topic_that_exists_is_an_error_unless_it_may() -> None:
    broker = Answers(CreateTopicsRequest=created(ErrorCode.TOPIC_ALREADY_EXISTS))
    with pytest.raises(RequestFailed, match="TOPIC_ALREADY_EXISTS"):
        await admin.create_topic(broker, "t")
    assert not await admin.create_topic(broker, "t", may_exist=True)


async def test_a_topic_that_is_absent_is_an_error_unless_it_may_be() -> None:
    answer = DeleteTopicsResponse(
        responses=[DeletableTopicResult(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    )
    broker = Answers(DeleteTopicsRequest=answer)
    with pytest.raises(RequestFailed, match="cannot delete topic t: UNKNOWN_TOPIC_OR_PARTITION"):
        await admin.delete_topic(broker, "t")
    assert not await admin.delete_topic(broker, "t", may_be_absent=True)
    # Both fields name it: which one is on the wire is decided by the version that is negotiated.
    assert (broker.seen[0].topics[0].name, broker.seen[0].topic_names) == ("t", ["t"])


async def test_altering() -> None:
    broker = Answers(
        IncrementalAlterConfigsRequest=IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_name="t")]
        ),
        CreatePartitionsRequest=CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name="t", error_code=ErrorCode.INVALID_PARTITIONS, error_message="too few"
                )
            ]
        ),
    )
    await admin.alter_configs(broker, "t", {"a": "1"}, ["b"])
    changes = broker.seen[0].resources[0].configs
    assert [(change.name, change.config_operation, change.value) for change in changes] == [
        ("a", admin.SET, "1"),
        ("b", admin.DELETE, None),
    ]
    with pytest.raises(RequestFailed, match="cannot change topic t to 2 partitions: INVALID_PARTITIONS: too"):
        await admin.add_partitions(broker, "t", 2)


def metadata(*leaders: int, code: int = 0) -> MetadataResponse:
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=1, host="one", port=1),
            MetadataResponseBroker(node_id=2, host="two", port=2),
        ],
        topics=[
            MetadataResponseTopic(
                error_code=code,
                name="t",
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=number, leader_id=leader, replica_nodes=[leader]
                    )
                    for number, leader in enumerate(leaders)
                ],
            )
        ],
    )


def offsets(earliest: int, latest: int, code: int = 0) -> Callable[[Any], ListOffsetsResponse]:
    def answer(request: Any) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=item.partition_index,
                            error_code=code,
                            offset=earliest if item.timestamp == EARLIEST else latest,
                        )
                        for item in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


CONFIGS = DescribeConfigsResponse(
    results=[
        DescribeConfigsResult(
            resource_name="t",
            configs=[
                DescribeConfigsResourceResult(name="retention.ms", value="5", config_source=1),
                DescribeConfigsResourceResult(name="cleanup.policy", value="delete", config_source=5),
            ],
        )
    ]
)


async def test_describe_asks_each_leader_for_its_offsets_and_shows_what_the_topic_sets() -> None:
    broker = Answers(MetadataRequest=metadata(1, 2, -1), DescribeConfigsRequest=CONFIGS)
    cluster = cluster_of(
        broker,
        {
            ("one", 1): Answers(ListOffsetsRequest=offsets(3, 9)),
            ("two", 2): Answers(ListOffsetsRequest=offsets(0, 4)),
        },
    )
    [description] = await admin.describe_topics(cluster, ["t"])
    assert admin.as_plain(description) == {
        "name": "t",
        "topic_id": str(TOPIC_ID),
        "partitions": [
            {"partition": 0, "leader": 1, "replicas": [1], "start": 3, "end": 9},
            {"partition": 1, "leader": 2, "replicas": [2], "start": 0, "end": 4},
            {"partition": 2, "leader": -1, "replicas": [-1], "start": None, "end": None},
        ],
        "configs": {"retention.ms": "5"},
    }


async def test_describe_tells_what_steers_compaction_by_key_set_or_not() -> None:
    policy = DescribeConfigsResourceResult(name="cleanup.policy", value="delete, compact", config_source=1)
    steering = [
        DescribeConfigsResourceResult(name=each, value="7", config_source=5) for each in admin.OF_COMPACTION
    ]
    answer = DescribeConfigsResponse(
        results=[DescribeConfigsResult(resource_name="t", configs=[policy, *steering])]
    )
    broker = Answers(MetadataRequest=metadata(1), DescribeConfigsRequest=answer)
    leader = Answers(ListOffsetsRequest=offsets(0, 0))
    [description] = await admin.describe_topics(cluster_of(broker, {("one", 1): leader}), ["t"])
    plain = admin.as_plain(description)
    assert plain["compaction"] == dict.fromkeys(admin.OF_COMPACTION, "7")
    assert plain["configs"] == {"cleanup.policy": "delete, compact"}


async def test_describe_of_an_unknown_topic_creates_nothing() -> None:
    broker = Answers(MetadataRequest=metadata(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(RequestFailed, match="cannot describe topic t: UNKNOWN_TOPIC_OR_PARTITION"):
        await admin.describe_topics(cluster_of(broker, {}), ["t"])
    assert broker.seen[0].allow_auto_topic_creation is False


async def test_describe_says_why_the_offsets_of_a_partition_cannot_be_had() -> None:
    """ListOffsets has no words, so another API of the same leader is asked for them."""
    broker = Answers(MetadataRequest=metadata(1), DescribeConfigsRequest=CONFIGS)
    failed = PartitionResponse(partition_index=0, error_code=56, error_message="stored in format 9")
    leader = Answers(
        ListOffsetsRequest=offsets(0, 0, ErrorCode.KAFKA_STORAGE_ERROR),
        DescribeProducersRequest=DescribeProducersResponse(topics=[TopicResponse("t", [failed])]),
    )
    [topic] = await admin.describe_topics(cluster_of(broker, {("one", 1): leader}), ["t"])
    assert topic.partitions[0].trouble == "KAFKA_STORAGE_ERROR: stored in format 9"
    assert topic.partitions[0].end is None
    assert admin.as_plain(topic)["partitions"][0]["trouble"] == topic.partitions[0].trouble


async def test_the_cluster_may_refuse_to_be_described() -> None:
    answer = DescribeClusterResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="no")
    with pytest.raises(RequestFailed, match="cannot describe the cluster: CLUSTER_AUTHORIZATION_FAILED: no"):
        await admin.describe_cluster(Answers(DescribeClusterRequest=answer))
