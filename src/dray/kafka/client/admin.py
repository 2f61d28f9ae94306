"""Topics and the cluster: Kafka requests out, plain values back. Works on Apache Kafka too.

A Kafka error becomes a `RequestFailed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dray.kafka.acls import AclOperation
from dray.kafka.client.cluster import Cluster, Place
from dray.kafka.client.connection import Caller
from dray.kafka.client.errors import ClientError, check
from dray.kafka.client.records import EARLIEST, LATEST, list_offsets
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from dray.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from dray.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from dray.kafka.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from dray.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataResponseTopic

TIMEOUT_MS: Final = 30_000
_EXPLAINED: Final = 20
"""Partitions that fail fail for one reason, mostly."""
BROKER_DEFAULT: Final = -1
TOPIC_RESOURCE: Final = 2
SET: Final = 0
DELETE: Final = 1
DYNAMIC_TOPIC_CONFIG: Final = 1
CLEANUP_POLICY: Final = "cleanup.policy"
OF_COMPACTION: Final = (
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
    "delete.retention.ms",
)
"""The configs that steer compaction by key."""


@dataclass(frozen=True)
class PartitionDescription:
    partition: int
    leader: int
    replicas: Sequence[int]
    start: int | None
    end: int | None
    trouble: str | None = None
    """Why its offsets are not known: the error, and the broker's own words."""

    @property
    def records(self) -> int | None:
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True)
class TopicDescription:
    name: str
    topic_id: str
    partitions: Sequence[PartitionDescription]
    configs: Mapping[str, str | None]
    compaction: Mapping[str, str | None]
    """The configs of its compaction by key, whether or not the topic sets them; empty if it is not
    compacted."""


async def create_topic(
    caller: Caller,
    name: str,
    *,
    partitions: int = BROKER_DEFAULT,
    replication_factor: int = BROKER_DEFAULT,
    configs: Mapping[str, str] | None = None,
    validate_only: bool = False,
    may_exist: bool = False,
) -> bool:
    """False when it existed already, and was allowed to."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    response = await caller.request(
        CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    )
    result = response.topics[0]
    if may_exist and result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        return False
    check(f"cannot create topic {name}", result.error_code, result.error_message)
    return True


async def delete_topic(caller: Caller, name: str, may_be_absent: bool = False) -> bool:
    """False when there was none, and that was allowed."""
    response = await caller.request(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS)
    )
    result = response.responses[0]
    if may_be_absent and result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return False
    check(f"cannot delete topic {name}", result.error_code, result.error_message)
    return True


async def add_partitions(caller: Caller, name: str, count: int) -> None:
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    response = await caller.request(CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS))
    result = response.results[0]
    check(f"cannot change topic {name} to {count} partitions", result.error_code, result.error_message)


async def alter_configs(
    caller: Caller, name: str, values: Mapping[str, str], removed: Sequence[str] = ()
) -> None:
    changes = [AlterableConfig(name=key, config_operation=SET, value=value) for key, value in values.items()]
    changes += [AlterableConfig(name=key, config_operation=DELETE, value=None) for key in removed]
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=changes)
    response = await caller.request(IncrementalAlterConfigsRequest(resources=[resource]))
    result = response.responses[0]
    check(f"cannot alter topic {name}", result.error_code, result.error_message)


async def check_may_alter(caller: Caller, name: str) -> None:
    """Raises `RequestFailed` where the caller may not alter the topic. Nothing is altered."""
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configs=[])
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    result = (await caller.request(request)).responses[0]
    check(f"not allowed to alter topic {name}", result.error_code, result.error_message)


async def list_topics(caller: Caller) -> list[MetadataResponseTopic]:
    response = await caller.request(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return sorted(response.topics, key=lambda topic: topic.name or "")


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> list[TopicDescription]:
    metadata = await cluster.learn(names)
    by_name = {topic.name: topic for topic in metadata.topics}
    for name in names:
        check(f"cannot describe topic {name}", by_name[name].error_code)
    configs = await _topic_configs(cluster, names)
    troubles: dict[Place, str] = {}
    starts = await offsets_at(cluster, names, EARLIEST, troubles)
    ends = await offsets_at(cluster, names, LATEST, troubles)
    return [
        TopicDescription(
            name=name,
            topic_id=str(by_name[name].topic_id),
            partitions=[
                PartitionDescription(
                    partition=partition.partition_index,
                    leader=partition.leader_id,
                    replicas=list(partition.replica_nodes),
                    start=starts.get((name, partition.partition_index)),
                    end=ends.get((name, partition.partition_index)),
                    trouble=troubles.get((name, partition.partition_index)),
                )
                for partition in sorted(by_name[name].partitions, key=lambda item: item.partition_index)
            ],
            configs={
                config.name: config.value
                for config in configs[name]
                if config.config_source == DYNAMIC_TOPIC_CONFIG
            },
            compaction=_compaction(configs[name]),
        )
        for name in names
    ]


async def may_create_topics(caller: Caller) -> bool:
    """Whether the user of this connection has CREATE on the cluster."""
    response = await caller.request(DescribeClusterRequest(include_cluster_authorized_operations=True))
    return bool(response.cluster_authorized_operations & 1 << AclOperation.CREATE)


async def describe_cluster(caller: Caller) -> DescribeClusterResponse:
    response = await caller.request(DescribeClusterRequest())
    check("cannot describe the cluster", response.error_code, response.error_message)
    return response


def as_plain(description: TopicDescription) -> dict[str, Any]:
    """For `--json`."""
    return {
        "name": description.name,
        "topic_id": description.topic_id,
        "partitions": [
            {
                "partition": partition.partition,
                "leader": partition.leader,
                "replicas": list(partition.replicas),
                "start": partition.start,
                "end": partition.end,
                **({"trouble": partition.trouble} if partition.trouble else {}),
            }
            for partition in description.partitions
        ],
        "configs": dict(description.configs),
        **({"compaction": dict(description.compaction)} if description.compaction else {}),
    }


def _compaction(configs: Sequence[DescribeConfigsResourceResult]) -> dict[str, str | None]:
    values = {config.name: config.value for config in configs}
    policies = [policy.strip() for policy in (values.get(CLEANUP_POLICY) or "").split(",")]
    return {name: values.get(name) for name in OF_COMPACTION} if "compact" in policies else {}


async def _topic_configs(
    caller: Caller, names: Sequence[str]
) -> dict[str, list[DescribeConfigsResourceResult]]:
    response = await caller.request(
        DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
                )
                for name in names
            ]
        )
    )
    for result in response.results:
        check(f"cannot describe topic {result.resource_name}", result.error_code, result.error_message)
    return {result.resource_name: result.configs for result in response.results}


async def offsets_at(
    cluster: Cluster, topics: Sequence[str], time: int, troubles: dict[Place, str] | None = None
) -> dict[Place, int]:
    """The offset of a time (or EARLIEST, LATEST) in every partition, each asked of its leader as the
    cluster's view knows it. A partition without a leader is left out; -1 where no record is as late. One
    whose leader answers with an error is left out, and its trouble told, if there is a place for that."""
    places = [(topic, partition) for topic in topics for partition in cluster.view.partitions(topic)]
    found = await list_offsets(cluster, places, time)
    failing = [place for place, answer in found.items() if answer.error_code]
    if failing:
        words = await _words(cluster, failing[:_EXPLAINED])
        for place in failing:
            code = found[place].error_code
            if troubles is None:
                check(f"cannot look up {place[0]}-{place[1]}", code, words.get(place))
            else:
                said = words.get(place)
                troubles[place] = ErrorCode.name_of(code) + (f": {said}" if said else "")
    return {place: answer.offset for place, answer in found.items() if not answer.error_code}


async def _words(cluster: Cluster, places: Sequence[Place]) -> dict[Place, str]:
    """The brokers' own words about partitions that fail. ListOffsets has no place for any, and this API does;
    where it fails too, or is not allowed, there are none."""
    found: dict[Place, str] = {}
    for leader, topics in cluster.view.by_leader(places).items():
        wanted = [TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics.items()]
        try:
            async with cluster.broker(leader) as broker:
                response = await broker.request(DescribeProducersRequest(topics=wanted))
        except ClientError:
            continue
        for topic in response.topics:
            for item in topic.partitions:
                if item.error_message:
                    found[topic.name, item.partition_index] = item.error_message
    return found
