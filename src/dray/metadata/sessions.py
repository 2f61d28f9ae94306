"""The client's half of a session: keep-alives, and knowing when to stop believing in it.

The engine decides when a session is over; this side only ever gives up *earlier*. A keep-alive is
confirmed for `ttl` from the moment it was *sent*, and the engine counts from a moment after that, so
a holder that stops at `confirmed_until` has stopped before anybody else can take its place, however
long the answer travelled or this process was frozen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from dray.metadata.contract import MetadataError
from dray.runtime import Runtime, keep_running


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
        sent: float,
        renew: Callable[[], Awaitable[bool]],
        remove: Callable[[], Awaitable[None]],
    ) -> None:
        self.domain = domain
        self.identity = identity
        self.ttl = ttl
        self._runtime = runtime
        self._confirmed_until = sent + ttl
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
        return self._confirmed_until

    async def wait_ended(self) -> None:
        await self._over.wait()

    async def close(self) -> None:
        self.abandon()
        if not self._removed:
            await self._remove()
            self._removed = True

    def abandon(self) -> None:
        """Stop the keep-alives and tell nobody, as a process that died would."""
        self._over.set()
        self._task.cancel()
        self._watchdog.cancel()

    async def _keep_alive(self) -> None:
        while True:
            await self._runtime.sleep(self._pause)
            sent = self._runtime.monotonic()
            # Where this fails, nothing is lost before the watchdog says so: try again soon.
            self._pause = self.ttl / 12
            try:
                alive = await self._renew()
            except MetadataError:
                continue
            if not alive:
                self.abandon()
                return
            self._confirmed_until = sent + self.ttl
            self._pause = self.ttl / 3

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
