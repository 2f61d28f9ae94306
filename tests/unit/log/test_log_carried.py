"""Carried appends: no object, the same log to the outside, in order with the other lane."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
from tests.services.room_settings import EMBEDDED
from tests.simulation.scripted import Fate, Trap
from tests.unit.log.harness import (
    DOMAINS,
    QUICK,
    World,
    append,
    batch_bytes,
    read,
    start_append,
    values_in,
)

from dray.log import Log, LogObserver
from dray.log.append import commit
from dray.log.append.carry import CarryLimits
from dray.log.entries import IndexEntry
from dray.log.read.index_cache import IndexCache
from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable, ObjectCorrupt, OffsetOutOfRange, StreamClosed
from dray.metadata import keys

MIDNIGHT = 20_000 * 24 * 3_600_000


class Noticed(LogObserver):
    def __init__(self) -> None:
        self.switches: list[str] = []
        self.batches = 0
        self.size = 0

    def carried(self, batches: int, size: int) -> None:
        self.batches += batches
        self.size += size

    def lane_switched(self, why: str) -> None:
        self.switches.append(why)


@pytest.fixture
async def world() -> World:
    return World(settings=replace(QUICK, carry=EMBEDDED, pack_look_seconds=1e9))


@pytest.fixture
async def log(world: World) -> AsyncIterator[Log]:
    made = carrying(world)
    await made.start()
    yield made
    await made.stop()


def carrying(world: World, limits: CarryLimits = EMBEDDED, observer: LogObserver | None = None) -> Log:
    made = world.log(observer, carry=limits)
    made.carry(True)
    return made


async def entries(world: World, stream: int) -> list[IndexEntry]:
    """As filed, and the head."""
    view = await StreamStore(world.store, DOMAINS, 1).view(stream)
    assert view is not None
    head = view.high_watermark.value.head
    return [entry.value for entry in view.entries] + ([] if head is None else [head])


async def test_a_small_append_has_no_object_and_is_read_everywhere(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    values = [b"a", b"b", b"c"]
    for place, value in enumerate(values):
        assert (await append(log, stream, batch_bytes([value]))).base_offset == place
    assert world.bucket.objects == {}
    assert world.keys(keys.STAGING) == world.keys(keys.REFERENCES) == world.keys(keys.OBJECTS) == []
    assert [entry.is_carried for entry in await entries(world, stream)] == [True] * 3
    for reader in (log, world.log(tail_cache_bytes=0)):
        assert values_in(await read(reader, stream, 0)) == [(0, b"a"), (1, b"b"), (2, b"c")]
        assert values_in(await read(reader, stream, 1)) == [(1, b"b"), (2, b"c")]


async def test_one_write_is_all_there_is(world: World, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"first"]))
    asked: list[str] = []
    kept = world.store.springing

    def springing(kind: str, names: Sequence[str]) -> Trap:
        asked.append(kind)
        return kept(kind, names)

    monkeypatch.setattr(world.store, "springing", springing)
    await append(log, stream, batch_bytes([b"second"]))
    assert asked == ["write"]


async def test_batches_that_arrive_together_are_one_entry_per_stream(world: World, log: Log) -> None:
    [stream, _, other, _] = await log.create_streams(2 * DOMAINS)
    appends = [start_append(log, each, batch_bytes([b"x"])) for each in (stream, other, stream)]
    assert [(await each).base_offset for each in appends] == [0, 0, 1]
    assert [(entry.start, entry.end) for entry in await entries(world, stream)] == [(0, 2)]
    assert [(entry.start, entry.end) for entry in await entries(world, other)] == [(0, 1)]
    reader = world.log(tail_cache_bytes=0)
    assert values_in(await read(reader, stream, 1)) == [(1, b"x")]


async def test_a_large_append_is_an_object(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    large = batch_bytes([bytes(EMBEDDED.chunk_bytes)])
    assert (await append(log, stream, large)).base_offset == 0
    assert len(world.bucket.objects) == 1


async def test_nothing_is_carried_unless_it_is_turned_on(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    assert len(world.bucket.objects) == 1
    log.carry(True)
    await asyncio.sleep(1)
    await append(log, stream, batch_bytes([b"b"]))
    assert len(world.bucket.objects) == 1
    log.carry(False)
    await append(log, stream, batch_bytes([b"c"]))
    assert len(world.bucket.objects) == 2
    assert values_in(await read(world.log(), stream, 0)) == [(0, b"a"), (1, b"b"), (2, b"c")]
    await log.stop()


async def test_without_a_setting_nothing_is_ever_carried(world: World) -> None:
    log = world.log(carry_bytes=0)
    log.carry(True)
    assert not log.is_carrying
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    assert len(world.bucket.objects) == 1
    await log.stop()


# --- order across lanes


async def test_what_follows_an_object_goes_after_it(world: World, log: Log) -> None:
    """A small batch behind a large one of its stream: both are objects. One of another stream is not."""
    [stream, _, other, _] = await log.create_streams(4)
    upload = world.objects.hold("put")
    large = start_append(log, stream, batch_bytes([bytes(20_000)], producer=(1, 0, 0)))
    await upload.reached()
    small = start_append(log, stream, batch_bytes([b"small"], producer=(1, 0, 1)))
    assert (await append(log, other, batch_bytes([b"elsewhere"]))).base_offset == 0, "a trickle beside bulk"
    assert not small.done()
    upload.release()
    assert ((await large).base_offset, (await small).base_offset) == (0, 1)
    assert [entry.is_carried for entry in await entries(world, other)] == [True]
    assert not any(entry.is_carried for entry in await entries(world, stream))


async def test_an_object_goes_after_what_was_carried_before(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    commit = world.store.hold("write", "/hwm")
    small = start_append(log, stream, batch_bytes([b"small"], producer=(1, 0, 0)))
    await commit.reached()
    large = start_append(log, stream, batch_bytes([bytes(20_000)], producer=(1, 0, 1)))
    await asyncio.sleep(5)
    assert len(world.bucket.objects) == 1, "it is uploaded meanwhile"
    assert not large.done()
    commit.release()
    assert ((await small).base_offset, (await large).base_offset) == (0, 1)


async def test_what_waits_for_the_lane_goes_along_to_the_objects(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    commit = world.store.hold("write", "/hwm")
    parts = [b"under way", b"waits", bytes(20_000), b"last"]
    appends = []
    for sequence, value in enumerate(parts):
        appends.append(start_append(log, stream, batch_bytes([value], producer=(1, 0, sequence))))
        if sequence == 0:
            await commit.reached()
    await asyncio.sleep(1)
    commit.release()
    assert [(await each).base_offset for each in appends] == [0, 1, 2, 3]
    assert [entry.is_carried for entry in await entries(world, stream)] == [True, False]


async def test_stopping_carries_what_waits(world: World) -> None:
    log = carrying(world)
    [stream] = await log.create_streams(1)
    commit = world.store.hold("write", "/hwm")
    first = start_append(log, stream, batch_bytes([b"a"]))
    await commit.reached()
    second = start_append(log, stream, batch_bytes([b"b"]))
    stopping = asyncio.ensure_future(log.stop())
    await asyncio.sleep(1)
    assert not stopping.done()
    commit.release()
    await stopping
    assert first.done()
    assert second.done()
    assert ((await first).base_offset, (await second).base_offset) == (0, 1)
    assert world.bucket.objects == {}


# --- bounds


async def test_at_its_bound_the_lane_closes_and_says_why(world: World) -> None:
    noticed = Noticed()
    log = carrying(world, replace(EMBEDDED, backlog=1000, stream_backlog=1000, entry_bytes=0), noticed)
    [stream] = await log.create_streams(1)
    data = batch_bytes([bytes(200)])
    for _ in range(6):
        await append(log, stream, data)
    assert (noticed.batches, noticed.size) == (3, 3 * len(data))
    assert noticed.switches == ["backlog"] * 3
    assert len(world.bucket.objects) == 3
    await log.stop()


async def test_without_the_object_store_small_appends_go_on_to_the_bound(world: World) -> None:
    log = carrying(world, replace(EMBEDDED, backlog=1000, stream_backlog=1000, entry_bytes=0))
    [stream] = await log.create_streams(1)
    world.objects.trap(Fate.REFUSE, "put")
    data = batch_bytes([bytes(200)])
    for place in range(3):
        assert (await append(log, stream, data)).base_offset == place
    with pytest.raises(LogUnavailable, match="the object store did not take the records"):
        await append(log, stream, data)
    await log.stop()


async def test_bulk_in_small_batches_becomes_objects_and_a_trickle_beside_it_is_carried(world: World) -> None:
    """Five streams of a domain; four of them bring three times the rate, batch behind batch."""
    noticed = Noticed()
    limits = replace(EMBEDDED, rate=400_000)
    log = carrying(world, limits, noticed)
    streams = (await log.create_streams(5 * DOMAINS))[::DOMAINS]
    *bulk, trickle = streams
    data, small = batch_bytes([bytes(3_000)]), batch_bytes([bytes(100)])
    appends = []
    for step in range(1000):
        for stream in bulk:
            appends.append(start_append(log, stream, data))
        if step % 20 == 0:
            appends.append(start_append(log, trickle, small))
        await asyncio.sleep(0.01)
    await asyncio.gather(*appends)
    assert all(entry.is_carried for entry in await entries(world, trickle))
    assert noticed.size <= limits.rate * limits.rate_seconds + len(data) + 50 * len(small)
    assert set(noticed.switches) == {"rate"}
    await log.stop()


async def test_what_is_much_is_packed_soon_and_goes_on_being_carried(world: World) -> None:
    """A look comes once in a day here: without a call for one, the bound would be reached."""
    noticed = Noticed()
    limits = replace(EMBEDDED, stream_backlog=20_000, pack_seconds=1e9)
    log = world.log(noticed, carry=limits, pack_look_seconds=86_400.0)
    log.carry(True)
    await log.start()
    [stream] = await log.create_streams(1)
    for _ in range(100):
        await append(log, stream, batch_bytes([bytes(1_000)]))
        await asyncio.sleep(0.2)
    assert noticed.switches == []
    assert noticed.batches == 100
    assert 1 <= len(world.bucket.objects) <= 25, "packs, and not too many"
    assert len(values_in(await read(world.log(tail_cache_bytes=0), stream, 0))) == 100
    await log.stop()


# --- the commit and its replies


async def test_a_lost_race_is_carried_at_another_place(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    own = world.store
    commit = own.hold("write", "/hwm")
    second = start_append(log, stream, batch_bytes([b"mine"]))
    await commit.reached()
    other = carrying(world)
    assert (await append(other, stream, batch_bytes([b"theirs"]))).base_offset == 1
    commit.release()
    assert (await second).base_offset == 2
    assert world.bucket.objects == {}
    assert values_in(await read(world.log(), stream, 0)) == [(0, b"a"), (1, b"theirs"), (2, b"mine")]
    await other.stop()


async def test_after_a_lost_reply_it_is_found_by_its_id(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    world.store.trap(Fate.LOSE_REPLY, "write", "/hwm")
    assert (await append(log, stream, batch_bytes([b"a"]))).base_offset == 0
    assert values_in(await read(world.log(), stream, 0)) == [(0, b"a")]


async def test_given_up_after_an_unclear_reply_it_is_never_sent_again(world: World) -> None:
    """Neither carried nor as an object: a late copy may still land."""
    log = world.log(carry=EMBEDDED, retry_limit=1)
    log.carry(True)
    [stream] = await log.create_streams(1)
    late = world.store.trap(Fate.LATE, "write", "/hwm")
    world.store.trap(Fate.LOSE, "write", "/hwm")
    with pytest.raises(LogUnavailable):
        await append(log, stream, batch_bytes([b"late"]))
    await asyncio.sleep(60)
    assert world.bucket.objects == {}
    assert await entries(world, stream) == []
    late.land()
    assert values_in(await read(world.log(), stream, 0)) == [(0, b"late")]
    await log.stop()


async def test_an_idempotent_producer_is_known_from_carried_entries(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    for sequence in range(3):
        await append(log, stream, batch_bytes([b"%d" % sequence], producer=(7, 0, sequence)))
    other = carrying(world)
    again = await append(other, stream, batch_bytes([b"1"], producer=(7, 0, 1)))
    assert again.base_offset == 1, "a duplicate"
    assert (await log.bounds(stream)).end == 3
    await other.stop()


# --- the rest of the log


async def test_deleting_records_deletes_what_is_carried(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    for value in (b"a", b"b", b"c"):
        await append(log, stream, batch_bytes([value]))
    assert await log.delete_records(stream, 2) == 2
    assert [(entry.start, entry.end) for entry in await entries(world, stream)] == [(2, 3)]
    with pytest.raises(OffsetOutOfRange):
        values_in(await read(log, stream, 1))
    assert await log.delete_records(stream, -1) == 3
    assert await entries(world, stream) == []


async def test_a_closed_stream_leaves_nothing_that_was_carried(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    await append(log, stream, batch_bytes([b"b"]))
    await log.close_streams([stream])
    with pytest.raises(StreamClosed):
        await append(log, stream, batch_bytes([b"c"]))
    await log.sweep_streams([stream])
    assert world.keys(keys.offset_index(stream)) == []


async def test_times_are_found_in_carried_entries(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    for times in ([10, 20], [15, 40], [30, 35]):
        await append(log, stream, batch_bytes([b"x", b"y"], timestamps=times))
    reader = world.log(tail_cache_bytes=0)
    found = await reader.find_timestamp(stream, 21)
    assert found is not None
    assert (found.offset, found.timestamp) == (3, 40)
    greatest = await reader.find_max_timestamp(stream)
    assert greatest is not None
    assert greatest.offset == 3
    await log.delete_records(stream, 4)
    greatest = await world.log().find_max_timestamp(stream)
    assert greatest is not None
    assert (greatest.offset, greatest.timestamp) == (5, 35)


async def test_midnight_parts_carried_entries_too(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    times = [MIDNIGHT - 2, MIDNIGHT - 1, MIDNIGHT, MIDNIGHT + 1]
    appends = [start_append(log, stream, batch_bytes([b"x"]), time) for time in times]
    results = [await each for each in appends]
    assert [(result.base_offset, result.append_time_ms) for result in results] == list(enumerate(times))
    assert [(entry.start, entry.end) for entry in await entries(world, stream)] == [(0, 2), (2, 4)]


async def test_damage_is_named_and_never_served(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a" * 50]))
    await append(log, stream, batch_bytes([b"b"]))
    [key] = world.keys(keys.offset_index(stream))
    domain = world.state.domain(stream % DOMAINS, world.runtime.monotonic())
    entry = domain.entries[key]
    damaged = bytearray(entry.record.value)
    damaged[-5] ^= 1
    entry.record = replace(entry.record, value=bytes(damaged))
    reader = world.log(tail_cache_bytes=0)
    with pytest.raises(ObjectCorrupt, match=r"the carried entry [0-9a-f]{32}: what it carries is not"):
        values_in(await read(reader, stream, 0))


async def test_a_store_that_refuses_is_asked_again(world: World, log: Log) -> None:
    [stream] = await log.create_streams(1)
    world.store.trap(Fate.REFUSE, "write", "/hwm")
    assert (await append(log, stream, batch_bytes([b"a"]))).base_offset == 0


# --- caches


async def test_caches_count_what_is_carried_and_forget_beyond_their_bound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "MOST_CARRIED", 1500)
    log = carrying(world)
    log._index = log._reader._index = IndexCache(512, most_carried=1500)
    streams = (await log.create_streams(6 * DOMAINS))[::DOMAINS]
    data = batch_bytes([bytes(400)])
    for _ in range(2):
        await asyncio.gather(*[start_append(log, stream, data) for stream in streams])
    committer = log._committers[streams[0] % DOMAINS]
    heads = [state.high_watermark.value.head for state in committer._states.values()]
    carried = [0 if head is None else len(head.data) for head in heads]
    assert committer._carried_bytes == sum(carried) == 3 * len(data)
    assert 0 < log._index.carried <= 1500
    for stream in streams:
        committer.forget(stream)
        log._index.forget(stream)
    assert committer._carried_bytes == log._index.carried == log._index.size == 0
    await append(log, streams[0], data)
    log._index.forget_entries(streams[0])
    assert log._index.carried == len(data), "the head is still known"
    await log.stop()
