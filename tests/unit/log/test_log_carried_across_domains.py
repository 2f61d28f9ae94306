"""One carried write for all domains, where the store brings writes in one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tests.services.room_settings import EMBEDDED
from tests.simulation.scripted import Fate
from tests.unit.log.harness import DOMAINS, QUICK, World, append, batch_bytes, read, start_append, values_in

from dray.log import Log, LogObserver
from dray.log.append.carry import CarryLimits
from dray.log.types import LogUnavailable
from dray.metadata import keys

EACH = replace(EMBEDDED, across_domains=False)


class Writes(LogObserver):
    """The carried writes: how many batches each held, and why appends went elsewhere."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.switches: list[str] = []

    def carried(self, batches: int, size: int) -> None:
        self.batches.append(batches)

    def lane_switched(self, why: str) -> None:
        self.switches.append(why)


@pytest.fixture
async def world() -> World:
    return World(settings=replace(QUICK, carry=EMBEDDED, pack_look_seconds=1e9))


@pytest.fixture
async def log(world: World) -> AsyncIterator[Log]:
    made = world.log()
    made.carry(True)
    yield made
    await made.stop()


def carrying(world: World, limits: CarryLimits, observer: LogObserver) -> Log:
    made = world.log(observer, carry=limits)
    made.carry(True)
    return made


@pytest.mark.parametrize(("limits", "writes"), [(EMBEDDED, [2 * DOMAINS]), (EACH, [2] * DOMAINS)])
async def test_what_comes_in_one_turn_is_one_write_over_all_domains(
    world: World, limits: CarryLimits, writes: list[int]
) -> None:
    noticed = Writes()
    log = carrying(world, limits, noticed)
    streams = await log.create_streams(2 * DOMAINS)
    appends = [start_append(log, stream, batch_bytes([b"x"])) for stream in streams]
    assert [(await each).base_offset for each in appends] == [0] * len(streams)
    assert noticed.batches == writes
    hints = [await world.store.get(stream % DOMAINS, keys.carried_hint(stream)) for stream in streams]
    assert None not in hints, "each in the domain of its stream: packers look there"
    await log.stop()


async def test_while_a_write_is_under_way_the_next_gathers_of_all_domains(world: World) -> None:
    noticed = Writes()
    log = carrying(world, EMBEDDED, noticed)
    first, second, third = await log.create_streams(3)
    held = world.store.hold("write", "/hwm")
    begun = start_append(log, first, batch_bytes([b"1"]))
    await held.reached()
    later = [start_append(log, stream, batch_bytes([b"2"])) for stream in (second, third, second, first)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(each.done() for each in (begun, *later))
    held.release()
    offsets = [(await each).base_offset for each in (begun, *later)]
    assert offsets == [0, 0, 0, 1, 1]
    assert noticed.batches == [1, 4]
    reader = world.log(tail_cache_bytes=0)
    assert values_in(await read(reader, first, 0)) == [(0, b"1"), (1, b"2")]
    await log.stop()


async def test_a_lost_race_in_one_domain_delays_no_answer_of_another(world: World, log: Log) -> None:
    mine, other = await log.create_streams(2)
    store = world.store
    rival = world.log(carry_bytes=0)
    assert (await append(rival, mine, batch_bytes([b"rival"]))).base_offset == 0
    held = store.hold("get", keys.high_watermark(mine))  # which is read anew after the lost race
    appends = [start_append(log, stream, batch_bytes([b"x"])) for stream in (mine, other)]
    assert (await appends[1]).base_offset == 0
    await held.reached()
    assert not appends[0].done()
    held.release()
    assert (await appends[0]).base_offset == 1
    await rival.stop()


@pytest.mark.parametrize("fate", [Fate.REFUSE, Fate.LOSE, Fate.LOSE_REPLY, Fate.FAIL])
async def test_a_write_that_fails_in_one_domain_fails_no_other(world: World, log: Log, fate: Fate) -> None:
    streams = await log.create_streams(DOMAINS)
    world.store.trap(fate, "write", keys.high_watermark(streams[0]))
    appends = [start_append(log, stream, batch_bytes([b"x"])) for stream in streams]
    assert [(await each).base_offset for each in appends] == [0] * DOMAINS
    reader = world.log(tail_cache_bytes=0)
    for stream in streams:
        assert values_in(await read(reader, stream, 0)) == [(0, b"x")], "once"


async def test_a_write_holds_what_those_of_the_domains_would(world: World) -> None:
    data = batch_bytes([bytes(400)])
    noticed = Writes()
    log = carrying(world, replace(EMBEDDED, write_bytes=2 * len(data)), noticed)
    streams = await log.create_streams(2 * DOMAINS + 1)
    await asyncio.gather(*[start_append(log, stream, data) for stream in streams])
    assert noticed.batches == [2 * DOMAINS]
    assert noticed.switches == ["full"]
    assert len(world.bucket.objects) == 1
    await log.stop()


async def test_failures_are_remembered_for_each_domain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """One committer has the streams of all: a failure in one domain must not push out that of another."""
    monkeypatch.setattr("dray.log.append.commit.REMEMBERED", 1)
    log = world.log(commit_seconds=0.0)
    log.carry(True)
    streams = await log.create_streams(DOMAINS)
    for stream in streams:
        world.store.trap(Fate.REFUSE, "write", keys.high_watermark(stream))
        with pytest.raises(LogUnavailable):
            await append(log, stream, batch_bytes([b"first"], producer=(7, 0, 0)))
    for stream in streams:
        with pytest.raises(LogUnavailable, match="0 failed before it"):
            await append(log, stream, batch_bytes([b"second"], producer=(7, 0, 1)))
    await log.stop()


# --- streams that this broker has created


async def test_the_first_append_to_a_stream_made_here_reads_nothing(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    world.store.trap(Fate.FAIL, "get")
    world.store.trap(Fate.FAIL, "scan")
    assert (await append(log, stream, batch_bytes([b"x"]))).base_offset == 0
    world.store.disarm()


async def test_another_broker_may_have_been_first(world: World, log: Log) -> None:
    """What was known from the creation is as old as any state: the compare-and-set finds out."""
    [stream] = await log.create_streams(1)
    other = world.log()
    sent = batch_bytes([b"x"], producer=(7, 0, 0))
    assert (await append(other, stream, bytearray(sent))).base_offset == 0
    assert (await append(other, stream, batch_bytes([b"y"], producer=(7, 0, 1)))).base_offset == 1
    assert (await append(log, stream, bytearray(sent))).base_offset == 0, "a duplicate"
    assert (await append(log, stream, batch_bytes([b"z"], producer=(7, 0, 2)))).base_offset == 2
    await other.stop()
