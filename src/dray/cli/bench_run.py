"""The work of `drayd bench`: a few connections that keep their requests in flight."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from struct import Struct
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dray.client import KafkaConnection
from dray.client.admin import LATEST, check, create_topic, delete_topic, list_topics
from dray.daemon.failures import Failure
from dray.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.protocol.messages.metadata import MetadataResponseTopic
from dray.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.records import BytesColumn, Columns, encode
from dray.runtime import SystemRuntime

FETCH_BYTES = 16 * 1024 * 1024
PARTITION_FETCH_BYTES = 4 * 1024 * 1024
WAIT_MS = 500
TIMEOUT_MS = 30_000

_BATCH_START = Struct(">qi")
_BATCH_OVERHEAD = 12  # base offset and length, which the length does not count
_RECORD_COUNT = Struct(">i")
_RECORD_COUNT_AT = 57


@dataclass(frozen=True)
class BenchPlan:
    host: str
    port: int
    topic: str
    partitions: int
    records: int
    size: int
    batch_records: int
    in_flight: int
    connections: int

    def batches(self) -> list[int]:
        """How many records each batch holds; batch n goes to partition n mod partitions."""
        rest = self.records % self.batch_records
        return [self.batch_records] * (self.records // self.batch_records) + [rest] * bool(rest)

    def ends(self) -> list[int]:
        """The end offset of each partition when all is produced."""
        batches = self.batches()
        return [sum(batches[partition :: self.partitions]) for partition in range(self.partitions)]


@dataclass
class BenchResult:
    name: str
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    @property
    def megabytes_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    def percentile(self, share: float) -> float:
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    def as_plain(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "records": self.records,
            "bytes": self.bytes,
            "seconds": round(self.seconds, 3),
            "megabytes_per_second": round(self.megabytes_per_second, 1),
            "records_per_second": round(self.records_per_second),
            "request_p50_ms": round(self.percentile(0.50) * 1000, 2),
            "request_p99_ms": round(self.percentile(0.99) * 1000, 2),
        }


async def run(plan: BenchPlan) -> list[BenchResult]:
    """Make the topic, fill it, read it back, delete it."""
    runtime = SystemRuntime()
    connections = [await _connect(plan) for _ in range(plan.connections)]
    try:
        await create_topic(connections[0], plan.topic, partitions=plan.partitions)
        try:
            topic = await _created(connections[0], plan, runtime)
            return [
                await _produce(plan, topic, connections, runtime),
                await _fetch(plan, topic, connections, runtime),
            ]
        finally:
            await delete_topic(connections[0], plan.topic, may_be_absent=True)
    finally:
        for connection in connections:
            await connection.close()
        runtime.close()


async def _connect(plan: BenchPlan) -> KafkaConnection:
    connection = await KafkaConnection.connect(plan.host, plan.port, client_id="drayd-bench")
    await connection.negotiate()
    return connection


async def _created(
    connection: KafkaConnection, plan: BenchPlan, runtime: SystemRuntime
) -> MetadataResponseTopic:
    """The topic, once this broker serves all of it: Apache Kafka answers a creation earlier than that."""
    deadline = runtime.monotonic() + TIMEOUT_MS / 1000
    while True:
        for topic in await list_topics(connection):
            if topic.name == plan.topic and await _served(connection, plan):
                return topic
        if runtime.monotonic() > deadline:
            raise Failure(f"{plan.host}:{plan.port} does not serve all partitions of {plan.topic}")
        await runtime.sleep(0.05)


async def _served(connection: KafkaConnection, plan: BenchPlan) -> bool:
    asked = [
        ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(plan.partitions)
    ]
    response = await connection.request(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=plan.topic, partitions=asked)])
    )
    return all(item.error_code == 0 for topic in response.topics for item in topic.partitions)


async def _produce(
    plan: BenchPlan,
    topic: MetadataResponseTopic,
    connections: Sequence[KafkaConnection],
    runtime: SystemRuntime,
) -> BenchResult:
    outcome = BenchResult("produce")
    whole = make_batch(plan.batch_records, plan.size, runtime)
    counts = plan.batches()
    rest = make_batch(counts[-1], plan.size, runtime)
    numbers = iter(range(len(counts)))

    def send(connection: KafkaConnection, advance: Callable[[int], None]) -> Callable[[], Awaitable[bool]]:
        async def one() -> bool:
            number = next(numbers, None)
            if number is None:
                return False
            partition = number % plan.partitions
            data = PartitionProduceData(
                index=partition, records=whole if counts[number] == plan.batch_records else rest
            )
            response = await connection.request(
                ProduceRequest(
                    acks=-1,
                    timeout_ms=TIMEOUT_MS,
                    topic_data=[
                        TopicProduceData(topic_id=topic.topic_id, name=plan.topic, partition_data=[data])
                    ],
                )
            )
            answer = response.responses[0].partition_responses[0]
            check(f"cannot produce to {plan.topic}-{partition}", answer.error_code, answer.error_message)
            advance(counts[number])
            outcome.records += counts[number]
            outcome.bytes += counts[number] * plan.size
            return True

        return one

    await _keep_busy(plan, outcome, connections, runtime, send)
    return outcome


async def _fetch(
    plan: BenchPlan,
    topic: MetadataResponseTopic,
    connections: Sequence[KafkaConnection],
    runtime: SystemRuntime,
) -> BenchResult:
    """Each connection reads a share of the partitions, one request after the other, as consumers do."""
    outcome = BenchResult("fetch")
    share = {connection: number for number, connection in enumerate(connections)}
    ends = plan.ends()

    def read(connection: KafkaConnection, advance: Callable[[int], None]) -> Callable[[], Awaitable[bool]]:
        mine = range(share[connection], plan.partitions, len(connections))
        offsets = {partition: 0 for partition in mine if ends[partition]}

        async def one() -> bool:
            if not offsets:
                return False
            response = await connection.request(_fetch_request(plan, topic, offsets))
            check(f"cannot fetch from {plan.topic}", response.error_code)
            for answered in response.responses:
                for data in answered.partitions:
                    check(f"cannot fetch from {plan.topic}-{data.partition_index}", data.error_code)
                    if not isinstance(data.records, bytes | bytearray | memoryview):
                        continue
                    count, upto = count_records(memoryview(data.records))
                    if count:
                        offsets[data.partition_index] = upto
                        outcome.records += count
                        outcome.bytes += count * plan.size
                        advance(count)
                    if offsets[data.partition_index] >= ends[data.partition_index]:
                        del offsets[data.partition_index]
            return True

        return one

    # Offsets come from the answer before: there is nothing to pipeline.
    await _keep_busy(replace(plan, in_flight=1), outcome, connections, runtime, read)
    return outcome


def _fetch_request(plan: BenchPlan, topic: MetadataResponseTopic, offsets: dict[int, int]) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        max_bytes=FETCH_BYTES,
        topics=[
            FetchTopic(
                topic_id=topic.topic_id,
                topic=plan.topic,
                partitions=[
                    FetchPartition(
                        partition=partition, fetch_offset=offset, partition_max_bytes=PARTITION_FETCH_BYTES
                    )
                    for partition, offset in offsets.items()
                ],
            )
        ],
    )


async def _keep_busy(
    plan: BenchPlan,
    outcome: BenchResult,
    connections: Sequence[KafkaConnection],
    runtime: SystemRuntime,
    make: Callable[[KafkaConnection, Callable[[int], None]], Callable[[], Awaitable[bool]]],
) -> None:
    """Run the step that `make` makes for a connection again and again, several at once, until it says no."""

    async def repeat(step: Callable[[], Awaitable[bool]]) -> None:
        going = True
        while going:
            begun = runtime.monotonic()
            going = await step()
            if going:
                outcome.latencies.append(runtime.monotonic() - begun)

    with _progress(outcome.name, plan.records) as advance:
        begun = runtime.monotonic()
        steps = [make(connection, advance) for connection in connections]
        try:
            async with asyncio.TaskGroup() as group:
                for step in steps:
                    for _ in range(plan.in_flight):
                        group.create_task(repeat(step))
        except ExceptionGroup as group_error:
            # They fail together when the broker goes away: one reason is enough.
            raise group_error.exceptions[0] from None
        outcome.seconds = runtime.monotonic() - begun


@contextmanager
def _progress(name: str, total: int) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description:>8}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=total)
        yield lambda count: progress.advance(task, count)


def make_batch(count: int, size: int, runtime: SystemRuntime) -> bytearray:
    """One record batch of random values, uncompressed, without a producer id."""
    zeros = bytes(4 * (count + 1))
    none_each = array("i", [-1] * count).tobytes()
    nothing = BytesColumn(zeros[:4], b"", None)
    columns = Columns(
        row_count=count,
        header_count=0,
        offsets=array("q", range(count)).tobytes(),
        timestamps=array("q", [runtime.wall_ms()] * count).tobytes(),
        producer_ids=array("q", [-1] * count).tobytes(),
        producer_epochs=none_each,
        base_sequences=none_each,
        attributes=zeros[:-4],
        keys=BytesColumn(zeros, b"", bytes((count + 7) // 8)),
        values=BytesColumn(
            array("i", range(0, (count + 1) * size, size)).tobytes(),
            runtime.random.randbytes(count * size),
            None,
        ),
        headers=zeros,
        header_keys=nothing,
        header_values=nothing,
    )
    return encode(columns, batch_bytes=1 << 30)


def count_records(records: memoryview) -> tuple[int, int]:
    """How many records these batches hold, and the offset after the last; a cut-off batch counts not."""
    position = count = upto = 0
    while position + _BATCH_OVERHEAD <= len(records):
        base_offset, length = _BATCH_START.unpack_from(records, position)
        end = position + _BATCH_OVERHEAD + length
        if end > len(records):
            break
        (in_batch,) = _RECORD_COUNT.unpack_from(records, position + _RECORD_COUNT_AT)
        count += in_batch
        upto = base_offset + in_batch
        position = end
    return count, upto
