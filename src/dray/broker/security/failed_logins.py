"""Clients that failed to log in lately are slowed, and nobody else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

FREE: Final = 5
"""Failures that cost nothing: people mistype."""
LONGEST_PAUSE: Final = 60.0
FORGOTTEN_SECONDS: Final = 300.0
MOST_KNOWN: Final = 10_000
"""Beyond that, who failed longest ago is forgotten."""


class FailedLogins:
    """Counts failures by key: an address, or a user at an address. Never for all: then anybody could lock
    everybody out."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._known: OrderedDict[str, tuple[int, float]] = OrderedDict()  # count and time, the oldest first

    def __len__(self) -> int:
        return len(self._known)

    def failed(self, key: str) -> None:
        self._known[key] = self._count(key) + 1, self._monotonic()
        self._known.move_to_end(key)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)

    def succeeded(self, key: str) -> None:
        self._known.pop(key, None)

    def is_failing(self, key: str) -> bool:
        return self._count(key) > FREE

    def pause(self, key: str) -> float:
        """Seconds until the next login is looked at. It doubles with each failure."""
        beyond = self._count(key) - FREE
        if beyond < 0:
            return 0.0
        ends = self._known[key][1] + min(LONGEST_PAUSE, 2.0 ** min(beyond, 10))
        return max(0.0, ends - self._monotonic())

    def _count(self, key: str) -> int:
        count, last = self._known.get(key, (0, 0.0))
        return count if self._monotonic() - last < FORGOTTEN_SECONDS else 0
