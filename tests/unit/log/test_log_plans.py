"""A read is planned from one kind of place, which says what is ready, what is on its way, and what is not."""

from __future__ import annotations

from tests.unit.log.harness import EVERYTHING, World, append, batch_bytes
from tests.unit.log.parquet_harness import compact, entries_of

from dray.kafka.records import read_header
from dray.log import Log
from dray.log.read.plans import EmptyPlan, ParquetPlan, ReadPlan, TailPlan, WalPlan
from dray.log.types import ReadRequest


async def filled(log: Log, count: int = 4) -> int:
    [stream] = await log.create_streams(1)
    for number in range(count):
        await append(log, stream, batch_bytes([b"value %d" % number]))
    return stream


async def plan(
    log: Log, stream: int, offset: int, limit: int = EVERYTHING, at_least_one: bool = True
) -> ReadPlan:
    return await log._reader.plan(ReadRequest(stream, offset, EVERYTHING), limit, at_least_one)


def offsets(views: list[memoryview]) -> list[int]:
    data = b"".join(views)
    found, position = [], 0
    while position < len(data):
        header = read_header(data, position)
        found.append(header.base_offset)
        position += header.size
    return found


async def test_what_this_broker_wrote_is_in_memory(world: World) -> None:
    log = world.log()
    planned = await plan(log, await filled(log), 1)
    assert isinstance(planned, TailPlan)
    views = planned.ready()
    assert views is not None
    assert offsets(views) == [1, 2, 3]
    assert planned.size == planned.most == sum(map(len, views))


async def test_there_is_nothing_at_the_end_and_no_room_for_nothing(world: World) -> None:
    log = world.log()
    stream = await filled(log)
    for planned in (await plan(log, stream, 4), await plan(log, stream, 0, 0, at_least_one=False)):
        assert isinstance(planned, EmptyPlan)
        assert (planned.size, planned.most, planned.ready()) == (0, 0, [])


async def test_wal_objects_are_on_their_way_once_they_were_asked_for(world: World) -> None:
    log = world.log()
    stream = await filled(log)
    reading = world.log()
    planned = await plan(reading, stream, 1)
    assert isinstance(planned, WalPlan)
    assert planned.most == planned.size > 0
    assert planned.ready() is None, "which asks for them"
    assert planned.is_coming()
    assert offsets(await planned.read()) == [1, 2, 3]
    views = planned.ready()
    assert views is not None
    assert offsets(views) == [1, 2, 3]


async def test_a_batch_that_does_not_fit_is_no_plan_unless_one_is_due(world: World) -> None:
    log = world.log()
    stream = await filled(log)
    reading = world.log()
    assert isinstance(await plan(reading, stream, 0, 1, at_least_one=False), EmptyPlan)
    planned = await plan(reading, stream, 0, 1)
    assert isinstance(planned, WalPlan)
    assert offsets(await planned.read()) == [0]


async def test_files_are_read_and_never_ready(world: World) -> None:
    log = world.log()
    stream = await filled(log)
    entries = await entries_of(world, stream)
    await compact(world, stream, entries[:-1])
    reading = world.log()
    planned = await plan(reading, stream, 1, 10_000)
    assert isinstance(planned, ParquetPlan)
    assert planned.most == 10_000, "its size is a guess, and its limit is not"
    assert planned.decoded_bytes > 0
    assert planned.ready() is None
    assert not planned.is_coming()
    [first, *_] = offsets(await planned.read())
    assert first <= 1, "a batch that holds the offset"
    assert planned.ready() is None
