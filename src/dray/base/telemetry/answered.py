"""What clients are answered in place of what they asked for: errors by API and code, counted for each
partition, and the values that this build cannot read. A request that is answered well touches two counters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dray.base.telemetry.instruments import Instruments

if TYPE_CHECKING:
    from dray.base.telemetry.instruments import Gauge

PRODUCE: Final = "Produce"
FETCH: Final = "Fetch"
TOLD_EVERY_SECONDS: Final = 60.0
FORGOTTEN_AFTER_SECONDS: Final = 120.0
"""A place that nobody asked for in this time counts no more: it was mended, or nobody misses it."""
_MOST_PLACES: Final = 1000
_SHOWN: Final = 3


class _Met:
    __slots__ = ("kind", "seen", "told", "why")

    def __init__(self, kind: str, why: str, now: float) -> None:
        self.kind = kind
        self.why = why
        self.seen = now
        self.told = now


class UnreadableValues:
    """The places at which clients met a value that this build cannot read, lately. They are bounded, and so
    are the kinds: those are words of the code."""

    def __init__(self, make: Instruments, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._places: dict[str, _Met] = {}
        self._kinds: dict[str, Gauge] = {}
        self._elsewhere: dict[str, Callable[[], dict[str, str]]] = {}
        self._family = make.gauges(
            "dray_unreadable_values",
            "Places whose stored value this build cannot read, by kind: topics as known, others as clients "
            "met them in the last two minutes",
            "kind",
        )

    def met(self, kind: str, place: str, why: str) -> bool:
        """Note it. True where it is time for a line of the log: once for each place and minute."""
        now = self._monotonic()
        found = self._places.pop(place, None)
        is_told = found is not None and now - found.told < TOLD_EVERY_SECONDS
        noted = self._places[place] = _Met(kind, why, now)  # the last of all
        if found is not None and is_told:
            noted.told = found.told
        if len(self._places) > _MOST_PLACES:
            del self._places[next(iter(self._places))]
        if kind not in self._kinds:
            gauge = self._kinds[kind] = self._family.labels(kind)
            gauge.follow(lambda: float(sum(each.kind == kind for each in self._now().values())))
        return not is_told

    def follow(self, kind: str, known: Callable[[], dict[str, str]]) -> None:
        """Count what is known otherwise: why, by place."""
        self._elsewhere[kind] = known
        self._family.labels(kind).follow(lambda: float(len(known())))

    def note(self) -> str | None:
        """The places in one line, for whoever asks how the process is; None where there are none."""
        found = {place: each.why for place, each in self._now().items()}
        for kind, known in self._elsewhere.items():
            found.update({f"{kind} {place}": why for place, why in known().items()})
        if not found:
            return None
        shown = "; ".join(f"{place}: {why}" for place, why in list(found.items())[:_SHOWN])
        return shown + (f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else "")

    def _now(self) -> dict[str, _Met]:
        before = self._monotonic() - FORGOTTEN_AFTER_SECONDS
        while self._places and self._places[first := next(iter(self._places))].seen < before:
            del self._places[first]
        return self._places


class AnsweredErrors:
    def __init__(self, make: Instruments, monotonic: Callable[[], float]) -> None:
        self._errors = make.counters(
            "dray_errors",
            "Errors that clients were answered with, one for each partition, by API and Kafka's name",
            "api",
            "error",
        )
        partitions = make.counters(
            "dray_partitions_asked", "Partitions that requests to produce and to fetch were about", "api"
        )
        self.produced = partitions.labels(PRODUCE)
        self.fetched = partitions.labels(FETCH)
        self.acknowledged = make.counter(
            "dray_partitions_acknowledged", "Partitions of produce requests whose records were taken"
        )
        self.unreadable = UnreadableValues(make, monotonic)

    def count(self, api: str, error: str, partitions: int = 1) -> None:
        self._errors.labels(api, error).value += partitions
