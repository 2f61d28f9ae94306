"""A topic read over Kafka's protocol: bounds, times, and records from an offset on.

A read follows leaders: what fails because a leader moved is asked again, of the new one.

Who reads much (a search, an export) reads gently: other clients of the brokers, and other processes of this
machine, come first (`pace.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final
from uuid import UUID

from dray import __version__
from dray.client import ClientError, RequestFailed
from dray.client.errors import check
from dray.client.records import EARLIEST, LATEST
from dray.inspection.batches import BatchDetails, Record, RecordError, batches_in
from dray.inspection.brokers import BrokerLink, Brokers
from dray.inspection.masking import TopicMask
from dray.inspection.matching import Match
from dray.inspection.pace import Pace, pause_after, step_of
from dray.protocol import ErrorCode
from dray.protocol.messages.api_versions import ApiVersionsRequest
from dray.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dray.protocol.messages.metadata import MetadataResponse

FETCH_BYTES: Final = 1024 * 1024
GENTLE_BYTES: Final = 128 * 1024
"""An answer to a fetch takes a broker's event loop in one go, and more bytes take it for longer."""

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
    """Where to go on: after everything that was looked at."""
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
    """What of the records is hidden: they are read without it."""
    pace: Pace = field(default_factory=Pace)
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
        """As `fetch`, one of many: in small pieces, and with pauses while the brokers are busy."""
        runtime = self.brokers.runtime
        self.brokers.at_work()
        if self.pace.wants_to_hear(runtime.monotonic()):
            await self._listen(partition)
        if self.pace.pause:
            await runtime.sleep(self.pace.pause)
        data = await self._data(partition, offset, GENTLE_BYTES, 0)
        if not self.brokers.is_crowded():
            return await runtime.in_thread(_fetched, data, offset, self.mask, match)
        sifted = _Sifted(data, offset, self.mask, match)
        steps = sifted.steps()
        while True:
            begun = runtime.monotonic()
            if not await runtime.in_thread(next, steps, False):
                return sifted.fetched()
            await runtime.sleep(pause_after(runtime.monotonic() - begun))

    async def _listen(self, partition: int) -> None:
        """How long the partition's broker takes to answer what is no work: the rest is other clients'. What
        is wrong with it, the fetch that follows finds out, and tries again."""
        runtime = self.brokers.runtime
        question = ApiVersionsRequest(client_software_name="dray", client_software_version=__version__)
        with suppress(ClientError):
            link = await self._leader(partition)
            begun = runtime.monotonic()
            await link.request(question)
            now = runtime.monotonic()
            self.pace.hear(now - begun, now)

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

    async def probe(self) -> None:
        """Raises `RequestFailed` where the records may not be read: on any Kafka, a fetch says so."""
        bounds = await self.bounds()
        for partition, bound in bounds.items():
            with suppress(OffsetGone):
                await self.fetch(partition, bound.end, max_bytes=1)
            return

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
    sifted = _Sifted(data, offset, mask, match)
    for _ in sifted.steps():
        pass
    return sifted.fetched()


class _Sifted:
    """What a fetch brought, taken apart step by step. The mask comes first: what it hides cannot be searched
    for."""

    def __init__(self, data: PartitionData, offset: int, mask: TopicMask | None, match: Match | None) -> None:
        self._data = data
        self._offset = offset
        self._mask = mask
        self._match = match
        self._items: list[FetchedRecord | Unreadable] = []
        self._following = offset
        self._size = 0

    def fetched(self) -> Fetched:
        """Once all steps are done."""
        data = self._data
        return Fetched(self._items, self._following, self._size, data.log_start_offset, data.high_watermark)

    def steps(self) -> Iterator[bool]:
        for batch in batches_in(self._data.records):
            self._size += batch.header.length
            self._following = max(self._following, batch.header.last_offset + 1)
            try:
                records = batch.each_record()
                length = step_of(batch.header.record_count)
                while some := list(islice(records, length)):
                    self._sift(batch.header, some)
                    yield True
            except RecordError as error:
                self._items.append(Unreadable(batch.header, str(error)))

    def _sift(self, batch: BatchDetails, records: Sequence[Record]) -> None:
        wanted = [record for record in records if record.offset >= self._offset]
        if self._mask is not None:
            wanted = [self._mask.applied(record) for record in wanted]
        self._items += [
            FetchedRecord(record, batch) for record in wanted if self._match is None or self._match(record)
        ]
