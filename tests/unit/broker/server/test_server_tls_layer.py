"""The layer of TLS: what it holds, how much it does in a turn, and handshakes that do not end."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from struct import pack
from typing import Any, cast

import pytest
import structlog
from tests.unit.broker.server.harness import SETTINGS, Client, echo, encrypting, frame, serving, until
from tests.unit.broker.server.paper_tls import PaperListener, certificate, hello, trust

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import CloseConnection, Connection, Listener, Server
from dray.broker.server.tls import handshakes
from dray.broker.server.tls.handshakes import RECEIVE_BYTES, SHORT_BYTES, STEPS_PER_TURN
from dray.broker.server.tls.layer import PIECE_BYTES, TURN_BYTES

MEBIBYTE = 1 << 20


def tls_listener() -> tuple[Listener, ...]:
    return (encrypting(certificate()),)


async def test_a_turn_encrypts_only_so_much_and_all_of_it_arrives() -> None:
    answer = bytes(range(256)) * (20 * MEBIBYTE // 256)

    async def dispatch(_request: memoryview, _connection: Any) -> Any:
        return (b"head", memoryview(answer), b"tail")

    peer = PaperListener(dispatch).connect()
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

    peer = PaperListener(dispatch).connect()
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
        assert layer._raw.get_write_buffer_size() <= PIECE_BYTES + 1000
        unsent = layer.get_write_buffer_size()
        assert unsent == layer._backlog_bytes + layer._raw.get_write_buffer_size()
        member.report_held()
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
    """A socket that knows for how many bytes it is to wake its reader."""

    def __init__(self) -> None:
        self.bytes = 1
        self.changes = 0

    def setsockopt(self, *given: int) -> None:
        level, option, self.bytes = given
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.changes += 1


async def test_no_mark_is_set_on_a_socket_that_was_let_go() -> None:
    """Its number may be another connection's by now."""
    peer = PaperListener(lambda *_: asyncio.sleep(0)).connect()
    water = LowWater()
    peer.layer._socket = cast(socket.socket, water)
    peer.layer._wait_for(100_000)
    assert water.bytes == 100_000
    peer.raw.closed = True  # soon it is lost
    peer.layer._wait_for(1)
    peer.raw.closed = False
    peer.layer.connection_lost(None)
    peer.layer._wait_for(1)
    assert water.changes == 1


def test_a_large_frame_does_not_wake_its_reader_for_each_record(run: Callable[..., Any]) -> None:
    marks: list[int] = []

    async def dispatch(request: memoryview, _connection: Any) -> Any:
        return (b"%d" % len(request),)

    async def scenario() -> None:
        async with serving(dispatch, listeners=tls_listener()) as server:
            client = await Client.to(server.address, ssl=trust())
            assert await client.ask(b"x") == b"1"
            [member] = server._shared.members
            layer = member._transport
            client.send(bytes(8 * MEBIBYTE))
            while not marks:
                await asyncio.sleep(0)
                mark = layer._socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)
                marks.extend([mark] if mark > 1 else [])
            assert await client.receive() == b"%d" % (8 * MEBIBYTE)
            await client.close()

    run(scenario())


@pytest.mark.parametrize("cut", [1000, 7777, 16_384, 30_000, 64_000, 100_000, 300_000])
@pytest.mark.parametrize("size", [70_000, 83_000, 100_000, 400_000, 1_000_000])
async def test_no_more_is_waited_for_than_will_come(size: int, cut: int) -> None:
    """In the middle of a large frame the system wakes us for much at a time. Where a part of a record has
    arrived, less is to come than is missing in the frame."""
    seen: list[int] = []

    async def dispatch(request: memoryview, _connection: Any) -> Any:
        seen.append(len(request))
        return (b"ok",)

    peer = PaperListener(dispatch).connect()
    water = LowWater()
    peer.layer._socket = cast(socket.socket, water)
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


class SlowDoor:
    """Answers when it is opened, and `hello` at once; `password` makes a peer known."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

    async def __call__(self, request: memoryview, connection: Connection) -> Any:
        if bytes(request) == b"password":
            connection.welcome()
        elif bytes(request) != b"hello":
            await self.open.wait()
        return (b"ok",)


async def test_known_peers_that_are_read_are_received_in_large_pieces() -> None:
    listener = PaperListener(SlowDoor(), asks=True)
    layer, _ = listener.accept()
    assert len(layer.get_buffer(-1)) == SHORT_BYTES, "it shakes hands"
    layer.abort()
    peer = listener.connect()
    assert len(peer.layer.get_buffer(-1)) == SHORT_BYTES, "it is a stranger"
    peer.send(b"password")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(peer.layer.get_buffer(-1)) == RECEIVE_BYTES
    peer.raw.deliver(peer.encrypt(bytes(1_000_000))[:100_000])
    assert len(peer.layer.get_buffer(-1)) == RECEIVE_BYTES, "in the middle of a frame"
    peer.raw.close()


async def test_of_a_stranger_no_more_is_received_than_without_tls() -> None:
    """What it sends behind a request that waits is held, however many connections it has."""
    door = SlowDoor()
    listener = PaperListener(door, asks=True)
    peers = [listener.connect() for _ in range(10)]
    for peer in peers:
        peer.send(b"hello")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        data = peer.encrypt(b"login") + peer.encrypt(bytes(500_000))
        assert peer.raw.deliver(data) <= SHORT_BYTES
        assert not peer.raw.reading
    assert listener.handshakes.held_bytes == 0
    for peer in peers:
        peer.raw.close()
    door.open.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_what_is_held_of_all_connections_that_are_not_read_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most = 3 * MEBIBYTE
    monkeypatch.setattr(handshakes, "MOST_HELD", most)
    door = SlowDoor()
    listener = PaperListener(door, asks=True, max_in_flight=2)
    peers = [listener.connect() for _ in range(30)]
    taken = []
    for peer in peers:
        peer.send(b"password")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        data = b"".join(peer.encrypt(bytes(20_000)) for _ in range(40))
        taken.append((peer, data, peer.raw.deliver(data)))
        assert not peer.raw.reading
    held = listener.handshakes.held_bytes
    assert MEBIBYTE < held <= most + RECEIVE_BYTES
    assert taken[0][2] == RECEIVE_BYTES
    assert taken[-1][2] <= 2 * SHORT_BYTES, "there was no room for more"
    door.open.set()
    for peer, data, size in taken:
        rest = data[size:]
        while rest:
            rest = rest[peer.raw.deliver(rest) :]
            await asyncio.sleep(0)
    for _ in range(200):
        await asyncio.sleep(0)
    for peer in peers:
        assert peer.receive() == frame(b"ok") * 41, "nothing was lost"
    assert listener.handshakes.held_bytes == 0
    for peer in peers:
        peer.raw.close()


async def test_what_is_held_of_a_connection_that_ends_is_given_back() -> None:
    door = SlowDoor()
    listener = PaperListener(door, max_in_flight=1)
    peer = listener.connect()
    peer.send(b"password")
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    peer.raw.deliver(b"".join(peer.encrypt(bytes(20_000)) for _ in range(40)))
    assert listener.handshakes.held_bytes > 300_000
    peer.raw.close()
    assert listener.handshakes.held_bytes == 0
    door.open.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)


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

            async def drip() -> None:
                for byte in hello(trust()):
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


VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
CLOSE_NOTIFY = b"\x15\x03\x03\x00\x02\x01\x00"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_client_that_takes_leave_in_the_handshake_is_one_line(
    version: ssl.TLSVersion, run: Callable[..., Any]
) -> None:
    """As programs do that look for open ports. It was a traceback each."""

    async def scenario() -> None:
        unforeseen: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: unforeseen.append(context))
        async with serving(listeners=tls_listener()) as server:
            for _ in range(3):
                client = await Client.to(server.address)
                client.writer.write(hello(trust(version)) + CLOSE_NOTIFY)
                await client.rest()
                await client.close()
            assert server.metrics.connections_closed.labels("TLS handshake").value == 3
            assert len(server._handshakes) == 0
        assert unforeseen == []

    with one_warning("the client left in the middle of the handshake"):
        run(scenario())


async def test_a_host_name_that_is_none_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python writes it to standard error, past all logs."""
    unforeseen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unforeseen.append)
    layer, raw = PaperListener(echo).accept()
    with structlog.testing.capture_logs() as lines:
        raw.deliver(hello(trust(), "localhost").replace(b"localhost", b"l\xff\x1b[2Jost"))
    assert unforeseen == []
    assert [line["reason"] for line in lines] == ["TLS: the client asks for a host name that is none"]
    layer.abort()


async def test_a_client_that_changes_its_keys_for_ever_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change takes 20 us and is answered. What is answered is held if it is not read."""
    listener = PaperListener(echo)
    peer, other = listener.connect(), listener.connect()
    encryption = peer.layer._encryption
    assert encryption is not None
    real = type(encryption).take
    monkeypatch.setattr(
        type(encryption), "take", lambda self: bytes(2700) if self is encryption else real(self)
    )
    with one_warning("the client changes its keys again and again"):
        for _ in range(100):
            peer.send(b"x")
    assert peer.raw.closed
    assert sum(map(len, peer.raw.written)) < 80_000
    assert not other.raw.closed


async def test_the_end_is_said_once() -> None:
    listener = PaperListener(echo)
    peer = listener.connect()
    before = len(peer.raw.written)
    peer.layer.close()
    timer = peer.layer._timer
    peer.layer.pause_writing()
    peer.layer.resume_writing()
    assert peer.layer._timer is timer
    assert len(peer.raw.written) == before + 1
    peer.layer.abort()


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
        monkeypatch.setattr(server._handshakes._waiting, "_most", 3)
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


async def test_a_flood_of_handshakes_by_one_address_turns_no_other_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a flood that is new, the newest go; the first ones of it get done."""
    async with serving(listeners=tls_listener()) as server:
        monkeypatch.setattr(server._handshakes._waiting, "_most", 10)
        monkeypatch.setattr(server._shared.runtime, "monotonic", lambda: 100.0)
        flood: list[Client] = []
        for _ in range(3):
            flood += [await Client.to(server.address, local_addr=("127.0.0.9", 0)) for _ in range(10)]
            await until(lambda: len(server._handshakes) == 10)
            for _ in range(5):
                good = await Client.to(server.address, ssl=trust())
                assert await good.ask(b"x") == b"x"
                await good.close()
        ended = [client for client in flood if client.reader.at_eof() or client.reader.exception()]
        assert 20 < len(ended) < 30
        assert flood[0] not in ended
        for client in flood:
            client.writer.transport.abort()
        await until(lambda: len(server._handshakes) == 0 and server.connections == 0)


async def test_handshakes_that_come_together_are_done_some_in_a_turn() -> None:
    """Nine hundred of them in one turn, a millisecond of RSA each, are most of a second for all others."""
    listener = PaperListener(echo)
    said = hello(trust())
    crowd = [listener.accept() for _ in range(100)]
    for _, raw in crowd:
        raw.deliver(said)
    answered = [sum(bool(raw.written) for _, raw in crowd)]
    assert not crowd[-1][1].reading, "what waits is not read"
    gone, raw = crowd[-1]
    raw.close()
    while answered[-1] < 99:
        await asyncio.sleep(0)
        answered.append(sum(bool(raw.written) for _, raw in crowd))
    assert answered == [*range(STEPS_PER_TURN, 99, STEPS_PER_TURN), 99]
    assert all(raw.reading for layer, raw in crowd if layer is not gone)
    assert not raw.written


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
