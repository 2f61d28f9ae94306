"""How fast a running broker takes records, and gives them back.

python -m bench.throughput [--bootstrap HOST:PORT] [--records 1000000] [--size 1024] [--partitions 16]

Records are produced to a new topic, all of them are fetched, and the topic is deleted. The client is small
and runs in this one process: it tells what to expect of a broker, not what it can do at most. `make bench`
drives brokers with a C client and compares them with Apache Kafka.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from array import array
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from dray.base.config.kinds import GIB, HostPort, Size
from dray.base.runtime import SystemRuntime
from dray.kafka.client import ClientError, Cluster, Dialer, KafkaConnection, RequestFailed
from dray.kafka.client.admin import create_topic, delete_topic
from dray.kafka.client.cluster import Address
from dray.kafka.client.errors import check
from dray.kafka.client.records import LATEST, count_records, fetch, list_offsets, produce
from dray.kafka.protocol import ErrorCode
from dray.kafka.records import BytesColumn, Columns, encode

FETCH_BYTES = 16 * 1024 * 1024
PARTITION_FETCH_BYTES = 4 * 1024 * 1024
READY_SECONDS = 30.0


@dataclass(frozen=True)
class BenchPlan:
    address: Address
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
    dial = Dialer(client_id="dray-bench")
    try:
        async with Cluster([plan.address], dial, runtime) as cluster, AsyncExitStack() as stack:
            connections = [
                await stack.enter_async_context(await dial(*plan.address)) for _ in range(plan.connections)
            ]
            await create_topic(cluster, plan.topic, partitions=plan.partitions)
            try:
                topic_id = await _created(cluster, plan)
                return [
                    await _produce(plan, topic_id, connections, runtime),
                    await _fetch(plan, topic_id, connections, runtime),
                ]
            finally:
                await delete_topic(cluster, plan.topic, may_be_absent=True)
    finally:
        runtime.close()


async def _created(cluster: Cluster, plan: BenchPlan) -> UUID:
    """The topic's id, once all of it is served: Apache Kafka answers a creation earlier than that."""

    async def look() -> UUID:
        await cluster.learn([plan.topic])
        places = [(plan.topic, partition) for partition in range(plan.partitions)]
        found = await list_offsets(cluster, places, LATEST)
        if len(found) < len(places) or any(answer.error_code for answer in found.values()):
            raise RequestFailed(
                f"{':'.join(map(str, plan.address))} does not serve all partitions of {plan.topic}",
                ErrorCode.LEADER_NOT_AVAILABLE,
            )
        return cluster.view.topic_ids[plan.topic]

    return await cluster.patiently(look, READY_SECONDS)


async def _produce(
    plan: BenchPlan, topic_id: UUID, connections: Sequence[KafkaConnection], runtime: SystemRuntime
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
            batch = whole if counts[number] == plan.batch_records else rest
            await produce(connection, plan.topic, topic_id, {number % plan.partitions: batch})
            advance(counts[number])
            outcome.records += counts[number]
            outcome.bytes += counts[number] * plan.size
            return True

        return one

    await _keep_busy(plan, outcome, connections, runtime, send)
    return outcome


async def _fetch(
    plan: BenchPlan, topic_id: UUID, connections: Sequence[KafkaConnection], runtime: SystemRuntime
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
            found = await fetch(
                connection,
                plan.topic,
                topic_id,
                offsets,
                max_bytes=FETCH_BYTES,
                partition_bytes=PARTITION_FETCH_BYTES,
            )
            for data in found:
                check(f"cannot fetch from {plan.topic}-{data.partition_index}", data.error_code)
                count, upto = count_records(data.records)
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


def parse_arguments(given: Sequence[str] | None = None) -> tuple[BenchPlan, bool]:
    parser = argparse.ArgumentParser(prog="python -m bench.throughput", description=__doc__.split("\n")[0])
    parser.add_argument("--bootstrap", default="127.0.0.1:9092", metavar="HOST:PORT", help="the broker")
    parser.add_argument("--records", type=int, default=1_000_000, help="how many records")
    parser.add_argument("--size", type=int, default=1024, help="bytes of a value")
    parser.add_argument("--partitions", type=int, default=16, help="of the topic that is made for it")
    parser.add_argument("--batch-bytes", default="128KiB", help="about the size of a batch")
    parser.add_argument("--in-flight", type=int, default=5, help="requests of a connection under way at once")
    parser.add_argument("--connections", type=int, default=2, help="connections to produce and fetch on")
    parser.add_argument("--topic", default="dray-bench", help="must not exist yet; deleted afterwards")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    chosen = parser.parse_args(given)
    for name in ("records", "size", "partitions", "in_flight", "connections"):
        if getattr(chosen, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be 1 or more")
    try:
        first = HostPort().parse(chosen.bootstrap.split(",")[0].strip())
        batch_bytes = Size(1024, GIB).parse(chosen.batch_bytes)
    except ValueError as error:
        parser.error(str(error))
    plan = BenchPlan(
        address=(first.host, first.port),
        topic=chosen.topic,
        partitions=chosen.partitions,
        records=chosen.records,
        size=chosen.size,
        batch_records=max(1, min(chosen.records, batch_bytes // (chosen.size + 16))),
        in_flight=chosen.in_flight,
        connections=min(chosen.connections, chosen.partitions),
    )
    return plan, chosen.json


def main() -> None:
    plan, as_json = parse_arguments()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            outcomes = runner.run(run(plan))
    except (ClientError, RequestFailed) as error:
        sys.exit(str(error))
    if as_json:
        print(json.dumps([outcome.as_plain() for outcome in outcomes]))
        return
    for outcome in outcomes:
        print(
            f"{outcome.name:<8} {outcome.records:>12,} records {outcome.megabytes_per_second:>9.1f} MB/s "
            f"{outcome.records_per_second:>12,.0f} records/s   p50 {outcome.percentile(0.50) * 1000:.1f} ms "
            f"  p99 {outcome.percentile(0.99) * 1000:.1f} ms"
        )


if __name__ == "__main__":
    main()
