"""A client above a quota: answered at once, read later, and holding nothing meanwhile. New connections that
come too fast are held and closed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import Any, cast

from tests.services import room_settings
from tests.unit.broker.server.harness import Client, PaperTransport, frame, serving, until
from tests.unit.broker.server.paper_tls import PaperListener

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import Connection, Listener, MemoryBudget, Server
from dray.broker.server.protocol import FrameProtocol
from dray.broker.server.shared import MOST_HELD, Newcomers, ServerResources
from dray.broker.server.tls.handshakes import SHORT_BYTES
from dray.kafka.records import uninitialised
from dray_simulation.kernel.loop import run


def simulated(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    @functools.wraps(test)
    def in_virtual_time() -> None:
        run(test())  # type: ignore[arg-type]

    del in_virtual_time.__wrapped__
    return in_virtual_time


class Meter:
    """Throttles the connection for as many seconds as a request says, and echoes it. Remembers when each
    request was taken."""

    def __init__(self) -> None:
        self.taken: list[tuple[float, bytes]] = []

    async def __call__(self, request: memoryview, connection: Connection) -> Any:
        text = bytes(request)
        self.taken.append((asyncio.get_running_loop().time(), text))
        if text.isdigit():
            connection.throttle(int(text))
        return (request,)


class Broker:
    """The connections of a server, without sockets."""

    def __init__(self, newcomer_wait: Callable[[str], float] = lambda _address: 0.0) -> None:
        self.meter = Meter()
        settings = room_settings.server(listeners=(Listener("P", "127.0.0.1", 0),))
        self.shared = ServerResources(
            self.meter,
            SystemRuntime(),
            settings=settings,
            metrics=Metrics(process=False),
            budget=MemoryBudget(settings.buffer_bytes),
            allocate=uninitialised,
            newcomer_wait=newcomer_wait,
        )

    def connect(self, address: str = "10.0.0.1") -> PaperTransport:
        protocol = FrameProtocol(self.shared, "P", tls=False)
        transport = PaperTransport(protocol)
        cast(Any, transport)._extra["peername"] = (address, 1)
        protocol.connection_made(transport)
        return transport

    def taken(self, text: bytes) -> float:
        return next(at for at, request in self.meter.taken if request == text)


@simulated
async def test_the_answer_leaves_at_once_and_the_next_request_is_read_later() -> None:
    broker = Broker()
    begun = asyncio.get_running_loop().time()
    client, other = broker.connect(), broker.connect()
    client.deliver(frame(b"5"))
    await asyncio.sleep(0.1)
    assert b"".join(client.written) == frame(b"5")
    client.deliver(frame(b"next"))
    await asyncio.sleep(1)
    assert not client.reading
    other.deliver(frame(b"of another"))
    await asyncio.sleep(10)
    assert broker.taken(b"of another") - begun < 2, "others are not held up"
    assert 5 <= broker.taken(b"next") - begun < 5.1
    assert client.reading
    assert b"".join(client.written) == frame(b"5") + frame(b"next")


@simulated
async def test_a_throttled_connection_holds_no_memory() -> None:
    broker = Broker()
    clients = [broker.connect() for _ in range(50)]
    for client in clients:
        client.deliver(frame(b"60"))
    await asyncio.sleep(1)
    large = frame(b"x" * 30_000_000)
    for client in clients:
        assert client.deliver(large) <= broker.shared.settings.receive_buffer_bytes
    await asyncio.sleep(1)
    assert broker.shared.budget.used == broker.shared.budget.waiting == 0
    assert broker.shared.answers.used == broker.shared.answers.waiting == 0
    for client in clients:
        client.close()


@simulated
async def test_a_throttled_connection_with_tls_holds_no_more_than_one_without() -> None:
    listener = PaperListener(Meter())
    peers = [listener.connect() for _ in range(20)]
    for peer in peers:
        peer.send(b"60")
    await asyncio.sleep(1)
    large = b"x" * 2_000_000
    for peer in peers:
        assert peer.raw.deliver(peer.encrypt(large)) <= SHORT_BYTES
        assert not peer.raw.reading
    assert listener.handshakes.held_bytes == 0, "all of it is decrypted, and lies where it does without TLS"
    assert listener.server.budget.used == listener.server.budget.waiting == 0
    assert listener.server.answers.used == listener.server.answers.waiting == 0
    for peer in peers:
        peer.raw.close()


@simulated
async def test_the_longer_time_counts_and_requests_that_were_taken_go_on() -> None:
    broker = Broker()
    begun = asyncio.get_running_loop().time()
    client = broker.connect()
    client.deliver(frame(b"7") + frame(b"9") + frame(b"3") + frame(b"last"))
    await asyncio.sleep(0.1)
    assert b"".join(client.written) == frame(b"7") + frame(b"9") + frame(b"3") + frame(b"last")
    client.deliver(frame(b"next"))
    await asyncio.sleep(20)
    assert 9 <= broker.taken(b"next") - begun < 9.1


@simulated
async def test_a_client_that_leaves_while_it_is_throttled_leaves_nothing_behind() -> None:
    broker = Broker()
    client = broker.connect()
    client.deliver(frame(b"1000000"))
    await asyncio.sleep(0.1)
    client.deliver(frame(b"next"))
    client.close()
    assert not broker.shared.members
    timers = [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    assert timers == []


async def test_a_server_stops_with_throttled_connections() -> None:
    async with serving(Meter()) as server:
        client = await Client.to(server.address)
        assert await client.ask(b"1000") == b"1000"
        client.send(b"next")
    assert await client.rest() == b""
    await client.close()


@simulated
async def test_new_connections_that_come_too_fast_are_held_and_closed() -> None:
    broker = Broker(lambda address: 0.75 if address == "10.0.0.9" else 0.0)
    fast, other = broker.connect("10.0.0.9"), broker.connect()
    assert not fast.closed, "closed at once, it would come again at once"
    assert not fast.reading, "nothing is read of it"
    assert broker.shared.metrics.connections_refused.value == 1
    assert len(broker.shared.members) == 1
    await asyncio.sleep(0.8)
    assert fast.closed
    assert not other.closed
    assert broker.shared.newcomers.held == 0


@simulated
async def test_connections_are_not_held_without_bound() -> None:
    broker = Broker(lambda _address: 1.0)
    transports = [broker.connect() for _ in range(MOST_HELD + 10)]
    assert broker.shared.newcomers.held == MOST_HELD
    assert sum(transport.closed for transport in transports) == 10
    broker.shared.newcomers.stop()
    assert all(transport.closed for transport in transports)


@simulated
async def test_a_held_connection_that_leaves_is_no_trouble() -> None:
    newcomers = Newcomers(lambda _address: 1.0)
    broker = Broker()
    transport = broker.connect()
    assert newcomers.refuse(transport, "10.0.0.1")
    transport.close()
    await asyncio.sleep(2)
    assert newcomers.held == 0


async def test_a_server_that_stops_closes_those_that_it_holds() -> None:
    settings = room_settings.server(listeners=(Listener("P", "127.0.0.1", 0),))
    server = Server(
        Meter(), SystemRuntime(), settings, Metrics(process=False), newcomer_wait=lambda _address: 1000.0
    )
    await server.start()
    client = await Client.to(server.address)
    await until(lambda: server._shared.newcomers.held == 1)
    await server.stop(1)
    assert await client.rest() == b""
    await client.close()
