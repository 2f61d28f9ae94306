"""What an older build could not read is counted, wherever it is: operators wait until nothing is left."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import World, append, batch_bytes
from tests.unit.log.packing_harness import carrying, collect, entries, fill, pack, packing_world, streams_of

from dray.log import Log
from dray.log.append.carried_hints import CarriedSurvey, survey_carried
from dray.metadata import keys
from dray.metadata.contract import Delete, Put

SIZE = len(batch_bytes([b"a"]))
HINT_MS = 1_000


@pytest.fixture
async def world() -> World:
    return packing_world()


async def survey(world: World, hint_ms: int | None = None) -> CarriedSurvey:
    return await survey_carried(streams_of(world), hint_ms=hint_ms)


async def pack_all(world: World) -> None:
    """By a broker that does not carry."""
    log = world.log(carry_bytes=0)
    for _ in range(3):
        await pack(log)


async def test_entries_and_heads_of_all_streams_count(world: World) -> None:
    log = carrying(world)
    await fill(log, 2)
    [_, large] = await log.create_streams(2)
    await append(log, large, batch_bytes([bytes(20_000)]))
    assert await survey(world) == CarriedSurvey(2, 8, 8 * SIZE)
    await log.stop()


async def test_no_hint_is_believed(world: World) -> None:
    log = carrying(world)
    [stream] = await fill(log)
    await world.store.write(0, [Delete(keys.carried_hint(stream))])
    assert await survey(world) == CarriedSurvey(1, 4, 4 * SIZE)
    assert world.keys(keys.CARRIED) == [], "a look changes nothing"
    await log.stop()


async def test_a_hint_that_is_missing_is_put_again_and_followed(world: World) -> None:
    """Builds before this one lost hints. `drayd admin gc` finds such streams."""
    log = carrying(world)
    [stream] = await fill(log)
    await log.stop()
    await world.store.write(0, [Delete(keys.carried_hint(stream))])
    assert (await survey(world, HINT_MS)).carried_entries == 4
    assert world.keys(keys.CARRIED) == [keys.carried_hint(stream)]
    await pack_all(world)
    assert await survey(world, HINT_MS) == CarriedSurvey()
    assert world.keys(keys.CARRIED) == []


async def die_at(world: World, log: Log, place: int) -> None:
    """In a pack, before the write of that number which has an index key."""
    for _ in range(place):
        world.store.trap(Fate.PASS, "write", "/offset-index/")
    step = world.store.hold("write", "/offset-index/")
    packing = asyncio.ensure_future(pack(log))
    await step.reached()
    packing.cancel()


async def test_a_pack_that_is_not_finished_counts(world: World) -> None:
    """First its job alone; then what its merged entry covers, and is filed all the same."""
    log = carrying(world)
    [stream] = await fill(log)
    await die_at(world, log, 0)
    assert await survey(world) == CarriedSurvey(1, 4, 4 * SIZE, carried_jobs=1)
    await die_at(world, world.log(carry_bytes=0), 1)
    assert [entry.is_carried for entry in await entries(world, stream)] == [True, True, False]
    assert await survey(world) == CarriedSurvey(1, 3, 3 * SIZE, carried_jobs=1), "and the head"
    await pack_all(world)
    assert await survey(world) == CarriedSurvey()


async def test_the_mark_of_a_pack_counts(world: World) -> None:
    log = carrying(world)
    await fill(log)
    world.store.trap(Fate.LATE, "write", "/job")
    world.store.trap(Fate.LOSE, "write", "/job")
    await pack(log)
    assert (await survey(world)).pack_marks == 1
    await collect(world)
    assert (await survey(world)).pack_marks == 0
    await log.stop()


async def test_an_entry_that_came_back_late_counts_and_goes(world: World) -> None:
    """Another entry covers it, so no reader asks for it; an older build would refuse the stream for it."""
    log = carrying(world)
    [stream] = await fill(log)
    first = (await entries(world, stream))[0]
    await pack(log)
    key = keys.index_entry(stream, first.end, first.cumulative_size)
    await world.store.write(0, [Put(key, first.encode())])
    assert (await survey(world)).carried_entries == 2, "and the head"
    await pack_all(world)
    assert await survey(world) == CarriedSurvey()
    assert world.keys(keys.CARRIED) == []
    await log.stop()
