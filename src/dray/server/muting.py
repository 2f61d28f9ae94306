"""The time for which a connection is not read because its client is above a quota."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Mute:
    """`over` is called when it has ended."""

    __slots__ = ("_over", "_timer", "_until", "muted")

    def __init__(self, over: Callable[[], None]) -> None:
        self._over: Callable[[], None] | None = over
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self.muted = False

    def begin(self, seconds: float) -> None:
        """From now on, for so long; or for what is left of it, if that is more."""
        if self._over is None or seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        self._until = max(self._until, loop.time() + seconds)
        if self._timer is None:
            self.muted = True
            self._timer = loop.call_at(self._until, self._wake)

    def end(self) -> None:
        """The connection is gone."""
        self._over = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if loop.time() < self._until:
            self._timer = loop.call_at(self._until, self._wake)
            return
        self.muted = False
        if self._over is not None:
            self._over()
