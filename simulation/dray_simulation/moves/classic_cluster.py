"""A classic source cluster on the simulated network: it speaks Kafka's bytes, as far as it is asked.

An ACL takes effect some time after the call that made it, at each broker on its own. A request that a broker
has taken may be on its way into the log for a while. A broker hears of its leadership after all that the
cluster had decided before, so also of an ACL.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, Final, cast
from uuid import UUID

from dray.kafka.client.access import WireAcl
from dray.kafka.client.cluster import Address
from dray.kafka.protocol import (
    SCHEMAS,
    ApiKey,
    ErrorCode,
    encode_response_header,
    frame_message,
    parse_request_header,
    request_class,
)
from dray.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from dray.kafka.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from dray.kafka.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from dray.kafka.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from dray.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from dray.kafka.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from dray.kafka.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.kafka.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from dray.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.kafka.protocol.messages.offset_for_leader_epoch import EpochEndOffset as LeaderEpochEnd
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dray_simulation.moves.classic_groups import ClassicGroups
from dray_simulation.moves.classic_log import ClassicBatch, ClassicPartition, OutOfOrder, is_whole

BROKERS: Final = 3
ADDRESSES: Final[tuple[Address, ...]] = tuple((f"kafka-{number}", 9092) for number in range(BROKERS))
ACL_IS_LATE: Final = (0.0, 1.5)
ON_THE_WAY: Final = 0.08
"""Less than the moment for which a switch sees the end stand still."""
REPLICATION: Final = 0.01
_LONG_POLL_STEP: Final = 0.02
_WRITE: Final = 4
_DESCRIBE: Final = 8
_DENY: Final = 2
_COMMITTED: Final = 1

Answer = Callable[[int, Any], Awaitable[Any]]


class ClassicCluster:
    def __init__(self, random: Random, topic: str, partitions: int) -> None:
        self.random = random
        self.acl_is_late = ACL_IS_LATE
        self.slow_fetches = (0.0, 0.0)  # seconds: of records, once a fence is decided
        self.slow_fences = (0.0, 0.0)  # seconds until the call is carried out that denies writes
        self.lost_answers = 0.0  # of writes that are stored: the chance that their answer is lost
        self.compared = asyncio.Event()  # the producers were asked for: the last question before a decision
        self.topic = topic
        self.topic_id = UUID(int=random.getrandbits(128), version=4)
        self.partitions = [ClassicPartition(number) for number in range(partitions)]
        self._acls: dict[WireAcl, list[float]] = {}  # with the moment from which on each broker knows it
        self._listeners: list[Any] = []
        self.answers: dict[type[Any], Answer] = {
            ApiVersionsRequest: self._api_versions,
            MetadataRequest: self._metadata,
            ProduceRequest: self._produce,
            FetchRequest: self._fetch,
            ListOffsetsRequest: self._list_offsets,
            OffsetForLeaderEpochRequest: self._offset_for_leader_epoch,
            DescribeProducersRequest: self._describe_producers,
            ListTransactionsRequest: self._list_transactions,
            CreateAclsRequest: self._create_acls,
            DeleteAclsRequest: self._delete_acls,
            DescribeAclsRequest: self._describe_acls,
            DescribeConfigsRequest: self._describe_configs,
        }
        self.groups = ClassicGroups(self.topic, ADDRESSES)
        self.answers |= self.groups.answers

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number, (host, port) in enumerate(ADDRESSES):
            await loop.create_server(lambda number=number: _Connection(self, number), host, port)  # type: ignore[misc]

    # --- ACLs

    def is_denied(self, broker: int, topic: str, operation: int) -> bool:
        now = asyncio.get_running_loop().time()
        return any(
            acl.name == topic
            and acl.permission == _DENY
            and acl.operation == operation
            and known[broker] <= now
            for acl, known in self._acls.items()
        )

    @property
    def is_fenced(self) -> bool:
        """Decided, whether brokers know it or not."""
        return any(
            acl.name == self.topic and (acl.operation, acl.permission) == (_WRITE, _DENY)
            for acl in self._acls
        )

    async def _create_acls(self, _: int, request: CreateAclsRequest) -> CreateAclsResponse:
        fences = [each.resource_name == self.topic and each.operation == _WRITE for each in request.creations]
        if self.slow_fences[1] and any(fences):
            await asyncio.sleep(self.random.uniform(*self.slow_fences))
        now = asyncio.get_running_loop().time()
        for each in request.creations:
            acl = WireAcl(
                each.resource_type,
                each.resource_pattern_type,
                each.resource_name,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            late = [now + self.random.uniform(*self.acl_is_late) for _ in range(BROKERS)]
            self._acls.setdefault(acl, late)
        return CreateAclsResponse(results=[AclCreationResult() for _ in request.creations])

    async def _delete_acls(self, _: int, request: DeleteAclsRequest) -> DeleteAclsResponse:
        results: list[DeleteAclsFilterResult] = []
        for each in request.filters:
            found = [
                acl
                for acl in self._acls
                if acl.name == each.resource_name_filter
                and acl.operation == each.operation
                and acl.permission == each.permission_type
            ]
            for acl in found:
                del self._acls[acl]
            matching = [
                DeleteAclsMatchingAcl(
                    0,
                    None,
                    acl.resource_type,
                    acl.name or "",
                    acl.pattern_type,
                    acl.principal or "",
                    acl.host or "",
                    acl.operation,
                    acl.permission,
                )
                for acl in found
            ]
            results.append(DeleteAclsFilterResult(matching_acls=matching))
        return DeleteAclsResponse(filter_results=results)

    async def _describe_acls(self, _: int, request: DescribeAclsRequest) -> DescribeAclsResponse:
        return DescribeAclsResponse(
            resources=[
                DescribeAclsResource(
                    acl.resource_type,
                    acl.name or "",
                    acl.pattern_type,
                    [AclDescription(acl.principal or "", acl.host or "", acl.operation, acl.permission)],
                )
                for acl in self._acls
                if acl.name == request.resource_name_filter
            ]
        )

    async def _describe_configs(self, _: int, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(0, None, each.resource_type, each.resource_name)
                for each in request.resources
            ]
        )

    # --- elections

    def elect(self, partition: int, *, lost: int = 0) -> None:
        found = self.partitions[partition]
        found.elect(lost=lost)
        now = asyncio.get_running_loop().time()
        for known in self._acls.values():
            known[found.leadership.leader] = min(known[found.leadership.leader], now)

    # --- who is there

    async def _api_versions(self, _: int, __: ApiVersionsRequest) -> ApiVersionsResponse:
        served = {each.API_KEY: each for each in self.answers}
        return ApiVersionsResponse(
            api_keys=[ApiVersion(key, *served[key].VERSIONS) for key in sorted(served)],
        )

    async def _metadata(self, broker: int, request: MetadataRequest) -> MetadataResponse:
        names = [self.topic] if request.topics is None else [each.name or "" for each in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(number, host, port) for number, (host, port) in enumerate(ADDRESSES)
            ],
            cluster_id="classic",
            controller_id=0,
            topics=[self._described(broker, name) for name in names],
        )

    def _described(self, broker: int, name: str) -> MetadataResponseTopic:
        if self.is_denied(broker, name, _DESCRIBE):
            return MetadataResponseTopic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, name)
        if name != self.topic:
            return MetadataResponseTopic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        replicas = list(range(BROKERS))
        partitions = [
            MetadataResponsePartition(
                0, each.number, each.leadership.leader, each.leadership.epoch, replicas, replicas
            )
            for each in self.partitions
        ]
        return MetadataResponseTopic(0, name, self.topic_id, partitions=partitions)

    def _led(self, broker: int, partition: int, epoch: int = -1) -> ErrorCode:
        """Whether this broker leads a partition, in this epoch."""
        leadership = self.partitions[partition].leadership
        if leadership.leader != broker:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch >= 0 and epoch != leadership.epoch:
            older = epoch < leadership.epoch
            return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE

    # --- writing

    async def _produce(self, broker: int, request: ProduceRequest) -> ProduceResponse:
        topics: list[TopicProduceResponse] = []
        for topic in request.topic_data:
            answers = [await self._write(broker, each) for each in topic.partition_data]
            topics.append(TopicProduceResponse(topic.topic_id, topic.name, answers))
        return ProduceResponse(responses=topics)

    async def _write(self, broker: int, asked: PartitionProduceData) -> PartitionProduceResponse:
        data = bytes(asked.records or b"")
        error, offset = await self.write(broker, asked.index, data)
        if error is ErrorCode.NONE and self.lost_answers and self.random.random() < self.lost_answers:
            error, offset = ErrorCode.REQUEST_TIMED_OUT, -1
        return PartitionProduceResponse(asked.index, error, offset, log_start_offset=0)

    async def write(self, broker: int, partition: int, data: bytes) -> tuple[ErrorCode, int]:
        if self.is_denied(broker, self.topic, _WRITE):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1
        if (error := self._led(broker, partition)) is not ErrorCode.NONE:
            return error, -1
        if not is_whole(data):
            return ErrorCode.CORRUPT_MESSAGE, -1
        found = self.partitions[partition]
        leadership = found.leadership
        await asyncio.sleep(self.random.choice((0.0, 0.001, self.random.uniform(0, ON_THE_WAY))))
        if found.leadership != leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        try:
            stored = found.find(data) or found.append(data)
        except OutOfOrder:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return await self._replicate(found, stored)

    async def _replicate(self, found: ClassicPartition, stored: ClassicBatch) -> tuple[ErrorCode, int]:
        leadership = found.leadership
        await asyncio.sleep(self.random.uniform(0, REPLICATION))
        if found.leadership != leadership:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        found.replicated(stored.end)
        return ErrorCode.NONE, stored.base

    async def end_transaction(
        self, partition: int, producer_id: int, epoch: int, now_ms: int, *, aborts: bool
    ) -> None:
        """By its coordinator, which no ACL stops, and which tries until it is in."""
        found = self.partitions[partition]
        while True:
            known = found.producers.get(producer_id)
            if known is None or known.transaction_first < 0:
                return
            stored = found.mark(producer_id, epoch, now_ms, aborts=aborts)
            error, _ = await self._replicate(found, stored)
            if error is ErrorCode.NONE:
                return

    # --- reading

    async def _fetch(self, broker: int, request: FetchRequest) -> FetchResponse:
        asked = [each for topic in request.topics for each in topic.partitions]
        deadline = asyncio.get_running_loop().time() + request.max_wait_ms / 1000
        while True:
            answers = [self._read(broker, each, request.isolation_level) for each in asked]
            is_over = asyncio.get_running_loop().time() >= deadline
            if is_over or any(each.records or each.error_code or each.diverging_epoch for each in answers):
                break
            await asyncio.sleep(_LONG_POLL_STEP)
        if self.slow_fetches[1] and self.is_fenced and any(each.records for each in answers):
            await asyncio.sleep(self.random.uniform(*self.slow_fetches))
        return FetchResponse(responses=[FetchableTopicResponse(self.topic_id, self.topic, answers)])

    def _read(self, broker: int, asked: FetchPartition, isolation: int) -> PartitionData:
        found = self.partitions[asked.partition]
        answer = PartitionData(
            asked.partition,
            self._led(broker, asked.partition, asked.current_leader_epoch),
            found.high_watermark,
            found.last_stable,
            found.start,
            aborted_transactions=None,
        )
        if answer.error_code:
            return answer
        if not found.start <= asked.fetch_offset <= found.end:
            answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE  # as Kafka does it: without offsets
            answer.high_watermark = answer.last_stable_offset = answer.log_start_offset = -1
            return answer
        if asked.last_fetched_epoch >= 0:
            epoch, end = found.end_of_epoch(asked.last_fetched_epoch)
            if end < asked.fetch_offset or epoch < asked.last_fetched_epoch:
                answer.diverging_epoch = EpochEndOffset(epoch, end)
                return answer
        upto = found.last_stable if isolation == _COMMITTED else found.high_watermark
        batches = found.read(asked.fetch_offset, upto, asked.partition_max_bytes)
        answer.records = b"".join(batch.data for batch in batches)
        if isolation == _COMMITTED and batches:
            answer.aborted_transactions = [
                AbortedTransaction(each.producer_id, each.first)
                for each in found.aborted
                if each.first < batches[-1].end and each.last >= batches[0].base
            ]
        return answer

    async def _list_offsets(self, broker: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    topic.name,
                    [self._offset(broker, each, request.isolation_level) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _offset(
        self, broker: int, asked: ListOffsetsPartition, isolation: int
    ) -> ListOffsetsPartitionResponse:
        found = self.partitions[asked.partition_index]
        error = self._led(broker, asked.partition_index, asked.current_leader_epoch)
        offset = found.start
        if asked.timestamp == -1:
            offset = found.last_stable if isolation == _COMMITTED else found.high_watermark
        return ListOffsetsPartitionResponse(
            asked.partition_index, error, -1, -1 if error else offset, found.leadership.epoch
        )

    async def _offset_for_leader_epoch(
        self, broker: int, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(
            topics=[
                OffsetForLeaderTopicResult(
                    topic.topic, [self._end(broker, each) for each in topic.partitions]
                )
                for topic in request.topics
            ]
        )

    def _end(self, broker: int, asked: OffsetForLeaderPartition) -> LeaderEpochEnd:
        found = self.partitions[asked.partition]
        error = self._led(broker, asked.partition, asked.current_leader_epoch)
        if error:
            return LeaderEpochEnd(error, asked.partition)
        epoch, end = asked.leader_epoch, found.end
        if asked.leader_epoch != found.leadership.epoch:
            epoch, end = found.end_of_epoch(asked.leader_epoch)
        return LeaderEpochEnd(0, asked.partition, epoch, end)

    async def _describe_producers(
        self, broker: int, request: DescribeProducersRequest
    ) -> DescribeProducersResponse:
        self.compared.set()
        topics: list[TopicResponse] = []
        for topic in request.topics:
            answers: list[PartitionResponse] = []
            for number in topic.partition_indexes:
                producers = [
                    ProducerState(
                        each,
                        known.epoch,
                        known.last_sequence,
                        coordinator_epoch=-1,
                        current_txn_start_offset=known.transaction_first,
                    )
                    for each, known in self.partitions[number].producers.items()
                ]
                answers.append(PartitionResponse(number, self._led(broker, number), None, producers))
            topics.append(TopicResponse(topic.name, answers))
        return DescribeProducersResponse(topics=topics)

    async def _list_transactions(self, _: int, __: ListTransactionsRequest) -> ListTransactionsResponse:
        return ListTransactionsResponse()


class _Connection(asyncio.Protocol):
    """One request at a time, in order, as Kafka does it."""

    def __init__(self, cluster: ClassicCluster, broker: int) -> None:
        self._cluster = cluster
        self._broker = broker
        self._received = bytearray()
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self._serving: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._serving = asyncio.get_running_loop().create_task(self._serve(), name="a classic broker")

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            self._frames.put_nowait(bytes(self._received[4:end]))
            del self._received[:end]

    def connection_lost(self, _: Exception | None) -> None:
        """A request that was taken goes on: a broker does not take back what it is at."""
        self._transport = None
        self._frames.put_nowait(b"")

    async def _serve(self) -> None:
        while frame := await self._frames.get():
            header, position = parse_request_header(memoryview(frame))
            message, _ = request_class(header.api_key).decode(memoryview(frame), position, header.api_version)
            answer = await self._cluster.answers[type(message)](self._broker, message)
            if self._transport is None:
                return
            head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
            self._transport.writelines(frame_message(head, answer.encode(header.api_version)))


__all__ = ["SCHEMAS", "ApiKey", "ClassicCluster"]
