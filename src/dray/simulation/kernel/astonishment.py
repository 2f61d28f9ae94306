"""What no code foresees, done to it on purpose, and what must be true all the same: see `harsh.py`."""

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


class Astonishment(Exception):
    """Marks what was done to the code on purpose."""


class AstonishingValue(Astonishment, ValueError):
    pass


class AstonishingState(Astonishment, RuntimeError):
    pass


class UnexpectedErrors:
    """Asked at every call of a process to its stores. `whole_process`: all of it is in the background."""

    def __init__(self, weather: Weather, *, whole_process: bool = False) -> None:
        self._weather = weather
        self._whole_process = whole_process

    def strike(self, touched: str = "") -> None:
        weather = self._weather
        if not (weather.astonishing or weather.poisoned):
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
            raise AstonishingValue(f"{touched} is poisoned")
        if weather.astonishing and weather.happens(weather.astonishing):
            weather.counts["astonished"] += 1
            raise weather.random.choice((AstonishingValue, AstonishingState))("nobody foresaw this")


def was_astonished(error: BaseException | None) -> bool:
    """Whether what was done on purpose is what it came from."""
    while error is not None:
        if isinstance(error, Astonishment):
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
