"""News that are worth a line in the log: a state when it begins, and now and then while it lasts."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from dray.base.runtime import Runtime

REPEATED_SECONDS: Final = 30.0


class News:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._said: dict[Hashable, float] = {}

    def is_news(self, state: Hashable) -> bool:
        """Is a state to be named that was seen (again)? Then it was named."""
        now = self._runtime.monotonic()
        said = self._said.get(state)
        if said is not None and now - said < REPEATED_SECONDS:
            return False
        self._said[state] = now
        return True

    def forget(self, state: Hashable) -> None:
        """It has ended: if it begins again, that is news."""
        self._said.pop(state, None)
