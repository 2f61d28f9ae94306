"""How fast much is read, so that others are not held up: as LEDBAT (RFC 6817) does it for transfers in the
background.

The shortest time in which a broker has answered a request without work is the way there and back. What a
later one takes longer, it stood in a queue behind other clients' requests. While that is little there are no
pauses, so an idle cluster is read as fast as it goes; while it is much, they grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LISTEN_SECONDS: Final = 0.1
"""The time between two requests without work."""
TARGET_SECONDS: Final = 0.002
LONGEST_PAUSE: Final = 0.25
_SHORTEST_PAUSE: Final = 0.001

STEP_RECORDS: Final = 100
"""A step takes a core for less than a millisecond. Where others wait for it, they wait no longer."""
MOST_STEPS: Final = 100
"""Of one batch: a batch with very many records is taken in larger ones."""
_PAUSES_TO_STEPS: Final = 9
"""So steps take a tenth of a core."""


def step_of(records: int) -> int:
    return max(STEP_RECORDS, -(-records // MOST_STEPS))


def pause_after(step_seconds: float) -> float:
    """Between two steps, while others of this machine need the processor."""
    return min(max(_PAUSES_TO_STEPS * step_seconds, _SHORTEST_PAUSE), LONGEST_PAUSE)


@dataclass
class Pace:
    pause: float = 0.0
    """Seconds to wait before the next piece."""
    _least: float = float("inf")
    _heard_at: float = float("-inf")

    def wants_to_hear(self, now: float) -> bool:
        return now - self._heard_at >= LISTEN_SECONDS

    def hear(self, seconds: float, now: float) -> None:
        """A request without work took so long."""
        self._heard_at = now
        self._least = min(self._least, seconds)
        queued = seconds - self._least
        if queued > TARGET_SECONDS:
            self.pause = min(max(queued, 2 * self.pause), LONGEST_PAUSE)
        else:
            self.pause = self.pause / 2 if self.pause > _SHORTEST_PAUSE else 0.0
