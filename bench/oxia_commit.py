"""What Oxia and S3 cost: the commit of a WAL object, and a broker's processor time per gigabyte.

    python -m bench.oxia_commit [--seconds 3] [--streams 100] [--records 400000] [--size 1024] [--rounds 3]

The commit is the one write that a broker waits for: per stream a compare-and-set of its high watermark and
one new index entry. Embedded SQLite stands beside it, in the same run, on the same disk.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from tests.services.dray import DrayProcess
from tests.services.oxia import OxiaStandalone

from bench.driver import compile_driver, produce
from bench.harness import Target, settle, watched
from bench.metadata_engines import append_flat_out, percentiles
from bench.remote_stores import broker_settings
from dray.base.runtime import SystemRuntime
from dray.metadata.contract import MetadataStore
from dray.metadata.oxia import OxiaSettings
from dray.metadata.oxia.store import OxiaStore
from dray.metadata.sqlite import SqliteStore

VALUE_BYTES = 400
PARTITIONS = 16
COMMIT_GOAL_MS = 10.0
PROCESSOR_GOAL = 1.5


async def commits(
    make: Callable[[SystemRuntime], Awaitable[MetadataStore]], seconds: float, streams: int
) -> list[float]:
    """The latencies of one broker that commits one object after the other."""
    runtime = SystemRuntime()
    store = await make(runtime)
    try:
        return await append_flat_out(store, seconds, 1, streams, VALUE_BYTES)
    finally:
        await store.close()
        runtime.close()


def measure_commits(directory: Path, oxia: OxiaStandalone, seconds: float, streams: int) -> None:
    async def open_oxia(runtime: SystemRuntime) -> MetadataStore:
        store = OxiaStore(OxiaSettings(addresses=[oxia.address], namespace=oxia.namespace), runtime)
        await store.open()
        return store

    async def open_sqlite(runtime: SystemRuntime) -> MetadataStore:
        store = SqliteStore(directory / "commits.sqlite", runtime)
        await store.open()
        return store

    for name, make in (("sqlite", open_sqlite), ("oxia", open_oxia)):
        latencies = asyncio.run(commits(make, seconds, streams))
        print(f"commit of {streams} streams, {name:6} {len(latencies):5} times, ms: {percentiles(latencies)}")
    median = statistics.median(latencies) * 1000
    print(f"  median with Oxia {median:.1f} ms; the goal is less than {COMMIT_GOAL_MS:.0f} ms")


def measure_processor(
    directory: Path, remote: Mapping[str, str], records: int, size: int, rounds: int
) -> None:
    """Both brokers are up, and take turns."""
    compile_driver()
    engines: dict[str, Mapping[str, str]] = {"embedded": {}, "remote": remote}
    brokers = {
        name: DrayProcess(directory / name, name=name, settings=settings)
        for name, settings in engines.items()
    }
    seen: dict[str, list[float]] = {name: [] for name in brokers}
    try:
        for broker in brokers.values():
            broker.start()
        targets = {name: Target(name, broker, broker.bootstrap) for name, broker in brokers.items()}
        for round_number in range(rounds + 1):
            for name, target in targets.items():
                settle()
                with target.topic(PARTITIONS) as topic, watched(brokers[name].pid) as usage:
                    load = produce(
                        target.bootstrap, topic, records=records, size=size, partitions=PARTITIONS, acks=-1
                    ).result()
                if round_number:  # the first one warms up
                    seen[name].append(usage.cpu_seconds / load.bytes * 1e9)
                    print(
                        f"{name:8} {load.megabytes_per_second:6.0f} MB/s, "
                        f"{seen[name][-1]:5.2f} processor seconds per GB"
                    )
    finally:
        for broker in brokers.values():
            broker.kill()
    medians = {name: statistics.median(values) for name, values in seen.items()}
    ratio = medians["remote"] / medians["embedded"]
    print(
        f"processor time per GB, Oxia and S3 to embedded: {ratio:.2f}; the goal is at most {PROCESSOR_GOAL}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dray-bench-") as name:
        directory = Path(name)
        with OxiaStandalone(directory / "oxia-commits") as oxia:
            measure_commits(directory, oxia, arguments.seconds, arguments.streams)
        with broker_settings(directory / "remote", remote=True) as remote:
            measure_processor(directory, remote, arguments.records, arguments.size, arguments.rounds)


if __name__ == "__main__":
    main()
