"""Bytes of any kind at every stage of TLS, with both libraries: nothing but a line ever comes of them.

An exception that left a callback would be a traceback of the event loop's, one for each connection.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import structlog
from tests.services.marks import longer
from tests.unit.broker.server.harness import echo, frame
from tests.unit.broker.server.paper_tls import PEM, PaperListener, Peer, trust

from dray.broker.server.tls.listener import ServerCertificate

STEPS = 8
ALERTS = (0, 0, 10, 40, 48, 90, 100)


def garbage(random: Random) -> bytes:
    return random.randbytes(random.randrange(1, 300))


def record(random: Random) -> bytes:
    size = random.randrange(40)
    return (
        bytes([random.randrange(20, 25), 3, random.randrange(5)]) + size.to_bytes(2) + random.randbytes(size)
    )


def alert(random: Random) -> bytes:
    return bytes([21, 3, 3, 0, 2, random.choice((1, 2)), random.choice(ALERTS)])


def changed(data: bytes, random: Random) -> bytes:
    copy = bytearray(data)
    for _ in range(random.choice((1, 1, 3, 20)) if copy else 0):
        copy[random.randrange(len(copy))] = random.randrange(256)
    return bytes(copy)


MUTATIONS: list[Callable[[bytes, Random], bytes]] = [
    changed,
    lambda data, random: data[: random.randrange(len(data) + 1)],
    lambda data, random: data + garbage(random),
    lambda _data, random: garbage(random),
    lambda data, random: data + alert(random),
    lambda data, random: data + record(random),
    lambda data, _random: data + data,
    lambda data, _random: data.replace(b"127.0.0.1", b"\xff\x1b[2J.0.1"),
]


class Hostile:
    """A client that says what one should, up to some step, and then does not."""

    def __init__(self, listener: PaperListener, seed: int) -> None:
        self.random = Random(seed)
        context = trust(self.random.choice((ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)))
        if self.random.random() < 0.3:
            context.load_cert_chain(PEM)
        self.peer = Peer(*listener.accept(), context)
        self.wrong_from = self.random.randrange(STEPS)

    async def talk(self) -> None:
        random, peer = self.random, self.peer
        for step in range(STEPS):
            if not self._say_what_one_should():
                break
            data = peer.outgoing.read()
            if step == self.wrong_from or (step > self.wrong_from and random.random() < 0.3):
                data = random.choice(MUTATIONS)(data, random)
            while data:
                size = random.choice((1, 7, 100, 5_000, 100_000))
                peer.raw.deliver(data[:size])
                data = data[size:]
            await asyncio.sleep(0)
            if random.random() < 0.1:
                peer.layer.pause_writing()
                peer.layer.resume_writing()
            if random.random() < 0.05:
                peer.layer.eof_received()
                break
            peer.hear()
            with suppress(ssl.SSLError):
                peer.ssl.read(1 << 20)
        timer = peer.layer._timer
        if timer is not None and not timer.cancelled() and random.random() < 0.5:
            timer._run()
        peer.raw.close()
        await asyncio.sleep(0)

    def _say_what_one_should(self) -> bool:
        peer, random = self.peer, self.random
        try:
            peer.ssl.do_handshake()
            if random.random() < 0.7:
                peer.ssl.write(frame(random.randbytes(random.choice((10, 1_000, 30_000)))))
            if random.random() < 0.1:
                peer.ssl.unwrap()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            return False
        return True


async def play(listener: PaperListener, seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    unforeseen: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unforeseen.append(context))
    monkeypatch.setattr(sys, "unraisablehook", unforeseen.append)
    begun = 0
    with structlog.testing.capture_logs() as lines:
        for seed in seeds:
            hostile = Hostile(listener, seed)
            await hostile.talk()
            assert unforeseen == [], f"seed {seed}"
            begun += hostile.peer.layer._protocol is not None
    assert len(seeds) / 2 < begun < len(seeds), "some fail in the handshake, some behind it"
    assert "exc_info" not in {key for line in lines for key in line}
    assert len(listener.handshakes) == listener.handshakes.held_bytes == 0
    assert not listener.shared.members
    assert listener.server.budget.used == listener.server.answers.used == 0


@pytest.mark.parametrize("seeds", [range(300), longer(range(300, 10_000))])
@pytest.mark.parametrize("client_auth", ["none", "requested"])
async def test_nothing_comes_of_bytes_of_any_kind(
    seeds: range, client_auth: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = None if client_auth == "none" else PEM
    certificate = ServerCertificate(PEM, PEM, client_auth=client_auth, client_authorities=authorities)
    await play(PaperListener(echo, certificate=certificate), seeds, monkeypatch)
