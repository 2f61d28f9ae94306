"""Rebalances of large groups on Dray and on Apache Kafka, on this machine, in this run.

    python -m bench.group_compare [--members 500] [--partitions 5000] [--runs 5] [--without-kafka]

Both brokers are real processes (Kafka 4 from Maven's jars, one node, KRaft; Dray with SQLite, synced), driven
by one program over the same raw protocol. Runs alternate between the two, after one that does not count. What
is printed is the median time until every member has what it should have, and the median of the ratios of
neighbouring runs.

| | |
|---|---|
| classic: founded | all members join an empty group at once, which waits for them for half a second |
| classic: rebalance | one member leaves; all others hear of it, join and sync again |
| KIP-848: founded | all members join at once, and send heartbeats until nothing changes |
| KIP-848: one leaves | its partitions go to the others |
| KIP-848: one joins | the others give up some of theirs |
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess

from bench.compare import describe_machine
from bench.group_members import ClassicMember, ConsumerMember, connections, make_topic, settle
from bench.harness import cpu_seconds_of

RESULTS = Path(__file__).parent / "results"
TOPIC = "bench"
GOAL = 2.0

DRAY_SETTINGS = {"DRAY_GROUPS__INITIAL_REBALANCE_DELAY": "500ms"}
KAFKA_SETTINGS = {"group.initial.rebalance.delay.ms": "500", "offsets.topic.num.partitions": "1"}

Broker = DrayProcess | KafkaProcess
Times = dict[str, float]
"""Seconds by what was done."""


class Watch:
    """Times one step after the other, and what the broker's processes worked meanwhile."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.times: Times = {}
        self.cpu: Times = {}
        self._started = 0.0
        self._cpu_before = 0.0

    def start(self) -> None:
        self._cpu_before, self._started = cpu_seconds_of(self._broker.pid), time.perf_counter()

    def stop(self, what: str) -> None:
        self.times[what] = time.perf_counter() - self._started
        self.cpu[what] = cpu_seconds_of(self._broker.pid) - self._cpu_before


async def measure(broker: Broker, run: int, members: int, partitions: int) -> Watch:
    watch = Watch(broker)
    async with AsyncExitStack() as stack:
        links = await connections(broker.bootstrap, members, stack)
        classic = [ClassicMember(link, f"classic-{run}", TOPIC) for link in links]
        watch.start()
        await asyncio.gather(*(member.enter() for member in classic))
        watch.stop("classic: founded")
        watch.start()
        await classic[-1].leave()
        await asyncio.gather(*(member.beat() for member in classic[:-1]))
        watch.stop("classic: rebalance")

        consumers = [
            ConsumerMember(link, f"consumer-{run}", f"member-{number:05}", TOPIC)
            for number, link in enumerate(links)
        ]
        watch.start()
        await settle(consumers, partitions)
        watch.stop("KIP-848: founded")
        leaver = consumers.pop()
        watch.start()
        await leaver.leave()
        await settle(consumers, partitions)
        watch.stop("KIP-848: one leaves")
        watch.start()
        consumers.append(ConsumerMember(links[-1], f"consumer-{run}", "newcomer", TOPIC))
        await settle(consumers, partitions)
        watch.stop("KIP-848: one joins")
    return watch


def main() -> None:
    arguments = parse_arguments()
    console = Console(highlight=False, width=120)
    parent = Path(tempfile.mkdtemp(prefix="dray-groups-"))
    try:
        with ExitStack() as stack:
            brokers: dict[str, Broker] = {"dray": DrayProcess(parent / "dray", settings=DRAY_SETTINGS)}
            if not arguments.without_kafka:
                brokers["kafka"] = KafkaProcess(parent / "kafka", KAFKA_SETTINGS)
            for broker in brokers.values():
                stack.enter_context(broker)
                asyncio.run(make_topic(broker.bootstrap, TOPIC, arguments.partitions))
            watches = run_all(brokers, arguments.runs, arguments.members, arguments.partitions)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    show(console, watches)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"groups-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    results = {
        "machine": describe_machine(),
        "members": arguments.members,
        "partitions": arguments.partitions,
        "seconds": {name: [watch.times for watch in runs] for name, runs in watches.items()},
        "broker_cpu_seconds": {name: [watch.cpu for watch in runs] for name, runs in watches.items()},
    }
    path.write_text(json.dumps(results, indent=1) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.group_compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--members", type=int, default=500)
    parser.add_argument("--partitions", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=5, help="measured runs on each broker")
    parser.add_argument("--without-kafka", action="store_true", help="measure Dray alone")
    return parser.parse_args()


def run_all(
    brokers: Mapping[str, Broker], runs: int, members: int, partitions: int
) -> dict[str, list[Watch]]:
    """The first run of each does not count: virtual machines and caches are cold."""
    watches: dict[str, list[Watch]] = {name: [] for name in brokers}
    for run in range(runs + 1):
        for name, broker in brokers.items():
            watch = asyncio.run(measure(broker, run, members, partitions))
            if run:
                watches[name].append(watch)
    return watches


def show(console: Console, watches: Mapping[str, list[Watch]]) -> None:
    table = Table("", *watches, "ratio", f"goal {GOAL:.0f}x")
    for what in watches["dray"][0].times:
        cells = []
        for runs in watches.values():
            seconds = [watch.times[what] for watch in runs]
            cpu = statistics.median(watch.cpu[what] for watch in runs)
            cells.append(
                f"{statistics.median(seconds):.2f} s ({min(seconds):.2f}-{max(seconds):.2f}; CPU {cpu:.2f})"
            )
        if "kafka" in watches:
            ratios = [
                ours.times[what] / theirs.times[what]
                for ours, theirs in zip(watches["dray"], watches["kafka"], strict=True)
            ]
            ratio = statistics.median(ratios)
            cells += [f"{ratio:.2f}x ({min(ratios):.2f}-{max(ratios):.2f})", "yes" if ratio <= GOAL else "NO"]
        table.add_row(what, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
