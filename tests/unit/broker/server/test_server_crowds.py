"""Connections that were never used, and addresses with too many, cannot keep others out."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from structlog.testing import capture_logs
from tests.services import room_settings
from tests.unit.broker.server.harness import Client, PaperTransport, echo, progress, serving, until

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import Metrics
from dray.broker.server import Listener, MemoryBudget
from dray.broker.server.limits.patience import Patience
from dray.broker.server.protocol import FrameProtocol
from dray.broker.server.shared import UNUSED, ServerResources
from dray.kafka.records import uninitialised


class ManualClock(SystemRuntime):
    """A clock that is moved by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class FakeListener:
    """Where connections from any address arrive."""

    def __init__(self, **bounds) -> None:
        self.runtime = ManualClock()
        settings = room_settings.server(listeners=(Listener("P", "127.0.0.1", 0),), **bounds)
        self.shared = ServerResources(
            echo,
            self.runtime,
            settings=settings,
            metrics=Metrics(process=False),
            budget=MemoryBudget(settings.buffer_bytes),
            allocate=uninitialised,
        )

    def come(self, address: str = "10.0.0.1", asks: bool = False) -> PaperTransport:
        protocol = FrameProtocol(self.shared, "P", tls=False)
        transport = PaperTransport(protocol)
        cast(Any, transport)._extra["peername"] = (address, 1)
        protocol.connection_made(transport)
        if asks:
            transport.deliver(b"\0\0\0\4\0\3me")
        return transport


async def test_a_full_house_closes_the_longest_unused_connection_for_a_new_one():
    door = FakeListener(connections=3, connections_per_address=3)
    used = door.come(asks=True)
    unused = [door.come(), door.come()]
    door.runtime.now = 2.0
    late = door.come("10.0.0.2")
    assert [each.closed for each in (used, *unused, late)] == [False, True, False, False]
    assert door.shared.metrics.connections_closed.labels(UNUSED).value == 1
    assert len(door.shared.members) == 3


async def test_a_used_connection_is_not_closed_for_a_new_one():
    door = FakeListener(connections=2, connections_per_address=2)
    used = [door.come(asks=True), door.come(asks=True)]
    door.runtime.now = 1000.0
    late = door.come("10.0.0.2")
    assert [each.closed for each in (*used, late)] == [False, False, True]
    assert door.shared.metrics.connections_refused.value == 1


async def test_a_connection_that_has_just_come_may_send_its_first_request():
    door = FakeListener(connections=1, connections_per_address=1)
    first = door.come("10.0.0.1")
    door.runtime.now = 0.9
    assert door.come("10.0.0.2").closed
    assert not first.closed


async def test_one_address_gets_no_more_than_its_share():
    door = FakeListener(connections=10)
    ours = [door.come("10.0.0.1") for _ in range(8)]
    assert [each.closed for each in ours] == [False] * 5 + [True] * 3
    assert not door.come("10.0.0.2").closed
    ours[0].close()
    assert not door.come("10.0.0.1").closed, "one has left"


async def test_clients_of_the_same_machine_share_all_there_are():
    for address in ("127.0.0.1", "::1"):
        door = FakeListener(connections=10)
        assert not any(door.come(address).closed for _ in range(10))


async def test_a_share_that_was_set_holds_for_all():
    door = FakeListener(connections=10, connections_per_address=2)
    assert [door.come("127.0.0.1").closed for _ in range(3)] == [False, False, True]


async def test_a_crowd_gets_one_line_and_is_counted():
    door = FakeListener(connections=10, connections_per_address=1)
    with capture_logs() as lines:
        for _ in range(50):
            door.come()
        assert len(lines) == 1
        door.runtime.now = 11.0
        door.come()
    assert [line.get("more_since_the_last_line") for line in lines] == [None, 48]
    assert door.shared.metrics.connections_refused.value == 50


async def test_connections_that_leave_are_forgotten():
    door = FakeListener(connections=5)
    for _ in range(20):
        door.come(asks=True).close()
        door.come().close()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not door.shared.members
    assert not door.shared._unused
    assert not door.shared._by_address


def test_patience_with_a_connection_that_asks_nothing():
    bounds = room_settings.server(first_request_seconds=30)
    patience = Patience(0)
    assert patience.exhausted(30, progress(frames=0), bounds) is None
    assert patience.exhausted(31, progress(frames=0, busy=True), bounds) is None, "it waits for us"
    assert patience.exhausted(31, progress(frames=1), bounds) is None
    begun = progress(frames=0, received_bytes=9, unfinished=100)
    assert patience.exhausted(31, begun, bounds) == "no request"


def test_a_connection_without_a_request_is_closed_and_one_with_is_not(run):
    async def scenario():
        async with serving(first_request_seconds=0.2) as server:
            used = await Client.to(server.address)
            assert await used.ask(b"hello") == b"hello"
            with capture_logs() as lines:
                silent = [await Client.to(server.address) for _ in range(20)]
                for client in silent:
                    assert await client.rest() == b""
                    await client.close()
            assert len(lines) == 1
            assert server.metrics.connections_closed.labels("no request").value == 20
            await until(lambda: server.connections == 1)
            assert await used.ask(b"still here") == b"still here"
            await used.close()

    run(scenario())
