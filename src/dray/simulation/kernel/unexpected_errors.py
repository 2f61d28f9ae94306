"""Errors that no code expects, raised on purpose, and what must still hold: see `cluster/limits.py`."""

from __future__ import annotations

from typing import Final

from dray.metadata import keys
from dray.runtime.background import background_name
from dray.simulation.checks.log_truth import Violation
from dray.simulation.kernel.runtime import SimulatedRuntime
from dray.simulation.kernel.weather import Weather

_POISONED_TASKS: Final = frozenset({"retention"})

# What must run in every broker that serves, whatever happened to it.
TASKS: Final = (
    "collect WAL objects",
    "follow domain 0",
    "keep this broker registered",
    f"re-read {keys.BROKERS}",
    f"re-read {keys.TOPICS}",
    "retention",
    "sweep deleted topics",
    "sweep groups",
    "topics of groups",
    f"watch {keys.BROKERS}",
    f"watch {keys.TOPICS}",
)


class InjectedError(Exception):
    """Marks an error that the simulation raised."""


class InjectedValueError(InjectedError, ValueError):
    pass


class InjectedRuntimeError(InjectedError, RuntimeError):
    pass


class UnexpectedErrors:
    """May raise one at every call of a process to its stores, if a task in the background makes the call.

    `whole_process`: every call counts as one of the background."""

    def __init__(self, weather: Weather, *, whole_process: bool = False) -> None:
        self._weather = weather
        self._whole_process = whole_process

    def maybe_raise(self, touched: str = "") -> None:
        weather = self._weather
        if not (weather.unexpected_errors or weather.poisoned):
            return
        name = background_name()
        if name is None and not self._whole_process:
            return
        if (
            weather.poisoned
            and weather.poisoned in touched
            and (self._whole_process or name in _POISONED_TASKS)
        ):
            weather.counts["poisoned call"] += 1
            raise InjectedValueError(f"{touched} is poisoned")
        if weather.unexpected_errors and weather.happens(weather.unexpected_errors):
            weather.counts["unexpected error"] += 1
            raise weather.random.choice((InjectedValueError, InjectedRuntimeError))("no code expects this")


def was_injected(error: BaseException | None) -> bool:
    """Whether the error was raised by the simulation, or came of one that was."""
    while error is not None:
        if isinstance(error, InjectedError):
            return True
        error = error.__cause__ or error.__context__
    return False


def check_alive(name: str, runtime: SimulatedRuntime, expected: tuple[str, ...] = ()) -> None:
    if ended := runtime.background.ended():
        raise Violation(f"{name}: tasks have ended: {ended}")
    running = runtime.background.names()
    if missing := [task for task in expected if task not in running]:
        raise Violation(f"{name}: tasks do not run: {missing}")


def check_fitting(weather: Weather) -> None:
    if weather.counts["write too large"]:
        raise Violation(f"{weather.counts['write too large']} writes were larger than the engine takes")
