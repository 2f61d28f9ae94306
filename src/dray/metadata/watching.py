"""Watches: the watchers of each domain, with the changes that they have yet to hear, alike for every engine;
and followers, which keep a cache near the truth.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing

from dray.base.runtime import KeptTask, Runtime, keep_running
from dray.base.runtime.logger import get_logger
from dray.metadata.contract import MARK, Change, MetadataError, MetadataStore
from dray.metadata.keys import WATCHED

PENDING_KEYS = 8192
"""How many keys one watcher may lag behind before they melt into a single `Change(None)`."""


class _Watcher:
    """Changes that one consumer has not taken. A key that changes again before then is reported once."""

    __slots__ = ("anything", "endings", "keys", "waiting")

    def __init__(self, endings: tuple[str, ...] = ()) -> None:
        self.endings = endings
        self.anything = True
        self.keys: dict[str, None] = {}
        self.waiting: asyncio.Future[None] | None = None

    def tell(self, keys: Iterable[str] | None, others: bool = False) -> None:
        if keys is None or (others and self.endings != WATCHED):
            self.anything = True
        elif not self.anything:
            if self.endings:
                keys = [key for key in keys if key.endswith(self.endings) or key.startswith(MARK)]
            self.keys.update(dict.fromkeys(keys))
            self.anything = len(self.keys) > PENDING_KEYS
        if self.anything:
            self.keys.clear()
        if self.anything or self.keys:
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

    def publish(self, domain: int, keys: Iterable[str] | None, *, others: bool = False) -> None:
        """These keys of the domain changed; None: there is no telling which. `others`: and some that are not
        named, but of those with the endings `WATCHED` all are."""
        for watcher in self._watchers.get(domain, ()):
            watcher.tell(keys, others)

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

    async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncGenerator[Change, None]:
        async with aclosing(self.watch_many(domain, endings)) as news:
            async for changes in news:
                for change in changes:
                    yield change

    async def watch_many(
        self, domain: int, endings: tuple[str, ...] = ()
    ) -> AsyncGenerator[list[Change], None]:
        """The same, by as many as there are: a generator between a busy store and its watcher costs more than
        what it hands on."""
        watcher = _Watcher(endings)
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


# --- followers
#
# A watch is for speed, and a periodic re-read is there because a watch is a hint: it may fall silent
# without saying so. A follower of a prefix is therefore asked to re-read all of it when the watch starts,
# after every interruption of it, and every few seconds whatever happens.


_log = get_logger(__name__)


class Follower:
    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        domain: int,
        prefix: str,
        *,
        read_all: Callable[[], Awaitable[None]],
        read_key: Callable[[str], Awaitable[None]],
        interval: float,
        pause: float = 1.0,
        reread: Callable[[], Awaitable[None]] | None = None,
        retry: float | None = None,
    ) -> None:
        """`reread`: how everything is read periodically, if not as it is read when the watch says so.
        `retry`: how long after a periodic re-read that failed the next one comes; else as after any."""
        self._store = store
        self._runtime = runtime
        self._domain = domain
        self._prefix = prefix
        self._read_all = read_all
        self._read_again = reread or read_all
        self._read_key = read_key
        self._interval = interval
        self._pause = pause
        self._retry = interval if retry is None else retry
        self._tasks: list[KeptTask] = []

    def start(self) -> None:
        self._tasks = [
            keep_running(self._runtime, f"watch {self._prefix}", self._watch, pause=self._pause),
            keep_running(self._runtime, f"re-read {self._prefix}", self._reread),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            await task.stop()
        self._tasks = []

    async def _watch(self) -> None:
        while True:
            try:
                async for change in self._store.watch(self._domain):
                    if change.key is None:
                        await self._read_all()
                    elif change.key.startswith(self._prefix):
                        await self._read_key(change.key)
            except MetadataError as error:
                _log.warning("a watch was interrupted", prefix=self._prefix, error=str(error))
            await self._runtime.sleep(self._pause)

    async def _reread(self) -> None:
        wait = self._interval
        while True:
            await self._runtime.sleep(wait)
            wait = self._interval
            try:
                await self._read_again()
            except MetadataError as error:
                wait = self._retry
                _log.warning("a periodic re-read failed", prefix=self._prefix, error=str(error))
