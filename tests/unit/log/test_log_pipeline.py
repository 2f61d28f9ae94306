"""From batches to objects: when an object closes, how many are in flight, in which order, what becomes of
those that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import (
    DOMAINS,
    QUICK,
    World,
    append,
    batch_bytes,
    read,
    soon,
    start_append,
    values_in,
)

from dray.kafka.records import twin
from dray.log import Log, LogObserver
from dray.log.append.chunks import PendingBatch
from dray.log.types import AppendResult, LogUnavailable
from dray.log.wal import decode, parse_object_path
from dray.metadata import keys
from dray.metadata.contract import Limits

STEP = len(batch_bytes([b"0"]))


def batch(number: int = 0, size: int = 1) -> bytearray:
    return batch_bytes([b"%d" % number * size])


async def objects_of(world: World, log: Log, stream: int) -> list[list[int]]:
    """The offsets of each object of a stream, in order."""
    found: dict[str, list[int]] = {}
    for offset in range((await log.bounds(stream)).end):
        found.setdefault((await log._reader.find(stream, offset)).path, []).append(offset)
    return list(found.values())


def now() -> float:
    return asyncio.get_running_loop().time()


# --- what an object holds


async def test_an_object_holds_streams_of_one_domain_only(log: Log, world: World) -> None:
    """However many arrive together: one write commits an object, and reaches the keys of one domain."""
    streams = await log.create_streams(4 * DOMAINS)
    await asyncio.gather(*[append(log, stream, batch(stream)) for stream in streams for _ in range(3)])
    seen: set[int] = set()
    domains: set[int] = set()
    for path, stored in world.bucket.objects.items():
        if (place := parse_object_path(path)) is None:
            continue
        found = decode(stored.data, path)
        inside = {chunk.entry.stream_id for chunk in found.chunks}
        assert {keys.domain_of_stream(stream, DOMAINS) for stream in inside} == {place.domain}
        assert found.header.domain == place.domain
        seen |= inside
        domains.add(place.domain)
    assert seen == set(streams)
    assert domains == set(range(DOMAINS))


# --- when an object closes


async def test_a_lone_batch_waits_for_nobody(log: Log) -> None:
    [stream] = await log.create_streams(1)
    began = now()
    await append(log, stream, batch())
    assert now() == began


async def test_what_arrives_together_goes_together(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    await asyncio.gather(*[append(log, stream, batch(number)) for number in range(5)])
    assert await objects_of(world, log, stream) == [[0, 1, 2, 3, 4]]


async def test_what_arrives_while_one_is_in_flight_goes_with_the_next(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    upload = world.objects.hold("put")
    appends = [start_append(log, stream, batch(0))]
    await upload.reached()
    for number in range(1, 4):
        appends.append(start_append(log, stream, batch(number)))
        await asyncio.sleep(1)
    upload.release()
    await asyncio.gather(*appends)
    assert await objects_of(world, log, stream) == [[0], [1, 2, 3]]


async def test_under_load_an_object_stays_open_for_as_long_as_more_keep_coming(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    upload = world.objects.hold("put")
    appends = [start_append(log, stream, batch(0))]
    await upload.reached()
    appends.append(start_append(log, stream, batch(1)))
    upload.release()
    await appends[0]
    for number in range(2, 10):  # one every half a millisecond, for longer than it may wait
        appends.append(start_append(log, stream, batch(number)))
        await asyncio.sleep(0.0005)
    await asyncio.gather(*appends)
    first, second, *_ = await objects_of(world, log, stream)
    assert first == [0]
    assert 4 <= len(second) <= 9, "not at once, and not for ever"


async def test_the_linger_is_kept_and_is_the_longest_wait(world: World) -> None:
    log = world.log(flush_linger=0.25)
    [stream] = await log.create_streams(1)
    began = now()
    first = start_append(log, stream, batch(0))
    await asyncio.sleep(0.2)
    second = start_append(log, stream, batch(1))
    await asyncio.gather(first, second)
    assert now() - began == pytest.approx(0.25)
    third = start_append(log, stream, batch(2))
    await third
    assert now() - began == pytest.approx(0.5)
    assert await objects_of(world, log, stream) == [[0, 1], [2]]


async def test_a_producer_that_is_alone_waits_for_company_once(world: World) -> None:
    """It sends nothing before its answer: each object has one batch, with a linger or without."""
    log = world.log(flush_linger=0.25)
    [stream] = await log.create_streams(1)
    waits = []
    for number in range(4):
        began = now()
        await start_append(log, stream, batch(number))
        waits.append(now() - began)
    assert waits == pytest.approx([0.25, 0.0, 0.0, 0.0])


async def test_what_one_producer_sends_before_an_answer_goes_at_once(world: World) -> None:
    """A window of several batches, and more than half a MiB: none of it waits, and objects are as many."""
    log = world.log(flush_linger=0.25)
    [stream] = await log.create_streams(1)
    large = batch_bytes([b"x" * 200_000])
    waits = []
    for _ in range(3):
        began = now()
        await asyncio.gather(*(start_append(log, stream, large) for _ in range(4)))
        waits.append(now() - began)
    assert waits == pytest.approx([0.25, 0.0, 0.0], abs=0.02), "but for what a thread takes"
    assert [len(offsets) for offsets in await objects_of(world, log, stream)] == [4, 4, 4]


async def test_what_came_while_one_producers_object_was_uploaded_goes_with_its_end(world: World) -> None:
    log = world.log(flush_linger=60.0)
    [stream] = await log.create_streams(1)
    large = batch_bytes([b"x" * 600_000])
    first = start_append(log, stream, large)
    await asyncio.sleep(60.0)
    await first
    upload = world.objects.hold("put")
    second = start_append(log, stream, large)
    await upload.reached()
    third = start_append(log, stream, large)
    began = now()
    upload.release()
    await asyncio.gather(second, third)
    assert now() - began == pytest.approx(0.0, abs=0.02), "but for what a thread takes"


async def test_producers_of_several_streams_wait_for_one_another(world: World) -> None:
    """An object for each of them would be a request to the store for each."""
    log = world.log(flush_linger=0.25)
    streams = (await log.create_streams(2 * DOMAINS))[::DOMAINS]
    for _ in range(3):
        began = now()
        first = start_append(log, streams[0], batch(0))
        await asyncio.sleep(0.1)
        await asyncio.gather(first, start_append(log, streams[1], batch(0)))
        assert now() - began == pytest.approx(0.25)
    assert len(world.bucket.objects) == 3


@pytest.mark.parametrize(
    ("bound", "per_object"),
    [({"object_bytes": 3 * STEP}, 3), ({"max_commit_bytes": 4 * 48}, 4)],
    ids=["bytes", "batches"],
)
async def test_a_full_object_waits_for_nothing(world: World, bound: dict[str, Any], per_object: int) -> None:
    log = world.log(flush_linger=60.0, **bound)
    [stream] = await log.create_streams(1)
    began = now()
    appends = [start_append(log, stream, batch(number % 10)) for number in range(2 * per_object)]
    await asyncio.gather(*appends)
    assert now() == began
    assert [len(offsets) for offsets in await objects_of(world, log, stream)] == [per_object] * 2


async def test_an_object_is_for_no_more_streams_than_a_write_can_hold() -> None:
    world = World(limits=Limits(operations=40, value_bytes=1 << 20))
    log = world.log(flush_linger=60.0)
    streams = (await log.create_streams(8 * DOMAINS))[::DOMAINS]
    appends = [start_append(log, stream, batch()) for stream in streams]
    await asyncio.gather(*appends)
    assert len(world.bucket.objects) == 2


async def test_an_object_has_no_more_batches_than_a_write_can_hold_twice() -> None:
    world = World(limits=Limits(operations=1000, value_bytes=1024 + 2 * 4 * 48))
    log = world.log(flush_linger=60.0)
    [stream] = await log.create_streams(1)
    appends = [start_append(log, stream, batch(number)) for number in range(8)]
    await asyncio.gather(*appends)
    assert [len(offsets) for offsets in await objects_of(world, log, stream)] == [4, 4]


async def test_a_large_object_is_encoded_off_the_loop(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    value = b"x" * 400_000
    await append(log, stream, batch_bytes([value]))
    assert values_in(await read(world.log(), stream, 0)) == [(0, value)]


# --- how many, and in which order


async def test_uploads_in_flight_are_bounded(world: World) -> None:
    log = world.log(object_bytes=1, uploads_in_flight=3)
    [stream] = await log.create_streams(1)
    held = [world.objects.hold("put") for _ in range(8)]
    appends = [start_append(log, stream, batch(number)) for number in range(8)]
    for trap in held:
        await trap.reached()
        assert world.objects.uploading <= 3
        trap.release()
    await asyncio.gather(*appends)
    assert world.objects.most_uploading == 3


async def test_objects_are_committed_in_the_order_in_which_they_closed(world: World) -> None:
    log = world.log(object_bytes=1)
    [stream] = await log.create_streams(1)
    first_upload = world.objects.hold("put")
    first = start_append(log, stream, batch(0))
    await first_upload.reached()
    second = start_append(log, stream, batch(1))
    third = start_append(log, stream, batch(2))
    await asyncio.sleep(5)
    assert len(world.bucket.objects) == 2, "the others are uploaded"
    assert not second.done()
    first_upload.release()
    answers = await asyncio.gather(first, second, third)
    assert [answer.base_offset for answer in answers] == [0, 1, 2]


async def test_an_object_that_fails_holds_up_nobody_and_lets_nobody_pass(world: World) -> None:
    """The middle one of three fails while the first is still on its way."""
    log = world.log(object_bytes=1)
    [stream] = await log.create_streams(1)
    slow = world.objects.hold("put")
    first = start_append(log, stream, batch(0))
    await slow.reached()
    world.objects.trap(Fate.REFUSE, "put")
    second = start_append(log, stream, batch(1))
    with pytest.raises(LogUnavailable):
        await second
    third = start_append(log, stream, batch(2))
    await asyncio.sleep(5)
    assert not third.done(), "the first is still before it"
    slow.release()
    assert [(await first).base_offset, (await third).base_offset] == [0, 1]


# --- stopping


async def test_stopping_flushes_commits_and_settles(world: World) -> None:
    log = world.log(flush_linger=60.0, settle_seconds=60.0)
    await log.start()
    streams = await log.create_streams(3)
    appends = [start_append(log, stream, batch(number)) for number in range(4) for stream in streams]
    await log.stop()
    assert all(done.done() and done.exception() is None for done in appends)
    assert world.keys(keys.STAGING) == []
    for stream in streams:
        assert len(values_in(await read(world.log(), stream, 0))) == 4
    with pytest.raises(LogUnavailable, match="stopping"):
        await append(log, streams[0], batch())


async def test_stopping_waits_for_what_is_in_flight(world: World) -> None:
    log = world.log(object_bytes=1, uploads_in_flight=2)
    [stream] = await log.create_streams(1)
    held = world.objects.hold("put")
    appends = [start_append(log, stream, batch(number)) for number in range(6)]
    stopping = await soon(log.stop())
    await asyncio.wait([stopping], timeout=60)
    assert not stopping.done()
    held.release()
    await stopping
    assert [done.result().base_offset for done in appends] == list(range(6))


# --- what fails


async def test_a_failed_upload_is_retriable_and_leaves_nothing(world: World) -> None:
    log = world.log(collect_grace=0.0)
    [stream] = await log.create_streams(1)
    for fate in (Fate.REFUSE, Fate.LOSE, Fate.LOSE_REPLY):
        world.objects.trap(fate, "put")
        with pytest.raises(LogUnavailable, match="the object store did not take the records"):
            await append(log, stream, batch())
    await asyncio.sleep(1)
    assert world.keys(keys.STAGING) == world.keys(keys.REFERENCES) == []
    await log.collector.run()
    assert world.bucket.objects == {}
    assert world.keys(keys.OBJECTS) == []
    assert (await append(log, stream, batch())).base_offset == 0


@pytest.mark.parametrize("fate", [Fate.REFUSE, Fate.LOSE, Fate.LOSE_REPLY])
async def test_a_staging_write_that_is_unclear_burns_its_id(world: World, fate: Fate) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    world.store.trap(fate, "write", keys.STAGING)
    await append(log, stream, batch())
    [path] = world.bucket.objects
    marks = world.keys(keys.STAGING)
    assert len(marks) == (2 if fate is Fate.LOSE_REPLY else 1)
    burnt = [mark for mark in marks if keys.wal_id_of(mark).hex not in path.replace("-", "")]
    assert len(burnt) == (1 if fate is Fate.LOSE_REPLY else 0), "and nothing is uploaded under it"


async def test_staging_is_tried_so_often_and_no_more(world: World) -> None:
    log = world.log(retry_limit=3)
    [stream] = await log.create_streams(1)
    for _ in range(3):
        world.store.trap(Fate.REFUSE, "write", keys.STAGING)
    with pytest.raises(LogUnavailable, match="staging mark"):
        await append(log, stream, batch())
    assert world.bucket.objects == {}
    assert (await append(log, stream, batch())).base_offset == 0


async def test_a_client_that_goes_away_does_not_take_its_batch_along(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    start_append(log, stream, batch(7)).cancel()
    second = await append(log, stream, batch(8))
    assert second.base_offset == 1
    assert [value for _, value in values_in(await read(log, stream, 0))] == [b"7", b"8"]


async def test_an_answer_is_given_once() -> None:
    future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
    pending = PendingBatch(None, memoryview(b""), -1, future)  # type: ignore[arg-type]
    future.cancel()
    pending.acknowledge(AppendResult(0, -1, 0))
    assert pending.answered, "though nobody heard it"
    pending.refuse(LogUnavailable("too late"))


# --- settling


async def test_settling_rides_on_the_next_staging_write(world: World) -> None:
    log = world.log(settle_seconds=60.0)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch(0))
    [first] = world.keys(keys.STAGING)
    await append(log, stream, batch(1))
    [second] = world.keys(keys.STAGING)
    assert first != second
    await asyncio.sleep(61)
    assert world.keys(keys.STAGING) == [], "and by itself where there is no next"


async def test_settling_that_fails_to_ride_is_tried_with_the_next(world: World) -> None:
    log = world.log(settle_seconds=60.0)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch(0))
    world.store.trap(Fate.REFUSE, "write", keys.STAGING)
    await append(log, stream, batch(1))
    assert len(world.keys(keys.STAGING)) == 1


async def test_no_more_rides_than_a_write_can_hold() -> None:
    """After an outage of the object store there is much to settle."""
    world = World(limits=Limits(operations=40, value_bytes=1 << 20))
    log = world.log(settle_seconds=60.0, uploads_in_flight=12)
    streams = (await log.create_streams(4 * DOMAINS))[::DOMAINS]
    for _ in range(12):
        world.objects.trap(Fate.REFUSE, "put")
    failing = [start_append(log, stream, batch()) for _ in range(12) for stream in streams]
    await asyncio.wait(failing)
    assert all(isinstance(failed.exception(), LogUnavailable) for failed in failing)
    assert (await append(log, streams[0], batch())).base_offset == 0
    await asyncio.sleep(61)
    assert len(world.keys(keys.REFERENCES)) == 1
    assert world.keys(keys.STAGING) == []


async def test_flushes_are_told(world: World) -> None:
    heard: list[int] = []

    class Observer(LogObserver):
        def flushed(self, size: int, seconds: float) -> None:
            heard.append(size)

    log = world.log(Observer())
    [stream] = await log.create_streams(1)
    await append(log, stream, batch())
    [stored] = world.bucket.objects.values()
    assert heard == [len(stored.data)]


async def test_what_is_stored_is_what_was_sent(log: Log, world: World) -> None:
    """The object keeps the producer's base offset; only what is served is patched."""
    [stream] = await log.create_streams(1)
    await append(log, stream, batch(1))
    sent = batch(2)
    await append(log, stream, sent)
    assert any(bytes(sent) in stored.data for stored in world.bucket.objects.values())
    result = await read(world.log(), stream, 1)
    [(header, _)] = twin.decode(result.buffers[0])
    assert header.base_offset == 1
    assert QUICK.zone in next(iter(world.bucket.objects))
