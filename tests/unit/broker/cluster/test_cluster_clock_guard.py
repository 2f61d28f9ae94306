"""Clocks compared through the store, in virtual time: what is told, what is kept, what does not end it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from dray.broker.cluster.clock_guard import (
    ClockGuard,
    ProcessDescription,
    StoredBeat,
    decode_beat,
    encode_beat,
)
from dray.broker.cluster.clock_judge import GONE_BEATS, STEP_SECONDS
from dray.metadata import keys
from dray.metadata.contract import Put, StoredValue, Unavailable
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects.contract import CLOCKS, read_clock
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import ProcessClock, SimulatedRuntime, true_time, true_wall_ms

FIXTURE = Path(__file__).parents[3] / "fixtures" / "values" / "clock.v1.bin"
DAY = 24 * 3600.0


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def in_virtual_time() -> None:
        run(test())

    del in_virtual_time.__wrapped__
    return in_virtual_time


class World:
    def __init__(self) -> None:
        self.state = MemoryState()
        self._processes = 0

    def process(self, ahead: float = 0.0, machine: str | None = None, **given: Any) -> Process:
        self._processes += 1
        name = f"machine {self._processes}" if machine is None else machine
        return Process(self, self._processes, ProcessClock(ahead), name, **given)

    def beats(self) -> list[StoredValue]:
        content = self.state.domain(keys.CLUSTER_DOMAIN, true_time())
        return [content.entries[key].record for key in content.keys if key.startswith(keys.CLOCKS)]


class Process:
    def __init__(self, world: World, seed: int, clock: ProcessClock, machine: str, **given: Any) -> None:
        self.clock = clock
        self.runtime = SimulatedRuntime(seed, clock)
        self.store = FailingStore(self.runtime, world.state, true_time)
        self.guard = ClockGuard(self.store, self.runtime, machine=machine, **given)
        self.guard.start()


class FailingStore(MemoryStore):
    error: Exception | None = None

    async def _turn(self) -> None:
        if self.error is not None:
            raise self.error
        await super()._turn()


async def passing(seconds: float) -> None:
    await asyncio.sleep(seconds)


@simulated
async def test_a_clock_far_ahead_says_nothing_and_the_others_go_on() -> None:
    world = World()
    bad, good, other = world.process(8 * DAY), world.process(), world.process(2.0)
    assert [process.guard.now_ms() for process in (bad, good, other)] == [None] * 3  # not compared yet
    await passing(100)
    assert bad.guard.now_ms() is None
    assert "ahead of others" in (bad.guard.doubt() or "")
    assert good.guard.now_ms() == good.runtime.wall_ms()
    assert other.guard.now_ms() == other.runtime.wall_ms()
    assert good.guard.doubt() is None
    bad.clock.mend(true_time())
    await passing(100)
    assert bad.guard.now_ms() == bad.runtime.wall_ms()


@simulated
async def test_a_doubted_clock_goes_by_those_of_the_others() -> None:
    for ahead in (8 * DAY, -2 * DAY):
        world = World()
        bad, good, _ = world.process(ahead), world.process(), world.process(2.0)
        await passing(100)
        assert bad.guard.now_ms() is None
        assert abs(bad.guard.likely_ms() - good.runtime.wall_ms()) < 60_000
        assert good.guard.likely_ms() == good.runtime.wall_ms()


@simulated
async def test_a_doubt_is_told_once_when_it_begins_and_once_when_it_ends() -> None:
    world = World()
    bad, *_ = world.process(), world.process(), world.process()
    with capture_logs() as logs:
        await passing(600)
        assert logs == []
        bad.clock.jump(8 * DAY)
        for _ in range(100):
            assert bad.guard.now_ms() is None
            await passing(10)
        bad.clock.jump(-8 * DAY)
        await passing(600)
    assert [(line["log_level"], line["event"]) for line in logs] == [
        ("error", "this machine's clock is doubted, and nothing expires: set it right"),
        ("info", "this machine's clock is believed again: things expire"),
    ]
    assert "ahead of others" in logs[0]["reason"]


@simulated
async def test_a_jump_is_noticed_before_the_next_comparison() -> None:
    world = World()
    process, _ = world.process(), world.process()
    await passing(100)
    assert process.guard.now_ms() is not None
    process.clock.jump(8 * DAY)
    assert process.guard.now_ms() is None


@simulated
async def test_a_process_alone_is_settled_within_seconds() -> None:
    process = World().process(5 * DAY)
    await passing(2)
    assert process.guard.now_ms() == process.runtime.wall_ms()


@simulated
async def test_a_process_alone_doubts_a_jump_for_a_day_and_a_restart_ends_that() -> None:
    world = World()
    process = world.process(machine="here")
    await passing(100)
    process.clock.jump(8 * DAY)
    await passing(STEP_SECONDS / 2)
    assert process.guard.now_ms() is None
    neighbour = world.process(8 * DAY, machine="here")
    await passing(100)
    assert neighbour.guard.now_ms() is None  # its neighbour saw the clock jump
    await process.guard.stop()
    await passing(100)
    assert neighbour.guard.now_ms() is not None


@simulated
async def test_two_that_start_at_once_see_each_other_before_they_believe_themselves() -> None:
    world = World()
    bad, good = world.process(8 * DAY), world.process()
    for _ in range(100):
        assert bad.guard.now_ms() is None
        assert good.guard.now_ms() is None
        await passing(0.5)


@pytest.mark.parametrize("error", [Unavailable("in this test"), RuntimeError("in this test")])
def test_nothing_ends_the_comparing_and_without_it_nothing_expires(error: Exception) -> None:
    @simulated
    async def scenario() -> None:
        process = World().process()
        await passing(100)
        process.store.error = error
        with capture_logs() as lines:
            await passing(200)
        told = [line["event"] for line in lines if line["log_level"] == "warning"]
        assert told.count("clocks are compared later") == isinstance(error, Unavailable), "once"
        assert process.guard.now_ms() is None
        process.store.error = None
        await passing(100)
        assert process.guard.now_ms() is not None
        assert process.runtime.background.ended() == {}

    scenario()


@simulated
async def test_what_dead_processes_left_is_removed_and_what_stops_removes_its_own() -> None:
    world = World()
    stays, dies, stops = world.process(), world.process(), world.process()
    await passing(100)
    assert len(world.beats()) == 3
    dies.runtime.kill()
    await stops.guard.stop()
    assert len(world.beats()) == 2
    await passing(1000)
    assert len(world.beats()) == 1
    assert stays.guard.now_ms() is not None


@simulated
async def test_a_beat_of_another_format_is_left_alone_and_no_agreement() -> None:
    world = World()
    process = world.process()
    await passing(100)
    for number in range(4):
        put = Put(keys.clock("newer"), bytes([9, number]))
        world.state.apply(keys.CLUSTER_DOMAIN, [put], None, true_time())
        await passing(30)
    assert process.guard.now_ms() is None


# --- asked once


async def settled(world: World, ahead: float) -> tuple[str | None, float]:
    """What a tool with such a clock is told, and after how many seconds."""
    runtime = SimulatedRuntime(9, ProcessClock(ahead))
    began = true_time()
    guard = ClockGuard(MemoryStore(runtime, world.state, true_time), runtime, machine="third")
    return await guard.until_certain(), true_time() - began


@simulated
async def test_settling_takes_as_long_as_it_needs_and_no_longer() -> None:
    world = World()
    processes = [world.process(), world.process()]
    await passing(100)
    doubt, seconds = await settled(world, -8 * DAY)
    assert "behind others" in (doubt or "")
    assert seconds <= 2
    doubt, seconds = await settled(world, 0.0)  # or the others are dead: their next beats tell
    assert doubt is None
    assert 2 < seconds < 60
    doubt, seconds = await settled(world, 8 * DAY)
    assert "ahead of others" in (doubt or "")
    assert 2 < seconds < 60
    for process in processes:
        process.runtime.kill()
    await passing(1000)
    doubt, seconds = await settled(world, 0.0)  # here they are
    assert doubt is None
    assert 200 < seconds < 400


@simulated
async def test_settling_alone_takes_a_moment() -> None:
    runtime = SimulatedRuntime(1)
    began = true_time()
    assert await ClockGuard(MemoryStore(runtime), runtime).until_certain() is None
    assert true_time() - began <= 2


# --- the object store


def store_clock(process: SimulatedRuntime, bucket: MemoryBucket) -> Callable[[], Awaitable[int]]:
    class Objects(MemoryObjects):
        """With a clock of its own: the true one."""

        async def put(self, path: str, parts: Any) -> None:
            bucket.put(path, b"".join(parts), true_wall_ms())

    objects = Objects(process, bucket)
    return lambda: read_clock(objects, process)


@simulated
async def test_alone_with_an_object_store_that_has_a_clock() -> None:
    bucket, runtime = MemoryBucket(), SimulatedRuntime(1, ProcessClock(8 * DAY))
    guard = ClockGuard(MemoryStore(runtime), runtime, read_store_clock=store_clock(runtime, bucket))
    guard.start()
    await passing(100)
    assert "object store" in (guard.doubt() or "")
    runtime.clock.mend(true_time())
    assert guard.doubt() is None
    assert bucket.objects == {}  # what it wrote for that is gone again


@simulated
async def test_what_a_dead_process_left_in_the_bucket_goes_by_the_stores_clock_alone() -> None:
    bucket, runtime = MemoryBucket(), SimulatedRuntime(1, ProcessClock(-90 * DAY))
    bucket.put(f"{CLOCKS}old", b"-", true_wall_ms() - 2 * 3600 * 1000)
    bucket.put(f"{CLOCKS}new", b"-", true_wall_ms())
    bucket.put("wal/v1/other", b"-", true_wall_ms() - 9 * 3600 * 1000)
    assert await store_clock(runtime, bucket)() == true_wall_ms()
    assert sorted(bucket.objects) == [f"{CLOCKS}new", "wal/v1/other"]


@simulated
async def test_an_object_store_that_fails_or_hangs_is_no_evidence() -> None:
    runtime = SimulatedRuntime(1)
    answers: list[int] = []

    async def read() -> int:
        if answers:
            raise RuntimeError("in this test")
        answers.append(1)
        await asyncio.Event().wait()
        return 0

    guard = ClockGuard(MemoryStore(runtime), runtime, read_store_clock=read)
    guard.start()
    await passing(200)
    assert "could not be read" in (guard.doubt() or "")
    assert runtime.failures == []


def test_the_stored_format() -> None:
    beat = StoredBeat("boot id", 1_700_000_000_123, True)
    assert encode_beat(beat) == FIXTURE.read_bytes()
    assert decode_beat(FIXTURE.read_bytes()) == beat


# --- what it says of its process


@simulated
async def test_a_beat_says_which_level_its_process_reads_and_which_it_writes() -> None:
    world = World()
    looked: list[int] = []
    level = 2
    process = world.process(reads=2, writes=lambda: level, on_looked=lambda: looked.append(level))
    await passing(1)
    [beat] = world.beats()
    assert (decode_beat(beat.value).reads, decode_beat(beat.value).writes) == (2, 2)
    level = 1
    await passing(2 * process.guard.beat_seconds)
    [beat] = world.beats()
    assert (decode_beat(beat.value).reads, decode_beat(beat.value).writes) == (2, 1)
    assert looked[0] == 2, "after each look"
    assert looked[-1] == 1


@simulated
async def test_a_beat_of_a_build_from_before_levels_says_nothing() -> None:
    assert decode_beat(FIXTURE.read_bytes()).reads is None
    world = World()
    world.process(reads=None)
    await passing(1)
    [beat] = world.beats()
    assert b"reads" not in beat.value
    assert b"writes" not in beat.value


@simulated
async def test_processes_of_a_kind_know_each_other_by_their_beats() -> None:
    world = World()
    one, two = [world.process(process=ProcessDescription("compactor", "build")) for _ in range(2)]
    world.process(process=ProcessDescription("migrator", "build"))
    world.process()
    assert one.guard.peers() == set(), "nobody before the first look: it goes about everything"
    await passing(100)
    assert (one.guard.peers(), two.guard.peers()) == ({two.guard.process}, {one.guard.process})
    two.runtime.kill()
    await passing(GONE_BEATS * one.guard.beat_seconds - 60)
    assert one.guard.peers() == {two.guard.process}
    await passing(200)
    assert one.guard.peers() == set()
    three = world.process(process=ProcessDescription("compactor", "build"))
    await passing(100)
    assert one.guard.peers() == {three.guard.process}
    await three.guard.stop()
    await passing(2 * one.guard.beat_seconds)
    assert one.guard.peers() == set()


@simulated
async def test_it_is_known_for_how_long_no_process_of_a_kind_was_seen() -> None:
    world = World()
    one = world.process()
    assert one.guard.unseen_seconds("compactor") == 0, "nobody looked yet"
    await passing(1000)
    assert 900 <= one.guard.unseen_seconds("compactor") <= 1000, "since the first look"
    world.process(process=ProcessDescription("migrator", "build"))
    compactor = world.process(process=ProcessDescription("compactor", "build"))
    await passing(100)
    assert one.guard.unseen_seconds("compactor") <= one.guard.beat_seconds
    await compactor.guard.stop()
    await passing(1000)
    assert 900 <= one.guard.unseen_seconds("compactor") <= 1000 + one.guard.beat_seconds
    assert one.guard.unseen_seconds("migrator") <= one.guard.beat_seconds
