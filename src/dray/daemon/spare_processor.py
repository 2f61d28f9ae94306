"""Whether other processes of this machine need the processor, so that long work here makes room for them.

Niceness is not enough: a process that wakes up stands behind a running one of the same core for some
milliseconds, however nice that one is. So long work pauses by itself where there is no core to spare
(`inspection/pace.py`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from dray.runtime import Runtime

STAT: Final = Path("/proc/stat")
LOOK_SECONDS: Final = 0.2
OTHERS_AT_WORK: Final = 0.35
"""What others use, in cores: less than this is no load, but the answers to what is asked here."""
ENOUGH: Final = 2.0
"""Cores that are left for this process: one that it takes, and one that others can wake up on."""


class SpareProcessor:
    def __init__(self, runtime: Runtime, file: Path = STAT, cores: int | None = None) -> None:
        self._runtime = runtime
        self._file = file
        self._cores = cores or os.cpu_count() or 1
        self._ticks = os.sysconf("SC_CLK_TCK")
        self._before = self._look()
        self._crowded = False

    def is_crowded(self) -> bool:
        """As it was in the last moments. False where the system does not say."""
        if self._before is None or self._runtime.monotonic() - self._before[0] < LOOK_SECONDS:
            return self._crowded
        before, now = self._before, self._look()
        self._before = now
        if now is None:
            self._crowded = False
        else:
            spare = (now[1] - before[1] + now[2] - before[2]) / (now[0] - before[0])
            self._crowded = spare < ENOUGH and self._cores - spare > OTHERS_AT_WORK
        return self._crowded

    def _look(self) -> tuple[float, float, float] | None:
        """The time, and the seconds that all cores were idle and that this process has used."""
        try:
            fields = self._file.read_text(encoding="ascii").split("\n", 1)[0].split()
            idle = (int(fields[4]) + int(fields[5])) / self._ticks
        except (OSError, ValueError, IndexError):
            return None
        used = os.times()
        return self._runtime.monotonic(), idle, used.user + used.system
