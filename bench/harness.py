"""What benchmarks share: brokers watched for CPU and memory, topics made and deleted."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil
from confluent_kafka.admin import AdminClient
from tests.services.process import ServerProcess
from tests.services.topics import create_topic

SAMPLE_SECONDS = 0.05


@dataclass(slots=True)
class Usage:
    """What a broker's processes used while they were watched."""

    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    seconds: float = 0.0


def processes_of(pid: int) -> list[psutil.Process]:
    broker = psutil.Process(pid)
    return [broker, *broker.children(recursive=True)]


def cpu_seconds_of(pid: int) -> float:
    return sum(times.user + times.system for times in (p.cpu_times() for p in processes_of(pid)))


def resident_bytes_of(pid: int) -> int:
    return sum(process.memory_info().rss for process in processes_of(pid))


@contextmanager
def watched(pid: int) -> Iterator[Usage]:
    """CPU from the kernel's own counters; memory by looking often, as children come and go."""
    usage = Usage(peak_bytes=resident_bytes_of(pid))
    done = threading.Event()

    def sample() -> None:
        while not done.wait(SAMPLE_SECONDS):
            usage.peak_bytes = max(usage.peak_bytes, resident_bytes_of(pid))

    sampler = threading.Thread(target=sample, daemon=True)
    before, start = cpu_seconds_of(pid), time.monotonic()
    sampler.start()
    try:
        yield usage
    finally:
        usage.cpu_seconds = cpu_seconds_of(pid) - before
        usage.seconds = time.monotonic() - start
        done.set()
        sampler.join()


@dataclass(slots=True)
class Sample:
    """One run of one scenario against one broker."""

    megabytes_per_second: float
    records_per_second: float
    cpu_seconds_per_gigabyte: float
    peak_megabytes: float
    client_cpu_seconds_per_gigabyte: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0


@dataclass(slots=True)
class Series:
    """All runs of one scenario against one broker."""

    samples: list[Sample] = field(default_factory=list)

    def median(self, of: str) -> float:
        return float(statistics.median(getattr(sample, of) for sample in self.samples))


class Target:
    """A broker under load."""

    def __init__(self, name: str, server: ServerProcess, bootstrap: str) -> None:
        self.name = name
        self.server = server
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._made = 0

    @contextmanager
    def topic(self, partitions: int) -> Iterator[str]:
        """A fresh topic; deleted afterwards, as a run writes gigabytes."""
        self._made += 1
        name = f"bench-{self._made}"
        create_topic(self.bootstrap, name, partitions)
        try:
            yield name
        finally:
            for future in self._admin.delete_topics([name]).values():
                future.result(60)


def settle() -> None:
    """Let the disk finish first: what a broker wrote without fsync must not burden the next one."""
    os.sync()
