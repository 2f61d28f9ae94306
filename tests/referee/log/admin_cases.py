"""What tools of administrators ask for beside topics and configs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from dray.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from dray.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from dray.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from dray.kafka.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from dray.kafka.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from dray.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dray.kafka.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    RequestedPartitionData,
    RequestedTopicData,
)
from dray.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from dray.kafka.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from dray.kafka.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest
from dray.kafka.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from dray.kafka.protocol.messages.list_transactions import ListTransactionsRequest
from dray.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.referee.cases import case
from tests.referee.log.produce_cases import VERSION, produce
from tests.referee.session import SECONDS, Session
from tests.services.batches import batch, plain

PREFERRED, UNCLEAN = 0, 1
EXACT, DEFAULT, ANY = 0, 1, 2
PRODUCER = 4_100_000_000
NOBODYS = "referee-nobodys-topic"


def only(session: Session, label: str, path: Sequence[str], name: str, key: str = "name") -> None:
    """Of lists of everything there is, keep what is this case's."""
    holder: Any = session.notes[label]
    for step in path[:-1]:
        holder = holder[step]
    for one in holder if isinstance(holder, list) else [holder]:
        one[path[-1]] = [entry for entry in one[path[-1]] if entry[key].startswith(name)]


def by_index(session: Session, label: str) -> None:
    """Kafka lists topics and partitions in whatever order it keeps them."""
    for result in session.notes[label]["results"]:
        result.get("topics", []).sort(key=lambda topic: str(topic["name"]))


# --- where records are, and how much they take


def log_dirs(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=partitions) for name, partitions in topics]
    )


@case
async def describe_log_dirs(session: Session) -> None:
    topic = await session.create(partitions=3)
    for partition, values in ((0, (b"one", b"two")), (0, (b"three",)), (2, (b"x" * 100,))):
        await session.send(produce(topic, (partition, batch(plain(*values)))), VERSION)
    for version in (1, 2, 3, 4):
        await session.ask(f"v{version}", log_dirs((topic, [0, 1, 2])), version)
    await session.ask("one partition", log_dirs((topic, [2])), 4)
    await session.ask("a partition that is not there", log_dirs((topic, [1, 7])), 4)
    await session.ask("a topic that is not there", log_dirs((NOBODYS, [0])), 4)
    await session.ask("no topics", DescribeLogDirsRequest(topics=[]), 4)
    await session.ask("everything", DescribeLogDirsRequest(topics=None), 4)
    only(session, "everything", ("results", "topics"), topic)
    for label in session.notes:
        by_index(session, label)


@case
async def alter_replica_log_dirs(session: Session) -> None:
    topic = await session.create()
    described: Any = await session.send(log_dirs((topic, [0])), 4)
    path = described.results[0].log_dir

    def move(to: str, name: str, partition: int) -> AlterReplicaLogDirsRequest:
        moved = AlterReplicaLogDirTopic(name=name, partitions=[partition])
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=to, topics=[moved])])

    await session.ask("to where it is", move(path, topic, 0), 2)
    await session.ask("to where it is, v1", move(path, topic, 0), 1)
    await session.ask("to a directory that is not there", move("/nowhere/at/all", topic, 0), 2)
    await session.ask("a relative path", move("nowhere", topic, 0), 2)
    await session.ask("a topic that is not there", move(path, NOBODYS, 0), 2)
    await session.ask("a partition that is not there", move(path, topic, 9), 2)


# --- leaders and replicas


def elect(kind: int, *partitions: tuple[str, list[int]]) -> ElectLeadersRequest:
    return ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[TopicPartitions(topic=name, partitions=which) for name, which in partitions],
        timeout_ms=10_000,
    )


@case
async def elect_leaders(session: Session) -> None:
    topic = await session.create(partitions=2)
    for version in (0, 1, 2):
        await session.ask(f"preferred, v{version}", elect(PREFERRED, (topic, [0, 1])), version)
    await session.ask("unclean", elect(UNCLEAN, (topic, [0])), 2)
    await session.ask("a partition that is not there", elect(PREFERRED, (topic, [9])), 2)
    await session.ask("a topic that is not there", elect(PREFERRED, (NOBODYS, [0])), 2)
    await session.ask("everything", ElectLeadersRequest(topic_partitions=None, timeout_ms=10_000), 2)
    only(session, "everything", ("replica_election_results",), topic, "topic")
    await session.ask("nothing", elect(PREFERRED), 2)


def reassign(name: str, *partitions: tuple[int, list[int] | None]) -> AlterPartitionReassignmentsRequest:
    wanted = [ReassignablePartition(partition_index=index, replicas=nodes) for index, nodes in partitions]
    return AlterPartitionReassignmentsRequest(
        timeout_ms=10_000, topics=[ReassignableTopic(name=name, partitions=wanted)]
    )


@case
async def alter_partition_reassignments(session: Session) -> None:
    topic = await session.create(partitions=2)
    node = session.node
    await session.ask("to where they are", reassign(topic, (0, [node]), (1, [node])), 0)
    await session.ask("to where they are, v1", reassign(topic, (0, [node])), 1)
    await session.ask("cancelled", reassign(topic, (0, None)), 0)
    await session.ask("to nobody", reassign(topic, (0, [])), 0)
    await session.ask("to a stranger", reassign(topic, (0, [node + 77])), 0)
    await session.ask("to one twice", reassign(topic, (0, [node, node])), 0)
    await session.ask("a partition that is not there", reassign(topic, (9, [node])), 0)
    await session.ask("a topic that is not there", reassign(NOBODYS, (0, [node])), 0)
    await session.ask("nothing", AlterPartitionReassignmentsRequest(timeout_ms=10_000), 0)


@case
async def list_partition_reassignments(session: Session) -> None:
    topic = await session.create(partitions=2)

    def listed(name: str, partitions: list[int]) -> ListPartitionReassignmentsRequest:
        one = ListPartitionReassignmentsTopics(name=name, partition_indexes=partitions)
        return ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=[one])

    await session.ask("everything", ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None), 0)
    await session.ask("one topic", listed(topic, [0, 1]), 0)
    await session.ask("a partition that is not there", listed(topic, [9]), 0)
    await session.ask("a topic that is not there", listed(NOBODYS, [0]), 0)


# --- producers and transactions


def producers(*topics: tuple[str, list[int]]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=partitions) for name, partitions in topics]
    )


def timeless(session: Session, label: str) -> None:
    """Kafka says the time of the last record, Dray when it was appended: either is a time."""
    for topic in session.notes[label]["topics"]:
        for partition in topic["partitions"]:
            found = partition.get("active_producers", [])
            found.sort(key=lambda producer: producer["producer_id"])
            for producer in found:
                producer["last_timestamp"] = producer["last_timestamp"] > 0


@case
async def describe_producers(session: Session) -> None:
    topic = await session.create(partitions=2)
    for producer, epoch, sequence in ((PRODUCER, 0, 0), (PRODUCER, 0, 2), (PRODUCER + 1, 3, 0)):
        data = batch(plain(b"a", b"b"), producer=producer, epoch=epoch, sequence=sequence)
        await session.send(produce(topic, (0, data)), VERSION)
    await session.send(produce(topic, (1, batch(plain(b"of nobody")))), VERSION)
    await session.ask("both partitions", producers((topic, [0, 1])), 0)
    await session.ask("a partition that is not there", producers((topic, [9])), 0)
    await session.ask("a topic that is not there", producers((NOBODYS, [0])), 0)
    await session.ask("a name that cannot be", producers(("a b", [0])), 0)
    await session.ask("nothing", producers(), 0)
    for label in session.notes:
        timeless(session, label)


@case
async def list_transactions(session: Session) -> None:
    for version in (0, 1, 2):
        await session.ask(f"v{version}", ListTransactionsRequest(), version)
    filters = ListTransactionsRequest(state_filters=["Ongoing", "NoSuchState"])
    await session.ask("of states", filters, 1)
    await session.ask("of producers", ListTransactionsRequest(producer_id_filters=[7]), 1)
    await session.ask("of a pattern", ListTransactionsRequest(transactional_id_pattern="my-.*"), 2)
    await session.ask("of no pattern", ListTransactionsRequest(transactional_id_pattern="(("), 2)


@case
async def describe_transactions(session: Session) -> None:
    def of(*names: str) -> DescribeTransactionsRequest:
        return DescribeTransactionsRequest(transactional_ids=list(names))

    await until_there_is_a_coordinator(session, of("mine"))
    await session.ask("one", of("mine"), 0)
    await session.ask("two, one of them twice", of("mine", "yours", "mine"), 0)
    await session.ask("one without a name", of(""), 0)
    await session.ask("none", of(), 0)


async def until_there_is_a_coordinator(session: Session, request: DescribeTransactionsRequest) -> None:
    """Kafka makes the topic of its transactions when somebody first asks for a coordinator."""
    async with asyncio.timeout(SECONDS):
        while True:
            await session.send(FindCoordinatorRequest(key_type=1, coordinator_keys=["mine"]), 4)
            described: Any = await session.send(request, 0)
            if described.transaction_states[0].error_code not in (14, 15, 16):
                return
            await asyncio.sleep(0.1)


# --- rights, quotas, features


@case
async def describe_acls(session: Session) -> None:
    everything = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    for version in (1, 2, 3):
        await session.ask(f"everything, v{version}", everything, version)


def quotas(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    asked = [
        ComponentData(entity_type=entity, match_type=kind, match=name) for entity, kind, name in components
    ]
    return DescribeClientQuotasRequest(components=asked, strict=strict)


@case
async def describe_client_quotas(session: Session) -> None:
    await session.ask("everything, v0", quotas(), 0)
    await session.ask("everything, v1", quotas(), 1)
    await session.ask("any user", quotas(("user", ANY, None)), 1)
    await session.ask("one user, strictly", quotas(("user", EXACT, "ann"), strict=True), 1)
    await session.ask("default client", quotas(("client-id", DEFAULT, None)), 1)
    await session.ask("addresses", quotas(("ip", ANY, None)), 1)
    await session.ask("unknown entity", quotas(("planet", ANY, None)), 1)
    await session.ask("no entity", quotas(("", ANY, None)), 1)
    await session.ask("unknown match", quotas(("user", 9, None)), 1)
    await session.ask("the same entity twice", quotas(("user", ANY, None), ("user", DEFAULT, None)), 1)
    await session.ask("exact, without a name", quotas(("user", EXACT, None)), 1)
    await session.ask("any, with a name", quotas(("user", ANY, "ann")), 1)


@case
async def describe_user_scram_credentials(session: Session) -> None:
    def of(*names: str) -> DescribeUserScramCredentialsRequest:
        return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in names])

    await session.ask("everybody", DescribeUserScramCredentialsRequest(users=None), 0)
    await session.ask("everybody, by an empty list", of(), 0)
    await session.ask("ann", of("ann"), 0)
    await session.ask("ann twice, and ben", of("ann", "ann", "ben"), 0)
    await session.ask("no name", of(""), 0)


def features(*wanted: tuple[str, int], validate_only: bool = False, kind: int = 1) -> UpdateFeaturesRequest:
    updates = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind) for name, level in wanted
    ]
    return UpdateFeaturesRequest(timeout_ms=10_000, feature_updates=updates, validate_only=validate_only)


@case
async def update_features(session: Session) -> None:
    for version in (0, 1, 2):
        await session.ask(f"to what is, v{version}", features(("group.version", 1)), version)
    await session.ask("to what is, validated", features(("group.version", 1), validate_only=True), 2)
    await session.ask("beyond what is known", features(("group.version", 99)), 1)
    await session.ask("beyond what is known, v2", features(("group.version", 99)), 2)
    await session.ask("unknown feature", features(("no.such.feature", 1)), 2)
    await session.ask("down by an upgrade", features(("group.version", 0), validate_only=True), 2)
    await session.ask("a kind that is not there", features(("group.version", 1), kind=9), 2)
    await session.ask("twice", features(("group.version", 1), ("group.version", 1)), 2)
    await session.ask("nothing", features(), 2)


@case
async def describe_quorum(session: Session) -> None:
    partition = RequestedPartitionData(partition_index=0)
    for version in (0, 1, 2):
        asked = RequestedTopicData(topic_name="__cluster_metadata", partitions=[partition])
        await session.ask(f"v{version}", DescribeQuorumRequest(topics=[asked]), version)
        session.notes[f"v{version}"] = {"error_code": session.notes[f"v{version}"]["error_code"]}


@case
async def list_config_resources(session: Session) -> None:
    topic = await session.create()
    await session.ask("v0", ListConfigResourcesRequest(), 0)
    await session.ask("topics", ListConfigResourcesRequest(resource_types=[2]), 1)
    await session.ask("brokers", ListConfigResourcesRequest(resource_types=[4]), 1)
    await session.ask("loggers", ListConfigResourcesRequest(resource_types=[8]), 1)
    await session.ask("client metrics", ListConfigResourcesRequest(resource_types=[16]), 1)
    await session.ask("groups", ListConfigResourcesRequest(resource_types=[32]), 1)
    await session.ask("everything", ListConfigResourcesRequest(resource_types=[]), 1)
    await session.ask("a type that is not there", ListConfigResourcesRequest(resource_types=[7]), 1)
    for label in ("topics", "everything"):
        only(session, label, ("config_resources",), topic, "resource_name")
    for label in ("brokers", "loggers"):
        only(session, label, ("config_resources",), str(session.node), "resource_name")
        for resource in session.notes[label]["config_resources"]:
            resource["resource_name"] = "self"
