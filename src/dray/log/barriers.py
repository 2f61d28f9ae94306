"""One barrier per domain at a time: it serves every caller that asked before it was sent."""

from __future__ import annotations

import asyncio

from dray.metadata.contract import MetadataStore


class Barriers:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._running: dict[int, asyncio.Task[None]] = {}
        self._next: dict[int, asyncio.Task[None]] = {}

    async def wait(self, domain: int) -> None:
        """Reads that start after this returns see every write acknowledged before it was called. A barrier
        that is already on its way may have been sent before such a write: then this call waits for the next
        one."""
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
    """Callers that wait get the barrier's error. If all of them went away, asyncio would report an error that
    was never retrieved: so it is retrieved here."""
    if not barrier.cancelled():
        barrier.exception()
