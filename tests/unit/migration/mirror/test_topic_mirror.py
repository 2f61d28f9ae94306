"""The mirror of a topic, beside a source in virtual time: leaders, failures, restarts, limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.services.attached_log import AttachedLog
from tests.simulation.scripted import Fate
from tests.unit.log.harness import append, batch_bytes, read
from tests.unit.migration.mirror.mirror_harness import MirrorWorld, Producer, SourceLog, committed_in

from dray.base.runtime import Runtime
from dray.kafka.client.cluster import Address
from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.kafka.records import read_header
from dray.log.types import LogUnavailable
from dray.migration.formats.batches import ABORT, walk_batches
from dray.migration.live.leader_reads import MirrorLimits, MirrorMemory
from dray.migration.live.switch import Destination
from dray.migration.live.topic_mirror import GONE_SECONDS, MirrorProgress, TopicMirror
from dray.migration.mirror.mirroring import MirroredBatches, MirrorPlan
from dray.migration.source.mirror import (
    GATHER_SECONDS,
    Aborted,
    MirrorAnswer,
    MirrorOvertaken,
    MirrorPiece,
    MirrorPlace,
    MirrorReader,
    MirrorStopped,
)
from dray.migration.source.source import SourceProducer, SourceTopic

A: Address = ("a", 9092)
B: Address = ("b", 9092)
LIMITS = MirrorLimits(
    answer_bytes=2000,
    partition_bytes=500,
    object_bytes=1000,
    small_answer_bytes=400,
    idle_answer_bytes=300,
)
WAIT_SECONDS = 0.5
TOPIC_ID = UUID(int=7)


@dataclass
class FakeSource:
    """A topic whose leaders answer as Kafka does, after a moment."""

    runtime: Runtime
    logs: dict[int, SourceLog]
    leaders: dict[int, Address]
    topic_id: UUID | None = TOPIC_ID
    known: dict[int, Address] = field(default_factory=dict)
    starts: dict[int, int] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)
    unknown: set[int] = field(default_factory=set)  # to a broker that was just started
    unreachable: set[Address] = field(default_factory=set)
    failure: Exception | None = None
    read_bytes: int = 0
    reads: int = 0
    next_wait: dict[Address, float] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    async def learn(self) -> None:
        await self.runtime.sleep(0.01)
        if self.failure is not None:
            raise self.failure
        self.known = dict(self.leaders)

    def by_leader(self, partitions: Mapping[int, MirrorPlace]) -> dict[Address, dict[int, MirrorPlace]]:
        found: dict[Address, dict[int, MirrorPlace]] = {}
        for partition, place in partitions.items():
            if partition in self.known:
                found.setdefault(self.known[partition], {})[partition] = place
        return found

    async def read_each(
        self, leader: Address, places: Mapping[int, MirrorPlace], most_bytes: int = 0, *, waits: bool = False
    ) -> Mapping[int, MirrorAnswer]:
        self.reads += 1
        self.asked.append(most_bytes)
        if waits:  # as `WaitingFetches` does
            await self.runtime.sleep(self.next_wait.get(leader, 0) - self.runtime.monotonic())
        for _ in range(50):
            await self.runtime.sleep(WAIT_SECONDS / 50)
            if leader in self.unreachable:
                raise ClientError("gone")
            found, left = {}, most_bytes or 1 << 30
            for partition, place in places.items():
                found[partition] = answer = self._answer(leader, partition, place, left)
                left -= len(answer.batches) if isinstance(answer, MirrorPiece) else 0
            if any(not isinstance(each, MirrorPiece) or each.batches for each in found.values()):
                break
        self.next_wait[leader] = self.runtime.monotonic() + GATHER_SECONDS
        self.read_bytes += sum(
            [len(each.batches) for each in found.values() if isinstance(each, MirrorPiece)]
        )
        return found

    def _answer(self, leader: Address, partition: int, place: MirrorPlace, left: int) -> MirrorAnswer:
        """`left`: what the answer still has room for. The first batch comes in any case."""
        if self.leaders.get(partition) != leader:
            return RequestFailed("moved", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition in self.unknown:
            return RequestFailed("not yet", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition in self.stopped:
            return MirrorStopped(partition, self.stopped[partition])
        if place.offset < self.starts.get(partition, 0):
            return MirrorOvertaken(partition, self.starts[partition])
        log = self.logs[partition]
        most = 0 if left <= 0 else 1 << 30
        data, aborted = log.answer(place.offset, most, min(left, LIMITS.partition_bytes))
        after = place
        for batch in walk_batches(data):
            after = MirrorPlace(batch.last_offset + 1, batch.header.leader_epoch)
        named = tuple([Aborted(*each) for each in aborted])
        return MirrorPiece(partition, data, named, after, self.starts.get(partition, 0), log.last_stable)


@dataclass
class Mirrored:
    world: MirrorWorld
    log: AttachedLog
    source: FakeSource
    streams: dict[int, int]
    sizes: list[int] = field(default_factory=list)
    skipped: list[tuple[int, int, int]] = field(default_factory=list)

    async def _skip(self, *skipped: int) -> None:
        partition, first, below = skipped
        assert (await self.log.bounds(self.streams[partition])).end == first, "it is said before it is done"
        self.skipped.append((partition, first, below))

    def mirror(
        self,
        log: AttachedLog | None = None,
        limits: MirrorLimits = LIMITS,
        memory: MirrorMemory | None = None,
    ) -> TopicMirror:
        mirror = (log or self.log).mirror
        return TopicMirror(
            cast(SourceTopic, self.source),
            cast(MirrorReader, self.source),
            mirror,
            self.streams,
            self.world.runtime,
            limits,
            memory or MirrorMemory(2),
            topic_id=TOPIC_ID,
            on_read=self.sizes.append,
            on_skipped=self._skip,
        )

    @asynccontextmanager
    async def running(self, mirror: TopicMirror) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.ensure_future(mirror.run())
        try:
            yield task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def until(self, partition: int, end: int) -> None:
        for _ in range(10_000):
            if (await self.log.bounds(self.streams[partition])).end >= end:
                return
            await self.world.runtime.sleep(0.1)
        raise AssertionError(f"partition {partition} never came to {end}")

    async def until_all(self) -> None:
        for partition, log in self.source.logs.items():
            await self.until(partition, log.end)

    async def check(self) -> None:
        """All that the source has is here, byte for byte."""
        log = self.world.log()
        for partition, source in self.source.logs.items():
            found, offset = b"", 0
            while offset < source.end:
                result = await read(log, self.streams[partition], offset)
                assert result.error is None, result.error
                found += b"".join(bytes(buffer) for buffer in result.buffers)
                offset = list(walk_batches(found))[-1].last_offset + 1
            assert found == source.served()


@pytest.fixture
async def mirrored() -> Mirrored:
    world = MirrorWorld()
    log = world.log()
    logs = {partition: SourceLog() for partition in range(4)}
    source = FakeSource(world.runtime, logs, {0: A, 1: A, 2: B, 3: B})
    streams = {partition: await world.classic(log) for partition in logs}
    return Mirrored(world, log, source, streams)


def fill(source: FakeSource, batches: int) -> None:
    for number in range(batches):
        for partition, log in source.logs.items():
            log.append([b"%d of %d" % (number, partition)] * 3, hole=number % 3)


async def test_all_partitions_are_mirrored_while_the_source_grows_until_they_are_switched(
    mirrored: Mirrored,
) -> None:
    fill(mirrored.source, 30)
    mirror = mirrored.mirror()
    async with mirrored.running(mirror) as task:
        for _ in range(20):
            fill(mirrored.source, 1)
            await mirrored.world.runtime.sleep(0.3)
        await mirrored.until_all()
        await mirrored.check()
        for partition, log in mirrored.source.logs.items():
            progress = mirror.progress[partition]
            assert (progress.end, progress.lag, progress.stopped) == (log.end, 0, None)
            assert await mirrored.log.mirror.decide(mirrored.streams[partition], log.end)
        fill(mirrored.source, 1)  # what the source still gave is not taken
        await asyncio.wait_for(task, 3600)
    assert all(progress.is_ours for progress in mirror.progress.values())
    assert [progress.end for progress in mirror.progress.values()] == [
        (await mirrored.log.bounds(stream)).end for stream in mirrored.streams.values()
    ]


async def test_bytes_are_counted_and_the_last_answer_has_a_time(mirrored: Mirrored) -> None:
    fill(mirrored.source, 10)
    mirror = mirrored.mirror()
    async with mirrored.running(mirror):
        await mirrored.until_all()
        await mirrored.world.runtime.sleep(100)
        now = mirrored.world.runtime.monotonic()
        assert all(now - (each.heard or 0) < 50 for each in mirror.progress.values())
    assert sum(mirrored.sizes) == sum(
        len(batch) for log in mirrored.source.logs.values() for batch in log.batches
    )


async def test_a_partition_that_cannot_go_on_stops_no_other(mirrored: Mirrored) -> None:
    fill(mirrored.source, 10)
    mirrored.source.stopped[1] = "the source's history differs"
    mirror = mirrored.mirror()
    async with mirrored.running(mirror):
        for partition in (0, 2, 3):
            await mirrored.until(partition, mirrored.source.logs[partition].end)
        fill(mirrored.source, 10)
        for partition in (0, 2, 3):
            await mirrored.until(partition, mirrored.source.logs[partition].end)
    assert mirror.progress[1].stopped == "partition 1: the source's history differs"
    assert mirror.progress[1].end == 0


async def test_a_stopped_partition_is_tried_again_beside_the_others(mirrored: Mirrored) -> None:
    fill(mirrored.source, 10)
    mirrored.source.stopped[1] = "not authorized"
    mirror = mirrored.mirror()
    assert not mirror.try_stopped_again(), "it has not begun"
    async with mirrored.running(mirror):
        for partition in (0, 2, 3):
            await mirrored.until(partition, mirrored.source.logs[partition].end)
        read = sum(mirrored.sizes)
        assert mirror.try_stopped_again()
        await mirrored.world.runtime.sleep(10)
        assert mirror.progress[1].stopped == "partition 1: not authorized", "as before"
        del mirrored.source.stopped[1]
        assert mirror.try_stopped_again()
        await mirrored.until_all()
    again = sum(mirrored.sizes) - read
    assert again == sum(map(len, mirrored.source.logs[1].batches)), "no other is read again"
    assert mirror.progress[1].stopped is None
    await mirrored.check()


async def test_a_leader_that_does_not_know_its_partitions_yet_is_asked_again(mirrored: Mirrored) -> None:
    fill(mirrored.source, 3)
    mirrored.source.unknown.add(1)
    mirror = mirrored.mirror()
    async with mirrored.running(mirror):
        await mirrored.until(0, mirrored.source.logs[0].end)
        assert mirror.progress[1].stopped is None
        mirrored.source.unknown.clear()
        await mirrored.until_all()
    await mirrored.check()


async def test_a_stopped_partition_waits_for_a_log_that_does_not_answer(mirrored: Mirrored) -> None:
    fill(mirrored.source, 3)
    mirrored.source.stopped[1] = "not authorized"
    mirror = mirrored.mirror()
    place = mirrored.log.mirror.place

    async def fails(stream: int) -> Any:
        raise LogUnavailable("not now")

    async with mirrored.running(mirror):
        for partition in (0, 2, 3):
            await mirrored.until(partition, mirrored.source.logs[partition].end)
        mirrored.source.stopped.clear()
        mirrored.log.mirror.place = fails  # type: ignore[method-assign]
        assert mirror.try_stopped_again()
        await mirrored.world.runtime.sleep(5)
        assert mirror.progress[1].stopped is not None
        mirrored.log.mirror.place = place  # type: ignore[method-assign]
        await mirrored.until_all()
    await mirrored.check()


async def test_damage_stops_its_partition(mirrored: Mirrored) -> None:
    fill(mirrored.source, 3)
    log = mirrored.source.logs[2]
    damaged = bytearray(log.batches[1])
    damaged[-1] ^= 1
    log.batches[1] = bytes(damaged)
    mirrored.source._answer = lambda *each: unchecked(mirrored.source, *each)  # type: ignore[method-assign]
    mirror = mirrored.mirror()
    async with mirrored.running(mirror):
        for partition in (0, 1, 3):
            await mirrored.until(partition, mirrored.source.logs[partition].end)
    assert "checksum" in str(mirror.progress[2].stopped)


def unchecked(
    source: FakeSource, leader: Address, partition: int, place: MirrorPlace, left: int
) -> MirrorPiece:
    """As a reader would give it that does not look at checksums."""
    log = source.logs[partition]
    data, _ = log.answer(place.offset)
    end = log.end if data else place.offset
    return MirrorPiece(partition, data, (), MirrorPlace(end), 0, log.last_stable)


async def test_partitions_are_followed_to_their_new_leaders(mirrored: Mirrored) -> None:
    """To one that is read already, and to one that is not; and one that has none for a while."""
    fill(mirrored.source, 5)
    async with mirrored.running(mirrored.mirror()):
        await mirrored.until_all()
        mirrored.source.leaders[1] = B
        mirrored.source.leaders[2] = ("c", 9092)
        del mirrored.source.leaders[3]
        fill(mirrored.source, 5)
        for partition in (0, 1, 2):
            await mirrored.until(partition, mirrored.source.logs[partition].end)
        mirrored.source.leaders[3] = A
        await mirrored.until_all()
    await mirrored.check()


async def test_one_partition_that_moves_is_followed_while_all_else_goes_on(mirrored: Mirrored) -> None:
    async with mirrored.running(mirrored.mirror()):
        fill(mirrored.source, 2)
        await mirrored.until_all()
        mirrored.source.leaders[1] = B
        fill(mirrored.source, 2)
        await mirrored.until_all()
    await mirrored.check()


async def test_a_leader_that_cannot_be_reached_holds_up_no_other(mirrored: Mirrored) -> None:
    mirrored.source.unreachable.add(A)
    fill(mirrored.source, 5)
    mirror = mirrored.mirror()
    async with mirrored.running(mirror):
        for partition in (2, 3):
            await mirrored.until(partition, mirrored.source.logs[partition].end)
        assert mirror.progress[0].end == 0
        mirrored.source.unreachable.clear()
        await mirrored.until_all()
    await mirrored.check()


async def test_a_wrong_password_ends_it(mirrored: Mirrored) -> None:
    mirrored.source.failure = AuthenticationFailed("wrong")
    with pytest.raises(AuthenticationFailed):
        await asyncio.wait_for(mirrored.mirror().run(), 60)


async def test_a_mirror_goes_on_where_a_dead_one_stood(mirrored: Mirrored) -> None:
    fill(mirrored.source, 120)
    ends: list[int] = []
    for _ in range(6):
        async with mirrored.running(mirrored.mirror(mirrored.world.log())):
            await mirrored.world.runtime.sleep(0.08)
        ends.append((await mirrored.log.bounds(mirrored.streams[0])).end)
    assert len(set(ends)) > 2, "it was killed on the way"
    async with mirrored.running(mirrored.mirror(mirrored.world.log())):
        await mirrored.until_all()
    await mirrored.check()


async def test_two_mirrors_at_once_do_no_harm(mirrored: Mirrored) -> None:
    fill(mirrored.source, 40)
    one, other = mirrored.mirror(), mirrored.mirror(mirrored.world.log())
    async with mirrored.running(one), mirrored.running(other):
        for _ in range(20):
            fill(mirrored.source, 2)
            await mirrored.world.runtime.sleep(0.2)
        await mirrored.until_all()
    await mirrored.check()


@pytest.mark.parametrize("fate", [Fate.LOSE, Fate.LATE, Fate.REFUSE, Fate.LOSE_REPLY])
async def test_a_log_that_does_not_answer_is_asked_again(mirrored: Mirrored, fate: Fate) -> None:
    fill(mirrored.source, 20)
    log = mirrored.world.log()
    for kind in ("/hwm", "/wal/staging", "/producers"):
        for _ in range(12):
            mirrored.world.store.trap(fate, part=kind)
    mirrored.world.objects.trap(Fate.REFUSE, kind="put")
    async with mirrored.running(mirrored.mirror(log)):
        await mirrored.until_all()
    await mirrored.check()


async def test_no_more_is_read_than_the_log_takes(mirrored: Mirrored) -> None:
    fill(mirrored.source, 400)
    log = mirrored.world.log()
    held = [mirrored.world.objects.trap(Fate.HOLD_BEFORE, kind="put") for _ in range(4)]
    async with mirrored.running(mirrored.mirror(log)):
        await held[0].reached()
        await mirrored.world.runtime.sleep(600)
        most = 2 * 2 * (LIMITS.object_bytes + LIMITS.answer_bytes)  # two leaders, two objects of each
        assert 0 < mirrored.source.read_bytes <= most
        for each in held:
            each.release()
        await mirrored.until_all()
    await mirrored.check()


async def test_objects_are_uploaded_ahead_of_the_commit_before(mirrored: Mirrored) -> None:
    fill(mirrored.source, 400)
    mirrored.source.leaders = dict.fromkeys(mirrored.source.leaders, A)
    log = mirrored.world.log()
    held = mirrored.world.store.trap(Fate.HOLD_BEFORE, part="/hwm")
    async with mirrored.running(mirrored.mirror(log)):
        await held.reached()
        await mirrored.world.runtime.sleep(60)
        objects = len(mirrored.world.bucket.objects)
        held.release()
        await mirrored.until_all()
    assert LIMITS.commits <= objects <= 2 * LIMITS.commits, "two domains"
    await mirrored.check()


async def test_answers_are_taken_while_those_before_are_looked_at(mirrored: Mirrored) -> None:
    fill(mirrored.source, 400)
    mirrored.source.leaders = dict.fromkeys(mirrored.source.leaders, A)
    log = mirrored.world.log()
    plan, go_on = log.mirror.plan, asyncio.Event()
    planned: list[int] = []

    async def slowly(pieces: Sequence[MirroredBatches]) -> MirrorPlan:
        planned.append(sum(len(piece.batches) for piece in pieces))
        await go_on.wait()
        return await plan(pieces)

    log.mirror.plan = slowly  # type: ignore[method-assign]
    async with mirrored.running(mirrored.mirror(log)):
        await mirrored.world.runtime.sleep(60)
        assert len(planned) == 1, "one after the other"
        assert sum(mirrored.sizes) >= LIMITS.commits * LIMITS.object_bytes
        go_on.set()
        await mirrored.until_all()
    await mirrored.check()


async def test_few_leaders_are_read_in_large_answers_at_a_time(mirrored: Mirrored) -> None:
    """And none of those that have nothing more to give at once: the others have their places then."""
    fill(mirrored.source, 200)
    memory = MirrorMemory(1)
    async with mirrored.running(mirrored.mirror(memory=memory)):
        await mirrored.until_all()
        assert LIMITS.answer_bytes in mirrored.source.asked
        assert mirrored.source.asked.count(LIMITS.small_answer_bytes) > 2, "those of the other leader"
        await mirrored.world.runtime.sleep(60)
        mirrored.source.asked.clear()
        assert memory.take(), "it is given back"
        memory.give_back()
        fill(mirrored.source, 1)
        await mirrored.until_all()
        await mirrored.world.runtime.sleep(60)
        assert max(mirrored.source.asked) <= LIMITS.small_answer_bytes, "what trickles in is not much"
        fill(mirrored.source, 200)
        await mirrored.until_all()
        assert LIMITS.answer_bytes in mirrored.source.asked
    assert memory.take(), "also where a mirror ends in the middle"
    await mirrored.check()


async def test_without_room_for_large_answers_all_are_small(mirrored: Mirrored) -> None:
    fill(mirrored.source, 100)
    async with mirrored.running(mirrored.mirror(memory=MirrorMemory(0))):
        await mirrored.until_all()
        assert set(mirrored.source.asked) == {LIMITS.small_answer_bytes, LIMITS.idle_answer_bytes}
        mirrored.source.asked.clear()
        await mirrored.world.runtime.sleep(60)
        assert set(mirrored.source.asked) == {LIMITS.idle_answer_bytes}, "nothing is known to come"
    await mirrored.check()


@pytest.mark.parametrize("room", [300, 1000, 5000])
async def test_the_memory_of_many_mirrors_has_a_bound(mirrored: Mirrored, room: int) -> None:
    """However many topics there are, and however slow the log is: what was read and is not stored yet fits
    into the room. None waits for ever, though all hold something and want more."""
    world, memory = mirrored.world, MirrorMemory(0, room)
    topics = [mirrored]
    for _ in range(5):
        logs = {partition: SourceLog() for partition in range(4)}
        source = FakeSource(world.runtime, logs, {0: A, 1: A, 2: B, 3: B})
        streams = {partition: await world.classic(mirrored.log) for partition in logs}
        topics.append(Mirrored(world, mirrored.log, source, streams))
    for topic in topics:
        fill(topic.source, 12)
    taken = most = 0
    commit_plan = mirrored.log.mirror.commit_plan

    async def slowly(plan: MirrorPlan, **options: Any) -> Any:
        nonlocal taken, most
        read = sum(sum(topic.sizes) for topic in topics)
        most = max(most, read - taken)
        await world.runtime.sleep(3)
        found = await commit_plan(plan, **options)
        taken += sum(len(parts.data) for parts in plan.parts.values())
        return found

    mirrored.log.mirror.commit_plan = slowly  # type: ignore[method-assign]
    async with AsyncExitStack() as stack:
        for topic in topics:
            await stack.enter_async_context(topic.running(topic.mirror(memory=memory)))
        for topic in topics:
            await topic.until_all()
    # One answer is of whole batches: it may be larger than was asked for.
    largest = max(size for topic in topics for size in topic.sizes)
    assert 0 < most <= room + 4 * largest
    assert memory.reserved == 0, "all of it was given back"
    for topic in topics:
        await topic.check()


async def test_a_leader_that_does_not_answer_is_named_now_and_then(mirrored: Mirrored) -> None:
    fill(mirrored.source, 2)

    async def named(seconds: float) -> int:
        with capture_logs() as logs:
            await mirrored.world.runtime.sleep(seconds)
        return len([line for line in logs if line["event"] == "mirror: a leader does not answer"])

    async with mirrored.running(mirrored.mirror()):
        await mirrored.until_all()
        for _ in range(2):  # it has answered in between
            mirrored.source.unreachable.add(A)
            assert await named(10) == 1
            mirrored.source.unreachable.clear()
            await mirrored.world.runtime.sleep(5)
        mirrored.source.unreachable.add(A)
        assert await named(10) == 1
        assert await named(60) == 2


async def test_an_answer_to_what_was_asked_before_a_partition_was_set_back_is_not_taken(
    mirrored: Mirrored,
) -> None:
    fill(mirrored.source, 10)
    mirror = mirrored.mirror()
    mirror.progress[0] = MirrorProgress(0)
    await mirrored.source.learn()
    asked = {0: MirrorPlace(6)}
    answers = await mirrored.source.read_each(A, asked)
    for place, is_taken in ((MirrorPlace(6), True), (MirrorPlace(0), False), (None, False)):
        gathered: dict[int, Any] = {}
        reading = {} if place is None else {0: place}
        assert bool(mirror._take(asked, answers, gathered, reading)) == bool(gathered) == is_taken
        if not is_taken:
            assert reading == ({} if place is None else {0: place})


async def test_what_trickles_in_makes_few_objects_unless_a_switch_waits(mirrored: Mirrored) -> None:
    mirror = mirrored.mirror(limits=replace(LIMITS, object_bytes=1 << 20))
    log = mirrored.source.logs[0]
    async with mirrored.running(mirror):
        for _ in range(1000):
            log.append([b"x"])
            await mirrored.world.runtime.sleep(0.01)
        await mirrored.until(0, log.end)
        assert 5 <= len(mirrored.world.bucket.objects) <= 15
        assert mirrored.source.reads < 250, "two leaders, in ten seconds"
        mirror.hurry()
        began = mirrored.world.runtime.monotonic()
        for _ in range(10):
            log.append([b"x"])
            while mirror.progress[0].end < log.end:
                await mirrored.world.runtime.sleep(0.01)
        assert mirrored.world.runtime.monotonic() - began < 2.0


async def test_the_start_follows_the_source(mirrored: Mirrored) -> None:
    fill(mirrored.source, 20)
    async with mirrored.running(mirrored.mirror()):
        await mirrored.until_all()
        mirrored.source.starts[2] = 11
        for _ in range(1000):
            if (await mirrored.log.bounds(mirrored.streams[2])).start == 11:
                break
            await mirrored.world.runtime.sleep(1)
        starts = [(await mirrored.log.bounds(stream)).start for stream in mirrored.streams.values()]
        assert starts == [0, 0, 11, 0]
        fill(mirrored.source, 2)
        await mirrored.until_all()


@pytest.mark.parametrize(
    ("mirrored_before", "start"),
    [(0, 7), (5, 31), (5, 32), (5, None)],
    ids=["at first", "later", "within", "all"],
)
async def test_a_source_that_deletes_what_is_next_is_gone_on_with(
    mirrored: Mirrored, mirrored_before: int, start: int | None
) -> None:
    """The offsets that are gone are a hole, which is said, and the log begins where the source's does.
    `start` None: the source has nothing left."""
    source = mirrored.source
    if mirrored_before:
        fill(source, mirrored_before)
        async with mirrored.running(mirrored.mirror()):
            await mirrored.until_all()
    first = source.logs[2].end
    fill(source, 20)
    source.starts[2] = begins = source.logs[2].end if start is None else start
    mirror = mirrored.mirror()
    with capture_logs() as logs:
        async with mirrored.running(mirror):
            await mirrored.until_all()
            for _ in range(1000):
                if (await mirrored.log.bounds(mirrored.streams[2])).start == begins:
                    break
                await mirrored.world.runtime.sleep(1)
            fill(source, 2)
            await mirrored.until_all()
    bounds = await mirrored.world.log().bounds(mirrored.streams[2])
    assert (bounds.start, bounds.end) == (begins, source.logs[2].end)
    assert mirrored.skipped == [(2, first, begins)]
    said = [each for each in logs if "deleted records before" in each["event"]]
    assert [(each["partition"], each["first"], each["below"]) for each in said] == [(2, first, begins)]
    progress = mirror.progress[2]
    assert (progress.skipped, progress.stopped, progress.lag) == (begins - first, None, 0)
    found, offset = [], begins
    while offset < bounds.end:
        some, offset = committed_in(await read(mirrored.log, mirrored.streams[2], offset), offset)
        found += some
    assert found == [each for each in source.logs[2].committed if each[0] >= begins]
    for partition in (0, 1, 3):
        assert not mirror.progress[partition].skipped


async def test_a_source_that_deletes_faster_than_it_is_mirrored_is_gone_on_with(mirrored: Mirrored) -> None:
    """Again and again, while pieces before the hole are still on their way into the log."""
    source = mirrored.source
    fill(source, 40)
    mirror = mirrored.mirror()
    async with mirrored.running(mirror):
        for _ in range(30):
            fill(source, 3)
            end = (await mirrored.log.bounds(mirrored.streams[0])).end
            source.starts[0] = min(source.logs[0].end, max(source.starts.get(0, 0), end + 17))
            await mirrored.world.runtime.sleep(0.07)
        await mirrored.until_all()
    assert mirror.progress[0].skipped
    assert mirror.progress[0].stopped is None
    start = max(below for _, _, below in mirrored.skipped)
    found, offset = [], start
    log = mirrored.world.log()
    while offset < source.logs[0].end:
        some, offset = committed_in(await read(log, mirrored.streams[0], offset), offset)
        found += some
    assert found == [each for each in source.logs[0].committed if each[0] >= start]


async def test_a_topic_that_is_gone_at_the_source_is_said_and_one_that_is_not_known_yet_is_waited_for(
    mirrored: Mirrored,
) -> None:
    source = mirrored.source
    fill(source, 5)
    mirror = mirrored.mirror()
    async with mirrored.running(mirror) as task:
        await mirrored.until_all()
        for seconds in (GONE_SECONDS / 2, 3600):
            source.unknown = set(source.logs)
            source.failure = RequestFailed("no such topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(task), seconds)
            if task.done():
                break
            source.unknown, source.failure = set(), None
            fill(source, 5)
            await mirrored.until_all()
        assert seconds == 3600
    assert {progress.stopped for progress in mirror.progress.values()} == {
        "the source's topic was deleted. What was mirrored is kept"
    }


async def test_another_topic_of_the_same_name_is_not_mirrored(mirrored: Mirrored) -> None:
    fill(mirrored.source, 5)
    mirror = mirrored.mirror()
    async with mirrored.running(mirror) as task:
        await mirrored.until_all()
        mirrored.source.topic_id = UUID(int=8)
        mirrored.source.leaders = dict.fromkeys(mirrored.source.leaders, ("c", 9092))
        await asyncio.wait_for(task, 3600)
    assert {progress.stopped for progress in mirror.progress.values()} == {
        "the source's topic was deleted, and another has its name"
    }


async def test_a_switch_sees_the_log_through_its_target(mirrored: Mirrored) -> None:
    log = mirrored.source.logs[3]
    log.epoch = 4
    log.append([b"a"], Producer(5, 1, 0), transactional=True)
    log.mark(Producer(5, 1), ABORT)
    hurried: list[bool] = []
    target = Destination(mirrored.log.mirror, mirrored.streams, lambda: hurried.append(True))
    assert (await target.end(3), await target.last_epoch(3), await target.boundary(3)) == (0, None, None)
    async with mirrored.running(mirrored.mirror()):
        await mirrored.until(3, 2)
    assert (await target.end(3), await target.last_epoch(3)) == (2, 4)
    assert hurried == [True, True]
    assert list(await target.producers(3)) == [SourceProducer(5, 1, 0)]
    assert not await target.decide(3, 1)
    assert await target.decide(3, 2, [SourceProducer(7, 0, 4)])
    assert await target.boundary(3) == 2
    retry = await append(mirrored.log, mirrored.streams[3], batch_bytes([b"gone"], producer=(7, 0, 4)))
    assert retry.base_offset == -1
    ours = await append(mirrored.log, mirrored.streams[3], batch_bytes([b"ours"]))
    assert ours.base_offset == 2
    result = await read(mirrored.log, mirrored.streams[3], 2)
    assert read_header(result.buffers[0]).base_offset == 2
