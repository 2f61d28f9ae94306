"""Hearing of what other processes wrote: a look at `PRAGMA data_version` when one of them rings
(`doorbells`), and every few milliseconds in case none does.

It looks at shared memory and takes some microseconds; only when it moved are the rows of `changes`
read. It runs in a thread of its own, so an idle store costs the event loop nothing at all. Where nobody
writes, it looks less often: what an idle broker costs is mostly that its threads wake up.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from dray.metadata.sqlite.doorbells import Doorbell
from dray.metadata.sqlite.schema import connect_reader
from dray.metadata.watching import WatchHub
from dray.runtime.workers import PollingThread

_log = structlog.get_logger(__name__)

_EXTENT = "SELECT coalesce(min(sequence), 0), coalesce(max(sequence), 0) FROM changes"
_NEWS = "SELECT domain, keys FROM changes WHERE sequence > ?1 AND sequence <= ?2 AND writer <> ?3"


class ForeignChanges:
    """Publishes to `hub` what writers other than `identity` changed, while somebody watches."""

    def __init__(
        self,
        path: Path,
        *,
        identity: int,
        interval: float,
        quiet_interval: float,
        busy_timeout: float,
        hub: WatchHub,
    ) -> None:
        self._path = path
        self._identity = identity
        self._interval = interval
        self._quiet_interval = quiet_interval
        self._busy_timeout = busy_timeout
        self._hub = hub
        self._watchers = 0
        self._poller: PollingThread | None = None
        self._started: asyncio.Future[None] | None = None

    async def enter(self) -> None:
        """Returns once every later change will be noticed."""
        self._watchers += 1
        if self._started is None:
            loop = asyncio.get_running_loop()
            self._started = loop.create_future()
            tail = _Tail(self._path, self._identity, self._busy_timeout, self._publisher(loop, self._started))
            self._poller = PollingThread(
                "metadata-watch",
                self._interval,
                self._quiet_interval,
                tail.poll,
                tail.close,
                Doorbell(self._path, self._identity),
            )
        await asyncio.shield(self._started)

    def leave(self) -> None:
        self._watchers -= 1
        if self._watchers == 0:
            self.close()

    def close(self) -> None:
        if self._poller is not None:
            self._poller.stop()
            self._poller = self._started = None

    def _publisher(
        self, loop: asyncio.AbstractEventLoop, started: asyncio.Future[None]
    ) -> Callable[[list[tuple[int, str | None]] | None], None]:
        def deliver(news: list[tuple[int, str | None]] | None) -> None:
            if not started.done():
                started.set_result(None)
            elif news is None:
                self._hub.interrupt()
            else:
                for domain, keys in news:
                    self._hub.publish(domain, None if keys is None else keys.split("\n"))

        def publish(news: list[tuple[int, str | None]] | None) -> None:
            try:
                loop.call_soon_threadsafe(deliver, news)
            except RuntimeError:
                if not loop.is_closed():
                    raise

        return publish


class _Tail:
    """The polling thread's state. `publish` gets the news, or None when some may have been missed."""

    def __init__(
        self, path: Path, identity: int, busy_timeout: float, publish: Callable[[Any], None]
    ) -> None:
        self._path = path
        self._identity = identity
        self._busy_timeout = busy_timeout
        self._publish = publish
        self._connection: sqlite3.Connection | None = None
        self._data_version = 0
        self._seen = 0
        self._failing = False

    def poll(self) -> bool:
        """Did anything move?"""
        try:
            moved = self._look()
        except sqlite3.Error as error:
            if not self._failing:
                _log.warning("cannot watch the metadata file", path=str(self._path), error=str(error))
            self._failing = True
            self.close()
            return False
        self._failing = False
        return moved

    def close(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def _look(self) -> bool:
        if self._connection is None:
            self._connection = connect_reader(self._path, self._busy_timeout)
            self._data_version = self._current_data_version(self._connection)
            _, self._seen = self._connection.execute(_EXTENT).fetchone()
            self._publish(None)
            return True
        data_version = self._current_data_version(self._connection)
        if data_version == self._data_version:
            return False
        self._data_version = data_version
        first, last = self._connection.execute(_EXTENT).fetchone()
        if first > self._seen + 1:
            self._publish(None)
        elif last > self._seen:
            arguments = (self._seen, last, self._identity)
            news = self._connection.execute(_NEWS, arguments).fetchall()
            if news:
                self._publish(news)
        self._seen = last
        return True

    def _current_data_version(self, connection: sqlite3.Connection) -> int:
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        return int(version)
