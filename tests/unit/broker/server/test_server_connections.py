"""Over real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import ssl
from struct import pack

import pytest
from structlog.testing import capture_logs
from tests.unit.broker.server.harness import Client, echo, serving, until

from dray.broker.server import AddressInUse, CloseConnection, Listener


def test_answers_frames_of_every_size(run):
    async def scenario():
        async with serving() as server:
            client = await Client.to(server.address)
            for size in (0, 1, 100, 65_531, 65_532, 65_533, 1_000_000):
                payload = bytes([size % 251]) * size
                assert await client.ask(payload) == payload
            await client.close()

    run(scenario())


def test_answers_come_in_order_though_the_work_ends_out_of_order(run):
    async def scenario():
        gates = {bytes([n]): asyncio.Event() for n in range(5)}
        started: list[bytes] = []

        async def dispatch(request, _connection):
            name = bytes(request)
            started.append(name)
            await gates[name].wait()
            return (name,)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(*gates)
            await until(lambda: len(started) == 5)
            assert started == list(gates), "side by side, begun in the order they came"
            for name in reversed(gates):
                gates[name].set()
            assert [await client.receive() for _ in gates] == list(gates)
            await client.close()

    run(scenario())


def test_no_answer_where_none_is_due(run):
    async def scenario():
        async def dispatch(request, _connection):
            return None if bytes(request) == b"quiet" else (b"re:", request)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(b"quiet", b"loud", b"quiet", b"again")
            assert await client.receive() == b"re:loud"
            assert await client.receive() == b"re:again"
            await client.close()

    run(scenario())


def test_closing_from_a_dispatch_answers_what_came_before(run):
    async def scenario():
        first = asyncio.Event()

        async def dispatch(request, _connection):
            if bytes(request) == b"bad":
                first.set()
                raise CloseConnection("no such api")
            if bytes(request) == b"before":
                await first.wait()
            return (request,)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            with capture_logs() as lines:
                client.send(b"before", b"bad", b"after")
                assert await client.receive() == b"before"
                assert await client.rest() == b""
            assert [line["reason"] for line in lines] == ["no such api"]
            await client.close()

    run(scenario())


def test_a_failing_dispatch_is_logged_once_and_closes(run):
    async def scenario():
        async def dispatch(request, _connection):
            if bytes(request) == b"bad":
                raise KeyError("bug")
            return (request,)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            with capture_logs() as lines:
                client.send(b"before", b"bad")
                assert await client.receive() == b"before"
                assert await client.rest() == b""
            assert len(lines) == 1
            assert lines[0]["exc_info"]
            await client.close()
            other = await Client.to(server.address)
            assert await other.ask(b"fine") == b"fine"
            await other.close()

    run(scenario())


@pytest.mark.parametrize("answer", [(b"x" * 10, None), 7])
def test_an_answer_that_is_none_closes(run, answer):
    async def scenario():
        async def dispatch(_request, _connection):
            return answer

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            with capture_logs() as lines:
                client.send(b"x")
                assert await client.rest() == b""
            assert len(lines) == 1
            await client.close()

    run(scenario())


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
def test_a_bad_length_closes_with_one_line_after_the_answers_due(run, size):
    async def scenario():
        async with serving(frame_bytes=1000) as server:
            client = await Client.to(server.address)
            with capture_logs() as lines:
                client.send(b"good")
                client.writer.write(pack(">i", size))
                assert await client.receive() == b"good"
                assert await client.rest() == b""
            assert len(lines) == 1
            assert str(size) in lines[0]["reason"]
            assert server.budget.peak <= 1000
            await client.close()

    run(scenario())


def client_hello() -> bytes:
    """What a real client of TLS sends first."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="broker.example")
    with pytest.raises(ssl.SSLWantReadError):
        talk.do_handshake()
    return outgoing.read()


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (client_hello(), "looks like TLS"),
        (b"GET /metrics HTTP/1.1\r\nHost: broker\r\n\r\n", "looks like HTTP"),
        (b"POST / HTTP/1.1\r\n\r\n", "looks like HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "frame of 1397966893 bytes"),
    ],
)
def test_who_speaks_something_else_is_told_from_a_large_frame(run, sent, told):
    async def scenario():
        async with serving() as server:
            client = await Client.to(server.address)
            with capture_logs() as lines:
                client.writer.write(sent)
                assert await client.rest() == b""
            [line] = lines
            assert line["reason"].startswith(told)
            await client.close()

    run(scenario())


def test_a_frame_above_the_budget_is_refused(run):
    async def scenario():
        async with serving(frame_bytes=1000, buffer_bytes=500) as server:
            client = await Client.to(server.address)
            with capture_logs() as lines:
                client.send(b"x" * 501)
                assert await client.rest() == b""
            assert [line["reason"] for line in lines] == ["frame of 501 bytes, allowed are 0 to 500"]
            await client.close()

    run(scenario())


def test_a_peer_that_hangs_up_halfway_still_gets_its_answers(run):
    async def scenario():
        ready = asyncio.Event()
        ended: list[bool] = []

        async def dispatch(request, connection):
            def end() -> None:
                ended.append(True)
                ready.set()

            connection.when_ending(end)
            await ready.wait()
            return (request,)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(b"last")
            client.writer.write(pack(">i", 100) + b"never finished")
            client.writer.write_eof()
            assert await client.receive() == b"last"
            assert await client.rest() == b""
            assert ended == [True]
            await client.close()

    run(scenario())


def test_memory_is_held_until_the_dispatch_of_a_lost_peer_is_done(run):
    async def scenario():
        begun, go, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def dispatch(request, connection):
            connection.when_ending(ended.set)
            begun.set()
            await go.wait()
            return (request,)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(b"x" * 1000)
            await begun.wait()
            client.writer.transport.abort()
            await ended.wait()
            assert server.budget.used == 1000
            assert server.connections == 1
            go.set()
            await until(lambda: server.connections == 0)
            assert server.budget.used == 0

    run(scenario())


def test_one_connection_too_many_is_refused_and_others_go_on(run):
    async def scenario():
        async with serving(connections=2) as server:
            clients = [await Client.to(server.address) for _ in range(2)]
            for client in clients:
                assert await client.ask(b"hello") == b"hello"
            with capture_logs() as lines:
                for _ in range(3):
                    refused = await Client.to(server.address)
                    assert await refused.rest() == b""
                    await refused.close()
            assert len(lines) == 1, "a flood of connections is no flood of lines"
            await clients[0].close()
            assert await clients[1].ask(b"still here") == b"still here"
            await until(lambda: server.connections == 1)
            late = await Client.to(server.address)
            assert await late.ask(b"room now") == b"room now"
            await late.close()
            await clients[1].close()

    run(scenario())


def test_a_taken_port_is_one_clear_error(run):
    async def scenario():
        async with serving() as server:
            host, port = server.address
            free = Listener("FREE", host, 0)
            taken = Listener("TAKEN", host, port)
            with pytest.raises(AddressInUse, match=f"{host}:{port} is already in use"):
                async with serving(listeners=(free, taken)):
                    pass

    run(scenario())


def test_several_listeners_know_their_names(run):
    async def scenario():
        async def dispatch(_request, connection):
            return (connection.listener.encode(), b" ", connection.peer.encode())

        listeners = (Listener("IN", "127.0.0.1", 0), Listener("OUT", "127.0.0.1", 0))
        async with serving(dispatch, listeners=listeners) as server:
            assert server.address == server.addresses["IN"]
            for name, address in server.addresses.items():
                client = await Client.to(address)
                host, port = client.writer.get_extra_info("sockname")
                assert await client.ask(b"?") == f"{name} {host}:{port}".encode()
                await client.close()

    run(scenario())


def test_a_silent_peer_in_mid_frame_is_dropped_and_its_memory_freed(run):
    async def scenario():
        async with serving(frame_seconds=0.05) as server:
            client = await Client.to(server.address)
            with capture_logs() as lines:
                client.writer.write(pack(">i", 1 << 20) + b"begun")
                assert await client.rest() == b""
            assert [line["reason"] for line in lines] == ["silent in the middle of a frame"]
            assert 0 < server.budget.peak < 1 << 17, "for what has come and a little more, not the mebibyte"
            assert server.budget.used == 0
            await client.close()

    run(scenario())


def test_an_idle_connection_is_closed_but_a_busy_one_is_not(run):
    async def scenario():
        go = asyncio.Event()

        async def dispatch(request, _connection):
            await go.wait()
            return (request,)

        async with serving(dispatch, idle_seconds=0.05, frame_seconds=0.05) as server:
            idle, busy = await Client.to(server.address), await Client.to(server.address)
            busy.send(b"long poll")
            assert await idle.rest() == b""
            await asyncio.sleep(0.15)
            go.set()
            assert await busy.receive() == b"long poll"
            await idle.close()
            await busy.close()

    run(scenario())


def test_counts_what_passes(run):
    async def scenario():
        async with serving(echo) as server:
            client = await Client.to(server.address)
            await client.ask(b"12345")
            metrics = server.metrics
            assert metrics.received_bytes.value == metrics.sent_bytes.value == 9
            assert metrics.connections_active.value == 1
            text = metrics.exposition().decode()
            assert "dray_connections_active 1.0" in text
            assert "dray_frame_memory_limit_bytes" in text
            await client.close()

    run(scenario())
