"""Stopping loses no answer that can still be given, and never hangs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from struct import pack

import pytest
from structlog.testing import capture_logs
from tests.unit.broker.server.harness import SETTINGS, Client, PaperTransport, echo, frame, serving, until

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import Listener, Server
from dray.broker.server.protocol import FrameProtocol


def test_what_is_in_flight_is_answered_and_flushed(run):
    async def scenario():
        gate = asyncio.Event()
        begun = 0

        async def dispatch(request, _connection):
            nonlocal begun
            begun += 1
            await gate.wait()
            return (bytes(request) * 1_000_000,)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(b"a", b"b")
            await until(lambda: begun == 2)
            stopping = asyncio.create_task(server.stop(10))
            await asyncio.sleep(0)
            client.send(b"too late")
            with pytest.raises(ConnectionRefusedError):
                await Client.to(server.address)
            gate.set()
            assert await client.receive() == b"a" * 1_000_000
            assert await client.receive() == b"b" * 1_000_000
            assert await client.rest() == b""
            await stopping
            assert begun == 2
            await client.close()

    run(scenario())


def test_idle_and_half_sent_connections_are_closed_at_once(run):
    async def scenario():
        async with serving() as server:
            idle, halfway = await Client.to(server.address), await Client.to(server.address)
            halfway.writer.write(pack(">i", 100_000) + b"begun")
            await idle.ask(b"hello")
            await until(lambda: server.budget.used > 0)
            await asyncio.wait_for(server.stop(600), 60)
            assert server.budget.used == 0
            assert await idle.rest() == b""
            assert await halfway.rest() == b""
            await idle.close()
            await halfway.close()

    run(scenario())


@pytest.mark.parametrize("grace", [0, 0.05])
def test_what_does_not_end_in_time_is_given_up(run, grace):
    async def scenario():
        cancelled: list[str] = []

        async def dispatch(request, _connection):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(bytes(request).decode())
                raise

        async with serving(dispatch) as server:
            client, gone = await Client.to(server.address), await Client.to(server.address)
            gone.send(b"gone")
            client.send(b"stuck")
            await until(lambda: server.metrics.requests_in_flight.value == 2)
            gone.reset()
            await until(lambda: server.metrics.connections_active.value == 1)
            with capture_logs() as lines:
                await server.stop(grace)
            assert sorted(cancelled) == ["gone", "stuck"]
            assert len(lines) == 1
            assert server.connections == 0
            assert await client.rest() == b""
            await client.close()

    run(scenario())


def test_a_request_that_has_just_come_gives_its_memory_back(run):
    async def scenario():
        async def dispatch(_request, _connection):
            await asyncio.Event().wait()

        server = Server(dispatch, SystemRuntime(), SETTINGS, Metrics(process=False))
        protocol = FrameProtocol(server._shared, "PLAINTEXT", tls=False)
        transport = PaperTransport(protocol)
        protocol.connection_made(transport)
        transport.deliver(frame(b"just now"))
        assert server.budget.used == 8
        await server.stop(0)
        assert server.budget.used == 0
        assert server.connections == 0

    run(scenario())


def test_stopping_tells_those_who_only_wait(run):
    async def scenario():
        async def dispatch(_request, connection):
            woken = asyncio.Event()
            connection.when_ending(woken.set)
            await woken.wait()
            connection.forget(woken.set)
            return (b"nothing new",)

        async with serving(dispatch) as server:
            client = await Client.to(server.address)
            client.send(b"long poll")
            await until(lambda: server.metrics.requests_in_flight.value == 1)
            await asyncio.wait_for(server.stop(600), 60)
            assert await client.receive() == b"nothing new"
            await client.close()

    run(scenario())


def test_stopping_twice_or_without_starting_is_harmless(run):
    async def scenario():
        server = Server(echo, SystemRuntime(), SETTINGS, Metrics(process=False))
        await server.stop(1)
        await server.start()
        await server.stop(1)
        await server.stop(1)

    run(scenario())


def test_a_failed_start_leaves_no_listener(run):
    async def scenario():
        async with serving() as taken:
            host, port = taken.address
            spare = Server(echo, SystemRuntime(), SETTINGS, Metrics(process=False))
            await spare.start()
            free = spare.address[1]
            await spare.stop(1)
            listeners = (Listener("A", host, free), Listener("B", host, port))
            server = Server(
                echo, SystemRuntime(), replace(SETTINGS, listeners=listeners), Metrics(process=False)
            )
            with pytest.raises(Exception, match="already in use"):
                await server.start()
            with pytest.raises(ConnectionRefusedError):
                await Client.to((host, free))

    run(scenario())
