"""No wake-up is lost: not one that comes while nobody waits, nor one that a broken watch did not bring."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from tests.simulation.scripted import Fate, ScriptedObjects, ScriptedStore
from tests.unit.log.harness import DOMAINS, EVERYTHING, World, append, batch_bytes, soon, values_in

from dray.log import Log
from dray.log.types import LogUnavailable, ReadRequest, ReadResult
from dray.metadata.contract import Change, Unavailable

MINUTE_MS = 60_000


async def poll(log: Log, stream: int, offset: int, max_wait_ms: int = MINUTE_MS) -> ReadResult:
    [result] = await log.fetch(
        [ReadRequest(stream, offset, EVERYTHING)], min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=max_wait_ms
    )
    return result


def now() -> float:
    return asyncio.get_running_loop().time()


async def settle() -> None:
    """Until everything that was told has been heard."""
    await asyncio.sleep(0.01)


async def test_a_hint_that_comes_between_two_polls_is_not_lost(world: World) -> None:
    """The consumer is busy with what it has; meanwhile another broker commits."""
    reader = world.log()
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    assert values_in(await poll(reader, stream, 0, max_wait_ms=100)) == []
    await append(writer, stream, batch_bytes([b"v"]))
    await settle()
    began = now()
    assert values_in(await poll(reader, stream, 0)) == [(0, b"v")]
    assert now() - began < 0.1
    await reader.stop()


async def test_a_hint_that_comes_while_a_poll_is_being_planned_is_not_lost(world: World) -> None:
    """The poll has looked and does not wait yet: nobody is there to be woken."""
    reader = world.log(index_cache_entries=1)
    reading_store = world.store
    await reader.start()
    writer = world.log()
    [stream, other] = await writer.create_streams(2)
    for _ in range(3):
        await append(writer, other, batch_bytes([b"o"]))
    scan = reading_store.hold("scan", "/offset-index/")
    asked = [ReadRequest(stream, 0, EVERYTHING), ReadRequest(other, 0, EVERYTHING)]
    size = len(batch_bytes([b"o"]))
    polling = await soon(reader.fetch(asked, min_bytes=4 * size, max_bytes=EVERYTHING, max_wait_ms=MINUTE_MS))
    await scan.reached()  # the first stream is planned, and was empty
    await append(writer, stream, batch_bytes([b"v"]))
    await settle()
    scan.release()
    began = now()
    results = await polling
    assert [len(values_in(result)) for result in results] == [1, 3]
    assert now() - began < 0.1
    await reader.stop()


async def test_what_nobody_reads_here_costs_nothing(world: World) -> None:
    """Hints of streams that this broker was never asked about are not kept, and nothing is read for them."""
    reader = world.log()
    store = world.store
    await reader.start()
    writer = world.log()
    streams = await writer.create_streams(20)
    held = store.hold("get", "/hwm")
    for stream in streams:
        await append(writer, stream, batch_bytes([b"v"]))
    await settle()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(held.reached(), 1)
    await reader.stop()


async def test_a_hint_of_what_is_known_already_keeps_nobody_awake(world: World) -> None:
    """It is looked into once, and then the poll sleeps as any other."""
    reader = world.log()
    store = world.store
    store.deaf = True
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    await append(writer, stream, batch_bytes([b"v"]))
    assert values_in(await poll(reader, stream, 0)) == [(0, b"v")]
    reader._index.moved(stream)
    barriers, began = len(store.barriers), now()
    assert values_in(await poll(reader, stream, 1, max_wait_ms=900)) == []
    assert now() - began == pytest.approx(0.9, abs=0.01)
    assert len(store.barriers) - barriers == 2  # for the hint, and at the deadline
    await reader.stop()


async def test_a_hint_that_could_not_be_looked_into_is_not_forgotten(world: World) -> None:
    reader = world.log()
    store = world.store
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    assert values_in(await poll(reader, stream, 0, max_wait_ms=100)) == []
    await append(writer, stream, batch_bytes([b"v"]))
    await settle()
    for kind in ("barrier", "get", "barrier"):  # as it begins, before it sleeps, and at its deadline
        store.trap(Fate.REFUSE, kind)
    assert isinstance((await poll(reader, stream, 0, max_wait_ms=50)).error, LogUnavailable)
    began = now()
    assert values_in(await poll(reader, stream, 0)) == [(0, b"v")]
    assert now() - began < 0.1
    await reader.stop()


class BreakingStore(ScriptedStore):
    """Its watches end when they are told to, with an error or without, and can be kept from coming back."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.breaking = asyncio.Event()
        self.away = asyncio.Event()
        self.error: Unavailable | None = None

    async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncGenerator[Change, None]:
        if self.breaking.is_set():
            await self.away.wait()
        stream = super().watch(domain, endings)
        while True:
            change = asyncio.ensure_future(anext(stream))
            broken = asyncio.ensure_future(self.breaking.wait())
            await asyncio.wait([change, broken], return_when=asyncio.FIRST_COMPLETED)
            if self.breaking.is_set() and not self.away.is_set():
                change.cancel()
                if self.error is not None:
                    raise self.error
                return
            broken.cancel()
            yield await change


@pytest.mark.parametrize("error", [None, Unavailable("the connection is gone")])
async def test_a_watch_that_comes_back_brings_what_it_missed(world: World, error: Unavailable | None) -> None:
    """Nothing tells what happened in between, so everything that is waited for is read again."""
    store = BreakingStore(world.runtime, world.state, world.limits)
    store.error = error
    reader = Log(store, ScriptedObjects(world.runtime, world.bucket), world.runtime, DOMAINS, world.settings)
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    polling = await soon(poll(reader, stream, 0))
    await settle()
    store.breaking.set()
    await settle()
    await append(writer, stream, batch_bytes([b"v"]))
    await settle()
    assert not polling.done()
    began = now()
    store.away.set()  # the watch is there again
    assert values_in(await polling) == [(0, b"v")]
    assert now() - began < 1
    await reader.stop()


async def test_after_a_broken_watch_nothing_is_taken_for_known(world: World) -> None:
    """The watch broke and came back while nobody polled: the next poll asks, however lately one did."""
    store = BreakingStore(world.runtime, world.state, world.limits)
    reader = Log(store, ScriptedObjects(world.runtime, world.bucket), world.runtime, DOMAINS, world.settings)
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    assert values_in(await poll(reader, stream, 0, max_wait_ms=100)) == []
    store.breaking.set()
    await settle()
    await append(writer, stream, batch_bytes([b"v"]))
    store.away.set()
    await settle()
    began = now()
    assert values_in(await poll(reader, stream, 0)) == [(0, b"v")]
    assert now() - began < 0.1
    await reader.stop()
