"""New connections that an address makes too fast.

They are held for a while, unread, and then closed: a client that is refused at once would come again at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

MOST_HELD: Final = 1000
"""Held at once; more are closed at once, so that they cannot take all the sockets of the process."""


class Newcomers:
    """`wait` says for how many seconds a new connection of an address is held; 0: it is welcome."""

    def __init__(self, wait: Callable[[str], float]) -> None:
        self._wait = wait
        self._held: dict[asyncio.Transport, asyncio.TimerHandle] = {}

    @property
    def held(self) -> int:
        return len(self._held)

    def refuse(self, transport: asyncio.Transport, address: str) -> bool:
        """True if this connection comes too early. It is closed without anything being read of it."""
        seconds = self._wait(address)
        if seconds <= 0:
            return False
        if len(self._held) >= MOST_HELD:
            transport.abort()
        else:
            transport.pause_reading()
            loop = asyncio.get_running_loop()
            self._held[transport] = loop.call_later(seconds, self._close, transport)
        return True

    def stop(self) -> None:
        for transport in list(self._held):
            self._held[transport].cancel()
            self._close(transport)

    def _close(self, transport: asyncio.Transport) -> None:
        del self._held[transport]
        transport.abort()
