"""How bad things are between a process and the stores."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import Context
from dataclasses import dataclass, field
from random import Random


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
        self.stale = self.unheard = self.stalled = self.unexpected_errors = 0.0
        self.poisoned = ""

    def happens(self, chance: float) -> bool:
        return self.random.random() < chance

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
