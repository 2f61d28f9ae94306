"""Whether a carried write waits for the batches that are about to come: pure policy.

A producer with several requests in flight sends the next ones as soon as it is answered. The first of them
finds the lane free, and without a wait it is written alone while the others come in: of five in flight, one
and then four. So when a write has ended, it is watched whether as many batches come as it answered. While
they nearly always do, and at once, the next write waits for the last of them.

Watching costs nothing, so trust is gained without any wait: by batches that would have made one worth it.
They must come within about the time of two writes, and before the next write has ended. Trust goes four times
as fast as it comes, and a wait in vain takes most of it: below four returns in five, a wait would cost
producers more than it saves them. A lone producer is never waited for.
"""

from __future__ import annotations

from typing import Final

LEAST_SECONDS: Final = 0.001
MOST_SECONDS: Final = 0.004
"""The bounds of the time in which batches come back at once."""

FEWEST_RETURNS: Final = 8
MOST_RETURNS: Final = 64
_SPARE_RETURNS: Final = 8
_LOST_BY_STAYING_AWAY: Final = 4


class ReturningProducers:
    """Of one lane. It is told of each batch, and of each write that has ended."""

    def __init__(self, fewest: int = FEWEST_RETURNS) -> None:
        """`fewest`: so often must all have come back before the first wait."""
        self._fewest = fewest
        self.is_complete = True  # all have come that were expected
        self.until = 0.0  # they come back at once until then
        self._missing = 0  # how many have not come yet
        self._trust = 0
        self._needed = fewest
        self._is_waited_for = False

    def ended(self, now: float, taken: float, answered: int, waiting: int) -> None:
        """A write has taken so long and answered so many batches, and so many wait for the next one."""
        if not self.is_complete:
            self.stayed_away()
        self.is_complete = answered + waiting <= 1
        if self.is_complete:
            self._trust = 0
        self._missing = answered
        self.until = now + min(MOST_SECONDS, max(LEAST_SECONDS, 2 * taken))

    def came(self, now: float) -> None:
        """One more batch is there."""
        if self.is_complete:
            return
        if now > self.until:
            self.stayed_away()
            return
        self._missing -= 1
        if not self._missing:
            self.is_complete = True
            self._trust = min(self._trust + 1, self._needed + _SPARE_RETURNS)
            if self._is_waited_for:
                self._is_waited_for = False
                self._needed = max(self._fewest, self._needed - 1)

    def are_waited_for(self, now: float) -> bool:
        """Shall a write that could begin wait until all have come, or `until` then?"""
        self._is_waited_for = not self.is_complete and self._trust >= self._needed and now <= self.until
        return self._is_waited_for

    def stayed_away(self) -> None:
        """They have not come, though they may have been waited for."""
        self.is_complete = True
        if not self._is_waited_for:
            self._trust = max(0, self._trust - _LOST_BY_STAYING_AWAY)
            return
        self._is_waited_for = False
        self._trust -= _SPARE_RETURNS
        if self._trust < self._needed:
            self._trust = 0
            self._needed = min(MOST_RETURNS, 2 * self._needed)
