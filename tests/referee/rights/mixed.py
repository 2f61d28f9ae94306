"""Requests about several things at once, of which the client may have some: what it may and what it may not,
what is there and what is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import NAMESPACE_URL, uuid5

from dray.broker.api import HANDLERS
from dray.kafka.acls import AclBinding, AclOperation, AclResourceType, PatternType, Permission
from dray.kafka.protocol import Request
from dray.kafka.protocol.messages import (
    alter_configs,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
)
from tests.referee.rights.clients import Clients
from tests.referee.rights.matrix import noted
from tests.services.authorization_cases import Place
from tests.services.batches import batch, plain

YES, NO = "rights-mixed-yes", "rights-mixed-no"
ABSENT_YES, ABSENT_NO = f"{YES}-absent", f"{NO}-absent"
TOPICS: Final = (YES, NO, ABSENT_YES, ABSENT_NO)
GROUPS: Final = (YES, NO)
MEMBER: Final = "mixed-member"
ONLOOKER: Final = "mixed-onlooker"
_ALL: Final = AclOperation.ALL
_LAST: Final = {handler.api_key: handler for handler in HANDLERS}


def _bindings(user: str, operation: AclOperation) -> list[AclBinding]:
    return [
        AclBinding(kind, PatternType.PREFIXED, YES, f"User:{user}", "*", operation, Permission.ALLOW)
        for kind in (AclResourceType.TOPIC, AclResourceType.GROUP)
    ]


CLIENTS: Final = {
    MEMBER: _bindings(MEMBER, AclOperation.ALL),
    ONLOOKER: _bindings(ONLOOKER, AclOperation.DESCRIBE),
}
"""One may do everything to what begins with `YES`, the other only see it."""

Make = Callable[[Callable[[str], Any]], Request[Any]]
"""From what gives the id of a topic."""


def _produce(topic_id: Callable[[str], Any]) -> Request[Any]:
    def part() -> list[produce.PartitionProduceData]:
        return [produce.PartitionProduceData(index, bytearray(batch(plain(b"v")))) for index in (0, 7)]

    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[produce.TopicProduceData(topic_id(name), name, part()) for name in TOPICS],
    )


REQUESTS: Final[dict[str, Make]] = {
    "produce": _produce,
    "fetch": lambda topic_id: fetch.FetchRequest(
        topics=[
            fetch.FetchTopic(
                topic_id(name),
                name,
                [fetch.FetchPartition(0, partition_max_bytes=9), fetch.FetchPartition(7)],
            )
            for name in TOPICS
        ]
    ),
    "list-offsets": lambda _: list_offsets.ListOffsetsRequest(
        topics=[
            list_offsets.ListOffsetsTopic(
                name, [list_offsets.ListOffsetsPartition(at, -1, -1) for at in (0, 7)]
            )
            for name in TOPICS
        ]
    ),
    "offset-for-leader-epoch": lambda _: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        topics=[
            offset_for_leader_epoch.OffsetForLeaderTopic(
                name, [offset_for_leader_epoch.OffsetForLeaderPartition(at) for at in (0, 7)]
            )
            for name in TOPICS
        ]
    ),
    "metadata": lambda _: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in (*TOPICS, "a/b", f"{YES}/a")],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    ),
    "metadata-by-id": lambda topic_id: metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(topic_id(name), None) for name in (YES, NO)],
        include_topic_authorized_operations=True,
    ),
    "metadata-of-all": lambda _: metadata.MetadataRequest(
        topics=None, include_topic_authorized_operations=True
    ),
    "describe-topic-partitions": lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(
        topics=[describe_topic_partitions.TopicRequest(name) for name in TOPICS]
    ),
    "describe-topic-partitions-of-all": lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(),
    "create-topics": lambda _: create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(name, 1, 1) for name in (*TOPICS, NO, f"{NO}/a")],
        validate_only=True,
        timeout_ms=10_000,
    ),
    "create-partitions": lambda _: create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(name, 5, None) for name in TOPICS],
        validate_only=True,
        timeout_ms=10_000,
    ),
    "delete-topics": lambda _: delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(name) for name in TOPICS[1:]],
        topic_names=list(TOPICS[1:]),
        timeout_ms=10_000,
    ),
    "delete-topics-by-id": lambda topic_id: delete_topics.DeleteTopicsRequest(
        topics=[
            delete_topics.DeleteTopicState(None, topic_id(NO)),
            delete_topics.DeleteTopicState(None, topic_id(ABSENT_NO)),
        ],
        timeout_ms=10_000,
    ),
    "delete-records": lambda _: delete_records.DeleteRecordsRequest(
        topics=[
            delete_records.DeleteRecordsTopic(
                name, [delete_records.DeleteRecordsPartition(at, 0) for at in (0, 7)]
            )
            for name in TOPICS
        ],
        timeout_ms=10_000,
    ),
    "describe-configs": lambda _: describe_configs.DescribeConfigsRequest(
        resources=[
            describe_configs.DescribeConfigsResource(
                kind, name, ["retention.ms", "consumer.session.timeout.ms"]
            )
            for kind, names in ((2, TOPICS), (32, GROUPS), (4, ("",)), (8, ("1",)), (16, ("m",)))
            for name in names
        ]
    ),
    "alter-configs": lambda _: alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(kind, name)
            for kind, names in ((2, TOPICS), (32, GROUPS), (4, ("",)), (16, ("m",)))
            for name in names
        ],
        validate_only=True,
    ),
    "incremental-alter-configs": lambda _: incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(kind, name)
            for kind, names in ((2, TOPICS), (32, GROUPS), (4, ("",)), (8, ("1",)), (16, ("m",)))
            for name in names
        ],
        validate_only=True,
    ),
    "describe-producers": lambda _: describe_producers.DescribeProducersRequest(
        topics=[describe_producers.TopicRequest(name, [0, 7]) for name in TOPICS]
    ),
    "describe-log-dirs": lambda _: describe_log_dirs.DescribeLogDirsRequest(
        topics=[describe_log_dirs.DescribableLogDirTopic(name, [0]) for name in TOPICS]
    ),
    "find-coordinator": lambda _: find_coordinator.FindCoordinatorRequest(
        key=NO, key_type=0, coordinator_keys=[YES, NO, ""]
    ),
    "describe-groups": lambda _: describe_groups.DescribeGroupsRequest(
        [YES, NO, ABSENT_YES], include_authorized_operations=True
    ),
    "consumer-group-describe": lambda _: consumer_group_describe.ConsumerGroupDescribeRequest(
        [YES, NO, ABSENT_YES], include_authorized_operations=True
    ),
    "list-groups": lambda _: list_groups.ListGroupsRequest(),
    "delete-groups": lambda _: delete_groups.DeleteGroupsRequest([NO, ABSENT_YES]),
    "offset-commit": lambda topic_id: offset_commit.OffsetCommitRequest(
        ABSENT_YES,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                topic_id(name), name, [offset_commit.OffsetCommitRequestPartition(at, 5) for at in (0, 7)]
            )
            for name in TOPICS
        ],
    ),
    "offset-commit-of-another": lambda topic_id: offset_commit.OffsetCommitRequest(
        NO,
        topics=[
            offset_commit.OffsetCommitRequestTopic(
                topic_id(name), name, [offset_commit.OffsetCommitRequestPartition(0, 5)]
            )
            for name in (YES, NO)
        ],
    ),
    "offset-fetch": lambda topic_id: offset_fetch.OffsetFetchRequest(
        groups=[
            offset_fetch.OffsetFetchRequestGroup(
                group,
                topics=[offset_fetch.OffsetFetchRequestTopics(topic_id(name), name, [0]) for name in TOPICS],
            )
            for group in (ABSENT_YES, NO)
        ],
        group_id=ABSENT_YES,
        topics=[offset_fetch.OffsetFetchRequestTopic(name, [0]) for name in TOPICS],
    ),
    "offset-fetch-of-all": lambda _: offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(group, topics=None) for group in (YES, NO)],
        group_id=YES,
        topics=None,
    ),
    "offset-delete": lambda _: offset_delete.OffsetDeleteRequest(
        ABSENT_YES,
        [
            offset_delete.OffsetDeleteRequestTopic(
                name, [offset_delete.OffsetDeleteRequestPartition(at) for at in (0, 7)]
            )
            for name in TOPICS
        ],
    ),
    "heartbeat-with-names": lambda _: consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        f"{YES}-names",
        "m",
        0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[YES, NO],
        topic_partitions=[],
    ),
}


async def prepare(clients: Clients) -> None:
    """Two topics; two groups, of which each has committed an offset of both."""
    await clients.create(YES, NO)
    for group in GROUPS:
        commit = offset_commit.OffsetCommitRequest(
            group,
            topics=[
                offset_commit.OffsetCommitRequestTopic(
                    clients.plain.topic_id(name), name, [offset_commit.OffsetCommitRequestPartition(0, 3)]
                )
                for name in (YES, NO)
            ],
        )
        response: Any = await clients.plain.send(commit, 9)
        assert {part.error_code for topic in response.topics for part in topic.partitions} == {0}


async def run_request(name: str, clients: Clients) -> dict[str, Any]:
    """What each of the clients was answered, in every version."""
    notes: dict[str, Any] = {}
    ids = {known: topic_id for topic_id, known in clients.plain.topic_names().items()}
    place = Place(YES, ids[YES], NO, "")

    def topic_id(topic: str) -> Any:
        return ids.get(topic) or uuid5(NAMESPACE_URL, topic)

    for user in CLIENTS:
        connection = await clients.connect(user)
        try:
            request = REQUESTS[name](topic_id)
            for version in _versions(name, request.API_KEY):
                answer = await clients.ask(connection, request, version)
                notes[f"{user}, version {version}"] = noted(clients, place, answer)
                if answer is None:
                    await connection.close()
                    connection = await clients.connect(user)
        finally:
            await connection.close()
    return notes


_FIRST: Final = {
    "delete-topics-by-id": 6,
    "metadata-by-id": 12,
    "metadata-of-all": 1,
    "offset-fetch-of-all": 2,
}


def _versions(name: str, api_key: int) -> Sequence[int]:
    handler = _LAST[api_key]
    return range(max(_FIRST.get(name, 0), handler.first), handler.last + 1)
