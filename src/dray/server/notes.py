"""Log lines about many connections: one per kind and span of time, which counts those between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog

_log = structlog.get_logger(__name__)

SPAN_SECONDS: Final = 10.0


class RateLimitedLog:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._last: dict[str, float] = {}
        self._unsaid: dict[str, int] = {}

    def warn(self, event: str, kind: str, **details: Any) -> None:
        now = self._monotonic()
        last = self._last.get(kind)
        if last is not None and now - last < SPAN_SECONDS:
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            return
        self._last[kind] = now
        unsaid = self._unsaid.pop(kind, 0)
        if unsaid:
            details["more_since_the_last_line"] = unsaid
        _log.warning(event, **details)
