"""Who watches which domain, and what they have yet to hear: the same for every engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from dray.metadata.contract import Change

PENDING_KEYS = 1024
"""How many keys one watcher may lag behind before they melt into a single `Change(None)`."""


class _Watcher:
    """What one consumer has not yet taken. A key that changes again before then is reported once."""

    __slots__ = ("anything", "keys", "waiting")

    def __init__(self) -> None:
        self.anything = True
        self.keys: dict[str, None] = {}
        self.waiting: asyncio.Future[None] | None = None

    def tell(self, keys: Iterable[str] | None) -> None:
        if keys is None:
            self.anything = True
        elif not self.anything:
            self.keys.update(dict.fromkeys(keys))
            self.anything = len(self.keys) > PENDING_KEYS
        if self.anything:
            self.keys.clear()
        self.wake()

    def wake(self) -> None:
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)

    def take(self) -> list[Change]:
        """All that there is."""
        if self.anything:
            self.anything = False
            return [Change(None)]
        if not self.keys:
            return []
        keys, self.keys = self.keys, {}
        return [Change(key) for key in keys]


class WatchHub:
    """Hands changes to watchers. Used on the event loop only."""

    def __init__(self) -> None:
        # Dictionaries, not sets: watchers wake in the order they came, in every run of a simulation.
        self._watchers: dict[int, dict[_Watcher, None]] = {}
        self._closed = False

    def watched(self, domain: int) -> bool:
        return domain in self._watchers

    def publish(self, domain: int, keys: Iterable[str] | None) -> None:
        """These keys of the domain changed; None: there is no telling which."""
        for watcher in self._watchers.get(domain, ()):
            watcher.tell(keys)

    def interrupt(self) -> None:
        """Changes may have gone unseen: everybody re-reads."""
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.tell(None)

    def close(self) -> None:
        """Every watch ends."""
        self._closed = True
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.wake()

    async def watch(self, domain: int) -> AsyncGenerator[Change, None]:
        async with aclosing(self.watch_many(domain)) as news:
            async for changes in news:
                for change in changes:
                    yield change

    async def watch_many(self, domain: int) -> AsyncGenerator[list[Change], None]:
        """The same, by as many as there are: a generator between a busy store and its watcher costs more than
        what it hands on."""
        watcher = _Watcher()
        watchers = self._watchers.setdefault(domain, {})
        watchers[watcher] = None
        try:
            while not self._closed:
                if changes := watcher.take():
                    yield changes
                    continue
                watcher.waiting = asyncio.get_running_loop().create_future()
                await watcher.waiting
        finally:
            watchers.pop(watcher, None)
            if not watchers and self._watchers.get(domain) is watchers:
                del self._watchers[domain]
