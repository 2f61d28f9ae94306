"""What the source holds from an offset on, batch for batch, as its bytes are.

It is read as a read_committed consumer reads: nothing undecided comes in, and aborted transactions are named.
Dray never takes back what it has mirrored: a source that has lost records it once gave stops the partition.
One that has deleted its oldest records, also such that were not mirrored yet, has not: its log begins later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from dray.client.cluster import PASSING, Address, Cluster
from dray.client.errors import RequestFailed, check
from dray.client.records import joined
from dray.foreign.batches import walk_batches
from dray.foreign.faults import ForeignFault
from dray.protocol import ErrorCode
from dray.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dray.records import HEADER_SIZE
from dray.records.header import PREFIX

from .source import READ_COMMITTED, SourceTopic

WAIT_MS: Final = 500


class Aborted(NamedTuple):
    """A transaction that readers of committed records do not see, as far as it lies in these batches."""

    producer_id: int
    first_offset: int


class MirrorPlace(NamedTuple):
    """Where the mirror of a partition stands. `epoch` is that of the last mirrored batch, -1 before the
    first: with it the source says when its history is another one."""

    offset: int
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class MirrorPiece:
    """Whole batches in the order of the log. `batches` may be empty where the source has nothing new."""

    partition: int
    batches: memoryview
    aborted: tuple[Aborted, ...]
    place: MirrorPlace
    """Where the next piece begins."""
    source_start: int
    last_stable: int
    """Where the source's readers of committed records stand: the mirror lags by what is between."""


class MirrorOvertaken(NamedTuple):
    """The source's log begins at `start` by now, above all that was mirrored: its retention, or a
    DeleteRecords, has taken what would be next."""

    partition: int
    start: int


class MirrorStopped(Exception):
    """This partition cannot go on. One line says why, and what to do."""

    def __init__(self, partition: int, why: str) -> None:
        super().__init__(f"partition {partition}: {why}")
        self.partition = partition


PASSING_READS: Final = PASSING | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""Also of a broker that has just been started, and does not know its partitions yet. Whether the topic is
gone is said by the metadata."""

MirrorAnswer: TypeAlias = MirrorPiece | MirrorOvertaken | MirrorStopped | RequestFailed


class MirrorReader:
    """Reads partitions of one topic, each from its leader."""

    def __init__(
        self,
        cluster: Cluster,
        source: SourceTopic,
        *,
        max_bytes: int,
        partition_bytes: int,
        rack: str = "",
        checksums: bool = True,
    ) -> None:
        """Without `checksums` they are left to what takes the pieces in: Dray's log looks at every one."""
        self._checksums = checksums
        self._cluster = cluster
        self._source = source
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes
        self._rack = rack

    def by_leader(self, partitions: Mapping[int, MirrorPlace]) -> dict[Address, dict[int, MirrorPlace]]:
        """Which of them are read together. Those without a leader are left out until the source is looked at
        again."""
        found: dict[Address, dict[int, MirrorPlace]] = {}
        for partition, place in partitions.items():
            leadership = self._source.leaderships.get(partition)
            address = None if leadership is None else self._cluster.view.brokers.get(leadership.leader)
            if address is not None:
                found.setdefault(address, {})[partition] = place
        return found

    async def read(self, leader: Address, places: Mapping[int, MirrorPlace]) -> list[MirrorPiece]:
        """The next piece of each partition. Raises `MirrorStopped` for one that cannot go on, and
        `RequestFailed` with a passing error where a leader has moved."""
        found: list[MirrorPiece] = []
        for answer in (await self.read_each(leader, places)).values():
            if isinstance(answer, MirrorOvertaken):
                raise _lost_below(places[answer.partition], answer)
            if not isinstance(answer, MirrorPiece):
                raise answer
            found.append(answer)
        return found

    async def read_each(
        self, leader: Address, places: Mapping[int, MirrorPlace], most_bytes: int | None = None
    ) -> Mapping[int, MirrorAnswer]:
        """The next piece of each partition, or why there is none: the others do not wait for it. The answer
        has `most_bytes`, or a single batch that is larger. Raises what keeps the leader from answering at
        all."""
        max_bytes = self._max_bytes if most_bytes is None else min(most_bytes, self._max_bytes)
        topic = self._source.topic
        leaderships = self._source.leaderships
        found: dict[int, MirrorAnswer] = {
            partition: RequestFailed(
                f"{topic}-{partition} has no leader at the source", ErrorCode.LEADER_NOT_AVAILABLE
            )
            for partition in places
            if partition not in leaderships
        }
        topic_id = self._source.topic_id
        if topic_id is None:
            raise RequestFailed(f"there is no topic {topic} at the source", ErrorCode.UNKNOWN_TOPIC_ID)
        wanted = [
            FetchPartition(
                partition=partition,
                current_leader_epoch=leaderships[partition].epoch,
                fetch_offset=place.offset,
                last_fetched_epoch=place.epoch,
                partition_max_bytes=min(max_bytes, self._partition_bytes),
            )
            for partition, place in places.items()
            if partition in leaderships
        ]
        if not wanted:
            return found
        request = FetchRequest(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=READ_COMMITTED,
            topics=[FetchTopic(topic_id=topic_id, topic=topic, partitions=wanted)],
            rack_id=self._rack,
        )
        async with self._cluster.broker(leader) as broker:
            response = await broker.request(request)
        check(f"cannot mirror {topic}", response.error_code)
        for answered in response.responses:
            for answer in answered.partitions:
                partition = answer.partition_index
                try:
                    if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                        found[partition] = await self._out_of_range(partition, places[partition])
                    else:
                        found[partition] = piece_of(answer, places[partition], checksums=self._checksums)
                except (MirrorStopped, RequestFailed) as refusal:
                    found[partition] = refusal
        return found

    async def _out_of_range(self, partition: int, place: MirrorPlace) -> MirrorOvertaken:
        """Whether the source begins above the place, or ends before it: that answer has no offsets. Raises
        `MirrorStopped`."""
        start = await self._source.start(partition)
        if start > place.offset:
            return MirrorOvertaken(partition, start)
        raise MirrorStopped(
            partition,
            f"the source ends before {place.offset}, which was mirrored already: it has lost records. What "
            "was mirrored is kept; abort this migration and begin anew",
        )


def piece_of(answer: PartitionData, place: MirrorPlace, *, checksums: bool = True) -> MirrorPiece:
    """Of a leader's answer, as far as its batches are whole."""
    partition = answer.partition_index
    diverging = answer.diverging_epoch
    if diverging is not None and diverging.end_offset >= 0:
        raise MirrorStopped(
            partition,
            f"the source's history differs from offset {diverging.end_offset} on (epoch {diverging.epoch}): "
            "it has had an unclean election. What was mirrored is kept; abort this migration and begin anew",
        )
    if answer.error_code:
        text = f"cannot mirror partition {partition}: {ErrorCode.name_of(answer.error_code)}"
        if answer.error_code not in PASSING_READS:
            raise MirrorStopped(partition, text)
        raise RequestFailed(text, answer.error_code)
    records = memoryview(joined(answer.records))
    batches, after = whole_batches(records, partition, place, checksums=checksums)
    listed = () if answer.aborted_transactions is None else answer.aborted_transactions
    aborted = tuple(
        sorted(
            Aborted(each.producer_id, each.first_offset)
            for each in listed
            if each.first_offset < after.offset
        )
    )
    return MirrorPiece(partition, batches, aborted, after, answer.log_start_offset, answer.last_stable_offset)


def whole_batches(
    records: memoryview, partition: int, place: MirrorPlace, *, checksums: bool = True
) -> tuple[memoryview, MirrorPlace]:
    """An answer may end within a batch: that one comes again, whole. One that begins before the place is
    refused, as offsets never go back. Only where nothing is mirrored before the place it may: the source's
    log may begin within a batch. Without `checksums` only the first and the last batch are looked at: the
    log looks at each."""
    end, last = _end_of_whole(records)
    if not end:
        return records[:0], place
    try:
        walked = walk_batches(records[:end], checksums=checksums)
        first = next(walked)
        least = first.header.base_offset if place.epoch >= 0 else first.last_offset
        if least < place.offset:
            raise MirrorStopped(
                partition,
                f"the source gave a batch that begins at {first.header.base_offset}, and {place.offset} "
                "is next: the mirror must begin where a batch does",
            )
        rest = walked if checksums else walk_batches(records[:end], last, checksums=False)
        latest = deque([first], maxlen=1)
        latest.extend(rest)
    except ForeignFault as fault:
        raise MirrorStopped(partition, f"the source gave a damaged batch: {fault.reason}") from fault
    return records[:end], MirrorPlace(latest[0].last_offset + 1, latest[0].header.leader_epoch)


def _lost_below(place: MirrorPlace, overtaken: MirrorOvertaken) -> MirrorStopped:
    return MirrorStopped(
        overtaken.partition,
        f"the source begins at {overtaken.start} by now, and {place.offset} is next: it has deleted the rest",
    )


def _end_of_whole(records: memoryview) -> tuple[int, int]:
    """Where the whole batches end, and where the last of them begins."""
    position = last = 0
    most = len(records) - HEADER_SIZE
    unpack = PREFIX.unpack_from
    while position <= most:
        size = unpack(records, position)[1] + PREFIX.size
        if size < HEADER_SIZE or position + size > len(records):
            break
        last = position
        position += size
    return position, last
