"""Catching up through a real broker and a real client: from WAL objects, and from the files they become.

python -m bench.catch_up_broker [--megabytes 1000] [--size 1024] [--partitions 16] [--runs 3]

The topic is produced, the broker started anew so that nothing is in its memory, and read from its beginning
by librdkafka; then `drayd compactor --once` turns it into Parquet, the broker is started anew again, and the
same is read from there. `first` is a cold broker, `again` one that has just served the same. Prints MB/s and
the broker's CPU seconds per GB of both.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.services.dray import DrayProcess, drayd_path
from tests.services.topics import create_topic

from bench import driver
from bench.harness import watched

COMPACTION_SECONDS = 600
TOPIC = "catch-up"


def read(broker: DrayProcess, what: str, records: int, partitions: int, runs: int) -> None:
    for number in range(runs):
        with watched(broker.pid) as usage:
            load = driver.fetch(
                broker.bootstrap, TOPIC, records=records, partitions=partitions, timeout=300
            ).result()
        order = "first" if number == 0 else "again"
        cpu = usage.cpu_seconds / (load.bytes / 1e9)
        speed = f"{load.megabytes_per_second:6.0f} MB/s  {cpu:5.2f} CPU s/GB"
        print(f"{what:8} {order:5}  {speed}  peak {usage.peak_bytes / 1e6:4.0f} MB", flush=True)


def compact(broker: DrayProcess) -> None:
    subprocess.run(
        [str(drayd_path()), "compactor", "--once", "--data-dir", str(broker.data_directory)],
        env=broker.environment(),
        check=True,
        timeout=COMPACTION_SECONDS,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument(
        "--directory", type=Path, default=None, help="where data goes (default: a temporary one)"
    )
    options = parser.parse_args()
    records = options.megabytes * 1_000_000 // options.size
    directory = Path(tempfile.mkdtemp(prefix="dray-bench-", dir=options.directory))
    try:
        with DrayProcess(directory) as broker:
            create_topic(broker.bootstrap, TOPIC, options.partitions)
            driver.produce(broker.bootstrap, TOPIC, records=records, size=options.size, timeout=300).result()
            broker.terminate()
            broker.start()
            read(broker, "WAL", records, options.partitions, options.runs)
            compact(broker)
            broker.terminate()
            broker.start()
            read(broker, "Parquet", records, options.partitions, options.runs)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
