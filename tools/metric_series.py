"""Every series that brokers, compactors and migrators export, from the metrics' own definitions; and which of
them an expression of Prometheus names. An expression of a metric that is not there is refused: no panel and
no alert outlives its metric."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from dray.base.telemetry import AnsweredErrors, Metrics
from dray.daemons.broker.linked_topics import ForwardingMetrics
from dray.daemons.compactor.metrics import CompactorMetrics
from dray.daemons.migrator.metrics import MigratorMetrics

PAGE: Final = Path(__file__).parents[1] / "docs" / "operations" / "metrics.md"
COMMAND: Final = "python -m tools.metric_series"

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
    return {each.name: each for defined in by_process().values() for each in defined}


@cache
def by_process() -> dict[str, tuple[MetricDefinition, ...]]:
    """What each kind of process exports beside those before it, in the order of the definitions."""
    metrics = Metrics(process=False)
    metrics.topic_traffic(0, lambda: 0.0)
    AnsweredErrors(metrics.instruments, lambda: 0.0)
    ForwardingMetrics(metrics, ())
    defined = {"broker": _collected(metrics, ())}
    CompactorMetrics(metrics, lambda: 0, topics=0)
    defined["compactor"] = _collected(metrics, defined["broker"])
    MigratorMetrics(metrics, topics=0)
    defined["migrator"] = _collected(metrics, (*defined["broker"], *defined["compactor"]))
    return defined


def _collected(metrics: Metrics, known: tuple[MetricDefinition, ...]) -> tuple[MetricDefinition, ...]:
    labels = {family.name: family.label_names for family in metrics.instruments.families()}
    found = (
        MetricDefinition(family.name, family.type, family.documentation, frozenset(labels[family.name]))
        for family in metrics.registry.collect()
    )
    return tuple(each for each in found if each not in known)


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


def table(defined: Iterable[MetricDefinition]) -> str:
    rows = ["| name | type | by | |", "|---|---|---|---|"]
    for each in defined:
        labels = ", ".join(f"`{label}`" for label in sorted(each.labels))
        rows.append(f"| `{each.name}` | {each.kind} | {labels} | {each.help} |")
    return "\n".join(rows) + "\n"


def with_tables(page: str) -> str:
    """The page with the table of each process replaced."""
    for process, defined in by_process().items():
        begins, ends = f"<!-- metrics of a {process}: {COMMAND} -->", f"<!-- /metrics of a {process} -->"
        before, _, rest = page.partition(begins)
        _, _, after = rest.partition(ends)
        page = f"{before}{begins}\n\n{table(defined)}\n{ends}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
