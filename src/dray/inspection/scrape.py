"""The numbers of a cluster's processes, from their own `/metrics`, and how fast they grow.

Reading and arithmetic are apart: `Sample` and `growth` are pure. A process that was started again counts from
zero, so its numbers are compared with nothing instead of with its predecessor's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import structlog
from prometheus_client.parser import text_string_to_metric_families

from dray.inspection.cycles import CycleHistory, CycleNumbers, cycle_numbers
from dray.inspection.stored import StoredCluster
from dray.metadata.contract import MetadataError
from dray.runtime import KeptTask, Runtime, keep_running

_log = structlog.get_logger(__name__)

LARGEST_ANSWER: Final = 8 * 1024 * 1024
MOST_PROCESSES: Final = 64
EVERY_SECONDS: Final = 5.0
KEPT: Final = 120
"""Points of the curves: ten minutes."""

_PATIENCE_SECONDS: Final = 3.0
_COUNTERS: Final = (
    "dray_received_bytes_total",
    "dray_sent_bytes_total",
    "dray_object_store_bytes_total",
    "dray_object_store_failures_total",
    "dray_metadata_failures_total",
    "dray_requests_total",
    "dray_topic_produce_bytes_total",
)
_HISTOGRAMS: Final = ("dray_produce_seconds", "dray_object_store_seconds", "dray_metadata_seconds")

Numbers: TypeAlias = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]
"""By the name of a series and its labels."""


@dataclass(frozen=True)
class ScrapeAccess:
    """How other processes are asked for their numbers: over TLS or not, and with which token."""

    tls: ssl.SSLContext | None = None
    token: Callable[[], str] | None = None


PLAIN_ACCESS: Final = ScrapeAccess()


@dataclass(frozen=True)
class Sample:
    """The metrics of the processes at one moment, by their addresses."""

    at: float
    processes: Mapping[str, Numbers]
    silent: Sequence[str] = ()
    """The addresses of processes that did not answer."""
    cycles: Mapping[str, CycleNumbers] = field(default_factory=dict)
    """The compaction's counters, of those that compact."""


def numbers_in(text: str) -> Numbers:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        wanted = family.name in _HISTOGRAMS or f"{family.name}_total" in _COUNTERS
        for sample in family.samples if wanted else ():
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def growth(older: Sample, newer: Sample) -> Numbers:
    """By how much each series grew, over all processes that both samples know."""
    total: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for address, numbers in newer.processes.items():
        before = older.processes.get(address)
        if before is None:
            continue
        restarted = any(numbers.get(series, 0) < value for series, value in before.items())
        for series, value in numbers.items():
            total[series] = total.get(series, 0) + value - (0 if restarted else before.get(series, 0))
    return total


def summed(numbers: Numbers, name: str, **labels: str) -> float:
    wanted = set(labels.items())
    return sum(value for (series, pairs), value in numbers.items() if series == name and wanted <= set(pairs))


def quantile(numbers: Numbers, histogram: str, share: float) -> float | None:
    """The upper bound of the bucket in which it lies; None where nothing was measured."""
    buckets: dict[float, float] = {}
    for (series, pairs), value in numbers.items():
        if series == f"{histogram}_bucket":
            bound = float(dict(pairs)["le"])
            buckets[bound] = buckets.get(bound, 0) + value
    total = buckets.get(float("inf"), 0)
    if not total:
        return None
    return next(bound for bound in sorted(buckets) if buckets[bound] >= share * total)


@dataclass(frozen=True)
class Point:
    """The cluster between two samples."""

    received: float
    sent: float
    """Bytes a second."""
    produce_p99_ms: float | None


@dataclass
class ScrapeHistory:
    """Samples at a steady pace, in memory: the newest two, the oldest of a while ago, and a curve."""

    stored: StoredCluster
    runtime: Runtime
    access: ScrapeAccess = PLAIN_ACCESS
    cycles: CycleHistory = field(default_factory=CycleHistory)
    points: deque[Point] = field(default_factory=lambda: deque(maxlen=KEPT))
    _samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=13))
    _task: KeptTask | None = None

    def start(self) -> None:
        self._task = keep_running(self.runtime, "sample the cluster's numbers", self._run)

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()
            self._task = None

    @property
    def newest(self) -> Sample | None:
        return self._samples[-1] if self._samples else None

    def recent(self) -> tuple[float, Numbers]:
        """The seconds of the last minute, or less, and what grew in it."""
        if len(self._samples) < 2:
            return 0.0, {}
        older, newer = self._samples[0], self._samples[-1]
        return newer.at - older.at, growth(older, newer)

    def take(self, sample: Sample) -> None:
        if self._samples:
            before = self._samples[-1]
            grown, seconds = growth(before, sample), max(sample.at - before.at, 0.001)
            p99 = quantile(grown, "dray_produce_seconds", 0.99)
            self.points.append(
                Point(
                    summed(grown, "dray_received_bytes_total") / seconds,
                    summed(grown, "dray_sent_bytes_total") / seconds,
                    None if p99 is None else 1000 * p99,
                )
            )
        self._samples.append(sample)
        self.cycles.take(sample.cycles, self.runtime.wall_ms())

    async def _run(self) -> None:
        while True:
            with suppress(MetadataError):  # the pages say so themselves
                self.take(await sample(self.stored, self.runtime, self.access))
            await self.runtime.sleep(EVERY_SECONDS)


async def sample(stored: StoredCluster, runtime: Runtime, access: ScrapeAccess = PLAIN_ACCESS) -> Sample:
    brokers = [broker.http for broker in await stored.registrations()]
    others = [beat.process.http for beat in await stored.processes() if beat.process is not None]
    addresses = sorted({address for address in (*brokers, *others) if address})[:MOST_PROCESSES]
    texts = await asyncio.gather(*(metrics_of(address, access) for address in addresses))
    answered = {address: text for address, text in zip(addresses, texts, strict=True) if text is not None}
    parsed = {address: await runtime.in_thread(numbers_in, text) for address, text in answered.items()}
    cycles = {
        address: await runtime.in_thread(_cycles_in, text)
        for address, text in answered.items()
        if "dray_compaction_cycles" in text
    }
    silent = [each for each in addresses if each not in answered]
    return Sample(runtime.monotonic(), parsed, silent, cycles)


def _cycles_in(text: str) -> CycleNumbers:
    return cycle_numbers(text_string_to_metric_families(text))


async def metrics_of(address: str, access: ScrapeAccess) -> str | None:
    """None where it does not answer, or not as it should."""
    host, _, port = address.rpartition(":")
    head_lines = [f"GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n"]
    if access.token is not None:
        head_lines.append(f"Authorization: Bearer {access.token()}\r\n")
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=access.tls)
            try:
                writer.write(f"{''.join(head_lines)}\r\n".encode())
                answer = bytearray()
                while piece := await reader.read(1 << 16):
                    answer += piece
                    if len(answer) > LARGEST_ANSWER:
                        return None
            finally:
                writer.close()
    except (OSError, ValueError, TimeoutError):
        return None
    head, _, body = bytes(answer).partition(b"\r\n\r\n")
    return body.decode(errors="replace") if head.startswith(b"HTTP/1.1 200") else None
