"""Keeping a cache near the truth: a watch for speed, and a periodic re-read because a watch is a hint.

A watch may fall silent without saying so. A follower of a prefix is therefore asked to re-read all of
it when the watch starts, after every interruption of it, and every few seconds whatever happens.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from dray.metadata.contract import MetadataError, MetadataStore
from dray.runtime import KeptTask, Runtime, keep_running

_log = structlog.get_logger(__name__)


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
