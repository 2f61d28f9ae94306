"""Catching up from a tier: the Kafka that wrote it serves it, and Dray serves the same objects, attached.

python -m bench.foreign_kafka [--megabytes 512] [--size 1024] [--partitions 4] [--runs 3]

A real Kafka with its LocalTieredStorage tiers every segment and deletes its local copy, so that its reads go
to the tier; its own settings are the defaults. Then both brokers run side by side, and librdkafka reads the
topic from its beginning, once from each in turns: only offsets that were tiered, but for the few that a
client gets ahead in one partition. `first` is a broker that has not served it yet. Printed are MB/s, the
broker's CPU seconds per GB, and the median of the ratios of neighbouring runs. Records are not compressed.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tests.services.attached_broker import attached_broker
from tests.services.process import ServerProcess
from tests.services.tiered_kafka import TieredKafka

from bench import driver
from bench.harness import watched

TOPIC = "history"
PATIENCE = 300.0


def create(kafka: TieredKafka, partitions: int, segment_bytes: int) -> None:
    configs = {
        "remote.storage.enable": "true",
        "segment.bytes": str(segment_bytes),
        "retention.ms": "-1",
        "local.retention.bytes": "1",
        "file.delete.delay.ms": "100",
    }
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(TOPIC, partitions, 1, config=configs)])[TOPIC].result(60)


def ends_of_tier(kafka: TieredKafka, partitions: int) -> list[int]:
    """Where the log on the broker's own disk begins: all before that is in the tier only."""
    found: list[int] = []
    for number in range(partitions):
        segments = sorted((kafka.directory / "logs" / f"{TOPIC}-{number}").glob("*.log"))
        found.append(int(segments[0].stem) if len(segments) == 1 else -1)
    return found


def wait_for_tier(kafka: TieredKafka, partitions: int) -> list[int]:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        ends = ends_of_tier(kafka, partitions)
        if min(ends) > 0:
            return ends
        time.sleep(0.5)
    raise SystemExit(f"Kafka has not moved its segments to the tier within {PATIENCE:.0f} s")


def read(broker: ServerProcess, bootstrap: str, records: int, partitions: int) -> tuple[float, float]:
    """MB/s, and the broker's CPU seconds per GB."""
    with watched(broker.pid) as usage:
        load = driver.fetch(
            bootstrap, TOPIC, records=records, partitions=partitions, timeout=PATIENCE
        ).result(PATIENCE + 10)
    return load.megabytes_per_second, usage.cpu_seconds / (load.bytes / 1e9)


def run(directory: Path, megabytes: int, size: int, partitions: int, runs: int) -> None:
    records = megabytes * 1_000_000 // size
    segment_bytes = max(1 << 20, min(64 << 20, megabytes * 1_000_000 // partitions // 8))
    kafka = TieredKafka(directory / "kafka", {"log.retention.check.interval.ms": "1000"})
    with kafka:
        create(kafka, partitions, segment_bytes)
        driver.produce(
            kafka.bootstrap, TOPIC, records=records, size=size, partitions=partitions, timeout=PATIENCE
        ).result(PATIENCE + 10)
        tiered = sum(wait_for_tier(kafka, partitions))
        print(
            f"{tiered * size / 1e6:.0f} MB of {size} B records tiered, in {partitions} partitions", flush=True
        )
        home = directory / "dray"
        home.mkdir()
        with attached_broker(home, kafka.tier) as dray:
            dray.attach(TOPIC)
            ratios: list[float] = []
            for number in range(runs):
                speeds: list[float] = []
                for name, broker in (("Kafka", kafka), ("Dray", dray.broker)):
                    speed, cpu = read(broker, broker.bootstrap, tiered * 9 // 10, partitions)
                    speeds.append(speed)
                    order = "first" if number == 0 else "again"
                    print(f"  {name:6} {order}  {speed:6.0f} MB/s  {cpu:5.2f} CPU s/GB", flush=True)
                ratios.append(speeds[1] / speeds[0])
            each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
            print(f"  Dray / Kafka: {statistics.median(ratios):.2f} (of {each})")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--directory", help="where both keep their data (default: a temporary one)")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="dray-bench-", dir=options.directory))
    try:
        (directory / "kafka").mkdir()
        run(directory, options.megabytes, options.size, options.partitions, options.runs)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
