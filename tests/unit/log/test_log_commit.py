"""The commit, seen by those who wait for its answers: duplicates, refusals, retries, snapshots."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.simulation.scripted import Fate
from tests.unit.log.harness import World, append, batch_bytes, read, start_append, values_in

from dray.kafka.records import crc32c
from dray.log import Log, LogObserver
from dray.log.types import AppendResult, LogUnavailable, OutOfOrderSequence, ProducerFenced
from dray.metadata import keys
from dray.metadata.contract import Ambiguous, MetadataError, Operation, Outcome, Put, Unavailable


def sent(sequence: int, count: int = 1, epoch: int = 0, producer: int = 1) -> bytearray:
    return batch_bytes([b"%d" % sequence] * count, producer=(producer, epoch, sequence))


def offsets(answers: list[AppendResult]) -> list[int]:
    return [answer.base_offset for answer in answers]


# --- answers


async def test_a_copy_in_the_same_object_is_answered_with_the_commit(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    commit = world.store.hold("write", "/hwm")
    copies = [start_append(log, stream, sent(0)) for _ in range(3)]
    await commit.reached()
    assert not any(copy.done() for copy in copies)
    commit.release()
    assert offsets(await asyncio.gather(*copies)) == [0, 0, 0]
    assert (await log.bounds(stream)).end == 1


async def test_a_copy_in_the_same_object_fails_with_its_original(world: World) -> None:
    log = world.log(retry_limit=1)
    [stream] = await log.create_streams(1)
    world.store.trap(Fate.LOSE, "write", "/hwm")
    world.store.trap(Fate.LOSE, "write", "/hwm")
    copies = [start_append(log, stream, sent(0)) for _ in range(2)]
    await asyncio.wait(copies)
    assert [type(copy.exception()) for copy in copies] == [LogUnavailable] * 2
    assert (await log.bounds(stream)).end == 0


async def test_a_copy_moves_with_its_original_when_another_broker_was_quicker(world: World) -> None:
    other = world.log()
    [stream] = await other.create_streams(1)
    log = world.log()
    commit = world.store.hold("write", "/hwm")
    copies = [start_append(log, stream, sent(0)) for _ in range(2)]
    await commit.reached()
    await append(other, stream, batch_bytes([b"x", b"y"]))
    commit.release()
    assert offsets(await asyncio.gather(*copies)) == [2, 2]


async def test_a_refusal_waits_for_the_commit_it_was_judged_by(world: World) -> None:
    """Behind the batch of a new epoch in the same object, the old epoch is fenced: once it is there."""
    log = world.log(retry_limit=1)
    [stream] = await log.create_streams(1)
    await append(log, stream, sent(0))
    for _ in range(2):
        world.store.trap(Fate.LOSE, "write", "/hwm")
    batches = [start_append(log, stream, sent(0, epoch=1)), start_append(log, stream, sent(1, epoch=0))]
    await asyncio.wait(batches)
    assert [type(batch.exception()) for batch in batches] == [LogUnavailable] * 2
    assert (await append(log, stream, sent(1, epoch=0))).base_offset == 1, "it was not fenced after all"
    batches = [start_append(log, stream, sent(0, epoch=1)), start_append(log, stream, sent(2, epoch=0))]
    await asyncio.wait(batches)
    assert batches[0].exception() is None
    assert isinstance(batches[1].exception(), ProducerFenced)


async def test_some_of_a_chunk_can_be_refused_and_the_rest_appended(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    await append(log, stream, sent(0))
    batches = [
        start_append(log, stream, sent(0)),
        start_append(log, stream, sent(5)),
        start_append(log, stream, sent(1)),
        start_append(log, stream, batch_bytes([b"plain"])),
    ]
    await asyncio.wait(batches)
    assert isinstance(batches[1].exception(), OutOfOrderSequence)
    assert offsets([batches[place].result() for place in (0, 2, 3)]) == [0, 1, 2]
    found = [value for _, value in values_in(await read(world.log(), stream, 0))]
    assert found == [b"0", b"1", b"plain"], "what was refused lies in the object, and is not served"


async def test_a_duplicate_is_answered_with_its_first_append_time(log: Log, world: World) -> None:
    [stream] = await log.create_streams(1)
    data = batch_bytes([b"v"], producer=(1, 0, 0), timestamps=[5000])
    data[22] |= 0x08  # stamped by the broker
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    assert await append(log, stream, data, append_time_ms=5000) == AppendResult(0, 5000, 0)
    for broker in (log, world.log()):
        again = await append(broker, stream, data, append_time_ms=9000)
        assert again[:2] == (0, 5000)


# --- several in flight


async def test_what_is_behind_a_failed_first_batch_is_refused_until_it_is_there(world: World) -> None:
    """Kafka's clients send five without waiting; the first fails, and nobody knows the producer yet."""
    log = world.log(object_bytes=1)
    [stream] = await log.create_streams(1)
    world.objects.trap(Fate.REFUSE, "put")
    batches = [start_append(log, stream, sent(sequence)) for sequence in range(3)]
    await asyncio.wait(batches)
    assert [type(batch.exception()) for batch in batches] == [LogUnavailable] * 3
    with pytest.raises(LogUnavailable, match="0 failed before it"):  # sent before the client heard of it
        await append(log, stream, sent(3))
    answers = [await append(log, stream, sent(sequence)) for sequence in range(4)]
    assert offsets(answers) == [0, 1, 2, 3]


@pytest.mark.parametrize("epoch", [0, 1])
async def test_what_is_behind_an_unclear_batch_is_not_out_of_order(world: World, epoch: int) -> None:
    """librdkafka would take a new epoch, and send the batch in it: twice, if the write still applies."""
    log = world.log(retry_limit=1)
    [stream] = await log.create_streams(1)
    await append(log, stream, sent(0))
    first = 1 if epoch == 0 else 0
    for _ in range(2):
        world.store.trap(Fate.LOSE, "write", "/hwm")
    with pytest.raises(LogUnavailable):
        await append(log, stream, sent(first, epoch=epoch))
    for sequence in (first + 1, first + 2):
        with pytest.raises(LogUnavailable, match=f"{first} failed before it"):
            await append(log, stream, sent(sequence, epoch=epoch))
    answers = [await append(log, stream, sent(first + number, epoch=epoch)) for number in range(3)]
    assert offsets(answers) == [1, 2, 3]
    with pytest.raises(OutOfOrderSequence):  # now it is the producer's own fault
        await append(log, stream, sent(first + 4, epoch=epoch))


async def test_what_is_behind_what_was_to_be_sent_again_is_too(world: World) -> None:
    """The failed batch came by another broker meanwhile, and the one behind it has yet to come again."""
    log = world.log(retry_limit=1)
    [stream] = await log.create_streams(1)
    await append(log, stream, sent(0))
    for _ in range(2):
        world.store.trap(Fate.LOSE, "write", "/hwm")
    for sequence in (1, 2):
        with pytest.raises(LogUnavailable):
            await append(log, stream, sent(sequence))
    await append(world.log(), stream, sent(1))
    with pytest.raises(LogUnavailable, match="2 failed before it"):
        await append(log, stream, sent(3))
    assert offsets([await append(log, stream, sent(sequence)) for sequence in (2, 3)]) == [2, 3]


@pytest.mark.parametrize("epoch", [0, 1])
async def test_what_is_behind_a_batch_of_another_broker_is_not_out_of_order_at_once(
    world: World, epoch: int
) -> None:
    """The batch before it may be on its way there. librdkafka would take a new epoch, and send both in it."""
    other = world.log(object_bytes=1)
    [stream] = await other.create_streams(1)
    await append(other, stream, sent(0))
    commit = world.store.hold("write", "/hwm")
    log = world.log()
    first = 1 - epoch
    under_way = start_append(other, stream, sent(first, epoch=epoch))
    await commit.reached()
    with pytest.raises(LogUnavailable, match=f"{first} is missing before it"):
        await append(log, stream, sent(first + 1, epoch=epoch))
    commit.release()
    assert (await under_way).base_offset == 1
    assert (await append(log, stream, sent(first + 1, epoch=epoch))).base_offset == 2


async def test_a_gap_that_no_broker_fills_in_time_is_the_producers_own(world: World) -> None:
    other = world.log()
    [stream] = await other.create_streams(1)
    await append(other, stream, sent(0))
    log = world.log()
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="1 is missing before it"):
            await append(log, stream, sent(2))
    await world.runtime.sleep(world.settings.commit_seconds)
    with pytest.raises(OutOfOrderSequence):
        await append(log, stream, sent(2))
    assert offsets([await append(log, stream, sent(sequence)) for sequence in (1, 2)]) == [1, 2]
    with pytest.raises(OutOfOrderSequence):  # what this broker has appended itself, it knows
        await append(log, stream, sent(4))


async def test_a_producer_that_nobody_knows_may_start_anywhere(log: Log) -> None:
    [stream] = await log.create_streams(1)
    assert (await append(log, stream, sent(57))).base_offset == 0
    assert (await append(log, stream, sent(58))).base_offset == 1


async def test_stragglers_of_an_epoch_that_was_given_up_are_fenced(world: World) -> None:
    """Nothing of either epoch is in the log yet, but the producer has started anew."""
    log = world.log(object_bytes=1)
    [stream] = await log.create_streams(1)
    for _ in range(2):
        world.objects.trap(Fate.REFUSE, "put")
    slow = world.store.hold("write", keys.STAGING)
    batches = [start_append(log, stream, sent(3, epoch=0))]
    await slow.reached()
    batches += [start_append(log, stream, sent(0, epoch=0)), start_append(log, stream, sent(0, epoch=1))]
    await asyncio.wait(batches[1:])
    slow.release()
    await asyncio.wait(batches)
    assert [type(batch.exception()) for batch in batches] == [ProducerFenced, LogUnavailable, LogUnavailable]


async def test_producers_do_not_wait_for_each_other(world: World) -> None:
    log = world.log(object_bytes=1)
    [stream] = await log.create_streams(1)
    world.objects.trap(Fate.REFUSE, "put")
    batches = [start_append(log, stream, sent(0, producer=1)), start_append(log, stream, sent(7, producer=2))]
    await asyncio.wait(batches)
    assert isinstance(batches[0].exception(), LogUnavailable)
    assert batches[1].result().base_offset == 0


# --- trying again


async def test_a_lost_race_aims_again_without_uploading_again(world: World) -> None:
    retried: list[None] = []

    class Observer(LogObserver):
        def commit_retried(self) -> None:
            retried.append(None)

    other = world.log()
    [stream] = await other.create_streams(1)
    log = world.log(Observer())
    commit = world.store.hold("write", "/hwm")
    appending = start_append(log, stream, batch_bytes([b"mine"]))
    await commit.reached()
    await append(other, stream, batch_bytes([b"theirs"]))
    commit.release()
    assert (await appending).base_offset == 1
    assert len(world.bucket.objects) == 2
    assert len(retried) == 1


async def test_an_unclear_reply_is_resolved_by_reading(world: World) -> None:
    log = world.log()
    [stream] = await log.create_streams(1)
    for number, fate in enumerate((Fate.LOSE_REPLY, Fate.LOSE, Fate.REFUSE)):
        world.store.trap(fate, "write", "/hwm")
        assert (await append(log, stream, batch_bytes([b"%d" % number]))).base_offset == number
    assert len(values_in(await read(world.log(), stream, 0))) == 3


async def test_a_commit_that_landed_after_all_is_found_when_it_is_sent_again(world: World) -> None:
    """The first copy lands between the look and the second: a clear no that is none."""
    log = world.log()
    [stream] = await log.create_streams(1)
    late = world.store.trap(Fate.LATE, "write", "/hwm")
    appending = start_append(log, stream, batch_bytes([b"v"]))
    await late.reached()
    again = world.store.hold("write", "/hwm")
    await again.reached()
    late.land()
    again.release()
    assert (await appending).base_offset == 0
    assert (await log.bounds(stream)).end == 1


async def test_an_undecided_commit_keeps_its_references_for_the_collector(world: World) -> None:
    log = world.log(retry_limit=1, settle_seconds=0.01)
    [stream] = await log.create_streams(1)
    late = world.store.trap(Fate.LATE, "write", "/hwm")
    world.store.trap(Fate.LOSE, "write", "/hwm")
    with pytest.raises(LogUnavailable):
        await append(log, stream, batch_bytes([b"v"]))
    await asyncio.sleep(10)
    assert len(world.keys(keys.STAGING)) == len(world.keys(keys.REFERENCES)) == 1
    late.land()
    assert values_in(await read(world.log(), stream, 0)) == [(0, b"v")]


async def test_of_several_streams_each_has_its_own_outcome(world: World) -> None:
    """One write for all of them; another broker was quicker on one."""
    other = world.log()
    streams = (await other.create_streams(6))[::2]
    log = world.log()
    commit = world.store.hold("write", "/hwm")
    appends = [start_append(log, stream, batch_bytes([b"mine"])) for stream in streams]
    await commit.reached()
    await append(other, streams[1], batch_bytes([b"theirs"]))
    commit.release()
    assert offsets(await asyncio.gather(*appends)) == [0, 1, 0]
    assert len(world.bucket.objects) == 2


# --- snapshots


async def test_a_snapshot_bounds_what_the_next_appender_folds(world: World) -> None:
    log = world.log(snapshot_every_entries=4)
    [stream] = await log.create_streams(1)
    for sequence in range(10):
        await append(log, stream, sent(sequence))
        await asyncio.sleep(1)
    snapshot = (await log._streams.snapshot(stream)).value
    assert 4 <= snapshot.upto <= 9
    other = world.log()
    again = await append(other, stream, sent(9))
    assert again.base_offset == 9
    assert (await append(other, stream, sent(10))).base_offset == 10
    state = other._committers[stream % 2]._states[stream]
    assert state.entries_since_snapshot <= 10 - snapshot.upto


async def test_a_snapshot_that_cannot_be_moved_is_moved_later(world: World) -> None:
    log = world.log(snapshot_every_entries=2)
    [stream] = await log.create_streams(1)
    world.store.trap(Fate.REFUSE, "write", "/producers")
    for sequence in range(9):
        await append(log, stream, sent(sequence))
        await asyncio.sleep(1)
    assert (await log._streams.snapshot(stream)).value.upto >= 4


class SlowRefusals:
    """A store that takes ten seconds to say that it did not do it, as SQLite does behind a long lock."""

    def __init__(self, world: World, error: type[MetadataError]) -> None:
        self.tries = 0
        store, kept = world.store, world.store.write

        async def write(domain: int, operations: Sequence[Operation]) -> list[Outcome]:
            if any(isinstance(each, Put) and each.key.endswith("/hwm") for each in operations):
                self.tries += 1
                await asyncio.sleep(10.0)
                if self.tries <= 100:
                    raise error("told to")
            return await kept(domain, operations)

        store.write = write  # type: ignore[method-assign]


async def test_a_commit_is_not_tried_again_when_its_producer_has_given_up(world: World) -> None:
    """A producer without sequences has sent it again by then: what is committed now would be there twice."""
    log = world.log()
    [stream] = await log.create_streams(1)
    slow = SlowRefusals(world, Unavailable)
    began = world.runtime.monotonic()
    with pytest.raises(LogUnavailable):
        await append(log, stream, batch_bytes([b"v"]))
    assert 30 <= world.runtime.monotonic() - began < 42
    slow.tries = 100
    await asyncio.sleep(60)
    assert (await log.bounds(stream)).end == 0, "and it is not there"
    await log.stop()
    assert world.keys(keys.STAGING) == [], "a clear no leaves nothing"


async def test_a_commit_that_is_unclear_when_its_time_is_over_stays_undecided(world: World) -> None:
    """The last write may still land: its references stay, and the collector finds out."""
    log = world.log(retry_limit=50)
    [stream] = await log.create_streams(1)
    SlowRefusals(world, Ambiguous)
    began = world.runtime.monotonic()
    with pytest.raises(LogUnavailable):
        await append(log, stream, batch_bytes([b"v"]))
    assert 30 <= world.runtime.monotonic() - began < 42
    await log.stop()
    assert len(world.keys(keys.STAGING)) == 1
    assert len(world.keys(keys.REFERENCES)) == 1
