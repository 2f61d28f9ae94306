"""A source that deleted records before they were mirrored: the log goes on behind a hole."""

from __future__ import annotations

from random import Random

import pytest
from tests.services.attached_log import AttachedLog
from tests.simulation.scripted import Fate
from tests.unit.log.harness import append, batch_bytes, read
from tests.unit.migration.entries.foreign_harness import ForeignWorld
from tests.unit.migration.entries.foreign_harness import kafka as kafka_segment
from tests.unit.migration.mirror.mirror_harness import (
    NOW_MS,
    MirrorWorld,
    Producer,
    SourceLog,
    batch_of,
    collect,
    committed_in,
    mirror,
    mirror_all,
    played,
    read_on,
    written,
)

from dray.log.origins import CLASSIC
from dray.log.types import OffsetOutOfRange, TimestampedOffset
from dray.migration.formats.batches import ABORT, COMMIT, walk_batches
from dray.migration.mirror.mirrored_pieces import hole_before, is_hole
from dray.migration.mirror.mirroring import MirroredBatches, MirroredPlace, MirroredProducer, MirrorRefused


@pytest.fixture
def world() -> MirrorWorld:
    return MirrorWorld()


async def skip(log: AttachedLog, stream: int, start: int) -> MirroredPlace:
    """What is to be mirrored next begins here: the source has deleted the rest."""
    place = await log.mirror.place(stream)
    return await log.mirror.commit(stream, memoryview(hole_before(start)), [], expected=place)


@pytest.mark.parametrize("raised", [False, True])
async def test_readers_are_led_over_what_is_gone(world: MirrorWorld, raised: bool) -> None:
    log, source = world.log(), written()
    stream = await world.classic(log)
    await mirror(log, stream, source, 1)
    assert await skip(log, stream, 9) == MirroredPlace(9, None, 0), "nothing is mirrored before what is next"
    if raised:
        assert await log.mirror.raise_start(stream, 9) == 9
    await mirror_all(log, stream, source)
    for each in (log, world.log()):
        assert await read_on(each, stream, 9, 12) == source.served(9)
        if raised:
            with pytest.raises(OffsetOutOfRange):
                raise (await read(each, stream, 3)).error or AssertionError("below the start")
            continue
        for offset in range(3, 9):
            data = b"".join(bytes(buffer) for buffer in (await read(each, stream, offset)).buffers)
            [batch] = walk_batches(data)
            assert (batch.last_offset, batch.header.record_count) == (8, 0)
    await collect(world, log)
    assert await read_on(world.log(), stream, 9, 12) == source.served(9)


async def test_a_hole_at_the_end_is_the_end_that_is_switched(world: MirrorWorld) -> None:
    """All that the source had is gone: Dray goes on where the source would."""
    log, source = world.log(), written()
    stream = await world.classic(log)
    await mirror(log, stream, source, 2)
    await skip(log, stream, 12)
    assert await log.mirror.raise_start(stream, 12) == 12
    assert await log.mirror.decide(stream, 12)
    broker = world.log()
    assert (await append(broker, stream, batch_bytes([b"ours"]))).base_offset == 12
    assert (await broker.bounds(stream)).start == 12


async def test_times_are_found_behind_a_hole(world: MirrorWorld) -> None:
    log, source = world.log(), SourceLog()
    for number in range(6):
        source.append([b"x"], time=NOW_MS + number)
    stream = await world.classic(log)
    await mirror(log, stream, source, 2)
    await skip(log, stream, 4)
    await mirror_all(log, stream, source)
    for raised in (False, True):
        if raised:
            await log.mirror.raise_start(stream, 4)
        found = await world.log().find_timestamp(stream, NOW_MS + 2)
        assert found == TimestampedOffset(4, NOW_MS + 4), "the first that is there"
        assert await world.log().find_max_timestamp(stream) == TimestampedOffset(5, NOW_MS + 5)


async def test_what_the_source_knew_of_producers_in_a_hole_is_not_guessed(world: MirrorWorld) -> None:
    """Producer 1 has gone on there: what was known of it would refuse its next batch. Also for a process that
    reads the log again."""
    log, source = world.log(), SourceLog()
    for number in range(4):
        source.append([b"x"], Producer(1, 0, number))
    source.append([b"y"], Producer(2, 0, 0))
    stream = await world.classic(log)
    await mirror(log, stream, source, 1)
    assert await log.mirror.producers(stream) == {MirroredProducer(1, 0, 0)}
    await skip(log, stream, 4)
    for each in (log, world.log()):
        assert await each.mirror.producers(stream) == frozenset()
    await mirror_all(log, stream, source)
    source.append([b"x"], Producer(2, 0, 1))
    await mirror_all(log, stream, source)
    for each in (log, world.log()):
        assert await each.mirror.producers(stream) == {MirroredProducer(2, 0, 1)}


async def test_producers_are_forgotten_while_a_hole_is_on_its_way(world: MirrorWorld) -> None:
    """Parts that are planned behind a hole fold onto nothing, before it is committed and after."""
    log, source = world.log(), SourceLog()
    for number in range(6):
        source.append([b"x"], Producer(number, 0, 0))
    stream = await world.classic(log)
    await mirror(log, stream, source, 1)
    place = await log.mirror.place(stream)
    hole = await log.mirror.plan(
        [MirroredBatches(stream, memoryview(hole_before(3)), [], place)],
    )
    data, _ = source.answer(3, 1)
    behind = await log.mirror.plan(
        [MirroredBatches(stream, data, [], place._replace(end=3), hole.tail(stream))]
    )
    for plan in (hole, behind):
        await log.mirror.upload(plan)
    for plan in (hole, behind):
        await log.mirror.commit_plan(plan)
    for each in (log, world.log()):
        assert await each.mirror.producers(stream) == {MirroredProducer(3, 0, 0)}


@pytest.mark.parametrize("raised", [False, True])
async def test_a_transaction_whose_marker_is_gone_hides_nothing_behind_the_hole(
    world: MirrorWorld, raised: bool
) -> None:
    """Kafka's client drops what an aborted producer wrote until its marker: which is in the hole. So no
    answer reaches over one."""
    log, source = world.log(), SourceLog()
    source.append([b"undone"], Producer(1, 0, 0), transactional=True)
    source.append([b"undone too"], Producer(1, 0, 1), transactional=True)
    source.mark(Producer(1, 0), ABORT)
    source.append([b"done"], Producer(1, 0, 2), transactional=True)
    source.mark(Producer(1, 0), COMMIT)
    stream = await world.classic(log)
    await mirror(log, stream, source, 1)
    await skip(log, stream, 3)
    if raised:
        await log.mirror.raise_start(stream, 3)
    await mirror_all(log, stream, source)
    for each in (log, world.log()):
        offset, found = 3 if raised else 0, []
        while offset < 5:
            some, offset = committed_in(await read(each, stream, offset), offset)
            found += some
        assert found == [(3, b"done")]


@pytest.mark.parametrize("seed", range(20))
async def test_committed_records_behind_holes_are_seen_and_no_others(world: MirrorWorld, seed: int) -> None:
    """As without holes, but the source deletes up to some offset now and then, also within a batch."""
    random = Random(seed)
    log = world.log()
    stream = await world.classic(log)
    gone: set[int] = set()
    for source in played(random):
        for _ in range(random.randint(0, 3)):
            place = await log.mirror.place(stream)
            if random.random() < 0.3 and place.end < source.last_stable:
                start = random.randint(place.end + 1, source.last_stable)
                gone |= set(range(place.end, start))
                await skip(log, stream, start)
                if random.random() < 0.5:
                    await log.mirror.raise_start(stream, start)
            await mirror(log, stream, source, random.randint(1, 6))
    if (await log.mirror.place(stream)).end < source.end:
        await mirror_all(log, stream, source, random.randint(1, 6))
    start = (await log.bounds(stream)).start
    expected = [each for each in source.committed if each[0] not in gone and each[0] >= start]
    for max_bytes in (1, 300, 1 << 20):
        offset, found = start, []
        while offset < source.end:
            some, offset = committed_in(await read(log, stream, offset, max_bytes), offset)
            found += some
        assert found == expected


@pytest.mark.parametrize("hops", [False, True])
async def test_a_source_may_begin_within_a_batch(world: MirrorWorld, hops: bool) -> None:
    """DeleteRecords takes any offset. The batch comes whole; its records below do not count."""
    log, source = world.log(), SourceLog()
    for number in range(4):
        source.append([b"%d" % number] * 3, Producer(1, 0, 3 * number))
    stream = await world.classic(log, 0 if hops else 7)
    if hops:
        await mirror(log, stream, source, 1)
        await skip(log, stream, 7)
    world.store.trap(Fate.LOSE, part="/producers")
    await mirror(log, stream, source, 1)
    for each in (log, world.log()):
        assert await each.mirror.producers(stream) == {MirroredProducer(1, 0, 8)}
    await mirror_all(log, stream, source)
    for each in (log, world.log()):
        assert await each.mirror.producers(stream) == {MirroredProducer(1, 0, 11)}
        found, _ = committed_in(await read(each, stream, 7), 7)
        assert [offset for offset, _ in found] == [7, 8, 9, 10, 11]
    retry = batch_bytes([b"2"] * 3, producer=(1, 0, 6))
    assert await log.mirror.decide(stream, 12)
    assert (await append(world.log(), stream, retry)).base_offset == 6


async def test_only_the_first_batch_may_begin_below_the_end(world: MirrorWorld) -> None:
    """Where something is mirrored, or a tier ends, a batch that reaches over that is of another history."""
    log, source = world.log(), written()
    stream = await world.classic(log)
    place = await mirror(log, stream, source, 1)
    data, _ = source.answer(4, 1)
    await log.mirror.commit(stream, data, [], expected=place)
    place = await log.mirror.place(stream)
    with pytest.raises(MirrorRefused):
        await log.mirror.commit(stream, data, [], expected=place)
    await skip(log, stream, 11)
    place = await log.mirror.place(stream)
    with pytest.raises(MirrorRefused):  # it ends before that
        await log.mirror.commit(stream, source.answer(6, 1)[0], [], expected=place)


async def test_where_a_tier_ends_a_batch_begins() -> None:
    world = ForeignWorld(source=kafka_segment(0))
    log, end = world.log(), world.source.end
    stream = await world.attach(log, world.source.attached(boundary=CLASSIC))
    place = await log.mirror.place(stream)
    with pytest.raises(MirrorRefused):
        over = memoryview(batch_of(end - 1, [b"x", b"y"]))
        await log.mirror.commit(stream, over, [], expected=place)
    assert (await skip(log, stream, end + 5)).end == end + 5
    place = await log.mirror.place(stream)
    over = memoryview(batch_of(end + 3, [b"x", b"y", b"z"]))
    assert (await log.mirror.commit(stream, over, [], expected=place)).end == end + 6


def test_no_batch_of_a_source_is_taken_for_a_hole() -> None:
    [hole] = walk_batches(hole_before(9))
    assert is_hole(hole.header)
    source = SourceLog()
    source.append([b"x"])
    source.append([b"x"], Producer(1, 0, 0), transactional=True)
    source.mark(Producer(1, 0), ABORT)
    for batch in source.batches:
        [found] = walk_batches(batch)
        assert not is_hole(found.header)
    emptied = hole.header._replace(producer_id=4, leader_epoch=2)
    assert not is_hole(emptied)
