"""Compaction by key, and beside it Kafka's own cleaner: the same updates of the same keys.

python -m bench.clean [--updates 10000000] [--keys 100000] [--size 100] [--compression none] [--alone]

Each gets the same records in one partition, and cleans them once. Kafka's cleaner is held back until all are
there. Ours is a whole cycle of a compactor in one process, which makes files of the WAL and then one of them
all. Prints what is left of the log beside the live bytes (keys and values of the last record of every key;
values are random, so nothing shrinks by compression), and CPU seconds per GB of what was appended. Kafka's is
the time of its cleaner thread alone, without the collector and compiler threads that help it; that of its
whole process stands beside it. Ours is the time of the whole process. With `--alone` Kafka is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from tests.services.cleaner import clean, shares_of
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.topics import create_topic

from bench.harness import cpu_seconds_of, settle

TOPIC = "updates"
HELD_BACK = "1000000000"  # milliseconds
SEGMENT_BYTES = 64 << 20
CLEANER_THREAD = "kafka-log-clean"  # as long as the kernel keeps names of threads
WAIT_SECONDS = 600


@dataclass(frozen=True)
class Updates:
    count: int
    keys: int
    size: int
    compression: str

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        """Every key at least once, then any; alike in each run."""
        chance = random.Random(1)
        pool = chance.randbytes(1 << 20)
        names = [b"key-%08d" % number for number in range(self.keys)]
        last = len(pool) - self.size
        for number in range(self.count):
            key = names[number if number < self.keys else int(chance.random() * self.keys)]
            at = int(chance.random() * last)
            yield key, pool[at : at + self.size]

    @property
    def live_bytes(self) -> int:
        return self.keys * (len(b"key-%08d" % 0) + self.size)


@dataclass
class Cleaned:
    appended: int  # bytes of the log before
    left: int  # and after
    seconds: float
    cpu_seconds: float
    process_cpu_seconds: float

    def said(self, name: str, updates: Updates) -> str:
        gigabytes = self.appended / 1e9
        return (
            f"{name:6} {self.appended / 1e6:7.0f} MB -> {self.left / 1e6:6.1f} MB, "
            f"{self.left / updates.live_bytes:.2f}x the live bytes; "
            f"{self.cpu_seconds / gigabytes:.2f} CPU s/GB "
            f"(whole process {self.process_cpu_seconds / gigabytes:.2f}), {self.seconds:.1f} s"
        )


def produce(bootstrap: str, updates: Updates) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1 << 19,
            "compression.type": updates.compression,
            "queue.buffering.max.messages": 500_000,
        }
    )
    for number, (key, value) in enumerate(updates.records()):
        while True:
            try:
                producer.produce(TOPIC, value, key)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(WAIT_SECONDS):
        raise SystemExit("the broker did not take all records in time")


# --- Kafka


def alter(bootstrap: str, **values: str) -> None:
    changes = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=changes)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)


def kafka(folder: Path, updates: Updates) -> Cleaned:
    settings = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "500"}
    with KafkaProcess(folder, settings) as server:
        config = {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": HELD_BACK,
            "segment.bytes": str(SEGMENT_BYTES),
            "file.delete.delay.ms": "0",
        }
        create_topic(server.bootstrap, TOPIC, 1, config)
        produce(server.bootstrap, updates)
        settle()
        before = _log_bytes(folder)
        # One more record rolls the active segment, which no cleaner touches.
        alter(server.bootstrap, segment_ms="100")
        time.sleep(0.5)
        produce(server.bootstrap, Updates(1, 1, updates.size, updates.compression))
        time.sleep(5)  # what the JVM still compiles is not the cleaner's
        thread, whole, started = _thread_cpu(server.pid), cpu_seconds_of(server.pid), time.monotonic()
        alter(server.bootstrap, min_compaction_lag_ms="0", min_cleanable_dirty_ratio="0.01")
        while _checkpoint(folder) < updates.count:
            if time.monotonic() > started + WAIT_SECONDS:
                raise SystemExit("Kafka's cleaner did not come to the end")
            time.sleep(0.1)
        seconds = time.monotonic() - started
        used = _thread_cpu(server.pid) - thread
        process = cpu_seconds_of(server.pid) - whole
        time.sleep(2)  # replaced segments are deleted in a moment
        return Cleaned(before, _log_bytes(folder), seconds, used, process)


def _log_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / "logs" / f"{TOPIC}-0").glob("*.log"))


def _checkpoint(folder: Path) -> int:
    """The first dirty offset, as the cleaner last wrote it down."""
    file = folder / "logs" / "cleaner-offset-checkpoint"
    lines = file.read_text().splitlines() if file.exists() else []
    found = [line.split() for line in lines]
    return max((int(words[2]) for words in found if words[:2] == [TOPIC, "0"]), default=0)


def _thread_cpu(pid: int) -> float:
    """Seconds of the cleaner's threads, by the kernel's count."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().strip() == CLEANER_THREAD:
            fields = (task / "stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


# --- ours


def dray(folder: Path, updates: Updates) -> Cleaned:
    for place, given in (("warm-up", Updates(1000, 10, 10, "none")), ("measured", updates)):
        with DrayProcess(folder / place) as server:
            config = {"cleanup.policy": "compact", "retention.ms": "-1"}
            create_topic(server.bootstrap, TOPIC, 1, config)
            produce(server.bootstrap, given)
    settle()
    before = shares_of(server, TOPIC).waiting.size
    command = [sys.executable, "-m", "bench.clean", "--cycle", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the cycle failed: {done.stderr[-3000:]}")
    answer = json.loads(done.stdout.splitlines()[-1])
    return Cleaned(before, **answer)


def cycle(folder: Path) -> dict[str, float]:
    """One cycle of a compactor, in this process. A small one comes before, so that all is loaded."""
    clean(DrayProcess(folder / "warm-up"), restart=False)
    server = DrayProcess(folder / "measured")
    used, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
    clean(server, restart=False)
    after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - started
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    shares = shares_of(server, TOPIC)
    return {
        "left": shares.clean.size + shares.dirty.size + shares.waiting.size,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "process_cpu_seconds": cpu,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--updates", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--cycle", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.cycle:
        print(json.dumps(cycle(Path(given.cycle))))
        return
    updates = Updates(given.updates, given.keys, given.size, given.compression)
    print(f"{asdict(updates)}, {updates.live_bytes / 1e6:.1f} MB live", flush=True)
    results = {}
    for name, run in (("dray", dray), ("kafka", kafka)):
        if name == "kafka" and given.alone:
            continue
        folder = Path(tempfile.mkdtemp(prefix=f"bench-clean-{name}-"))
        try:
            results[name] = run(folder, updates)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(results[name].said(name, updates), flush=True)
    if len(results) == 2:
        ours, theirs = (results[name].cpu_seconds / results[name].appended for name in ("dray", "kafka"))
        print(f"rewriting takes {ours / theirs:.2f}x the CPU of Kafka's cleaner thread")


if __name__ == "__main__":
    main()
