"""The routes every process of Dray serves: is it alive, is it ready, and its numbers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from dray.base.runtime import gather_some
from dray.broker.server.http.requests import HttpRequest
from dray.broker.server.http.server import HttpAnswer, Route

if TYPE_CHECKING:
    from dray.base.runtime import Runtime
    from dray.base.telemetry import ProcessMetrics

Check: TypeAlias = Callable[[], Awaitable[None]]
"""Returns when all is well, raises when it is not."""

Note: TypeAlias = Callable[[], str | None]
"""A note to operators about a process that is ready all the same; None if there is nothing to say."""


_SHARE: Final = 1 / 20
_AHEAD_SECONDS: Final = 2.0

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Paths that also answer clients without a token, for probes and load balancers: with a status, no more."""


class Health:
    """Alive as long as it answers and no task has ended in its background; ready while it is not draining and
    every check passes, or is excused."""

    def __init__(
        self,
        checks: Mapping[str, Check],
        metrics: ProcessMetrics,
        runtime: Runtime,
        check_seconds: float = 2.0,
        notes: Mapping[str, Note] | None = None,
        excuses: Mapping[str, Note] | None = None,
        dead: Note = lambda: None,
    ) -> None:
        """`notes` are shown beside the checks, and do not make a process less ready: None where there is
        nothing to say. `excuses`: by check, why a process that fails it is ready all the same; this is shown
        as a note. `dead`: why only a new process helps, though no task has ended."""
        self.draining = False
        """Set when the process begins to stop, so that load balancers look elsewhere first."""
        self._checks = dict(checks)
        self._notes = dict(notes or {})
        self._excuses = dict(excuses or {})
        self._dead = dead
        self._metrics = metrics
        self._runtime = runtime
        self._check_seconds = check_seconds
        self._checking: asyncio.Task[dict[str, str | None]] | None = None
        self._numbers_made = b""
        self._numbers_paid_until = float("-inf")

    def routes(self) -> dict[str, Route]:
        return {
            "/": self._index,
            "/healthz": self._alive,
            "/readyz": self._ready,
            "/metrics": self._numbers,
        }

    async def check(self) -> dict[str, str | None]:
        """Each check's error, None where all is well. Calls during a round of checks share that round, so
        that a thousand impatient probes ask the stores once."""
        if self._checking is None:
            self._checking = self._runtime.spawn(self._check_all(), "health checks")
            self._checking.add_done_callback(self._checked)
        return await asyncio.shield(self._checking)

    async def _check_all(self) -> dict[str, str | None]:
        errors = await gather_some(map(self._check_one, self._checks.values()))
        return dict(zip(self._checks, errors, strict=True))

    async def _check_one(self, check: Check) -> str | None:
        try:
            await asyncio.wait_for(check(), self._check_seconds)
        except TimeoutError:
            return f"no answer within {self._check_seconds:g} s"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return None

    def _checked(self, _task: asyncio.Task[dict[str, str | None]]) -> None:
        self._checking = None

    async def _index(self, _request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(
            200, b"dray\n\n/healthz  alive?\n/readyz   ready?\n/metrics  numbers for Prometheus\n"
        )

    async def _alive(self, request: HttpRequest) -> HttpAnswer:
        """Not alive if a task has ended that the process needs: only a restart of the process brings it
        back."""
        ended = self._runtime.background.ended()
        if ended:
            return _json(503, {"status": "tasks have ended"} | ({"ended": ended} if request.known else {}))
        if (dead := self._dead()) is not None:
            return _json(503, {"status": "stands still"} | ({"why": dead} if request.known else {}))
        return _json(200, {"status": "alive"})

    async def _ready(self, request: HttpRequest) -> HttpAnswer:
        errors = await self.check()
        failing = {name for name, error in errors.items() if error is not None}
        excuses = _said({name: note for name, note in self._excuses.items() if name in failing})
        healthy = failing == excuses.keys()
        status = "draining" if self.draining else "ready" if healthy else "unavailable"
        if not request.known:
            return _json(200 if status == "ready" else 503, {"status": status})
        checks = {
            name: {"ok": True} if error is None else {"ok": False, "error": error}
            for name, error in errors.items()
        }
        notes = _said(self._notes) | excuses
        body = {"status": status, "checks": checks} | ({"notes": notes} if notes else {})
        return _json(200 if status == "ready" else 503, body)

    async def _numbers(self, _request: HttpRequest) -> HttpAnswer:
        """As they are now, for those who ask now and then. Beyond a twentieth of the processor, those that
        were put together last: and one answer is in memory for all that do not read theirs."""
        began = self._runtime.monotonic()
        if self._numbers_paid_until - began <= _AHEAD_SECONDS:
            self._numbers_made = self._metrics.exposition()
            took = self._runtime.monotonic() - began
            self._numbers_paid_until = max(began, self._numbers_paid_until) + took / _SHARE
        return HttpAnswer(200, self._numbers_made, self._metrics.content_type)


def _said(notes: Mapping[str, Note]) -> dict[str, str]:
    return {name: said for name, note in notes.items() if (said := note()) is not None}


def _json(status: int, body: dict[str, Any]) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(body).encode() + b"\n", "application/json")
