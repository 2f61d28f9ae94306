"""The two names of Oxia's service: found out once, and again when a server goes by another one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.unit.metadata.oxia_fake import FakeServer, FakeShard

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import Put, Unavailable
from dray.metadata.oxia import OxiaSettings
from dray.metadata.oxia.errors import UnusableOxia
from dray.metadata.oxia.server import SERVICES
from dray.metadata.oxia.store import OxiaStore

PATIENCE = 60.0


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


def settings(server: FakeServer) -> OxiaSettings:
    return OxiaSettings(addresses=[server.address], request_timeout=0.5, patience=5.0, first_answer=1.0)


async def opened(server: FakeServer, runtime: SystemRuntime) -> OxiaStore:
    await server.start()
    store = OxiaStore(settings(server), runtime)
    await store.open()
    return store


@pytest.mark.parametrize("services", [SERVICES[:1], SERVICES[1:], SERVICES])
async def test_either_name_is_found_and_asked_for_once(
    services: tuple[str, ...], runtime: SystemRuntime
) -> None:
    server = FakeServer(FakeShard(), *services)
    store = await opened(server, runtime)
    asked = server.assignments.qsize()
    assert asked == 2, "once for the name, once for the shards"
    for number in range(5):
        [outcome] = await store.write(0, [Put(f"/{number}", b"")])
        assert outcome.applied
        assert await store.get(0, f"/{number}") is not None
    assert server.assignments.qsize() == asked
    await store.close()
    await server.stop()


async def test_what_is_no_oxia_is_one_line(runtime: SystemRuntime) -> None:
    server = FakeServer(FakeShard(), "somebody.Else")
    await server.start()
    with pytest.raises(UnusableOxia, match=f"{server.address} is no Oxia server that Dray knows") as raised:
        await OxiaStore(settings(server), runtime).open()
    assert "\n" not in str(raised.value)
    await server.stop()


@pytest.mark.parametrize("before", [0, 1])
async def test_a_server_that_goes_by_another_name_is_asked_again(before: int, runtime: SystemRuntime) -> None:
    """As after an upgrade: the same address, the same data."""
    shard = FakeShard()
    old, new = FakeServer(shard, SERVICES[before]), FakeServer(shard, SERVICES[1 - before])
    store = await opened(old, runtime)
    await store.write(0, [Put("/a", b"1")])
    await old.stop()
    await new.start(port=int(old.address.rpartition(":")[2]))
    async with asyncio.timeout(PATIENCE):
        found = await store.get(0, "/a")
    assert found is not None
    assert found.value == b"1"
    [outcome] = await store.write(0, [Put("/a", b"2", found.version)])
    assert outcome.applied
    await store.close()
    await new.stop()


async def test_a_server_that_is_none_any_more_is_unavailable_until_it_is_one_again(
    runtime: SystemRuntime,
) -> None:
    shard = FakeShard()
    server, other, again = FakeServer(shard), FakeServer(shard, "somebody.Else"), FakeServer(shard)
    store = await opened(server, runtime)
    port = int(server.address.rpartition(":")[2])
    await server.stop()
    await other.start(port=port)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Unavailable, match="no Oxia server that Dray knows"):
            await store.write(0, [Put("/a", b"")])
    await other.stop()
    await again.start(port=port)
    async with asyncio.timeout(PATIENCE):
        for _ in ("for its name", "for the shards, which are followed as before"):
            await again.assignments.get()
        [outcome] = await store.write(0, [Put("/a", b"")])
    assert outcome.applied
    await store.close()
    await again.stop()
