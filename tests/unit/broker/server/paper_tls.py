"""Clients with TLS of a server without sockets: all of it in memory."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.broker.server.harness import SETTINGS, PaperTransport, encrypting, frame

from dray.base.runtime import FairWork, SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import Server
from dray.broker.server.protocol import FrameProtocol
from dray.broker.server.tls.handshakes import STEPS_PER_TURN
from dray.broker.server.tls.layer import TlsLayer
from dray.broker.server.tls.listener import ServerCertificate

PEM = Path(__file__).with_name("loopback.pem")


def certificate() -> ServerCertificate:
    return ServerCertificate(PEM, PEM)


def trust(version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(PEM))
    if version is not None:
        context.minimum_version = context.maximum_version = version
    return context


def hello(context: ssl.SSLContext, name: str = "127.0.0.1") -> bytes:
    """The first that a client says."""
    said = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), said, server_hostname=name).do_handshake()
    return said.read()


class PaperSocket(PaperTransport):
    def write(self, data: Any) -> None:
        self.writelines([data])

    def is_closing(self) -> bool:
        return self.closed


class PaperListener:
    """A listener with TLS, and what all its connections share."""

    def __init__(self, dispatch: Callable[..., Any], asks: bool = False, **bounds: Any) -> None:
        self.certificate = bounds.pop("certificate", None) or certificate()
        settings = replace(SETTINGS, listeners=(encrypting(self.certificate, asks=asks),), **bounds)
        self.server = Server(dispatch, SystemRuntime(), settings, Metrics(process=False))
        self.shared = self.server._shared
        self.handshakes = self.server._handshakes
        self._asks = asks

    def accept(self) -> tuple[TlsLayer, PaperSocket]:
        """A connection that has just been made."""
        layer = TlsLayer(
            self.certificate.encryption,
            lambda principal: FrameProtocol(self.shared, "SSL", True, self._asks, principal),
            self.handshakes,
            "SSL",
        )
        raw = PaperSocket(layer)
        layer.connection_made(raw)
        return layer, raw

    def connect(self) -> Peer:
        """One whose handshake is done, as if each came in a turn of its own."""
        self.handshakes.work = FairWork(STEPS_PER_TURN)
        peer = Peer(*self.accept())
        for _ in range(5):
            with suppress(ssl.SSLWantReadError):
                peer.ssl.do_handshake()
            peer.exchange()
        return peer


class Peer:
    """The client's side of a layer. The layer's socket takes what it is allowed to."""

    def __init__(self, layer: TlsLayer, raw: PaperSocket, context: ssl.SSLContext | None = None) -> None:
        self.layer = layer
        self.raw = raw
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl = (context or trust()).wrap_bio(self.incoming, self.outgoing, server_hostname="127.0.0.1")
        self._seen = 0

    def exchange(self) -> None:
        self.raw.deliver(self.outgoing.read())
        self.hear()

    def hear(self) -> None:
        self.incoming.write(b"".join(self.raw.written[self._seen :]))
        self._seen = len(self.raw.written)

    def send(self, payload: bytes) -> None:
        self.raw.deliver(self.encrypt(payload))

    def encrypt(self, payload: bytes) -> bytes:
        self.ssl.write(frame(payload))
        return self.outgoing.read()

    def receive(self) -> bytes:
        self.exchange()
        found = b""
        with suppress(ssl.SSLWantReadError):
            while data := self.ssl.read(1 << 20):
                found += data
        return found

    @property
    def encrypted(self) -> int:
        return sum(map(len, self.raw.written))
