"""A fetch plans with the memory that there is room for, and waits for one batch at most."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.log.harness import EVERYTHING, World, append, batch_bytes, soon, values_in

from dray.base.runtime import AnswerRoom, EndlessRoom
from dray.log import Log
from dray.log.types import OffsetOutOfRange, ReadRequest, ReadResult

BATCH = len(batch_bytes([b"v"]))


class FakeRoom:
    """So much is free. `later` is what becomes free while somebody waits."""

    def __init__(self, free: int, later: int = 0) -> None:
        self.free = free
        self.later = later
        self.held = 0
        self.waited: list[tuple[int, float]] = []

    def most(self) -> int:
        return self.held or self.free

    def take(self, size: int) -> bool:
        if size - self.held > self.free:
            return False
        self.free -= size - self.held
        self.held = size
        return True

    async def wait(self, size: int, seconds: float) -> bool:
        self.take(0)
        self.waited.append((size, seconds))
        await asyncio.sleep(seconds / 2)
        self.free, self.later = self.free + self.later, 0
        return self.take(size)


async def fetch(
    log: Log, streams: list[int], room: AnswerRoom, *, min_bytes: int = 1, max_wait_ms: int = 500
) -> list[ReadResult]:
    requests = [ReadRequest(stream, 0, EVERYTHING) for stream in streams]
    return await log.fetch(
        requests, min_bytes=min_bytes, max_bytes=EVERYTHING, max_wait_ms=max_wait_ms, room=room
    )


@pytest.fixture
async def streams(log: Log) -> list[int]:
    made = await log.create_streams(2)
    for stream in made:
        for _ in range(4):
            await append(log, stream, batch_bytes([b"v"]))
    return made


def counts(results: list[ReadResult]) -> list[int]:
    assert [result.error for result in results] == [None] * len(results)
    return [len(values_in(result)) for result in results]


async def test_a_fetch_takes_what_it_answers_and_no_more_than_it_is_allowed(
    log: Log, streams: list[int]
) -> None:
    for allowed, expected in ((100, [4, 4]), (7, [4, 3]), (4, [4, 0]), (1, [1, 0])):
        purse = FakeRoom(allowed * BATCH)
        assert counts(await fetch(log, streams, purse)) == expected
        assert purse.held == sum(expected) * BATCH
        assert purse.waited == []


async def test_a_minimum_above_what_is_allowed_is_not_waited_for(log: Log, streams: list[int]) -> None:
    purse = FakeRoom(3 * BATCH)
    assert counts(await fetch(log, streams, purse, min_bytes=6 * BATCH, max_wait_ms=60_000)) == [3, 0]
    assert asyncio.get_running_loop().time() < 1


async def test_what_is_answered_at_the_deadline_is_taken_as_well(log: Log, streams: list[int]) -> None:
    purse = FakeRoom(100 * BATCH)
    assert counts(await fetch(log, streams, purse, min_bytes=50 * BATCH)) == [4, 4]
    assert purse.held == 8 * BATCH


async def test_without_room_one_batch_is_waited_for(log: Log, streams: list[int]) -> None:
    purse = FakeRoom(BATCH - 1, later=1)
    assert counts(await fetch(log, streams, purse, max_wait_ms=8000)) == [1, 0]
    assert purse.waited == [(BATCH, pytest.approx(8, abs=0.1))]
    assert purse.held == BATCH


@pytest.mark.parametrize(("min_bytes", "max_wait_ms", "seconds"), [(1, 8000, 8), (0, 0, 1), (1, 0, 1)])
async def test_a_fetch_that_finds_no_room_in_time_is_answered_without_records(
    log: Log, streams: list[int], min_bytes: int, max_wait_ms: int, seconds: float
) -> None:
    purse = FakeRoom(0)
    began = asyncio.get_running_loop().time()
    results = await fetch(log, streams, purse, min_bytes=min_bytes, max_wait_ms=max_wait_ms)
    assert counts(results) == [0, 0]
    assert [(result.high_watermark, result.start_offset) for result in results] == [(4, 0)] * 2
    assert asyncio.get_running_loop().time() - began == pytest.approx(seconds, abs=0.2)
    assert purse.held == 0


async def test_what_was_taken_by_others_meanwhile_is_planned_without(log: Log, streams: list[int]) -> None:
    class Race(FakeRoom):
        def take(self, size: int) -> bool:
            if size > 3 * BATCH:
                self.free = 3 * BATCH  # somebody was faster
                return False
            return super().take(size)

    purse = Race(100 * BATCH)
    assert counts(await fetch(log, streams, purse)) == [3, 0]
    assert purse.waited == [], "a smaller plan fits at once"


async def test_who_is_never_fast_enough_queues(log: Log, streams: list[int]) -> None:
    class Lost(FakeRoom):
        def take(self, size: int) -> bool:
            return size == 0

    purse = Lost(100 * BATCH)
    assert counts(await asyncio.wait_for(fetch(log, streams, purse), 5)) == [0, 0]
    assert purse.waited


async def test_nothing_is_held_while_records_are_waited_for(log: Log) -> None:
    [stream] = await log.create_streams(1)
    purse = FakeRoom(100 * BATCH)
    polling = await soon(fetch(log, [stream], purse, max_wait_ms=60_000))
    assert (polling.done(), purse.held) == (False, 0)
    await append(log, stream, batch_bytes([b"v"]))
    assert counts(await polling) == [1]
    assert purse.held == BATCH


async def test_what_was_deleted_while_room_was_waited_for_is_not_served(world: World) -> None:
    """By another broker, of which this one hears nothing: it asks, since what it knew is too old by then."""
    reader = world.log()
    world.store.deaf = True
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    await append(writer, stream, batch_bytes([b"v"]))
    await append(writer, stream, batch_bytes([b"w"]))
    [read] = await fetch(reader, [stream], EndlessRoom())
    assert read.size == 2 * BATCH
    fetching = await soon(fetch(reader, [stream], FakeRoom(0, later=9 * BATCH), max_wait_ms=40_000))
    await writer.delete_records(stream, 1)
    [result] = await fetching
    assert isinstance(result.error, OffsetOutOfRange)
    await reader.stop()
