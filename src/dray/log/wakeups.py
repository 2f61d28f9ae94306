"""Long polls that wait for a stream to grow, and hints that came while no poll waited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class Wakeups:
    def __init__(self) -> None:
        self._waiting: dict[int, dict[asyncio.Future[None], None]] = {}
        self._missed: set[int] = set()
        self.count = 0

    def waits(self, stream: int) -> bool:
        return stream in self._waiting

    def streams(self) -> list[int]:
        return list(self._waiting)

    async def wait(self, streams: Iterable[int], seconds: float) -> None:
        """Until one of the streams is woken, or the time has passed."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        streams = list(streams)
        for stream in streams:
            self._waiting.setdefault(stream, {})[woken] = None
        timer = loop.call_later(seconds, _finish, woken)
        self.count += 1
        try:
            await woken
        finally:
            self.count -= 1
            timer.cancel()
            for stream in streams:
                waiting = self._waiting.get(stream)
                if waiting is not None:
                    waiting.pop(woken, None)
                    if not waiting:
                        del self._waiting[stream]

    def miss(self, stream: int) -> None:
        """The stream may have grown, and no poll waits for it. The next poll must not sleep on it."""
        self._missed.add(stream)

    def forget_missed(self, is_known: Callable[[int], bool]) -> None:
        """Drop missed hints of streams that are no longer cached: the store is asked about those anyway."""
        self._missed = set(filter(is_known, self._missed))

    def missed(self, stream: int) -> bool:
        return stream in self._missed

    def seen(self, stream: int) -> None:
        """The stream's present end is known, or about to be read."""
        self._missed.discard(stream)

    def wake(self, stream: int) -> None:
        self.seen(stream)
        for woken in self._waiting.get(stream, ()):
            _finish(woken)


def _finish(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
