"""TLS on a listener. `loopback.pem` is a throw-away key for 127.0.0.1, made for these tests only."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from struct import pack

import pytest
from tests.unit.broker.server.harness import Client, encrypting, serving, until

from dray.broker.server import CloseConnection, Listener
from dray.broker.server.tls.listener import ServerCertificate

PEM = Path(__file__).with_name("loopback.pem")


def contexts() -> tuple[ServerCertificate, ssl.SSLContext]:
    return ServerCertificate(PEM, PEM), ssl.create_default_context(cafile=str(PEM))


def test_frames_of_every_size_over_tls_beside_a_plain_listener(run):
    async def scenario():
        tls, trust = contexts()

        async def dispatch(request, connection):
            if bytes(request[:4]) == b"stop":
                raise CloseConnection("asked to")
            return (b"tls " if connection.tls else b"plain ", request)

        listeners = (Listener("PLAINTEXT", "127.0.0.1", 0), encrypting(tls))
        async with serving(dispatch, listeners=listeners, max_in_flight=2) as server:
            plain = await Client.to(server.addresses["PLAINTEXT"])
            assert await plain.ask(b"x") == b"plain x"
            client = await Client.to(server.addresses["SSL"], ssl=trust)
            for size in (0, 1, 65_532, 65_533, 3_000_000):
                payload = bytes([size % 251]) * size
                assert await client.ask(payload) == b"tls " + payload
            many = [b"%d" % number for number in range(500)]
            client.send(*many)
            assert [await client.receive() for _ in many] == [b"tls " + each for each in many]
            client.send(b"last", b"stop", b"never")
            assert await client.receive() == b"tls last"
            assert await client.rest() == b""
            await client.close()
            await plain.close()

    run(scenario())


def test_stopping_answers_over_tls_too(run):
    async def scenario():
        tls, trust = contexts()
        gate = asyncio.Event()

        async def dispatch(request, _connection):
            await gate.wait()
            return (request, bytes(500_000))

        async with serving(dispatch, listeners=(encrypting(tls),)) as server:
            client = await Client.to(server.address, ssl=trust)
            client.send(b"asked")
            await until(lambda: server.metrics.requests_in_flight.value == 1)
            stopping = asyncio.create_task(server.stop(10))
            await asyncio.sleep(0)
            gate.set()
            assert await client.receive() == b"asked" + bytes(500_000)
            await client.close()
            await stopping

    run(scenario())


def test_a_peer_that_hangs_up_over_tls_frees_its_memory(run):
    async def scenario():
        tls, trust = contexts()
        async with serving(listeners=(encrypting(tls),)) as server:
            client = await Client.to(server.address, ssl=trust)
            client.writer.write(pack(">i", 100_000) + b"begun")
            await until(lambda: server.budget.used > 0)
            await client.close()
            await until(lambda: server.connections == 0)
            assert server.budget.used == 0

    run(scenario())


@pytest.mark.parametrize("speech", [b"\0\0\0\1x", b"\x16\x03\x01\x00\x05hello"])
def test_a_peer_that_speaks_no_tls_is_turned_away(run, speech):
    async def scenario():
        tls, _ = contexts()
        listeners = (encrypting(tls),)
        async with serving(listeners=listeners, handshake_seconds=0.5) as server:
            client = await Client.to(server.address)
            client.writer.write(speech)
            await client.rest()
            await client.close()
            assert server.connections == 0

    run(scenario())
