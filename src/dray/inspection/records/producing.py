"""Records produced: one, by people who try something out, and those of a range once more.

A range goes to another topic, or to the same. Keys, values, headers and times stay. A batch is sent once. If
the answer is lost, it is not known whether the batch is stored: then the replay stops, and says up to which
offset it came for certain.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from dray.base.runtime import Runtime, run_once
from dray.inspection.brokers import Brokers, BrokerUnreachable, HostPort
from dray.inspection.records.matching import Match
from dray.inspection.records.ranges import Spans, items_in, offsets_in
from dray.inspection.records.reading import NoSuchPartition, NoSuchTopic, TopicReader, Unreadable
from dray.kafka.client import ClientError, KafkaConnection, RequestFailed
from dray.kafka.client.errors import check
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.metadata import MetadataResponse
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import BytesColumn, Columns, Record, encode

_TIMEOUT_MS: Final = 10_000
_ALL: Final = -1


async def produce(
    brokers: Brokers, topic: str, partition: int | None, key: bytes | None, value: bytes | None
) -> tuple[int, int]:
    """The partition and the offset that the record got. The record is sent once. If the answer is lost, it is
    not known whether the record is stored."""
    metadata = await brokers.metadata([topic])
    found = metadata.topics[0]
    if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise NoSuchTopic(f"there is no topic {topic}")
    check(f"cannot produce to {topic}", found.error_code)
    leaders = {item.partition_index: item.leader_id for item in found.partitions}
    chosen = brokers.runtime.random.choice(sorted(leaders)) if partition is None else partition
    if chosen not in leaders:
        raise NoSuchPartition(f"topic {topic} has no partition {chosen}")
    address = next(
        ((each.host, each.port) for each in metadata.brokers if each.node_id == leaders[chosen]), None
    )
    if address is None:
        raise ClientError(f"{topic}-{chosen} has no leader")
    batch = encode_records([Record(0, brokers.runtime.wall_ms(), key, value, [])])
    async with brokers.fresh(address) as connection:
        return chosen, await produce_batch(connection, topic, found.topic_id, chosen, batch)


async def produce_batch(
    connection: KafkaConnection, topic: str, topic_id: UUID, partition: int, batch: bytearray
) -> int:
    """The offset that its first record got."""
    request = ProduceRequest(
        acks=_ALL,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                topic_id=topic_id,
                name=topic,
                partition_data=[PartitionProduceData(index=partition, records=batch)],
            )
        ],
    )
    response = await connection.request(request)
    answer = response.responses[0].partition_responses[0]
    check(f"cannot produce to {topic}-{partition}", answer.error_code, answer.error_message)
    return answer.base_offset


def encode_records(records: Sequence[Record]) -> bytearray:
    """One batch of them, in their order; offsets are the broker's to give."""
    count = len(records)
    headers = [header for record in records for header in record.headers]
    ends = [0]
    for record in records:
        ends.append(ends[-1] + len(record.headers))
    none = array("i", [-1] * count).tobytes()
    return encode(
        Columns(
            row_count=count,
            header_count=len(headers),
            offsets=array("q", range(count)).tobytes(),
            timestamps=array("q", [record.timestamp for record in records]).tobytes(),
            producer_ids=array("q", [-1] * count).tobytes(),
            producer_epochs=none,
            base_sequences=none,
            attributes=bytes(4 * count),
            keys=_column([record.key for record in records]),
            values=_column([record.value for record in records]),
            headers=array("i", ends).tobytes(),
            header_keys=_column([name.encode() for name, _ in headers]),
            header_values=_column([value for _, value in headers]),
        )
    )


def _column(items: Sequence[bytes | None]) -> BytesColumn:
    ends, there = [0], bytearray((len(items) + 7) // 8)
    for number, item in enumerate(items):
        ends.append(ends[-1] + len(item or b""))
        there[number >> 3] |= (item is not None) << (number & 7)
    return BytesColumn(array("i", ends).tobytes(), b"".join(item or b"" for item in items), bytes(there))


# --- a range once more


MOST_OFFSETS: Final = 1_000_000
KEPT: Final = 20
BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 512 * 1024

RUNNING: Final = "running"
DONE: Final = "done"
STOPPED: Final = "stopped"
FAILED: Final = "failed"


class ReplayRefused(Exception):
    """A replay is not begun. The text says why."""


class NoSuchReplay(Exception):
    """There is no replay of that number any more."""


@dataclass(frozen=True)
class ReplayView:
    number: int
    source: str
    target: str
    state: str
    offsets: int
    """Of the range,"""
    looked_at: int
    """those that were looked at,"""
    written: int
    """and the records that are stored in the target."""
    begun_ms: int
    ended_ms: int | None
    trouble: str | None


@dataclass
class _Replay:
    number: int
    source: str
    target: str
    spans: Spans
    begun_ms: int
    at: dict[int, int]
    state: str = RUNNING
    written: int = 0
    ended_ms: int | None = None
    trouble: str | None = None
    stop_asked: bool = False

    def view(self) -> ReplayView:
        looked = sum(self.at[number] - start for number, (start, _) in self.spans.items())
        return ReplayView(
            self.number,
            self.source,
            self.target,
            self.state,
            offsets_in(self.spans),
            looked,
            self.written,
            self.begun_ms,
            self.ended_ms,
            self.trouble,
        )


class Replays:
    """The replays of a console: one at a time, the last of them remembered."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._known: deque[_Replay] = deque(maxlen=KEPT)
        self._count = 0

    def views(self) -> list[ReplayView]:
        return [replay.view() for replay in reversed(self._known)]

    def view(self, number: int) -> ReplayView:
        return self._find(number).view()

    def stop(self, number: int) -> None:
        self._find(number).stop_asked = True

    def start(
        self,
        brokers: Brokers,
        reader: TopicReader,
        spans: Spans,
        match: Match | None,
        target: str,
        audit: Callable[[], AbstractContextManager[None]],
    ) -> ReplayView:
        """`brokers` are its own, and closed at its end. `audit` is entered for as long as it runs."""
        if any(replay.state == RUNNING for replay in self._known):
            raise ReplayRefused("another replay runs: wait for its end, or stop it")
        if offsets_in(spans) > MOST_OFFSETS:
            raise ReplayRefused(f"a replay is of at most {MOST_OFFSETS} offsets: narrow the range")
        self._count += 1
        replay = _Replay(
            self._count,
            reader.name,
            target,
            dict(spans),
            self._runtime.wall_ms(),
            {number: start for number, (start, _) in spans.items()},
        )
        self._known.append(replay)
        run_once(self._runtime, "replay records", self._run, replay, brokers, reader, match, audit)
        return replay.view()

    def _find(self, number: int) -> _Replay:
        for replay in self._known:
            if replay.number == number:
                return replay
        raise NoSuchReplay(f"there is no replay {number} any more")

    async def _run(
        self,
        replay: _Replay,
        brokers: Brokers,
        reader: TopicReader,
        match: Match | None,
        audit: Callable[[], AbstractContextManager[None]],
    ) -> None:
        try:
            with audit():
                await _copy(replay, brokers, reader, match)
            replay.state = STOPPED if replay.stop_asked else DONE
        except (
            ClientError,
            RequestFailed,
            BrokerUnreachable,
            NoSuchTopic,
            NoSuchPartition,
            ReplayRefused,
        ) as error:
            replay.state, replay.trouble = FAILED, str(error)
        finally:
            if replay.state == RUNNING:
                replay.state, replay.trouble = FAILED, "the console ended it"
            replay.ended_ms = self._runtime.wall_ms()
            await brokers.close()


async def _copy(replay: _Replay, brokers: Brokers, reader: TopicReader, match: Match | None) -> None:
    async with AsyncExitStack() as stack:
        writer = _Writer(brokers, replay.target, stack)
        await writer.begin()
        waiting: list[Record] = []
        size = 0
        partition = -1

        async def flush() -> None:
            nonlocal waiting, size
            if waiting:
                batch, waiting, size = waiting, [], 0
                await writer.write(partition, batch)
                replay.written += len(batch)

        async for item in items_in(reader, replay.spans, match):
            if item.partition != partition:
                await flush()
                partition = item.partition
            if isinstance(item.record, Unreadable):
                raise ReplayRefused(f"a batch cannot be decoded: {item.record.reason}")
            if item.record is not None:
                record = item.record.record
                waiting.append(record)
                size += len(record.key or b"") + len(record.value or b"")
            if size >= BATCH_BYTES or len(waiting) >= BATCH_RECORDS or item.record is None:
                await flush()
                replay.at[item.partition] = item.following
                if replay.stop_asked:
                    return
        await flush()


@dataclass
class _Writer:
    brokers: Brokers
    topic: str
    stack: AsyncExitStack
    _metadata: MetadataResponse | None = None
    _connections: dict[HostPort, KafkaConnection] = field(default_factory=dict)

    async def begin(self) -> None:
        self._metadata = await self.brokers.metadata([self.topic])
        found = self._metadata.topics[0]
        check(f"cannot produce to {self.topic}", found.error_code)

    async def write(self, source: int, records: Sequence[Record]) -> None:
        assert self._metadata is not None
        topic = self._metadata.topics[0]
        leaders: Mapping[int, int] = {item.partition_index: item.leader_id for item in topic.partitions}
        partition = source if source in leaders else sorted(leaders)[source % len(leaders)]
        address = next(
            ((each.host, each.port) for each in self._metadata.brokers if each.node_id == leaders[partition]),
            None,
        )
        if address is None:
            raise ClientError(f"{self.topic}-{partition} has no leader")
        connection = self._connections.get(address)
        if connection is None:
            connection = await self.stack.enter_async_context(self.brokers.fresh(address))
            self._connections[address] = connection
        await produce_batch(connection, self.topic, topic.topic_id, partition, encode_records(records))
