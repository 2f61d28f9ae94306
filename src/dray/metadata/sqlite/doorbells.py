"""Doorbells: how a process that has committed wakes the others that watch the same file.

A process that watches binds a datagram socket in a directory beside the file; a process that has committed
sends an empty datagram to each socket there. What changed is in the file, and the woken process looks there:
a datagram says nothing and proves nothing. One that is lost costs milliseconds, since a process that watches
also looks by itself (`changes`), and a socket whose buffer is full belongs to a process that will look
anyway.

A killed process leaves its socket behind. The next process that rings there is refused, and removes it: the
names are random and never used again.
"""

from __future__ import annotations

import os
import select
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

_log = structlog.get_logger(__name__)

SECONDS_BETWEEN_LISTINGS: Final = 0.5
"""A process that begins to watch is rung after this time at the latest."""

MOST_NEIGHBOURS: Final = 64
"""Further processes are not rung. They look by themselves."""

_ANSWERED_AT_ONCE: Final = 256


def directory_of(path: Path) -> Path:
    return path.with_name(path.name + ".doorbells")


class Doorbell:
    """The socket of one watching process. Only `interrupt` may be called from another thread."""

    def __init__(self, path: Path, identity: int) -> None:
        self._directory = directory_of(path)
        self._name = str(identity)
        self._socket: socket.socket | None = None
        self._waiting = select.poll()

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
        return True

    def interrupt(self) -> None:
        """End the wait that is under way, and all later ones."""
        if (bell := self._socket) is not None:
            with suppress(OSError):
                bell.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
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
