"""Every series that brokers, compactors and migrators export, from the metrics' own definitions; and which of
them an expression of Prometheus names. An expression of a metric that is not there is refused: no panel and
no alert outlives its metric."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

from dray.daemon.forwarding_metrics import ForwardingMetrics
from dray.daemon.metrics import CompactorMetrics
from dray.daemon.migrator_metrics import MigratorMetrics
from dray.telemetry import Metrics

_NAME: Final = re.compile(r"\b(dray_\w+)(?:\{([^}]*)\})?")
_GROUPED: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_LABEL: Final = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
_SCRAPED: Final = frozenset({"job", "instance", "le"})
_ENDINGS: Final = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}


@dataclass(frozen=True)
class MetricDefinition:
    name: str
    kind: str
    help: str
    labels: frozenset[str]


class UnknownSeries(Exception):
    """An expression names a series or a label that no process exports."""


@cache
def definitions() -> dict[str, MetricDefinition]:
    """By the name of the metric."""
    metrics = Metrics(process=False)
    CompactorMetrics(metrics, lambda: 0, topics=0)
    MigratorMetrics(metrics, topics=0)
    ForwardingMetrics(metrics, ())
    metrics.topic_traffic(0, lambda: 0.0)
    labels = {family.name: family.label_names for family in metrics.instruments.families()}
    return {
        family.name: MetricDefinition(
            family.name, family.type, family.documentation, frozenset(labels[family.name])
        )
        for family in metrics.registry.collect()
    }


@cache
def series() -> dict[str, MetricDefinition]:
    """By the name of the series, as Prometheus has it."""
    return {f"{each.name}{ending}": each for each in definitions().values() for ending in _ENDINGS[each.kind]}


def metrics_in(expression: str) -> list[MetricDefinition]:
    """The metrics that an expression names, in their order. Raises `UnknownSeries`."""
    found: dict[str, MetricDefinition] = {}
    known = series()
    for name, selector in _NAME.findall(expression):
        if name not in known:
            raise UnknownSeries(f"no process exports {name}: {expression}")
        definition = found[known[name].name] = known[name]
        for label in _LABEL.findall(selector):
            if label not in definition.labels | _SCRAPED:
                raise UnknownSeries(f"{name} has no label {label}: {expression}")
    possible = frozenset[str]().union(_SCRAPED, *(each.labels for each in found.values()))
    for group in _GROUPED.findall(expression):
        for label in filter(None, (part.strip() for part in group.split(","))):
            if label not in possible:
                raise UnknownSeries(f"no metric has a label {label}: {expression}")
    return list(found.values())
