"""The stores: how they answer, and what the requests to them cost for each gigabyte that producers send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dray.inspection.storage.scrape import LEFT_TABLES, LOST, Numbers, Point, ScrapeHistory, summed

PUTS: Final = ("put", "put_if_absent", "put_stream", "list")
GETS: Final = ("get", "get_ranges", "head")
ANSWERS: Final = ("ObjectMissing", "ObjectExists")
"""An answer of a store is no failure of it, though the caller may have hoped for something else."""
GIGABYTE: Final = 1e9
DAY: Final = 86400.0
MONTH_DAYS: Final = 365 / 12


@dataclass(frozen=True)
class Prices:
    """Prices of a thousand requests, and of a gigabyte that lies there for a month, in dollars: those of S3
    Standard in its cheapest region."""

    puts: float = 0.005
    gets: float = 0.0004
    stored: float = 0.023

    def of_a_day(self, stored_bytes: int) -> float:
        """The price of so many bytes in a day by lying there."""
        return stored_bytes / GIGABYTE * self.stored / MONTH_DAYS


@dataclass(frozen=True)
class OperationRow:
    operation: str
    per_second: float
    mean_ms: float | None
    failures: int


@dataclass(frozen=True)
class StoresView:
    seconds: float
    """The length of the measurement."""
    processes: int
    silent: Sequence[str]
    objects: Sequence[OperationRow]
    metadata: Sequence[OperationRow]
    written: float
    read: float
    """Bytes a second, to and from the object store."""
    received: float
    puts_per_gigabyte: float | None
    """Put requests per gigabyte that clients sent; None if they sent nothing."""
    dollars_per_gigabyte: float | None
    dollars_per_day: float
    prices: Prices
    lost: int = 0
    """Objects that the log names and that are gone."""
    left_tables: int = 0
    """Partitions whose log went on without their table."""


@dataclass(frozen=True)
class Flow:
    """The cluster's traffic now, and how it was."""

    received: float
    sent: float
    produce_p99_ms: float | None
    points: Sequence[Point]
    silent: Sequence[str]


def flow_of(history: ScrapeHistory) -> Flow | None:
    """None until two samples were taken."""
    if not history.points:
        return None
    last = history.points[-1]
    p99 = next((point.produce_p99_ms for point in reversed(history.points) if point.produce_p99_ms), None)
    silent = history.newest.silent if history.newest is not None else ()
    return Flow(last.received, last.sent, p99, list(history.points), silent)


def received_by_topic(history: ScrapeHistory) -> Mapping[str, float] | None:
    """Bytes a second in the last minute, of those topics that brokers count by name. None until two samples
    were taken."""
    seconds, grown = history.recent()
    if not seconds:
        return None
    found: dict[str, float] = {}
    for (series, labels), value in grown.items():
        if series == "dray_topic_produce_bytes_total":
            topic = dict(labels).get("topic", "")
            found[topic] = found.get(topic, 0.0) + value / seconds
    return found


def stores_view(history: ScrapeHistory, prices: Prices | None = None) -> StoresView:
    seconds, grown = history.recent()
    prices = prices or Prices()
    newest = history.newest
    span = max(seconds, 0.001)
    puts = sum(_count(grown, "dray_object_store_seconds", name) for name in PUTS)
    gets = sum(_count(grown, "dray_object_store_seconds", name) for name in GETS)
    dollars = (puts * prices.puts + gets * prices.gets) / 1000
    gigabytes = summed(grown, "dray_received_bytes_total") / GIGABYTE
    return StoresView(
        seconds,
        len(newest.processes) if newest is not None else 0,
        newest.silent if newest is not None else (),
        _operations(grown, "dray_object_store", span),
        _operations(grown, "dray_metadata", span),
        summed(grown, "dray_object_store_bytes_total", operation="write") / span,
        summed(grown, "dray_object_store_bytes_total", operation="read") / span,
        summed(grown, "dray_received_bytes_total") / span,
        puts / gigabytes if gigabytes else None,
        dollars / gigabytes if gigabytes else None,
        dollars / span * DAY if seconds else 0.0,
        prices,
        0 if newest is None else newest.states.get(LOST, 0),
        0 if newest is None else newest.states.get(LEFT_TABLES, 0),
    )


def _operations(grown: Numbers, store: str, span: float) -> list[OperationRow]:
    names = sorted({dict(labels)["operation"] for name, labels in grown if name == f"{store}_seconds_count"})
    rows = []
    for name in names:
        count = _count(grown, f"{store}_seconds", name)
        failed = summed(grown, f"{store}_failures_total", operation=name)
        answered = sum(
            summed(grown, f"{store}_failures_total", operation=name, error=error) for error in ANSWERS
        )
        failures = round(failed - answered)
        if count or failures:
            spent = summed(grown, f"{store}_seconds_sum", operation=name)
            mean_ms = 1000 * spent / count if count else None
            rows.append(OperationRow(name, count / span, mean_ms, failures))
    return sorted(rows, key=lambda row: -row.per_second)


def _count(grown: Numbers, histogram: str, operation: str) -> float:
    return summed(grown, f"{histogram}_count", operation=operation)
