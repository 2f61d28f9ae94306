"""The numbers of a compactor: what cycles tell, as Prometheus sees it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dray.base.config.kinds import Address
from dray.base.runtime import Runtime, SystemRuntime
from dray.base.telemetry import ProcessMetrics
from dray.cli.options import load_config
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.stores import Stores
from dray.daemons.compactor.health import FAILED_CYCLES, CompactorHttp, CycleHealth
from dray.daemons.compactor.metrics import CompactorMetrics
from dray.log.jobs.clean_shares import CleanShares, Share
from dray.metadata.memory import MemoryStore
from dray.objects.memory import MemoryObjects
from dray.tables.compaction.summary import Backlog, Cause, CycleSummary, Phase, StalledStream

NOW_MS = 1_700_000_000_000


class Scraped:
    def __init__(self) -> None:
        self.metrics = ProcessMetrics(process=False)
        self.observer = CompactorMetrics(self.metrics, lambda: NOW_MS, topics=2)

    def sample(self, name: str, **labels: str) -> float | None:
        for family in text_string_to_metric_families(self.metrics.exposition().decode()):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def label_values(self, name: str, label: str) -> set[str]:
        return {
            sample.labels[label]
            for family in text_string_to_metric_families(self.metrics.exposition().decode())
            for sample in family.samples
            if sample.name == name
        }


@pytest.fixture
def scraped() -> Scraped:
    return Scraped()


def test_what_cycles_did_adds_up(scraped: Scraped) -> None:
    summary = CycleSummary(
        streams=7, looked=2, units=2, files=2, records=30, input_bytes=3000, output_bytes=900, finished=2
    )
    summary.files_deleted, summary.files_pending, summary.swept, summary.seconds = 3, 4, 5, 1.5
    scraped.observer.finished(summary)
    scraped.observer.finished(summary)
    for name, value in (
        ("dray_compaction_streams", 7),
        ("dray_compaction_streams_read_total", 4),
        ("dray_compaction_units_total", 4),
        ("dray_compaction_files_total", 4),
        ("dray_compaction_records_total", 60),
        ("dray_compaction_input_bytes_total", 6000),
        ("dray_compaction_output_bytes_total", 1800),
        ("dray_compaction_files_pending", 4),
        ("dray_compaction_cycle_seconds_count", 2),
        ("dray_compaction_cycle_seconds_sum", 3.0),
    ):
        assert scraped.sample(name) == value, name
    assert scraped.sample("dray_compaction_cycles_total", outcome="done") == 2
    assert scraped.sample("dray_compaction_jobs_total", outcome="finished") == 4
    assert scraped.sample("dray_compaction_removed_total", kind="files") == 6
    assert scraped.sample("dray_compaction_removed_total", kind="index_entries") == 10


def test_troubles_are_counted_by_cause_and_spoil_the_cycle(scraped: Scraped) -> None:
    assert scraped.sample("dray_compaction_troubles_total", cause="table") == 0, "there before the first one"
    scraped.observer.finished(CycleSummary())
    clean = scraped.sample("dray_compaction_last_clean_cycle_timestamp_seconds")
    assert clean == scraped.sample("dray_compaction_last_cycle_timestamp_seconds") == NOW_MS / 1000
    scraped.observer.finished(CycleSummary(troubles=[StalledStream("orders", 1, "why", Cause.UNIT)] * 2))
    scraped.observer.interrupted()
    assert scraped.sample("dray_compaction_troubles_total", cause="unit") == 2
    assert scraped.sample("dray_compaction_cycles_total", outcome="troubled") == 1
    assert scraped.sample("dray_compaction_cycles_total", outcome="interrupted") == 1


def test_units_in_flight_and_what_steps_take(scraped: Scraped) -> None:
    scraped.observer.progress(Phase.WRITE, 1, 5)
    assert scraped.sample("dray_compaction_units_in_flight") == 4
    scraped.observer.progress(Phase.PLAN, 0, 100)
    assert scraped.sample("dray_compaction_units_in_flight") == 4
    scraped.observer.took(Phase.SWAP, 0.2)
    assert scraped.sample("dray_compaction_phase_seconds_sum", phase="swap") == 0.2
    scraped.observer.committed(0.3, "raced")
    assert scraped.sample("dray_compaction_table_commits_total", outcome="raced") == 1
    assert scraped.sample("dray_compaction_table_commit_seconds_sum") == 0.3
    scraped.observer.finished(CycleSummary())
    assert scraped.sample("dray_compaction_units_in_flight") == 0


def test_the_backlog_names_only_the_topics_furthest_behind(scraped: Scraped) -> None:
    backlog = {f"topic-{size}": Backlog(size, size * 10, 1, NOW_MS - size * 1000) for size in range(1, 6)}
    scraped.observer.finished(CycleSummary(backlog=backlog))
    assert scraped.label_values("dray_compaction_topic_backlog_bytes", "topic") == {"topic-5", "topic-4"}
    assert scraped.sample("dray_compaction_topic_backlog_seconds", topic="topic-5") == 5.0
    assert scraped.sample("dray_compaction_backlog_records") == 15, "all of them"
    assert scraped.sample("dray_compaction_backlog_entries") == 5
    scraped.observer.finished(CycleSummary(backlog={"topic-1": Backlog()}))
    assert scraped.label_values("dray_compaction_topic_backlog_bytes", "topic") == {"topic-1"}
    assert scraped.sample("dray_compaction_backlog_seconds") == 0


def test_clean_and_dirty_parts_are_shown_and_the_dirtiest_topics_by_name(scraped: Scraped) -> None:
    assert scraped.sample("dray_compaction_by_key_bytes", part="dirty") == 0, "there before the first topic"
    shares = {
        f"topic-{size}": CleanShares(9, Share(1, 10), Share(2, size * 10), Share(3, 5), None, NOW_MS - size)
        for size in range(1, 5)
    }
    scraped.observer.finished(CycleSummary(clean_shares=shares, removed_by_key=11))
    scraped.observer.finished(CycleSummary(clean_shares=shares, removed_by_key=4))
    assert scraped.sample("dray_compaction_by_key_removed_records_total") == 15
    for part, records, size in (("clean", 4, 40), ("dirty", 8, 100), ("waiting", 12, 20)):
        assert scraped.sample("dray_compaction_by_key_records", part=part) == records
        assert scraped.sample("dray_compaction_by_key_bytes", part=part) == size
    assert scraped.sample("dray_compaction_by_key_last_timestamp_seconds") == (NOW_MS - 1) / 1000
    assert scraped.label_values("dray_compaction_topic_dirty_ratio", "topic") == {"topic-4", "topic-3"}
    assert scraped.sample("dray_compaction_topic_dirty_bytes", topic="topic-3") == 30
    assert scraped.sample("dray_compaction_topic_dirty_ratio", topic="topic-3") == 0.75


def test_every_figure_of_a_summary_is_in_the_metrics(scraped: Scraped) -> None:
    """A figure that is added to the summary must not be forgotten here."""
    elsewhere = {"seconds", "more", "troubles", "backlog", "table_files_restored", "sealed", "commits"}
    elsewhere |= {"collected", "collection_seconds"}  # whether a round was due; its phase tells how long
    elsewhere |= {"lost"}  # has a test of its own: a round that did not collect says nothing of it
    elsewhere |= {"clean_shares"}  # has a test of its own, as the backlog
    for figure in fields(CycleSummary):
        if figure.name in elsewhere:
            continue
        before = scraped.metrics.exposition()
        scraped.observer.finished(CycleSummary())
        quiet = _values(before, scraped.metrics.exposition())
        before = scraped.metrics.exposition()
        summary = CycleSummary()
        setattr(summary, figure.name, 7)
        scraped.observer.finished(summary)
        assert _values(before, scraped.metrics.exposition()) - quiet, figure.name


def test_lost_objects_are_those_of_the_last_collection(scraped: Scraped) -> None:
    lost: Any = ["one", "two"]
    scraped.observer.finished(CycleSummary(lost=lost, collected=True))
    assert scraped.sample("dray_lost_objects") == 2
    scraped.observer.finished(CycleSummary())
    assert scraped.sample("dray_lost_objects") == 2, "nobody looked"
    scraped.observer.finished(CycleSummary(collected=True))
    assert scraped.sample("dray_lost_objects") == 0


def _values(before: bytes, after: bytes) -> set[str]:
    """The lines that changed, by the name of their sample."""
    return {
        line.split(" ")[0] for line in set(after.decode().splitlines()) - set(before.decode().splitlines())
    }


def test_the_flag_and_the_default() -> None:
    assert load_config(None).settings.compaction.http is None, "two compactors on a machine do not collide"
    settings = load_config(None, compactor_http="127.0.0.1:9643").settings
    assert settings.compaction.http == Address("127.0.0.1", 9643)
    assert settings.broker.http == Address("127.0.0.1", 9644)


async def test_health_ready_and_metrics_over_http() -> None:
    runtime = SystemRuntime(threads=2)
    stores = Stores(MemoryStore(runtime), MemoryObjects(runtime))
    http = CompactorHttp(stores, runtime, ProcessMetrics())
    await http.start(Address("127.0.0.1", 0))
    try:
        status, body = await _get(runtime, http, "/readyz")
        assert status == 503
        assert json.loads(body)["checks"]["working"]["error"].endswith("the compactor is still starting")
        assert (await _get(runtime, http, "/healthz"))[0] == 200
        http.cycles = CycleHealth(runtime.monotonic, 60.0)
        assert (await _get(runtime, http, "/readyz"))[0] == 200
        for _ in range(FAILED_CYCLES):
            http.cycles.interrupted()
        status, body = await _get(runtime, http, "/readyz")
        assert status == 503
        assert "cycles failed" in json.loads(body)["checks"]["working"]["error"]
        http.cycles.finished(CycleSummary())
        assert (await _get(runtime, http, "/readyz"))[0] == 200
        body = (await _get(runtime, http, "/metrics"))[1]
        assert b'dray_metadata_seconds_count{operation="get"}' in body, "the stores are measured"
        with pytest.raises(Failure, match=r"already in use: .* another compaction\.http"):
            await CompactorHttp(stores, runtime, ProcessMetrics()).start(Address(*http.address))
    finally:
        await http.stop()
        await stores.close()
        runtime.close()


async def _get(runtime: Runtime, http: CompactorHttp, path: str) -> tuple[int, bytes]:
    def ask() -> tuple[int, bytes]:
        host, port = http.address
        try:
            with urlopen(f"http://{host}:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read()
        except HTTPError as error:
            return error.code, error.read()

    return await runtime.in_thread(ask)
