"""Two brokers on one store: what they lose when they write the same partition, and gain when they share many.

python -m bench.cluster_contention [--remote] [--records 400000] [--size 1024] [--rounds 3]

A broker serves the clients of its own zone, so a producer's zone decides which broker it writes through,
whoever else writes to the same partition. All runs of a round stand side by side; the medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.services.brokers import Brokers
from tests.services.topics import create_topic

from bench.driver import compile_driver, produce
from bench.remote_stores import broker_settings

ZONES = ("zone-a", "zone-b")
PARTITIONS = 16


class Bench:
    def __init__(self, brokers: Brokers, records: int, size: int) -> None:
        self._brokers = brokers
        self._records = records
        self._size = size
        self._topics = 0

    def run(self, partitions: int, zones: Sequence[str | None]) -> float:
        """MB/s of all producers together, one for each zone; None is a producer that any broker serves."""
        self._topics += 1
        topic = f"contended-{self._topics}"
        create_topic(self._brokers.bootstrap, topic, partitions)
        drivers = [
            produce(
                self._brokers.bootstrap,
                topic,
                records=self._records // len(zones),
                size=self._size,
                partitions=partitions,
                acks=-1,
                **({"client.id": f"zone_id={zone}"} if zone else {}),
            )
            for zone in zones
        ]
        loads = [driver.result() for driver in drivers]
        return sum(load.bytes for load in loads) / max(load.seconds for load in loads) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=400_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--remote", action="store_true", help="metadata in Oxia, objects in S3")
    arguments = parser.parse_args()
    compile_driver()
    with (
        tempfile.TemporaryDirectory(prefix="dray-bench-") as directory,
        broker_settings(Path(directory), arguments.remote) as settings,
        Brokers(Path(directory), 2, zones=ZONES, settings=settings) as brokers,
    ):
        bench = Bench(brokers, arguments.records, arguments.size)
        runs: dict[str, Callable[[], float]] = {
            "one partition, one broker": lambda: bench.run(1, ZONES[:1]),
            "one partition, both brokers": lambda: bench.run(1, ZONES),
            f"{PARTITIONS} partitions, one broker": lambda: bench.run(PARTITIONS, ZONES[:1]),
            f"{PARTITIONS} partitions, both brokers": lambda: bench.run(PARTITIONS, (None, None)),
        }
        rates: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(arguments.rounds):
            for name, run in runs.items():
                rates[name].append(run())
        retries = sum(brokers.commit_retries(number) for number in range(2))
    medians = {name: statistics.median(found) for name, found in rates.items()}
    for name, median in medians.items():
        print(f"{name:28} {median:7.1f} MB/s   ({', '.join(f'{rate:.1f}' for rate in rates[name])})")
    one, both, many, shared = medians.values()
    print(f"same partition, both against one: {both / one:.2f}x (at least 0.8 is wanted); {retries} retries")
    print(f"{PARTITIONS} partitions, both against one: {shared / many:.2f}x")


if __name__ == "__main__":
    main()
