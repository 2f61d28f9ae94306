"""Dray, Apache Kafka as it is and with flush.messages=1, and peers by their programs: the README's table.

    python -m bench.peers [--runs 3] [--only a,b,d] [--quick] [--without-kafka] [--peer NAME=COMMAND]...

A peer is a command with places for its port and its directory. Nisshi, and KafScale beside an etcd and an S3:

    --peer 'Nisshi=/opt/nisshi broker --kafka-listener-url tcp://127.0.0.1:{port}
            --kafka-advertised-listener-url tcp://127.0.0.1:{port} --storage-engine sqlite://{directory}/n.db'
    --peer 'KafScale=env KAFSCALE_BROKER_PORT={port} KAFSCALE_S3_BUCKET=... /opt/kafscale-broker'

Names of options change: ask the program's `--help`. All servers run at once, and loads alternate between
them, the order turned about every second time. The loads are those of bench.compare (a, b, d, e, f, h), and
lone records and 2,000 partitions of one record of bench.latency (l, p). What is printed is the median of
the runs, and behind Dray's that of the ratios of neighbouring runs to Kafka's: above 1 Dray is better. What
somebody cannot do is told with the first line of the error, and not asked again.

What is acknowledged differs: Dray has synced both the object and the commit, Kafka nothing unless it flushes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from tests.services.kafka import KafkaProcess
from tests.services.process import NotReady, ServerProcess, answers_api_versions, free_port

from bench.compare import QUICK_SHARE, RESULTS, MeasuredDray, describe_machine
from bench.harness import Target, cpu_seconds_of, resident_bytes_of, settle
from bench.latency import Place, lone, names_of, partitions
from bench.scenarios import SCENARIOS, Scenario

DRAY, KAFKA, FLUSHED = "Dray", "Kafka", "Kafka, flush.messages=1"
LOADS = [scenario for scenario in SCENARIOS if scenario.key in "abdefh"]
KEYS = (*(scenario.key for scenario in LOADS), "l", "p")
IDLE_SECONDS = 10.0

Row = dict[str, float]
"""What one run of a load gave, by the name of its row."""


class Peer(ServerProcess):
    def __init__(self, name: str, directory: Path, command: str) -> None:
        super().__init__(name.lower(), directory)
        self.port = free_port()
        self._command = shlex.split(command.format(port=self.port, directory=directory))

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> Sequence[str]:
        return self._command

    def is_ready(self) -> bool:
        return answers_api_versions("127.0.0.1", self.port)


class Figures:
    """All that was measured, by row and then by system, in the order of the runs."""

    def __init__(self, systems: Sequence[str]) -> None:
        self.systems = systems
        self.rows: dict[str, dict[str, list[float]]] = {}
        self.refusals: dict[tuple[str, str], str] = {}  # by load and system

    def add(self, system: str, found: Row) -> None:
        for name, value in found.items():
            self.rows.setdefault(name, {}).setdefault(system, []).append(value)

    def refuse(self, load: str, system: str, error: Exception) -> None:
        self.refusals[load, system] = (str(error).splitlines() or [repr(error)])[0]

    def cell(self, row: str, system: str) -> str:
        values = self.rows[row].get(system)
        if values is None:
            return "-"
        middle = statistics.median(values)
        shown = f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
        theirs = self.rows[row].get(KAFKA)
        if system != DRAY or theirs is None:
            return shown
        ours_first = row.endswith(" MB/s")
        ratios = [a / b if ours_first else b / a for a, b in zip(values, theirs, strict=False) if a and b]
        return f"{shown} ({statistics.median(ratios):.2f}x)" if ratios else shown

    def table(self) -> str:
        """As the README has it."""
        lines = [f"| | {' | '.join(self.systems)} |", f"|---|{'---|' * len(self.systems)}"]
        for row in self.rows:
            cells = [self.cell(row, system) for system in self.systems]
            lines.append(f"| {row} | {' | '.join(cells)} |")
        lines += [f"\n{system}, {load}: {why}" for (load, system), why in self.refusals.items()]
        return "\n".join(lines)


def of_scenario(scenario: Scenario, records: int) -> Callable[[Target], Row]:
    def run(target: Target) -> Row:
        sample = scenario.run(target, scenario, records)
        title = f"{scenario.key}: {scenario.title}"
        return {
            f"{title}, MB/s": sample.megabytes_per_second,
            f"{title}, CPU s/GB": sample.cpu_seconds_per_gigabyte,
        }

    return run


def of_latency(key: str, amount: int) -> Callable[[Target], Row]:
    def run(target: Target) -> Row:
        place = Place(target.name, int(target.bootstrap.rpartition(":")[2]), lambda: nullcontext(0))
        with target.topic(amount if key == "p" else 1) as topic:
            settle()
            if key == "p":
                return {
                    f"p: {amount:,} partitions, a record each, s": partitions(place, topic, amount)[
                        "partitions cold"
                    ]
                }
            found = lone(place, topic, amount)
            return {f"l: a lone record, p{share}, ms": found[f"lone p{share}"] for share in (50, 99)}

    return run


def loads(options: argparse.Namespace) -> dict[str, Callable[[Target], Row]]:
    share = QUICK_SHARE if options.quick else 1
    found = {scenario.key: of_scenario(scenario, scenario.records // share) for scenario in LOADS}
    found |= {"l": of_latency("l", 1500 // share), "p": of_latency("p", 2000 // share)}
    return {key: run for key, run in found.items() if key in options.only}


def start(stack: ExitStack, parent: Path, options: argparse.Namespace, figures: Figures) -> list[Target]:
    servers: dict[str, MeasuredDray | KafkaProcess | Peer] = {DRAY: MeasuredDray(parent / "dray")}
    if not options.without_kafka:
        servers[KAFKA] = KafkaProcess(parent / "kafka")
        servers[FLUSHED] = KafkaProcess(parent / "flushed", {"log.flush.interval.messages": "1"})
    for name, command in options.peer.items():
        servers[name] = Peer(name, parent / name, command)
    targets = []
    for name, server in servers.items():
        began = time.monotonic()
        try:
            stack.enter_context(server)
        except NotReady as reason:
            if not isinstance(server, Peer):
                raise
            figures.refuse("start", name, reason)
            continue
        figures.add(name, {"start until it answers, s": time.monotonic() - began})
        targets.append(Target(name, server, server.bootstrap))
    return targets


def rest(targets: Sequence[Target], seconds: float, figures: Figures) -> None:
    before = {target.name: cpu_seconds_of(target.server.pid) for target in targets}
    time.sleep(seconds)
    for target in targets:
        used = cpu_seconds_of(target.server.pid) - before[target.name]
        memory = resident_bytes_of(target.server.pid) / 1e6
        figures.add(target.name, {"idle, CPU %": 100 * used / seconds, "idle, memory MB": memory})


def measure(
    console: Console, targets: Sequence[Target], options: argparse.Namespace, figures: Figures
) -> None:
    runs = 1 if options.quick else options.runs + 1
    for key, load in loads(options).items():
        for number in range(runs):
            for target in targets if number % 2 else targets[::-1]:
                if (key, target.name) in figures.refusals:
                    continue
                try:
                    found = load(target)
                except Exception as error:  # of the client, of the driver, of the topic: all are the peer's
                    if target.name == DRAY:
                        raise
                    figures.refuse(key, target.name, error)
                    continue
                if number or options.quick:  # before that, code is cold
                    figures.add(target.name, found)
                shown = ", ".join(f"{name}: {value:,.3g}" for name, value in found.items())
                console.print(f"run {number}, {target.name}: {shown}")


def peer(text: str) -> tuple[str, str]:
    name, _, command = text.partition("=")
    if not name.strip() or not command.strip():
        raise argparse.ArgumentTypeError("must be NAME=COMMAND, with {port} and {directory} in the command")
    return name.strip(), command


def parse_arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=3, help="that count, after one that does not")
    parser.add_argument("--only", type=names_of(KEYS), default=KEYS, help=", ".join(KEYS))
    parser.add_argument("--peer", type=peer, action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--quick", action="store_true", help="one short run each, to see that all works")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--directory", help="where the servers keep their data (a temporary directory)")
    options = parser.parse_args(given)
    options.peer = dict(options.peer)
    return options


def main() -> None:
    options = parse_arguments()
    console = Console(highlight=False, width=150, soft_wrap=True)
    parent = Path(tempfile.mkdtemp(prefix="dray-peers-", dir=options.directory))
    systems = [DRAY, *([] if options.without_kafka else [KAFKA, FLUSHED]), *options.peer]
    figures = Figures(systems)
    try:
        with ExitStack() as stack:
            targets = start(stack, parent, options, figures)
            rest(targets, IDLE_SECONDS, figures)
            measure(console, targets, options, figures)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    console.print(figures.table(), markup=False)
    results: Mapping[str, object] = {"machine": describe_machine(), "rows": figures.rows}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"peers-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
