"""The layer of TLS: what it holds, how much it does in a turn, and handshakes that do not end."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pytest
import structlog
from tests.unit.server.harness import (
    SETTINGS,
    Client,
    PaperTransport,
    TlsLibrary,
    echo,
    encrypting,
    frame,
    server_certificate,
    serving,
    until,
)

from dray.runtime import SystemRuntime
from dray.server import CloseConnection, Listener, Server, tls_layer
from dray.server._tls_records import wake_at
from dray.server.handshakes import SEND_BYTES, Handshakes
from dray.server.protocol import FrameProtocol
from dray.server.tls import ServerCertificate
from dray.server.tls_layer import PIECE_BYTES, TURN_BYTES, TlsLayer
from dray.telemetry import Metrics

PEM = Path(__file__).with_name("loopback.pem")
MEBIBYTE = 1 << 20

pytestmark = pytest.mark.usefixtures("tls_library")


def certificate() -> ServerCertificate:
    return server_certificate(PEM, PEM)


def trust() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(PEM))


def tls_listener() -> tuple[Listener, ...]:
    return (encrypting(certificate()),)


class PaperSocket(PaperTransport):
    def write(self, data: Any) -> None:
        self.writelines([data])

    def is_closing(self) -> bool:
        return self.closed


class Peer:
    """The client's side of a layer, in memory. The layer's socket takes what it is allowed to."""

    def __init__(self, dispatch: Callable[..., Any]) -> None:
        settings = replace(SETTINGS, listeners=tls_listener())
        self.server = Server(dispatch, SystemRuntime(), settings, Metrics(process=False))
        shared = self.server._shared
        self.layer = TlsLayer(
            certificate().encryption,
            lambda: FrameProtocol(shared, "SSL", tls=True),
            Handshakes(shared),
            "SSL",
        )
        self.raw = PaperSocket(self.layer)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = trust().wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self._seen = 0
        self.layer.connection_made(self.raw)
        for _ in range(5):
            with suppress(ssl.SSLWantReadError):
                self._ssl.do_handshake()
            self._exchange()

    def _exchange(self) -> None:
        self.raw.deliver(self._outgoing.read())
        self._incoming.write(b"".join(self.raw.written[self._seen :]))
        self._seen = len(self.raw.written)

    def send(self, payload: bytes) -> None:
        self._ssl.write(frame(payload))
        self.raw.deliver(self._outgoing.read())

    def encrypt(self, payload: bytes) -> bytes:
        self._ssl.write(frame(payload))
        return self._outgoing.read()

    def receive(self) -> bytes:
        self._exchange()
        found = b""
        with suppress(ssl.SSLWantReadError):
            while data := self._ssl.read(MEBIBYTE):
                found += data
        return found

    @property
    def encrypted(self) -> int:
        return sum(map(len, self.raw.written))


async def test_a_turn_encrypts_only_so_much_and_all_of_it_arrives() -> None:
    answer = bytes(range(256)) * (20 * MEBIBYTE // 256)

    async def dispatch(_request: memoryview, _connection: Any) -> Any:
        return (b"head", memoryview(answer), b"tail")

    peer = Peer(dispatch)
    peer.send(b"ask")
    before, turns = peer.encrypted, 0
    while peer.layer.get_write_buffer_size() or not turns:
        await asyncio.sleep(0)
        now = peer.encrypted
        assert now - before <= TURN_BYTES + PIECE_BYTES + 10_000, "per turn, with TLS's own bytes"
        turns += now > before
        before = now
    assert turns >= 20 * MEBIBYTE // (TURN_BYTES + PIECE_BYTES)
    assert peer.receive() == pack(">i", len(answer) + 8) + b"head" + answer + b"tail"


async def test_small_buffers_share_a_record() -> None:
    async def dispatch(_request: memoryview, _connection: Any) -> Any:
        return [b"%04d" % number for number in range(1000)]

    peer = Peer(dispatch)
    before = peer.encrypted
    peer.send(b"ask")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(peer.receive()) == 4004
    assert peer.encrypted - before < 4004 + 50


async def test_what_the_socket_does_not_take_is_counted_and_not_encrypted_ahead() -> None:
    """A peer that reads nothing: the budget for answers has all of it, and no second copy is made."""
    size = 24 * MEBIBYTE

    async def dispatch(_request: memoryview, _connection: Any) -> Any:
        return (bytes(size),)

    async with serving(dispatch, listeners=tls_listener()) as server:
        client = await Client.to(server.address, ssl=trust(), limit=1000)
        client.send(b"ask")
        await until(lambda: server.answers.used > 0)
        for _ in range(200):
            await asyncio.sleep(0)
        [member] = server._shared.members
        layer = member._transport
        assert layer._raw.get_write_buffer_size() <= SEND_BYTES
        unsent = layer.get_write_buffer_size()
        assert unsent == layer._backlog_bytes + layer._raw.get_write_buffer_size()
        member.settle()
        assert server.answers.used == unsent
        assert unsent > size // 4, "the rest is in the system's own buffers"
        assert await client.receive() == bytes(size)
        await client.close()


async def test_answers_of_many_parts_arrive_whole_and_in_order() -> None:
    answers = [os.urandom(3 * MEBIBYTE + number) for number in range(6)]

    async def dispatch(request: memoryview, _connection: Any) -> Any:
        return (answers[int(bytes(request))],)

    async with serving(dispatch, listeners=tls_listener()) as server:
        client = await Client.to(server.address, ssl=trust(), limit=1000)
        for number in range(len(answers)):
            client.send(b"%d" % number)
        for answer in answers:
            assert await client.receive() == answer
        await client.close()


async def test_what_a_peer_leaves_makes_the_next_send_a_small_one() -> None:
    """What is encrypted and not taken is held: it is much only for peers that take much."""

    async def dispatch(_request: memoryview, _connection: Any) -> Any:
        return (bytes(8 * MEBIBYTE),)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        peer = Peer(dispatch)
        peer.layer._descriptor = ours.fileno()
        peer.layer._ahead = SEND_BYTES
        peer.send(b"ask")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    sends = [len(data) for data in peer.raw.written if len(data) > 20_000]
    assert len(sends) >= 2
    assert (sends[0] > SEND_BYTES // 2) is TlsLibrary.bundled
    assert max(sends[1:]) <= 72 << 10


async def test_records_of_answers_of_many_buffers_are_full() -> None:
    """Each record costs the peer a system call and a tag to check, however small it is."""
    parts = [os.urandom(size) for size in (60, 300_000, 60, 20_000, 0, 60, 1, 200_000, 16_384, 5)]

    async def dispatch(_request: memoryview, _connection: Any) -> Any:
        return parts

    ours, theirs = socket.socketpair()
    with ours, theirs:
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MEBIBYTE)
        peer = Peer(dispatch)
        peer.layer._descriptor = ours.fileno()
        peer.send(b"ask")
        for _ in range(20):
            await asyncio.sleep(0)
        theirs.setblocking(False)
        got = b""
        with suppress(BlockingIOError):
            while data := theirs.recv(MEBIBYTE):
                got += data
    sizes, place = [], 0
    while place < len(got):
        sizes.append(int.from_bytes(got[place + 3 : place + 5]))
        place += 5 + sizes[-1]
    if not TlsLibrary.bundled:
        assert not sizes, "Python's own has no descriptor to send to"
        return
    assert sum(map(len, parts)) + 4 == sum(sizes) - 17 * len(sizes)
    assert {size - 17 for size in sizes[:-1]} == {16_384}


async def test_nothing_goes_past_what_waits_in_the_transport() -> None:
    answer = os.urandom(MEBIBYTE)

    async def dispatch(_request: memoryview, _connection: Any) -> Any:
        return (answer,)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        peer = Peer(dispatch)
        peer.layer._descriptor = ours.fileno()
        peer.raw.unsent = 1
        peer.send(b"ask")
        for _ in range(100):
            await asyncio.sleep(0)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)
    assert peer.receive() == pack(">i", len(answer)) + answer


def test_an_answer_is_whole_before_the_connection_ends(run: Callable[..., Any]) -> None:
    async def dispatch(_request: memoryview, _connection: Any) -> Any:
        raise CloseConnection("asked to", (bytes(5 * MEBIBYTE),))

    async def scenario() -> None:
        async with serving(dispatch, listeners=tls_listener()) as server:
            client = await Client.to(server.address, ssl=trust())
            client.send(b"ask", b"more", b"more")
            assert await client.receive() == bytes(5 * MEBIBYTE)
            assert await client.rest() == b""
            await client.close()

    run(scenario())


class LowWater:
    """For how many bytes a socket is to wake its reader."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.bytes = 1
        self.changes = 0

    def __call__(self, descriptor: int, size: int) -> bool:
        assert descriptor == self.descriptor
        self.bytes = size
        self.changes += 1
        return True


def test_a_socket_wakes_its_reader_at_a_mark() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert wake_at(ours.fileno(), 100_000)
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT) == 100_000
    assert not wake_at(-1, 1)


async def test_no_mark_is_set_on_a_socket_that_was_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may be another connection's by now."""
    peer = Peer(lambda *_: asyncio.sleep(0))
    peer.layer._descriptor = 1000
    water = LowWater(1000)
    monkeypatch.setattr(tls_layer, "wake_at", water)
    peer.layer._wait_for(100_000)
    assert water.bytes == 100_000
    peer.raw.closed = True  # soon it is lost
    peer.layer._wait_for(1)
    peer.raw.closed = False
    peer.layer.connection_lost(None)
    peer.layer._wait_for(1)
    assert water.changes == 1


@pytest.mark.parametrize("cut", [1000, 7777, 16_384, 30_000, 64_000, 100_000, 300_000])
@pytest.mark.parametrize("size", [70_000, 83_000, 100_000, 400_000, 1_000_000])
async def test_no_more_is_waited_for_than_will_come(
    size: int, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a large frame the system wakes us for much at a time. Where a part of a record has
    arrived, less is to come than is missing in the frame."""
    seen: list[int] = []

    async def dispatch(request: memoryview, _connection: Any) -> Any:
        seen.append(len(request))
        return (b"ok",)

    peer = Peer(dispatch)
    peer.layer._descriptor = 1000
    water = LowWater(1000)
    monkeypatch.setattr(tls_layer, "wake_at", water)
    data = peer.encrypt(bytes(size)) + peer.encrypt(b"small")
    for position in range(0, len(data), cut):
        peer.raw.deliver(data[position : position + cut])
        await asyncio.sleep(0)
        assert water.bytes <= max(1, len(data) - position - cut)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert seen == [size, 5]
    assert water.changes > 0 or size < max(400_000, 2 * cut)
    assert water.bytes == 1, "the next frame may be a short one"


@contextmanager
def one_warning(reason: str) -> Iterator[None]:
    with structlog.testing.capture_logs() as lines:
        yield
    found = [line for line in lines if line["log_level"] != "info"]
    assert [line.get("reason") for line in found] == [f"TLS: {reason}"]


def test_a_handshake_that_does_not_end_is_ended(run: Callable[..., Any]) -> None:
    async def scenario() -> None:
        async with serving(listeners=tls_listener(), handshake_seconds=0.2) as server:
            client = await Client.to(server.address)
            hello = ssl.MemoryBIO()
            talking = trust().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="127.0.0.1")
            with suppress(ssl.SSLWantReadError):
                talking.do_handshake()

            async def drip() -> None:
                for byte in hello.read():
                    client.writer.write(bytes([byte]))
                    await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            assert await client.rest() == b""
            dripping.cancel()
            await client.close()
            assert len(server._handshakes) == 0

    with one_warning("the handshake takes too long"):
        run(scenario())


SPEECHES = {
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n": "the client speaks HTTP, and this listener TLS",
    frame(b"\0\x12\0\0\0\0\0\1\0\1x"): (
        "the client does not speak TLS: set its security.protocol to SSL or SASL_SSL"
    ),
}


@pytest.mark.parametrize("speech", SPEECHES)
async def test_a_client_that_speaks_no_tls_is_one_line(speech: bytes) -> None:
    with one_warning(SPEECHES[speech]):
        async with serving(listeners=tls_listener()) as server:
            client = await Client.to(server.address)
            client.writer.write(speech)
            await client.rest()
            await client.close()


async def test_a_client_that_does_not_trust_is_one_line() -> None:
    with one_warning("the client does not trust the broker's certificate"):
        async with serving(listeners=tls_listener()) as server:

            def mistrust() -> None:
                with socket.create_connection(server.address) as connection, pytest.raises(ssl.SSLError):
                    ssl.create_default_context().wrap_socket(connection, server_hostname="127.0.0.1")

            await asyncio.to_thread(mistrust)
            await until(lambda: len(server._handshakes) == 0)


async def test_a_connection_that_is_only_tried_out_is_no_line() -> None:
    """A balancer does that all the time."""
    with structlog.testing.capture_logs() as lines:
        async with serving(listeners=tls_listener()) as server:
            client = await Client.to(server.address)
            await until(lambda: len(server._handshakes) == 1)
            await client.close()
            await until(lambda: len(server._handshakes) == 0)
    assert [line for line in lines if line["log_level"] != "info"] == []


async def test_handshakes_are_bounded_and_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(listeners=tls_listener()) as server:
        now = 100.0
        monkeypatch.setattr(server._handshakes, "_most", 3)
        monkeypatch.setattr(server._shared.runtime, "monotonic", lambda: now)
        half: list[Client] = []
        while len(half) < 3:
            half.append(await Client.to(server.address))
            await until(lambda: len(server._handshakes) == len(half))
        refused = await Client.to(server.address)
        assert await refused.rest() == b"", "all of them are new"
        now = 101.5
        good = await Client.to(server.address, ssl=trust())
        assert await good.ask(b"x") == b"x"
        assert await half[0].rest() == b"", "the oldest made room"
        assert len(server._handshakes) == 2
        for client in (*half, refused, good):
            client.writer.transport.abort()
        await until(lambda: len(server._handshakes) == 0 and server.connections == 0)


async def test_garbage_in_the_middle_is_one_line() -> None:
    with structlog.testing.capture_logs() as lines:
        async with serving(listeners=tls_listener()) as server:
            client = await Client.to(server.address, ssl=trust())
            assert await client.ask(b"x") == b"x"
            descriptor = client.writer.get_extra_info("socket").fileno()
            os.write(descriptor, b"\x17\x03\x03\x00\x20" + bytes(32))
            assert await client.rest() == b""
            await client.close()
            await until(lambda: server.connections == 0)
    [line] = [line for line in lines if line["log_level"] != "info"]
    assert line["reason"].startswith("TLS: ")


async def test_who_connects_too_fast_costs_no_handshake() -> None:
    asked: list[str] = []
    waits = [5.0, 0.0]

    def wait(address: str) -> float:
        asked.append(address)
        return waits.pop(0)

    settings = replace(SETTINGS, listeners=tls_listener())
    server = Server(echo, SystemRuntime(), settings, Metrics(process=False), newcomer_wait=wait)
    await server.start()
    refused = await Client.to(server.address)
    await until(lambda: server._shared.newcomers.held == 1)
    assert len(server._handshakes) == 0
    welcome = await Client.to(server.address, ssl=trust())
    assert await welcome.ask(b"x") == b"x"
    assert asked == ["127.0.0.1"] * 2, "each is counted once"
    await welcome.close()
    await server.stop(1)
    assert await refused.rest() == b""
    await refused.close()
