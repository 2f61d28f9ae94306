"""A Kafka cluster of one broker in memory, answering what inspection asks."""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from dray.base.runtime import SystemRuntime
from dray.inspection.brokers import Brokers
from dray.kafka.client import Cluster
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages import (
    consumer_group_describe,
    create_topics,
    delete_groups,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    fetch,
    incremental_alter_configs,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from dray.kafka.protocol.messages.api_versions import ApiVersionsResponse
from dray.kafka.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from dray.kafka.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from dray.kafka.records import BytesColumn, Columns, Record, decode, encode

TOPIC_ID = UUID(int=7)


def column(items: Sequence[bytes | None]) -> BytesColumn:
    ends, bits, total = [0], bytearray((len(items) + 7) // 8), 0
    for number, item in enumerate(items):
        total += len(item or b"")
        ends.append(total)
        bits[number >> 3] |= (item is not None) << (number & 7)
    return BytesColumn(array("i", ends).tobytes(), b"".join(item or b"" for item in items), bytes(bits))


def batch_of(records: Sequence[Record]) -> bytes:
    """One batch; offsets without gaps."""
    count = len(records)
    headers = [header for record in records for header in record.headers]
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record.headers))
    none = array("i", [-1] * count).tobytes()
    return bytes(
        encode(
            Columns(
                row_count=count,
                header_count=len(headers),
                offsets=array("q", [record.offset for record in records]).tobytes(),
                timestamps=array("q", [record.timestamp for record in records]).tobytes(),
                producer_ids=array("q", [-1] * count).tobytes(),
                producer_epochs=none,
                base_sequences=none,
                attributes=bytes(4 * count),
                keys=column([record.key for record in records]),
                values=column([record.value for record in records]),
                headers=array("i", ends).tobytes(),
                header_keys=column([name.encode() for name, _ in headers]),
                header_values=column([value for _, value in headers]),
            )
        )
    )


@dataclass
class FakePartition:
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)
    """Base offset, the offset after the last one, and the bytes."""
    start: int = 0
    end: int = 0
    timestamps: list[tuple[int, int]] = field(default_factory=list)

    def append(self, *records: Record) -> None:
        """Offsets are as they are given: a gap may come before a batch."""
        self.batches.append((records[0].offset, records[-1].offset + 1, batch_of(records)))
        self.timestamps += [(record.timestamp, record.offset) for record in records]
        self.end = records[-1].offset + 1

    def produce(self, count: int, per_batch: int = 3, value: bytes = b"value") -> None:
        for base in range(self.end, self.end + count, per_batch):
            some = range(base, min(base + per_batch, self.end + count))
            self.batches.append(
                (base, some[-1] + 1, batch_of([Record(n, n, b"key-%d" % n, value) for n in some]))
            )
        self.end += count


class FakeKafka:
    """What one broker answers; a link to it is the fake itself."""

    def __init__(self, topics: Mapping[str, Sequence[FakePartition]] | None = None) -> None:
        self.topics: dict[str, list[FakePartition]] = {
            name: list(partitions) for name, partitions in (topics or {}).items()
        }
        self.groups: dict[str, dict[tuple[str, int], int]] = {}
        self.states: dict[str, str] = {}
        self.group_errors: dict[str, int] = {}
        self.fetch_bytes = 1 << 20
        self.failures: list[int] = []
        """Error codes for the next fetches."""
        self.fetches = 0
        self.asked: list[Any] = []

    def version_for(self, _api_key: int) -> int:
        return 9

    async def open(self) -> FakeKafka:
        return self

    async def close(self) -> None:
        return

    async def request(self, message: Any, version: int | None = None) -> Any:
        self.asked.append(message)
        answer = getattr(self, "_" + type(message).__name__.removesuffix("Request").lower())
        return answer(message)

    def _apiversions(self, _request: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse()

    def _metadata(self, request: metadata.MetadataRequest) -> metadata.MetadataResponse:
        names = list(self.topics) if request.topics is None else [topic.name for topic in request.topics]
        return metadata.MetadataResponse(
            brokers=[metadata.MetadataResponseBroker(node_id=0, host="fake", port=9092)],
            topics=[self._topic(name or "") for name in names],
        )

    def _topic(self, name: str) -> metadata.MetadataResponseTopic:
        if name not in self.topics:
            return metadata.MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return metadata.MetadataResponseTopic(
            name=name,
            topic_id=TOPIC_ID,
            partitions=[
                metadata.MetadataResponsePartition(partition_index=number, leader_id=0, replica_nodes=[0])
                for number in range(len(self.topics[name]))
            ],
        )

    def _describecluster(self, _request: Any) -> DescribeClusterResponse:
        broker = DescribeClusterBroker(broker_id=0, host="fake", port=9092)
        return DescribeClusterResponse(cluster_id="fake-cluster", controller_id=0, brokers=[broker])

    def _listoffsets(self, request: list_offsets.ListOffsetsRequest) -> list_offsets.ListOffsetsResponse:
        answered = []
        for topic in request.topics:
            rows = []
            for item in topic.partitions:
                held = self.topics[topic.name][item.partition_index]
                if item.timestamp >= 0:
                    later = [at for time, at in held.timestamps if time >= item.timestamp]
                    offset = min(later, default=-1)
                else:
                    offset = held.start if item.timestamp == -2 else held.end
                rows.append(
                    list_offsets.ListOffsetsPartitionResponse(
                        partition_index=item.partition_index, offset=offset
                    )
                )
            answered.append(list_offsets.ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return list_offsets.ListOffsetsResponse(topics=answered)

    def _fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        self.fetches += 1
        [topic] = request.topics
        [item] = topic.partitions
        held = self.topics[topic.topic][item.partition]
        data = fetch.PartitionData(
            partition_index=item.partition,
            high_watermark=held.end,
            log_start_offset=held.start,
            error_code=self.failures.pop(0) if self.failures else 0,
        )
        if not data.error_code and not held.start <= item.fetch_offset <= held.end:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        room = min(self.fetch_bytes, item.partition_max_bytes)
        found = b"".join(content for _, after, content in held.batches if after > item.fetch_offset)
        first = next((content for _, after, content in held.batches if after > item.fetch_offset), b"")
        if not data.error_code:
            data.records = found[: max(room, len(first))]  # cut anywhere, but never within the first batch
        answer = fetch.FetchableTopicResponse(topic=topic.topic, partitions=[data])
        return fetch.FetchResponse(responses=[answer])

    def _describelogdirs(self, request: describe_log_dirs.DescribeLogDirsRequest) -> Any:
        topics = [
            describe_log_dirs.DescribeLogDirsTopic(
                name=topic.topic,
                partitions=[
                    describe_log_dirs.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=sum(len(each[2]) for each in self.topics[topic.topic][number].batches),
                    )
                    for number in topic.partitions
                ],
            )
            for topic in request.topics or []
        ]
        result = describe_log_dirs.DescribeLogDirsResult(log_dir="memory", topics=topics)
        return describe_log_dirs.DescribeLogDirsResponse(results=[result])

    def _describeconfigs(self, request: describe_configs.DescribeConfigsRequest) -> Any:
        row = describe_configs.DescribeConfigsResourceResult(
            name="retention.ms", value="9223372036854775807", config_source=1
        )
        secret = describe_configs.DescribeConfigsResourceResult(
            name="secret", value="hunter2", config_source=5, is_sensitive=True
        )
        result = describe_configs.DescribeConfigsResult(
            resource_name=request.resources[0].resource_name, configs=[secret, row]
        )
        return describe_configs.DescribeConfigsResponse(results=[result])

    def _listgroups(self, _request: Any) -> list_groups.ListGroupsResponse:
        return list_groups.ListGroupsResponse(
            groups=[
                list_groups.ListedGroup(
                    group_id=name, protocol_type="consumer", group_state="Empty", group_type="classic"
                )
                for name in self.groups
            ]
        )

    def _findcoordinator(self, request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=0, host="fake", port=9092) for key in request.coordinator_keys
            ]
        )

    def _offsetfetch(self, request: offset_fetch.OffsetFetchRequest) -> offset_fetch.OffsetFetchResponse:
        return offset_fetch.OffsetFetchResponse(
            groups=[self._offsets_of(group.group_id) for group in request.groups]
        )

    def _offsets_of(self, group_id: str) -> offset_fetch.OffsetFetchResponseGroup:
        by_topic: dict[str, list[Any]] = {}
        for (topic, partition), offset in self.groups.get(group_id, {}).items():
            by_topic.setdefault(topic, []).append(
                offset_fetch.OffsetFetchResponsePartitions(partition_index=partition, committed_offset=offset)
            )
        topics = [offset_fetch.OffsetFetchResponseTopics(name=n, partitions=p) for n, p in by_topic.items()]
        error = self.group_errors.get(group_id, 0)
        return offset_fetch.OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=error)

    def _consumergroupdescribe(self, request: Any) -> Any:
        code = ErrorCode.GROUP_ID_NOT_FOUND
        group = consumer_group_describe.DescribedGroup(group_id=request.group_ids[0], error_code=code)
        return consumer_group_describe.ConsumerGroupDescribeResponse(groups=[group])

    def _describegroups(self, request: Any) -> Any:
        [name] = request.groups
        state = self.states.get(name, "Empty") if name in self.groups else "Dead"
        group = describe_groups.DescribedGroup(group_id=name, group_state=state, protocol_type="consumer")
        return describe_groups.DescribeGroupsResponse(groups=[group])

    def _offsetcommit(self, request: offset_commit.OffsetCommitRequest) -> Any:
        topics = []
        for topic in request.topics:
            for item in topic.partitions:
                self.groups[request.group_id][topic.name, item.partition_index] = item.committed_offset
            rows = [
                offset_commit.OffsetCommitResponsePartition(partition_index=item.partition_index)
                for item in topic.partitions
            ]
            topics.append(offset_commit.OffsetCommitResponseTopic(name=topic.name, partitions=rows))
        return offset_commit.OffsetCommitResponse(topics=topics)

    def _deletegroups(self, request: Any) -> Any:
        [name] = request.groups_names
        code = 0 if self.groups.pop(name, None) is not None else ErrorCode.GROUP_ID_NOT_FOUND
        result = delete_groups.DeletableGroupResult(group_id=name, error_code=code)
        return delete_groups.DeleteGroupsResponse(results=[result])

    def _createtopics(self, request: create_topics.CreateTopicsRequest) -> Any:
        [topic] = request.topics
        code = ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.topics else 0
        self.topics.setdefault(topic.name, [FakePartition() for _ in range(max(1, topic.num_partitions))])
        result = create_topics.CreatableTopicResult(
            name=topic.name, error_code=code, error_message="it exists"
        )
        return create_topics.CreateTopicsResponse(topics=[result])

    def _deletetopics(self, request: delete_topics.DeleteTopicsRequest) -> Any:
        [topic] = request.topics
        self.topics.pop(topic.name or "")
        return delete_topics.DeleteTopicsResponse(
            responses=[delete_topics.DeletableTopicResult(name=topic.name)]
        )

    def _incrementalalterconfigs(self, _request: Any) -> Any:
        result = incremental_alter_configs.AlterConfigsResourceResponse()
        return incremental_alter_configs.IncrementalAlterConfigsResponse(responses=[result])

    def _produce(self, request: produce.ProduceRequest) -> Any:
        [topic] = request.topic_data
        [data] = topic.partition_data
        held = self.topics[topic.name][data.index]
        base = held.end
        records = decode(data.records or b"").records()
        held.append(*(record._replace(offset=base + n) for n, record in enumerate(records)))
        answer = produce.PartitionProduceResponse(index=data.index, base_offset=base)
        return produce.ProduceResponse(
            responses=[produce.TopicProduceResponse(name=topic.name, partition_responses=[answer])]
        )


class FakeBrokers(Brokers):
    def __init__(self, kafka: FakeKafka) -> None:
        super().__init__([("fake", 9092)], SystemRuntime())
        self.kafka = kafka

    async def first(self) -> Any:
        return self.kafka

    def of(self, metadata: Any) -> Any:
        return {0: self.kafka}

    def apart(self, seconds: float | None = None) -> Brokers:
        return self

    def cluster(self) -> Cluster:
        return Cluster([("fake", 9092)], self._dial, self.runtime)

    async def _dial(self, host: str, port: int, /) -> Any:
        return self.kafka

    @asynccontextmanager
    async def own_cluster(self) -> AsyncIterator[Cluster]:
        yield self.cluster()

    @asynccontextmanager
    async def fresh(self, address: Any = None) -> AsyncIterator[Any]:
        yield self.kafka
