"""Deleted means deleted: what one broker deletes, no broker serves for longer than the bound."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.log.harness import DOMAINS, EVERYTHING, World, append, batch_bytes, read, soon, values_in

from dray.log import Log
from dray.log.life.retention import Retention
from dray.log.stream_store import StreamStore
from dray.log.types import Bounds, LogUnavailable, OffsetOutOfRange, ReadRequest, ReadResult, StreamClosed
from dray.metadata import keys

BOUND = 5.0


async def filled(log: Log, count: int = 10) -> int:
    [stream] = await log.create_streams(1)
    for number in range(count):
        await append(log, stream, batch_bytes([b"secret %d" % number]))
    return stream


async def reading_broker(world: World, *, deaf: bool) -> tuple[Log, ScriptedStore]:
    """Broker B, with bounds of its own in memory."""
    log = world.log(tail_cache_bytes=0)
    world.store.deaf = deaf
    await log.start()
    return log, world.store


def is_out_of_range(result: ReadResult) -> bool:
    return isinstance(result.error, OffsetOutOfRange)


async def pass_by(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def test_what_another_broker_deleted_is_gone_with_the_hint(world: World) -> None:
    deleting = world.log()
    stream = await filled(deleting)
    reading, _ = await reading_broker(world, deaf=False)
    assert len(values_in(await read(reading, stream, 0))) == 10
    assert await deleting.delete_records(stream, 8) == 8
    await pass_by(0.01)
    result = await read(reading, stream, 0)
    assert is_out_of_range(result)
    assert result.start_offset == 8
    assert [offset for offset, _ in values_in(await read(reading, stream, 8))] == [8, 9]
    await reading.stop()


async def test_what_another_broker_deleted_is_gone_after_the_bound_though_no_hint_comes(world: World) -> None:
    deleting = world.log()
    stream = await filled(deleting)
    reading, _ = await reading_broker(world, deaf=True)
    assert len(values_in(await read(reading, stream, 0))) == 10
    await deleting.delete_records(stream, 8)
    await pass_by(BOUND + 0.001)
    assert is_out_of_range(await read(reading, stream, 0))
    await reading.stop()


async def test_a_consumer_that_reads_on_and_on_does_not_keep_the_start_where_it_was(world: World) -> None:
    """Nor does it wait: the store is asked in the background."""
    deleting = world.log()
    stream = await filled(deleting)
    reading, store = await reading_broker(world, deaf=True)
    await read(reading, stream, 0)
    await deleting.delete_records(stream, 8)
    passed = 0.0
    while passed <= BOUND / 2:
        assert len(values_in(await read(reading, stream, 0))) == 10
        await pass_by(0.5)
        passed += 0.5
    await read(reading, stream, 0)  # which has the store asked
    await pass_by(0.5)
    before = len(store.barriers)
    [result] = await reading.fetch(
        [ReadRequest(stream, 8, EVERYTHING)], min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=0
    )
    assert (result.start_offset, len(store.barriers)) == (8, before), "known, and nobody was asked for it"
    assert is_out_of_range(await read(reading, stream, 0))
    await reading.stop()


async def test_reads_that_come_from_behind_confirm_nothing(world: World) -> None:
    """The bound counts from a barrier: what is read without one may be as old as it likes."""
    deleting = world.log()
    stream = await filled(deleting)
    reading, store = await reading_broker(world, deaf=True)
    await read(reading, stream, 0)
    store.fall_behind(stream % DOMAINS)
    await deleting.delete_records(stream, 8)
    await pass_by(BOUND - 0.001)
    await reading._reader.refresh(stream)  # for a hint of growth, say
    await pass_by(0.002)
    assert is_out_of_range(await read(reading, stream, 0))
    await reading.stop()


async def test_bounds_that_were_dropped_to_make_room_are_read_behind_a_barrier(world: World) -> None:
    """Between a fetch's question and its plan."""
    deleting = world.log()
    stream = await filled(deleting)
    reading, store = await reading_broker(world, deaf=True)
    store.fall_behind(stream % DOMAINS)
    await deleting.delete_records(stream, 8)
    with pytest.raises(OffsetOutOfRange):
        await reading._reader.plan(ReadRequest(stream, 0, EVERYTHING), EVERYTHING, True)
    await reading.stop()


async def test_an_answer_that_was_asked_for_before_the_hint_does_not_settle_it(world: World) -> None:
    deleting = world.log()
    stream = await filled(deleting)
    reading, store = await reading_broker(world, deaf=False)
    await read(reading, stream, 0)
    held = [store.hold("get", part, answered=True) for part in ("/hwm", "/start")]
    asking = await soon(reading.bounds(stream))
    for trap in held:
        await trap.reached()
    await deleting.delete_records(stream, 8)
    await pass_by(0.01)
    for trap in held:
        trap.release()
    assert await asking == Bounds(0, 10)
    assert is_out_of_range(await read(reading, stream, 0))
    await reading.stop()


async def test_while_the_store_is_away_reads_go_on_for_the_bound_and_are_refused_then(world: World) -> None:
    writing = world.log()
    stream = await filled(writing)
    reading, store = await reading_broker(world, deaf=False)
    await read(reading, stream, 0)
    for _ in range(20):
        store.trap(Fate.REFUSE, "barrier")
    await pass_by(BOUND - 0.1)
    assert len(values_in(await read(reading, stream, 0))) == 10
    await pass_by(0.2)
    result = await read(reading, stream, 0)
    assert isinstance(result.error, LogUnavailable)
    assert not result.buffers
    store._set.clear()
    assert len(values_in(await read(reading, stream, 0))) == 10
    await reading.stop()


async def test_many_streams_that_nobody_can_be_asked_about_cost_one_question_each(world: World) -> None:
    """All of them side by side, and none again: a fetch of a thousand partitions would wait for hours."""
    writing = world.log()
    streams = [await filled(writing, 1) for _ in range(4)]
    reading, store = await reading_broker(world, deaf=False)
    requests = [ReadRequest(stream, 0, EVERYTHING) for stream in streams]

    async def fetch() -> list[ReadResult]:
        return await reading.fetch(requests, min_bytes=1, max_bytes=EVERYTHING, max_wait_ms=0)

    assert [len(values_in(result)) for result in await fetch()] == [1] * 4
    await pass_by(BOUND + 1)
    for _ in range(20):
        store.trap(Fate.REFUSE, "barrier")
    before = len(store.barriers)
    assert all(isinstance(result.error, LogUnavailable) for result in await fetch())
    assert len(store.barriers) - before <= 2 * DOMAINS  # a mark, and where that fails a barrier
    await reading.stop()


async def test_a_long_poll_does_not_outlive_the_bound(world: World) -> None:
    deleting = world.log()
    stream = await filled(deleting)
    reading, _ = await reading_broker(world, deaf=True)
    polling = await soon(
        reading.fetch(
            [ReadRequest(stream, 0, EVERYTHING)],
            min_bytes=1 << 20,
            max_bytes=EVERYTHING,
            max_wait_ms=60_000,
        )
    )
    await deleting.delete_records(stream, 8)
    await pass_by(BOUND + 1)
    reading._wakeups.wake(stream)
    [result] = await asyncio.wait_for(polling, 1)
    assert is_out_of_range(result)
    await reading.stop()


async def test_one_s_own_broker_forgets_at_once_though_the_store_does_not_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = world.log()
    stream = await filled(log)
    assert len(values_in(await read(log, stream, 0))) == 10
    kept = Retention.raise_start

    async def raise_start(self: Retention, stream: int, before: int, **options: bool) -> int:
        start = await kept(self, stream, before, **options)
        world.store.trap(Fate.REFUSE, "barrier")
        return start

    monkeypatch.setattr(Retention, "raise_start", raise_start)
    assert await log.delete_records(stream, 8) == 8
    assert is_out_of_range(await read(log, stream, 0))


async def test_the_tail_and_the_index_let_go_of_what_was_deleted(world: World) -> None:
    log = world.log()
    stream = await filled(log)
    full = log._tail.size, log._index.size
    await log.delete_records(stream, 8)
    assert not log._tail.holds(stream, 7)
    assert log._tail.holds(stream, 8)
    assert log._tail.size == full[0] // 5
    assert log._index.find(stream, 7) is None
    assert log._index.size < full[1]


async def test_retention_tells_its_broker(world: World) -> None:
    log = world.log()
    stream = await filled(log)
    await read(log, stream, 0)
    retention = Retention(
        StreamStore(world.store, DOMAINS, 1000), world.runtime, world.settings, log.start_raised
    )
    assert await retention.keep(stream, -1, 0)
    assert is_out_of_range(await read(log, stream, 0))
    assert log._tail.size == 0


async def test_a_deleted_stream_is_not_served_after_the_bound_though_no_hint_comes(world: World) -> None:
    """Its topic was deleted, and made anew perhaps: with other streams."""
    deleting = world.log()
    stream = await filled(deleting)
    reading, _ = await reading_broker(world, deaf=True)
    assert len(values_in(await read(reading, stream, 0))) == 10
    await deleting.close_streams([stream])
    await deleting.sweep_streams([stream])
    await pass_by(BOUND + 0.001)
    result = await read(reading, stream, 0)
    assert isinstance(result.error, StreamClosed)
    assert not result.buffers
    await reading.stop()


@pytest.mark.parametrize("barrier", [False, True])
async def test_a_stream_that_is_deleted_while_it_is_asked_about_does_not_start_at_nought(
    world: World, barrier: bool
) -> None:
    """Its high watermark and its start are read side by side; in between it is closed and swept."""
    log = world.log()
    stream = await filled(log)
    await log.delete_records(stream, 8)
    asking_log = world.log()
    read_before = world.store.hold("get", "/hwm", answered=True)
    late = world.store.hold("get", "/start")
    asking = await soon(asking_log._reader.refresh(stream, barrier=barrier))
    await read_before.reached()
    await late.reached()
    await log.close_streams([stream])
    await log.sweep_streams([stream])
    read_before.release()
    late.release()
    with pytest.raises(StreamClosed):
        await asking


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (keys.high_watermark(7), (7, keys.HIGH_WATERMARK)),
        (keys.start(7), (7, keys.START)),
        (keys.index_entry(7, 3, 4), (7, f"offset-index/{3:020d}/{4:020d}")),
        (keys.topic("hwm"), (-1, "")),
        (keys.topic("start"), (-1, "")),
        (keys.group("hwm"), (-1, "")),
        (f"{keys.STREAMS}x/start", (-1, "")),
        (keys.STREAMS, (-1, "")),
    ],
)
def test_which_stream_a_key_belongs_to(key: str, wanted: tuple[int, str]) -> None:
    assert keys.part_of_stream(key) == wanted
