"""A topic read over Kafka's protocol: bounds, times, and records from an offset on.

A read follows leaders: what fails because a leader moved is asked again, of the new one.

A search, a count or an export reads much, so it reads gently: in small pieces, and it rests after each as
long as the piece took. So it takes at most half of a broker's time, and half of a core of this machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from dray.inspection.brokers import BrokerLink, Brokers
from dray.inspection.records.matching import Match
from dray.inspection.records.shown import TopicMask
from dray.kafka.client import ClientError, RequestFailed
from dray.kafka.client.errors import check
from dray.kafka.client.records import EARLIEST, LATEST
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dray.kafka.protocol.messages.metadata import MetadataResponse
from dray.kafka.protocol.wire import Records
from dray.kafka.records import HEADER_SIZE, Record, RecordError, decode, read_header
from dray.kafka.records.header import CODEC_BITS, CONTROL, LOG_APPEND_TIME, MAGIC, TRANSACTIONAL

# --- the answer to a fetch, taken apart: the headers of its batches, and their records


_CODECS: Final = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_LARGEST_UNFOLDED: Final = 256 * 1024 * 1024


@dataclass(frozen=True)
class BatchDetails:
    base_offset: int
    last_offset: int
    length: int
    leader_epoch: int
    attributes: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int
    checksum: int

    @property
    def codec(self) -> str:
        return _CODECS.get(self.attributes & CODEC_BITS, "unknown")

    @property
    def append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)


@dataclass(frozen=True)
class FetchedBatch:
    header: BatchDetails
    data: memoryview

    def records(self) -> list[Record]:
        """Raises `RecordError` for what cannot be decoded. A control batch has none."""
        return list(self.each_record())

    def each_record(self) -> Iterator[Record]:
        """The same, one after the other. The error is raised before the first."""
        if self.header.control:
            return iter(())
        return decode(self.data, max_decompressed_bytes=_LARGEST_UNFOLDED, sparse=True).records()


def batches_in(records: Records | None) -> Iterator[FetchedBatch]:
    """Every whole batch. One that is cut off at the end is left out: the next fetch brings it."""
    if records is None:
        return
    data = records if isinstance(records, bytes | bytearray | memoryview) else b"".join(records)
    view = memoryview(data)
    position = 0
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(view) - position:
            return
        details = BatchDetails(
            header.base_offset,
            header.base_offset + header.last_offset_delta,
            header.size,
            header.leader_epoch,
            header.attributes,
            header.base_timestamp,
            header.max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.record_count,
            header.checksum,
        )
        yield FetchedBatch(details, view[position : position + header.size])
        position += header.size


# --- a topic


FETCH_BYTES: Final = 1024 * 1024
GENTLE_BYTES: Final = 128 * 1024
"""An answer to a fetch takes a broker's event loop in one go, and more bytes take it for longer."""
LONGEST_REST: Final = 0.25
"""A broker that is slow for another reason does not make it slower than this."""

_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
_ATTEMPTS: Final = 20
_PAUSE_SECONDS: Final = 0.25


class NoSuchTopic(Exception):
    """There is no topic of that name."""


class NoSuchPartition(Exception):
    """The topic has no such partition."""


class OffsetGone(Exception):
    """The offset is outside of what the partition holds."""

    def __init__(self, offset: int, start: int, end: int) -> None:
        super().__init__(f"offset {offset} is outside {start} to {end}")
        self.start = start
        self.end = end


@dataclass(frozen=True)
class FetchedRecord:
    record: Record
    batch: BatchDetails


@dataclass(frozen=True)
class Unreadable:
    """A batch that cannot be decoded: shown as such, and passed over."""

    batch: BatchDetails
    reason: str


@dataclass(frozen=True)
class Fetched:
    items: Sequence[FetchedRecord | Unreadable]
    """Those that are wanted."""
    following: int
    """The offset at which to go on: after everything that was looked at."""
    size: int
    start: int
    end: int


@dataclass(frozen=True)
class OffsetBounds:
    start: int
    end: int


@dataclass
class TopicReader:
    """Reads one topic. A topic that was deleted and created again is another one: then it stops."""

    brokers: Brokers
    name: str
    mask: TopicMask | None = None
    """The parts of the records that are hidden: they are read without these."""
    _known: MetadataResponse | None = field(default=None, init=False)
    _topic_id: UUID | None = field(default=None, init=False)

    async def partitions(self) -> Sequence[int]:
        metadata = await self._metadata()
        return sorted(partition.partition_index for partition in metadata.topics[0].partitions)

    async def bounds(self) -> Mapping[int, OffsetBounds]:
        """The starts are read before the ends, so that no end lies before its start."""
        metadata = await self._metadata()
        starts = await self.brokers.offsets(metadata, EARLIEST)
        ends = await self.brokers.offsets(metadata, LATEST)
        return {
            partition: OffsetBounds(starts[name, partition], ends[name, partition])
            for name, partition in sorted(starts)
            if (name, partition) in ends
        }

    async def at_time(self, timestamp: int) -> Mapping[int, int]:
        """The first offset at or after that time, by partition; the end where no record is as late."""
        metadata = await self._metadata()
        found = await self.brokers.offsets(metadata, max(0, timestamp))
        ends = await self.brokers.offsets(metadata, LATEST)
        return {
            partition: offset if offset >= 0 else ends.get((name, partition), 0)
            for (name, partition), offset in found.items()
        }

    async def fetch(
        self,
        partition: int,
        offset: int,
        *,
        match: Match | None = None,
        max_bytes: int = FETCH_BYTES,
        wait_ms: int = 0,
    ) -> Fetched:
        """Records from that offset on, none where it is the end; of those, what is matched, and batches that
        cannot be read. Raises `OffsetGone`."""
        data = await self._data(partition, offset, max_bytes, wait_ms)
        return await self.brokers.runtime.in_thread(_fetched, data, offset, self.mask, match)

    async def fetch_gently(self, partition: int, offset: int, match: Match | None = None) -> Fetched:
        """As `fetch`, one of many: a small piece, and then a rest."""
        runtime = self.brokers.runtime
        begun = runtime.monotonic()
        fetched = await self.fetch(partition, offset, match=match, max_bytes=GENTLE_BYTES)
        await runtime.sleep(min(runtime.monotonic() - begun, LONGEST_REST))
        return fetched

    async def _data(self, partition: int, offset: int, max_bytes: int, wait_ms: int) -> PartitionData:
        failure = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                await self.brokers.runtime.sleep(_PAUSE_SECONDS)
            try:
                data = await self._ask(partition, offset, max_bytes, wait_ms)
            except ClientError as error:
                failure, self._known = str(error), None
                continue
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                bounds = (await self.bounds()).get(partition, OffsetBounds(0, 0))
                raise OffsetGone(offset, bounds.start, bounds.end)
            if data.error_code in _MOVED:
                failure, self._known = ErrorCode(data.error_code).name, None
                continue
            check(f"cannot read {self.name}-{partition}", data.error_code)
            return data
        raise RequestFailed(f"cannot read {self.name}-{partition}: {failure}")

    async def probe(self) -> UUID:
        """The id of the topic whose records may be read. Raises `RequestFailed` where they may not: on any
        Kafka, a fetch says so."""
        bounds = await self.bounds()
        for partition, bound in bounds.items():
            with suppress(OffsetGone):
                await self.fetch(partition, bound.end, max_bytes=1)
            break
        return (await self._metadata()).topics[0].topic_id

    async def _ask(self, partition: int, offset: int, max_bytes: int, wait_ms: int) -> PartitionData:
        link = await self._leader(partition)
        topic = (await self._metadata()).topics[0]
        response = await link.request(
            FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=max_bytes,
                topics=[
                    FetchTopic(
                        topic_id=topic.topic_id,
                        topic=self.name,
                        partitions=[
                            FetchPartition(
                                partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes
                            )
                        ],
                    )
                ],
            )
        )
        check(f"cannot read {self.name}-{partition}", response.error_code)
        return response.responses[0].partitions[0]

    async def _leader(self, partition: int) -> BrokerLink:
        metadata = await self._metadata()
        leaders = {each.partition_index: each.leader_id for each in metadata.topics[0].partitions}
        if partition not in leaders:
            raise NoSuchPartition(f"topic {self.name} has no partition {partition}")
        link = self.brokers.of(metadata).get(leaders[partition])
        if link is None:
            raise ClientError(f"{self.name}-{partition} has no leader")
        return link

    async def _metadata(self) -> MetadataResponse:
        if self._known is None:
            metadata = await self.brokers.metadata([self.name])
            topic = metadata.topics[0]
            if topic.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
                raise NoSuchTopic(f"there is no topic {self.name}")
            check(f"cannot look at topic {self.name}", topic.error_code)
            if self._topic_id is not None and topic.topic_id != self._topic_id:
                raise NoSuchTopic(f"topic {self.name} was deleted and created again meanwhile")
            self._topic_id = topic.topic_id
            self._known = metadata
        return self._known


def _fetched(data: PartitionData, offset: int, mask: TopicMask | None, match: Match | None) -> Fetched:
    """The wanted records of an answer. The mask comes first: text that it hides cannot be searched for."""
    items: list[FetchedRecord | Unreadable] = []
    following, size = offset, 0
    for batch in batches_in(data.records):
        size += batch.header.length
        following = max(following, batch.header.last_offset + 1)
        try:
            for record in batch.each_record():
                if record.offset < offset:
                    continue
                shown = record if mask is None else mask.applied(record)
                if match is None or match(shown):
                    items.append(FetchedRecord(shown, batch.header))
        except RecordError as error:
            items.append(Unreadable(batch.header, str(error)))
    return Fetched(items, following, size, data.log_start_offset, data.high_watermark)
