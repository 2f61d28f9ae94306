"""What other processes wrote: how a process hears of it, and lets the others know.

It looks at `PRAGMA data_version` when another process rings (`Doorbells`), and every few milliseconds in case
none does. That look at shared memory takes some microseconds; only when it moved are the rows of `changes`
read. It runs in a thread of its own, so an idle store costs the event loop nothing at all. While nobody
writes, it looks less often: the cost of an idle broker is mostly that its threads wake up.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import sqlite3
import stat
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from dray.base.runtime.logger import get_logger
from dray.base.runtime.workers import PollingThread
from dray.metadata.sqlite.schema import connect_reader
from dray.metadata.watching import WatchHub

# --- doorbells: how a process that has committed wakes the others that watch the same file
#
# A process that watches binds a datagram socket in a directory beside the file; a process that has
# committed sends an empty datagram to each socket there. The change is in the file, and the woken process
# looks there: a datagram says nothing and proves nothing. One that is lost costs milliseconds, since a
# process that watches also looks by itself (`changes`), and a socket whose buffer is full belongs to a
# process that will look anyway.
#
# A killed process leaves its socket behind. The next process that rings there is refused, and removes it:
# the names are random and never used again.


_log = get_logger(__name__)

SECONDS_BETWEEN_LISTINGS: Final = 0.5
"""A process that begins to watch is rung after this time at the latest."""

MOST_NEIGHBOURS: Final = 64
"""Further processes are not rung. They look by themselves."""

_ANSWERED_AT_ONCE: Final = 256


def directory_of(path: Path) -> Path:
    return path.with_name(path.name + ".doorbells")


class Doorbell:
    """The socket of one watching process. Only `interrupt` and `nudge` may be called from another
    thread."""

    def __init__(self, path: Path, identity: int) -> None:
        self._directory = directory_of(path)
        self._name = str(identity)
        self._socket: socket.socket | None = None
        self._waiting = select.poll()
        self._near, self._far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._waiting.register(self._near, select.POLLIN)

    def open(self) -> bool:
        """False where there can be none: then the process looks by itself, and that is all."""
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        try:
            with suppress(FileExistsError):
                self._directory.mkdir(mode=0o700)
            os.fchmod(bell.fileno(), 0o600)  # before the bind: no other user can ring in between
            folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                bell.bind(_address(folder, self._directory, self._name))
            finally:
                os.close(folder)
        except OSError as error:
            _log.warning("no doorbell: other processes are noticed later", error=str(error))
            bell.close()
            return False
        self._socket = bell
        self._waiting.register(bell, select.POLLIN)
        return True

    def wait(self, seconds: float) -> bool:
        """Did it ring within that time?"""
        assert self._socket is not None
        if not self._waiting.poll(seconds * 1000):
            return False
        with suppress(OSError):
            for _ in range(_ANSWERED_AT_ONCE):
                self._socket.recv(1)
        with suppress(OSError):
            while True:
                self._near.recv(1)
        return True

    def nudge(self) -> None:
        """Ring it from within. A full one has been nudged, and for a closed one nobody looks."""
        with suppress(OSError):
            self._far.send(b".")

    def interrupt(self) -> None:
        """End the wait that is under way, and all later ones."""
        if (bell := self._socket) is not None:
            with suppress(OSError):
                bell.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._near.close()
        self._far.close()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            with suppress(OSError):
                (self._directory / self._name).unlink()


class Neighbours:
    """The processes that watch the same file, to be rung after a commit. Used in the writer's thread."""

    def __init__(self, path: Path, identity: int, clock: Callable[[], float]) -> None:
        self._directory = directory_of(path)
        self._name = str(identity)
        self._clock = clock
        self._folder: int | None = None
        self._socket: socket.socket | None = None
        self._names: list[str] = []
        self._listed = float("-inf")

    def ring(self) -> None:
        """Wake all of them. Neither waits nor fails."""
        now = self._clock()
        if now - self._listed >= SECONDS_BETWEEN_LISTINGS:
            self._listed = now
            self._list()
        for name in tuple(self._names):
            self._ring(name)

    def close(self) -> None:
        if self._folder is not None:
            os.close(self._folder)
            self._folder = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._names = []
        self._listed = float("-inf")

    def _list(self) -> None:
        try:
            if self._folder is None:
                self._folder = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            names = os.listdir(self._folder)
        except OSError:  # no process has watched yet
            names = []
        self._names = [name for name in names if name != self._name][:MOST_NEIGHBOURS]

    def _ring(self, name: str) -> None:
        assert self._folder is not None
        if self._socket is None:
            self._socket = socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            )
        try:
            self._socket.sendto(b"", _address(self._folder, self._directory, name))
        except ConnectionRefusedError:  # its process was killed, or it is no socket at all
            self._names.remove(name)
            with suppress(OSError):
                if stat.S_ISSOCK(os.lstat(name, dir_fd=self._folder).st_mode):
                    os.unlink(name, dir_fd=self._folder)
        except OSError:  # full, or gone: that process looks by itself
            pass


def _address(folder: int, directory: Path, name: str) -> str:
    """The path of a socket. It may have 107 characters, and the path of a data directory often has more;
    through the open directory it is short."""
    if os.path.exists("/proc/self/fd"):
        return f"/proc/self/fd/{folder}/{name}"
    return str(directory / name)


# --- changes


# Two looks into the index of the key: asked for both at once, SQLite reads the whole table.
_EXTENT = """
    SELECT coalesce((SELECT min(sequence) FROM changes), 0), coalesce((SELECT max(sequence) FROM changes), 0)
"""
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
        self._looks: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Returns once every later change will be noticed."""
        self._watchers += 1
        if self._started is None:
            loop = asyncio.get_running_loop()
            self._started = loop.create_future()
            tail = _Tail(self._path, self._identity, self._busy_timeout, self._publisher(loop, self._started))
            self._bell = Doorbell(self._path, self._identity)
            self._looks = deque()
            self._poller = PollingThread(
                "metadata-watch",
                self._interval,
                self._quiet_interval,
                partial(_poll, tail, loop, self._looks),
                tail.close,
                self._bell,
            )
        await asyncio.shield(self._started)

    async def look(self) -> None:
        """Until a look that began after this call has told its news."""
        if self._poller is not None:
            done = asyncio.get_running_loop().create_future()
            self._looks.append(done)
            self._bell.nudge()
            await done

    def leave(self) -> None:
        self._watchers -= 1
        if self._watchers == 0:
            self.close()

    def close(self) -> None:
        if self._poller is not None:
            self._poller.stop()
            self._poller = self._started = None
            _looked(self._looks, len(self._looks))  # no watch is left that could hand anything out

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
                    names = None if keys is None else keys.split("\n")
                    self._hub.publish(domain, names, others=names is not None and not names[0])

        def publish(news: list[tuple[int, str | None]] | None) -> None:
            _soon(loop, deliver, news)

        return publish


def _poll(tail: _Tail, loop: asyncio.AbstractEventLoop, looks: deque[asyncio.Future[None]]) -> bool:
    """In the thread. A look that failed settles nothing: it is waited for one that does not."""
    asked = len(looks)
    moved = tail.poll()
    if asked and not tail.is_failing:
        _soon(loop, _looked, looks, asked)
    return moved


def _looked(looks: deque[asyncio.Future[None]], count: int) -> None:
    for _ in range(min(count, len(looks))):
        if not (done := looks.popleft()).done():
            done.set_result(None)


def _soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        if not loop.is_closed():
            raise


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

    @property
    def is_failing(self) -> bool:
        return self._failing

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
