"""Finding offsets by time, against a search through everything."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulation.scripted import Fate
from tests.unit.log.harness import World, append, batch_bytes, soon, start_append

from dray.log import Log
from dray.log.types import LogUnavailable, ObjectCorrupt, TimestampedOffset
from dray_simulation.kernel.loop import run

# Batches, and whether the one before it lies in another object.
histories = st.lists(
    st.tuples(
        st.lists(st.integers(0, 30), min_size=1, max_size=4),  # timestamps
        st.sampled_from((0, 0, 1, 2, 3, 4)),  # codec
        st.booleans(),  # a new object begins
    ),
    min_size=1,
    max_size=12,
)


def brute_first(times: list[int], start: int, timestamp: int) -> TimestampedOffset | None:
    for offset in range(start, len(times)):
        if times[offset] >= timestamp:
            return TimestampedOffset(offset, times[offset])
    return None


def brute_greatest(times: list[int], start: int) -> TimestampedOffset | None:
    if start >= len(times):
        return None
    greatest = max(times[start:])
    return TimestampedOffset(times.index(greatest, start), greatest)


async def write(log: Log, stream: int, history: list[tuple[list[int], int, bool]]) -> list[int]:
    times: list[int] = []
    waiting: list[Any] = []
    for stamps, codec, begins in history:
        if begins and waiting:
            await asyncio.gather(*waiting)
            waiting = []
        data = batch_bytes([b"v"] * len(stamps), timestamps=stamps, codec=codec)
        waiting.append(start_append(log, stream, data))
        times += stamps
    await asyncio.gather(*waiting)
    return times


@settings(max_examples=40, deadline=None)
@given(histories, st.lists(st.integers(0, 48), max_size=2), st.integers(0, 2))
def test_lookups_by_time_are_what_a_search_finds(
    history: list[tuple[list[int], int, bool]], deletions: list[int], tail: int
) -> None:
    async def scenario() -> None:
        world = World()
        log = world.log(tail_cache_bytes=(0, 300, 1_000_000)[tail])
        [stream] = await log.create_streams(1)
        times = await write(log, stream, history)
        start = 0
        for before in [0, *deletions]:
            if before <= len(times):
                start = await log.delete_records(stream, before)
            for reader in (log, world.log()):
                for timestamp in range(-1, 32):
                    found = await reader.find_timestamp(stream, timestamp)
                    assert found == brute_first(times, start, timestamp)
                assert await reader.find_max_timestamp(stream) == brute_greatest(times, start)

    run(scenario())


async def test_the_greatest_time_below_the_start_does_not_count(log: Log) -> None:
    """In the same entry, and in the same batch, as what is left."""
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"v"] * 4, timestamps=[900, 100, 300, 200]))
    await log.delete_records(stream, 1)
    assert await log.find_max_timestamp(stream) == TimestampedOffset(2, 300)
    await append(log, stream, batch_bytes([b"v"] * 2, timestamps=[250, 300]))
    assert await log.find_max_timestamp(stream) == TimestampedOffset(2, 300), "the first of equals"
    await append(log, stream, batch_bytes([b"v"] * 2, timestamps=[250, 400]))
    assert await log.find_max_timestamp(stream) == TimestampedOffset(7, 400)


async def test_an_empty_stream_has_no_times(log: Log) -> None:
    [stream] = await log.create_streams(1)
    assert await log.find_timestamp(stream, 0) is None
    assert await log.find_max_timestamp(stream) is None


async def test_a_lookup_stands_behind_a_barrier(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"v"], timestamps=[5]))
    reader = world.log()
    assert await reader.find_max_timestamp(stream) == TimestampedOffset(0, 5)
    world.store.fall_behind(stream % 2)
    await append(log, stream, batch_bytes([b"v"], timestamps=[7]))
    assert await reader.find_max_timestamp(stream) == TimestampedOffset(1, 7)


async def test_a_lookup_reads_few_batches(log: Log, world: World) -> None:
    """It searches the index, and opens one batch."""
    [stream] = await log.create_streams(1)
    for time in range(100):
        await append(log, stream, batch_bytes([b"v"], timestamps=[time]))
    reader = world.log()
    assert await reader.find_timestamp(stream, 60) == TimestampedOffset(60, 60)
    assert len(world.objects.ranges_read) == 1


@pytest.mark.parametrize("greatest", [True, False])
async def test_records_that_are_deleted_under_the_search_are_searched_again(
    log: Log, world: World, greatest: bool
) -> None:
    [stream] = await log.create_streams(1)
    for time in (500, 100, 400, 300):
        await append(log, stream, batch_bytes([b"v"], timestamps=[time]))
    await log.delete_records(stream, 1)  # so that the greatest of all is below the start
    reader = world.log()
    held = world.store.hold("scan", "/offset-index/")
    looking = await soon(
        reader.find_max_timestamp(stream) if greatest else reader.find_timestamp(stream, 350)
    )
    await held.reached()
    await log.delete_records(stream, 3)
    for path in list(world.bucket.objects)[:3]:
        world.bucket.delete(path)
    held.release()
    assert await looking == (TimestampedOffset(3, 300) if greatest else None)


async def test_an_object_that_is_gone_is_damage_and_not_a_store_that_is_away(world: World, log: Log) -> None:
    """Told to try again, a client would do so for ever."""
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a", b"b"], timestamps=[5, 10]))
    away = world.log()
    for _ in range(5):
        world.objects.trap(Fate.REFUSE, "get")
    with pytest.raises(LogUnavailable):
        await away.find_timestamp(stream, 7)
    assert await away.find_timestamp(stream, 7) == TimestampedOffset(1, 10)
    world.bucket.objects.clear()
    reader = world.log()
    with pytest.raises(ObjectCorrupt, match="an object that is gone"):
        for _ in range(30):
            with contextlib.suppress(LogUnavailable):
                await reader.find_timestamp(stream, 7)
            await asyncio.sleep(1)
