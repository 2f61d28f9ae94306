"""When packs are made: by a broker, by its next life, and by others that do not carry."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest
from structlog.testing import capture_logs
from tests.services.room_settings import EMBEDDED
from tests.simulation.scripted import Fate
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes
from tests.unit.log.packing_harness import (
    LIMITS,
    STANDING_SECONDS,
    Noticed,
    carrying,
    check,
    collect,
    entries,
    fill,
    pack,
    packing_world,
    streams_of,
)

from dray.log.append.carried_hints import CarriedSurvey, survey_carried
from dray.log.stream_store import StreamStore, StreamView
from dray.metadata import keys
from dray.metadata.contract import StoredValue
from dray.objects.contract import ObjectError

AWAY = "carried entries are not packed: small appends go on as far as their bound"


@pytest.fixture
async def world() -> World:
    return packing_world()


async def carried_by(world: World, stream: int) -> int:
    view = await streams_of(world).view(stream)
    assert view is not None
    head = view.high_watermark.value.head
    found = [entry.value for entry in view.entries] + ([] if head is None else [head])
    return sum([len(entry.data) for entry in found if entry.is_carried])


async def test_below_every_bound_nothing_is_packed(world: World) -> None:
    log = carrying(world)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"]))
    await append(log, stream, batch_bytes([b"b"]))
    await pack(log)
    assert world.bucket.objects == {}
    await log.stop()


async def test_what_is_old_is_packed_with_its_head(world: World) -> None:
    noticed = Noticed()
    log = carrying(world, noticed)
    [stream] = await fill(log)
    await asyncio.sleep(LIMITS.pack_seconds + 1)
    await pack(log)
    assert [(entry.start, entry.end) for entry in await entries(world, stream)] == [(0, 4)]
    await check(world, [stream], objects=1)
    assert sum(noticed.carried_bytes.values()) == 0
    await log.stop()


async def test_while_nothing_is_carried_all_that_was_is_packed(world: World) -> None:
    """The way back to an older build: the setting is 0, by a broker that has carried nothing itself."""
    before = carrying(world)
    streams = await fill(before, 2)
    await before.stop()
    assert len(world.keys(keys.CARRIED)) == 2
    after = world.log(carry_bytes=0)
    await pack(after)
    await pack(after)
    for stream in streams:
        assert not any(entry.is_carried for entry in await entries(world, stream))
        view = await streams_of(world).view(stream)
        assert view is not None
        assert view.high_watermark.value.head is None
    assert world.keys(keys.CARRIED) == []
    await check(world, streams, objects=1)


async def test_what_a_broker_left_is_found_by_its_hint(world: World) -> None:
    gone = carrying(world)
    [stream] = await fill(gone)
    other = carrying(world)
    await pack(other)
    assert world.bucket.objects == {}, "its broker may be at work"
    await asyncio.sleep(STANDING_SECONDS + 1)
    await pack(other)
    await asyncio.sleep(LIMITS.pack_seconds + 61)
    await pack(other)
    await check(world, [stream], objects=2 if len(world.bucket.objects) == 2 else 1)
    assert not any(entry.is_carried for entry in await entries(world, stream))
    await asyncio.sleep(61)
    await pack(other)
    assert world.keys(keys.CARRIED) == []
    await gone.stop()
    await other.stop()


async def test_a_hint_that_was_renewed_is_left_to_its_broker(world: World) -> None:
    log = carrying(world)
    [stream] = await fill(log)
    other = carrying(world)
    await pack(other)
    await asyncio.sleep(STANDING_SECONDS - 60)
    await append(log, stream, batch_bytes([b"e"], producer=(9, 0, 4)))
    await asyncio.sleep(120)
    await pack(other)
    assert world.bucket.objects == {}
    await log.stop()
    await other.stop()


async def test_an_object_store_that_is_away_leaves_all_as_it_is(world: World) -> None:
    log = carrying(world)
    [stream] = await fill(log)
    world.objects.trap(Fate.REFUSE, "put")
    await pack(log)
    assert len(await entries(world, stream)) == 3
    await asyncio.sleep(2)
    await pack(log)
    await collect(world)
    await check(world, [stream], objects=1)
    await log.stop()


# --- brokers that carry beside others that do not


async def test_the_way_back_is_found_in_a_cluster_that_goes_on(world: World) -> None:
    """Brokers are restarted with carrying off, one after the other: the first of them packs, and takes the
    hints away, while the last still carries."""
    last = carrying(world)
    [stream] = await fill(last)
    first = world.log(carry_bytes=0)
    for _ in range(3):
        await pack(first)
    assert await survey_carried(streams_of(world)) == CarriedSurvey()
    assert world.keys(keys.CARRIED) == []
    await append(last, stream, batch_bytes([b"e"], producer=(9, 0, 4)))
    await last.stop()
    for log in (world.log(carry_bytes=0), first):
        for _ in range(3):
            await pack(log)
    assert await survey_carried(streams_of(world)) == CarriedSurvey()
    assert await carried_by(world, stream) == 0


async def test_carrying_that_ends_and_begins_again_is_found(world: World) -> None:
    """An older process came by for a minute; the broker dies when it has carried again."""
    broker = carrying(world)
    [stream] = await fill(broker)
    broker.carry(False)
    for _ in range(3):
        await pack(broker)
    assert world.keys(keys.CARRIED) == []
    broker.carry(True)
    await append(broker, stream, batch_bytes([b"e"], producer=(9, 0, 4)))
    assert world.keys(keys.CARRIED) == [keys.carried_hint(stream)]
    await broker.stop()


# --- another life


async def test_what_earlier_lives_have_carried_counts_against_the_bound(world: World) -> None:
    limits = replace(EMBEDDED, backlog=1000, stream_backlog=1000, entry_bytes=0)
    streams: list[int] = []
    for _ in range(5):
        log = world.log(carry=limits)
        log.carry(True)
        await log.start()
        streams = streams or await log.create_streams(1)
        await asyncio.sleep(1)  # until it has looked
        for _ in range(6):
            await append(log, streams[0], batch_bytes([bytes(200)]))
        await log.stop()
    assert 500 < await carried_by(world, streams[0]) <= 1000


async def test_what_an_earlier_life_has_carried_is_packed_in_time(world: World) -> None:
    before = carrying(world)
    [stream] = await fill(before)
    await before.stop()
    noticed = Noticed()
    after = world.log(noticed, pack_look_seconds=10.0, carry=replace(LIMITS, pack_entries=500))
    after.carry(True)
    await after.start()
    await asyncio.sleep(1)
    assert noticed.carried_bytes[0] == await carried_by(world, stream) > 0
    assert len(world.keys(keys.CARRIED)) == 1, "others may go on with it"
    await asyncio.sleep(LIMITS.pack_seconds + 10)
    assert await carried_by(world, stream) == 0
    await check(world, [stream], objects=1)
    await after.stop()


async def test_what_was_carried_is_counted_as_soon_as_the_store_is_there(world: World) -> None:
    before = carrying(world)
    [stream] = await fill(before)
    await before.stop()
    noticed = Noticed()
    after = world.log(noticed)
    world.store.down = True
    await after.start()
    await asyncio.sleep(5)
    assert 0 not in noticed.carried_bytes
    world.store.down = False
    await asyncio.sleep(1)
    assert noticed.carried_bytes[0] == await carried_by(world, stream)
    await after.stop()


# --- what comes meanwhile


async def test_what_is_appended_during_a_look_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last look of a pack had read the stream, and before it was answered."""
    log = carrying(world)
    [stream] = await fill(log)
    await asyncio.sleep(LIMITS.pack_seconds + 1)
    kept, looks = StreamStore.records, 0

    async def records(self: StreamStore, asked: int) -> list[StoredValue]:
        nonlocal looks
        found = await kept(self, asked)
        looks += 1
        view = StreamView.of(asked, found)
        if view is not None and looks == 2:
            assert not any(entry.value.is_carried for entry in view.entries), "it is packed by now"
            await append(log, stream, batch_bytes([b"e"], producer=(9, 0, 4)))
        return found

    monkeypatch.setattr(StreamStore, "records", records)
    await pack(log)
    assert looks >= 2
    assert await carried_by(world, stream) > 0
    await asyncio.sleep(LIMITS.pack_seconds + 1)
    await pack(log)
    assert await carried_by(world, stream) == 0
    await log.stop()


# --- without the object store


async def test_without_the_object_store_packs_are_tried_less_and_less(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each try costs the metadata store more than an append does. It is said once, and again when the store
    was there in between."""
    log = world.log(carry=replace(EMBEDDED, pack_bytes=2000, few_entries=0), pack_look_seconds=10.0)
    log.carry(True)
    puts: list[float] = []
    put = world.objects.put

    async def away(path: str, parts: object) -> None:
        puts.append(world.runtime.monotonic())
        raise ObjectError("it is away")

    monkeypatch.setattr(world.objects, "put", away)
    await log.start()
    streams = (await log.create_streams(10 * DOMAINS))[::DOMAINS]

    async def go_on(seconds: int) -> None:
        for number in range(seconds):
            await append(log, streams[number % 10], batch_bytes([bytes(200)]))
            await asyncio.sleep(1)

    with capture_logs() as logs:
        await go_on(600)
    assert len(puts) <= 18
    pauses = [later - earlier for earlier, later in pairwise(puts)]
    assert pauses[0] < 3
    assert max(pauses) < 75, "it is found soon when it is back"
    said = [line["log_level"] for line in logs if line["event"] == AWAY]
    assert said == ["warning", *["debug"] * (len(puts) - 1)]

    monkeypatch.setattr(world.objects, "put", put)
    await go_on(75)
    assert world.bucket.objects, "it is back"
    monkeypatch.setattr(world.objects, "put", away)
    with capture_logs() as logs:
        await go_on(60)
    assert [line["log_level"] for line in logs if line["event"] == AWAY][:1] == ["warning"]
    await log.stop()
