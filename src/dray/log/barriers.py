"""One barrier in flight per domain serves all who asked before it was sent."""

from __future__ import annotations

import asyncio

from dray.metadata.contract import MetadataStore


class Barriers:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._running: dict[int, asyncio.Task[None]] = {}
        self._next: dict[int, asyncio.Task[None]] = {}

    async def wait(self, domain: int) -> None:
        """Reads that start after this see every write acknowledged before it was called. A barrier
        that is already on its way may have been sent too early for us: then the next one is ours."""
        following = self._next.get(domain)
        if following is None:
            running = self._running.get(domain)
            loop = asyncio.get_running_loop()
            following = loop.create_task(self._send(domain, running))
            following.add_done_callback(_take_exception)
            self._next[domain] = following
        await asyncio.shield(following)

    async def _send(self, domain: int, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        this = self._next.pop(domain)
        self._running[domain] = this
        try:
            await self._store.barrier(domain)
        finally:
            if self._running.get(domain) is this:
                del self._running[domain]


def _take_exception(barrier: asyncio.Task[None]) -> None:
    """Whoever waits gets its error; if all of them went away, nobody needs it."""
    if not barrier.cancelled():
        barrier.exception()
