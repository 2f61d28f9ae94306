"""Of every API that checks something: requests, what each of them needs, and how to see whether they were
granted. The unit tests ask them of a broker in memory, the referee of Apache Kafka and of Dray."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from dray.broker.api.shared import checks as c
from dray.kafka.acls import CLUSTER_NAME, AclResourceType
from dray.kafka.protocol import ErrorCode, Request, Response
from dray.kafka.protocol.messages import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    update_features,
)
from tests.services.batches import batch, plain


class Place(NamedTuple):
    """What the requests of a case are about."""

    topic: str
    topic_id: UUID
    group: str
    transaction: str
    node: int = 0

    def name_of(self, resource: AclResourceType) -> str:
        return {
            AclResourceType.TOPIC: self.topic,
            AclResourceType.GROUP: self.group,
            AclResourceType.CLUSTER: CLUSTER_NAME,
            AclResourceType.TRANSACTIONAL_ID: self.transaction,
        }[resource]


class Ask(Protocol):
    """Asks as a client that may do everything."""

    async def __call__(self, request: Request[Any], version: int, /) -> Response: ...


REFUSALS: Final = frozenset(c.REASONS)


def codes(message: Any) -> Iterator[int]:
    """Every error code in a response."""
    if isinstance(message, list | tuple):
        for one in message:
            yield from codes(one)
    elif is_dataclass(message) and not isinstance(message, type):
        for one in fields(message):
            value = getattr(message, one.name)
            if one.name.endswith("error_code"):
                yield value
            elif isinstance(value, list) or is_dataclass(value):
                yield from codes(value)


def is_granted(response: Any) -> bool:
    return not REFUSALS.intersection(codes(response))


class Case(NamedTuple):
    name: str
    make: Callable[[Place], Request[Any]]
    needs: Sequence[c.Check]
    """All of them, each for itself."""
    instead: Sequence[c.Check] = ()
    """Each of which stands in for the first of `needs`."""
    granted: Callable[[Any], bool] = is_granted
    versions: tuple[int, int] = (0, 99)
    prepare: Callable[[Ask, Place], Awaitable[None]] | None = None
    code: ErrorCode | None = None
    """What a refusal says, if not what the missing check says; 0 where a denial is no error."""


async def a_group(ask: Ask, place: Place) -> None:
    """A group of one member, which is assigned the topic."""
    for epoch in (0, 1):
        await ask(beat(place, "m", epoch, [place.topic] if epoch == 0 else None), 1)


async def an_offset(ask: Ask, place: Place) -> None:
    await ask(commit(place), 9)


def beat(
    place: Place, member: str, epoch: int, topics: list[str] | None
) -> consumer_group_heartbeat.ConsumerGroupHeartbeatRequest:
    return consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        place.group,
        member,
        epoch,
        rebalance_timeout_ms=30_000 if epoch == 0 else -1,
        subscribed_topic_names=topics,
        topic_partitions=[] if epoch == 0 else None,
    )


def produced(place: Place, acks: int = -1) -> produce.ProduceRequest:
    part = produce.PartitionProduceData(0, bytearray(batch(plain(b"v"))))
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=10_000,
        topic_data=[produce.TopicProduceData(place.topic_id, place.topic, [part])],
    )


def fetched(place: Place) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        topics=[
            fetch.FetchTopic(place.topic_id, place.topic, [fetch.FetchPartition(0, partition_max_bytes=9)])
        ]
    )


def commit(place: Place) -> offset_commit.OffsetCommitRequest:
    part = offset_commit.OffsetCommitRequestPartition(0, 5)
    return offset_commit.OffsetCommitRequest(
        place.group, topics=[offset_commit.OffsetCommitRequestTopic(place.topic_id, place.topic, [part])]
    )


def offsets(place: Place, everything: bool = False) -> offset_fetch.OffsetFetchRequest:
    many = [offset_fetch.OffsetFetchRequestTopics(place.topic_id, place.topic, [0])]
    one = [offset_fetch.OffsetFetchRequestTopic(place.topic, [0])]
    return offset_fetch.OffsetFetchRequest(
        groups=[offset_fetch.OffsetFetchRequestGroup(place.group, topics=None if everything else many)],
        group_id=place.group,
        topics=None if everything else one,
    )


def knows_offset(response: offset_fetch.OffsetFetchResponse) -> bool:
    groups = response.groups
    return bool(groups[0].topics if groups else response.topics)


def coordinator(kind: int, key: str) -> find_coordinator.FindCoordinatorRequest:
    return find_coordinator.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=[key])


def by_name(place: Place, create: bool = False) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=place.topic)], allow_auto_topic_creation=create
    )


def described_configs(kind: int, name: str) -> describe_configs.DescribeConfigsRequest:
    return describe_configs.DescribeConfigsRequest(
        resources=[describe_configs.DescribeConfigsResource(kind, name, None)]
    )


def altered(
    kind: int, name: str, configs: Sequence[alter_configs.AlterableConfig] = ()
) -> alter_configs.AlterConfigsRequest:
    return alter_configs.AlterConfigsRequest(
        resources=[alter_configs.AlterConfigsResource(kind, name, list(configs))], validate_only=True
    )


def altered_more(
    kind: int, name: str, configs: Sequence[incremental_alter_configs.AlterableConfig] = ()
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[incremental_alter_configs.AlterConfigsResource(kind, name, list(configs))],
        validate_only=True,
    )


def deleted(place: Place, version_6: bool) -> delete_topics.DeleteTopicsRequest:
    if version_6:
        state = delete_topics.DeleteTopicState(None, place.topic_id)
        return delete_topics.DeleteTopicsRequest(topics=[state], timeout_ms=10_000)
    return delete_topics.DeleteTopicsRequest(
        topics=[delete_topics.DeleteTopicState(place.topic)], topic_names=[place.topic], timeout_ms=10_000
    )


def acl_filter() -> dict[str, Any]:
    return {"resource_type_filter": 2, "pattern_type_filter": 3, "operation": 3, "permission_type": 3}


def joins(place: Place) -> join_group.JoinGroupRequest:
    return join_group.JoinGroupRequest(place.group, session_timeout_ms=1, member_id="m", protocol_type="c")


def syncs(place: Place) -> sync_group.SyncGroupRequest:
    return sync_group.SyncGroupRequest(place.group, 1, "m", None, "c", "range")


def creates(place: Place) -> create_topics.CreateTopicsRequest:
    return create_topics.CreateTopicsRequest(
        topics=[create_topics.CreatableTopic(place.topic, 1, 1)], validate_only=True
    )


def grows(place: Place) -> create_partitions.CreatePartitionsRequest:
    return create_partitions.CreatePartitionsRequest(
        topics=[create_partitions.CreatePartitionsTopic(place.topic, 9, None)],
        timeout_ms=10_000,
        validate_only=True,
    )


_CREATES_ACL: Final = create_acls.CreateAclsRequest(
    creations=[create_acls.AclCreation(2, "other", 3, "User:other", "*", 3, 3)]
)

CASES: Final = (
    Case("produce", produced, [c.WRITE_TOPIC]),
    Case("fetch", fetched, [c.READ_TOPIC]),
    Case(
        "offsets of times",
        lambda place: list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(place.topic, [list_offsets.ListOffsetsPartition(0, -1, -1)])
            ]
        ),
        [c.DESCRIBE_TOPIC],
    ),
    Case(
        "the end of an epoch",
        lambda place: offset_for_leader_epoch.OffsetForLeaderEpochRequest(
            topics=[
                offset_for_leader_epoch.OffsetForLeaderTopic(
                    place.topic, [offset_for_leader_epoch.OffsetForLeaderPartition(0)]
                )
            ]
        ),
        [c.DESCRIBE_TOPIC],
        [c.ACT_FOR_CLUSTER],
    ),
    Case("metadata by name", by_name, [c.DESCRIBE_TOPIC]),
    Case(
        "metadata by id",
        lambda place: metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(place.topic_id, None)]),
        [c.DESCRIBE_TOPIC],
        versions=(12, 99),
    ),
    Case(
        "metadata of all",
        lambda _: metadata.MetadataRequest(topics=None),
        [c.DESCRIBE_TOPIC],
        granted=lambda response: len(response.topics) == 1,
        versions=(1, 99),
        code=ErrorCode.NONE,
    ),
    Case(
        "operations on the cluster in metadata",
        lambda _: metadata.MetadataRequest(topics=[], include_cluster_authorized_operations=True),
        [c.DESCRIBE_CLUSTER],
        granted=lambda response: response.cluster_authorized_operations > 0,
        versions=(8, 10),
        code=ErrorCode.NONE,
    ),
    Case(
        "described partitions",
        lambda place: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(place.topic)]
        ),
        [c.DESCRIBE_TOPIC],
    ),
    Case(
        "described partitions of all",
        lambda _: describe_topic_partitions.DescribeTopicPartitionsRequest(),
        [c.DESCRIBE_TOPIC],
        granted=lambda response: len(response.topics) == 1,
        code=ErrorCode.NONE,
    ),
    Case(
        "create topics",
        creates,
        [c.CREATE_TOPIC],
        [c.CREATE_IN_CLUSTER],
        granted=lambda response: response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS,
    ),
    Case("create partitions", grows, [c.ALTER_TOPIC]),
    Case(
        "delete topics by name",
        lambda place: deleted(place, False),
        [c.DELETE_TOPIC],
        [c.DELETE_IN_CLUSTER],
    ),
    Case(
        "delete topics by id",
        lambda place: deleted(place, True),
        [c.DELETE_TOPIC],
        [c.DELETE_IN_CLUSTER],
        versions=(6, 99),
    ),
    Case(
        "delete records",
        lambda place: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(place.topic, [delete_records.DeleteRecordsPartition(0, -1)])
            ],
            timeout_ms=10_000,
        ),
        [c.DELETE_TOPIC],
    ),
    Case("configs of a topic", lambda place: described_configs(2, place.topic), [c.DESCRIBE_TOPIC_CONFIGS]),
    Case("configs of a group", lambda place: described_configs(32, place.group), [c.DESCRIBE_GROUP_CONFIGS]),
    Case(
        "configs of a broker",
        lambda place: described_configs(4, str(place.node)),
        [c.DESCRIBE_CLUSTER_CONFIGS],
    ),
    Case("alter configs of a topic", lambda place: altered(2, place.topic), [c.ALTER_TOPIC_CONFIGS]),
    Case("alter configs of a group", lambda place: altered(32, place.group), [c.ALTER_GROUP_CONFIGS]),
    Case("alter configs of a broker", lambda place: altered(4, str(place.node)), [c.ALTER_CLUSTER_CONFIGS]),
    Case("change configs of a topic", lambda place: altered_more(2, place.topic), [c.ALTER_TOPIC_CONFIGS]),
    Case("change configs of a group", lambda place: altered_more(32, place.group), [c.ALTER_GROUP_CONFIGS]),
    Case(
        "change configs of a broker",
        lambda place: altered_more(4, str(place.node)),
        [c.ALTER_CLUSTER_CONFIGS],
    ),
    Case(
        "producers",
        lambda place: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(place.topic, [0])]
        ),
        [c.READ_TOPIC],
    ),
    Case(
        "a producer id",
        lambda _: init_producer_id.InitProducerIdRequest(transactional_id=None),
        [c.WRITE_IDEMPOTENTLY],
        [c.WRITE_TOPIC],
    ),
    Case("coordinator of a group", lambda place: coordinator(0, place.group), [c.DESCRIBE_GROUP]),
    Case(
        "coordinator of transactions",
        lambda place: coordinator(1, place.transaction),
        [c.DESCRIBE_TRANSACTIONAL_ID],
        versions=(4, 99),  # older ones are refused with this code, since there are no transactions
    ),
    Case(
        "transactions",
        lambda place: describe_transactions.DescribeTransactionsRequest([place.transaction]),
        [c.DESCRIBE_TRANSACTIONAL_ID],
    ),
    # --- groups
    Case("join", joins, [c.READ_GROUP]),
    Case("sync", syncs, [c.READ_GROUP]),
    Case("heartbeat", lambda place: heartbeat.HeartbeatRequest(place.group, 1, "m"), [c.READ_GROUP]),
    Case(
        "leave",
        lambda place: leave_group.LeaveGroupRequest(place.group, member_id="m"),
        [c.READ_GROUP],
        versions=(0, 2),
    ),
    Case(
        "several leave",
        lambda place: leave_group.LeaveGroupRequest(place.group, members=[leave_group.MemberIdentity("m")]),
        [c.READ_GROUP],
        versions=(3, 99),
    ),
    Case("commit", commit, [c.READ_GROUP, c.READ_TOPIC]),
    Case("offsets of a group", offsets, [c.DESCRIBE_GROUP, c.DESCRIBE_TOPIC]),
    Case(
        "all offsets of a group",
        lambda place: offsets(place, everything=True),
        [c.DESCRIBE_TOPIC, c.DESCRIBE_GROUP],
        granted=knows_offset,
        versions=(2, 99),
        prepare=an_offset,
        code=ErrorCode.NONE,
    ),
    Case(
        "forget offsets",
        lambda place: offset_delete.OffsetDeleteRequest(
            place.group,
            [
                offset_delete.OffsetDeleteRequestTopic(
                    place.topic, [offset_delete.OffsetDeleteRequestPartition(0)]
                )
            ],
        ),
        [c.DELETE_GROUP, c.READ_TOPIC],
        prepare=an_offset,
    ),
    Case(
        "classic groups",
        lambda place: describe_groups.DescribeGroupsRequest([place.group]),
        [c.DESCRIBE_GROUP],
    ),
    Case(
        "list groups",
        lambda _: list_groups.ListGroupsRequest(),
        [c.DESCRIBE_GROUP],
        [c.DESCRIBE_CLUSTER],
        granted=lambda response: len(response.groups) == 1,
        prepare=a_group,
        code=ErrorCode.NONE,
    ),
    Case("delete groups", lambda place: delete_groups.DeleteGroupsRequest([place.group]), [c.DELETE_GROUP]),
    Case(
        "beat",
        lambda place: beat(place, "stranger", 7, [place.topic]),
        [c.READ_GROUP, c.DESCRIBE_TOPIC],
    ),
    Case(
        "consumer groups",
        lambda place: consumer_group_describe.ConsumerGroupDescribeRequest([place.group]),
        [c.DESCRIBE_GROUP, c.DESCRIBE_TOPIC],
        prepare=a_group,
    ),
    # --- the cluster
    Case(
        "operations on the cluster",
        lambda _: describe_cluster.DescribeClusterRequest(True),
        [c.DESCRIBE_CLUSTER],
        granted=lambda response: response.cluster_authorized_operations > 0,
        code=ErrorCode.NONE,
    ),
    Case(
        "sizes",
        lambda _: describe_log_dirs.DescribeLogDirsRequest(None),
        [c.DESCRIBE_CLUSTER],
        granted=lambda response: bool(response.results),
        code=ErrorCode.NONE,
    ),
    Case(
        "move replicas",
        lambda place: alter_replica_log_dirs.AlterReplicaLogDirsRequest(
            [
                alter_replica_log_dirs.AlterReplicaLogDir(
                    "d", [alter_replica_log_dirs.AlterReplicaLogDirTopic(place.topic, [0])]
                )
            ]
        ),
        [c.ALTER_CLUSTER],
    ),
    Case(
        "elect",
        lambda place: elect_leaders.ElectLeadersRequest(0, [elect_leaders.TopicPartitions(place.topic, [0])]),
        [c.ALTER_CLUSTER],
    ),
    Case(
        "reassign",
        lambda place: alter_partition_reassignments.AlterPartitionReassignmentsRequest(
            topics=[
                alter_partition_reassignments.ReassignableTopic(
                    place.topic, [alter_partition_reassignments.ReassignablePartition(0, None)]
                )
            ]
        ),
        [c.ALTER_CLUSTER],
    ),
    Case(
        "reassignments",
        lambda _: list_partition_reassignments.ListPartitionReassignmentsRequest(),
        [c.DESCRIBE_CLUSTER],
    ),
    Case("features", lambda _: update_features.UpdateFeaturesRequest(), [c.ALTER_CLUSTER]),
    Case("quorum", lambda _: describe_quorum.DescribeQuorumRequest(), [c.DESCRIBE_CLUSTER]),
    Case(
        "what has configs",
        lambda _: list_config_resources.ListConfigResourcesRequest(),
        [c.DESCRIBE_CLUSTER_CONFIGS],
    ),
    Case(
        "quotas",
        lambda _: describe_client_quotas.DescribeClientQuotasRequest(),
        [c.DESCRIBE_CLUSTER_CONFIGS],
    ),
    Case(
        "alter quotas",
        lambda _: alter_client_quotas.AlterClientQuotasRequest(
            [
                alter_client_quotas.RequestedEntryData(
                    [alter_client_quotas.EntityData("user", "nobody")],
                    [alter_client_quotas.OpData("producer_byte_rate", 0.0, True)],
                )
            ]
        ),
        [c.ALTER_CLUSTER_CONFIGS],
    ),
    Case(
        "users",
        lambda _: describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
            users=[describe_user_scram_credentials.UserName("nobody")]
        ),
        [c.DESCRIBE_CLUSTER],
    ),
    Case(
        "alter users",
        lambda _: alter_user_scram_credentials.AlterUserScramCredentialsRequest(
            deletions=[alter_user_scram_credentials.ScramCredentialDeletion("nobody", 1)]
        ),
        [c.ALTER_CLUSTER],
    ),
    Case("acls", lambda _: describe_acls.DescribeAclsRequest(**acl_filter()), [c.DESCRIBE_CLUSTER]),
    Case("create acls", lambda _: _CREATES_ACL, [c.ALTER_CLUSTER]),
    Case(
        "delete acls",
        lambda _: delete_acls.DeleteAclsRequest(
            filters=[delete_acls.DeleteAclsFilter(**acl_filter(), principal_filter="User:absent")]
        ),
        [c.ALTER_CLUSTER],
    ),
)
