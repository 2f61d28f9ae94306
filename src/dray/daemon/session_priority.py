"""The share of the processor that this process has beside others of the machine, lowered while it works long.

Linux may share the processor out by sessions first (autogroup), and by niceness only within each. A process
that a supervisor started leads a session of its own, so its niceness alone yields nothing to the brokers. The
niceness of the session does. It is set only while there is long work: on a busy machine pages would be slow,
too. Without such groups the niceness of the process does the same.
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Final

from dray.runtime import Runtime, run_once

AUTOGROUP: Final = Path("/proc/self/autogroup")
NICENESS: Final = 10
LINGER_SECONDS: Final = 1.0
"""Pieces of work that follow each other within this are one."""
_LOOK_SECONDS: Final = 0.25
"""The system takes at most ten changes a second."""


def leads_session() -> bool:
    """A session that others lead is not this process's to slow down: a shell's, for one."""
    return os.getsid(0) == os.getpid()


class SessionPriority:
    def __init__(self, runtime: Runtime, file: Path = AUTOGROUP, *, leads: bool) -> None:
        self._runtime = runtime
        self._file = file
        self._until = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._usual = _niceness(file) if leads else None

    def at_work(self) -> None:
        """A piece of long work begins."""
        self._until = self._runtime.monotonic() + LINGER_SECONDS
        if self._usual is None or (self._task is not None and not self._task.done()):
            return
        self._task = run_once(self._runtime, "yield to other sessions", self._yield, self._usual)

    async def _yield(self, usual: int) -> None:
        lowered = self._set(usual + NICENESS)
        while True:
            await self._runtime.sleep(_LOOK_SECONDS)
            if self._runtime.monotonic() < self._until:
                lowered = lowered or self._set(usual + NICENESS)
            elif self._set(usual):
                return

    def _set(self, niceness: int) -> bool:
        """False where it is to be tried again."""
        try:
            self._file.write_text(str(niceness))
        except OSError as error:
            return error.errno != errno.EAGAIN
        return True


def _niceness(file: Path) -> int | None:
    """None where there are no such groups."""
    try:
        return int(file.read_text().split()[-1])
    except (OSError, ValueError, IndexError):
        return None
