"""Long polls: what wakes them, what does not keep them asleep, and what is never said without asking."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import EVERYTHING, World, append, batch_bytes, read, soon, values_in

from dray.log import Log, LogObserver
from dray.log.read.waiting import Wakeups
from dray.log.types import LogUnavailable, OffsetOutOfRange, ReadRequest, ReadResult, StreamClosed

MINUTE_MS = 60_000


async def poll(
    log: Log, streams: list[int], offset: int, min_bytes: int = 1, max_wait_ms: int = MINUTE_MS
) -> list[ReadResult]:
    requests = [ReadRequest(stream, offset, EVERYTHING) for stream in streams]
    return await log.fetch(requests, min_bytes=min_bytes, max_bytes=EVERYTHING, max_wait_ms=max_wait_ms)


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_a_poll_of_several_streams_wakes_for_any_of_them(log: Log) -> None:
    streams = await log.create_streams(3)
    polling = await soon(poll(log, streams, 0))
    await append(log, streams[1], batch_bytes([b"v"]))
    results = await polling
    assert [values_in(result) for result in results] == [[], [(0, b"v")], []]
    assert now() < 1


async def test_a_poll_waits_for_its_minimum(log: Log) -> None:
    [stream] = await log.create_streams(1)
    size = len(batch_bytes([b"v"]))
    polling = await soon(poll(log, [stream], 0, min_bytes=3 * size))
    for _ in range(2):
        await append(log, stream, batch_bytes([b"v"]))
        await asyncio.wait([polling], timeout=1)
        assert not polling.done()
    await append(log, stream, batch_bytes([b"v"]))
    [result] = await asyncio.wait_for(polling, 1)
    assert result.size == 3 * size


async def test_a_poll_below_its_minimum_answers_with_what_there_is_at_its_deadline(log: Log) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"v"]))
    began = now()
    [result] = await poll(log, [stream], 0, min_bytes=10_000, max_wait_ms=5_000)
    assert now() - began == pytest.approx(5, abs=0.1)
    assert values_in(result) == [(0, b"v")]


async def test_a_poll_without_a_minimum_or_a_wait_answers_at_once(log: Log) -> None:
    [stream] = await log.create_streams(1)
    began = now()
    for min_bytes, wait in ((0, MINUTE_MS), (1, 0)):
        [result] = await poll(log, [stream], 0, min_bytes=min_bytes, max_wait_ms=wait)
        assert (result.buffers, result.error) == ([], None)
    assert now() == began


async def test_a_watch_that_is_silent_is_no_proof(world: World) -> None:
    """Another broker appends, and this one hears nothing of it: at its deadline, it asks."""
    reader = world.log()
    world.store.deaf = True
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    await poll(reader, [stream], 0, max_wait_ms=0)
    polling = await soon(poll(reader, [stream], 0, max_wait_ms=5_000))
    await append(writer, stream, batch_bytes([b"v"]))
    await asyncio.wait([polling], timeout=4)
    assert not polling.done()
    [result] = await polling
    assert values_in(result) == [(0, b"v")]
    await reader.stop()


async def test_a_hint_from_another_broker_wakes(world: World) -> None:
    reader = world.log()
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    polling = await soon(poll(reader, [stream], 0))
    await append(writer, stream, batch_bytes([b"v"]))
    assert values_in((await asyncio.wait_for(polling, 1))[0]) == [(0, b"v")]
    await reader.stop()


async def test_growth_that_another_request_saw_first_wakes_too(world: World) -> None:
    """The hint is lost on the way; somebody else asks for the bounds, and now the cache knows."""
    reader = world.log()
    world.store.deaf = True
    await reader.start()
    writer = world.log()
    [stream] = await writer.create_streams(1)
    polling = await soon(poll(reader, [stream], 0))
    await append(writer, stream, batch_bytes([b"v"]))
    assert (await reader.bounds(stream)).end == 1
    assert values_in((await asyncio.wait_for(polling, 1))[0]) == [(0, b"v")]
    await reader.stop()


async def test_growth_while_another_stream_was_planned_is_not_slept_over(log: Log, world: World) -> None:
    first, second = await log.create_streams(2)
    for _ in range(3):
        await append(log, second, batch_bytes([b"v"]))
    reader = world.log(index_cache_entries=1)
    scan = world.store.hold("scan", "/offset-index/")
    polling = await soon(poll(reader, [first, second], 0, min_bytes=4 * len(batch_bytes([b"v"]))))
    await scan.reached()  # the first one is planned, and was empty
    await append(reader, first, batch_bytes([b"v"]))
    scan.release()
    results = await asyncio.wait_for(polling, 1)
    assert [len(values_in(result)) for result in results] == [1, 3]


async def test_a_stream_that_closes_wakes_its_polls(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    polling = await soon(poll(log, [stream], 0))
    await log.close_streams([stream])
    [result] = await asyncio.wait_for(polling, 1)
    assert isinstance(result.error, StreamClosed)


async def test_an_error_is_answered_at_once_with_whatever_else_there_is(log: Log) -> None:
    streams = await log.create_streams(2)
    await append(log, streams[0], batch_bytes([b"v"]))
    requests = [ReadRequest(streams[0], 0, EVERYTHING), ReadRequest(streams[1], 7, EVERYTHING)]
    began = now()
    good, bad = await log.fetch(requests, min_bytes=10_000, max_bytes=EVERYTHING, max_wait_ms=MINUTE_MS)
    assert now() == began
    assert values_in(good) == [(0, b"v")]
    assert isinstance(bad.error, OffsetOutOfRange)
    assert (bad.high_watermark, bad.start_offset) == (0, 0)


async def test_out_of_range_is_said_only_behind_a_barrier(log: Log, world: World) -> None:
    """Of an offset that exists, by a broker that reads from behind."""
    [stream] = await log.create_streams(1)
    reader = world.log()
    assert (await read(reader, stream, 0)).error is None
    world.store.fall_behind(stream % 2)
    for number in range(3):
        await append(log, stream, batch_bytes([b"%d" % number]))
    assert values_in(await read(reader, stream, 2)) == [(2, b"2")]


async def test_the_end_is_said_only_behind_a_barrier(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    reader = world.log()
    assert (await read(reader, stream, 0)).error is None
    await asyncio.sleep(2)  # it asked lately, and would not ask again
    world.store.fall_behind(stream % 2)
    await append(log, stream, batch_bytes([b"v"]))
    assert values_in(await read(reader, stream, 0)) == [(0, b"v")]


async def test_who_asks_for_nothing_is_not_told_an_old_end(log: Log, world: World) -> None:
    """As when a long poll ends early, because its broker is stopping."""
    [stream] = await log.create_streams(1)
    reader = world.log()
    assert (await read(reader, stream, 0)).error is None  # so it would not ask again for a while
    world.store.deaf = True
    await append(log, stream, batch_bytes([b"v"]))
    [result] = await reader.fetch(
        [ReadRequest(stream, 0, 1 << 20)], min_bytes=0, max_bytes=1 << 20, max_wait_ms=0
    )
    assert values_in(result) == [(0, b"v")]


async def test_nothing_is_never_said_by_a_store_that_did_not_answer(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    reader = world.log()
    assert (await read(reader, stream, 0)).error is None
    await asyncio.sleep(2)
    world.store.trap(Fate.REFUSE, "barrier")
    assert isinstance((await read(reader, stream, 0)).error, LogUnavailable)
    world.store.trap(Fate.REFUSE, "barrier")
    [result] = await poll(reader, [stream], 0, max_wait_ms=10)
    assert result.error is None, "at its deadline it asks again"
    world.store.trap(Fate.REFUSE, "barrier")
    [result] = await poll(reader, [stream], 0, max_wait_ms=10)
    assert isinstance(result.error, LogUnavailable), "asked lately, so only at the deadline, and in vain"


async def test_polls_are_counted_while_they_wait(world: World) -> None:
    heard: list[int] = []

    class Observer(LogObserver):
        def polling(self, count: int) -> None:
            heard.append(count)

    log = world.log(Observer())
    [stream] = await log.create_streams(1)
    polls = [await soon(poll(log, [stream], 0)) for _ in range(2)]
    await append(log, stream, batch_bytes([b"v"]))
    await asyncio.gather(*polls)
    assert heard == [1, 2, 1, 0]


async def test_a_poll_that_is_cancelled_leaves_nothing_behind() -> None:
    wakeups = Wakeups()

    async def wait() -> None:
        with wakeups.waiting([1, 2]) as waiter:
            await wakeups.sleep(waiter, 60)

    waiting = await soon(wait())
    assert (wakeups.streams(), wakeups.count) == ([1, 2], 1)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (wakeups.streams(), wakeups.count) == ([], 0)
    wakeups.wake(1)
