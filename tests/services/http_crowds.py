"""Crowds of HTTP clients that mean no good, over plain sockets, and a probe that asks all the while."""

from __future__ import annotations

import http.client
import resource
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType

from dray.daemons.assembly.process import raise_file_limit

ADDRESSES = [f"127.0.1.{number}" for number in range(1, 17)]
"""Where crowds come from; probes come from 127.0.0.1."""
_IP_BIND_ADDRESS_NO_PORT = 24
"""A name of Python 3.12. A port is chosen when the connection is made, so that one whose last connection has
just ended will do: a few thousand such may be left by the tests before."""
PROBE_SECONDS = 5.0
"""What the chart gives a probe."""
PATIENCE_SECONDS = 60.0
"""What tests give one: a machine that runs many things at once may stand still for longer than that. Who is
kept out hears so at once, or waits for ever."""


def as_many_as(wanted: int) -> int:
    """Connections, within what the machine lets a process have open."""
    raise_file_limit()
    return min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)


class Crowd:
    """Connections that stay until it ends, whatever the server does with them."""

    def __init__(self, port: int, addresses: Sequence[str] = ADDRESSES) -> None:
        self._port = port
        self._addresses = addresses
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Crowd:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self._sockets:
            each.close()

    def come(self, count: int, said: bytes = b"", receive_bytes: int = 0) -> None:
        for number in range(count):
            made = socket.socket()
            if receive_bytes:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            made.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            made.bind((self._addresses[number % len(self._addresses)], 0))
            made.settimeout(30)
            made.connect(("127.0.0.1", self._port))
            made.setblocking(False)
            self._sockets.append(made)
        self.say(said)

    def say(self, said: bytes) -> None:
        """To all that still listen, as much of it as they take."""
        for each in self._sockets if said else []:
            with suppress(OSError):
                each.send(said)

    def still_open(self) -> int:
        """How many were not closed by the server."""
        return sum(map(_is_open, self._sockets))


def _is_open(made: socket.socket) -> bool:
    """Reads what came; the end comes behind it."""
    with suppress(BlockingIOError):
        try:
            while made.recv(1 << 20):
                pass
        except ConnectionError:
            return False
        return False
    return True


class Probe:
    """Asks paths in turn, each on a connection of its own as kubelets do, from one thread."""

    def __init__(
        self,
        port: int,
        paths: Sequence[str],
        context: ssl.SSLContext | None = None,
        seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._port = port
        self._paths = paths
        self._context = context
        self._seconds = seconds
        self._over = threading.Event()
        self.outcomes: list[int | str] = []

    @contextmanager
    def asking(self) -> Iterator[None]:
        asking = threading.Thread(target=self._ask)
        asking.start()
        try:
            yield
        finally:
            self._over.set()
            asking.join()

    def _ask(self) -> None:
        while not self._over.is_set():
            for path in self._paths:
                self.outcomes.append(self.ask(path))
            self._over.wait(0.05)

    def ask(self, path: str) -> int | str:
        """The status, or what went wrong."""
        connection = (
            http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._seconds)
            if self._context is None
            else http.client.HTTPSConnection(
                "127.0.0.1", self._port, timeout=self._seconds, context=self._context
            )
        )
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        except OSError as error:
            return f"{path}: {type(error).__name__}: {error}"
        finally:
            connection.close()
