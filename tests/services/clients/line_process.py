"""A client in a process of its own, and the lines it writes."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from collections.abc import Sequence

from tests.services.clients.contract import SECONDS


class LineProcess:
    """As long as its lines are not read, it waits in its own output: so a command line stands still."""

    def __init__(self, command: Sequence[str]) -> None:
        self.name = os.path.basename(command[0])
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (until `close`)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0
        )
        self._lines: list[bytes] = []  # the next one last
        self._rest = b""

    def write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")

    def readline(self, deadline: float) -> bytes:
        """The next line, without its end."""
        assert self._process.stdout is not None
        while not self._lines:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"{self.name} wrote no line in time: {self.errors()}")
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise RuntimeError(f"{self.name} ended with {self._process.wait()}: {self.errors()}")
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines = lines[::-1]
        return self._lines.pop()

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")[-3000:]

    def close(self) -> None:
        """It ends at the end of its input, or when it is terminated."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.terminate()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()
