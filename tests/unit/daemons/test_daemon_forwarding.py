"""A broker that forwards: its limits come from the config, and its numbers are on /metrics."""

from __future__ import annotations

import re
from typing import cast

from tests.unit.migration.source.produce_source import BROKERS, PlayedLogs, PlayedSource, batch

from dray.base.telemetry import ProcessMetrics
from dray.daemons.broker.linked_topics import ForwardingMetrics, StoredLinks, forwarder, forwarding_limits
from dray.daemons.config import FlagValue, Settings, load
from dray.daemons.migrator.upstream_clusters import UpstreamClusters
from dray.migration.source.forwarding import ProduceForwarder
from dray.migration.source.source_brokers import ForwardingLimits, SourceBrokers
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime


def settings(**flags: str) -> Settings:
    return load(None, {}, [FlagValue("--test", key, text) for key, text in flags.items()]).settings


def numbers(metrics: ProcessMetrics) -> dict[str, float]:
    found = re.findall(r"^(dray_(?:forward|upstream)\S+) (\S+)$", metrics.exposition().decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}


def test_the_limits_of_the_config_arrive() -> None:
    given = {"upstream.forward_bytes": "7MiB"}
    assert forwarding_limits(settings(**given)) == ForwardingLimits(most_bytes=7 << 20)
    assert forwarding_limits(settings()) == ForwardingLimits(), "the defaults are those that were measured"


def test_a_broker_with_a_source_shows_what_it_forwards_and_one_without_shows_nothing() -> None:
    async def work() -> None:
        runtime = SimulatedRuntime(1)
        metrics = ProcessMetrics(process=False)
        links = cast(StoredLinks, PlayedLogs(runtime))
        none = UpstreamClusters(settings(), runtime)
        assert forwarder(none, links, runtime, ForwardingLimits(), metrics) is None
        assert numbers(metrics) == {}
        one = UpstreamClusters(settings(**{"upstream.clusters": "{old: 'kafka:9092'}"}), runtime)
        made = forwarder(one, links, runtime, ForwardingLimits(most_bytes=77), metrics)
        assert made is not None
        made.held_bytes = 33
        found = numbers(metrics)
        assert found["dray_forwarding_memory_bytes"] == 33
        assert found["dray_forwarding_memory_limit_bytes"] == 77
        assert found['dray_upstream_connections{upstream="old"}'] == 0
        # From the start on, so that a first failure is an increase.
        assert found['dray_forwarded_requests_total{outcome="unanswered",upstream="old"}'] == 0
        assert found['dray_forwarded_batches_total{outcome="failed"}'] == 0

    run(work())


def test_what_is_forwarded_is_counted() -> None:
    async def work() -> None:
        runtime = SimulatedRuntime(1)
        metrics = ProcessMetrics(process=False)
        source = PlayedSource(runtime, seconds=1.0)
        limits = ForwardingLimits()
        clusters = {"old": SourceBrokers(list(BROKERS.values()), source.dial, runtime, limits)}
        measured = ForwardingMetrics(metrics, clusters)
        made = ProduceForwarder(clusters, PlayedLogs(runtime), runtime, limits, measured)
        measured.follow(made, clusters, limits.most_bytes)
        sent = batch(0)
        source.loses = lambda _: len(source.asked) == 1
        task = runtime.spawn(made.append([sent], acks=-1, seconds=60), "forward")
        await runtime.sleep(0.5)
        found = numbers(metrics)
        assert found["dray_forwarding_requests_in_flight"] == 1
        assert found["dray_forwarding_memory_bytes"] == len(sent.records)
        await task
        found = numbers(metrics)
        assert found['dray_forwarded_requests_total{outcome="answered",upstream="old"}'] == 1
        assert found['dray_forwarded_requests_total{outcome="unanswered",upstream="old"}'] == 1
        assert found['dray_forwarded_bytes_total{upstream="old"}'] == 2 * len(sent.records)
        assert found['dray_forwarded_seconds_count{upstream="old"}'] == 1
        assert 2 <= found['dray_forwarded_seconds_sum{upstream="old"}'] < 3
        assert found['dray_forwarded_batches_total{outcome="source"}'] == 1
        assert found['dray_upstream_connections{upstream="old"}'] == 1
        assert found["dray_forwarding_requests_in_flight"] == 0

    run(work())
