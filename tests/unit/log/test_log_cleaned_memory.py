"""What was cleaned away by key leaves the memory of brokers: with the hint, and by age where none comes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest
from tests.services.room_settings import EMBEDDED
from tests.simulation.scripted import ScriptedStore
from tests.unit.log.harness import DOMAINS, QUICK, World, append, batch_bytes, read, values_in

from dray.log import Log
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.jobs.cleaned import Cleaned, CleanPoint
from dray.log.life.lifecycle import KEEP_CLOSED_DAYS
from dray.log.read.index_cache import LONGEST_ROUNDS, IndexCache
from dray.log.read.tail_cache import HALF_AGE
from dray.log.stream_store import StreamStore, Versioned
from dray.metadata import keys
from dray.metadata.contract import Put

DAY = 24 * 3600.0
SECRET, PUBLIC = b"secret", b"public"  # of one length: so one can take the place of the other


@pytest.fixture
async def world() -> World:
    return World(settings=replace(QUICK, carry=EMBEDDED, pack_look_seconds=1e9))


def carrying(world: World, *, deaf: bool = False, tail: int = 1 << 20) -> Log:
    made = world.log(tail_cache_bytes=tail)
    world.store.deaf = deaf
    made.carry(True)
    return made


async def filled(log: Log) -> int:
    [stream] = await log.create_streams(1)
    for value in (SECRET, PUBLIC, PUBLIC):
        await append(log, stream, batch_bytes([value]))
    return stream


async def clean(world: World, stream: int) -> None:
    """As a compactor does: an entry without the value takes the place of the first, then there is a point."""
    store = StreamStore(ScriptedStore(world.runtime, world.state), DOMAINS, 1)
    view = await store.view(stream)
    assert view is not None
    first, second = view.entries[0], view.entries[1].value
    without = replace(first.value, object_id=UUID(int=7), data=second.data)
    key = keys.index_entry(stream, first.value.end, first.value.cumulative_size)
    cleaned = Cleaned((CleanPoint(1, 1),))
    await store.write(stream, [Put(key, without.encode(), first.version)])
    await store.write(stream, [store.put_cleaned(stream, cleaned, 0)])


async def first_value(log: Log, stream: int) -> bytes:
    return values_in(await read(log, stream, 0, 1))[0][1]


@pytest.mark.parametrize("wrote_it", [True, False], ids=["tail", "index"])
async def test_a_clean_point_makes_a_broker_forget_what_it_has_in_memory(
    world: World, wrote_it: bool
) -> None:
    writing = carrying(world)
    stream = await filled(writing)
    log = writing if wrote_it else carrying(world, tail=0)
    await log.start()
    assert await first_value(log, stream) == SECRET
    await clean(world, stream)
    await asyncio.sleep(0.01)
    assert await first_value(log, stream) == PUBLIC
    await log.stop()


@pytest.mark.parametrize("wrote_it", [True, False], ids=["tail", "index"])
async def test_without_a_hint_it_forgets_by_age_though_the_stream_is_in_use(
    world: World, wrote_it: bool
) -> None:
    writing = carrying(world, deaf=True)
    stream = await filled(writing)
    log = writing if wrote_it else carrying(world, deaf=True, tail=0)
    await log.start()
    assert await first_value(log, stream) == SECRET
    await clean(world, stream)
    seconds = world.settings.cache_idle_seconds / 2
    for _ in range(max(2 * HALF_AGE, LONGEST_ROUNDS) + 1):
        await append(writing, stream, batch_bytes([PUBLIC]))
        await read(log, stream, 0)
        await asyncio.sleep(seconds)
    assert await first_value(log, stream) == PUBLIC
    await log.stop()


def entry(start: int, end: int, object_id: int = 1) -> IndexEntry:
    return IndexEntry(start, end, end, 0, 0, 0, 0, 0, UUID(int=object_id), "", b"")


def test_a_window_that_was_read_before_the_hint_is_not_kept() -> None:
    cache = IndexCache(10)
    cache.observe(1, Versioned(HighWatermark(5), 1))
    before = cache.times_forgotten
    cache.forget_entries(1)
    cache.remember(1, [entry(0, 5)], before)
    assert cache.find(1, 0) is None
    cache.remember(1, [entry(0, 5)], cache.times_forgotten)
    assert cache.find(1, 0) is not None


def test_a_high_watermark_of_an_older_version_changes_nothing() -> None:
    """A head that was replaced since, of the same end: its records were cleaned away."""
    cache = IndexCache(10)
    cache.observe(1, Versioned(HighWatermark.at(entry(0, 5, 2)), 9))
    cache.forget_entries(1)
    cache.observe(1, Versioned(HighWatermark(5), 8))
    found = cache.high_watermark(1)
    assert found is not None
    assert found.head == entry(0, 5, 2)


async def test_an_entry_that_a_late_write_brought_back_is_not_served(world: World) -> None:
    """A commit that loses its race files the head that it knew, though that was cleaned away meanwhile."""
    writing = carrying(world)
    stream = await filled(writing)
    store = StreamStore(ScriptedStore(world.runtime, world.state), DOMAINS, 1)
    view = await store.view(stream)
    assert view is not None
    first, second = [found.value for found in view.entries]
    merged = replace(second, start=0, object_id=UUID(int=7))
    key = keys.index_entry(stream, second.end, second.cumulative_size)
    await store.write(stream, [Put(key, merged.encode(), view.entries[1].version)])
    assert first.data != merged.data
    log = carrying(world, tail=0)
    for _ in range(2):  # from the store, then from the cache
        assert await first_value(log, stream) == PUBLIC


async def test_what_was_filed_late_goes_with_the_mark_of_a_swept_stream(world: World) -> None:
    log = carrying(world)
    stream = await filled(log)
    sleeper = carrying(world)
    await append(sleeper, stream, batch_bytes([SECRET]))
    await log.close_streams([stream])
    await log.sweep_streams([stream])
    late = entry(3, 4)
    key = keys.index_entry(stream, late.end, late.cumulative_size)
    await log._streams.write(stream, [Put(key, late.encode())])
    await asyncio.sleep((KEEP_CLOSED_DAYS + 1) * DAY)
    assert await log._lifecycle.forget_closed() == 1
    assert world.keys(keys.stream(stream)) == []


async def test_two_entries_of_one_append_are_served_each_at_its_own_offset(world: World) -> None:
    """No store that keeps its contract lets one in twice; if one ever does, no consumer stands still."""
    log = carrying(world)
    stream = await filled(log)
    found = await log._streams.high_watermark(stream)
    assert found is not None
    assert found.value.head is not None
    head = found.value.head
    again = replace(head, start=3, end=4, cumulative_size=head.cumulative_size + 1)
    await log._streams.write(stream, log._streams.advance(stream, found, HighWatermark.at(again)))
    other = carrying(world, tail=0)
    assert [offset for offset, _ in values_in(await read(other, stream, 2))] == [2, 3]
