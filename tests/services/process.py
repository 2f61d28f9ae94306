"""A server in a process of its own: started, asked whether it is ready, killed by its pid, started again."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, ClassVar, Self

from tests.services.reaper import Reaper

POLL_SECONDS = 0.02


class NotReady(Exception):
    """The server did not come up; the message carries the end of its log."""


class PortBlocks:
    """Ports for servers, from blocks that belong to this process until it ends.

    A port that the system calls free may be taken a moment later: it gives the same range to whatever process
    connects. These lie below that range, and two test runs or two workers of one never draw from the same
    block, so only a server that has nothing to do with tests can be in the way; its port is passed over."""

    def __init__(self, ports: range, block: int, directory: Path) -> None:
        self._ports = ports
        self._block = block
        self._directory = directory
        self._next = self._end = 0
        self._locks: list[IO[bytes]] = []

    def take(self, count: int) -> int:
        """The first of so many ports in a row that are all free."""
        while True:
            if self._next + count > self._end:
                self._lock_another_block()
            first = self._next
            self._next += count
            if all(is_unbound(port) for port in range(first, first + count)):
                return first

    def _lock_another_block(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for first in self._ports[:: self._block]:
            lock = (self._directory / str(first)).open("wb")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                continue
            self._locks.append(lock)  # until this process ends, however it does
            self._next, self._end = first, min(first + self._block, self._ports.stop)
            return
        raise RuntimeError(f"every port of {self._ports} belongs to a test run: {self._directory}")


def is_unbound(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


# Browsers refuse 10080, whoever listens there (it was Amanda's): nothing of the tests does.
_blocks = PortBlocks(
    range(10_100, 32_700), 100, Path(tempfile.gettempdir()) / f"dray-test-ports-{os.getuid()}"
)


def free_port() -> int:
    """A loopback port that is free, and that no other test process hands out."""
    return _blocks.take(1)


def free_ports(count: int) -> int:
    """The first of so many in a row."""
    return _blocks.take(count)


def answers_api_versions(host: str, port: int, timeout: float = 2.0) -> bool:
    """Whether a Kafka broker answers ApiVersions v0 there: from then on clients get through."""
    # api key 18, version 0, correlation id 1, null client id
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((host, port), timeout=timeout) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            answer = b""
            while len(answer) < 10:
                received = connection.recv(4096)
                if not received:
                    return False
                answer += received
    except OSError:
        return False
    _, correlation, error = struct.unpack_from(">iih", answer)
    return bool(correlation == 1 and error == 0)


_reaper = Reaper()


@atexit.register
def kill_what_is_left() -> None:
    """A script that ends in an error must not leave a broker behind."""
    for server in list(ServerProcess.running):
        server.kill()


class ServerProcess:
    """Start, stop and restart one server process. Its output goes to a log file that failures show."""

    running: ClassVar[list[ServerProcess]] = []
    """Every server that is up, so that a failing test can show the logs of those it used."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.log_path = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    def environment(self) -> Mapping[str, str]:
        return os.environ

    def is_ready(self) -> bool:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = 60.0) -> None:
        """Start, and return when the server answers."""
        self.spawn()
        self.wait_until_ready(timeout)

    def spawn(self) -> None:
        if self.alive:
            raise RuntimeError(f"{self.name} is running already")
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(self.environment()),
                cwd=self.directory,
                start_new_session=True,
            )
        ServerProcess.running.append(self)
        _reaper.started(self._process.pid)

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while True:
            if not self.alive:
                code = self._process.returncode if self._process else None
                self._forget()
                raise NotReady(f"{self.name} ended with {code} before it was ready:\n{self.log_tail()}")
            if self.is_ready():
                return
            if time.monotonic() > deadline:
                self.kill()
                raise NotReady(f"{self.name} was not ready after {timeout:.0f} s:\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def kill(self) -> None:
        """SIGKILL, children included: what a machine does to a process without asking."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._forget()

    def terminate(self, timeout: float = 30.0) -> int:
        """SIGTERM, and wait: the exit code. Not to stop in time is an error."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        process = self._process
        process.terminate()
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"{self.name} did not stop in {timeout:.0f} s:\n{self.log_tail()}") from None
        self._forget()
        return code

    def wait(self, timeout: float) -> int:
        """Wait for a process that should end by itself: the exit code."""
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        code = self._process.wait(timeout)
        self._forget()
        return code

    def _forget(self) -> None:
        if self._process is not None:
            _reaper.ended(self._process.pid)
        self._process = None
        if self in ServerProcess.running:
            ServerProcess.running.remove(self)

    def log_tail(self, lines: int = 60) -> str:
        if not self.log_path.exists():
            return "(no log)"
        with self.log_path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 64 * 1024))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def __enter__(self) -> Self:
        if not self.alive:
            self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
