"""While its clock is doubted, the log lets nothing grow old: records, producers and objects stay."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.scripted import ScriptedObjects, ScriptedStore
from tests.unit.log.harness import DOMAINS, QUICK, World, append, batch_bytes

from dray.log import Log
from dray.log.life.collector import Collector
from dray.log.life.retention import Retention
from dray.log.stream_state import advance_to_filed
from dray.log.stream_store import StreamStore
from dray.log.types import Bounds
from dray.log.wal import object_path
from dray.metadata import keys

HOUR = 3600.0
YEAR_MS = 365 * 24 * 3_600_000


class DoubtedClock:
    """An expiry clock a year ahead, which says so or not."""

    def __init__(self, world: World) -> None:
        self._runtime = world.runtime
        self.doubted = True
        self.ahead_ms = 0  # what the others show, against ours

    def now_ms(self) -> int | None:
        return None if self.doubted else self._runtime.wall_ms() + YEAR_MS

    def likely_ms(self) -> int:
        return self._runtime.wall_ms() + self.ahead_ms


@pytest.fixture
async def clock(world: World) -> DoubtedClock:
    return DoubtedClock(world)


def doubtful_log(world: World, clock: DoubtedClock) -> Log:
    store, objects = ScriptedStore(world.runtime, world.state), ScriptedObjects(world.runtime, world.bucket)
    return Log(store, objects, world.runtime, DOMAINS, QUICK, expiry=clock)


def streams_of(world: World) -> StreamStore:
    return StreamStore(ScriptedStore(world.runtime, world.state), DOMAINS, QUICK.producer_expiry_ms)


async def filled(world: World, log: Log, count: int) -> int:
    [stream] = await log.create_streams(1)
    now_ms = world.runtime.wall_ms()
    for number in range(count):
        data = batch_bytes([b"%d" % number], timestamps=[now_ms], producer=(1, 0, number))
        await append(log, stream, data)
    return stream


async def test_records_do_not_expire_by_age_and_still_do_by_size(world: World, clock: DoubtedClock) -> None:
    log = doubtful_log(world, clock)
    stream = await filled(world, log, 4)
    retention = Retention(streams_of(world), world.runtime, QUICK, expiry=clock)
    assert not await retention.keep(stream, 3_600_000, -1)
    assert await log.bounds(stream) == Bounds(0, 4)
    assert await retention.keep(stream, 3_600_000, 1)
    assert await log.bounds(stream) == Bounds(3, 4)
    clock.doubted = False
    assert await retention.keep(stream, 3_600_000, -1)
    assert await log.bounds(stream) == Bounds(4, 4)


@pytest.mark.parametrize("way", ["in a snapshot", "when a batch is judged", "when records are deleted"])
async def test_producers_are_not_forgotten(world: World, clock: DoubtedClock, way: str) -> None:
    """The second copy of a batch is a duplicate, wherever its producer was looked up."""
    log = doubtful_log(world, clock)
    stream = await filled(world, log, 3)
    if way == "in a snapshot":
        await advance_to_filed(streams_of(world), stream, clock.now_ms())
        await log.delete_records(stream, 3)
    elif way == "when records are deleted":
        await log.delete_records(stream, 3)
    again = batch_bytes([b"2"], timestamps=[world.runtime.wall_ms()], producer=(1, 0, 2))
    assert (await append(doubtful_log(world, clock), stream, again)).base_offset == 2
    clock.doubted = False  # a year ahead, and believed: nobody is known any more
    assert (await append(doubtful_log(world, clock), stream, again)).base_offset == 3


async def test_objects_do_not_look_old(world: World, clock: DoubtedClock) -> None:
    lost = object_path("local", 0, world.runtime.wall_ms(), world.runtime.uuid())
    world.bucket.put(lost, b"an upload that may just be under way", world.runtime.wall_ms())
    objects = ScriptedObjects(world.runtime, world.bucket)
    collector = Collector(
        streams_of(world), objects, world.runtime, QUICK, may_delete=world.may_delete, expiry=clock
    )
    assert (await collector.run()).deleted == 0
    assert lost in world.bucket.objects
    clock.doubted = False
    for _ in range(3):
        await collector.run()
        await asyncio.sleep(HOUR)
    assert lost not in world.bucket.objects


async def test_the_parts_of_a_log_ask_its_clock(world: World, clock: DoubtedClock) -> None:
    """The collector and the retention that a log makes for itself."""
    log = doubtful_log(world, clock)
    assert log.collector._expiry is clock
    assert log._retention._expiry is clock
    assert log._retention._swap._expiry is clock
    assert log._lifecycle._expiry is clock


async def test_the_marks_of_closed_streams_stay(world: World, clock: DoubtedClock) -> None:
    log = doubtful_log(world, clock)
    [stream] = await log.create_streams(1)
    await log.close_streams([stream])
    await log.sweep_streams([stream])
    assert await log._lifecycle.forget_closed() == 0
    assert world.keys(keys.high_watermark(stream))
    clock.doubted = False
    assert await log._lifecycle.forget_closed() == 1


DAY_MS = 24 * 3_600_000


async def test_a_retry_elsewhere_is_known_though_the_first_broker_s_clock_was_behind(
    world: World, clock: DoubtedClock
) -> None:
    """Producers grow old by the time that stands in entries. By a clock two days behind, which is doubted,
    the producer would look forgotten at every other broker, and its retry would be stored again."""
    behind = doubtful_log(world, clock)
    [stream] = await behind.create_streams(1)
    clock.ahead_ms = 2 * DAY_MS
    payment = batch_bytes([b"payment"], producer=(1, 0, 0))
    assert (await append(behind, stream, payment)).base_offset == 0
    right = DoubtedClock(world)
    right.now_ms = lambda: world.runtime.wall_ms() + 2 * DAY_MS  # type: ignore[method-assign]
    other = doubtful_log(world, right)
    assert (await append(other, stream, payment)).base_offset == 0, "it is the first answer again"


async def test_a_doubted_clock_writes_nothing_older_than_what_it_follows(
    world: World, clock: DoubtedClock
) -> None:
    right = DoubtedClock(world)
    right.ahead_ms = 2 * DAY_MS
    first = doubtful_log(world, right)
    [stream] = await first.create_streams(1)
    await append(first, stream, batch_bytes([b"a"], producer=(1, 0, 0)))
    behind = doubtful_log(world, clock)
    await append(behind, stream, batch_bytes([b"b"], producer=(1, 0, 1)))
    found = await streams_of(world).high_watermark(stream)
    assert found is not None
    assert found.value.head is not None
    assert found.value.head.created_ms >= world.runtime.wall_ms() + 2 * DAY_MS - 1000
