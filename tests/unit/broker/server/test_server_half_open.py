"""A thousand handshakes that are not finished, some of them byte by byte: others are served, and memory is
bounded."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import ExitStack, suppress

import pytest
import structlog
import uvloop
from bench.harness import resident_bytes_of
from tests.unit.broker.server.harness import Client, encrypting, serving, until
from tests.unit.broker.server.paper_tls import certificate, hello, trust

from dray.broker.server.tls.handshakes import MOST_AT_ONCE
from dray.daemons.assembly.process import raise_file_limit

MORE = 200
MOST_BYTES = 100 << 10
"""Of one that is half open, with all that is Python's and OpenSSL's. 55 KiB were seen."""


class HalfOpen:
    """Clients that stop in the middle of the first thing they say. One byte of the rest is sent at a time."""

    def __init__(self, address: tuple[str, int], stack: ExitStack) -> None:
        self._address = address
        self._stack = stack
        self._said = hello(trust())
        self._sockets: list[tuple[socket.socket, int]] = []

    def come(self, count: int) -> None:
        for number in range(count):
            made = self._stack.enter_context(socket.create_connection(self._address))
            made.setblocking(False)
            part = number % len(self._said)
            made.send(self._said[:part])
            self._sockets.append((made, part))

    def drip(self) -> None:
        """A byte of each, but never the last."""
        for place, (made, said) in enumerate(self._sockets):
            if said < len(self._said) - 1:
                with suppress(OSError):
                    made.send(self._said[said : said + 1])
                self._sockets[place] = made, said + 1


def test_others_are_served_and_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_file_limit()

    async def scenario() -> None:
        with ExitStack() as stack:
            listeners = (encrypting(certificate()),)
            async with serving(listeners=listeners, handshake_seconds=100) as server:
                now = 100.0
                monkeypatch.setattr(server._shared.runtime, "monotonic", lambda: now)
                known = [await Client.to(server.address, ssl=trust()) for _ in range(5)]
                before = resident_bytes_of(os.getpid())
                half = HalfOpen(server.address, stack)
                for _ in range(MOST_AT_ONCE // 100):
                    half.come(100)
                    await asyncio.sleep(0)
                await until(lambda: len(server._handshakes) == MOST_AT_ONCE)
                for number in range(50):
                    half.drip()
                    question = b"%d" % number * 1000
                    assert await asyncio.gather(*(client.ask(question) for client in known)) == [question] * 5
                grown = resident_bytes_of(os.getpid()) - before
                assert grown < MOST_AT_ONCE * MOST_BYTES, f"{grown / MOST_AT_ONCE:.0f} bytes each"
                assert server._handshakes.held_bytes <= MOST_AT_ONCE * MOST_BYTES
                refused = server.metrics.connections_refused.value
                half.come(MORE)
                await until(lambda: server.metrics.connections_refused.value == refused + MORE)
                assert len(server._handshakes) == MOST_AT_ONCE
                now += 2.0  # they are not new any more, and make room
                for _ in range(20):
                    newcomer = await Client.to(server.address, ssl=trust())
                    assert await newcomer.ask(b"hello") == b"hello"
                    await newcomer.close()
                half.come(MORE)
                await until(lambda: server.metrics.connections_closed.labels("TLS handshake").value >= MORE)
                assert len(server._handshakes) <= MOST_AT_ONCE
                for client in known:
                    assert await client.ask(b"still here") == b"still here"
                    await client.close()

    with structlog.testing.capture_logs() as lines:
        uvloop.run(asyncio.wait_for(scenario(), 120))
    assert len([line for line in lines if line["log_level"] != "info"]) <= 4
