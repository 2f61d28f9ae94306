"""The numbers of a cluster's processes, from their own `/metrics`, and how fast they grow.

Reading and arithmetic are apart: `Sample` and `growth` are pure. A process that was started again counts from
zero, so its numbers are compared with nothing instead of with its predecessor's.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final, TypeAlias

import structlog
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from dray.base.runtime import KeptTask, Runtime, gather_some, keep_running
from dray.inspection.storage.stored import StoredCluster
from dray.metadata.contract import MetadataError

# --- the cycles of compactors, from how their counters grew between two looks
# Cycles that found nothing to do are counted together, so that an hour of them does not push out the last
# that did something.


CYCLES_KEPT: Final = 200
_PREFIX: Final = "dray_compaction_"
_WANTED: Final = (
    "dray_compaction_cycles_total",
    "dray_compaction_cycle_seconds_sum",
    "dray_compaction_phase_seconds_sum",
    "dray_compaction_files_total",
    "dray_compaction_records_total",
    "dray_compaction_input_bytes_total",
    "dray_compaction_output_bytes_total",
    "dray_compaction_jobs_total",
    "dray_compaction_table_commits_total",
    "dray_compaction_troubles_total",
    "dray_compaction_removed_total",
)

CycleNumbers = Mapping[tuple[str, str], float]
"""By the name of a counter and its one label's value."""


@dataclass(frozen=True)
class CompactionCycle:
    compactor: str
    """The address of its metrics."""
    ended_ms: int
    """When it was over, to the pace of the looks."""
    outcome: str
    """done, troubled or interrupted"""
    cycles: int
    """How many ended so since the look before."""
    seconds: float
    files: int
    records: int
    read_bytes: int
    written_bytes: int
    commits: Mapping[str, int]
    jobs: Mapping[str, int]
    troubles: Mapping[str, int]
    removed: Mapping[str, int]
    phases: Mapping[str, float]
    """Seconds of each."""

    @property
    def idle(self) -> bool:
        worked = self.files or self.commits or self.jobs or self.troubles or self.removed
        return not worked and self.outcome == "done"


def cycle_numbers(families: Iterable[Metric]) -> CycleNumbers:
    found: dict[tuple[str, str], float] = {}
    for family in families:
        if not family.name.startswith(_PREFIX):
            continue
        for sample in family.samples:
            if sample.name in _WANTED:
                found[sample.name.removeprefix(_PREFIX), next(iter(sample.labels.values()), "")] = (
                    sample.value
                )
    return found


@dataclass
class CycleHistory:
    cycles: deque[CompactionCycle] = field(default_factory=lambda: deque(maxlen=CYCLES_KEPT))
    """Oldest first."""
    _before: dict[str, CycleNumbers] = field(default_factory=dict)

    def take(self, numbers: Mapping[str, CycleNumbers], now_ms: int) -> None:
        for address, after in numbers.items():
            before = self._before.get(address)
            if before is not None:
                self._note(address, before, after, now_ms)
        self._before = dict(numbers)

    def _note(self, address: str, before: CycleNumbers, after: CycleNumbers, now_ms: int) -> None:
        if any(after.get(series, 0) < value for series, value in before.items()):
            before = {}  # it was started again, and counts from zero
        grown = {series: value - before.get(series, 0) for series, value in after.items()}

        def by_label(name: str) -> dict[str, float]:
            return {label: value for (series, label), value in grown.items() if series == name and value}

        def whole(name: str) -> int:
            return round(grown.get((f"{name}_total", ""), 0))

        ended = {outcome: round(value) for outcome, value in by_label("cycles_total").items()}
        if not ended:
            return
        outcome = next(each for each in ("troubled", "interrupted", *ended) if each in ended)
        counts = {
            name: {label: round(value) for label, value in by_label(f"{name}_total").items()}
            for name in ("table_commits", "jobs", "troubles", "removed")
        }
        cycle = CompactionCycle(
            address,
            now_ms,
            outcome,
            sum(ended.values()),
            grown.get(("cycle_seconds_sum", ""), 0.0),
            whole("files"),
            whole("records"),
            whole("input_bytes"),
            whole("output_bytes"),
            counts["table_commits"],
            counts["jobs"],
            counts["troubles"],
            counts["removed"],
            by_label("phase_seconds_sum"),
        )
        last = self.cycles[-1] if self.cycles else None
        if last is not None and last.idle and cycle.idle and last.compactor == cycle.compactor:
            self.cycles[-1] = replace(
                cycle, cycles=last.cycles + cycle.cycles, seconds=last.seconds + cycle.seconds
            )
        else:
            self.cycles.append(cycle)


# --- looks at the processes


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
LOST: Final = "dray_lost_objects"
LEFT_TABLES: Final = "dray_compaction_left_tables"

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
    states: Mapping[str, int] = field(default_factory=dict)
    """Gauges that are 0 while all is well, by name: the largest of any process."""


def numbers_in(text: str) -> Numbers:
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in text_string_to_metric_families(text):
        wanted = family.name in _HISTOGRAMS or f"{family.name}_total" in _COUNTERS
        for sample in family.samples if wanted else ():
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def states_in(texts: Iterable[str]) -> dict[str, int]:
    found = dict.fromkeys((LOST, LEFT_TABLES), 0)
    for line in chain.from_iterable(text.splitlines() for text in texts):
        name, _, value = line.partition(" ")
        if name in found:
            found[name] = max(found[name], int(float(value)))
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
    texts = await gather_some(metrics_of(address, access) for address in addresses)
    answered = {address: text for address, text in zip(addresses, texts, strict=True) if text is not None}
    parsed = {address: await runtime.in_thread(numbers_in, text) for address, text in answered.items()}
    cycles = {
        address: await runtime.in_thread(_cycles_in, text)
        for address, text in answered.items()
        if "dray_compaction_cycles" in text
    }
    silent = [each for each in addresses if each not in answered]
    return Sample(runtime.monotonic(), parsed, silent, cycles, states_in(answered.values()))


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
