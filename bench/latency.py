"""How long one small record takes, on Dray and on Apache Kafka, on this machine, in this run.

    python -m bench.latency [--runs 3] [--only lone,partitions,seen] [--engines sqlite,objects] [--quick]

Three measures:

  lone         one record of 1 KiB, acks=all, sent by confluent-kafka once the one before is acknowledged
  partitions   one record to each of 2,000 partitions by one idempotent producer (librdkafka makes a request
               of each, five in flight): on a fresh topic (cold), then again (warm)
  seen         from the send, and from the acknowledgement, until a consumer that waits at another broker has
               the record

They are held against one commit of a bare `SqliteStore` (a high watermark and an index entry: the least that
an embedded append can take), and against Apache Kafka: as it is, without waiting for its disk, and with a
topic that has flush.messages=1 and waits. Kafka is one node: there, `seen` is at the same broker.

The engines: `sqlite` is a broker with files and SQLite, both synced; `objects` is the same without carried
appends (`log.carry_bytes: 0`), as it was before them; `oxia` and `etcd` are single servers, synced, with an
S3 server behind a proxy that adds `--delay` to each request. Brokers run with their default config otherwise.
On the remote engines `partitions` is left out: with five in flight it says nothing new.

All servers run at once, and runs alternate between them. What is printed is the median of the runs; a ratio
is the median of the ratios of neighbouring runs, so that a machine that is busy for a while does not decide.
One line per goal says whether it is reached. The figures of every run go to bench/results/latency-*.json.

A minute with --quick, about five without; nothing else should compute meanwhile.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import uvloop
from confluent_kafka import Message, Producer
from rich.console import Console
from rich.table import Table
from tests.services.dray import DrayProcess
from tests.services.etcd import EtcdProcess
from tests.services.kafka import KafkaProcess
from tests.services.maven import JarsMissing
from tests.services.metadata import oxia_settings
from tests.services.oxia import OxiaStandalone
from tests.services.proxy import TcpProxy
from tests.services.remote import s3_settings
from tests.services.s3 import S3Process
from tests.services.topics import create_topic

from bench.cluster_wakeup import measure as watch_records
from bench.compare import RESULTS, describe_machine
from dray.base.runtime import SystemRuntime
from dray.metadata.contract import ABSENT, Put
from dray.metadata.sqlite import SqliteStore

RECORD = b"x" * 1024
MEASURES = ("lone", "partitions", "seen")
ENGINES = ("sqlite", "objects", "oxia", "etcd")
EMBEDDED = ("sqlite", "objects")
WARM_UP = 20
FLUSHED = {"flush.messages": "1"}
PATIENCE_SECONDS = 120.0
HWM_BYTES, ENTRY_BYTES = 220, 180  # as a produce of one batch stores them


@dataclass(frozen=True, slots=True)
class Place:
    """Where records are sent. What `other` gives is the port of the broker at which they are waited for."""

    name: str
    port: int
    other: Callable[[], AbstractContextManager[int]]
    is_remote: bool = False
    topic_config: Mapping[str, str] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"


@dataclass(frozen=True, slots=True)
class Amounts:
    lone: int
    lone_remote: int
    seen: int
    seen_remote: int
    partitions: int
    commits: int
    runs: int


@dataclass(slots=True)
class Figure:
    """One figure of one place: its value in each run."""

    unit: str
    values: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Figures:
    """All figures, by place and name."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.by_place: dict[str, dict[str, Figure]] = {}

    def add(self, place: str, found: Mapping[str, float], unit: str = "ms") -> None:
        for name, value in found.items():
            self.by_place.setdefault(place, {}).setdefault(name, Figure(unit)).values.append(value)
        shown = "  ".join(f"{name} {value:,.2f} {unit}" for name, value in found.items())
        self._console.print(f"{place}: {shown}")

    def values(self, place: str, name: str) -> list[float]:
        figure = self.by_place.get(place, {}).get(name)
        return [] if figure is None else figure.values

    def ratio(self, name: str, place: str, to_name: str, to_place: str) -> float | None:
        pairs = list(zip(self.values(place, name), self.values(to_place, to_name), strict=False))
        return statistics.median([value / to for value, to in pairs]) if pairs else None


# --- the measures


def at(seconds: list[float], share: float) -> float:
    """In milliseconds."""
    ordered = sorted(seconds)
    return 1000 * ordered[min(int(len(ordered) * share), len(ordered) - 1)]


def percentiles(what: str, seconds: list[float]) -> dict[str, float]:
    return {f"{what} p50": at(seconds, 0.5), f"{what} p99": at(seconds, 0.99)}


def lone(place: Place, topic: str, records: int) -> dict[str, float]:
    """One record after the other."""
    producer = Producer({"bootstrap.servers": place.bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0})
    taken: list[float] = []
    for number in range(records + WARM_UP):
        began = time.perf_counter()
        send(producer, topic, 0)
        acknowledge(producer)
        if number >= WARM_UP:
            taken.append(time.perf_counter() - began)
    return percentiles("lone", taken) | {"lone p99.8": at(taken, 0.998)}


def partitions(place: Place, topic: str, count: int) -> dict[str, float]:
    """One record to each partition, twice."""
    producer = Producer(
        {"bootstrap.servers": place.bootstrap, "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
    )
    producer.list_topics(topic, PATIENCE_SECONDS)
    found: dict[str, float] = {}
    for name in ("partitions cold", "partitions warm"):
        began = time.perf_counter()
        for partition in range(count):
            send(producer, topic, partition)
        acknowledge(producer)
        found[name] = time.perf_counter() - began
    return found


def seen(place: Place, topic: str, other_port: int, records: int) -> dict[str, float]:
    """At another broker, by a consumer that waits there."""
    from_send, from_acknowledgement = asyncio.run(watch_records(topic, place.port, other_port, records))
    return percentiles("seen from send", from_send) | percentiles("seen from ack", from_acknowledgement)


def commits(directory: Path, count: int) -> dict[str, float]:
    """What one commit of a produce takes in the store alone."""

    async def run() -> list[float]:
        runtime = SystemRuntime(threads=1)
        store = SqliteStore(directory / "floor.sqlite", runtime)
        await store.open()
        taken: list[float] = []
        try:
            [outcome] = await store.write(0, [Put("/streams/1/hwm", b"h" * HWM_BYTES)])
            for number in range(count + WARM_UP):
                began = time.perf_counter()
                outcome, _ = await store.write(
                    0,
                    [
                        Put("/streams/1/hwm", b"h" * HWM_BYTES, outcome.version),
                        Put(f"/streams/1/index/{number:020d}", b"e" * ENTRY_BYTES, ABSENT),
                    ],
                )
                taken.append(time.perf_counter() - began)
        finally:
            await store.close()
            runtime.close()
        return taken[WARM_UP:]

    directory.mkdir()
    try:
        taken = uvloop.run(run())
    finally:
        shutil.rmtree(directory)
    return percentiles("commit", taken) | {"commit p99.8": at(taken, 0.998)}


def send(producer: Producer, topic: str, partition: int) -> None:
    producer.produce(topic, RECORD, partition=partition, on_delivery=refuse_failure)


def acknowledge(producer: Producer) -> None:
    if producer.flush(PATIENCE_SECONDS):
        raise RuntimeError(f"records were not acknowledged within {PATIENCE_SECONDS:.0f} s")


def refuse_failure(error: object, _: Message) -> None:
    if error is not None:
        raise RuntimeError(f"a record was refused: {error}")


# --- the places


def broker_on(parent: Path, engine: str, settings: Mapping[str, str], number: int) -> DrayProcess:
    return DrayProcess(
        parent / engine / f"broker-{number}",
        data_directory=parent / engine / "data",
        settings=settings,
        arguments=["--broker-id", str(number)],
    )


@contextmanager
def second_broker(parent: Path, engine: str, settings: Mapping[str, str]) -> Iterator[int]:
    with broker_on(parent, engine, settings, 1) as broker:
        yield broker.port


@contextmanager
def dray(parent: Path, engine: str, delay_seconds: float) -> Iterator[Place]:
    with ExitStack() as stack:
        settings: dict[str, str] = {}
        if engine == "objects":
            settings["DRAY_LOG__CARRY_BYTES"] = "0"
        if engine not in EMBEDDED:
            s3 = stack.enter_context(S3Process(parent / f"{engine}-s3"))
            proxy = stack.enter_context(TcpProxy(s3.port))
            proxy.delay(delay_seconds / 2)  # each way
            settings |= s3_settings(s3, "latency", {"endpoint": f"http://{proxy.address}"})
        if engine == "oxia":
            settings |= oxia_settings(stack.enter_context(OxiaStandalone(parent / "oxia-server")))
        elif engine == "etcd":
            server = stack.enter_context(EtcdProcess(parent / "etcd-server"))
            settings |= {
                "DRAY_METADATA__ENGINE": "etcd",
                "DRAY_METADATA__ETCD__ENDPOINTS": server.address,
            }
        broker = stack.enter_context(broker_on(parent, engine, settings, 0))
        other = partial(second_broker, parent, engine, settings)
        yield Place(f"Dray, {engine}", broker.port, other, engine not in EMBEDDED)


def start_places(
    stack: ExitStack, parent: Path, options: argparse.Namespace, console: Console
) -> list[Place]:
    places = [
        stack.enter_context(dray(parent, engine, options.delay / 1000))
        for engine in ENGINES
        if engine in options.engines
    ]
    if not options.without_kafka:
        try:
            kafka = KafkaProcess(parent / "kafka")
        except JarsMissing as reason:
            console.print(f"without Kafka: {reason}")
            return places
        stack.enter_context(kafka)

        def same() -> AbstractContextManager[int]:
            return nullcontext(kafka.port)

        places.append(Place("Kafka", kafka.port, same))
        places.append(Place("Kafka, flushed", kafka.port, same, topic_config=FLUSHED))
    return places


# --- the run


def measure(places: list[Place], options: argparse.Namespace, figures: Figures, parent: Path) -> None:
    amounts = QUICK if options.quick else FULL
    runs = range(options.runs or amounts.runs)
    if "lone" in options.only:
        for run in runs:
            figures.add("SqliteStore", commits(parent / f"floor-{run}", amounts.commits))
            for place in places:
                records = amounts.lone_remote if place.is_remote else amounts.lone
                figures.add(place.name, lone(place, fresh_topic(place, f"lone-{run}", 1), records))
    if "partitions" in options.only:
        for run in runs:
            for place in [place for place in places if not place.is_remote]:
                topic = fresh_topic(place, f"partitions-{run}", amounts.partitions)
                figures.add(place.name, partitions(place, topic, amounts.partitions), "s")
    if "seen" in options.only:  # last: from here on, each place has two brokers
        with ExitStack() as stack:
            others = [(place, stack.enter_context(place.other())) for place in places]
            for run in runs:
                for place, port in others:
                    records = amounts.seen_remote if place.is_remote else amounts.seen
                    figures.add(place.name, seen(place, fresh_topic(place, f"seen-{run}", 1), port, records))


def fresh_topic(place: Place, name: str, count: int) -> str:
    topic = f"{name}-flushed" if place.topic_config else name
    create_topic(place.bootstrap, topic, count, place.topic_config, seconds=PATIENCE_SECONDS)
    return topic


FULL = Amounts(lone=1500, lone_remote=60, seen=150, seen_remote=40, partitions=2000, commits=1500, runs=3)
QUICK = Amounts(lone=200, lone_remote=10, seen=20, seen_remote=5, partitions=200, commits=200, runs=1)


# --- what is shown


@dataclass(frozen=True, slots=True)
class Goal:
    text: str
    most: float
    found: Callable[[Figures], float | None]


def ratio(name: str, to_place: str, to_name: str = "") -> Callable[[Figures], float | None]:
    return lambda figures: figures.ratio(name, "Dray, sqlite", to_name or name, to_place)


def median(name: str, place: str) -> Callable[[Figures], float | None]:
    def of(figures: Figures) -> float | None:
        values = figures.values(place, name)
        return statistics.median(values) if values else None

    return of


GOALS = (
    Goal("lone p50 to Kafka's", 4.0, ratio("lone p50", "Kafka")),
    Goal("lone p50 to that of Kafka with flush.messages=1", 1.5, ratio("lone p50", "Kafka, flushed")),
    Goal("lone p50 to one SqliteStore commit", 2.2, ratio("lone p50", "SqliteStore", "commit p50")),
    Goal("lone p50 to that without carrying", 0.4, ratio("lone p50", "Dray, objects")),
    Goal("2,000 partitions, cold, to Kafka", 2.2, ratio("partitions cold", "Kafka")),
    Goal("2,000 partitions, warm, to Kafka", 2.2, ratio("partitions warm", "Kafka")),
    Goal("lone p50 on Oxia and slow S3, ms", 10.0, median("lone p50", "Dray, oxia")),
    Goal("seen from send, p50, on Oxia and slow S3, ms", 20.0, median("seen from send p50", "Dray, oxia")),
)


def show(console: Console, figures: Figures) -> dict[str, float]:
    names = list(dict.fromkeys(name for found in figures.by_place.values() for name in found))
    table = Table(title="medians of the runs", title_justify="left")
    table.add_column("figure")
    for place in figures.by_place:
        table.add_column(place, justify="right")
    for name in names:
        held = [found.get(name) for found in figures.by_place.values()]
        unit = next(figure.unit for figure in held if figure is not None)
        table.add_row(
            f"{name}, {unit}", *["" if figure is None else f"{figure.median:,.2f}" for figure in held]
        )
    console.print(table)
    found: dict[str, float] = {}
    for goal in GOALS:
        value = goal.found(figures)
        if value is not None:
            found[goal.text] = value
            word = "[green]reached[/]" if value <= goal.most else "[red]missed[/]"
            console.print(f"{word}: {goal.text}: {value:.2f} (at most {goal.most:g})")
    return found


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.latency",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=0, help="runs of each measure and place (3; --quick: 1)")
    parser.add_argument("--only", type=names_of(MEASURES), default=MEASURES, help=", ".join(MEASURES))
    parser.add_argument("--engines", type=names_of(ENGINES), default=ENGINES, help=", ".join(ENGINES))
    parser.add_argument("--without-kafka", action="store_true", help="measure Dray alone: no ratios")
    parser.add_argument(
        "--delay", type=float, default=50.0, metavar="MS", help="what the proxy adds to a request of S3 (50)"
    )
    parser.add_argument("--quick", action="store_true", help="few records, to see that everything works")
    parser.add_argument("--directory", help="where the servers keep their data (a temporary directory)")
    return parser.parse_args()


def names_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        asked = tuple(text.split(","))
        for name in asked:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return asked

    return parse


def main() -> None:
    options = parse_arguments()
    console = Console(highlight=False, width=150)
    parent = Path(tempfile.mkdtemp(prefix="dray-latency-", dir=options.directory))
    figures = Figures(console)
    try:
        with ExitStack() as stack:
            measure(start_places(stack, parent, options, console), options, figures, parent)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    results = {
        "machine": describe_machine(),
        "when": datetime.now(UTC).isoformat(),
        "goals": show(console, figures),
        "figures": {
            place: {name: {"unit": figure.unit, "runs": figure.values} for name, figure in found.items()}
            for place, found in figures.by_place.items()
        },
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"latency-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
