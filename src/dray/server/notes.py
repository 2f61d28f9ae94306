"""Log lines about many connections: few per kind and span of time, which count those between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog

_log = structlog.get_logger(__name__)

SPAN_SECONDS: Final = 10.0


class RateLimitedLog:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._written: dict[str, tuple[float, float]] = {}  # when the last was, and how many are still due
        self._unsaid: dict[str, int] = {}

    def warn(self, event: str, kind: str, lines: int = 1, **details: Any) -> None:
        """At most so many lines of this kind at once, and in a span of time from then on."""
        now = self._monotonic()
        last, left = self._written.get(kind, (now, float(lines)))
        left = min(float(lines), left + (now - last) * lines / SPAN_SECONDS)
        if left < 1:
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            self._written[kind] = now, left
            return
        self._written[kind] = now, left - 1
        unsaid = self._unsaid.pop(kind, 0)
        if unsaid:
            details["more_since_the_last_line"] = unsaid
        _log.warning(event, **details)
