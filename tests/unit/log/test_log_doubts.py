"""A bad answer is not a bad record: it is read again before anybody hears of damage, and not without end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.simulation.scripted import Fate, Lie
from tests.unit.log.harness import DOMAINS, QUICK, World, append, batch_bytes, read, values_in
from tests.unit.log.parquet_harness import compact, entries_of, filled

from dray.base.telemetry.metrics import Metrics
from dray.daemons.assembly.instrumented_stores import InstrumentedMetadataStore, InstrumentedObjectStore
from dray.daemons.assembly.metrics import MeasuredLog
from dray.daemons.assembly.parts import StoreFails, store_checks
from dray.daemons.assembly.store_work import STALE_SECONDS
from dray.log import Log
from dray.log.read.doubts import Doubts, InDoubt
from dray.log.types import LogError, LogUnavailable, ObjectCorrupt, ReadRequest, ReadResult, TimestampedOffset
from dray_simulation.kernel.runtime import SimulatedRuntime

LIES = pytest.mark.parametrize("lie", list(Lie))


async def one_each(log: Log, count: int) -> int:
    """A stream with so many records, each in an object of its own."""
    [stream] = await log.create_streams(1)
    for number in range(count):
        await append(log, stream, batch_bytes([b"%d" % number], timestamps=[1000 + number]))
    return stream


@LIES
async def test_one_bad_answer_is_nobodys_problem(log: Log, world: World, lie: Lie) -> None:
    stream = await one_each(log, 1)
    reader = world.log()
    world.objects.lies.append(lie)
    assert values_in(await read(reader, stream, 0)) == [(0, b"0")]
    assert not world.objects.lies


@LIES
async def test_nor_one_about_a_compacted_file(log: Log, world: World, lie: Lie) -> None:
    stream = await filled(log, 9)
    wanted = values_in(await read(log, stream, 0))[:8]
    await compact(world, stream, (await entries_of(world, stream))[:8])
    for place in range(2):  # the footer and the row group are read side by side
        reader = world.log(tail_cache_bytes=0)
        world.objects.lies += [None] * place + [lie]
        assert values_in(await read(reader, stream, 0))[:8] == wanted
        assert not world.objects.lies


@LIES
async def test_nor_one_while_an_offset_is_looked_for(log: Log, world: World, lie: Lie) -> None:
    stream = await one_each(log, 3)
    reader = world.log()
    world.objects.lies.append(lie)
    assert await reader.find_timestamp(stream, 1001) == TimestampedOffset(1, 1001)
    assert not world.objects.lies


async def test_nor_is_one_failed_read_while_an_offset_is_looked_for(log: Log, world: World) -> None:
    stream = await one_each(log, 3)
    reader = world.log()
    world.objects.trap(Fate.REFUSE, "get")
    assert await reader.find_timestamp(stream, 1001) == TimestampedOffset(1, 1001)


@LIES
async def test_who_looks_for_an_offset_waits_while_a_store_lies(log: Log, world: World, lie: Lie) -> None:
    stream = await one_each(log, 3)
    reader = world.log()
    told: list[tuple[float, LogError]] = []
    began = world.runtime.monotonic()
    while (after := world.runtime.monotonic() - began) < 60.0:
        world.objects.lies.clear()
        world.objects.lies += [lie] * 100
        with pytest.raises(LogError) as caught:
            await reader.find_timestamp(stream, 1001)
        told.append((after, caught.value))
    assert {type(error) for after, error in told if after < 20.0} == {InDoubt}
    assert isinstance(told[-1][1], ObjectCorrupt)
    world.objects.lies.clear()
    assert await reader.find_timestamp(stream, 1001) == TimestampedOffset(1, 1001)


async def while_it_lies(
    world: World, lie: Lie, ask: Callable[[], Awaitable[ReadResult]], seconds: float
) -> list[ReadResult]:
    """The answers to a client that asks again and again, of a store that says nothing true."""
    answers: list[ReadResult] = []
    end = world.runtime.monotonic() + seconds
    while world.runtime.monotonic() < end:
        world.objects.lies.clear()
        world.objects.lies += [lie] * 100
        answers.append(await ask())
        await asyncio.sleep(0.02)
    world.objects.lies.clear()
    return answers


@LIES
async def test_clients_wait_while_a_store_lies_and_it_is_not_asked_without_end(
    log: Log, world: World, lie: Lie
) -> None:
    stream = await one_each(log, 20)
    reader = world.log()
    answers = await while_it_lies(world, lie, lambda: read(reader, stream, 0), 20.0)
    assert {type(answer.error) for answer in answers} == {InDoubt}
    most = 3 * 20 + 20  # each of the first plan three times, and then one object, with pauses
    assert len(world.objects.ranges_read) <= most
    began = world.runtime.monotonic()
    assert values_in(await read(reader, stream, 0))[0] == (0, b"0")
    assert world.runtime.monotonic() - began <= 2.0
    assert len(values_in(await read(reader, stream, 0))) == 20, "and it is read ahead again"


@LIES
async def test_what_stays_bad_is_named(log: Log, world: World, lie: Lie) -> None:
    stream = await one_each(log, 1)
    [path] = world.bucket.objects
    reader = world.log()
    answers = await while_it_lies(world, lie, lambda: read(reader, stream, 0), 40.0)
    error = answers[-1].error
    assert isinstance(error, ObjectCorrupt)
    assert (error.path, error.missing) == (path, lie is Lie.MISSING)
    assert path in str(error)
    assert values_in(await read(reader, stream, 0)) == [(0, b"0")], "one good answer ends it"


async def test_a_store_that_refuses_is_not_asked_without_end(log: Log, world: World) -> None:
    stream = await one_each(log, 20)
    reader = world.log()
    end = world.runtime.monotonic() + 20.0
    while world.runtime.monotonic() < end:
        for _ in range(50):
            world.objects.trap(Fate.REFUSE, "get")
        assert isinstance((await read(reader, stream, 0)).error, LogUnavailable)
        await asyncio.sleep(0.02)
    assert len(world.objects.ranges_read) < 60


async def test_other_streams_do_not_wait_for_one_that_is_doubted(log: Log, world: World) -> None:
    bad, good = await one_each(log, 1), await one_each(log, 1)
    reader = world.log()
    await while_it_lies(world, Lie.FLIP, lambda: read(reader, bad, 0), 5.0)
    world.objects.lies.append(Lie.FLIP)
    began = world.runtime.monotonic()
    both = [ReadRequest(bad, 0, 1000), ReadRequest(good, 0, 1000)]
    first, second = await reader.fetch(both, min_bytes=1, max_bytes=10_000, max_wait_ms=500)
    assert (first.error, first.size) == (None, 0)
    assert values_in(second) == [(0, b"0")]
    assert world.runtime.monotonic() - began < 0.5


async def test_what_is_kept_of_doubts_is_bounded() -> None:
    doubts = Doubts(SimulatedRuntime(1), 30.0)
    for number in range(20_000):
        doubts.failed("x", number, ObjectCorrupt("bad"))
    assert len(doubts._known) == 10_000
    assert ("x", 19_999) in doubts


# --- what they say of the store


class Readiness:
    """What a broker on this world says of its object store. The store's own requests end well, whatever it
    says."""

    def __init__(self, world: World) -> None:
        metrics = self.metrics = Metrics(process=False)
        objects = InstrumentedObjectStore(world.objects, metrics, world.runtime)
        self.log = Log(world.store, objects, world.runtime, DOMAINS, QUICK, MeasuredLog(metrics, objects))
        metadata = InstrumentedMetadataStore(world.store, metrics, world.runtime)
        self._check = store_checks(metadata, objects, world.runtime)["objects"]

    async def fault(self) -> str | None:
        try:
            await self._check()
        except StoreFails as error:
            return str(error)
        return None


@LIES
async def test_a_store_that_says_nothing_true_makes_a_broker_unready_until_its_first_good_answer(
    log: Log, world: World, lie: Lie
) -> None:
    stream = await one_each(log, 5)
    broker = Readiness(world)
    await while_it_lies(world, lie, lambda: read(broker.log, stream, 0), 3.0)
    assert await broker.fault() is None, "a moment is no outage"
    await while_it_lies(world, lie, lambda: read(broker.log, stream, 0), 6.0)
    fault = await broker.fault()
    assert fault is not None
    assert fault.startswith("answers about records fail since")
    assert "wal/" in fault, "with an object's path"
    assert values_in(await read(broker.log, stream, 0))[0] == (0, b"0")
    assert await broker.fault() is None


@LIES
async def test_one_bad_object_leaves_a_broker_ready_though_nothing_else_is_read(
    log: Log, world: World, lie: Lie
) -> None:
    """All else may come from memory."""
    stream = await one_each(log, 1)
    broker = Readiness(world)
    await while_it_lies(world, lie, lambda: read(broker.log, stream, 0), 40.0)
    assert isinstance((await lied_to(world, lie, broker, stream)).error, ObjectCorrupt)
    assert await broker.fault() is None
    damaged = broker.metrics.object_failures.labels("get_ranges", "ObjectCorrupt").value
    assert damaged > 5 if lie is not Lie.MISSING else damaged == 0, "an alert looks at it"


async def test_bad_objects_among_good_reads_leave_a_broker_ready(log: Log, world: World) -> None:
    bad = [await one_each(log, 1) for _ in range(2)]
    for path in list(world.bucket.objects):
        world.bucket.delete(path)
    good = await one_each(log, 20)
    broker = Readiness(world)
    for number in range(20):
        for stream in bad:
            assert (await read(broker.log, stream, 0)).error is not None
        assert values_in(await read(broker.log, good, number, 1))
        assert await broker.fault() is None
        await asyncio.sleep(1.0)


async def test_bad_answers_of_long_ago_say_nothing_of_now(log: Log, world: World) -> None:
    stream = await one_each(log, 5)
    broker = Readiness(world)
    await while_it_lies(world, Lie.FLIP, lambda: read(broker.log, stream, 0), 9.0)
    assert await broker.fault() is not None
    await asyncio.sleep(STALE_SECONDS)
    assert await broker.fault() is None


async def lied_to(world: World, lie: Lie, broker: Readiness, stream: int) -> ReadResult:
    [answer, *_] = await while_it_lies(world, lie, lambda: read(broker.log, stream, 0), 0.01)
    return answer
