"""Large answers go into the socket without the transport's help, as far as it takes them."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator

import pytest
from tests.unit.broker.server.harness import Client, serving

from dray.broker.server.connection import WORTHWHILE, Connection, is_free, send_at_once, unacknowledged


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def drain(peer: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += peer.recv(1 << 20)
    return bytes(received)


def test_what_fits_is_sent_and_nothing_left(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    assert send_at_once(ours.fileno(), [b"one", bytearray(b"two"), memoryview(b"three"), b""]) == []
    assert drain(theirs, 11) == b"onetwothree"


def test_more_buffers_than_one_call_takes(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    buffers = [b"%06d" % number for number in range(3 * os.sysconf("SC_IOV_MAX") + 1)]
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(drain(theirs, 6 * len(buffers))))
    reader.start()
    left: list[bytes | bytearray | memoryview] = list(buffers)
    while left:
        left = send_at_once(ours.fileno(), left)
    reader.join()
    assert received == [b"".join(buffers)]


def test_a_full_socket_leaves_the_rest_to_the_byte(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    buffers = [os.urandom(70_001) for _ in range(40)]
    left = send_at_once(ours.fileno(), list(buffers))
    missing = sum(map(len, left))
    assert 0 < missing < 40 * 70_001
    assert drain(theirs, 40 * 70_001 - missing) + b"".join(left) == b"".join(buffers)
    assert send_at_once(ours.fileno(), [b"more"]) == []


def test_a_dead_peer_is_left_to_the_transport(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    assert send_at_once(ours.fileno(), [b"lost"]) == [b"lost"]


@pytest.mark.parametrize(
    ("descriptor", "closing", "queued", "free"),
    [(7, False, 0, True), (-1, False, 0, False), (7, True, 0, False), (7, False, 1, False)],
    ids=["idle", "no socket", "let go", "something is ahead"],
)
def test_a_socket_is_written_to_only_where_its_transport_is_idle(
    descriptor: int, closing: bool, queued: int, free: bool
) -> None:
    """A transport that closes has let go of the number: it may be another connection's already."""
    assert is_free(Stated(closing, queued), descriptor) is free


class Stated(asyncio.Transport):
    def __init__(self, closing: bool, queued: int) -> None:
        super().__init__()
        self._closing = closing
        self._queued = queued

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return self._queued


def test_what_the_system_holds_for_the_peer_is_known() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as theirs,
        listening.accept()[0] as ours,
    ):
        ours.setblocking(False)
        left = send_at_once(ours.fileno(), [bytes(64 << 20)])
        held = unacknowledged(ours.fileno())
        assert 0 < held <= (64 << 20) - len(left[0])
        while unacknowledged(ours.fileno()) == held:
            theirs.recv(1 << 20)
    assert unacknowledged(-1) == 0


async def test_large_answers_arrive_whole_and_in_order_with_small_ones_between() -> None:
    large = os.urandom(8 * WORTHWHILE + 5)

    async def dispatch(request: memoryview, _connection: Connection) -> tuple[bytes | memoryview, ...]:
        size = int(bytes(request))
        return bytes(request), memoryview(large)[:size]

    async with serving(dispatch) as server:
        client = await Client.to(server.addresses["PLAINTEXT"])
        sizes = [8 * WORTHWHILE + 5, 3, WORTHWHILE, 0, 8 * WORTHWHILE, 5 * WORTHWHILE + 1, 1]
        client.send(*[b"%d" % size for size in sizes])
        for size in sizes:
            assert await client.receive() == b"%d" % size + large[:size]
        await client.close()
