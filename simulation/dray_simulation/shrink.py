"""A failing run, tried again with less of everything, until nothing can be taken away.

Each client and each kind of trouble has chance of its own, so taking one away leaves most of the rest as it
was. A run that still fails, in whatever way, with less is easier to understand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, fields, replace
from typing import Final

from dray_simulation.cluster.conditions import ClusterConditions
from dray_simulation.cluster.run import RunFailed, simulate_cluster
from dray_simulation.kernel.network import NetworkWeather
from dray_simulation.kernel.weather import Weather

_MOST_ATTEMPTS: Final = 80
_WEATHER: Final = (
    *("refused", "lost", "unanswered", "late", "twice", "stale", "unheard", "stalled"),
    *("slowest_upload", "slowest"),
)
_NETWORK: Final = ("broken", "silent", "split", "slowest")


@dataclass(slots=True)
class SmallestFailure:
    """The least that was found to fail."""

    failure: RunFailed
    attempts: int

    def describe(self) -> list[str]:
        conditions = self.failure.conditions
        weather = [
            f"{field.name} {value}"
            for kind in (conditions.weather, conditions.network)
            for field in fields(kind)
            if isinstance(value := getattr(kind, field.name), float) and value
        ]
        clients = [f"{role.value} {number}" for number, role in conditions.clients()]
        return [
            f"seed {conditions.seed}, {conditions.brokers} brokers, {conditions.seconds:.2f} s, "
            f"{conditions.domains} domains, {conditions.partitions} partitions",
            f"clients: {', '.join(clients)}",
            f"weather: {', '.join(weather)}",
            *[
                f"at {planned.at:.3f} s: {planned.what.value} (broker {planned.place}, {planned.seconds} s)"
                for planned in conditions.disasters
            ],
        ]


def shrink(failure: RunFailed, tried: Callable[[int], None] = lambda _: None) -> SmallestFailure:
    """`tried` hears of each attempt."""
    shrunk = SmallestFailure(failure, 0)
    progress = True
    while progress:
        progress = False
        for smaller in _smaller(shrunk.failure):
            if shrunk.attempts >= _MOST_ATTEMPTS:
                return shrunk
            shrunk.attempts += 1
            tried(shrunk.attempts)
            if (found := fails(smaller)) is not None:
                shrunk.failure, progress = found, True
                break
    return shrunk


def fails(conditions: ClusterConditions) -> RunFailed | None:
    try:
        simulate_cluster(conditions.seed, conditions)
    except RunFailed as failure:
        return failure
    return None


def _smaller(failure: RunFailed) -> Iterator[ClusterConditions]:
    """The runs that could be tried next, those that take away most first."""
    conditions = failure.conditions
    if failure.at < conditions.seconds - 0.5:
        earlier = tuple(planned for planned in conditions.disasters if planned.at < failure.at)
        yield replace(conditions, seconds=failure.at, fills_up=False, disasters=earlier)
    plan = conditions.disasters
    half = len(plan) // 2
    if half:
        yield replace(conditions, disasters=plan[:half])
        yield replace(conditions, disasters=plan[half:])
    for number, _ in conditions.clients():
        yield replace(conditions, absent=conditions.absent | {number})
    for place in range(len(plan)):
        yield replace(conditions, disasters=plan[:place] + plan[place + 1 :])
    if conditions.brokers > 1:
        yield replace(conditions, brokers=conditions.brokers - 1)
    for name in _WEATHER:
        if getattr(conditions.weather, name):
            yield replace(conditions, weather=_without(conditions.weather, name))
    for name in _NETWORK:
        if getattr(conditions.network, name):
            yield replace(conditions, network=_without_network(conditions.network, name))


def _without(weather: Weather, name: str) -> Weather:
    fairer = deepcopy(weather)
    setattr(fairer, name, 0.0)
    return fairer


def _without_network(weather: NetworkWeather, name: str) -> NetworkWeather:
    fairer = deepcopy(weather)
    setattr(fairer, name, 0.0)
    return fairer
