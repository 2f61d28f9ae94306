"""A peer that sends faster than we work, or does not read, costs bounded memory and hurts nobody else."""

from __future__ import annotations

import asyncio
import socket
from typing import Any, cast

from tests.unit.broker.server.harness import Client, echo, serving, until

MEBIBYTE = 1024 * 1024


def test_many_large_frames_never_pass_the_budget_and_all_finish(run):
    async def scenario():
        held = 0
        most = 0

        async def dispatch(request, _connection):
            nonlocal held, most
            held += len(request)
            most = max(most, held)
            await asyncio.sleep(0.002)
            held -= len(request)
            return (b"done",)

        async with serving(dispatch, buffer_bytes=8 * MEBIBYTE) as server:

            async def produce(number: int) -> None:
                client = await Client.to(server.address)
                payload = bytes([number]) * MEBIBYTE
                for _ in range(2):
                    assert await client.ask(payload) == b"done"
                await client.close()

            await asyncio.gather(*(produce(number) for number in range(64)))
            assert most <= server.budget.peak <= 8 * MEBIBYTE
            assert server.budget.peak > 6 * MEBIBYTE, "and the room there is gets used"

    run(scenario())


def test_a_connection_that_waits_for_memory_and_dies_leaves_no_claim(run):
    async def scenario():
        go = asyncio.Event()

        async def dispatch(request, _connection):
            await go.wait()
            return (b"done",)

        async with serving(dispatch, buffer_bytes=1000) as server:
            holder, waiter, patient = [await Client.to(server.address) for _ in range(3)]
            holder.send(bytes(1000))
            await until(lambda: server.budget.used == 1000)
            waiter.send(bytes(900))
            await until(lambda: server.budget.waiting == 1)
            patient.send(bytes(800))
            await until(lambda: server.budget.waiting == 2)
            waiter.writer.transport.abort()
            go.set()
            assert await holder.receive() == b"done"
            assert await patient.receive() == b"done"
            await holder.close()
            await patient.close()

    run(scenario())


def test_no_more_than_so_many_requests_of_one_connection_at_once(run):
    async def scenario():
        running = 0
        most = 0
        gate = asyncio.Event()

        async def dispatch(request, _connection):
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1
            return (request,)

        async with serving(dispatch, max_in_flight=3) as server:
            client, other = await Client.to(server.address), await Client.to(server.address)
            payloads = [b"%d" % number for number in range(20)]
            client.send(*payloads)
            await until(lambda: running == 3)
            other.send(b"mine")
            await until(lambda: running == 4)
            gate.set()
            assert await other.receive() == b"mine"
            assert [await client.receive() for _ in payloads] == payloads
            assert most == 4, "three of the one, one of the other"
            await client.close()
            await other.close()

    run(scenario())


def test_a_peer_that_does_not_read_is_not_read_either(run):
    async def scenario():
        answered = 0

        async def dispatch(_request, _connection):
            nonlocal answered
            answered += 1
            return (bytes(256 * 1024),)

        async with serving(dispatch, max_unsent_bytes=MEBIBYTE, max_in_flight=4) as server:
            raw = socket.socket()
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
            raw.setblocking(False)
            await asyncio.get_running_loop().sock_connect(raw, server.address)
            client = await Client.to(cast(Any, (None, None)), sock=raw, limit=1024)
            payloads = [b"?"] * 400
            client.send(*payloads)
            other = await Client.to(server.address)
            await other.ask(b"?")
            await until(lambda: answered > 5)
            await asyncio.sleep(0.1)
            assert answered < 60, "what the kernel and one buffer hold, not all 400"
            for _ in payloads:
                assert len(await client.receive()) == 256 * 1024
            assert answered == 401
            await client.close()
            await other.close()

    run(scenario())


def test_a_peer_that_never_reads_its_answers_is_dropped_at_last(run):
    async def scenario():
        async def dispatch(_request, _connection):
            return (bytes(32 * MEBIBYTE),)

        async with serving(dispatch, idle_seconds=0.2) as server:
            raw = socket.create_connection(server.address)
            raw.sendall(b"\0\0\0\1?")
            await until(lambda: server.connections == 1)
            await until(lambda: server.connections == 0)
            assert server.metrics.connections_closed.labels("answers not read").value == 1
            raw.close()

    run(scenario())


def test_a_peer_that_writes_it_all_before_it_reads_gets_through(run):
    async def scenario():
        async with serving(echo, max_in_flight=2, max_unsent_bytes=1024) as server:
            client = await Client.to(server.address)
            payload = bytes(2 * MEBIBYTE)
            for _ in range(3):
                client.send(payload)
            for _ in range(3):
                assert await client.receive() == payload
            await client.close()

    run(scenario())
