"""The numbers of processes, and what follows from them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import cast

import pytest

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics, ProcessMetrics
from dray.broker.cluster.membership import AdvertisedListener, Broker
from dray.daemons.compactor.metrics import CompactorMetrics
from dray.inspection.storage.costs import Prices, flow_of, received_by_topic, stores_view
from dray.inspection.storage.scrape import (
    KEPT,
    LARGEST_ANSWER,
    Sample,
    ScrapeHistory,
    growth,
    numbers_in,
    quantile,
    sample,
    states_in,
    summed,
)
from dray.inspection.storage.stored import StoredCluster
from dray.tables.compaction.summary import CycleSummary


def scraped(received: int = 0, puts: int = 0, gets: int = 0, produced: tuple[float, ...] = ()) -> str:
    metrics = Metrics(process=False)
    metrics.received_bytes.value = received
    metrics.object_bytes.labels("write").value = 2 * received
    for _ in range(puts):
        metrics.object_seconds.labels("put").observe(0.01)
    for _ in range(gets):
        metrics.object_seconds.labels("get_ranges").observe(0.002)
    for seconds in produced:
        metrics.produce_seconds.observe(seconds)
    return metrics.exposition().decode()


def a_sample(at: float, **processes: str) -> Sample:
    return Sample(at, {address: numbers_in(text) for address, text in processes.items()})


def history(*samples: Sample) -> ScrapeHistory:
    made = ScrapeHistory(cast(StoredCluster, None), SystemRuntime())
    for each in samples:
        made.take(each)
    return made


def test_what_grew_over_all_processes() -> None:
    older = a_sample(0, a=scraped(100), b=scraped(10), gone=scraped(7))
    newer = a_sample(5, a=scraped(150), b=scraped(30), new=scraped(1000))
    assert summed(growth(older, newer), "dray_received_bytes_total") == 70


def test_a_process_that_was_started_again_counts_from_zero() -> None:
    grown = growth(a_sample(0, a=scraped(100, puts=3)), a_sample(5, a=scraped(40, puts=5)))
    assert summed(grown, "dray_received_bytes_total") == 40
    assert summed(grown, "dray_object_store_seconds_count", operation="put") == 5


def test_a_quantile_is_of_what_was_measured_in_between() -> None:
    older = a_sample(0, a=scraped(produced=(9.0,) * 50))
    newer = a_sample(5, a=scraped(produced=(9.0,) * 50 + (0.0009,) * 98 + (0.04,) * 2))
    grown = growth(older, newer)
    assert quantile(grown, "dray_produce_seconds", 0.5) == 0.001
    assert quantile(grown, "dray_produce_seconds", 0.99) == 0.05
    assert quantile(growth(newer, newer), "dray_produce_seconds", 0.99) is None


def test_what_requests_cost() -> None:
    later = scraped(10**9, puts=2000, gets=10_000)
    view = stores_view(history(a_sample(0, a=scraped()), a_sample(10, a=later)))
    assert view.puts_per_gigabyte == 2000
    assert view.dollars_per_gigabyte == pytest.approx(2000 * 0.005 / 1000 + 10_000 * 0.0004 / 1000)
    assert view.dollars_per_gigabyte is not None
    assert view.dollars_per_day == pytest.approx(view.dollars_per_gigabyte * 8640)
    assert (view.received, view.written) == (10**8, 2 * 10**8)
    [put] = [row for row in view.objects if row.operation == "put"]
    assert (put.per_second, round(put.mean_ms or 0, 3)) == (200, 10)


def test_what_processes_have_found_lost_or_left_is_in_the_view() -> None:
    """Two that name the same object have not found two."""
    broker, compactor = Metrics(process=False), ProcessMetrics()
    broker.lost_objects.value = compactor.lost_objects.value = 2
    CompactorMetrics(compactor, lambda: 0, 0).finished(CycleSummary(left_tables=3))
    states = states_in(each.exposition().decode() for each in (broker, compactor))
    view = stores_view(history(replace(a_sample(0, a=scraped()), states=states)))
    assert (view.lost, view.left_tables) == (2, 3)


def test_nothing_is_said_before_it_is_measured() -> None:
    view = stores_view(history(a_sample(0, a=scraped(10**9))))
    assert (view.seconds, view.puts_per_gigabyte, view.dollars_per_day) == (0, None, 0)
    assert flow_of(history(a_sample(0, a=scraped()))) is None


def test_the_curve_is_bounded_and_ends_now() -> None:
    many = history(*(a_sample(5 * n, a=scraped(50 * n)) for n in range(KEPT + 40)))
    flow = flow_of(many)
    assert flow is not None
    assert (flow.received, len(flow.points)) == (10, KEPT)
    assert many.recent()[0] == 60


class Registered(StoredCluster):
    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def registrations(self) -> list[Broker]:
        listener = (AdvertisedListener("PLAINTEXT", "h", 1),)
        return [Broker(n, listener, http=address) for n, address in enumerate(self._addresses)]

    async def processes(self) -> list[object]:  # type: ignore[override]
        return []


@pytest.mark.parametrize("answer", ["good", "refused", "endless", "nonsense"])
async def test_processes_that_answer_and_that_do_not(answer: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = b"x" * (LARGEST_ANSWER + 1) if answer == "endless" else scraped(5).encode()
        status = b"503 Unavailable" if answer == "refused" else b"200 OK"
        writer.write(b"nonsense" if answer == "nonsense" else b"HTTP/1.1 " + status + b"\r\n\r\n" + body)
        with suppress(ConnectionError):  # the other side had enough
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    found = await sample(Registered(address, "not an address", "127.0.0.1:1"), SystemRuntime())
    server.close()
    silent = {"127.0.0.1:1", "not an address"} | (set() if answer == "good" else {address})
    assert set(found.silent) == silent
    assert set(found.processes) == ({address} if answer == "good" else set())


def test_an_object_that_is_not_there_is_no_failure_of_the_store() -> None:
    def failing(**errors: int) -> str:
        metrics = Metrics(process=False)
        metrics.object_seconds.labels("get").observe(0.1)
        for error, count in errors.items():
            metrics.object_failures.labels("get", error).value = count
        return metrics.exposition().decode()

    some = failing(ObjectMissing=5, ObjectExists=2, ObjectError=3)
    taken = history(a_sample(0, a=failing()), a_sample(5, a=some))
    assert [(row.operation, row.failures) for row in stores_view(taken).objects if row.failures] == [
        ("get", 3)
    ]


def of_topics(**received: int) -> str:
    lines = ["# TYPE dray_topic_produce_bytes_total counter"]
    lines += [f'dray_topic_produce_bytes_total{{topic="{name}"}} {value}' for name, value in received.items()]
    return "\n".join([*lines, ""])


def test_what_each_topic_takes_in() -> None:
    before = a_sample(0, a=of_topics(orders=100, quiet=7), b=of_topics(orders=0))
    after = a_sample(10, a=of_topics(orders=600, quiet=7), b=of_topics(orders=500, new=20))
    assert received_by_topic(history(before, after)) == {"orders": 100.0, "quiet": 0.0, "new": 2.0}
    assert received_by_topic(history(before)) is None


def test_what_lies_there_costs_by_the_day() -> None:
    assert Prices().of_a_day(10**12) == pytest.approx(1000 * 0.023 * 12 / 365)
