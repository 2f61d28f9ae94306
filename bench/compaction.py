"""Compaction on Spark, and beside it the usual way: Structured Streaming from the Kafka API into Iceberg.

python -m bench.compaction [--megabytes 1000] [--sizes 1024,100] [--partitions 8] [--cores 2] [--alone]

Both get the same topics of the same broker, uncompressed; both write zstd; both are warm, having copied a
small topic before; each has a JVM of its own. Ours is a whole cycle: plan, files, commit of the table, swap
of the index. Prints MB/s of WAL bytes, CPU seconds per GB, the largest Python worker, and the ratio. With
`--alone` the usual way is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import Producer
from tests.services.dray import DrayProcess
from tests.services.topics import create_topic

from bench.payloads import text_columns
from dray.base.runtime import SystemRuntime
from dray.broker.cluster import BucketGuard
from dray.daemons.assembly.settings import compaction_settings, log_settings
from dray.daemons.assembly.stores import open_stores
from dray.daemons.compactor.pipeline import open_pipeline
from dray.daemons.config import Settings
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.spark.session import SparkProcess, SparkSettings, open_session
from dray.tables.compaction.spark.worker import StoreAddress
from dray.tables.compaction.spark.writer import SparkUnitWriter

USUAL_WAY_SECONDS = 900
WARM_UP_MEGABYTES = 100


@dataclass
class Run:
    megabytes: float
    seconds: float
    cpu_seconds: float
    worker_megabytes: float = 0.0

    def __str__(self) -> str:
        gigabytes = self.megabytes / 1000
        text = f"{self.megabytes / self.seconds:6.0f} MB/s  {self.cpu_seconds / gigabytes:6.2f} CPU s/GB"
        return text + (f"  worker peak {self.worker_megabytes:.0f} MB" if self.worker_megabytes else "")


def produce(bootstrap: str, topic: str, partitions: int, megabytes: int, size: int) -> int:
    """Answers how many records."""
    columns = text_columns(4 << 20, size)
    rows = list(
        zip(columns.keys.values(columns.row_count), columns.values.values(columns.row_count), strict=True)
    )
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "compression.type": "none",
            "queue.buffering.max.messages": 500_000,
        }
    )
    count = megabytes * 1_000_000 // size
    for number in range(count):
        key, value = rows[number % len(rows)]
        while True:
            try:
                producer.produce(topic, value, key, partition=number // 64 % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise SystemExit("the broker did not take all records in time")
    return count


# --- the usual way


def usual_way(bootstrap: str, warm_up: str, topic: str, folder: Path, cores: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.usual_way", bootstrap, warm_up, topic, str(folder), str(cores)]
    environment = dict(os.environ) | {"PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=USUAL_WAY_SECONDS, check=False, env=environment
    )
    if done.returncode != 0:
        raise SystemExit(f"the usual way failed: {done.stderr[-3000:]}")
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


# --- ours


def processes() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def cpu_seconds(broker: int) -> float:
    """Of this process, its JVM and its workers, ended ones included; not of the broker."""
    total = 0.0
    for process in processes():
        try:
            if process.pid != broker:
                times = process.cpu_times()
                total += times.user + times.system + times.children_user + times.children_system
        except psutil.NoSuchProcess:
            continue
    return total


@contextmanager
def watched_workers() -> Iterator[list[int]]:
    """The most that any Python worker of Spark ever held, as the kernel remembers it."""
    peak = [0]
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            for process in processes():
                try:
                    if "dray.tables.compaction.spark.daemon" in process.cmdline():  # as a word of its own
                        status = Path(f"/proc/{process.pid}/status").read_text()
                        line = next(line for line in status.splitlines() if line.startswith("VmHWM"))
                        peak[0] = max(peak[0], int(line.split()[1]) * 1024)
                except (psutil.Error, OSError, StopIteration):
                    continue

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()


async def cycle(settings: Settings, session: SparkProcess, broker: int) -> Run:
    runtime = SystemRuntime()
    stores = await open_stores(settings, runtime)
    pipeline = await open_pipeline(settings, runtime, stores)
    writer = SparkUnitWriter(session, StoreAddress(settings.objects_url), runtime)
    compactor = Compactor(
        CompactorStores(
            pipeline.streams, stores.objects, BucketGuard(stores.objects, pipeline.cluster.cluster_id)
        ),
        runtime,
        writer,
        pipeline.tables,
        pipeline.topics,
        compaction_settings(settings),
        log_settings(settings),
    )
    with watched_workers() as peak:
        before = cpu_seconds(broker)
        summary = await compactor.run_cycle(everything=True)
        used = cpu_seconds(broker) - before
    if summary.troubles:
        raise SystemExit(f"compaction stands still: {summary.troubles[0]}")
    await stores.close()
    runtime.close()
    return Run(summary.input_bytes / 1e6, summary.seconds, used, peak[0] / 1e6)


def bench(size: int, megabytes: int, partitions: int, cores: int, alone: bool, session: SparkProcess) -> None:
    root = Path(tempfile.mkdtemp(prefix="dray-bench-", dir=".")).absolute()
    try:
        with DrayProcess(root) as broker:
            for topic, amount in (("warm_up", WARM_UP_MEGABYTES), ("measured", megabytes)):
                create_topic(broker.bootstrap, topic, partitions)
                if topic == "measured":
                    settings = Settings(data_dir=str(broker.data_directory))
                    asyncio.run(cycle(settings, session, broker.pid))
                records = produce(broker.bootstrap, topic, partitions, amount, size)
            print(f"{megabytes} MB of {size} B records in {partitions} partitions, {cores} cores", flush=True)
            usual = None
            if not alone:
                answer = usual_way(broker.bootstrap, "warm_up", "measured", root, cores)
                if answer["rows"] != records:
                    raise SystemExit(f"the usual way copied {answer['rows']} of {records} records")
            began = time.monotonic()
            ours = asyncio.run(cycle(settings, session, broker.pid))
            print(f"  Dray:          {ours}", flush=True)
            if not alone:
                usual = Run(ours.megabytes, answer["seconds"], answer["cpu_seconds"])
                print(f"  the usual way: {usual}")
                print(
                    f"  Dray / usual:  {usual.seconds / ours.seconds:.1f} times as fast, "
                    f"{ours.cpu_seconds / usual.cpu_seconds:.2f} of the CPU "
                    f"(the broker's own, which serves the usual way, not counted)"
                )
            print(f"  (measured in {time.monotonic() - began:.1f} s)", flush=True)
    finally:
        shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--sizes", default="1024,100")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--alone", action="store_true")
    arguments = parser.parse_args()
    session = open_session(SparkSettings(master=f"local[{arguments.cores},3]"))
    try:
        for size in map(int, arguments.sizes.split(",")):
            bench(size, arguments.megabytes, arguments.partitions, arguments.cores, arguments.alone, session)
    finally:
        session.stop()


if __name__ == "__main__":
    main()
