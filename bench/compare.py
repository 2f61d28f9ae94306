"""Dray and Apache Kafka under the same loads, on this machine, in this run.

    python -m bench.compare [--runs 5] [--only a,c,f] [--quick] [--without-kafka] [--tail-cache 128MiB]
    python -m bench.compare --beside CHECKOUT --runs 11 --only a,c,d,e,f --without-kafka

Brokers are real processes with their default config (Kafka 4 from Maven's jars, one node, KRaft; Dray with
files and SQLite, both synced to disk). The load comes from librdkafka, driven from C. Runs alternate between
the two, and what is printed is the median; the ratio is the median of the ratios of neighbouring runs.

`--beside` names another checkout of Dray with its `.venv`, such as the one before a change: its broker gets
the same loads in the same run, every second time before ours. What a change costs is smaller than what the
machine varies by within a minute, so only neighbours are compared.
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.maven import KAFKA_VERSION, JarsMissing

from bench import driver
from bench.harness import Series, Target, cpu_seconds_of, resident_bytes_of, watched
from bench.scenarios import SCENARIOS, Scenario
from bench.slow_broker import SlowBrokerProcess

MIB = 1024 * 1024
QUICK_SHARE = 20
BEFORE = "Before"
FOR_TESTS = {"DRAY_CLUSTER__TALLY_INTERVAL", "DRAY_METADATA__BALLAST"}
RESULTS = Path(__file__).parent / "results"


def main() -> None:
    arguments = parse_arguments()
    console = Console(highlight=False, width=150)
    parent = Path(tempfile.mkdtemp(prefix="dray-compare-", dir=arguments.directory))
    results: dict[str, object] = {"machine": describe_machine(), "when": datetime.now(UTC).isoformat()}
    try:
        results["client"] = client_ceiling(console, arguments.quick)
        with ExitStack() as stack:
            targets = start_targets(stack, parent, arguments, console)
            results["idle"] = idle(console, targets, 3 if arguments.quick else 20)
            results["scenarios"] = compare(console, targets, arguments)
        if arguments.only is None or "g" in arguments.only:
            results["slow store"] = slow_store(console, parent / "slow", arguments.quick)
    finally:
        shutil.rmtree(parent, ignore_errors=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"compare-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    console.print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="measured runs of each scenario and broker")
    parser.add_argument(
        "--only", type=lambda text: text.split(","), help="scenarios by letter, such as a,c,f,g"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one short run each, to see that everything works"
    )
    parser.add_argument("--without-kafka", action="store_true", help="measure Dray alone")
    parser.add_argument(
        "--tail-cache",
        metavar="SIZE",
        default="auto",
        help="log.tail_cache_bytes of Dray",
    )
    parser.add_argument("--beside", type=Path, help="another checkout of Dray, to see what a change costs")
    parser.add_argument("--directory", help="where the brokers keep their data (a temporary directory)")
    return parser.parse_args()


def describe_machine() -> dict[str, object]:
    return {
        "cores": psutil.cpu_count(),
        "memory_gigabytes": round(psutil.virtual_memory().total / 1e9, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "kafka": KAFKA_VERSION,
    }


def client_ceiling(console: Console, quick: bool) -> dict[str, float]:
    """What the load generator alone can do: librdkafka's mock broker, within its process, takes all."""
    found: dict[str, float] = {}
    for size, records in ((1024, 1_000_000), (100, 3_000_000)):
        options: dict[str, object] = {"test.mock.num.brokers": 1, "size": size}
        options["records"] = records // QUICK_SHARE if quick else records
        load = driver.produce("unused", "mock", **options).result()
        found[f"megabytes_per_second_at_{size}"] = load.megabytes_per_second
        found[f"cpu_seconds_per_gigabyte_at_{size}"] = load.cpu_seconds / (load.bytes / 1e9)
        console.print(
            f"the client alone, {size} bytes: {load.megabytes_per_second:,.0f} MB/s, "
            f"{load.records_per_second:,.0f} records/s, {load.cpu_seconds / (load.bytes / 1e9):.2f} CPU s/GB"
        )
    return found


class MeasuredDray(DrayProcess):
    """Without what only tests need, which an older checkout need not know either."""

    def environment(self) -> Mapping[str, str]:
        return {name: value for name, value in super().environment().items() if name not in FOR_TESTS}


class OtherCheckout(MeasuredDray):
    """A broker of another checkout, with the settings of ours."""

    def __init__(self, directory: Path, settings: Mapping[str, str], checkout: Path) -> None:
        super().__init__(directory, name="drayd-before", settings=settings)
        self._drayd = checkout.absolute() / ".venv" / "bin" / "drayd"

    def command(self) -> Sequence[str]:
        return [str(self._drayd), *super().command()[1:]]


def start_targets(
    stack: ExitStack, parent: Path, arguments: argparse.Namespace, console: Console
) -> list[Target]:
    dray = MeasuredDray(parent / "dray", settings={"DRAY_LOG__TAIL_CACHE_BYTES": arguments.tail_cache})
    stack.enter_context(dray)
    targets = [Target("Dray", dray, dray.bootstrap)]
    if arguments.beside is not None:
        before = OtherCheckout(parent / "before", dray.settings, arguments.beside)
        stack.enter_context(before)
        targets.append(Target(BEFORE, before, before.bootstrap))
    if not arguments.without_kafka:
        try:
            kafka = KafkaProcess(parent / "kafka")
        except JarsMissing as reason:
            console.print(f"without Kafka: {reason}")
            return targets
        stack.enter_context(kafka)
        targets.append(Target("Kafka", kafka, kafka.bootstrap))
    return targets


def idle(console: Console, targets: list[Target], seconds: float) -> dict[str, dict[str, float]]:
    """A broker that nobody talks to."""
    time.sleep(2)  # start-up is not idleness
    before = {target.name: cpu_seconds_of(target.server.pid) for target in targets}
    time.sleep(seconds)
    found = {}
    for target in targets:
        used = cpu_seconds_of(target.server.pid) - before[target.name]
        resident = resident_bytes_of(target.server.pid)
        found[target.name] = {"resident_megabytes": resident / 1e6, "cpu_percent": 100 * used / seconds}
        goal = "  (goal: under 150 MB and 1 %)" if target.name == "Dray" else ""
        console.print(f"idle {target.name}: {resident / 1e6:.0f} MB, {100 * used / seconds:.2f} % CPU{goal}")
    return found


def compare(console: Console, targets: list[Target], arguments: argparse.Namespace) -> dict[str, object]:
    wanted = [s for s in SCENARIOS if arguments.only is None or s.key in arguments.only]
    table = make_table(targets)
    results: dict[str, object] = {}
    for scenario in wanted:
        records = scenario.records // QUICK_SHARE if arguments.quick else scenario.records
        runs = 1 if arguments.quick else arguments.runs
        series = measure(console, scenario, targets, records, runs)
        ratios = [
            dray.megabytes_per_second / kafka.megabytes_per_second
            for dray, kafka in zip(
                series["Dray"].samples, series.get("Kafka", Series()).samples, strict=False
            )
        ]
        add_rows(table, scenario, series, ratios)
        if BEFORE in series:
            console.print(to_before(scenario, series))
        results[scenario.key] = {
            "title": scenario.title,
            "goal": scenario.goal,
            "ratio": statistics.median(ratios) if ratios else None,
            "ratios": ratios,
            "runs": {name: [asdict(sample) for sample in held.samples] for name, held in series.items()},
        }
    console.print(table)
    return results


def measure(
    console: Console, scenario: Scenario, targets: list[Target], records: int, runs: int
) -> dict[str, Series]:
    series = {target.name: Series() for target in targets}
    for target in targets:  # code is warm and files are open before anything counts
        scenario.run(target, scenario, max(records // 10, 1000))
    for number in range(runs):
        for target in targets if number % 2 == 0 else targets[::-1]:
            sample = scenario.run(target, scenario, records)
            series[target.name].samples.append(sample)
            console.print(
                f"{scenario.key} run {number + 1} {target.name}: {sample.megabytes_per_second:,.0f} MB/s, "
                f"{sample.cpu_seconds_per_gigabyte:.2f} CPU s/GB"
            )
    return series


def to_before(scenario: Scenario, series: dict[str, Series]) -> str:
    """Speed and processor time as shares of the other checkout's, of neighbouring runs."""
    pairs = list(zip(series["Dray"].samples, series[BEFORE].samples, strict=True))
    speed = [ours.megabytes_per_second / before.megabytes_per_second for ours, before in pairs]
    cpu = [ours.cpu_seconds_per_gigabyte / before.cpu_seconds_per_gigabyte for ours, before in pairs]
    return (
        f"{scenario.key} to before: "
        f"speed {statistics.median(speed):.3f}x ({min(speed):.2f}-{max(speed):.2f}), "
        f"CPU per GB {statistics.median(cpu):.3f}x ({min(cpu):.2f}-{max(cpu):.2f}), {len(pairs)} pairs"
    )


def make_table(targets: list[Target]) -> Table:
    names = " and ".join(target.name for target in targets)
    table = Table(title=f"{names}, medians", title_justify="left")
    table.add_column("scenario")
    table.add_column("broker")
    for heading in ("MB/s", "records/s", "CPU s/GB", "peak MB", "client CPU s/GB", "to Kafka"):
        table.add_column(heading, justify="right")
    table.add_column("goal")
    return table


def add_rows(table: Table, scenario: Scenario, series: dict[str, Series], ratios: list[float]) -> None:
    for name, held in series.items():
        ratio = ""
        if name == "Dray" and ratios:
            ratio = f"{statistics.median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})"
        table.add_row(
            f"{scenario.key}  {scenario.title}" if name == "Dray" else "",
            name,
            f"{held.median('megabytes_per_second'):,.0f}",
            f"{held.median('records_per_second'):,.0f}",
            f"{held.median('cpu_seconds_per_gigabyte'):.2f}",
            f"{held.median('peak_megabytes'):,.0f}",
            f"{held.median('client_cpu_seconds_per_gigabyte'):.2f}",
            ratio,
            verdict(scenario, held, ratios) if name == "Dray" else "",
        )


def verdict(scenario: Scenario, held: Series, ratios: list[float]) -> str:
    reached = (
        held.median("megabytes_per_second") >= scenario.goal_megabytes
        and held.median("records_per_second") >= scenario.goal_records
        and (not scenario.goal_cpu or held.median("cpu_seconds_per_gigabyte") <= scenario.goal_cpu)
        and (not ratios or statistics.median(ratios) >= scenario.goal_ratio)
    )
    return f"{'[green]reached' if reached else '[red]missed'}[/]: {scenario.goal}"


def slow_store(console: Console, directory: Path, quick: bool) -> dict[str, object]:
    """64 producers, a store that answers after 2 s: memory stays below what is configured, and all finish."""
    buffer_bytes, tail_cache_bytes = 256 * MIB, 128 * MIB
    with SlowBrokerProcess(directory, 2.0, buffer_bytes, tail_cache_bytes) as server:
        target = Target("slow", server, server.bootstrap)
        with target.topic(16) as topic:
            before = resident_bytes_of(server.pid)
            with watched(server.pid) as usage:
                records = 32_000 if quick else 1_000_000
                options: dict[str, object] = {"clients": 64, "records": records, "size": 1024, "acks": "all"}
                load = driver.produce(server.bootstrap, topic, timeout=600, **options).result(660)
    grown = usage.peak_bytes - before
    allowed = buffer_bytes + tail_cache_bytes
    word = "[green]within[/]" if grown <= allowed else "[red]above[/]"
    console.print(
        f"g  slow store: {load.records:,} records of 64 producers in {load.seconds:.1f} s; memory grew by "
        f"{grown / MIB:.0f} MiB, {word} the {allowed // MIB} MiB of buffer and tail cache"
    )
    return {
        "records": load.records,
        "seconds": load.seconds,
        "grown_mebibytes": grown / MIB,
        "allowed_mebibytes": allowed / MIB,
        "peak_megabytes": usage.peak_bytes / 1e6,
    }


if __name__ == "__main__":
    main()
