"""The timers of one group, cheap to move: ten thousand members move theirs with every heartbeat.

Only the earliest deadline is armed in the event loop. Moving a deadline further away changes a table and
nothing else; when the armed time comes, what is really due is looked up, and the next one is armed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from dray.runtime import Runtime

Event = TypeVar("Event")


class Timer(NamedTuple, Generic[Event]):
    deadline: float
    event: Event


class GroupTimers(Generic[Event]):
    def __init__(self, runtime: Runtime, due: Callable[[Hashable, Timer[Event]], None]) -> None:
        """`due` hears of a timer whose time has come. It stays in the table until it is taken."""
        self._runtime = runtime
        self._due = due
        self._table: dict[Hashable, Timer[Event]] = {}
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")

    def __len__(self) -> int:
        return len(self._table)

    def schedule(self, key: Hashable, deadline: float, event: Event) -> None:
        self._table[key] = Timer(deadline, event)
        if deadline < self._armed_for:
            self._arm(deadline)

    def cancel(self, key: Hashable) -> None:
        self._table.pop(key, None)

    def take(self, key: Hashable, timer: Timer[Event]) -> bool:
        """Whether this very timer still stands; it then does no more."""
        if self._table.get(key) is not timer:
            return False
        del self._table[key]
        return True

    def close(self) -> None:
        self._table.clear()
        if self._armed is not None:
            self._armed.cancel()

    def _arm(self, deadline: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_for = deadline
        delay = max(deadline - self._runtime.monotonic(), 0.0)
        self._armed = asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        self._armed, self._armed_for = None, float("inf")
        now = self._runtime.monotonic()
        due = [(key, timer) for key, timer in self._table.items() if timer.deadline <= now]
        reported = {key for key, _ in due}
        waiting = (timer.deadline for key, timer in self._table.items() if key not in reported)
        if (earliest := min(waiting, default=None)) is not None:
            self._arm(earliest)
        for key, timer in due:
            try:
                self._due(key, timer)
            except Exception as error:  # the others are due as well, and come but once
                self._runtime.background.report("group timers", error)
