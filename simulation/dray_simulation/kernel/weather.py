"""How bad things are between a process and the stores; and errors that no code expects, raised on purpose.

`cluster/limits.py` says what must still hold when those are raised.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random
from typing import Final

from dray.base.runtime.background import background_name
from dray.metadata import keys
from dray_simulation.checks.log_truth import Violation
from dray_simulation.kernel.runtime import SimulatedRuntime


@dataclass(slots=True)
class Weather:
    """Chances are per call; times are in seconds."""

    random: Random
    refused: float = 0.02  # nothing happens, and the caller knows that
    lost: float = 0.02  # nothing happens, and the caller cannot know
    unanswered: float = 0.05  # it happens, but the reply is lost
    late: float = 0.06  # the caller gives up, and it happens afterwards
    twice: float = 0.08  # it happens, is answered, and happens again afterwards
    stale: float = 0.0  # a reader is left behind, and reads the past for a while
    unheard: float = 0.05  # a hint of a change is lost
    stalled: float = 0.0  # one call takes very long, on the way there or back
    lying: float = 0.0  # a read of an object is answered badly, or a list leaves one out
    slowest: float = 0.02  # what a call takes at most
    slowest_upload: float = 0.02
    slowest_stall: float = 2.0
    latest: float = 3.0  # after which a late write has arrived
    stalest: float = 1.0  # after which a reader left behind catches up by itself
    # Whether a read takes time on its way there too; the way back alone lets as much happen meanwhile.
    reads_travel_both_ways: bool = True
    # Of errors that no code expects, and only in the background: see `cluster/limits.py`.
    unexpected_errors: float = 0.0
    poisoned: str = ""  # a part of the keys that are
    pending: int = 0  # writes that are still on their way
    counts: Counter[str] = field(default_factory=Counter)  # of the faults that were done, by kind

    def calm(self) -> None:
        """From now on everything works; what is on its way still arrives."""
        self.refused = self.lost = self.unanswered = self.late = self.twice = 0.0
        self.stale = self.unheard = self.stalled = self.unexpected_errors = self.lying = 0.0
        self.poisoned = ""

    def happens(self, chance: float) -> bool:
        return self.random.random() < chance

    def lies(self) -> bool:
        """Without a draw where nothing lies: the runs of seeds stay as they are."""
        return self.lying > 0.0 and self.happens(self.lying)

    async def delay(self) -> None:
        slowest = self.slowest
        if self.happens(self.stalled):
            self.counts["store stalled"] += 1
            slowest = self.slowest_stall
        await asyncio.sleep(self.random.random() * slowest)

    async def upload_delay(self) -> None:
        await asyncio.sleep(self.random.random() * self.slowest_upload)

    def arrive_later(self, act: Callable[[], object], again: bool = True) -> None:
        """Let something arrive at some time, and perhaps once more after that."""
        wait = self.latest * self.random.random() ** 2
        self.pending += 1

        def arrive() -> None:
            self.pending -= 1
            act()
            if again and self.random.random() < 0.25:
                self.arrive_later(act, again=False)

        # In a context of its own: it arrives, whatever has become of the process that sent it.
        asyncio.get_running_loop().call_later(wait, arrive, context=Context())


# --- errors that no code expects

_POISONED_TASKS: Final = frozenset({"retention"})

# The tasks that must run in every broker that serves, whatever happened to it.
TASKS: Final = (
    "collect WAL objects",
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
