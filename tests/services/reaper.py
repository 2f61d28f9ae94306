"""Whatever ends a test process, Ctrl-C and kill -9 included, its servers end too.

Servers run in sessions of their own, so that nothing that is meant for the tests hits them; and a process of
pytest-xdist that is interrupted tidies nothing up. So a small process stands by. It reads which
servers start and end, and when its input ends, it kills those that are left.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress

PROGRAM = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
alive = set()
for line in sys.stdin:
    (alive.add if line[0] == "+" else alive.discard)(int(line[1:]))
for group in alive:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


class Reaper:
    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._lock = threading.Lock()

    def started(self, group: int) -> None:
        """A process group, by its leader's id."""
        self._tell(f"+{group}\n")

    def ended(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-ISc", PROGRAM],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    text=True,
                    bufsize=1,
                    start_new_session=True,
                )
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it was killed
                self._process.stdin.write(line)
