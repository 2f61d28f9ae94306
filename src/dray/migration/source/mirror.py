"""The source's batches from an offset on, as its bytes are.

It is read as a read_committed consumer reads: nothing undecided comes in, and aborted transactions are named.
Dray never takes back what it has mirrored: a source that has lost records it once gave stops the partition.
One that has deleted its oldest records, also such that were not mirrored yet, has not: its log begins later.

Most topics are idle most of the time. One fetch to a leader waits for records of all topics of the source
(`WaitingFetches`), so that connections and requests do not grow with the number of topics.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from dray.base.runtime import Runtime, run_once
from dray.kafka.client.cluster import PASSING, Address, Cluster
from dray.kafka.client.errors import ClientError, RequestFailed, check
from dray.kafka.client.records import joined
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dray.kafka.records import HEADER_SIZE
from dray.kafka.records.header import MAGIC, MAGIC_AT, PREFIX
from dray.migration.formats.batches import ForeignFault, walk_batches
from dray.migration.source.source import READ_COMMITTED, SourceTopic

WAIT_MS: Final = 500
GATHER_SECONDS: Final = 0.1
"""Between an answer to a waiting fetch and the next one: who got something has asked for more by then, and
topics to which little is written do not make a request of each record."""
MOST_PARTITIONS: Final = 2000
"""In one waiting fetch, unless a single topic has more."""
MOST_WAITING_BYTES: Final = 16 << 20
"""In one answer to it."""


class Aborted(NamedTuple):
    """A transaction that readers of committed records do not see, as far as it lies in these batches."""

    producer_id: int
    first_offset: int


class MirrorPlace(NamedTuple):
    """The place that a partition's mirror has reached. `epoch` is that of the last mirrored batch, -1 before
    the first: with it the source says when its history is another one."""

    offset: int
    epoch: int = -1


@dataclass(frozen=True, slots=True)
class MirrorPiece:
    """Whole batches in the order of the log. `batches` may be empty where the source has nothing new."""

    partition: int
    batches: memoryview
    aborted: tuple[Aborted, ...]
    place: MirrorPlace
    """The place where the next piece begins."""
    source_start: int
    last_stable: int
    """The end for the source's readers of committed records: the mirror lags by what is between."""


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


@dataclass(slots=True, eq=False)
class _Waiting:
    """One topic's wait at a leader."""

    topic: FetchTopic
    most_bytes: int
    since: float
    answer: asyncio.Future[Sequence[PartitionData]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class WaitingFetches:
    """The reads of one source that wait for records: one fetch at a time to each leader, which names the
    partitions of all topics. `cluster` is for these alone, as what comes behind one on a connection waits
    too. A topic with nothing new is named again before it is answered, so that a busy one does not wake all
    others; and who was named comes last in the next fetch, so that none is left out for long where bytes or
    partitions are too many for one."""

    def __init__(self, cluster: Cluster, runtime: Runtime) -> None:
        self._cluster = cluster
        self._runtime = runtime
        self._waiting: dict[Address, deque[_Waiting]] = {}
        self._fetching: dict[Address, asyncio.Task[None]] = {}

    async def read(self, leader: Address, topic: FetchTopic, most_bytes: int) -> Sequence[PartitionData]:
        """Until it has something, or for about the time that a fetch waits. Answers of all topics together
        have no more than all of their `most_bytes`, one may have more of it. Raises what keeps the leader
        from answering."""
        waiting = _Waiting(topic, most_bytes, self._runtime.monotonic())
        self._waiting.setdefault(leader, deque()).append(waiting)
        if leader not in self._fetching:
            self._fetching[leader] = run_once(self._runtime, "waiting fetches", self._fetch_on, leader)
        try:
            return await waiting.answer
        finally:
            waiting.answer.cancel()  # no effect on one that is done

    async def close(self) -> None:
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._cluster.close()

    async def _fetch_on(self, leader: Address) -> None:
        """Until nobody waits."""
        try:
            while named := self._next(leader):
                await self._fetch(leader, named)
                await self._runtime.sleep(GATHER_SECONDS)
        finally:
            del self._fetching[leader]
            stopped = ClientError(f"{leader[0]}:{leader[1]}: its mirrors were stopped")
            _fail(self._waiting.pop(leader, ()), stopped)

    def _next(self, leader: Address) -> list[_Waiting]:
        """Take the topics that are named now, the one that waits longest first. They leave the row."""
        named: dict[str, _Waiting] = {}
        left: deque[_Waiting] = deque()
        partitions = 0
        for each in self._waiting[leader]:
            size = len(each.topic.partitions)
            if each.answer.done():
                continue
            if each.topic.topic in named or (named and partitions + size > MOST_PARTITIONS):
                left.append(each)
            else:
                named[each.topic.topic] = each
                partitions += size
        self._waiting[leader] = left
        return list(named.values())

    async def _fetch(self, leader: Address, named: Sequence[_Waiting]) -> None:
        topics = [each.topic for each in named]
        here, left = _partitions(named), _partitions(self._waiting[leader])
        max_bytes = min(sum([each.most_bytes for each in named]), MOST_WAITING_BYTES)
        try:
            async with self._cluster.broker(leader) as broker:
                response = await broker.request(fetch_of(topics, max_bytes, WAIT_MS * here // (here + left)))
            check("cannot mirror", response.error_code)
            self._give(leader, named, _by_topic(response))
        except Exception as failure:
            _fail(named, failure)
        except BaseException:
            self._waiting[leader].extend(named)  # they hear of it with all others
            raise

    def _give(
        self,
        leader: Address,
        named: Sequence[_Waiting],
        found: Mapping[UUID | str, list[PartitionData]],
    ) -> None:
        now = self._runtime.monotonic()
        is_shared = len([topic for topic, answers in found.items() if any(map(_is_news, answers))]) > 1
        for each in named:
            answers = found.get(each.topic.topic_id) or found.get(each.topic.topic, [])
            if each.answer.done():
                continue
            if is_shared:
                _cut_out(answers)
            if any(map(_is_news, answers)) or now - each.since >= WAIT_MS / 2000:
                each.answer.set_result(answers)
            else:
                self._waiting[leader].append(each)


def _fail(waiting: Iterable[_Waiting], failure: Exception) -> None:
    for each in waiting:
        if not each.answer.done():
            each.answer.set_exception(failure)


def _partitions(waiting: Iterable[_Waiting]) -> int:
    return sum([len(each.topic.partitions) for each in waiting])


def _by_topic(response: FetchResponse) -> dict[UUID | str, list[PartitionData]]:
    """By id, or by name where the broker is too old for ids."""
    return {
        each.topic if each.topic_id == ZERO_UUID else each.topic_id: each.partitions
        for each in response.responses
    }


def _is_news(answer: PartitionData) -> bool:
    diverging = answer.diverging_epoch
    return bool(answer.error_code or answer.records or (diverging and diverging.end_offset >= 0))


def _cut_out(answers: Iterable[PartitionData]) -> None:
    """A few records that wait for their commit would keep the whole answer in memory."""
    for each in answers:
        if each.records:
            each.records = bytes(joined(each.records))


def fetch_of(topics: list[FetchTopic], max_bytes: int, wait_ms: int = WAIT_MS) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes, isolation_level=READ_COMMITTED, topics=topics
    )


class MirrorReader:
    """Reads partitions of one topic, each from its leader. A read that may wait for records goes with
    `waiting`, if that is given; a read of records that the source is known to have is a request of its own to
    `cluster`."""

    def __init__(
        self,
        cluster: Cluster,
        source: SourceTopic,
        *,
        max_bytes: int,
        partition_bytes: int,
        checksums: bool = True,
        waiting: WaitingFetches | None = None,
    ) -> None:
        """Without `checksums` they are left to what takes the pieces in: Dray's log looks at every one."""
        self._waiting = waiting
        self._checksums = checksums
        self._cluster = cluster
        self._source = source
        self._max_bytes = max_bytes
        self._partition_bytes = partition_bytes

    def by_leader(self, partitions: Mapping[int, MirrorPlace]) -> dict[Address, dict[int, MirrorPlace]]:
        """Which of them are read together. Those without a leader are left out until the source is looked at
        again."""
        found: dict[Address, dict[int, MirrorPlace]] = {}
        for partition, place in partitions.items():
            address = self._source.address(partition)
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
        self,
        leader: Address,
        places: Mapping[int, MirrorPlace],
        most_bytes: int | None = None,
        *,
        waits: bool = False,
    ) -> Mapping[int, MirrorAnswer]:
        """The next piece of each partition, or why there is none: the others do not wait for it. The answer
        has `most_bytes`, or a single batch that is larger. `waits`: nothing is known to be there. Raises what
        keeps the leader from answering at all."""
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
        named = FetchTopic(topic_id=topic_id, topic=topic, partitions=wanted)
        for answer in await self._answers(leader, named, max_bytes, waits=waits):
            partition = answer.partition_index
            try:
                if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    found[partition] = await self._out_of_range(partition, places[partition])
                else:
                    found[partition] = piece_of(answer, places[partition], checksums=self._checksums)
            except (MirrorStopped, RequestFailed) as refusal:
                found[partition] = refusal
        return found

    async def _answers(
        self, leader: Address, topic: FetchTopic, max_bytes: int, *, waits: bool
    ) -> Sequence[PartitionData]:
        if waits and self._waiting is not None:
            return await self._waiting.read(leader, topic, max_bytes)
        async with self._cluster.broker(leader) as broker:
            response = await broker.request(fetch_of([topic], max_bytes))
        check(f"cannot mirror {topic.topic}", response.error_code)
        return [answer for answered in response.responses for answer in answered.partitions]

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
        if len(records) > MAGIC_AT and records[MAGIC_AT] < MAGIC:  # it may be smaller than a batch's header
            text = f"records of message format {records[MAGIC_AT]}: rewrite them at the source first"
            raise MirrorStopped(partition, text)
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
    """The position at which the whole batches end, and the one at which the last of them begins."""
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
