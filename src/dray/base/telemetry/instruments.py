"""Counters, gauges and histograms that cost a hot path next to nothing.

`prometheus_client`'s own take a lock per observation and resolve labels under another. Ours are
plain numbers, turned into Prometheus families only when somebody scrapes: several times cheaper
(`bench/server_frames.py` prints by how much). The price: they belong to the event loop's thread,
and nothing else may change them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.core import Metric as MetricFamily
from prometheus_client.registry import Collector


class Instrument(ABC):
    __slots__ = ()

    family_type: type[CounterMetricFamily] | type[GaugeMetricFamily] | type[HistogramMetricFamily]

    @abstractmethod
    def add_to(self, family: Any, labels: Sequence[str]) -> None:
        """Show the present value as one metric of `family`, which is of `family_type`."""


class Counter(Instrument):
    """Only ever grows. A hot path writes `counter.value += n` itself and saves the call."""

    __slots__ = ("value",)
    family_type = CounterMetricFamily

    def __init__(self) -> None:
        self.value: float = 0

    def increment(self, amount: float = 1) -> None:
        self.value += amount

    def add_to(self, family: Any, labels: Sequence[str]) -> None:
        family.add_metric(labels, self.value)


class Gauge(Instrument):
    """A number that goes up and down, or one that is asked for when scraped (`follow`)."""

    __slots__ = ("_source", "value")
    family_type = GaugeMetricFamily

    def __init__(self) -> None:
        self.value: float = 0
        self._source: Callable[[], float] | None = None

    def follow(self, source: Callable[[], float]) -> None:
        self._source = source

    def read(self) -> float:
        return self.value if self._source is None else self._source()

    def add_to(self, family: Any, labels: Sequence[str]) -> None:
        family.add_metric(labels, self.read())


class Histogram(Instrument):
    __slots__ = ("bounds", "counts", "total")
    family_type = HistogramMetricFamily

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        if list(self.bounds) != sorted(set(self.bounds)) or not self.bounds:
            raise ValueError("bucket bounds must be given, and rise")
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Prometheus' form: per upper bound, how many values were at or below it."""
        buckets: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            buckets.append((bound, running))
        return buckets

    def add_to(self, family: Any, labels: Sequence[str]) -> None:
        family.add_metric(labels, buckets=self.cumulative(), sum_value=self.total)


T = TypeVar("T", bound=Instrument)


class Family(Generic[T]):
    """The instruments of one name, one per combination of label values. Resolve a child once and
    keep it: `labels` builds a tuple and looks it up each time."""

    def __init__(self, name: str, help_text: str, labels: Sequence[str], make: Callable[[], T]) -> None:
        self.name = name
        self.help = help_text
        self.label_names = tuple(labels)
        self._family_type = type(make()).family_type
        self._make: Callable[[], T] = make
        self._children: dict[tuple[str, ...], T] = {}

    def labels(self, *values: str) -> T:
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} wants the labels {self.label_names}, not {values}")
            child = self._children[values] = self._make()
        return child

    def put(self, child: T, *values: str) -> None:
        """Show an instrument that was made elsewhere."""
        self._children[values] = child

    def drop(self, *values: str) -> None:
        self._children.pop(values, None)

    def keep_only(self, values: Iterable[tuple[str, ...]]) -> None:
        """Forget the other children: a family whose labels come from outside must not grow for ever."""
        kept = set(values)
        self._children = {labels: child for labels, child in self._children.items() if labels in kept}

    def export(self) -> MetricFamily:
        family = self._family_type(self.name, self.help, labels=self.label_names)
        for values, child in list(self._children.items()):
            child.add_to(family, values)
        return family


class Instruments(Collector):
    """Makes families and shows them to a registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._families: dict[str, Family[Any]] = {}
        registry.register(self)

    def describe(self) -> Iterator[MetricFamily]:
        """Nothing yet: the registry would otherwise collect to learn the names."""
        return iter(())

    def collect(self) -> Iterator[MetricFamily]:
        for family in list(self._families.values()):
            yield family.export()

    def families(self) -> list[Family[Any]]:
        return list(self._families.values())

    def counters(self, name: str, help_text: str, *labels: str) -> Family[Counter]:
        return self._add(Family(name, help_text, labels, Counter))

    def gauges(self, name: str, help_text: str, *labels: str) -> Family[Gauge]:
        return self._add(Family(name, help_text, labels, Gauge))

    def histograms(
        self, name: str, help_text: str, *labels: str, bounds: Sequence[float]
    ) -> Family[Histogram]:
        return self._add(Family(name, help_text, labels, lambda: Histogram(bounds)))

    def counter(self, name: str, help_text: str) -> Counter:
        return self.counters(name, help_text).labels()

    def gauge(self, name: str, help_text: str) -> Gauge:
        return self.gauges(name, help_text).labels()

    def histogram(self, name: str, help_text: str, bounds: Sequence[float]) -> Histogram:
        return self.histograms(name, help_text, bounds=bounds).labels()

    def _add(self, family: Family[T]) -> Family[T]:
        if family.name in self._families:
            raise ValueError(f"there is a metric named {family.name} already")
        self._families[family.name] = family
        return family
