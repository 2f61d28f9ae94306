"""Whether what a store is asked for succeeds: the last outcomes of real work, for `/readyz` and the log.

Nothing is asked for it. Each kind of work (uploads, reads, writes of metadata) notes how it went. It fails
once all of it has failed for some seconds, and is well again with the first that succeeds. The log has a
line when it begins to fail, one a minute while it goes on, and one when it is over, however many fail.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import structlog

from dray.base.runtime import Runtime

_log = structlog.get_logger(__name__)

FAILING_SECONDS: Final = 5.0
"""So long all has to fail: one request that fails, or two at once, make no outage."""

HANGING_SECONDS: Final = 20.0
"""A request that has no answer for so long, while nothing else of its kind was answered, fails: the client
itself gives up after a minute or more. Beyond the time that its size takes on a slow line."""
_SLOW_BYTES_PER_SECOND: Final = 1 << 20

STALE_SECONDS: Final = 90.0
"""A failure so old, without an attempt since, says nothing of now. Every process writes more often."""

QUIET_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 10.0
"""Between two lines about failures: while they last, and when they begin again right after a success."""


class NoAnswer(Exception):
    pass


class StoreWork:
    """One kind of work of one store. `meanwhile` says what goes on without it."""

    def __init__(self, store: str, kind: str, runtime: Runtime) -> None:
        self.store = store
        self.kind = kind
        self.meanwhile: Callable[[], str] = lambda: "what needs it is tried again"
        self.succeeded_at = float("-inf")
        self._runtime = runtime
        self._waiting: dict[object, float] = {}  # since when each should have been answered
        self._failures = 0  # since the last success
        self._error: Exception | None = None
        self._first_at = self._last_at = 0.0
        self._since = ""
        self._is_told = False
        self._told_at = float("-inf")

    def asked(self, request: object, size: int, now: float) -> None:
        self._waiting[request] = now + size / _SLOW_BYTES_PER_SECOND

    def ended(self, request: object) -> None:
        self._waiting.pop(request, None)

    def succeeded(self, now: float) -> None:
        self.succeeded_at = now
        if self._failures:
            self._recover()

    def failed(self, error: Exception, now: float, began: float | None = None) -> None:
        """`began`: when it was asked. A request that was made before the last success, and fails after it, is
        of the outage that is over."""
        if self._failures or began is None or began >= self.succeeded_at:
            self._failed(error, now, now)

    def _failed(self, error: Exception, now: float, since: float) -> None:
        if not self._failures:
            self._first_at = since
            self._since = _moment(self._runtime.wall_ms() - 1000 * (now - since))
        self._failures += 1
        self._last_at = now
        self._error = error
        if now - self._told_at >= (QUIET_SECONDS if self._is_told else AGAIN_SECONDS):
            self._told_at, self._is_told = now, True
            self._tell()

    def fault(self, now: float) -> str | None:
        """Why this work counts as failing now; None while it does not."""
        self._look_for_hanging(now)
        if not self._failures or self._last_at - self._first_at < FAILING_SECONDS:
            return None
        if now - self._last_at >= STALE_SECONDS:
            return None
        return f"{self.kind} fail since {self._since} ({self._failures} so far): {reason_of(self._error)}"

    def _look_for_hanging(self, now: float) -> None:
        since = max(min(self._waiting.values(), default=now), self.succeeded_at)
        if now - since < HANGING_SECONDS:
            return
        if not self._failures:
            self._failed(NoAnswer(f"no answer for {now - since:.0f} s"), now, since)
        self._last_at = now

    def _tell(self) -> None:
        _log.warning(
            "a store fails",
            store=self.store,
            work=self.kind,
            since=self._since,
            failures=self._failures,
            error=reason_of(self._error),
            meanwhile=self.meanwhile(),
        )

    def _recover(self) -> None:
        if self._is_told:
            self._is_told = False
            _log.info(
                "a store works again",
                store=self.store,
                work=self.kind,
                since=_moment(self._runtime.wall_ms()),
                failed_since=self._since,
                failures=self._failures,
            )
        self._failures = 0
        self._error = None


def reason_of(error: Exception | None) -> str:
    """The error, behind what to do about it where its store knows that."""
    advice = getattr(error, "advice", None)
    return f"{advice} ({error})" if advice else str(error) or type(error).__name__


def _moment(wall_ms: float) -> str:
    return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
