"""Packs give way to appends.

A pack takes a dozen reads and writes of the metadata store for each of its streams, by the event loop and the
threads that appends need too: at full speed it takes a third of theirs. It is in no hurry while the backlog
is far from its bound. So while small appends come, packing takes a part of the time only: a tenth of it at
the least, more as the backlog fills, and all of it from half of the bound on.
"""

from __future__ import annotations

from typing import Final

from dray.log.carry import CarriedBacklog
from dray.runtime import Runtime

BUSY_SECONDS: Final = 0.05
"""After so long without an append there is nobody to give way to."""

_LEAST_SHARE: Final = 0.1
_LONGEST_PAUSE: Final = 0.5


def share_of_time(size: int, bound: int) -> float:
    """What packing may take, with so much carried."""
    return min(1.0, max(_LEAST_SHARE, 2 * size / bound)) if bound else 1.0


class PackingPace:
    """Of one domain."""

    def __init__(self, runtime: Runtime, backlog: CarriedBacklog) -> None:
        self._runtime = runtime
        self._backlog = backlog
        self._went_on = 0.0

    def begin(self) -> None:
        self._went_on = self._runtime.monotonic()

    async def give_way(self) -> None:
        """Between two streams: rest for as long as the work since the last time asks for."""
        now = self._runtime.monotonic()
        if now - self._backlog.latest < BUSY_SECONDS:
            share = share_of_time(self._backlog.size, self._backlog.limits.backlog)
            pause = min((now - self._went_on) * (1 / share - 1), _LONGEST_PAUSE)
            if pause > 0:
                await self._runtime.sleep(pause)
        self.begin()
