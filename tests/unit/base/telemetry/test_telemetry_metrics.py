from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client import Histogram as ReferenceHistogram
from prometheus_client.parser import text_string_to_metric_families

from dray.base.telemetry import Counter, Family, Histogram, Metrics
from dray.base.telemetry.instruments import Instruments


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def test_two_brokers_in_one_process_count_apart():
    one, other = Metrics(process=False), Metrics(process=False)
    one.received_bytes.value += 5
    assert samples(one)["dray_received_bytes_total", ()] == 5
    assert samples(other)["dray_received_bytes_total", ()] == 0


def test_the_list_of_the_spec_is_exposed():
    metrics = Metrics()
    metrics.api("Produce").finished(0.01, "ok")
    metrics.api("Produce").finished(0.01, "failed")
    metrics.api("Fetch").finished(0.2, "ok")
    metrics.metadata_seconds.labels("get").observe(0.001)
    metrics.object_seconds.labels("put").observe(0.1)
    names = {name for name, _ in samples(metrics)}
    for name in (
        "dray_produce_seconds_bucket",
        "dray_fetch_seconds_bucket",
        "dray_wal_flush_bytes_bucket",
        "dray_wal_flush_seconds_bucket",
        "dray_commit_retries_total",
        "dray_carried_batches_total",
        "dray_carried_bytes_total",
        "dray_packs_total",
        "dray_packed_entries_total",
        "dray_pack_conflicts_total",
        "dray_collection_orphan_objects",
        "dray_collection_pending_deletes",
        "dray_metadata_seconds_count",
        "dray_object_store_seconds_count",
        "dray_connections_active",
        "dray_requests_total",
        "dray_received_bytes_total",
        "dray_sent_bytes_total",
        "dray_frame_memory_bytes",
        "dray_tail_cache_bytes",
        "dray_open_long_polls",
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "python_gc_collections_total",
    ):
        assert name in names, name
    found = samples(metrics)
    assert found["dray_requests_total", (("api", "Produce"), ("outcome", "ok"))] == 1
    assert found["dray_requests_total", (("api", "Produce"), ("outcome", "failed"))] == 1
    assert found["dray_request_seconds_count", (("api", "Produce"),)] == 2


@given(st.lists(st.floats(0, 100, allow_nan=False) | st.sampled_from([0.1, 0.5, 2.5]), max_size=50))
def test_a_histogram_shows_what_prometheus_own_would(values):
    bounds = (0.1, 0.5, 2.5, 10.0)
    registries = CollectorRegistry(), CollectorRegistry()
    ours = Instruments(registries[0]).histogram("h", "help", bounds)
    reference = ReferenceHistogram("h", "help", buckets=bounds, registry=registries[1])
    for value in values:
        ours.observe(value)
        reference.observe(value)
    for suffix, labels in [
        ("_count", {}),
        *(("_bucket", {"le": le}) for le in ("0.1", "0.5", "2.5", "10.0", "+Inf")),
    ]:
        shown, wanted = (registry.get_sample_value("h" + suffix, labels) for registry in registries)
        assert shown is not None
        assert shown == wanted
    shown, wanted = (registry.get_sample_value("h_sum") for registry in registries)
    assert shown == pytest.approx(wanted)


@pytest.mark.parametrize("bounds", [(), (1.0, 1.0), (2.0, 1.0)])
def test_senseless_buckets_are_refused(bounds):
    with pytest.raises(ValueError, match="bounds"):
        Histogram(bounds)


def test_a_gauge_may_follow_its_source():
    metrics = Metrics(process=False)
    cache = [1, 2, 3]
    metrics.tail_cache_bytes.follow(lambda: len(cache))
    assert samples(metrics)["dray_tail_cache_bytes", ()] == 3
    cache.clear()
    assert samples(metrics)["dray_tail_cache_bytes", ()] == 0


def test_a_name_is_given_once_and_labels_must_fit():
    metrics = Metrics(process=False)
    with pytest.raises(ValueError, match="already"):
        metrics.instruments.counter("dray_commit_retries", "again")
    family = Family("f", "help", ("a", "b"), Counter)
    with pytest.raises(ValueError, match="labels"):
        family.labels("one")
    assert family.labels("one", "two") is family.labels("one", "two")
