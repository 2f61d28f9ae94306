"""What an engine takes in one write bounds no stream: snapshots are cut, commits split, settling is whole."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from structlog.testing import capture_logs
from tests.services import room_settings
from tests.simulation.scripted import Fate
from tests.unit.log.harness import DOMAINS, World, append, batch_bytes, read, start_append, values_in

from dray.log import Log
from dray.log.entries import HighWatermark
from dray.log.producer_state import (
    RETRIED_MS,
    ProducerEntry,
    ProducerSnapshot,
    ProducerStates,
    RememberedBatch,
)
from dray.log.stream_state import advance_snapshot
from dray.log.types import LogUnavailable, OutOfOrderSequence
from dray.metadata import keys
from dray.metadata.contract import Limits, Operation, Put

DAY_MS = 24 * 3_600_000
LATER = 1_100 + RETRIED_MS  # when all of them are silent
ETCD = Limits(operations=1100, value_bytes=1 << 20)


def states(producers: int, batches: int = 1) -> ProducerStates:
    """Each as silent as its number is small."""
    made = ProducerStates(DAY_MS)
    for number in range(producers):
        remembered = tuple(RememberedBatch(place, place, place, -1) for place in range(batches))
        made._own[number] = ProducerEntry(0, 1_000 + number, remembered)
    return made


# --- snapshots


@pytest.mark.parametrize("size", [13, 100, 500, 5_000, 43 * 100 + 12, 43 * 100 + 13])
@pytest.mark.parametrize("batches", [1, 3, 5])
def test_a_snapshot_is_cut_to_its_size(size: int, batches: int) -> None:
    kept, forgotten = states(100, batches).within(size, LATER)
    assert len(ProducerSnapshot(7, kept).encode()) <= size
    assert len(dict(kept.items())) + forgotten == 100
    assert set(dict(kept.items())) == set(range(forgotten, 100)), "the longest silent go"


def test_what_fits_is_kept_as_it_is() -> None:
    known = states(100, 5)
    assert known.within(len(ProducerSnapshot(7, known).encode()), LATER) == (known, 0)


def test_many_producers_are_cut_in_turns() -> None:
    """To put them in order held a broker up for a fifth of a second."""
    known = states(60_000)
    turns, cutting = 0, known.bounding(1 << 20, LATER)
    while True:
        try:
            next(cutting)
        except StopIteration as ended:
            kept, forgotten = ended.value
            break
        turns += 1
    assert turns >= 3 * (60_000 // 5_000)
    assert 0 < forgotten < 60_000
    assert set(dict(kept.items())) == set(range(forgotten, 60_000)), "the longest silent go"


def test_old_batches_go_before_producers_do() -> None:
    known = states(100, 5)
    kept, forgotten = known.within(len(ProducerSnapshot(7, known).encode()) - 1, LATER)
    assert forgotten == 0
    batches = [len(producer.batches) for _, producer in sorted(kept.items())]
    assert batches == [1] + [5] * 99
    assert kept.get(0) == ProducerEntry(0, 1_000, (RememberedBatch(4, 4, 4, -1),)), (
        "the last is the one that counts"
    )


@pytest.mark.parametrize("size", [13 + 139, 13 + 30 * 139])
def test_who_wrote_a_short_while_ago_is_remembered_whole(size: int) -> None:
    """A producer with batches under way may send each of them again."""
    known = states(100, 5)
    busy = (size - 13) // 139
    for number in range(100 - busy, 100):
        known._own[number] = known._own[number]._replace(last_ms=LATER)
    kept, forgotten = known.within(size, LATER)
    assert forgotten == 100 - busy
    assert {len(producer.batches) for _, producer in kept.items()} == {5}


def test_where_all_wrote_a_short_while_ago_their_earlier_batches_go_first() -> None:
    known = states(100, 5)
    kept, forgotten = known.within(13 + 100 * 43, 1_100)
    assert forgotten == 0
    assert {len(producer.batches) for _, producer in kept.items()} == {1}


async def crowded(world: World, log: Log, producers: int) -> int:
    """A stream whose snapshot holds so many producers."""
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"a"], producer=(1 << 40, 0, 0)))
    await append(log, stream, batch_bytes([b"b"], producer=(1 << 40, 0, 1)))
    told = world.runtime.wall_ms() - RETRIED_MS - 1000
    many = ProducerStates(DAY_MS)
    many._own = {
        number: ProducerEntry(0, told, (RememberedBatch(0, 0, 0, -1),)) for number in range(producers)
    }
    value = ProducerSnapshot(0, many).encode()
    await world.store.write(stream % DOMAINS, [Put(keys.producers(stream), value)])
    return stream


async def test_records_are_deleted_though_producers_outgrew_the_snapshot() -> None:
    world = World(limits=ETCD)
    log = world.log()
    most = (ETCD.value_bytes - 13) // 43
    stream = await crowded(world, log, most)
    with capture_logs() as lines:
        assert await log.delete_records(stream, 1) == 1
    [told] = [line for line in lines if "forgotten" in line]
    assert (told["stream"], told["forgotten"]) == (stream, 1)
    again = await append(world.log(), stream, batch_bytes([b"b"], producer=(1 << 40, 0, 1)))
    assert again.base_offset == 1, "those that wrote last are known"


async def turns_of_others(work: Awaitable[object]) -> int:
    """How often others had their turn meanwhile."""
    turns = 0
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    await task
    return turns


async def test_many_producers_are_read_and_written_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker held up by one stream's producers answers nobody meanwhile, and its session may end."""
    world = World()
    log = world.log()
    stream = await crowded(world, log, 60_000)
    few = await crowded(world, log, 10)
    least = 60_000 // 5_000
    streams = log._streams
    small = await turns_of_others(streams.snapshot(few))
    assert await turns_of_others(streams.snapshot(stream)) >= small + least
    assert await turns_of_others(advance_snapshot(streams, stream, 1, None)) >= small + 3 * least

    read: list[int] = []
    genuine = ProducerSnapshot.decoding.__func__  # type: ignore[attr-defined]

    def counted(cls: type[ProducerSnapshot], value: bytes, expiry_ms: int) -> object:
        read.append(len(value))
        return genuine(cls, value, expiry_ms)

    monkeypatch.setattr(ProducerSnapshot, "decoding", classmethod(counted))
    again = await append(world.log(), stream, batch_bytes([b"c"], producer=(1 << 40, 0, 2)))
    assert again.base_offset == 2
    assert len(read) == 1, "how far it reaches is read without the producers"


async def test_a_batch_that_is_no_longer_remembered_is_refused_not_doubled() -> None:
    """Where a producer is remembered by its last batch only, a copy of an earlier one is out of order."""
    world = World()
    log = world.log()
    [stream] = await log.create_streams(1)
    for sequence in range(3):
        await append(log, stream, batch_bytes([b"v"], producer=(7, 0, sequence)))
    snapshot = await log._streams.snapshot(stream)
    producer = ProducerEntry(0, world.runtime.wall_ms(), (RememberedBatch(2, 2, 2, -1),))
    snapshot.value.states._own = {7: producer}
    moved = ProducerSnapshot(3, snapshot.value.states)
    await world.store.write(stream % DOMAINS, [Put(keys.producers(stream), moved.encode())])
    reader = world.log()
    found = await world.store.get(stream % DOMAINS, keys.high_watermark(stream))
    assert found is not None
    sealed = HighWatermark.decode(found.value).sealed()
    await world.store.write(stream % DOMAINS, [Put(keys.high_watermark(stream), sealed.encode())])
    with pytest.raises(OutOfOrderSequence):
        await append(reader, stream, batch_bytes([b"v"], producer=(7, 0, 1)))
    assert (await append(reader, stream, batch_bytes([b"v"], producer=(7, 0, 2)))).base_offset == 2
    assert (await append(reader, stream, batch_bytes([b"w"], producer=(7, 0, 3)))).base_offset == 3


# --- commits


def watch_commits(world: World) -> list[list[str]]:
    """The streams that each commit was for."""
    seen: list[list[str]] = []
    inner = world.store.write

    async def write(domain: int, operations: list[Operation]) -> list[object]:
        marks = [each.key for each in operations if isinstance(each, Put) and each.key.endswith("/hwm")]
        if marks:
            seen.append(marks)
        return await inner(domain, operations)  # type: ignore[return-value]

    world.store.write = write  # type: ignore[assignment, method-assign]
    return seen


async def filled(world: World, log: Log, streams: list[int], batches: int) -> None:
    """Heads of so many batches in all of them."""
    appends = [start_append(log, stream, batch_bytes([b"v"])) for stream in streams for _ in range(batches)]
    await asyncio.gather(*appends)


async def test_a_commit_over_more_than_a_write_is_several() -> None:
    world = World(room_settings.log(retry_seconds=0.001, flush_linger=0.01), Limits(1000, 4_000))
    log = world.log()
    streams = (await log.create_streams(10 * DOMAINS))[::DOMAINS]
    commits = watch_commits(world)
    for _ in range(3):
        await filled(world, log, streams, 3)
    assert sum(map(len, commits)) == 3 * len(streams)
    assert 3 < len(commits) < 3 * len(streams), "as few as will do"
    for stream in streams:
        assert [offset for offset, _ in values_in(await read(world.log(), stream, 0))] == list(range(9))
    assert len(world.bucket.objects) == 3, "each in one object"


async def test_a_commit_of_more_operations_than_a_write_is_several() -> None:
    world = World(room_settings.log(retry_seconds=0.001, flush_linger=0.01), Limits(40, 1 << 20))
    log = world.log()
    log._pipelines[0]._max_streams = 30  # staging takes one operation of a stream, a commit two
    streams = (await log.create_streams(25 * DOMAINS))[::DOMAINS]
    await filled(world, log, streams, 1)
    commits = watch_commits(world)
    await filled(world, log, streams, 1)
    assert [len(marks) for marks in commits] == [20, 5]


@pytest.mark.parametrize("fate", [Fate.REFUSE, Fate.LOSE, Fate.LOSE_REPLY])
async def test_each_part_of_a_commit_has_an_outcome_of_its_own(fate: Fate) -> None:
    world = World(room_settings.log(retry_seconds=0.001, flush_linger=0.01), Limits(1000, 4_000))
    log = world.log()
    streams = (await log.create_streams(10 * DOMAINS))[::DOMAINS]
    await filled(world, log, streams, 3)
    world.store.trap(fate, "write", keys.high_watermark(streams[-1]))
    await filled(world, log, streams, 3)
    for stream in streams:
        assert [offset for offset, _ in values_in(await read(world.log(), stream, 0))] == list(range(6))
    await asyncio.sleep(2)
    assert world.keys(keys.STAGING) == []


async def test_a_part_that_stays_unclear_fails_alone() -> None:
    world = World(
        room_settings.log(retry_seconds=0.001, flush_linger=0.01, retry_limit=1), Limits(1000, 4_000)
    )
    log = world.log()
    streams = (await log.create_streams(10 * DOMAINS))[::DOMAINS]
    await filled(world, log, streams, 3)
    for _ in range(8):
        world.store.trap(Fate.LOSE, "write", keys.high_watermark(streams[-1]))
    appends = [start_append(log, stream, batch_bytes([b"w"])) for stream in streams for _ in range(3)]
    await asyncio.wait(appends)
    failed = [isinstance(done.exception(), LogUnavailable) for done in appends]
    assert failed[-3:] == [True] * 3
    assert failed[:15] == [False] * 15
    await asyncio.sleep(2)
    [mark] = world.keys(keys.STAGING)  # a write of it may still land: that is for the collector to say
    left = [key for key in world.keys(keys.REFERENCES) if keys.wal_id_of(key) == keys.wal_id_of(mark)]
    assert len(left) == len(streams)


async def test_a_head_too_large_to_be_filed_with_the_next_is_filed_first() -> None:
    """Of a build, or a store, that had more room."""
    roomy = World(room_settings.log(retry_seconds=0.001, flush_linger=0.01))
    log = roomy.log()
    [stream] = await log.create_streams(1)
    await filled(roomy, log, [stream], 85)
    world = World(
        room_settings.log(retry_seconds=0.001, flush_linger=0.01),
        Limits(1000, 4_000),
        roomy.runtime,
        roomy.state,
        roomy.bucket,
    )
    log = world.log()
    appended = await append(log, stream, batch_bytes([b"w"] * 3))
    assert appended.base_offset == 85
    large = [start_append(log, stream, batch_bytes([b"x"])) for _ in range(20)]
    assert [(await done).base_offset for done in large] == list(range(88, 108))
    assert len(values_in(await read(world.log(), stream, 0))) == 108


# --- settling


async def test_what_settles_one_object_stays_together() -> None:
    """A mark that went without its references would leave an object behind for ever."""
    world = World(limits=Limits(operations=40, value_bytes=1 << 20))
    log = world.log(settle_seconds=1.0, collect_grace=0.0, uploads_in_flight=12)
    streams = (await log.create_streams(4 * DOMAINS))[::DOMAINS]
    for _ in range(12):
        world.objects.trap(Fate.LOSE_REPLY, "put")
    failing = [start_append(log, stream, batch_bytes([b"v"])) for _ in range(12) for stream in streams]
    await asyncio.wait(failing)
    for _ in range(2):
        world.store.trap(Fate.REFUSE, "write", keys.REFERENCES)
    writes: list[list[str]] = []
    inner = world.store.write

    async def write(domain: int, operations: list[Operation]) -> list[object]:
        writes.append([each.key for each in operations])  # type: ignore[union-attr]
        return await inner(domain, operations)  # type: ignore[return-value]

    world.store.write = write  # type: ignore[assignment, method-assign]
    await asyncio.sleep(10)
    for operations in writes:
        marked = {keys.wal_id_of(key) for key in operations if key.startswith(keys.STAGING)}
        assert {keys.wal_id_of(key) for key in operations} == marked
    assert world.keys(keys.STAGING) == world.keys(keys.REFERENCES) == []
    await log.collector.run()
    assert world.bucket.objects == {}


async def test_settling_that_failed_comes_again() -> None:
    world = World()
    log = world.log(settle_seconds=1.0)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"v"]))
    for fate in (Fate.REFUSE, Fate.LOSE, Fate.LOSE_REPLY):
        world.store.trap(fate, "write", keys.STAGING)
    await asyncio.sleep(10)
    assert world.keys(keys.STAGING) == []


async def test_a_broker_that_stops_while_the_store_is_away_leaves_the_rest_to_the_collector() -> None:
    world = World()
    log = world.log(settle_seconds=60.0)
    [stream] = await log.create_streams(1)
    await append(log, stream, batch_bytes([b"v"]))
    world.store.trap(Fate.REFUSE, "write", keys.STAGING)
    await asyncio.wait_for(log.stop(), 1.0)
    assert len(world.keys(keys.STAGING)) == len(world.keys(keys.REFERENCES)) == 1
