"""How the cost of a broker grows as its work grows: seven directions at sizes of one's choice, and exponents.

    python -m bench.growth [--only partitions,age] [--sizes 100,1000,10000] [--seconds 10] [--directory DIR]
    DRAY_TEST_METADATA=oxia python -m bench.growth --only brokers --sizes 1,3,7

  partitions   made, written to once, idle, asked for, and read by one idle consumer that has them all
  brokers      beside one that commits 50 times a second: idle, then with a consumer each of that partition
  age          entries of one partition that nobody compacts or packs: committed, read, the older half deleted
  groups       of one member each, KIP-848 and classic: joined, a heartbeat, idle
  connections  opened, and idle
  producers    idempotent ids on one partition, each sends a record
  topics       of one partition: made, idle, asked for, deleted

What is measured is the processor time of brokers, by the kernel's counters, and how often they ask their
stores; wall times are not, since others may use the machine. The counters tick every 10 ms: what stays below
two ticks is left out.

The exponent of a row is the slope of its logarithm over that of the size, by least squares. Beside it stands
what it ought to be, and `!` where it is more by a quarter. Rows of "each" are what was done divided by the
size, and ought to be flat. docs/growth.md has the curves and what was learnt from them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import shutil
import tempfile
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from rich.console import Console
from rich.table import Table
from tests.services.brokers import Brokers
from tests.services.dray import DrayProcess

from bench.compare import RESULTS, describe_machine
from bench.group_members import ClassicMember, ConsumerMember, connections
from bench.harness import cpu_seconds_of, resident_bytes_of
from bench.idempotent_pipeline import numbered
from dray.inspection.storage.scrape import numbers_in
from dray.kafka.client import KafkaConnection
from dray.kafka.client.records import count_records
from dray.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.metadata import MetadataRequest
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import Record, twin

TOPIC = "grows"
PARTITIONS_OF_A_TOPIC = 1000
AT_ONCE = 200
COMMITS_PER_SECOND = 50
ASKED = 20  # times, for what takes a millisecond
WAIT_MS = 500
TICKS = 0.02
TOO_MUCH = 0.25


class Figure(NamedTuple):
    value: float
    ought: float  # its exponent


Found = dict[str, Figure]


@dataclass(slots=True)
class Cost:
    """What brokers did while something was done."""

    cpu: float = 0.0
    resident: float = 0.0
    reads: float = 0.0  # of the metadata store
    writes: float = 0.0
    gets: float = 0.0  # of the object store
    seconds: float = 0.0

    def ms(self, divisor: float) -> float:
        """Processor milliseconds for each; 0 where it cannot be told from nothing."""
        return 1000 * self.cpu / divisor if self.cpu >= TICKS else 0.0


@contextmanager
def watched(*brokers: DrayProcess) -> Iterator[Cost]:
    """All of them together."""
    cost = Cost()
    asked, used, began = calls_of(brokers), usage_of(brokers), time.monotonic()
    yield cost
    cost.seconds = time.monotonic() - began
    # Before the brokers are asked for their metrics, which costs them ten milliseconds.
    cost.cpu, cost.resident = grown(used, usage_of(brokers))
    cost.reads, cost.writes, cost.gets = grown(asked, calls_of(brokers))


def grown(before: Sequence[float], now: Sequence[float]) -> list[float]:
    return [late - early for early, late in zip(before, now, strict=True)]


def usage_of(brokers: Sequence[DrayProcess]) -> list[float]:
    """Processor seconds, and bytes of memory."""
    cpu = sum(cpu_seconds_of(broker.pid) for broker in brokers)
    return [cpu, float(sum(resident_bytes_of(broker.pid) for broker in brokers))]


def calls_of(brokers: Sequence[DrayProcess]) -> list[float]:
    """Reads and writes of the metadata store, and reads of the object store."""
    calls = {"reads": 0.0, "write": 0.0, "get_ranges": 0.0}
    for broker in brokers:
        for (series, labels), value in numbers_in(broker.http_text("/metrics")).items():
            operation = dict(labels).get("operation", "")
            if series == "dray_metadata_seconds_count":
                calls["write" if operation == "write" else "reads"] += value
            elif series == "dray_object_store_seconds_count" and operation == "get_ranges":
                calls[operation] += value
    return list(calls.values())


async def idle(seconds: float, *brokers: DrayProcess) -> Cost:
    with watched(*brokers) as cost:
        await asyncio.sleep(seconds)
    return cost


# --- requests


def checked(codes: Iterable[int]) -> None:
    for code in codes:
        if code:
            raise RuntimeError(f"the broker answered with error {code}")


def by_some(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[first : first + AT_ONCE] for first in range(0, len(names), AT_ONCE))


async def create(connection: KafkaConnection, names: Sequence[str], partitions: int) -> None:
    kept = [CreatableTopicConfig("retention.ms", "-1")]
    for some in by_some(names):
        topics = [CreatableTopic(name, partitions, 1, configs=kept) for name in some]
        answer = await connection.request(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
        checked(topic.error_code for topic in answer.topics)


async def delete(connection: KafkaConnection, names: Sequence[str]) -> None:
    for some in by_some(names):
        request = DeleteTopicsRequest(topic_names=list(some), timeout_ms=60_000)
        checked(each.error_code for each in (await connection.request(request, 5)).responses)


def small_batch() -> bytearray:
    return twin.encode([Record(0, time.time_ns() // 1_000_000, None, bytes(100))])


async def produce(
    connection: KafkaConnection, batch: bytearray, topic: str = TOPIC, partitions: Iterable[int] = (0,)
) -> None:
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(each, batch) for each in partitions]
    )
    request = ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data])
    answer = await connection.request(request, 9)
    checked(each.error_code for each in answer.responses[0].partition_responses)


async def fetch(connection: KafkaConnection, offset: int, wait_ms: int = 0) -> int:
    """How far it came."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=4 << 20)
    topics = [FetchTopic(topic=TOPIC, partitions=[part])]
    request = FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=16 << 20, topics=topics)
    [found] = (await connection.request(request, 11)).responses[0].partitions
    checked([found.error_code])
    return max(offset, count_records(found.records)[1])


async def ask_metadata(connection: KafkaConnection) -> None:
    """Of everything."""
    checked(topic.error_code for topic in (await connection.request(MetadataRequest(topics=None), 12)).topics)


# --- the directions: each starts its brokers, and says what it found


@dataclass(frozen=True)
class Place:
    directory: Path
    seconds: float

    @asynccontextmanager
    async def broker(self, settings: Mapping[str, str] | None = None) -> AsyncIterator[Broker]:
        async with AsyncExitStack() as stack:
            process = stack.enter_context(DrayProcess(self.directory / "broker", settings=settings))
            [connection] = await connections(process.bootstrap, 1, stack)
            yield Broker(process, connection)


class Broker(NamedTuple):
    process: DrayProcess
    connection: KafkaConnection


async def partitions(place: Place, size: int) -> Found:
    of_one = min(size, PARTITIONS_OF_A_TOPIC)
    names = [f"{TOPIC}-{number}" for number in range(-(-size // of_one))]
    size = len(names) * of_one
    async with place.broker() as (broker, connection):
        with watched(broker) as made:
            await create(connection, names, of_one)
        untouched = await idle(place.seconds, broker)
        with watched(broker) as asked:
            await ask_metadata(connection)
        batch = small_batch()
        with watched(broker) as written:
            for name in names:
                for first in range(0, of_one, AT_ONCE):
                    await produce(connection, batch, name, range(first, min(first + AT_ONCE, of_one)))
        with watched(broker) as lone:
            for _ in range(ASKED * 5):
                await produce(connection, batch, names[0])
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "idle", "log_level": 0})
        try:
            ends = [TopicPartition(name, each, 1) for name in names for each in range(of_one)]
            ends[0].offset += ASKED * 5
            consumer.assign(ends)
            if consumer.poll(max(3.0, place.seconds)) is not None:
                raise RuntimeError("there was a record behind the last one")
            read = await idle(place.seconds, broker)
        finally:
            consumer.close()
    return {
        "made, CPU ms each": Figure(made.ms(size), 0),
        "idle, CPU % of a core": Figure(untouched.ms(10 * untouched.seconds), 0),
        "Metadata of all, CPU ms": Figure(asked.ms(1), 1),
        "written to once, CPU ms each": Figure(written.ms(size), 0),
        "one record, CPU ms": Figure(lone.ms(ASKED * 5), 0),
        "memory of each, KiB": Figure((made.resident + written.resident) / size / 1024, 0),
        "with an idle consumer of all, CPU %": Figure(read.ms(10 * read.seconds), 1),
        "with an idle consumer of all, reads/s": Figure(read.reads / read.seconds, 0),
    }


async def brokers(place: Place, size: int) -> Found:
    found: Found = {}
    with Brokers(place.directory, size + 1) as all_brokers:
        writing, *others = all_brokers.processes
        async with AsyncExitStack() as stack:
            [connection] = await connections(writing.bootstrap, 1, stack)
            await create(connection, [TOPIC], 1)
            for what in ("idle", "reading"):
                tasks = []
                if what == "reading":
                    readers = [(await connections(other.bootstrap, 1, stack))[0] for other in others]
                    tasks = [asyncio.create_task(follow(reader)) for reader in readers]
                rest = await idle(place.seconds, *others)
                batch, sent = small_batch(), 0
                with watched(writing) as own, watched(*others) as cost:
                    ends = time.monotonic() + place.seconds
                    while time.monotonic() < ends:
                        await produce(connection, batch)
                        sent += 1
                        await asyncio.sleep(1 / COMMITS_PER_SECOND)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                cost.cpu -= rest.cpu * cost.seconds / rest.seconds
                cost.reads -= rest.reads * cost.seconds / rest.seconds
                found[f"{what}: a commit, CPU ms of them together"] = Figure(cost.ms(sent), 1)
                found[f"{what}: a commit, CPU ms of each"] = Figure(cost.ms(sent * size), 0)
                found[f"{what}: a commit, reads of each"] = Figure(max(0.0, cost.reads) / sent / size, 0)
                found[f"{what}: a commit, CPU ms of the writer"] = Figure(own.ms(sent), 0)
    return found


async def follow(connection: KafkaConnection) -> None:
    offset = 0
    while True:
        offset = await fetch(connection, offset, WAIT_MS)


async def age(place: Place, size: int) -> Found:
    # Every append is an object, as bulk is, and each is waited for: an entry for each.
    settings = {"DRAY_LOG__CARRY_BYTES": "0", "DRAY_LOG__TAIL_CACHE_BYTES": "0"}
    async with place.broker(settings) as (broker, connection):
        await create(connection, [TOPIC], 1)
        batch = small_batch()
        with watched(broker) as written:
            for _ in range(size):
                await produce(connection, batch)
        with watched(broker) as sought:
            for _ in range(ASKED):
                part = ListOffsetsPartition(partition_index=0, timestamp=time.time_ns() // 1_000_000 - 1)
                topics = [ListOffsetsTopic(name=TOPIC, partitions=[part])]
                await connection.request(ListOffsetsRequest(replica_id=-1, topics=topics), 7)
        with watched(broker) as read:
            offset = 0
            while offset < size:
                offset = await fetch(connection, offset)
        with watched(broker) as deleted:
            cut = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(0, size // 2)])
            answer = await connection.request(DeleteRecordsRequest([cut], timeout_ms=600_000), 2)
            checked(each.error_code for each in answer.topics[0].partitions)
            await asyncio.sleep(place.seconds)  # what is deleted behind the answer
    return {
        "committed, CPU ms each": Figure(written.ms(size), 0),
        "committed, writes each": Figure(written.writes / size, 0),
        "a time looked for, reads": Figure(sought.reads / ASKED, 0.25),
        "all read, CPU ms each": Figure(read.ms(size), 0),
        "all read, object reads each": Figure(read.gets / size, 0),
        "half deleted, CPU ms each": Figure(deleted.ms(size / 2), 0),
        "half deleted, reads and writes each": Figure((deleted.reads + deleted.writes) / size * 2, 0),
    }


async def groups(place: Place, size: int) -> Found:
    async with (
        place.broker({"DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "0s"}) as (broker, connection),
        AsyncExitStack() as stack,
    ):
        await create(connection, [TOPIC], 1)
        links = await connections(broker.bootstrap, min(size, AT_ONCE), stack)
        modern = [ConsumerMember(links[n % len(links)], f"modern-{n}", f"m-{n}", TOPIC) for n in range(size)]
        classic = [ClassicMember(links[n % len(links)], f"classic-{n}", TOPIC) for n in range(size)]

        async def classic_beat(member: ClassicMember, number: int) -> None:
            request = HeartbeatRequest(f"classic-{number}", member.generation, member.member_id)
            checked([(await links[number % len(links)].request(request, 4)).error_code])

        with watched(broker) as joined:
            await side_by_side([member.beat for member in modern])
        with watched(broker) as entered:
            await side_by_side([member.enter for member in classic])
        with watched(broker) as beats:
            await side_by_side([member.beat for member in modern])
        with watched(broker) as classic_beats:
            for number, member in enumerate(classic):
                await classic_beat(member, number)
        rest = await idle(place.seconds, broker)
    return {
        "KIP-848: joined, CPU ms each": Figure(joined.ms(size), 0),
        "classic: joined, CPU ms each": Figure(entered.ms(size), 0),
        "KIP-848: a heartbeat, CPU ms": Figure(beats.ms(size), 0),
        "classic: a heartbeat, CPU ms": Figure(classic_beats.ms(size), 0),
        "heartbeats, reads and writes each": Figure((classic_beats.reads + classic_beats.writes) / size, 0),
        "memory of each, KiB": Figure((joined.resident + entered.resident) / size / 2048, 0),
        "idle, CPU % of a core": Figure(rest.ms(10 * rest.seconds), 0),
    }


async def side_by_side(work: Sequence[Callable[[], Awaitable[None]]]) -> None:
    for first in range(0, len(work), AT_ONCE):
        await asyncio.gather(*(each() for each in work[first : first + AT_ONCE]))


async def many_connections(place: Place, size: int) -> Found:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    async with place.broker() as (broker, connection), AsyncExitStack() as stack:
        await create(connection, [TOPIC], 1)
        with watched(broker) as opened:
            for first in range(0, size, AT_ONCE):
                for link in await connections(broker.bootstrap, min(AT_ONCE, size - first), stack):
                    await ask_metadata(link)
        rest = await idle(place.seconds, broker)
    return {
        "opened, CPU ms each": Figure(opened.ms(size), 0),
        "memory of each, KiB": Figure(opened.resident / size / 1024, 0),
        "idle, CPU % of a core": Figure(rest.ms(10 * rest.seconds), 1),
    }


async def producers(place: Place, size: int) -> Found:
    async with place.broker() as (broker, connection):
        await create(connection, [TOPIC], 1)
        batch = small_batch()
        with watched(broker) as each:
            for number in range(size):
                await produce(connection, numbered(batch, 1_000_000 + number, 0, 0))
        with watched(broker) as one:
            for sequence in range(ASKED * 20):
                await produce(connection, numbered(batch, 999_999, 0, sequence))
    return {
        "a record of another producer each time, CPU ms": Figure(each.ms(size), 0),
        "a record of one of them, CPU ms": Figure(one.ms(ASKED * 20), 0),
        "memory of each, KiB": Figure(each.resident / size / 1024, 0),
    }


async def topics(place: Place, size: int) -> Found:
    names = [f"{TOPIC}-{number}" for number in range(size)]
    async with place.broker() as (broker, connection):
        with watched(broker) as made:
            await create(connection, names, 1)
        rest = await idle(place.seconds, broker)
        with watched(broker) as asked:
            await ask_metadata(connection)
        with watched(broker) as gone:
            await delete(connection, names)
    return {
        "made, CPU ms each": Figure(made.ms(size), 0),
        "idle, CPU % of a core": Figure(rest.ms(10 * rest.seconds), 0),
        "Metadata of all, CPU ms": Figure(asked.ms(1), 1),
        "deleted, CPU ms each": Figure(gone.ms(size), 0),
    }


DIRECTIONS: Mapping[str, tuple[Callable[[Place, int], Coroutine[None, None, Found]], tuple[int, ...]]] = {
    "partitions": (partitions, (100, 1000, 5000)),
    "brokers": (brokers, (1, 3, 7)),
    "age": (age, (500, 2000, 8000)),
    "groups": (groups, (100, 1000, 3000)),
    "connections": (many_connections, (100, 1000, 3000)),
    "producers": (producers, (100, 1000, 10_000)),
    "topics": (topics, (100, 1000, 5000)),
}


# --- what is shown


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """The slope of log(value) over log(size), by least squares. None of fewer than two values."""
    known = [(log(size), log(value)) for size, value in points if value > 0]
    if len({size for size, _ in known}) < 2:
        return None
    middle = sum(size for size, _ in known) / len(known)
    spread = sum((size - middle) ** 2 for size, _ in known)
    return sum((size - middle) * value for size, value in known) / spread


def rows(found: Mapping[int, Found]) -> Iterator[tuple[str, list[float], float | None, float]]:
    """Of each figure: its values by size, its exponent, and what that ought to be."""
    for name, figure in next(iter(found.values())).items():
        values = [of_size[name].value for of_size in found.values()]
        yield name, values, exponent(list(zip(found, values, strict=True))), figure.ought


def show(console: Console, direction: str, found: Mapping[int, Found]) -> None:
    table = Table(title=direction, title_justify="left")
    table.add_column("")
    for heading in [*(f"{size:,}" for size in found), "exponent", "ought"]:
        table.add_column(heading, justify="right")
    for name, values, slope, ought in rows(found):
        shown = "" if slope is None else f"{slope:.2f}{' !' if slope > ought + TOO_MUCH else '  '}"
        table.add_row(name, *(f"{value:.3g}" if value else "-" for value in values), shown, f"{ought:g}")
    console.print(table)


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def directions(text: str) -> list[str]:
        names = text.split(",")
        for name in names:
            if name not in DIRECTIONS:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(DIRECTIONS)}")
        return names

    def sizes(text: str) -> list[int]:
        numbers = [int(number) for number in text.split(",")]
        if min(numbers) < 1:
            raise argparse.ArgumentTypeError("sizes begin with 1")
        return sorted(numbers)

    usual = "; ".join(f"{name} {','.join(map(str, usual))}" for name, (_, usual) in DIRECTIONS.items())
    parser.add_argument("--only", type=directions, default=list(DIRECTIONS), help=", ".join(DIRECTIONS))
    parser.add_argument("--sizes", type=sizes, help=f"of each direction ({usual})")
    parser.add_argument("--seconds", type=float, default=10.0, help="of rest, and of load on several brokers")
    parser.add_argument("--directory", help="where brokers keep their data (a temporary directory)")
    return parser.parse_args(given)


def main() -> None:
    options = parse_arguments()
    console = Console(highlight=False, width=150)
    results: dict[str, object] = {"machine": describe_machine(), "when": datetime.now(UTC).isoformat()}
    for name in options.only:
        measure, usual = DIRECTIONS[name]
        found: dict[int, Found] = {}
        for size in options.sizes or usual:
            directory = Path(tempfile.mkdtemp(prefix="dray-growth-", dir=options.directory))
            with ExitStack() as stack:
                stack.callback(shutil.rmtree, directory, ignore_errors=True)
                found[size] = asyncio.run(measure(Place(directory, options.seconds), size))
        show(console, name, found)
        results[name] = {size: {what: one.value for what, one in of.items()} for size, of in found.items()}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"growth-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"written to {path}")


if __name__ == "__main__":
    main()
