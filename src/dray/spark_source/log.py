"""A topic's log over Kafka's protocol: what there is of it, and its records as Arrow batches."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import UUID

from dray.client import ClientError, KafkaConnection
from dray.protocol import ErrorCode
from dray.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dray.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from dray.protocol.wire import Records
from dray.records import decode
from dray.records.arrow import to_arrow
from dray.runtime import Runtime
from dray.spark_source.options import SourceOptions
from dray.spark_source.ranges import Range

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")

EARLIEST_TIME: Final = -2
LATEST_TIME: Final = -1

_FETCH_BYTES: Final = 16 * 1024 * 1024
_FETCH_WAIT_MS: Final = 500
_RETRY_SECONDS: Final = 0.25
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
# Of a record batch's header: where its length, attributes and the delta of its last offset stand.
_LENGTH_AT: Final = 8
_ATTRIBUTES_AT: Final = 21
_LAST_DELTA_AT: Final = 23
_SMALLEST_HEADER: Final = 61
_CONTROL: Final = 0x20


class SourceError(Exception):
    """The log cannot be read as asked. The message is one line that says what to do."""


class RecordsGone(SourceError):
    """Records that were to be read are no longer in the log."""


class _Passing(Exception):
    """Worth another try, with fresh metadata."""


@dataclass(frozen=True)
class TopicState:
    topic_id: UUID
    starts: Mapping[int, int]
    ends: Mapping[int, int]


class TopicLog:
    """One task's way to the brokers. Connections are kept until `close`; errors that pass are waited out,
    for as long as the options allow."""

    def __init__(self, options: SourceOptions, runtime: Runtime, topic_id: UUID | None = None) -> None:
        """`topic_id`: the topic that offsets are of, where they are given. Another topic of the same name is
        never read in its place."""
        self._options = options
        self._topic_id = topic_id
        self._runtime = runtime
        self._connections: dict[tuple[str, int], KafkaConnection] = {}
        self._known: MetadataResponse | None = None

    async def state(self) -> TopicState:
        """The topic's id, and where each of its partitions starts and ends now."""
        starts = await self.offsets(EARLIEST_TIME)
        ends = await self.offsets(LATEST_TIME)
        metadata = await self._patiently(self._metadata)
        # The ends were read after the starts: none lies before its start, whatever retention did.
        return TopicState(
            metadata.topics[0].topic_id,
            {partition: starts[partition] for partition in sorted(starts) if partition in ends},
            {partition: ends[partition] for partition in sorted(ends) if partition in starts},
        )

    async def offsets(self, time: int) -> dict[int, int]:
        """The first offset at or after a time, by partition; the end where there is no such record."""
        found = await self._patiently(partial(self._offsets, time))
        if time >= 0 and any(offset < 0 for offset in found.values()):
            ends = await self._patiently(partial(self._offsets, LATEST_TIME))
            found = {
                partition: offset if offset >= 0 else ends[partition] for partition, offset in found.items()
            }
        return found

    async def read(self, wanted: Range) -> AsyncIterator[pyarrow.RecordBatch]:
        """The records of a range, in order, in batches of the table's columns."""
        position = wanted.start
        while position < wanted.end:
            data = await self._patiently(partial(self._fetch, wanted.partition, position))
            if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                position = self._skip(wanted, position, (await self.offsets(EARLIEST_TIME))[wanted.partition])
                continue
            batches, following = whole_batches(joined(data.records))
            for run in batches:
                rows = to_arrow(decode(run), wanted.partition)
                offsets = rows.column("offset").to_numpy()
                first = int(offsets.searchsorted(position))
                last = int(offsets.searchsorted(wanted.end))
                if first < last:
                    yield rows.slice(first, last - first)
            if following is None or following <= position:
                raise SourceError(
                    f"{self._options.topic}-{wanted.partition}: the broker has no records from offset "
                    f"{position} on, though the log reached to {wanted.end}"
                )
            position = following

    async def close(self) -> None:
        async with AsyncExitStack() as stack:
            for connection in self._connections.values():
                stack.push_async_callback(connection.close)
            self._connections.clear()

    def _skip(self, wanted: Range, position: int, start: int) -> int:
        if self._options.fail_on_data_loss or start <= position:
            raise RecordsGone(
                f"{self._options.topic}-{wanted.partition}: offset {position} is no longer in the log, which "
                f"starts at {start}; start further on, or set failOnDataLoss to false to skip what is gone"
            )
        return start

    # --- single requests

    async def _metadata(self) -> MetadataResponse:
        """Asked once, until something fails."""
        if self._known is not None:
            return self._known
        connection = await self._any_broker()
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=self._options.topic)], allow_auto_topic_creation=False
        )
        metadata = await connection.request(asked)
        code = metadata.topics[0].error_code
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise SourceError(f"there is no topic {self._options.topic}")
        if code:
            raise _Passing(f"topic {self._options.topic}: {_name(code)}")
        if self._topic_id is not None and metadata.topics[0].topic_id != self._topic_id:
            raise SourceError(f"topic {self._options.topic} was deleted and created again meanwhile")
        self._known = metadata
        return metadata

    async def _offsets(self, time: int) -> dict[int, int]:
        metadata = await self._metadata()
        by_leader: dict[int, list[ListOffsetsPartition]] = {}
        wanted = self._options.partitions
        for partition in metadata.topics[0].partitions:
            if wanted is None or partition.partition_index in wanted:
                asked = ListOffsetsPartition(partition_index=partition.partition_index, timestamp=time)
                by_leader.setdefault(partition.leader_id, []).append(asked)
        missing = (wanted or frozenset()) - {each.partition_index for each in metadata.topics[0].partitions}
        if missing:
            raise SourceError(f"topic {self._options.topic} has no partition {min(missing)}")
        found: dict[int, int] = {}
        for leader, partitions in by_leader.items():
            connection = await self._broker(metadata, leader)
            topic = ListOffsetsTopic(name=self._options.topic, partitions=partitions)
            response = await connection.request(ListOffsetsRequest(replica_id=-1, topics=[topic]))
            for answer in response.topics[0].partitions:
                _check(self._options.topic, answer.partition_index, answer.error_code)
                found[answer.partition_index] = answer.offset
        return found

    async def _fetch(self, partition: int, offset: int) -> PartitionData:
        metadata = await self._metadata()
        topic = metadata.topics[0]
        leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        if partition not in leaders:
            raise SourceError(f"topic {self._options.topic} has no partition {partition}")
        connection = await self._broker(metadata, leaders[partition])
        asked = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCH_BYTES)
        response = await connection.request(
            FetchRequest(
                max_wait_ms=_FETCH_WAIT_MS,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                topics=[FetchTopic(topic_id=topic.topic_id, topic=self._options.topic, partitions=[asked])],
            )
        )
        if response.error_code:
            raise _Passing(_name(response.error_code))
        data = response.responses[0].partitions[0]
        if data.error_code != ErrorCode.OFFSET_OUT_OF_RANGE:
            _check(self._options.topic, partition, data.error_code)
        return data

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Again and again while it fails for reasons that pass: a broker that died has successors."""
        deadline = self._runtime.monotonic() + self._options.timeout_seconds
        while True:
            try:
                return await attempt()
            except (ClientError, _Passing) as error:
                self._known = None
                await self.close()
                if self._runtime.monotonic() >= deadline:
                    raise SourceError(
                        f"topic {self._options.topic} was not readable for "
                        f"{self._options.timeout_seconds:g} s: {error}"
                    ) from error
            await self._runtime.sleep(_RETRY_SECONDS)

    # --- connections

    async def _any_broker(self) -> KafkaConnection:
        failure: ClientError | None = None
        for address in (*self._connections, *self._options.bootstrap):
            try:
                return await self._connection(address)
            except ClientError as error:
                failure = error
        raise failure or ClientError("no broker is named")

    async def _broker(self, metadata: MetadataResponse, node: int) -> KafkaConnection:
        for broker in metadata.brokers:
            if broker.node_id == node:
                return await self._connection((broker.host, broker.port))
        raise _Passing(f"topic {self._options.topic}: a partition has no leader")

    async def _connection(self, address: tuple[str, int]) -> KafkaConnection:
        found = self._connections.get(address)
        if found is None:
            found = await KafkaConnection.connect(*address, client_id="dray-spark")
            await found.negotiate()
            self._connections[address] = found
        return found


def whole_batches(data: bytes | bytearray | memoryview) -> tuple[list[memoryview], int | None]:
    """Runs of record batches without what is not records (control batches, a batch cut off at the end), and
    the offset after the last batch, None if there is none."""
    view = memoryview(data)
    runs: list[memoryview] = []
    begun = position = 0
    following: int | None = None
    while position + _SMALLEST_HEADER <= len(view):
        size = view[position + _LENGTH_AT : position + _LENGTH_AT + 4]
        length = 12 + int.from_bytes(size, "big", signed=True)
        if length < _SMALLEST_HEADER or position + length > len(view):
            break
        header = view[position : position + _SMALLEST_HEADER]
        last_delta = int.from_bytes(header[_LAST_DELTA_AT : _LAST_DELTA_AT + 4], "big", signed=True)
        following = int.from_bytes(header[:8], "big", signed=True) + last_delta + 1
        if int.from_bytes(header[_ATTRIBUTES_AT : _ATTRIBUTES_AT + 2], "big") & _CONTROL:
            if begun < position:
                runs.append(view[begun:position])
            begun = position + length
        position += length
    if begun < position:
        runs.append(view[begun:position])
    return runs, following


def joined(records: Records | None) -> bytes | bytearray | memoryview:
    """Responses are decoded with their records in one piece; only those that are sent may have several."""
    if records is None:
        return b""
    return records if isinstance(records, bytes | bytearray | memoryview) else b"".join(records)


def _check(topic: str, partition: int, code: int) -> None:
    if code in _PASSING:
        raise _Passing(f"{topic}-{partition}: {_name(code)}")
    if code:
        raise SourceError(f"{topic}-{partition}: {_name(code)}")


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
