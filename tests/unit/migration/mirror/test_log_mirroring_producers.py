"""Producers of a source's log: known here as a leader of the source knows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import append, batch_bytes, read, values_in
from tests.unit.migration.mirror.mirror_harness import (
    MirrorWorld,
    Producer,
    SourceLog,
    mirror,
    mirror_all,
    written,
)

from dray.log.origins import SourceOwnsLog
from dray.log.producer_state import RETRIED_MS, ProducerSnapshot
from dray.log.types import LogUnavailable, OutOfOrderSequence, ProducerFenced
from dray.migration.formats.batches import ABORT, COMMIT
from dray.migration.mirror import mirror_states, mirrored_objects
from dray.migration.mirror.mirroring import MirroredPlace, MirroredProducer
from dray.migration.mirror.switching import ProducersBehind, switch_stream


@pytest.fixture
def world() -> MirrorWorld:
    return MirrorWorld()


async def test_a_retry_across_the_boundary_is_answered_with_its_old_offset(world: MirrorWorld) -> None:
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    offsets = [source.append([b"v%d" % n] * 2, Producer(1, 3, 2 * n)) for n in range(7)]
    source.append([b"old"], Producer(2, 0, 0))
    source.append([b"new"], Producer(2, 1, 0))
    await mirror_all(log, stream, source, 3)
    assert await log.mirror.producers(stream) == {MirroredProducer(1, 3, 13), MirroredProducer(2, 1, 0)}
    assert await log.mirror.decide(stream, source.end)
    broker = world.log()
    for number in range(2, 7):
        retry = batch_bytes([b"v%d" % number] * 2, producer=(1, 3, 2 * number))
        assert (await append(broker, stream, retry)).base_offset == offsets[number]
    with pytest.raises(OutOfOrderSequence):
        await append(broker, stream, batch_bytes([b"v0"] * 2, producer=(1, 3, 0)))
    with pytest.raises(ProducerFenced):
        await append(broker, stream, batch_bytes([b"x"], producer=(2, 0, 1)))
    following = batch_bytes([b"v7"] * 2, producer=(1, 3, 14))
    assert (await append(broker, stream, following)).base_offset == source.end
    assert (
        await append(broker, stream, batch_bytes([b"x"], producer=(2, 1, 1)))
    ).base_offset == source.end + 2
    assert values_in(await read(broker, stream, source.end))[0] == (source.end, b"v7")


async def test_markers_move_producers_as_a_leader_of_kafka_does(world: MirrorWorld) -> None:
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    source.append([b"a"], Producer(1, 0, 0), transactional=True)
    source.mark(Producer(1, 0), COMMIT)  # the same epoch: its sequences go on
    source.append([b"b"], Producer(2, 0, 0), transactional=True)
    source.mark(Producer(2, 1), ABORT)  # fenced: they begin anew
    source.mark(Producer(3, 4), ABORT)  # it wrote nothing here
    await mirror_all(log, stream, source)
    expected = {MirroredProducer(1, 0, 0), MirroredProducer(2, 1, -1), MirroredProducer(3, 4, -1)}
    assert await log.mirror.producers(stream) == expected
    assert await world.log().mirror.producers(stream) == expected
    source.append([b"c"], Producer(2, 1, 0), transactional=True)
    source.mark(Producer(2, 1), COMMIT)
    await mirror_all(log, stream, source)
    assert MirroredProducer(2, 1, 0) in await log.mirror.producers(stream)


async def test_producers_of_a_snapshot_that_lags_are_read_from_the_batches(world: MirrorWorld) -> None:
    """The mirror died between its commit and the snapshot. Its successor knows the producers."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    for number in range(4):
        source.append([b"x"], Producer(1, 0, number))
        world.store.trap(Fate.LOSE, part="/producers")
        await mirror(log, stream, source)
    assert (await world.streams().snapshot(stream)).value.upto == 0
    with pytest.raises(ProducersBehind):
        await switch_stream(world.streams(), world.runtime, stream)
    follower = world.log()
    assert await follower.mirror.producers(stream) == {MirroredProducer(1, 0, 3)}
    assert await follower.mirror.decide(stream, 4)
    retry = batch_bytes([b"x"], producer=(1, 0, 3))
    assert (await append(world.log(), stream, retry)).base_offset == 3


async def test_an_append_is_the_sources_also_where_the_snapshot_lags(world: MirrorWorld) -> None:
    log, source = world.log(), written()
    stream = await world.classic(log)
    world.store.trap(Fate.LOSE, part="/producers")
    await mirror(log, stream, source)
    assert (await world.streams().snapshot(stream)).value.upto == 0
    with pytest.raises(SourceOwnsLog):
        await append(world.log(), stream, batch_bytes([b"x"]))
    assert await world.log().producers(stream) == []


async def test_a_snapshot_is_never_ahead_of_the_log(world: MirrorWorld) -> None:
    """One that is would answer a first try as a retry once the stream is switched."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    source.append([b"x"], Producer(1, 0, 0))
    place = await log.mirror.place(stream)
    data, aborted = source.answer(0)
    for fate in (Fate.LOSE, Fate.LATE):
        for _ in range(mirrored_objects.TRIES):
            world.store.trap(fate, part="/hwm")
        with pytest.raises(LogUnavailable):
            await log.mirror.commit(stream, data, aborted, expected=place)
        assert (await world.streams().snapshot(stream)).value.upto == 0
    world.store.disarm()
    assert await mirror_all(log, stream, source) == MirroredPlace(1, 0, 0)
    assert (await world.streams().snapshot(stream)).value.upto == 1


async def test_a_large_snapshot_is_not_written_with_every_piece(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_states, "SMALL_SNAPSHOT", 0)
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    for number in range(mirror_states.MOST_LAG + 3):
        source.append([b"x"], Producer(1, 0, number))
    await mirror_all(log, stream, source, 1)
    assert (await world.streams().snapshot(stream)).value.upto == mirror_states.MOST_LAG
    assert await log.mirror.decide(stream, source.end)
    assert (await world.streams().snapshot(stream)).value.upto == source.end


async def test_producers_of_long_ago_are_not_kept_because_they_are_mirrored_today(world: MirrorWorld) -> None:
    """A leader of Kafka goes by the times in the batches: it has forgotten them."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    now_ms, expiry_ms = world.runtime.wall_ms(), world.settings.producer_expiry_ms
    for number in range(50):
        source.append([b"old"], Producer(number, 0, 0), time=now_ms - 3 * expiry_ms)
    source.append([b"young"], Producer(90, 0, 0), time=now_ms - expiry_ms // 2)
    source.append([b"no time"], Producer(91, 0, 0), time=-1)
    source.append([b"later"], Producer(92, 0, 0), time=now_ms + 10 * expiry_ms)
    await mirror_all(log, stream, source)
    assert len(await log.mirror.producers(stream)) == 53, "each may still send its last batch again"
    await world.runtime.sleep(RETRIED_MS / 1000 + 1)
    source.append([b"x"], Producer(92, 0, 1), time=world.runtime.wall_ms())
    await mirror_all(log, stream, source)
    for each in (log, world.log()):
        found = {producer.producer_id for producer in await each.mirror.producers(stream)}
        assert found == {90, 91, 92}
    await world.runtime.sleep(expiry_ms / 1000)
    source.append([b"x"], Producer(92, 0, 2), time=world.runtime.wall_ms())
    await mirror_all(log, stream, source)
    assert {each.producer_id for each in await log.mirror.producers(stream)} == {92}


async def test_a_producer_whose_times_go_back_is_as_young_as_it_ever_was(world: MirrorWorld) -> None:
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    now_ms = world.runtime.wall_ms()
    source.append([b"x"], Producer(1, 0, 0), time=now_ms)
    source.append([b"x"], Producer(1, 0, 1), time=0)
    await mirror_all(log, stream, source)
    await world.runtime.sleep(RETRIED_MS / 1000 + 1)
    source.append([b"x"])
    await mirror_all(log, stream, source)
    assert await log.mirror.producers(stream) == {MirroredProducer(1, 0, 1)}


async def test_a_snapshot_of_many_producers_does_not_hold_up_the_loop(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made in a thread, and only when it is to be written."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    made: list[tuple[int, bool]] = []
    genuine, in_thread = ProducerSnapshot.encode, world.runtime.in_thread
    is_in_thread = False

    def encode(self: ProducerSnapshot) -> bytes:
        made.append((self.upto, is_in_thread))
        return genuine(self)

    async def marked(call: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal is_in_thread
        is_in_thread = True
        try:
            return await in_thread(call, *arguments)
        finally:
            is_in_thread = False

    monkeypatch.setattr(ProducerSnapshot, "encode", encode)
    monkeypatch.setattr(world.runtime, "in_thread", marked)
    many = mirror_states.SMALL_SNAPSHOT // 40
    for number in range(many):
        source.append([b"x"], Producer(number, 0, 0))
    await mirror_all(log, stream, source)
    made.clear()
    for number in range(mirror_states.MOST_LAG):
        source.append([b"x"], Producer(0, 0, 1 + number))
        await mirror_all(log, stream, source)
    assert made == [(many + mirror_states.MOST_LAG - 1, True)], "one of sixteen, and in a thread"
    assert (await world.streams().snapshot(stream)).value.upto == many + mirror_states.MOST_LAG - 1


async def test_what_is_committed_while_a_snapshot_is_made_is_not_lost(
    world: MirrorWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is a producer dropped that had expired and has written again."""
    monkeypatch.setattr(mirror_states, "SMALL_SNAPSHOT", 0)
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    for number in range(mirror_states.MOST_LAG - 1):
        source.append([b"x"], Producer(1, 0, number), time=world.runtime.wall_ms())
        await mirror_all(log, stream, source)
    await world.runtime.sleep(world.settings.producer_expiry_ms / 1000 + RETRIED_MS)
    in_thread = world.runtime.in_thread
    source.append([b"x"], Producer(2, 0, 0), time=world.runtime.wall_ms())
    state = await log.mirror._states.fresh(stream)

    async def meanwhile(call: Callable[..., Any], *arguments: Any) -> Any:
        made = await in_thread(call, *arguments)
        known = state.producers.get(1)
        assert known is not None
        state.producers.put(1, known._replace(last_ms=world.runtime.wall_ms()))
        state.entries_since += 1
        return made

    monkeypatch.setattr(world.runtime, "in_thread", meanwhile)
    await mirror_all(log, stream, source)
    assert state.producers.get(1) is not None
    assert state.entries_since == 1


# --- producers of which nothing was mirrored: the source's retention was faster


async def test_a_producer_whose_records_are_gone_goes_on_behind_the_boundary(world: MirrorWorld) -> None:
    log, source = world.log(), SourceLog(end=40)
    stream = await world.classic(log, 40)
    source.append([b"a"], Producer(1, 0, 0))
    await mirror_all(log, stream, source)
    silent, markers = MirroredProducer(2, 3, 9), MirroredProducer(3, 1, -1)
    assert await log.mirror.decide(stream, 41, None, [silent, markers])
    broker = world.log()
    for retry in (batch_bytes([b"x"], producer=(2, 3, 9)), batch_bytes([b"x"] * 4, producer=(2, 3, 6))):
        assert (await append(broker, stream, retry)).base_offset == -1, "known, but not where it was"
    for earlier in (8, 0):
        with pytest.raises(OutOfOrderSequence):
            await append(broker, stream, batch_bytes([b"x"], producer=(2, 3, earlier)))
    with pytest.raises(LogUnavailable, match="10 is missing before it"):  # it may be on its way
        await append(broker, stream, batch_bytes([b"x"], producer=(2, 3, 11)))
    with pytest.raises(ProducerFenced):
        await append(broker, stream, batch_bytes([b"x"], producer=(2, 2, 10)))
    with pytest.raises(LogUnavailable, match="0 is missing before it"):
        await append(broker, stream, batch_bytes([b"x"], producer=(3, 1, 1)))
    for expected, producer in ((41, (2, 3, 10)), (42, (3, 1, 0)), (43, (2, 3, 11))):
        assert (await append(broker, stream, batch_bytes([b"x"], producer=producer))).base_offset == expected
    assert (await append(broker, stream, batch_bytes([b"x"], producer=(2, 3, 10)))).base_offset == 41
    assert (await append(broker, stream, batch_bytes([b"x"], producer=(2, 3, 9)))).base_offset == -1
    assert len(values_in(await read(broker, stream, 41))) == 3


async def test_what_is_known_of_a_producer_is_not_given_up_for_less(world: MirrorWorld) -> None:
    """Its records were mirrored, and deleted since: where they were is still known."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    source.append([b"a"], Producer(1, 0, 0))
    source.append([b"b"], Producer(2, 0, 0))
    await mirror_all(log, stream, source)
    await log.mirror.raise_start(stream, 1)
    assert await log.mirror.producers(stream) == {MirroredProducer(2, 0, 0)}
    assert await log.mirror.decide(stream, 2, None, [MirroredProducer(1, 0, 0)])
    retry = batch_bytes([b"a"], producer=(1, 0, 0))
    assert (await append(world.log(), stream, retry)).base_offset == 0


async def test_the_source_knows_more_of_a_producer_whose_records_are_gone(world: MirrorWorld) -> None:
    """It has deleted later ones before they could be mirrored."""
    log, source = world.log(), SourceLog()
    stream = await world.classic(log)
    source.append([b"a"], Producer(1, 0, 0))
    await mirror_all(log, stream, source)
    source.end = 7
    source.append([b"b"], Producer(2, 0, 0))
    await mirror_all(log, stream, source)
    await log.mirror.raise_start(stream, 7)
    assert await log.mirror.producers(stream) == {MirroredProducer(2, 0, 0)}
    assert await log.mirror.decide(stream, 8, None, [MirroredProducer(1, 1, 4)])
    assert (await append(world.log(), stream, batch_bytes([b"c"], producer=(1, 1, 5)))).base_offset == 8


async def test_what_is_mirrored_later_counts_more_than_what_was_taken_over(world: MirrorWorld) -> None:
    """A switch that went back may have left it: its producers write on at the source."""
    log, source = world.log(), SourceLog(end=40)
    stream = await world.classic(log, 40)
    source.append([b"a"], Producer(2, 0, 0))
    await mirror_all(log, stream, source)

    async def is_allowed() -> bool:
        return False

    silent = MirroredProducer(1, 3, 99)
    assert not await log.mirror.decide(stream, 41, is_allowed, [silent])
    assert await log.mirror.producers(stream) == {MirroredProducer(2, 0, 0)}, "nothing of it is in the log"
    for sequence in (100, 101):
        source.append([b"b"], Producer(1, 3, sequence))
    await mirror_all(log, stream, source)
    assert MirroredProducer(1, 3, 101) in await world.log().mirror.producers(stream)
    assert await log.mirror.decide(stream, 43)
    broker = world.log()
    assert (await append(broker, stream, batch_bytes([b"b"], producer=(1, 3, 100)))).base_offset == 41
    assert (await append(broker, stream, batch_bytes([b"b"], producer=(1, 3, 99)))).base_offset == -1


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LOSE_REPLY, Fate.LATE])
async def test_nothing_is_decided_before_the_producers_are_there(world: MirrorWorld, fate: Fate) -> None:
    log, source = world.log(), SourceLog(end=40)
    stream = await world.classic(log, 40)
    source.append([b"a"], Producer(2, 0, 0))
    await mirror_all(log, stream, source)
    silent = [MirroredProducer(1, 3, 9)]
    world.store.trap(fate, part="/producers")
    with pytest.raises(LogUnavailable):
        await log.mirror.decide(stream, 41, None, silent)
    assert await world.log().mirror.boundary(stream) is None
    assert await log.mirror.decide(stream, 41, None, silent)
    assert (await append(world.log(), stream, batch_bytes([b"b"], producer=(1, 3, 9)))).base_offset == -1


async def test_producers_that_another_process_took_over_meanwhile_are_added_to(world: MirrorWorld) -> None:
    one, other, source = world.log(), world.log(), SourceLog(end=40)
    stream = await world.classic(one, 40)
    source.append([b"a"], Producer(2, 0, 0))
    await mirror_all(one, stream, source)
    await other.mirror.producers(stream)

    async def is_allowed() -> bool:
        return False

    assert not await one.mirror.decide(stream, 41, is_allowed, [MirroredProducer(1, 3, 9)])
    assert await other.mirror.decide(stream, 41, None, [MirroredProducer(4, 0, 5)])
    broker = world.log()
    for producer in ((1, 3, 9), (4, 0, 5)):
        assert (await append(broker, stream, batch_bytes([b"b"], producer=producer))).base_offset == -1
