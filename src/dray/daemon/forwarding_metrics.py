"""The numbers of a broker that passes on what clients produce to topics of another cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from dray.telemetry import ProcessMetrics
from dray.telemetry.metrics import SECONDS
from dray.upstream.forwarding import ProduceForwarder
from dray.upstream.forwarding_limits import ForwardingObserver, ForwardOutcome
from dray.upstream.upstream_brokers import UpstreamBrokers

_ANSWERED: Final = "answered"
_UNANSWERED: Final = "unanswered"


class ForwardingMetrics(ForwardingObserver):
    """Labels are the names of the config, so that there are as many as somebody wrote down."""

    def __init__(self, metrics: ProcessMetrics, upstreams: Iterable[str]) -> None:
        make = metrics.instruments
        requests = make.counters(
            "dray_forwarded_requests",
            "Produce requests to the sources of linked topics, by source and outcome",
            "upstream",
            "outcome",
        )
        sent = make.counters("dray_forwarded_bytes", "Bytes of batches in them, by source", "upstream")
        seconds = make.histograms(
            "dray_forwarded_seconds",
            "From such a request to the source's answer, by source",
            "upstream",
            bounds=SECONDS,
        )
        batches = make.counters(
            "dray_forwarded_batches",
            "Batches of linked topics that clients produced here, by what became of them",
            "outcome",
        )
        self._connections = make.gauges(
            "dray_upstream_connections", "Open connections to the source's brokers, by source", "upstream"
        )
        self._held = make.gauge("dray_forwarding_memory_bytes", "Bytes of batches held for sources")
        self._limit = make.gauge("dray_forwarding_memory_limit_bytes", "Their bound")
        self._requests = make.gauge(
            "dray_forwarding_requests_in_flight",
            "Produce requests that wait for a source, or for the end of a switch",
        )
        names = list(upstreams)
        self._answered = {name: requests.labels(name, _ANSWERED) for name in names}
        self._unanswered = {name: requests.labels(name, _UNANSWERED) for name in names}
        self._sent = {name: sent.labels(name) for name in names}
        self._seconds = {name: seconds.labels(name) for name in names}
        self._batches = {outcome: batches.labels(outcome.value) for outcome in ForwardOutcome}

    def follow(
        self, forwarder: ProduceForwarder, clusters: Mapping[str, UpstreamBrokers], most_bytes: int
    ) -> None:
        self._limit.value = most_bytes
        self._held.follow(lambda: forwarder.held_bytes)
        self._requests.follow(lambda: forwarder.held_requests)
        for name, cluster in clusters.items():
            self._connections.labels(name).follow(partial(getattr, cluster, "connections"))

    def sent(self, upstream: str, size: int) -> None:
        self._sent[upstream].value += size

    def answered(self, upstream: str, seconds: float) -> None:
        self._answered[upstream].value += 1
        self._seconds[upstream].observe(seconds)

    def unanswered(self, upstream: str) -> None:
        self._unanswered[upstream].value += 1

    def finished(self, outcome: ForwardOutcome) -> None:
        self._batches[outcome].value += 1
