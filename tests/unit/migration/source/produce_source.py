"""A source that takes forwarded requests, in virtual time: two brokers, leaders that move, answers that are
late or lost, a fence; and what Dray's stores say of its topic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from dray.base.runtime import Runtime
from dray.kafka.client.cluster import Address
from dray.kafka.client.errors import AuthenticationFailed, ClientError
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.kafka.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from dray.kafka.records import Record, read_header, twin
from dray.migration.source.forwarding import Link
from dray.migration.source.shared_looks import NotAnswered

TOPIC = "orders"
TOPIC_ID = UUID(int=7)
BROKERS: dict[int, Address] = {1: ("one", 9092), 2: ("two", 9092)}
STREAMS = (100, 101)


class Batch(NamedTuple):
    """As the handlers give it to the forwarder."""

    topic: str
    topic_id: UUID
    partition: int
    stream: int
    records: bytes


def batch(sequence: int = 0, *, partition: int = 0, producer: int = 5, count: int = 1) -> Batch:
    records = [Record(each, 0, None, b"%d/%d" % (producer, sequence + each)) for each in range(count)]
    sent = bytes(
        twin.encode(
            records,
            producer_id=producer,
            producer_epoch=-1 if producer < 0 else 0,
            base_sequence=-1 if producer < 0 else sequence,
        )
    )
    return Batch(TOPIC, TOPIC_ID, partition, STREAMS[partition], sent)


@dataclass
class PlayedSource:
    runtime: Runtime
    leaders: dict[int, int] = field(default_factory=lambda: {0: 1, 1: 1})
    logs: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: {0: [], 1: []})
    fence: int = 0  # the error with which it refuses
    seconds: float = 0.005  # that a request takes, before and after it is stored
    throttle_ms: int = 0
    frozen: set[int] = field(default_factory=set)
    away: set[int] = field(default_factory=set)
    strangers: bool = False  # it trusts no client
    hides: bool = False  # it does not show the topic
    loses: Callable[[ProduceRequest], bool] = lambda _: False  # whether the answer is lost
    refuses: dict[int, PartitionProduceResponse] = field(default_factory=dict)
    asked: list[ProduceRequest] = field(default_factory=list)
    open: list[PlayedConnection] = field(default_factory=list)
    most_open: int = 0
    dialled: int = 0

    async def dial(self, host: str, port: int, /) -> PlayedConnection:
        broker = next(number for number, address in BROKERS.items() if address == (host, port))
        self.dialled += 1
        if self.strangers:
            raise AuthenticationFailed("the password is wrong")
        if broker in self.away:
            raise ClientError(f"cannot reach {host}:{port}")
        while broker in self.frozen:
            await self.runtime.sleep(0.1)
        connection = PlayedConnection(self, broker)
        self.open.append(connection)
        self.most_open = max(self.most_open, len(self.open))
        return connection

    def store(self, partition: int, records: bytes) -> int:
        """The offset; that of the first time where the producer's batch is there already."""
        header = read_header(records)
        write = header.producer_id, header.base_sequence
        log = self.logs[partition]
        if header.producer_id >= 0 and write in log:
            return log.index(write)
        log.append(write)
        return len(log) - 1


class PlayedConnection:
    def __init__(self, source: PlayedSource, broker: int) -> None:
        self.source = source
        self.broker = broker
        self.is_broken = False
        self.in_use = False

    def version_for(self, _: int) -> int:
        return 13

    async def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        self.is_broken = True
        if self in self.source.open:
            self.source.open.remove(self)

    async def request(self, message: Any, _: int | None = None) -> Any:
        assert not self.in_use, "one request at a time"
        self.in_use = True
        source = self.source
        await source.runtime.sleep(source.seconds)
        while self.broker in source.frozen:
            await source.runtime.sleep(0.1)
        answer = self._metadata() if isinstance(message, MetadataRequest) else self._produce(message)
        await source.runtime.sleep(source.seconds)
        self.in_use = False
        if isinstance(message, ProduceRequest) and source.loses(message):
            self.abort()
            raise ClientError("one:9092 closed the connection")
        return answer

    def _metadata(self) -> MetadataResponse:
        if self.source.hides:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return MetadataResponse(topics=[MetadataResponseTopic(code, TOPIC)])
        return MetadataResponse(
            brokers=[MetadataResponseBroker(number, *address) for number, address in BROKERS.items()],
            topics=[
                MetadataResponseTopic(
                    name=TOPIC,
                    topic_id=TOPIC_ID,
                    partitions=[
                        MetadataResponsePartition(partition_index=partition, leader_id=leader)
                        for partition, leader in self.source.leaders.items()
                    ],
                )
            ],
        )

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        source = self.source
        source.asked.append(request)
        [data] = request.topic_data
        answers = []
        for part in data.partition_data:
            assert part.records is not None
            if source.leaders[part.index] != self.broker:
                answers.append(_refused(part.index, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif source.fence:
                answers.append(_refused(part.index, source.fence))
            elif part.index in source.refuses:
                answers.append(source.refuses[part.index])
            else:
                offset = source.store(part.index, bytes(part.records))
                answers.append(PartitionProduceResponse(part.index, 0, offset, 1234, 3))
        topic = TopicProduceResponse(data.topic_id, "", answers)  # as newer versions answer: without names
        return ProduceResponse([topic], source.throttle_ms)


def _refused(partition: int, code: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=partition, error_code=code, base_offset=-1)


@dataclass
class PlayedLogs:
    """What Dray's stores say."""

    runtime: Runtime
    links: dict[str, Link | None] = field(default_factory=lambda: {TOPIC: Link("old", is_pending=False)})
    boundaries: dict[int, int] = field(default_factory=dict)
    is_away: bool = False
    seconds: float = 0.002
    reads: int = 0

    async def link(self, topic: str) -> Link | None:
        self._look()
        found = self.links.get(topic)
        await self.runtime.sleep(self.seconds)
        return found

    async def boundary(self, stream: int) -> int | None:
        self._look()
        await self.runtime.sleep(self.seconds)
        return self.boundaries.get(stream)

    def _look(self) -> None:
        self.reads += 1
        if self.is_away:
            raise NotAnswered("the metadata store is away")

    def pending(self, *, by_hand: bool = False) -> None:
        self.links[TOPIC] = Link("old", is_pending=True, is_fenced_by_hand=by_hand)

    def decide(self, boundaries: dict[int, int]) -> None:
        self.boundaries.update({STREAMS[partition]: end for partition, end in boundaries.items()})
        self.links[TOPIC] = None
