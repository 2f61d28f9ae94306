"""Numbers that are handed out once, and streams that come and go."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes, read, values_in

from dray.log import Log
from dray.log.entries import EntryKind
from dray.log.jobs.machine import Compaction, Input, Job, JobState
from dray.log.life.counters import IdCounter, encode
from dray.log.life.lifecycle import KEEP_CLOSED_DAYS, note_closed
from dray.log.types import Bounds, LogUnavailable, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import Limits, Put
from dray.metadata.update import MOST_FAILURES
from dray_simulation.kernel.runtime import SimulatedRuntime

KEY = "/dray/v1/counters/test"
DAY = 24 * 3600.0


def counter(world: World, block: int = 3) -> tuple[IdCounter, ScriptedStore]:
    store = ScriptedStore(world.runtime, world.state)
    return IdCounter(store, world.runtime, KEY, block), store


# --- counters


async def test_numbers_come_in_blocks(world: World) -> None:
    first, _ = counter(world)
    second, _ = counter(world)
    assert await first.take() == [0]
    assert await second.take(2) == [3, 4]
    assert await first.take(4) == [1, 2, 6, 7]
    assert await second.take(10) == [5, *range(9, 18)]


async def test_many_at_once_get_each_number_once(world: World) -> None:
    takers = [counter(world)[0] for _ in range(4)]
    taken = await asyncio.gather(*[taker.take(count) for taker in takers for count in (1, 2, 5, 1)])
    numbers = [number for some in taken for number in some]
    assert len(numbers) == len(set(numbers)) == 36


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE, Fate.LATE])
async def test_a_block_whose_reply_was_lost_is_nobodys(world: World, fate: Fate) -> None:
    first, store = counter(world)
    other, _ = counter(world)
    trap = store.trap(fate, "write", KEY)
    mine = await first.take(3)
    theirs = await other.take(3)
    if fate is Fate.LATE:
        trap.land()
    mine += await first.take(3)
    theirs += await other.take(3)
    assert len({*mine, *theirs}) == 12
    assert (0 in mine) == (fate is not Fate.LOSE_REPLY), "numbers may be skipped"


async def test_no_numbers_without_the_store(world: World) -> None:
    taker, store = counter(world)
    store.trap(Fate.REFUSE, "get")
    with pytest.raises(LogUnavailable, match="no numbers to be had from /dray/v1/counters/test"):
        await taker.take()
    assert await taker.take() == [0]


async def test_a_counter_whose_replies_are_always_lost_gives_up(world: World) -> None:
    taker, store = counter(world)
    for _ in range(MOST_FAILURES):
        store.trap(Fate.LOSE_REPLY, "write")
    with pytest.raises(LogUnavailable, match="no numbers to be had from /dray/v1/counters/test"):
        await taker.take()
    assert await taker.take() == [MOST_FAILURES * 3], "the blocks that may be ours are nobody's"


async def test_producer_ids_are_never_handed_out_twice(world: World) -> None:
    brokers = [world.log(producer_id_block=5) for _ in range(3)]
    ids = await asyncio.gather(*[broker.allocate_producer_id() for broker in brokers for _ in range(7)])
    assert len(set(ids)) == 21


@pytest.mark.parametrize("stored", [None, 0, 5_000, (1 << 48) - 1])
async def test_producer_ids_never_meet_those_of_a_kafka(world: World, stored: int | None) -> None:
    """Its own are below 2^48. A broker that runs for long before a topic of it is linked has given ids by
    then, and its producers keep them."""
    if stored is not None:
        world.log()
        await world.store.write(keys.CLUSTER_DOMAIN, [Put(keys.PRODUCER_COUNTER, encode(stored))])
    brokers = [world.log(producer_id_block=5) for _ in range(3)]
    ids = [await broker.allocate_producer_id() for _ in range(12) for broker in brokers]
    assert len(set(ids)) == 36
    assert all(1 << 48 <= producer_id < 1 << 63 for producer_id in ids)
    assert len({producer_id >> 48 for producer_id in ids}) == 1, "all of a cluster count on from its first"


async def test_producer_ids_of_two_clusters_hardly_ever_meet() -> None:
    first = {
        await World(runtime=SimulatedRuntime(seed)).log().allocate_producer_id() >> 48 for seed in range(100)
    }
    assert len(first) > 95


# --- creating


async def test_created_streams_are_there_and_empty(log: Log, world: World) -> None:
    streams = await log.create_streams(5)
    assert len(set(streams)) == 5
    for stream in streams:
        assert await world.log().bounds(stream) == Bounds(0, 0)


async def test_many_streams_are_created_within_the_limits_of_the_engine() -> None:
    world = World(limits=Limits(operations=9, value_bytes=1 << 20))
    log = world.log()
    streams = await log.create_streams(20)
    assert {await log.bounds(stream) for stream in streams} == {Bounds(0, 0)}


async def test_a_creation_that_is_unclear_burns_its_ids(log: Log, world: World) -> None:
    broker = world.log()
    late = world.store.trap(Fate.LATE, "write", "/hwm")
    with pytest.raises(LogUnavailable):
        await broker.create_streams(1)
    [other] = await broker.create_streams(1)
    late.land()
    made = [key for key in world.keys(keys.ROOT) if key.endswith("/hwm")]
    assert len(made) == 2
    assert keys.high_watermark(other) in made, "the late one is another"


async def test_a_late_copy_of_a_creation_changes_nothing(log: Log, world: World) -> None:
    broker = world.log()
    copy = world.store.trap(Fate.COPY, "write", "/hwm")
    [stream] = await broker.create_streams(1)
    for value in (b"a", b"b", b"c"):
        await append(broker, stream, batch_bytes([value], producer=(1, 0, value[0] - ord("a"))))
    await broker.delete_records(stream, 1)
    copy.land()
    reader = world.log()
    assert await reader.bounds(stream) == Bounds(1, 3)
    again = await append(reader, stream, batch_bytes([b"b"], producer=(1, 0, 1)))
    assert again.base_offset == 1, "the producers are still known"


# --- closing


async def test_a_late_copy_of_a_creation_opens_no_closed_stream(world: World) -> None:
    broker = world.log()
    copy = world.store.trap(Fate.COPY, "write", "/hwm")
    [stream] = await broker.create_streams(1)
    await append(broker, stream, batch_bytes([b"a"]))
    await broker.close_streams([stream])
    await broker.sweep_streams([stream])
    copy.land()
    with pytest.raises(StreamClosed):
        await append(world.log(), stream, batch_bytes([b"b"]))
    assert isinstance((await read(world.log(), stream, 0)).error, StreamClosed)


async def test_closing_waits_out_appends_that_come_between(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    closer = world.log()
    held = world.store.hold("write", "/hwm")
    closing = asyncio.ensure_future(closer.close_streams([stream]))
    await held.reached()
    await append(log, stream, batch_bytes([b"a"]))
    held.release()
    await closing
    with pytest.raises(StreamClosed):
        await append(log, stream, batch_bytes([b"b"]))


async def test_closing_a_closed_stream_or_none_is_done_at_once(log: Log) -> None:
    [stream] = await log.create_streams(1)
    await log.close_streams([stream])
    await log.close_streams([stream, stream + 1000])


async def test_an_append_under_way_is_refused_when_its_stream_closes(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    broker = world.log()
    held = world.store.hold("write", "/hwm")
    appending = asyncio.ensure_future(append(broker, stream, batch_bytes([b"a"])))
    await held.reached()
    await log.close_streams([stream])
    held.release()
    with pytest.raises(StreamClosed):
        await appending


async def test_sweeping_lets_go_of_everything_but_the_closed_mark() -> None:
    world = World(limits=Limits(operations=20, value_bytes=1 << 20))
    log = world.log(collect_grace=0.0)
    kept, swept = await log.create_streams(2)
    for number in range(15):
        await append(log, kept, batch_bytes([b"k%d" % number]))
        await append(log, swept, batch_bytes([b"s%d" % number]))
    await asyncio.sleep(1)
    await log.close_streams([swept])
    await log.sweep_streams([swept])
    await log.sweep_streams([swept])
    left = [key for key in world.keys(keys.stream(swept)) if not key.endswith("/hwm")]
    assert left == []
    assert [key for key in world.keys(keys.REFERENCES) if int(key.split("/")[6]) == swept] == []
    await log.collector.run()
    assert len(world.bucket.objects) == 15
    assert len(values_in(await read(world.log(), kept, 0))) == 15


async def test_sweeping_from_behind_misses_nothing(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    sweeper = world.log()
    world.store.fall_behind(stream % DOMAINS)
    for _ in range(3):
        await append(log, stream, batch_bytes([b"v"]))
    await log.close_streams([stream])
    await sweeper.sweep_streams([stream])
    assert world.keys(keys.offset_index(stream)) == []


# --- what is left of a deleted stream


async def closed_and_swept(log: Log) -> int:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    await log.close_streams([stream])
    await log.sweep_streams([stream])
    return stream


async def test_the_job_of_a_swept_stream_goes_with_it(log: Log, world: World) -> None:
    stream = await closed_and_swept(log)
    assert keys.job(stream) not in world.keys(keys.JOBS)


@pytest.mark.parametrize("state", [JobState.PARQUET_WRITTEN, JobState.ICEBERG_COMMITTED])
async def test_a_job_that_has_written_a_file_stays(log: Log, world: World, state: JobState) -> None:
    """Only a compactor can take the file out of the table."""
    [stream] = await log.create_streams(1)
    compaction = Compaction(
        "orders", UUID(int=1), 0, 0, 1, (Input(1, 1, 1, UUID(int=2), EntryKind.WAL, ""),), table=True
    )
    job = Job(1, state, compaction=compaction)
    await world.log()._streams.write(stream, [Put(keys.job(stream), job.encode())])
    await log.close_streams([stream])
    await log.sweep_streams([stream])
    assert keys.job(stream) in world.keys(keys.JOBS)


async def test_a_closed_mark_goes_after_a_month(world: World) -> None:
    log = world.log()
    stream = await closed_and_swept(log)
    lifecycle = log._lifecycle
    await asyncio.sleep(KEEP_CLOSED_DAYS * DAY)
    assert await lifecycle.forget_closed() == 0, "not a day too early"
    assert world.keys(keys.stream(stream)) == [keys.high_watermark(stream)]
    await asyncio.sleep(DAY)
    await lifecycle.forget_closed()
    assert world.keys(keys.stream(stream)) == world.keys(keys.CLOSED) == []
    with pytest.raises(StreamClosed):
        await append(world.log(), stream, batch_bytes([b"b"]))
    with pytest.raises(StreamClosed):
        await append(log, stream, batch_bytes([b"b"]))


async def test_a_broker_collects_closed_marks(world: World) -> None:
    log = world.log(collect_seconds=DAY)
    stream = await closed_and_swept(log)
    await asyncio.sleep(KEEP_CLOSED_DAYS * DAY)  # before it runs: days of its background work take seconds
    assert world.keys(keys.stream(stream)) != []
    await log.start()
    await asyncio.sleep(2 * DAY)
    await log.stop()
    assert world.keys(keys.stream(stream)) == []


async def test_a_mark_without_a_note_stays(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    await log.close_streams([stream])
    await asyncio.sleep(2 * KEEP_CLOSED_DAYS * DAY)
    assert await log._lifecycle.forget_closed() == 0
    assert keys.high_watermark(stream) in world.keys(keys.stream(stream))


async def test_a_stream_that_is_open_is_not_forgotten(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    await log._streams.write(stream, [note_closed(stream, world.runtime.wall_ms())])
    await asyncio.sleep(2 * KEEP_CLOSED_DAYS * DAY)
    assert await log._lifecycle.forget_closed() == 0
    assert (await append(world.log(), stream, batch_bytes([b"a"]))).base_offset == 0


async def test_a_broker_that_slept_appends_to_no_stream_whose_mark_is_gone(world: World) -> None:
    """Its state is of a version that was; nothing it writes at the mark can apply to a key that is absent."""
    log = world.log()
    [stream] = await log.create_streams(1)
    sleeper = world.log()
    await append(sleeper, stream, batch_bytes([b"a"]))
    held = world.store.hold("write", "/hwm")
    late = asyncio.ensure_future(append(sleeper, stream, batch_bytes([b"b"])))
    await held.reached()
    await log.close_streams([stream])
    await log.sweep_streams([stream])
    await asyncio.sleep((KEEP_CLOSED_DAYS + 1) * DAY)
    assert await log._lifecycle.forget_closed() == 1
    held.release()
    with pytest.raises((StreamClosed, LogUnavailable)):  # it may have no time left to find out which
        await late
    assert keys.high_watermark(stream) not in world.keys(keys.stream(stream))
