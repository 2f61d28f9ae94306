"""Packing: carried entries become a WAL object. A packer that dies anywhere leaves what others can end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.simulation.scripted import Fate, ScriptedObjects, ScriptedStore, Trap
from tests.unit.log.harness import EVERYTHING, World, append, batch_bytes, start_append
from tests.unit.log.packing_harness import (
    DAY_MS,
    LIMITS,
    READ,
    VALUES,
    Noticed,
    carrying,
    check,
    collect,
    entries,
    fill,
    pack,
    packing_world,
    read_all,
    streams_of,
)

from dray.kafka.records import stamp_append_time, validate
from dray.log.jobs import packing
from dray.log.jobs.machine import Job, JobState
from dray.log.wal import object_path
from dray.metadata import keys
from dray.metadata.contract import Delete, Limits


@pytest.fixture
async def world() -> World:
    return packing_world()


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


async def test_entries_of_two_days_are_not_merged(world: World) -> None:
    log = carrying(world)
    [stream] = await log.create_streams(1)
    for time in (DAY_MS - 2, DAY_MS - 1, DAY_MS, DAY_MS + 1, DAY_MS + 2):
        await append(log, stream, stamped(time), time)
    for _ in range(3):
        await asyncio.sleep(LIMITS.pack_seconds + 1)
        await pack(log)
    found = await entries(world, stream)
    assert [(entry.start, entry.end) for entry in found] == [(0, 2), (2, 5)]
    assert not any(entry.is_carried for entry in found)
    await log.stop()


def stamped(time: int) -> bytearray:
    """As a broker does it for topics with LogAppendTime."""
    data = batch_bytes([b"x"])
    [batch] = validate(data, max_batch_bytes=EVERYTHING, max_decompressed_bytes=EVERYTHING)
    stamp_append_time(data, batch, time)
    return data


async def test_times_of_two_days_stay_apart_with_those_of_producers_between_them(world: World) -> None:
    """The topic's config was changed, and changed back."""
    log = carrying(world)
    [stream] = await log.create_streams(1)
    await append(log, stream, stamped(DAY_MS - 1), DAY_MS - 1)
    await append(log, stream, batch_bytes([b"x"], timestamps=[DAY_MS]))
    await append(log, stream, stamped(DAY_MS), DAY_MS)
    await asyncio.sleep(LIMITS.pack_seconds + 1)
    await pack(log)
    assert [(entry.start, entry.end) for entry in await entries(world, stream)] == [(0, 2), (2, 3)]
    await log.stop()


async def test_times_of_producers_part_nothing(world: World) -> None:
    """They jump: a pack of each of them would be an object of each record."""
    log = carrying(world)
    [stream] = await log.create_streams(1)
    for number in range(20):
        times = [number % 3 * DAY_MS, number % 5 * DAY_MS]
        await append(log, stream, batch_bytes([b"x", b"y"], timestamps=times))
    await asyncio.sleep(LIMITS.pack_seconds + 1)
    await pack(log)
    assert [(entry.start, entry.end) for entry in await entries(world, stream)] == [(0, 40)]
    assert len(world.bucket.objects) == 1
    await log.stop()


async def test_a_stream_of_many_runs_does_not_become_as_many_objects_at_once(world: World) -> None:
    """Objects lie between its carried entries, so each takes a pack of its own."""
    log = carrying(world)
    [stream] = await log.create_streams(1)
    for _ in range(20):
        await append(log, stream, batch_bytes([b"small"]))
        await append(log, stream, batch_bytes([bytes(20_000)]))
        await asyncio.sleep(1)
    await asyncio.sleep(LIMITS.pack_seconds)
    left = []
    for _ in range(2):
        await pack(log)
        left.append(sum([entry.is_carried for entry in await entries(world, stream)]))
    assert left == [12, 4]
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


async def test_a_pack_that_is_decided_while_its_stream_is_swept_leaves_nothing(world: World) -> None:
    """The sweep has read the job; then the pack is decided, and its packer dies."""
    log = carrying(world)
    [stream] = await fill(log)
    decides = world.store.hold("write", "/job")
    packing = asyncio.ensure_future(pack(log))
    await decides.reached()
    dies = world.store.hold("get", "/producers")
    other = world.log()
    await other.close_streams([stream])
    leftovers = world.store.hold("write", "/closed-streams/")
    sweeping = asyncio.ensure_future(other.sweep_streams([stream]))
    await leftovers.reached()
    decides.release()
    await dies.reached()
    packing.cancel()
    leftovers.release()
    await sweeping
    assert world.keys(keys.job(stream)) == world.keys(keys.REFERENCES) == []
    await collect(world)
    assert world.bucket.objects == {}


async def test_a_pack_of_a_stream_that_was_swept_is_ended(world: World) -> None:
    """By a sweep that did not see it: as builds before this one did it."""
    log = carrying(world)
    [stream] = await fill(log)
    swaps = world.store.hold("get", "/producers")
    packing = asyncio.ensure_future(pack(log))
    await swaps.reached()
    other = world.log()
    await other.close_streams([stream])
    swept = [key for key in world.keys(keys.stream(stream)) if key != keys.high_watermark(stream)]
    await world.store.write(0, [Delete(key) for key in swept])
    swaps.release()
    await packing
    assert world.keys(keys.job(stream)) == world.keys(keys.REFERENCES) == []
    await collect(world)
    assert world.bucket.objects == {}
    await log.stop()


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
    others = asyncio.all_tasks()
    packing = asyncio.ensure_future(pack(log))
    await asyncio.wait([packing], timeout=60.0)
    dying = asyncio.all_tasks() - others  # barriers that are never answered too
    for task in dying:
        task.cancel()
    if dying:
        await asyncio.wait(dying, timeout=1.0)
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
        other = killed.log(carry_bytes=0)
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


async def test_many_entries_are_looked_at_beside_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a stream carries thousands, a look would hold it for a second, and appends with it."""
    monkeypatch.setattr(packing, "_AT_ONCE", 3)
    log = carrying(world)
    [stream] = await fill(log)
    away: list[str] = []
    kept = world.runtime.in_thread

    async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
        away.append(function.__name__)
        return await kept(function, *arguments)

    monkeypatch.setattr(world.runtime, "in_thread", in_thread)
    await append(log, stream, batch_bytes([b"e"], producer=(9, 0, 4)))
    await pack(log)
    assert {"of", "_carried", "_cut", "_references", "put"} <= set(away)
