"""Schedules for the rules that chance tests too rarely: each step in its place, on scripted stores.

A schedule raises when the log breaks its word. `test_simulation_log` runs each one as the code is, and once
more for every mutation that it is there to notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.services import room_settings
from tests.simulation.log.players import batch_of
from tests.simulation.scripted import Fate, ScriptedObjects, ScriptedStore, bucket_is_ours

from dray.kafka.records import decode, validate
from dray.log import Log
from dray.log.types import AppendResult, LogUnavailable, OffsetOutOfRange, ReadRequest, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import Limits
from dray.metadata.memory import MemoryState
from dray.objects.memory import MemoryBucket
from dray_simulation.kernel.runtime import SimulatedRuntime

MANY = 1 << 30
ORPHAN = 10.0


class Actor:
    """A broker whose clients of the stores can be trapped. Nothing runs in it unless it is asked to."""

    def __init__(self, stage: Stage, number: int) -> None:
        self.runtime = SimulatedRuntime(number)
        self.store = ScriptedStore(self.runtime, stage.state, stage.limits)
        self.objects = ScriptedObjects(self.runtime, stage.bucket)
        self.log = Log(self.store, self.objects, self.runtime, 1, stage.settings, may_delete=bucket_is_ours)

    def append(
        self, stream: int, value: bytes, producer: tuple[int, int, int] = (-1, -1, -1)
    ) -> asyncio.Future[AppendResult]:
        data = batch_of([value], producer)
        [batch] = validate(data, max_batch_bytes=MANY, max_decompressed_bytes=MANY)
        return self.log.append(stream, batch, memoryview(data))

    async def read(self, stream: int, offset: int) -> list[bytes]:
        """Everything from an offset on."""
        found: list[bytes] = []
        while True:
            [result] = await self.log.fetch(
                [ReadRequest(stream, offset + len(found), MANY)], min_bytes=0, max_bytes=MANY, max_wait_ms=0
            )
            if result.error is not None:
                raise result.error
            if not result.buffers:
                return found
            for buffer in result.buffers:
                found += [bytes(record.value or b"") for record in decode(buffer).records()]


class Stage:
    """One domain, one object per batch, and as many brokers as the schedule asks for."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits
        self.state = MemoryState()
        self.bucket = MemoryBucket()
        self.settings = room_settings.log(
            object_bytes=1,
            retry_seconds=0.001,
            retry_limit=1,
            settle_seconds=1.0,
            orphan_ttl=ORPHAN,
            collect_grace=0.0,
            tail_cache_bytes=0,
            segment_cache_bytes=0,
        )
        self._actors = 0

    def actor(self) -> Actor:
        self._actors += 1
        return Actor(self, self._actors)

    def keys(self, prefix: str) -> list[str]:
        found = self.state.domain(0, asyncio.get_running_loop().time()).keys
        return [key for key in found if key.startswith(prefix)]

    async def collect(self, actor: Actor, rounds: int = 3) -> None:
        """Long enough for every orphan to be found and resolved."""
        for _ in range(rounds):
            await actor.log.collector.run()
            await asyncio.sleep(ORPHAN + 1)

    async def check(self, stream: int, expected: list[bytes], start: int = 0) -> None:
        """What is in the log is read, now and after every collector has been round; nothing else stays."""
        for _ in range(2):
            actor = self.actor()
            bounds = await actor.log.bounds(stream)
            assert (bounds.start, bounds.end) == (start, start + len(expected))
            assert await actor.read(stream, start) == expected
            await self.collect(actor)
        assert len(self.bucket.objects) == len(expected), "objects left over or missing"
        assert len(self.keys(keys.REFERENCES)) == len(expected), "references left over or missing"
        assert len(self.keys(keys.OBJECTS)) == len(expected), "object keys left over or missing"
        assert self.keys(keys.STAGING) == [], "staging marks left over"


async def _refused(append: asyncio.Future[AppendResult]) -> None:
    with pytest.raises(LogUnavailable):
        await append


# --- the commit and its replies


async def a_stale_read_after_a_lost_reply() -> None:
    """The reply to a commit is lost, and the reader is behind the version that was aimed at."""
    stage = Stage()
    broker = stage.actor()
    [stream] = await broker.log.create_streams(1)
    await broker.append(stream, b"first")
    commit = broker.store.hold("write", "/hwm")
    second = broker.append(stream, b"second")
    await commit.reached()
    uploaded = broker.objects.hold("put", answered=True)
    third = broker.append(stream, b"third")
    await uploaded.reached()
    broker.store.fall_behind(0)  # after the third is staged, before the second is in the log
    broker.store.trap(Fate.LOSE_REPLY, "write", "/hwm")
    uploaded.release()
    commit.release()
    assert (await second).base_offset == 1
    assert (await third).base_offset == 2
    await stage.check(stream, [b"first", b"second", b"third"])


async def a_lost_reply_and_an_overtaking_append() -> None:
    """By the time it looks, its entry is no longer the head but filed."""
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    broker.store.trap(Fate.LOSE_REPLY, "write", "/hwm")
    look = broker.store.hold("barrier")
    append = broker.append(stream, b"first")
    await look.reached()
    await other.append(stream, b"second")
    look.release()
    assert (await append).base_offset == 0
    await stage.check(stream, [b"first", b"second"])


async def a_lost_reply_and_an_append_while_it_looks() -> None:
    """Its entry is the head at its first read, and filed at the second."""
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    broker.store.trap(Fate.LOSE_REPLY, "write", "/hwm")
    look = broker.store.hold("barrier")
    append = broker.append(stream, b"first")
    await look.reached()
    first_read = broker.store.hold("get", "/streams/", answered=True)
    look.release()
    await first_read.reached()
    await other.append(stream, b"second")
    first_read.release()
    assert (await append).base_offset == 0
    await stage.check(stream, [b"first", b"second"])


async def a_fold_while_records_are_deleted() -> None:
    """Retention takes entries away between the reads of an appender that meets the stream."""
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    await broker.append(stream, b"q", (2, 0, 0))
    await broker.append(stream, b"p0", (1, 0, 0))
    await broker.append(stream, b"p1", (1, 0, 1))
    scan = other.store.hold("scan", "/offset-index/")
    again = other.append(stream, b"q", (2, 0, 0))
    await scan.reached()
    assert await broker.log.delete_records(stream, 2) == 2
    scan.release()
    assert (await again).base_offset == 0, "appended again, though it was in the log once"
    await stage.check(stream, [b"p1"], start=2)


# --- staging


async def a_late_copy_of_staging_and_of_settling() -> None:
    """Both arrive again after the object has come and gone."""
    stage = Stage()
    broker = stage.actor()
    [stream] = await broker.log.create_streams(1)
    staging = broker.store.trap(Fate.COPY, "write", keys.STAGING)
    await broker.append(stream, b"first")
    settling = broker.store.trap(Fate.COPY, "write", keys.STAGING)
    await asyncio.sleep(2)
    await broker.append(stream, b"second")
    assert await broker.log.delete_records(stream, 1) == 1
    await stage.collect(broker)
    staging.land()
    settling.land()
    await stage.check(stream, [b"second"], start=1)


async def a_late_copy_of_staging_before_settling() -> None:
    """The references are back before the mark is deleted, and only the mark knows of them."""
    stage = Stage()
    broker = stage.actor()
    [stream] = await broker.log.create_streams(1)
    staging = broker.store.trap(Fate.COPY, "write", keys.STAGING)
    await broker.append(stream, b"first")
    assert await broker.log.delete_records(stream, 1) == 1  # its reference goes
    staging.land()
    await asyncio.sleep(2)  # now it settles
    await stage.check(stream, [], start=1)


async def much_to_settle_and_a_store_that_refuses() -> None:
    """Uploads failed, and were there all the same. What settles them is more than a write holds."""
    stage = Stage(Limits(operations=7, value_bytes=1 << 20))
    broker = stage.actor()
    [stream] = await broker.log.create_streams(1)
    for _ in range(4):
        broker.objects.trap(Fate.LOSE_REPLY, "put")
    for append in [broker.append(stream, b"failed") for _ in range(4)]:
        await _refused(append)
    broker.store.trap(Fate.REFUSE, "write", keys.REFERENCES)  # the first part of it
    await asyncio.sleep(5)
    await stage.check(stream, [])


# --- the collector


async def a_slow_broker_and_a_collector() -> None:
    """The collector takes an object for an orphan while its broker is about to commit it."""
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    recheck = broker.store.hold("get", keys.STAGING)
    append = broker.append(stream, b"slow")
    await recheck.reached()
    await other.log.collector.run()
    await asyncio.sleep(ORPHAN + 1)
    last = other.store.hold("write", keys.REFERENCES)
    collecting = asyncio.ensure_future(other.log.collector.run())
    await last.reached()  # it has judged
    recheck.release()
    await asyncio.wait([append], timeout=1)
    last.release()
    await collecting
    if append.exception() is None:
        await stage.check(stream, [b"slow"])
    else:
        await stage.check(stream, [])


async def a_broker_that_is_slow_after_its_recheck() -> None:
    """The mark was still its own; then the collector took it, fenced, judged and let go."""
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await other.log.create_streams(1)  # so that the broker reads its high watermark
    recheck = broker.store.hold("get", keys.STAGING, answered=True)
    append = broker.append(stream, b"slow")
    await recheck.reached()
    await stage.collect(other)
    recheck.release()
    await _refused(append)
    await stage.check(stream, [])


async def _undecided(stage: Stage, broker: Actor, stream: int, value: bytes) -> Callable[[], None]:
    """Append so that it is not known whether it will be in the log; the answer is what lets it land."""
    late = broker.store.trap(Fate.LATE, "write", "/hwm")
    append = broker.append(stream, value)
    await late.reached()
    broker.store.trap(Fate.LOSE, "write", "/hwm")
    await _refused(append)
    return late.land


async def a_late_commit_before_any_collector_comes() -> None:
    stage = Stage()
    broker = stage.actor()
    [stream] = await broker.log.create_streams(1)
    land = await _undecided(stage, broker, stream, b"late")
    await asyncio.sleep(2)  # it would settle now, if it could
    land()
    await stage.check(stream, [b"late"])


async def a_late_commit_of_an_orphan() -> None:
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    land = await _undecided(stage, broker, stream, b"late")
    await stage.collect(other)
    land()
    await stage.check(stream, [])


async def a_late_commit_after_a_lost_fence() -> None:
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    land = await _undecided(stage, broker, stream, b"late")
    await other.log.collector.run()
    await asyncio.sleep(ORPHAN + 1)
    other.store.trap(Fate.LOSE, "write", "/hwm")
    await other.log.collector.run()
    land()
    await stage.check(stream, [b"late"])


async def a_late_commit_after_a_fence_from_behind() -> None:
    """The collector reads an old version, and by the time it looks again it has caught up."""
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    commit = broker.store.hold("write", "/hwm")
    first = broker.append(stream, b"first")
    await commit.reached()
    uploaded = broker.objects.hold("put", answered=True)
    second = broker.append(stream, b"second")
    await uploaded.reached()
    await other.log.collector.run()
    other.store.fall_behind(0)  # it sees both marks, and an empty stream
    late = broker.store.trap(Fate.LATE, "write", "/00000000000000000001/")  # filing the first head
    uploaded.release()
    commit.release()
    await first
    await late.reached()
    broker.store.trap(Fate.LOSE, "write", "/hwm")
    await _refused(second)
    await asyncio.sleep(ORPHAN + 1)
    seal = other.store.hold("write", "/hwm")
    collecting = asyncio.ensure_future(other.log.collector.run())
    await asyncio.wait([collecting, asyncio.ensure_future(seal.reached())], timeout=5)
    await other.store.barrier(0)  # of another task in the same broker
    seal.release()
    await collecting
    late.land()
    left = [b"first"] if (await stage.actor().log.bounds(stream)).end == 1 else [b"first", b"second"]
    await stage.check(stream, left)


# --- retention, streams, readers


async def a_late_copy_of_a_lower_snapshot() -> None:
    """The producers would be folded from entries that are gone."""
    stage = Stage()
    broker = stage.actor()
    [stream] = await broker.log.create_streams(1)
    for number in range(4):
        await broker.append(stream, b"%d" % number, (1, 0, number))
    copy = broker.store.trap(Fate.COPY, "write", "/producers")
    await broker.log.delete_records(stream, 1)
    await broker.log.delete_records(stream, 3)
    copy.land()
    other = stage.actor()
    assert (await other.append(stream, b"2", (1, 0, 2))).base_offset == 2, "it is still known"
    await stage.check(stream, [b"3"], start=3)


async def a_late_copy_of_a_lower_start() -> None:
    stage = Stage()
    broker = stage.actor()
    [stream] = await broker.log.create_streams(1)
    for value in (b"a", b"b", b"c"):
        await broker.append(stream, value)
    copy = broker.store.trap(Fate.COPY, "write", "/start")
    await broker.log.delete_records(stream, 1)
    await broker.log.delete_records(stream, 2)
    copy.land()
    await stage.check(stream, [b"c"], start=2)


async def raising_the_start_with_a_lost_write() -> None:
    """Until the start is seen where it should be, nothing below it may go."""
    stage = Stage()
    broker, reader = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    values = [b"a", b"b", b"c"]
    for value in values:
        await broker.append(stream, value)
    broker.store.trap(Fate.LOSE, "write", "/start")
    again = broker.store.hold("write", "/start")
    deleting = asyncio.ensure_future(broker.log.delete_records(stream, 2))
    await again.reached()
    assert await reader.read(stream, 0) == values
    again.release()
    assert await deleting == 2
    await stage.check(stream, [b"c"], start=2)


async def closing_with_a_lost_write() -> None:
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    await other.append(stream, b"before")
    broker.store.trap(Fate.LOSE, "write", "/hwm")
    await broker.log.close_streams([stream])
    with pytest.raises(StreamClosed):
        await other.append(stream, b"after")


async def closing_from_behind() -> None:
    """The broker that closes a stream has not heard that it exists."""
    stage = Stage()
    broker, other = stage.actor(), stage.actor()
    other.store.fall_behind(0)
    [stream] = await broker.log.create_streams(1)
    await other.log.close_streams([stream])
    with pytest.raises(StreamClosed):
        await broker.append(stream, b"after")


async def a_stream_newer_than_what_is_read() -> None:
    """A broker that is behind is asked to append to, and read from, a stream that it cannot see yet."""
    stage = Stage()
    broker, appender, reader = stage.actor(), stage.actor(), stage.actor()
    appender.store.fall_behind(0)
    reader.store.fall_behind(0)
    [stream] = await broker.log.create_streams(1)
    assert (await appender.append(stream, b"first")).base_offset == 0
    assert await reader.read(stream, 0) == [b"first"]


async def reading_what_has_expired() -> None:
    """The reader's index is cached, the object of its entry is gone, and the bound has not passed yet."""
    stage = Stage()
    stage.settings = replace(stage.settings, bounds_seconds=3600.0)
    broker, reader = stage.actor(), stage.actor()
    [stream] = await broker.log.create_streams(1)
    for value in (b"a", b"b", b"c"):
        await broker.append(stream, value)
    assert await reader.read(stream, 0) == [b"a", b"b", b"c"]
    await broker.log.delete_records(stream, 2)
    await stage.collect(broker)
    assert len(stage.bucket.objects) == 1
    with pytest.raises(OffsetOutOfRange, match=r"outside 2\.\.3"):
        await reader.read(stream, 0)


async def a_commit_while_the_watch_is_away() -> None:
    """It is not told when the watch stands again: only that anything may have happened."""
    stage = Stage()
    writer, reader = stage.actor(), stage.actor()
    await reader.log.start()
    [stream] = await writer.log.create_streams(1)
    assert await reader.read(stream, 0) == []
    reader.store.deaf = True
    await writer.append(stream, b"first")
    await asyncio.sleep(0.01)
    reader.store.deaf = False
    reader.store.interrupt()
    await asyncio.sleep(0.01)
    assert await reader.read(stream, 0) == [b"first"]
    await reader.log.stop()


Schedule = Callable[[], Coroutine[Any, Any, None]]

# Each schedule, with the mutations that it is there to notice.
SCHEDULES: dict[Schedule, list[str]] = {
    a_stale_read_after_a_lost_reply: ["look without a barrier"],
    a_lost_reply_and_an_overtaking_append: ["high watermark only"],
    a_lost_reply_and_an_append_while_it_looks: ["index before high watermark"],
    a_fold_while_records_are_deleted: ["fold over gaps"],
    a_late_copy_of_staging_and_of_settling: ["staging mark deleted without its version"],
    a_late_copy_of_staging_before_settling: ["stage only if absent"],
    much_to_settle_and_a_store_that_refuses: ["settling is cut anywhere and dropped"],
    a_slow_broker_and_a_collector: ["recheck without the version", "judge without taking the mark"],
    a_broker_that_is_slow_after_its_recheck: ["recheck before the high watermark is read", "no fence"],
    a_late_commit_before_any_collector_comes: ["settle what is undecided"],
    a_late_commit_of_an_orphan: ["no fence"],
    a_late_commit_after_a_lost_fence: ["fence unseen"],
    a_late_commit_after_a_fence_from_behind: ["fence without a barrier"],
    a_late_copy_of_a_lower_snapshot: ["snapshot without compare-and-set"],
    a_late_copy_of_a_lower_start: ["start without compare-and-set"],
    raising_the_start_with_a_lost_write: ["delete before the start is seen"],
    closing_with_a_lost_write: ["close unseen"],
    closing_from_behind: ["close unseen"],
    a_stream_newer_than_what_is_read: ["absent by a stale read"],
    a_commit_while_the_watch_is_away: ["followed though the watch broke"],
    reading_what_has_expired: ["a missing object is taken for a corrupt one"],
}
