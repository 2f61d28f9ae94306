"""Files of the config that are read again when they change: tokens, keys, certificates."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Generic, Protocol, TypeVar

import structlog

from dray.base.runtime import Runtime
from dray.broker.server.tls.listener import CertificateUnusable, ServerCertificate

_log = structlog.get_logger(__name__)

T = TypeVar("T")

REFRESH_SECONDS: Final = 10.0
"""How often the files are looked at."""
_DAY_SECONDS: Final = 24 * 3600


class FileUnusable(Exception):
    """One line: which file, and what is wrong with it. It never shows what is in it."""


class Refreshable(Protocol):
    def refresh(self) -> bool:
        """True if the file has changed, and what is new is in use."""


class WatchedFile(ABC, Generic[T]):
    """The content of a file. A file that was changed and cannot be used leaves what was read before. Raises
    `FileUnusable`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self.current = self._read()

    def refresh(self) -> bool:
        if self._state() == self._seen:
            return False
        self.current = self._read()
        return True

    @abstractmethod
    def _parsed(self, path: Path) -> T:
        """Raises `FileUnusable`, or `OSError`."""

    @abstractmethod
    def _unusable(self, reason: str) -> FileUnusable: ...

    def _state(self) -> tuple[int, int, int]:
        try:
            state = self._path.stat()
        except OSError as error:
            raise self._unreadable(error) from error
        return state.st_ino, state.st_size, state.st_mtime_ns

    def _read(self) -> T:
        seen = self._state()
        try:
            found = self._parsed(self._path)
        except OSError as error:
            raise self._unreadable(error) from error
        self._seen = seen
        return found

    def _unreadable(self, error: OSError) -> FileUnusable:
        return self._unusable(f"cannot read {self._path}: {error.strerror}")


async def refresh_files(files: Mapping[str, Refreshable], runtime: Runtime) -> None:
    """Runs for ever. A file that cannot be used is logged each time, and what was read before stays. The end
    of a certificate that is near is told once a day."""
    looked_at = _LookedAt(files, runtime)
    _looked_at.add(looked_at)
    try:
        while True:
            await runtime.sleep(REFRESH_SECONDS)
            await looked_at.look()
    finally:
        _looked_at.discard(looked_at)


async def look_now() -> None:
    """At all of this process's files, before it is their time."""
    for each in list(_looked_at):
        await each.look()


class _LookedAt:
    def __init__(self, files: Mapping[str, Refreshable], runtime: Runtime) -> None:
        self._files = files
        self._runtime = runtime
        self._told = dict.fromkeys(files, float("-inf"))
        self._one_at_a_time = asyncio.Lock()

    async def look(self) -> None:
        async with self._one_at_a_time:
            for name, file in self._files.items():
                await self._refresh(name, file)
                self._tell_of_the_end(name, file)

    async def _refresh(self, name: str, file: Refreshable) -> None:
        try:
            if await self._runtime.in_thread(file.refresh):
                _log.info("a changed file is in use", what=name)
        except (CertificateUnusable, FileUnusable) as error:
            _log.error("a changed file is not used: what was read before stays", what=name, error=str(error))

    def _tell_of_the_end(self, name: str, file: Refreshable) -> None:
        now = self._runtime.monotonic()
        if now - self._told[name] < _DAY_SECONDS or not isinstance(file, ServerCertificate):
            return
        if (fault := file.fault()) is not None:
            self._told[name] = now
            _log.warning("a certificate comes to its end", what=name, error=fault)


_looked_at: Final[set[_LookedAt]] = set()
