"""Packing: carried entries become a WAL object. A packer that dies anywhere leaves what others can end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.simulation.scripted import Fate, ScriptedObjects, ScriptedStore, Trap
from tests.unit.log.harness import DOMAINS, QUICK, World, append, batch_bytes, read, start_append, values_in

from dray.log import Log, LogObserver
from dray.log.carried_hints import STANDING_SECONDS
from dray.log.carry import EMBEDDED
from dray.log.entries import IndexEntry
from dray.log.jobs import Job, JobState
from dray.log.stream_state import load_stream_state
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import Limits
from dray.wal import object_path

ORPHAN = 30.0
DAY_MS = 24 * 3_600_000
LIMITS = replace(EMBEDDED, pack_entries=3, pack_seconds=600.0)
VALUES = [b"a", b"b", b"c", b"d"]
READ = list(enumerate(VALUES))


class Noticed(LogObserver):
    def __init__(self) -> None:
        self.entries: list[int] = []
        self.lost = 0
        self.carried_bytes: dict[int, int] = {}
        self.age = 0.0

    def packed(self, entries: int, size: int) -> None:
        assert size > 0
        self.entries.append(entries)

    def pack_lost(self) -> None:
        self.lost += 1

    def backlog(self, domain: int, size: int, age: float) -> None:
        self.carried_bytes[domain] = size
        self.age = max(self.age, age)


@pytest.fixture
async def world() -> World:
    settings = replace(
        QUICK,
        carry=LIMITS,
        pack_look_seconds=1e9,
        orphan_seconds=ORPHAN,
        grace_seconds=0.0,
        retry_limit=1,
        tail_cache_bytes=0,
        segment_cache_bytes=0,
    )
    return World(settings=settings)


def carrying(world: World, observer: LogObserver | None = None) -> Log:
    log = world.log(observer)
    log.carry(True)
    return log


async def fill(log: Log, streams: int = 1) -> list[int]:
    """Three carried entries and a carried head each, of one producer, in one domain."""
    made = (await log.create_streams(streams * DOMAINS))[::DOMAINS]
    for sequence, value in enumerate(VALUES):
        for stream in made:
            await append(log, stream, batch_bytes([value], producer=(9, 0, sequence)))
    return made


async def pack(log: Log) -> None:
    for rounds in log._packing:
        await rounds.run()


def streams_of(world: World) -> StreamStore:
    return StreamStore(world.store, DOMAINS, world.settings.producer_expiry_ms)


async def read_all(world: World, stream: int) -> list[tuple[int, bytes]]:
    """By a broker that comes anew. In the middle of a swap an answer ends where another entry begins."""
    log = world.log()
    found: list[tuple[int, bytes]] = []
    while more := values_in(await read(log, stream, len(found))):
        found += [each for each in more if each[0] >= len(found)]
    return found


async def entries(world: World, stream: int) -> list[IndexEntry]:
    view = await streams_of(world).view(stream)
    assert view is not None
    return [entry.value for entry in view.entries]


async def check(world: World, streams: Sequence[int], objects: int) -> None:
    """All is read, no key and no object is left over, and producers are known."""
    for stream in streams:
        assert await read_all(world, stream) == READ
        state = await load_stream_state(streams_of(world), stream)
        found = state.producers.get(9)
        assert found is not None
        assert found.batches[-1].base_offset == 3
        assert (await streams_of(world).job(stream)).value.state is JobState.DONE
    assert len(world.bucket.objects) == len(world.keys(keys.OBJECTS)) == objects
    assert world.keys(keys.STAGING) == []
    held = {
        (entry.object_id, stream)
        for stream in streams
        for entry in await entries(world, stream)
        if entry.is_referenced
    }
    found_references = {
        (keys.wal_id_of(key), int(key.rpartition("/")[2])) for key in world.keys(keys.REFERENCES)
    }
    assert found_references == held


async def test_carried_entries_of_many_streams_become_one_object(world: World) -> None:
    noticed = Noticed()
    log = carrying(world, noticed)
    streams = await fill(log, 3)
    await pack(log)
    assert noticed.entries == [9]
    for stream in streams:
        [merged] = await entries(world, stream)
        assert (merged.start, merged.end, merged.is_referenced) == (0, 3, True)
    await check(world, streams, objects=1)
    await pack(log)
    assert noticed.entries == [9], "the heads are young"
    await log.stop()


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
    after = world.log(carry=None)
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


async def test_entries_of_two_days_are_not_merged(world: World) -> None:
    log = carrying(world)
    [stream] = await log.create_streams(1)
    for time in (DAY_MS - 2, DAY_MS - 1, DAY_MS, DAY_MS + 1, DAY_MS + 2):
        await append(log, stream, batch_bytes([b"x"], timestamps=[time]))
    for _ in range(3):
        await asyncio.sleep(LIMITS.pack_seconds + 1)
        await pack(log)
    found = await entries(world, stream)
    assert [(entry.start, entry.end) for entry in found] == [(0, 2), (2, 5)]
    assert not any(entry.is_carried for entry in found)
    await log.stop()


async def test_a_batch_keeps_its_append_time(world: World) -> None:
    log = carrying(world)
    [stream] = await log.create_streams(1)
    for sequence in range(4):
        data = batch_bytes([b"x"], producer=(9, 0, sequence), timestamps=[77 + sequence])
        await append(log, stream, data)
    before = [reference[1:] for entry in await entries(world, stream) for _, reference in entry.batches()]
    await pack(log)
    [merged] = await entries(world, stream)
    assert [reference[1:] for _, reference in merged.batches()] == before
    await log.stop()


async def test_small_limits_of_the_store_make_several_writes(world: World) -> None:
    world.limits = Limits(operations=6, value_bytes=20_000)
    log = carrying(world)
    streams = await fill(log, 7)
    await asyncio.sleep(LIMITS.pack_seconds + 1)
    await pack(log)
    for stream in streams:
        assert not any(entry.is_carried for entry in await entries(world, stream))
        assert await read_all(world, stream) == READ
    await log.stop()


# --- what goes wrong


async def test_an_object_store_that_is_away_leaves_all_as_it_is(world: World) -> None:
    log = carrying(world)
    [stream] = await fill(log)
    world.objects.trap(Fate.REFUSE, "put")
    await pack(log)
    assert len(await entries(world, stream)) == 3
    await pack(log)
    await collect(world)
    await check(world, [stream], objects=1)
    await log.stop()


async def test_a_job_that_another_began_is_not_packed_over(world: World) -> None:
    noticed = Noticed()
    log = carrying(world, noticed)
    [stream] = await fill(log)
    store = streams_of(world)
    upload = world.objects.hold("put")
    packing = asyncio.ensure_future(pack(log))
    await upload.reached()
    job = await store.job(stream)
    await store.move_job(stream, job, Job(job.value.number + 1, JobState.RETAIN, 0, 0))
    upload.release()
    await packing
    assert noticed.lost == 1
    assert all(entry.is_carried for entry in await entries(world, stream))
    await collect(world)
    assert world.bucket.objects == {}
    await log.stop()


async def test_an_unclear_pack_is_left_to_the_collector(world: World) -> None:
    """The write of the job lands long after the packer gave up, and the collector was there before."""
    log = carrying(world)
    [stream] = await fill(log)
    late = world.store.trap(Fate.LATE, "write", "/job")
    world.store.trap(Fate.LOSE, "write", "/job")
    await pack(log)
    assert len(world.keys(keys.STAGING)) == 1, "references and mark stay"
    await collect(world)
    late.land()
    assert all(entry.is_carried for entry in await entries(world, stream))
    await check(world, [stream], objects=0)
    await log.stop()


async def test_an_unclear_pack_that_landed_is_finished_by_any_process(world: World) -> None:
    log = carrying(world)
    [stream] = await fill(log)
    late = world.store.trap(Fate.LATE, "write", "/job")
    world.store.trap(Fate.LOSE, "write", "/job")
    await pack(log)
    late.land()
    await collect(world)
    assert await world.log().delete_records(stream, 0) == 0  # retention finishes what it finds
    await check(world, [stream], objects=1)
    await log.stop()


async def test_a_pack_of_a_stream_that_is_deleted_leaves_nothing(world: World) -> None:
    """The stream is closed and swept between the upload and the job, and after the job."""
    for kind, part in (("put", ""), ("write", "/offset-index/")):
        log = carrying(world)
        [stream] = await fill(log)
        step = (world.objects if kind == "put" else world.store).hold(kind, part)
        packing = asyncio.ensure_future(pack(log))
        await step.reached()
        other = world.log()
        await other.close_streams([stream])
        await other.sweep_streams([stream])
        step.release()
        await packing
        await other.sweep_streams([stream])
        await collect(world)
        assert world.bucket.objects == {}
        assert world.keys(keys.REFERENCES) == world.keys(keys.STAGING) == world.keys(keys.OBJECTS) == []
        assert world.keys(keys.job(stream)) == []
        await log.stop()


async def test_a_pack_that_ends_while_its_stream_is_swept_leaves_nothing(world: World) -> None:
    """The sweep has read the carried entries; the merged one, which has a reference, comes onto their last
    key before they are deleted."""
    log = carrying(world)
    [stream] = await fill(log)
    swap = world.store.hold("write", "/offset-index/")
    packing = asyncio.ensure_future(pack(log))
    await swap.reached()
    other = world.log()
    await other.close_streams([stream])
    deletes = world.store.hold("write", "/offset-index/")
    sweeping = asyncio.ensure_future(other.sweep_streams([stream]))
    await deletes.reached()
    swap.release()
    await packing
    deletes.release()
    await sweeping
    await other.sweep_streams([stream])
    await collect(world)
    assert world.bucket.objects == {}
    assert world.keys(keys.REFERENCES) == world.keys(keys.STAGING) == world.keys(keys.OBJECTS) == []
    await log.stop()


async def collect(world: World) -> None:
    """Long enough for every orphan to be found and resolved."""
    collector = world.log().collector
    for _ in range(3):
        await collector.run()
        await asyncio.sleep(ORPHAN + 1)


# --- killed anywhere


class Killer:
    """Lets so many calls of the stores through; the next is never answered, and perhaps never made."""

    def __init__(self, world: World, calls: int, *, answered: bool) -> None:
        self.made = 0
        self._last = calls
        self._answered = answered
        for traps in (world.store, world.objects):
            self._watch(traps)

    def _watch(self, traps: ScriptedStore | ScriptedObjects) -> None:
        kept = traps.springing

        def springing(kind: str, names: Sequence[str]) -> Trap:
            self.made += 1
            if self.made >= self._last:
                traps.hold(kind, answered=self._answered)
            return kept(kind, names)

        traps.springing = springing  # type: ignore[method-assign]


async def _die_in_a_pack(world: World, calls: int, *, answered: bool) -> tuple[list[int], int]:
    log = carrying(world)
    streams = await fill(log, 2)
    killer = Killer(world, calls, answered=answered)
    packing = asyncio.ensure_future(pack(log))
    await asyncio.wait([packing], timeout=60.0)
    packing.cancel()
    return streams, killer.made


@pytest.mark.parametrize("answered", [False, True], ids=["not made", "not answered"])
async def test_a_packer_may_be_killed_between_any_two_steps(world: World, answered: bool) -> None:
    _, steps = await _die_in_a_pack(World(settings=world.settings), 1 << 30, answered=answered)
    assert steps > 20
    for calls in range(1, steps + 1):
        killed = World(settings=world.settings)
        streams, _ = await _die_in_a_pack(killed, calls, answered=answered)
        for stream in streams:
            assert await read_all(killed, stream) == READ, calls
        await collect(killed)
        other = killed.log(carry=None)
        await pack(other)
        await pack(other)
        for stream in streams:
            assert not any(entry.is_carried for entry in await entries(killed, stream)), calls
        await collect(killed)
        await check(killed, streams, objects=len(killed.bucket.objects))
        assert 1 <= len(killed.bucket.objects) <= 2


async def test_what_is_appended_meanwhile_is_not_packed_away(world: World) -> None:
    log = carrying(world)
    [stream] = await fill(log)
    upload = world.objects.hold("put")
    packing = asyncio.ensure_future(pack(log))
    await upload.reached()
    more = [start_append(log, stream, batch_bytes([b"%d" % number])) for number in range(3)]
    await asyncio.gather(*more)
    upload.release()
    await packing
    found = await read_all(world, stream)
    assert [value for _, value in found] == [*VALUES, b"0", b"1", b"2"]
    await log.stop()


def test_a_pack_lies_where_other_objects_do() -> None:
    """So that the audit of the bucket finds it."""
    assert object_path("local", 0, 0, keys.wal_id_of(f"{keys.STAGING}{'0' * 32}")).startswith("wal/v1/")
