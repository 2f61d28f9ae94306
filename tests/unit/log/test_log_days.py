"""An index entry never holds append times of two days: tables by day are made of whole entries."""

from __future__ import annotations

import asyncio

from tests.unit.log.harness import World, batch_bytes, start_append

from dray.log import Log
from dray.log.stream_store import StreamStore

MIDNIGHT = 20_000 * 24 * 3_600_000


async def entries(world: World, log: Log, stream: int, times: list[int]) -> list[tuple[int, int]]:
    appends = [start_append(log, stream, batch_bytes([b"x"]), time) for time in times]
    await asyncio.gather(*appends)
    view = await StreamStore(world.store, 2, 1).view(stream)
    assert view is not None
    assert view.high_watermark.value.head is not None
    found = [entry.value for entry in view.entries] + [view.high_watermark.value.head]
    return [(entry.start, entry.end) for entry in found]


async def test_midnight_closes_the_object(world: World) -> None:
    log = world.log(flush_linger=1.0)
    [stream, other] = await log.create_streams(2)
    times = [MIDNIGHT - 2, MIDNIGHT - 1, MIDNIGHT, MIDNIGHT + 1]
    assert await entries(world, log, stream, times) == [(0, 2), (2, 4)]
    assert await entries(world, log, other, [MIDNIGHT + 5, MIDNIGHT + 6]) == [(0, 2)], "else it stays open"
    await log.stop()


async def test_producers_own_times_do_not(world: World) -> None:
    log = world.log(flush_linger=1.0)
    [stream] = await log.create_streams(1)
    assert await entries(world, log, stream, [-1, -1, -1]) == [(0, 3)]
    await log.stop()
