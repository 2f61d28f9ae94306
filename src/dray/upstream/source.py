"""A topic of the source cluster: where its partitions end, who writes to them, whether they are fenced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from dray.client.cluster import Address, Cluster
from dray.client.connection import BrokerConnection
from dray.client.errors import RequestFailed, check
from dray.protocol import ErrorCode
from dray.protocol.messages.describe_producers import DescribeProducersRequest, ProducerState, TopicRequest
from dray.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.protocol.messages.list_transactions import ListTransactionsRequest, TransactionState
from dray.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dray.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.records import Record, twin

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_TIMEOUT_MS: Final = 30_000
_ALL_REPLICAS: Final = -1
_CHECKSUM_AT: Final = 17
"""Magic and what is before it are left as they are: a leader must find nothing wrong but the checksum."""

_FENCED: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
_ENDED_STATES: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class Leadership(NamedTuple):
    """Who leads a partition. Another epoch is another leadership, even of the same broker."""

    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """Where a partition begins and ends, as its leader says it."""

    leadership: Leadership
    start: int
    last_stable: int
    high_watermark: int
    log_end: int

    @property
    def is_settled(self) -> bool:
        """No transaction is open, and every replica in sync has all that the leader has."""
        return self.last_stable == self.high_watermark == self.log_end


class SourceProducer(NamedTuple):
    producer_id: int
    epoch: int
    last_sequence: int


class Probe(Enum):
    """What a leader answers to a batch that it cannot take."""

    OPEN = "open"
    FENCED = "fenced"


class Source(Protocol):
    """What a switch asks of a topic at its source. Every answer is of the leadership that it names."""

    @property
    def leaderships(self) -> Mapping[int, Leadership]: ...

    async def learn(self) -> None: ...

    async def probe(self, partition: int) -> tuple[Leadership, Probe]: ...

    async def measure(self, partition: int) -> SourceEnd: ...

    async def end_of_epoch(self, partition: int, epoch: int) -> int: ...

    async def producers(self, partition: int) -> tuple[Leadership, frozenset[SourceProducer]]: ...

    async def open_transactions(self) -> list[str]: ...

    async def transactional(self) -> list[str]: ...


def is_no_such_topic(error: Exception) -> bool:
    return isinstance(error, RequestFailed) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def no_leader(topic: str, partition: int) -> RequestFailed:
    return RequestFailed(f"{topic}-{partition} has no leader at the source", ErrorCode.LEADER_NOT_AVAILABLE)


class SourceTopic:
    """One topic at the source. `learn` first."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster = cluster
        self.topic = topic
        self.leaderships: dict[int, Leadership] = {}

    @property
    def topic_id(self) -> UUID | None:
        """As the source last said it. None where there is no such topic."""
        return self._cluster.view.topic_ids.get(self.topic)

    @property
    def partitions(self) -> list[int]:
        """All that the source has, also those without a leader."""
        return self._cluster.view.partitions(self.topic)

    async def learn(self) -> None:
        """Fresh metadata. A partition without a leader is left out until it has one."""
        answer = await self._cluster.learn([self.topic])
        found = next(each for each in answer.topics if each.name == self.topic)
        check(f"cannot look at topic {self.topic} at the source", found.error_code)
        self.leaderships = {
            each.partition_index: Leadership(each.leader_id, each.leader_epoch)
            for each in found.partitions
            if not each.error_code and each.leader_id >= 0
        }

    async def probe(self, partition: int) -> tuple[Leadership, Probe]:
        """Whether the leader takes what clients produce. The batch has a wrong checksum, so it is never
        stored: a leader that would take it says so, and a fenced one refuses before it looks."""
        leadership, address = self._leader(partition)
        data = [PartitionProduceData(index=partition, records=_unwritable_batch())]
        topic_id = self._cluster.view.topic_ids[self.topic]
        async with self._cluster.broker(address) as broker:
            response = await broker.request(
                ProduceRequest(
                    acks=_ALL_REPLICAS,
                    timeout_ms=_TIMEOUT_MS,
                    topic_data=[TopicProduceData(topic_id=topic_id, name=self.topic, partition_data=data)],
                )
            )
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == ErrorCode.CORRUPT_MESSAGE:
            return leadership, Probe.OPEN
        if answer.error_code in _FENCED:
            return leadership, Probe.FENCED
        raise RequestFailed(
            f"the probe of {self.topic}-{partition} was answered with {ErrorCode.name_of(answer.error_code)}",
            answer.error_code,
        )

    async def measure(self, partition: int) -> SourceEnd:
        """All four offsets of one leadership: a leader of another epoch refuses each of the questions."""
        leadership, address = self._leader(partition)
        async with self._cluster.broker(address) as broker:
            start = await self._offset(broker, partition, leadership, EARLIEST, READ_UNCOMMITTED)
            last_stable = await self._offset(broker, partition, leadership, LATEST, READ_COMMITTED)
            high_watermark = await self._offset(broker, partition, leadership, LATEST, READ_UNCOMMITTED)
            # Asked for last: an append in between makes the end higher than the others, never lower.
            # The end of the current epoch is that of the leader's log: also of what no consumer sees yet.
            log_end = await self._end_of_epoch(broker, partition, leadership, leadership.epoch)
        return SourceEnd(leadership, start, last_stable, high_watermark, log_end)

    async def start(self, partition: int) -> int:
        """The first offset that its leader has, in its tier too."""
        leadership, address = self._leader(partition)
        async with self._cluster.broker(address) as broker:
            return await self._offset(broker, partition, leadership, EARLIEST, READ_UNCOMMITTED)

    async def end_of_epoch(self, partition: int, epoch: int) -> int:
        """Where records of later epochs than this begin. Records that were once read and are not before it
        are no longer part of the source's history."""
        leadership, address = self._leader(partition)
        async with self._cluster.broker(address) as broker:
            return await self._end_of_epoch(broker, partition, leadership, epoch)

    async def producers(self, partition: int) -> tuple[Leadership, frozenset[SourceProducer]]:
        """Those whose sequences the leader remembers."""
        leadership, found = await self._producers(partition)
        return leadership, frozenset(
            SourceProducer(each.producer_id, each.producer_epoch, each.last_sequence) for each in found
        )

    async def _producers(self, partition: int) -> tuple[Leadership, list[ProducerState]]:
        leadership, address = self._leader(partition)
        request = DescribeProducersRequest(topics=[TopicRequest(self.topic, [partition])])
        async with self._cluster.broker(address) as broker:
            response = await broker.request(request)
        answer = response.topics[0].partitions[0]
        check(
            f"cannot list the producers of {self.topic}-{partition}", answer.error_code, answer.error_message
        )
        return leadership, answer.active_producers

    async def open_transactions(self) -> list[str]:
        """Whose transaction has not ended: the transactional ids that are shown to us, of any topic, and the
        producers of this one."""
        listed = await self._listed_transactions()
        named = {each.producer_id: each.transactional_id for each in listed}
        found = {each.transactional_id for each in listed if each.transaction_state not in _ENDED_STATES}
        for partition in self.leaderships:
            for each in (await self._producers(partition))[1]:
                if each.current_txn_start_offset >= 0:
                    found.add(named.get(each.producer_id) or _unnamed(each.producer_id))
        return sorted(found)

    async def transactional(self) -> list[str]:
        """Who writes transactions to this topic, as far as its leaders remember: they forget a producer a day
        after its last record. By transactional id, where that is shown to us."""
        listed = await self._listed_transactions()
        named = {each.producer_id: each.transactional_id for each in listed}
        found: set[str] = set()
        for partition in self.leaderships:
            for each in (await self._producers(partition))[1]:
                # A transaction has an epoch of its coordinator once it has ended, and a start before that.
                is_one = each.coordinator_epoch >= 0 or each.current_txn_start_offset >= 0
                if is_one or each.producer_id in named:
                    found.add(named.get(each.producer_id) or _unnamed(each.producer_id))
        return sorted(found)

    async def _listed_transactions(self) -> list[TransactionState]:
        """All brokers are asked, as each knows those that it coordinates. It names none that we may not
        DESCRIBE."""
        found: list[TransactionState] = []
        for address in self._cluster.view.brokers.values():
            async with self._cluster.broker(address) as broker:
                response = await broker.request(ListTransactionsRequest())
            check("cannot list the transactions of the source", response.error_code)
            found += response.transaction_states
        return found

    def _leader(self, partition: int) -> tuple[Leadership, Address]:
        leadership = self.leaderships.get(partition)
        address = None if leadership is None else self._cluster.view.brokers.get(leadership.leader)
        if leadership is None or address is None:
            raise no_leader(self.topic, partition)
        return leadership, address

    async def _offset(
        self, broker: BrokerConnection, partition: int, leadership: Leadership, time: int, isolation: int
    ) -> int:
        asked = ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=leadership.epoch, timestamp=time
        )
        response = await broker.request(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=self.topic, partitions=[asked])],
                timeout_ms=_TIMEOUT_MS,
            )
        )
        answer = response.topics[0].partitions[0]
        check(f"cannot list the offsets of {self.topic}-{partition}", answer.error_code)
        return answer.offset

    async def _end_of_epoch(
        self, broker: BrokerConnection, partition: int, leadership: Leadership, epoch: int
    ) -> int:
        asked = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=leadership.epoch, leader_epoch=epoch
        )
        response = await broker.request(
            OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic=self.topic, partitions=[asked])]
            )
        )
        answer = response.topics[0].partitions[0]
        check(f"cannot see the end of {self.topic}-{partition}", answer.error_code)
        return answer.end_offset


def _unnamed(producer_id: int) -> str:
    return f"producer {producer_id} (its transactional id is not shown to us)"


def _unwritable_batch() -> bytes:
    batch = bytearray(twin.encode([Record(0, 0, value=b"probe")]))
    batch[_CHECKSUM_AT] ^= 0xFF
    return bytes(batch)
