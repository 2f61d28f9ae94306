"""Where clients wait while a broker starts: it serves nothing before it knows its own id."""

from __future__ import annotations

import asyncio


class Entrance:
    """Requests that came while it was closed go in one by one once it opens. One that arrives at that very
    moment must not overtake those that wait: the requests of a connection are begun in the order they came.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._waiting = 0

    async def close(self) -> None:
        await self._lock.acquire()

    def open(self) -> None:
        self._lock.release()

    @property
    def is_empty(self) -> bool:
        """True if no request waits. Once the entrance is open and empty, none ever will."""
        return not self._waiting

    async def enter(self) -> bool:
        """True where the request had to wait."""
        waits = self._lock.locked() or self._waiting > 0
        self._waiting += 1
        try:
            async with self._lock:
                return waits
        finally:
            self._waiting -= 1
