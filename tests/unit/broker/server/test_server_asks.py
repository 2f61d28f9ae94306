"""A listener that asks its peers who they are: small frames, one at a time, and not for long, until they
said it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from struct import pack
from typing import Any

from structlog.testing import capture_logs
from tests.unit.broker.server.harness import SETTINGS, Client, serving, until

from dray.broker.server import CloseConnection, Connection, Listener
from dray.broker.server.limits.patience import NO_REQUEST, ConnectionProgress, Patience
from dray.broker.server.shared import RateLimitedLog

ASKING = (Listener("SECURE", "127.0.0.1", 0, asks=True),)


class Door:
    """Echoes; `password` makes a peer known, `wrong` ends the connection with an answer, `slow` waits."""

    def __init__(self) -> None:
        self.running = 0
        self.most = 0
        self.open = asyncio.Event()

    async def __call__(self, request: memoryview, connection: Connection) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if bytes(request[:8]) == b"password":
                connection.welcome()
            if request == b"wrong":
                raise CloseConnection("a wrong password", [b"no", b" entry"])
            if bytes(request[:4]) == b"slow":
                await self.open.wait()
            await asyncio.sleep(0)
            return (request,)
        finally:
            self.running -= 1


async def test_the_last_answer_leaves_before_the_connection_ends() -> None:
    async with serving(Door(), listeners=ASKING) as server:
        client = await Client.to(server.address)
        client.send(b"hello", b"wrong", b"never answered")
        assert await client.receive() == b"hello"
        assert await client.receive() == b"no entry"
        assert await client.rest() == b""
        await client.close()


async def test_a_stranger_sends_no_large_frame() -> None:
    async with serving(Door(), listeners=ASKING, stranger_frame_bytes=1000) as server:
        for size, answered in ((1000, True), (1001, False), (85 << 20, False)):
            client = await Client.to(server.address)
            client.writer.write(pack(">i", size))
            if answered:
                client.writer.write(b"x" * size)
                assert len(await client.receive()) == size
            else:
                assert await client.rest() == b""
                assert server.budget.used == 0, "nothing was held for it"
            await client.close()


async def test_who_is_known_may_send_large_frames() -> None:
    async with serving(Door(), listeners=ASKING, stranger_frame_bytes=1000) as server:
        client = await Client.to(server.address)
        assert await client.ask(b"password") == b"password"
        assert len(await client.ask(b"x" * 100_000)) == 100_000
        await client.close()


async def test_requests_of_a_stranger_are_taken_one_by_one() -> None:
    door = Door()
    async with serving(door, listeners=ASKING) as server:
        client = await Client.to(server.address)
        client.send(*(b"%d" % number for number in range(20)))
        assert [await client.receive() for _ in range(20)] == [b"%d" % number for number in range(20)]
        assert door.most == 1
        assert await client.ask(b"password") == b"password"
        client.send(*(b"slow %d" % number for number in range(20)))
        await until(lambda: door.running == 20)
        door.open.set()
        assert len([await client.receive() for _ in range(20)]) == 20
        await client.close()


async def test_what_a_known_peer_may_do_a_stranger_beside_it_may_not() -> None:
    async with serving(Door(), listeners=ASKING, stranger_frame_bytes=100) as server:
        known, stranger = await Client.to(server.address), await Client.to(server.address)
        await known.ask(b"password")
        stranger.send(b"x" * 101)
        assert await stranger.rest() == b""
        assert len(await known.ask(b"x" * 101)) == 101
        await known.close()
        await stranger.close()


async def test_other_listeners_do_not_ask() -> None:
    async with serving(Door(), stranger_frame_bytes=10) as server:
        client = await Client.to(server.address)
        assert len(await client.ask(b"x" * 1000)) == 1000
        await client.close()


def test_a_stranger_has_so_long_however_much_it_sends() -> None:
    settings = replace(SETTINGS, first_request_seconds=30)

    def judged(now: float, *, stranger: bool, busy: bool = False) -> str | None:
        patience = Patience(0.0)
        for at in range(int(now) + 1):
            found = patience.exhausted(
                float(at), ConnectionProgress(at * 10, at, -1, 0, busy, False, stranger=stranger), settings
            )
        return found

    assert judged(30, stranger=True) is None
    assert judged(31, stranger=True) == NO_REQUEST
    assert judged(60, stranger=True, busy=True) is None, "it waits for us"
    assert judged(61, stranger=True, busy=True) == NO_REQUEST, "and not for ever"
    assert judged(1000, stranger=False, busy=True) is None
    assert judged(31, stranger=False) is None


async def test_failed_logins_are_counted_and_their_lines_bounded() -> None:
    async def refuse(_request: memoryview, _connection: Connection) -> Any:
        raise CloseConnection("authentication failed: wrong password (user 'x')", kind="authentication")

    with capture_logs() as lines:
        async with serving(refuse, listeners=ASKING) as server:
            for _ in range(100):
                client = await Client.to(server.address)
                client.send(b"token")
                assert await client.rest() == b""
                await client.close()
            assert server.metrics.connections_closed.labels("authentication").value == 100
    warnings = [line for line in lines if line["log_level"] == "warning"]
    assert 20 <= len(warnings) < 50
    assert all("user 'x'" in line["reason"] for line in warnings)


def test_lines_of_a_kind_are_bounded_and_count_those_between() -> None:
    now = 0.0
    notes = RateLimitedLog(lambda: now)
    with capture_logs() as lines:
        for number in range(100):
            notes.warn("closing", "a kind", 20, number=number)
            notes.warn("closing", "another")
        assert [line["number"] for line in lines if "number" in line] == list(range(20))
        assert len(lines) == 21
        now = 5.0
        lines.clear()
        for _ in range(100):
            notes.warn("closing", "a kind", 20)
            notes.warn("closing", "another")
        assert len(lines) == 10
        assert lines[0]["more_since_the_last_line"] == 80
        now = 10.0
        lines.clear()
        notes.warn("closing", "another")
        assert lines[0]["more_since_the_last_line"] == 199
