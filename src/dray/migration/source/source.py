"""A topic of the source cluster: where its partitions end, who writes to them, whether they are fenced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from dray.base.runtime import gather_some
from dray.kafka.client.cluster import Address, Cluster
from dray.kafka.client.connection import BrokerConnection
from dray.kafka.client.errors import ClientError, RequestFailed, check
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    ProducerState,
    TopicRequest,
)
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.list_transactions import ListTransactionsRequest, TransactionState
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import Record, twin

T = TypeVar("T")
Failure: TypeAlias = ClientError | RequestFailed
"""Why there is no answer of a partition."""

LATEST: Final = -1
EARLIEST: Final = -2
READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1

_TIMEOUT_MS: Final = 30_000
_ALL_REPLICAS: Final = -1
_CHECKSUM_AT: Final = 17
"""Magic and what is before it are left as they are: a leader must find nothing wrong but the checksum."""

_PARTITIONS_OF: Final = 2000
"""At most in one request. Of producers it is fewer: each partition may have very many."""
_PRODUCERS_OF: Final = 100

_FENCED: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
_ENDED_STATES: Final = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})


class Leadership(NamedTuple):
    """The leader of a partition. Another epoch is another leadership, even of the same broker."""

    leader: int
    epoch: int


Leaderships: TypeAlias = Mapping[int, Leadership]
_Ask: TypeAlias = Callable[[BrokerConnection, Leaderships], Awaitable[Mapping[int, T | Failure]]]
_NO_LEADERSHIP: Final = Leadership(-1, -1)


@dataclass(frozen=True, slots=True)
class SourceEnd:
    """The begin and end of a partition, as its leader says them."""

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
    """A leader's answer to a batch that it cannot take."""

    OPEN = "open"
    FENCED = "fenced"


def is_no_such_topic(error: Exception) -> bool:
    return isinstance(error, RequestFailed) and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def no_leader(topic: str, partition: int) -> RequestFailed:
    return RequestFailed(f"{topic}-{partition} has no leader at the source", ErrorCode.LEADER_NOT_AVAILABLE)


class LinkedAs(NamedTuple):
    """A topic as it was when it was linked."""

    topic_id: UUID | None
    partitions: int


class SourceTopic:
    """One topic at the source. `learn` first. Many partitions are asked about at once: what is asked of one
    would be a round trip for each, with the writers fenced. Every answer is of the leadership that it names,
    and where there is none stands the failure."""

    def __init__(self, cluster: Cluster, topic: str, linked: LinkedAs | None = None) -> None:
        """`linked`: then `learn` refuses anything but all of that topic. One with other partitions, or of
        another id, is another topic; and no partition may be left out of a switch because it has no leader
        at the moment."""
        self._cluster = cluster
        self._linked = linked
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
        leaderships = {
            each.partition_index: Leadership(each.leader_id, each.leader_epoch)
            for each in found.partitions
            if not each.error_code and each.leader_id >= 0
        }
        if self._linked is not None:
            self._check_whole(self._linked, leaderships)
        self.leaderships = leaderships

    def _check_whole(self, linked: LinkedAs, leaderships: Leaderships) -> None:
        topic, count = self.topic, len(self.partitions)
        if linked.topic_id is not None and linked.topic_id.int and self.topic_id != linked.topic_id:
            raise _another(
                f"topic {topic} at the source has the id {self.topic_id}, and {linked.topic_id} was linked"
            )
        if count != linked.partitions:
            raise _another(
                f"topic {topic} has {count} partitions at the source, and {linked.partitions} here"
            )
        missing = sorted(set(range(count)) - set(leaderships))
        if missing:
            raise no_leader(topic, missing[0])

    async def probe(self, partitions: Collection[int]) -> Mapping[int, tuple[Leadership, Probe] | Failure]:
        """Whether their leaders take what clients produce. The batch has a wrong checksum, so it is never
        stored: a leader that would take it says so, and a fenced one refuses before it looks."""
        topic_id = self._cluster.view.topic_ids.get(self.topic, ZERO_UUID)

        async def ask(broker: BrokerConnection, asked: Leaderships) -> dict[int, Probe | Failure]:
            batch = _unwritable_batch()
            data = [PartitionProduceData(index=partition, records=batch) for partition in asked]
            response = await broker.request(
                ProduceRequest(
                    acks=_ALL_REPLICAS,
                    timeout_ms=_TIMEOUT_MS,
                    topic_data=[TopicProduceData(topic_id=topic_id, name=self.topic, partition_data=data)],
                )
            )
            answers = [each for topic in response.responses for each in topic.partition_responses]
            return {each.index: self._probed(each.index, each.error_code) for each in answers}

        return _with_leaderships(await self._ask_leaders(partitions, ask))

    def _probed(self, partition: int, code: int) -> Probe | RequestFailed:
        if code == ErrorCode.CORRUPT_MESSAGE:
            return Probe.OPEN
        if code in _FENCED:
            return Probe.FENCED
        name = ErrorCode.name_of(code)
        return RequestFailed(f"the probe of {self.topic}-{partition} was answered with {name}", code)

    async def measure(self, partitions: Collection[int]) -> Mapping[int, SourceEnd | Failure]:
        """All four offsets of one leadership: a leader of another epoch refuses each of the questions."""

        async def ask(broker: BrokerConnection, asked: Leaderships) -> dict[int, tuple[int, ...] | Failure]:
            start = await self._offsets(broker, asked, EARLIEST, READ_UNCOMMITTED)
            last_stable = await self._offsets(broker, asked, LATEST, READ_COMMITTED)
            high_watermark = await self._offsets(broker, asked, LATEST, READ_UNCOMMITTED)
            # Asked for last: an append in between makes the end higher than the others, never lower.
            # The end of the current epoch is that of the leader's log: also of what no consumer sees yet.
            epochs = {partition: leadership.epoch for partition, leadership in asked.items()}
            log_end = await self._ends_of_epochs(broker, asked, epochs)
            found = (start, last_stable, high_watermark, log_end)
            return {
                each: _together([some[each] for some in found])
                for each in asked
                if all(each in some for some in found)
            }

        found = _with_leaderships(await self._ask_leaders(partitions, ask))
        return {
            partition: SourceEnd(each[0], *each[1]) if isinstance(each, tuple) else each
            for partition, each in found.items()
        }

    async def starts(self, partitions: Collection[int]) -> Mapping[int, int | Failure]:
        """The first offsets that their leaders have, in their tiers too."""

        async def ask(broker: BrokerConnection, asked: Leaderships) -> dict[int, int | Failure]:
            return await self._offsets(broker, asked, EARLIEST, READ_UNCOMMITTED)

        return {each: found for each, (_, found) in (await self._ask_leaders(partitions, ask)).items()}

    async def start(self, partition: int) -> int:
        return all_of(await self.starts([partition]))[partition]

    async def ends_of_epochs(self, epochs: Mapping[int, int]) -> Mapping[int, int | Failure]:
        """By partition, where records of later epochs than this begin. Records that were once read and are
        not before it are no longer part of the source's history."""

        async def ask(broker: BrokerConnection, asked: Leaderships) -> dict[int, int | Failure]:
            return await self._ends_of_epochs(broker, asked, epochs)

        return {each: found for each, (_, found) in (await self._ask_leaders(epochs, ask)).items()}

    async def producers(
        self, partitions: Collection[int]
    ) -> Mapping[int, tuple[Leadership, frozenset[SourceProducer]] | Failure]:
        """Those whose sequences the leaders remember."""
        return {
            partition: (found[0], _as_known(found[1])) if isinstance(found, tuple) else found
            for partition, found in (await self._producers(partitions)).items()
        }

    async def _producers(
        self, partitions: Collection[int]
    ) -> dict[int, tuple[Leadership, list[ProducerState]] | Failure]:
        async def ask(
            broker: BrokerConnection, asked: Leaderships
        ) -> dict[int, list[ProducerState] | Failure]:
            request = DescribeProducersRequest(topics=[TopicRequest(self.topic, list(asked))])
            answers = [each for topic in (await broker.request(request)).topics for each in topic.partitions]
            return {
                each.partition_index: _refused(
                    f"cannot list the producers of {self.topic}-{each.partition_index}",
                    each.error_code,
                    each.error_message,
                )
                or each.active_producers
                for each in answers
            }

        return _with_leaderships(await self._ask_leaders(partitions, ask, _PRODUCERS_OF))

    async def open_transactions(self) -> list[str]:
        """Owners of transactions that have not ended: the transactional ids that are shown to us, of any
        topic, and the producers of this one."""
        listed = await self._listed_transactions()
        named = {each.producer_id: each.transactional_id for each in listed}
        found = {each.transactional_id for each in listed if each.transaction_state not in _ENDED_STATES}
        for _, producers in all_of(await self._producers(self.leaderships)).values():
            for each in producers:
                if each.current_txn_start_offset >= 0:
                    found.add(named.get(each.producer_id) or _unnamed(each.producer_id))
        return sorted(found)

    async def transactional(self) -> list[str]:
        """The producers that write transactions to this topic, as far as its leaders remember: they forget a
        producer a day after its last record. By transactional id, where that is shown to us."""
        listed = await self._listed_transactions()
        named = {each.producer_id: each.transactional_id for each in listed}
        found: set[str] = set()
        for _, producers in all_of(await self._producers(self.leaderships)).values():
            for each in producers:
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

    def address(self, partition: int) -> Address | None:
        """Of its leader, where it has one."""
        leadership = self.leaderships.get(partition)
        return None if leadership is None else self._cluster.view.brokers.get(leadership.leader)

    def _leader(self, partition: int) -> tuple[Leadership, Address]:
        leadership, address = self.leaderships.get(partition), self.address(partition)
        if leadership is None or address is None:
            raise no_leader(self.topic, partition)
        return leadership, address

    async def _ask_leaders(
        self, partitions: Iterable[int], ask: _Ask[T], at_a_time: int = _PARTITIONS_OF
    ) -> dict[int, tuple[Leadership, T | Failure]]:
        """Each leader about all that it leads of them, the leaders side by side: what is asked of many
        partitions takes as long as of one. Each answer is of the leadership that it stands beside."""
        found: dict[int, tuple[Leadership, T | Failure]] = {}
        by_leader: dict[Address, dict[int, Leadership]] = {}
        for partition in partitions:
            try:
                leadership, address = self._leader(partition)
            except RequestFailed as failure:
                found[partition] = _NO_LEADERSHIP, failure
            else:
                by_leader.setdefault(address, {})[partition] = leadership
        asking = [self._ask_leader(address, asked, ask, at_a_time) for address, asked in by_leader.items()]
        for asked, answers in zip(by_leader.values(), await gather_some(asking), strict=True):
            for partition, leadership in asked.items():
                silent = RequestFailed(
                    f"{self.topic}-{partition} is not in its leader's answer", ErrorCode.UNKNOWN_SERVER_ERROR
                )
                found[partition] = leadership, answers.get(partition, silent)
        return found

    async def _ask_leader(
        self, address: Address, asked: Leaderships, ask: _Ask[T], at_a_time: int
    ) -> dict[int, T | Failure]:
        answers: dict[int, T | Failure] = {}
        try:
            async with self._cluster.broker(address) as broker:
                for first in range(0, len(asked), at_a_time):
                    answers.update(await ask(broker, dict(islice(asked.items(), first, first + at_a_time))))
        except ClientError as failure:
            return {partition: answers.get(partition, failure) for partition in asked}
        return answers

    async def _offsets(
        self, broker: BrokerConnection, asked: Leaderships, time: int, isolation: int
    ) -> dict[int, int | Failure]:
        wanted = [
            ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=leadership.epoch, timestamp=time
            )
            for partition, leadership in asked.items()
        ]
        response = await broker.request(
            ListOffsetsRequest(
                replica_id=-1,
                isolation_level=isolation,
                topics=[ListOffsetsTopic(name=self.topic, partitions=wanted)],
                timeout_ms=_TIMEOUT_MS,
            )
        )
        found: dict[int, int | Failure] = {}
        for each in [each for topic in response.topics for each in topic.partitions]:
            attempt = f"cannot list the offsets of {self.topic}-{each.partition_index}"
            found[each.partition_index] = _refused(attempt, each.error_code) or each.offset
        return found

    async def _ends_of_epochs(
        self, broker: BrokerConnection, asked: Leaderships, epochs: Mapping[int, int]
    ) -> dict[int, int | Failure]:
        wanted = [
            OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=leadership.epoch, leader_epoch=epochs[partition]
            )
            for partition, leadership in asked.items()
        ]
        response = await broker.request(
            OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic=self.topic, partitions=wanted)]
            )
        )
        found: dict[int, int | Failure] = {}
        for each in [each for topic in response.topics for each in topic.partitions]:
            attempt = f"cannot see the end of {self.topic}-{each.partition}"
            found[each.partition] = _refused(attempt, each.error_code) or each.end_offset
        return found


def _another(what: str) -> RequestFailed:
    return RequestFailed(f"{what}: abort this migration and begin anew", ErrorCode.INVALID_PARTITIONS)


def all_of(found: Mapping[int, T | Failure]) -> dict[int, T]:
    """The findings about each partition. Raises the failure of the first that has one."""
    whole: dict[int, T] = {}
    for partition, each in sorted(found.items(), key=itemgetter(0)):
        if isinstance(each, ClientError | RequestFailed):
            raise each
        whole[partition] = each
    return whole


def _as_known(found: Iterable[ProducerState]) -> frozenset[SourceProducer]:
    return frozenset(
        SourceProducer(each.producer_id, each.producer_epoch, each.last_sequence) for each in found
    )


def _refused(attempt: str, code: int, message: str | None = None) -> RequestFailed | None:
    try:
        check(attempt, code, message)
    except RequestFailed as failure:
        return failure
    return None


def _together(found: Sequence[int | Failure]) -> tuple[int, ...] | Failure:
    offsets = []
    for each in found:
        if not isinstance(each, int):
            return each
        offsets.append(each)
    return tuple(offsets)


def _with_leaderships(
    found: Mapping[int, tuple[Leadership, T | Failure]],
) -> dict[int, tuple[Leadership, T] | Failure]:
    return {
        partition: each if isinstance(each, ClientError | RequestFailed) else (leadership, each)
        for partition, (leadership, each) in found.items()
    }


def _unnamed(producer_id: int) -> str:
    return f"producer {producer_id} (its transactional id is not shown to us)"


def _unwritable_batch() -> bytes:
    batch = bytearray(twin.encode([Record(0, 0, value=b"probe")]))
    batch[_CHECKSUM_AT] ^= 0xFF
    return bytes(batch)
