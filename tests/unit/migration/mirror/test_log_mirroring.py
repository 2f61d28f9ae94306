"""What a source wrote, taken in while the source owns the stream: rules of the commit, and what is read."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.services.attached_log import AttachedLog
from tests.simulation.scripted import Fate
from tests.unit.log.harness import append, batch_bytes, read
from tests.unit.migration.entries.foreign_harness import EPOCH
from tests.unit.migration.mirror.mirror_harness import (
    NOW_MS,
    MirrorWorld,
    Producer,
    SourceLog,
    collect,
    committed_in,
    mirror,
    mirror_all,
    played,
    read_on,
    written,
)

from dray.base.runtime import SystemRuntime
from dray.kafka.records import read_header
from dray.kafka.records.header import CONTROL
from dray.log.origins import BoundaryStands, SourceOwnsLog
from dray.log.producer_state import ProducerStates
from dray.log.types import LogUnavailable, OffsetOutOfRange, ReadRequest, StreamClosed
from dray.metadata import keys
from dray.migration.entries.lay_down import DAY_MS
from dray.migration.formats.batches import ABORT, COMMIT, walk_batches
from dray.migration.mirror import mirror_states, mirrored_objects, mirrored_pieces, mirroring
from dray.migration.mirror.mirroring import (
    MirroredBatches,
    MirroredPlace,
    MirroredProducer,
    MirrorLost,
    MirrorRefused,
)
from dray.migration.mirror.switching import forbid_boundary


@pytest.fixture
def world() -> MirrorWorld:
    return MirrorWorld()


# --- what is read


@pytest.mark.parametrize("most", [1, 3, 100])
@pytest.mark.parametrize("max_bytes", [1, 1 << 20])
async def test_batches_are_served_as_the_source_wrote_them_but_for_the_epoch(
    world: MirrorWorld, most: int, max_bytes: int
) -> None:
    """Holes before the first batch and between others, and markers, which go raw."""
    source = SourceLog(end=40, epoch=7)
    source.append([b"first"], hole=2)
    source.append([b"second", b"third"], hole=5)
    source.append([b"undone"], Producer(9, 0, 0), transactional=True)
    source.mark(Producer(9, 0), ABORT)
    source.append([b"last"], hole=1)
    log = world.log()
    stream = await world.classic(log, start=40)
    place = await mirror_all(log, stream, source, most)
    assert place == MirroredPlace(source.end, 7, 40)
    data = await read_on(log, stream, 40, source.end, max_bytes)
    assert data == source.served()
    assert {batch.header.leader_epoch for batch in walk_batches(data)} == {EPOCH}
    assert (await log.bounds(stream)).end == source.end
    marker = await read(log, stream, source.end - 3, 1)
    assert read_header(marker.buffers[0]).attributes & CONTROL


async def test_a_process_that_follows_goes_on_where_the_last_one_stood(world: MirrorWorld) -> None:
    source = SourceLog(epoch=5)
    source.append([b"a"], Producer(1, 0, 0))
    log = world.log()
    stream = await world.classic(log)
    assert await log.mirror.place(stream) == MirroredPlace(0, None, 0)
    await mirror(log, stream, source)
    await log.collector._fence(stream)  # a seal takes the head out of the high watermark
    source.epoch = 6
    source.append([b"b"], Producer(1, 0, 1))
    follower = world.log()
    assert await follower.mirror.place(stream) == MirroredPlace(1, 5, 0)
    assert await mirror_all(follower, stream, source) == MirroredPlace(2, 6, 0)
    assert await read_on(follower, stream, 0, 2) == source.served()


async def test_times_are_found_over_pieces(world: MirrorWorld) -> None:
    source = SourceLog()
    for time in (500, 900, 700, 800, 1000):
        source.append([b"x"], time=NOW_MS + time)
    log = world.log()
    stream = await world.classic(log)
    await mirror_all(log, stream, source, 2)
    for wanted, offset in ((0, 0), (501, 1), (900, 1), (901, 4), (1000, 4)):
        found = await log.find_timestamp(stream, NOW_MS + wanted)
        assert found is not None
        assert found.offset == offset
    assert await log.find_timestamp(stream, NOW_MS + 1001) is None
    latest = await log.find_max_timestamp(stream)
    assert latest is not None
    assert (latest.offset, latest.timestamp) == (4, NOW_MS + 1000)


async def test_an_entry_is_of_one_day_where_the_broker_stamped_the_times(world: MirrorWorld) -> None:
    """A table by day takes no entry of two days."""
    source = SourceLog()
    midnight = NOW_MS // DAY_MS * DAY_MS + DAY_MS
    for time in (midnight - 2, midnight - 1, midnight, midnight + DAY_MS):
        source.append([b"x"], time=time, stamped=True)
    log = world.log()
    stream = await world.classic(log)
    await mirror(log, stream, source)
    view = await world.streams().view(stream)
    assert view is not None
    assert view.high_watermark.value.head is not None
    spans = [(entry.value.start, entry.value.end) for entry in view.entries]
    assert [*spans, (view.high_watermark.value.head.start, source.end)] == [(0, 2), (2, 3), (3, 4)]


# --- aborted transactions


@pytest.mark.parametrize("seed", range(25))
async def test_readers_of_committed_records_see_those_and_no_others(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Transactions over several pieces, aborted and then committed ones of one producer in one piece, markers
    that come long after their records: whatever is asked for, from wherever."""
    random = Random(seed)
    monkeypatch.setattr(mirroring, "MOST_ENTRY_BYTES", random.choice([200, 600, 1 << 20]))
    monkeypatch.setattr(mirroring, "MOST_ABORTED", random.choice([1, 2, 100]))
    log = world.log()
    stream = await world.classic(log)
    for source in played(random):
        for _ in range(random.randint(0, 3)):
            await mirror(log, stream, source, random.randint(1, 6))
    await mirror_all(log, stream, source, random.randint(1, 6))
    assert await read_on(log, stream, 0, source.end) == source.served()
    for max_bytes in (1, 300, 1 << 20):
        offset, found = 0, []
        while offset < source.end:
            some, offset = committed_in(await read(log, stream, offset, max_bytes), offset)
            found += some
        assert found == source.committed
    assert any(one.is_aborted for one in source.transactions)


async def test_a_later_transaction_of_the_same_producer_is_not_hidden(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One answer of the source names the aborted one; the committed one behind its marker is in another
    entry."""
    monkeypatch.setattr(mirroring, "MOST_ENTRY_BYTES", 150)
    source = SourceLog()
    source.append([b"undone"], Producer(1, 0, 0), transactional=True)
    source.mark(Producer(1, 0), ABORT)
    source.append([b"done"], Producer(1, 0, 1), transactional=True)
    source.mark(Producer(1, 0), COMMIT)
    log = world.log()
    stream = await world.classic(log)
    await mirror(log, stream, source)
    assert [list((await read(log, stream, offset, 1)).aborted) for offset in range(4)] == [
        [(1, 0)],
        [(1, 0)],
        [],
        [],
    ]


async def test_an_aborted_transaction_reaches_over_pieces_until_its_marker(world: MirrorWorld) -> None:
    source = SourceLog()
    source.append([b"early"], Producer(1, 0, 0), transactional=True)
    source.append([b"undecided"], Producer(2, 0, 0), transactional=True)
    source.append([b"late"], Producer(1, 0, 1), transactional=True)
    source.mark(Producer(1, 0), ABORT)
    log = world.log()
    stream = await world.classic(log)
    assert (await mirror(log, stream, source)).end == 1, "the last stable offset"
    assert list((await read(log, stream, 0, 1)).aborted) == [(1, 0)], "its marker is not here yet"
    source.mark(Producer(2, 0), COMMIT)
    await mirror_all(log, stream, source, 1)
    aborted = [list((await read(log, stream, offset, 1)).aborted) for offset in range(5)]
    assert aborted == [[(1, 0)], [(1, 0)], [(1, 0)], [(1, 0)], []]


# --- who may, and where


async def test_nothing_is_mirrored_into_a_stream_that_is_ours(world: MirrorWorld) -> None:
    log = world.log()
    [born] = await log.create_streams(1)
    source = written()
    data, aborted = source.answer(0)
    for stream in (born, await world.classic(log)):
        if stream != born:
            assert await log.mirror.decide(stream, 0)
        with pytest.raises(BoundaryStands):
            await log.mirror.commit(stream, data, aborted, expected=MirroredPlace(0, None, 0))
        with pytest.raises(BoundaryStands):
            await log.mirror.place(stream)
        assert (await append(log, stream, batch_bytes([b"ours"]))).base_offset == 0


async def test_a_commit_that_comes_after_the_switch_is_refused(world: MirrorWorld) -> None:
    """The mirror had looked before. Neither the log nor the producers move."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    source.append([b"a"], Producer(1, 0, 0))
    await mirror(log, stream, source)
    source.append([b"b"], Producer(1, 0, 1))
    other = world.log()
    late = [world.store.trap(Fate.LATE, part="/hwm") for _ in range(mirrored_objects.TRIES)]
    with pytest.raises(LogUnavailable):
        await mirror(other, stream, source)
    assert await log.mirror.decide(stream, 1)
    for each in late:
        each.land()
    assert await log.mirror.boundary(stream) == 1
    assert (await log.bounds(stream)).end == 1
    assert (await world.streams().snapshot(stream)).value.upto == 1
    answered = await append(log, stream, batch_bytes([b"b"], producer=(1, 0, 1)))
    assert answered.base_offset == 1, "appended: the log does not have it"


@pytest.mark.parametrize("base", [0, 2])
async def test_batches_below_the_end_are_refused(world: MirrorWorld, base: int) -> None:
    log, source = world.log(), written(1)
    stream = await world.classic(log)
    place = await mirror(log, stream, source)
    again = SourceLog(end=base)
    again.append([b"x", b"y"])
    with pytest.raises(MirrorRefused, match=f"a batch begins at offset {base}, and 3 is the least"):
        await log.mirror.commit(stream, again.answer(0)[0], [], expected=place)
    assert await read_on(log, stream, 0, 3) == source.served()
    assert world.keys("/dray/v1/wal/staging/") == []


async def test_damaged_batches_are_refused(world: MirrorWorld) -> None:
    log, source = world.log(), written(2)
    stream = await world.classic(log)
    data = bytearray(source.answer(0)[0])
    data[-1] ^= 1
    place = await log.mirror.place(stream)
    with pytest.raises(MirrorRefused, match="checksum"):
        await log.mirror.commit(stream, memoryview(data), [], expected=place)
    assert world.bucket.objects == {}


async def test_of_two_mirrors_one_loses_and_its_object_is_collected(world: MirrorWorld) -> None:
    source = written()
    first, second = world.log(), world.log()
    stream = await world.classic(first)
    place = await second.mirror.place(stream)
    held = world.store.trap(Fate.HOLD_BEFORE, part="/hwm")
    data, aborted = source.answer(0, 2)
    losing = asyncio.ensure_future(second.mirror.commit(stream, data, aborted, expected=place))
    await held.reached()
    await mirror_all(first, stream, source)
    held.release()
    with pytest.raises(MirrorLost, match=f"ends at {source.end}"):
        await losing
    assert await read_on(second, stream, 0, source.end) == source.served()
    assert len(world.bucket.objects) == 2
    await collect(world, second)
    assert len(world.bucket.objects) == 1
    assert await read_on(world.log(), stream, 0, source.end) == source.served()
    with pytest.raises(MirrorLost):
        await second.mirror.commit(stream, data, aborted, expected=place)


# --- an object is named once it is durable, and stays while it is named


async def test_nothing_names_an_object_before_it_is_there(world: MirrorWorld) -> None:
    log, source = world.log(), written()
    stream = await world.classic(log)
    world.objects.trap(Fate.REFUSE, kind="put")
    with pytest.raises(LogUnavailable):
        await mirror(log, stream, source)
    assert (await log.bounds(stream)).end == 0
    assert world.keys("/dray/v1/wal/refs/") == []
    assert world.keys("/dray/v1/wal/staging/") == []
    await mirror_all(log, stream, source)
    assert await read_on(log, stream, 0, source.end) == source.served()


async def test_an_object_whose_mirror_died_before_its_commit_is_collected(world: MirrorWorld) -> None:
    """Its commit comes later all the same, and finds the stream sealed."""
    log, source = world.log(), written()
    stream = await world.classic(log)
    place = await log.mirror.place(stream)
    late = world.store.trap(Fate.LATE, part="/hwm")
    world.store.trap(Fate.FAIL, kind="barrier")
    data, aborted = source.answer(0)
    with pytest.raises(RuntimeError):
        await log.mirror.commit(stream, data, aborted, expected=place)
    assert len(world.bucket.objects) == 1
    other = world.log()
    await collect(world, other)
    assert world.bucket.objects == {}
    assert world.keys("/dray/v1/wal/") == []
    late.land()
    assert (await other.bounds(stream)).end == 0
    await mirror_all(other, stream, source)
    assert await read_on(other, stream, 0, source.end) == source.served()


async def mirror_from(log: AttachedLog, stream: int, source: SourceLog) -> None:
    """Without a look at the place first."""
    data, aborted = source.answer(0)
    await log.mirror.commit(stream, data, aborted, expected=MirroredPlace(0, None, 0))


async def test_an_object_whose_mirror_died_after_its_commit_stays(world: MirrorWorld) -> None:
    log, source = world.log(), written()
    stream = await world.classic(log)
    place = await log.mirror.place(stream)
    data, aborted = source.answer(0)
    world.store.trap(Fate.PASS, part="/wal/staging/")
    world.store.trap(Fate.FAIL, part="/wal/staging/")
    with pytest.raises(RuntimeError):
        await log.mirror.commit(stream, data, aborted, expected=place)
    assert len(world.keys("/dray/v1/wal/staging/")) == 1
    other = world.log()
    await collect(world, other)
    assert world.keys("/dray/v1/wal/staging/") == []
    assert len(world.keys("/dray/v1/wal/refs/")) == 1
    assert await read_on(world.log(), stream, 0, source.end) == source.served()


async def test_a_mirror_whose_object_was_taken_by_a_collector_does_not_commit(world: MirrorWorld) -> None:
    """It slept between upload and commit, and reads its high watermark as the collector left it."""
    log, source = world.log(), written()
    stream = await world.classic(log)
    held = world.objects.trap(Fate.HOLD_AFTER, kind="put")
    sleeping = asyncio.ensure_future(mirror_from(log, stream, source))
    await held.reached()
    await collect(world, world.log())
    await log.mirror.place(stream)
    held.release()
    with pytest.raises(LogUnavailable):
        await sleeping
    assert (await log.bounds(stream)).end == 0
    assert await mirror_all(world.log(), stream, source) == MirroredPlace(source.end, 0, 0)


async def test_a_seal_during_a_commit_only_delays_it(world: MirrorWorld) -> None:
    log, source = world.log(), written()
    stream = await world.classic(log)
    other = world.log()

    async def seal() -> None:
        assert await other.collector._fence(stream)

    log = world.log()
    world.store.trap(Fate.PASS, part="/hwm", first=seal)
    await mirror_all(log, stream, source)
    assert await read_on(log, stream, 0, source.end) == source.served()


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_REPLY, Fate.LATE, Fate.REFUSE])
async def test_an_unclear_reply_is_resolved_by_reading(world: MirrorWorld, fate: Fate) -> None:
    log, source = world.log(), written()
    stream = await world.classic(log)
    trap = world.store.trap(fate, part="/hwm")
    await mirror_all(log, stream, source, 2)
    if fate is Fate.LATE:
        trap.land()
    assert await read_on(log, stream, 0, source.end) == source.served()
    await collect(world, log)
    assert len(world.bucket.objects) == 2
    assert await read_on(world.log(), stream, 0, source.end) == source.served()


async def test_an_object_whose_commit_is_unclear_stays_until_that_is_clear(world: MirrorWorld) -> None:
    """No reply ever came, and the last of the writes applies when the mirror has given up."""
    log, source = world.log(), written()
    stream = await world.classic(log)
    late = [world.store.trap(Fate.LATE, part="/hwm") for _ in range(mirrored_objects.TRIES)]
    with pytest.raises(LogUnavailable):
        await mirror(log, stream, source)
    late[-1].land()
    await collect(world, log)
    assert await read_on(world.log(), stream, 0, source.end) == source.served()
    assert len(world.bucket.objects) == 1
    assert world.keys("/dray/v1/wal/staging/") == []


async def test_what_can_wait_rides_on_the_next_commit(world: MirrorWorld) -> None:
    """While more follows: the mark of an object goes with the staging of the next, and the snapshot lags. A
    mirror that dies then leaves a mark, and the collector finds its object in the log."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    place = await log.mirror.place(stream)
    for number in range(mirror_states.MOST_LAG + 4):
        source.append([b"x"], Producer(1, 0, number))
        data, aborted = source.answer(place.end)
        piece = MirroredBatches(stream, data, aborted, place)
        after = (await log.mirror.commit_all([piece], more_follows=True))[stream]
        assert isinstance(after, MirroredPlace)
        place = after
        assert len(world.keys("/dray/v1/wal/staging/")) == 1
    assert (await world.streams().snapshot(stream)).value.upto == mirror_states.MOST_LAG
    follower = world.log()
    assert await follower.mirror.producers(stream) == {MirroredProducer(1, 0, source.end - 1)}
    await collect(world, follower)
    assert world.keys("/dray/v1/wal/staging/") == []
    assert await read_on(world.log(), stream, 0, source.end) == source.served()
    source.append([b"last"])
    await mirror(log, stream, source)
    assert world.keys("/dray/v1/wal/staging/") == []
    assert (await world.streams().snapshot(stream)).value.upto == source.end


async def test_streams_of_a_domain_share_an_object(world: MirrorWorld) -> None:
    log = world.log()
    streams = [await world.classic(log) for _ in range(6)]
    sources = {stream: SourceLog() for stream in streams}
    for number, stream in enumerate(streams):
        for _ in range(2 + number // 4):  # some end at the same offset
            sources[stream].append([b"of stream %d" % stream] * 3)
    pieces = [
        MirroredBatches(stream, source.answer(0)[0], [], MirroredPlace(0, None, 0))
        for stream, source in sources.items()
    ]
    ours = streams[0]
    assert await log.mirror.decide(ours, 0)
    found = dict(await log.mirror.commit_all(pieces))
    assert isinstance(found.pop(ours), BoundaryStands), "and the others go on"
    assert found == {stream: MirroredPlace(sources[stream].end, 0, 0) for stream in streams[1:]}
    assert len(world.bucket.objects) == 2, "one for each domain"
    for stream in streams[1:]:
        assert await read_on(log, stream, 0, sources[stream].end) == sources[stream].served()
    await log.close_streams(streams[1:5])
    await log.sweep_streams(streams[1:5])
    await collect(world, log)
    assert len(world.bucket.objects) == 1, "the last one's"
    last = streams[5]
    assert await read_on(world.log(), last, 0, sources[last].end) == sources[last].served()
    with pytest.raises(StreamClosed):
        await log.mirror.place(streams[1])


# --- start and boundary


@pytest.mark.parametrize("small", [0, 1 << 20])
async def test_the_start_follows_the_source_as_far_as_the_mirror_has_come(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch, small: int
) -> None:
    monkeypatch.setattr(mirror_states, "SMALL_SNAPSHOT", small)  # with 0 the snapshot lags
    log, source = world.log(), written(6)
    stream = await world.classic(log)
    await mirror_all(log, stream, source, 2)
    assert await log.mirror.raise_start(stream, 7) == 7
    assert await log.mirror.raise_start(stream, 3) == 7, "it never goes back"
    assert (await log.mirror.place(stream)).start == 7
    assert (await log.bounds(stream)).start == 7
    source.append([b"more"])
    await mirror_all(log, stream, source)
    assert await log.mirror.raise_start(stream, 1_000) == source.end
    await collect(world, log)
    assert world.bucket.objects == {}
    source.append([b"and more"])
    assert (await mirror_all(log, stream, source)).end == source.end
    assert await log.mirror.decide(stream, source.end)
    with pytest.raises(BoundaryStands):
        await log.mirror.raise_start(stream, source.end)


async def test_the_boundary_is_the_end_or_nothing(world: MirrorWorld) -> None:
    log, source = world.log(), written()
    stream = await world.classic(log)
    await mirror_all(log, stream, source, 2)
    assert await log.mirror.boundary(stream) is None
    for boundary in (0, source.end - 1, source.end + 1):
        assert not await log.mirror.decide(stream, boundary)
    assert await log.mirror.boundary(stream) is None
    for process in (log, world.log()):
        assert await process.mirror.decide(stream, source.end), "and again, by any process"
        assert not await process.mirror.decide(stream, source.end - 1), "B0 never changes"
    assert await log.mirror.boundary(stream) == source.end
    assert (await append(log, stream, batch_bytes([b"ours"]))).base_offset == source.end


async def test_a_log_that_grows_while_it_is_decided_is_not_switched(world: MirrorWorld) -> None:
    source = written(1)
    first = world.log()
    stream = await world.classic(first)
    await mirror_all(first, stream, source)
    boundary = source.end

    async def grow() -> None:
        source.append([b"late"])
        await mirror_all(first, stream, source)

    second = world.log()
    world.store.trap(Fate.PASS, part=keys.high_watermark(stream), first=grow)
    assert not await second.mirror.decide(stream, boundary)
    assert await second.mirror.boundary(stream) is None


@pytest.mark.parametrize("act", ["decide", "forbid"])
async def test_a_head_is_filed_when_its_version_moves(world: MirrorWorld, act: str) -> None:
    """A mirror that loses its compare-and-set files the head that it knew. Were it still the head, it would
    be swept as covered by itself, and its object deleted."""
    log, source = world.log(), written(1)
    stream = await world.classic(log)
    await mirror_all(log, stream, source)
    before = await world.streams().high_watermark(stream)
    assert before is not None
    assert before.value.head is not None
    if act == "decide":
        assert await log.mirror.decide(stream, source.end)
    else:
        assert await forbid_boundary(world.streams(), SystemRuntime(), stream) is None
    after = await world.streams().high_watermark(stream)
    assert after is not None
    assert after.version > before.version
    assert after.value.head is None
    view = await world.streams().view(stream)
    assert view is not None
    live, dead = view.split()
    assert [entry.value for entry in live] == [before.value.head]
    assert dead == []


async def test_pieces_are_cut_where_an_entry_would_list_too_many_aborted_transactions() -> None:
    source = SourceLog()
    for number in range(6):
        source.append([b"x"], Producer(number, 0, 0), transactional=True)
        source.mark(Producer(number, 0), ABORT)
    data, aborted = source.answer(0)
    found = mirrored_pieces.pieces_of(
        data, 0, aborted, ProducerStates(1000), NOW_MS, most_bytes=1 << 20, most_aborted=2
    )
    assert [len(piece.aborted) for piece, _ in found] == [2, 2, 2]
    assert [piece.start for piece, _ in found] == [0, 4, 8]


async def test_who_is_ahead_of_the_mirror_waits_for_it(world: MirrorWorld) -> None:
    """A consumer with offsets of its own that comes from the source, or one that reads what it has just
    produced: it is not told that its offset does not exist. Once the log is ours, it is."""
    log, source = world.log(), written()
    stream = await world.classic(log)
    await mirror(log, stream, source, 1)
    early = await read(log, stream, 6)
    assert (early.error, early.buffers, early.high_watermark) == (None, [], 3)
    waiting = asyncio.ensure_future(
        log.fetch([ReadRequest(stream, 6, 1 << 20)], min_bytes=1, max_bytes=1 << 20, max_wait_ms=60_000)
    )
    await mirror(log, stream, source, 1)
    await world.runtime.sleep(0)
    assert not waiting.done()
    await mirror_all(log, stream, source)
    [found] = await waiting
    assert committed_in(found, 6)[0] == source.committed[6:]
    assert await log.mirror.decide(stream, source.end)
    for broker in (log, world.log()):
        assert isinstance((await read(broker, stream, source.end + 1)).error, OffsetOutOfRange)
    below = await read(log, stream, -1)
    assert isinstance(below.error, OffsetOutOfRange)


async def test_records_are_deleted_at_the_source_while_that_owns_them(world: MirrorWorld) -> None:
    """Else the copy would begin later than the source, and both go on."""
    log, source = world.log(), written()
    stream = await world.classic(log)
    await mirror_all(log, stream, source)
    for before in (4, -1, 99):
        with pytest.raises(SourceOwnsLog):
            await log.delete_records(stream, before)
    assert (await world.log().bounds(stream)).start == 0
    assert await log.mirror.raise_start(stream, 3) == 3, "the mirror follows the source's start"
    assert await log.mirror.decide(stream, source.end)
    assert await log.delete_records(stream, 4) == 4
