"""The client's half of a session: keep-alives, and knowing when to stop believing in it.

The engine decides when a session is over; this side only ever gives up *earlier*. A keep-alive is
confirmed for `ttl` from the moment it was *sent*, and the engine counts from a moment after that, so
a holder that stops at `confirmed_until` has stopped before another process can take its place, however
long the answer travelled or this process was frozen.

That rests on a clock that goes on while this process does not. A guest whose host paused it may have none:
all its clocks stood still, and then the wall clock is set right. So where the wall clock has moved further
than the monotonic one, by a keep-alive interval, nothing is certain until another keep-alive was confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from dray.base.runtime import Runtime, keep_running, run_once
from dray.metadata.contract import MetadataError


class SendTime(NamedTuple):
    """When a request was sent, by both clocks of a process."""

    seconds: float
    """Of the monotonic clock."""

    wall_ms: int

    @classmethod
    def now(cls, runtime: Runtime) -> SendTime:
        return cls(runtime.monotonic(), runtime.wall_ms())


class KeptSession:
    """A session kept alive by a task of its own.

    `renew` sends one keep-alive and says whether the session still lives; `remove` ends it, with its
    keys. `sent` is when the request that opened it was sent.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        domain: int,
        identity: int,
        ttl: float,
        sent: SendTime,
        renew: Callable[[], Awaitable[bool]],
        remove: Callable[[], Awaitable[None]],
    ) -> None:
        self.domain = domain
        self.identity = identity
        self.ttl = ttl
        self._runtime = runtime
        self._sent = sent
        self._confirmed_until = sent.seconds + ttl
        self._looking: asyncio.Task[None] | None = None
        self._renew = renew
        self._remove = remove
        self._removed = False
        self._over = asyncio.Event()
        self._pause = ttl / 3
        self._task = keep_running(
            runtime, "metadata session", self._keep_alive, pause=ttl / 24, longest_pause=ttl / 24
        )
        self._watchdog = self._arm_watchdog()

    @property
    def ended(self) -> bool:
        return self._over.is_set() or self._runtime.monotonic() >= self._confirmed_until

    def confirmed_until(self) -> float:
        if self._may_have_been_away():
            self._look_again()
            return float("-inf")
        return self._confirmed_until

    async def wait_ended(self) -> None:
        await self._over.wait()

    async def close(self) -> None:
        self.abandon()
        if not self._removed:
            await self._remove()
            self._removed = True

    def abandon(self) -> None:
        """Stop the keep-alives without ending the session, as a process that died would."""
        self._over.set()
        self._task.cancel()
        if self._looking is not None:
            self._looking.cancel()
        self._watchdog.cancel()

    async def _keep_alive(self) -> None:
        while not self._over.is_set():
            await self._runtime.sleep(self._pause)
            # If this fails, nothing is lost before the watchdog says so: try again soon.
            self._pause = self.ttl / 12
            if await self._confirm():
                self._pause = self.ttl / 3

    async def _confirm(self) -> bool:
        """One keep-alive. False when there was no answer: nothing is lost before the watchdog says so."""
        sent = SendTime.now(self._runtime)
        try:
            alive = await self._renew()
        except MetadataError:
            return False
        if not alive:
            self.abandon()
        elif sent.seconds >= self._sent.seconds:
            self._sent, self._confirmed_until = sent, sent.seconds + self.ttl
        return True

    def _may_have_been_away(self) -> bool:
        now, sent = SendTime.now(self._runtime), self._sent
        unseen = (now.wall_ms - sent.wall_ms) / 1000 - (now.seconds - sent.seconds)
        return unseen > self.ttl / 3

    def _look_again(self) -> None:
        if not self._over.is_set() and (self._looking is None or self._looking.done()):
            self._looking = run_once(self._runtime, "metadata session in doubt", self._confirm_in_doubt)

    async def _confirm_in_doubt(self) -> None:
        await self._confirm()

    def _arm_watchdog(self) -> asyncio.TimerHandle:
        remaining = self._confirmed_until - self._runtime.monotonic()
        return asyncio.get_running_loop().call_later(max(remaining, 0.0), self._check)

    def _check(self) -> None:
        if self.ended:
            self.abandon()
        else:
            self._watchdog = self._arm_watchdog()


def session_identity(domain: int, session: object) -> int:
    """The engine's name for a session handed back to it in a put."""
    if not isinstance(session, KeptSession):
        raise ValueError(f"not a session of this store: {session!r}")
    if session.domain != domain:
        raise ValueError(f"a session of domain {session.domain} holds no keys of domain {domain}")
    return session.identity
