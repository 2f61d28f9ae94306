"""Who plays in the log's world: producers, consumers, topic administrators, and chance itself.

Clients act as the real ones do, and know which answers they may get: whatever answer could not have come from
a log that keeps its promises is a violation.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from tests.simulation.log.world import DOMAINS, Broker, LogWorld

from dray.kafka.records import Record, decode, twin, validate
from dray.log.origins import SourceOwnsLog
from dray.log.stream_store import StreamStore
from dray.log.types import (
    AppendResult,
    Bounds,
    LogError,
    LogUnavailable,
    OffsetOutOfRange,
    OutOfOrderSequence,
    ReadRequest,
    ReadResult,
    StreamClosed,
)
from dray.metadata.contract import MetadataError
from dray_simulation.checks.log_truth import TIMES, Violation, identity_of, time_of
from dray_simulation.kernel.loop import hear

PRODUCERS = (1, 2)
_MANY = 1 << 30

T = TypeVar("T")


def players(world: LogWorld) -> list[Coroutine[Any, Any, None]]:
    cast = [play_chance(world), play_retention(world), play_sealer(world), play_lanes(world)]
    if world.conditions.closes and len(world.streams) > 1:
        cast.append(play_deletion(world, world.streams[-1]))
    for stream in world.streams:
        cast += [IdempotentProducer(world, stream, producer).play() for producer in PRODUCERS]
        cast += [play_plain_producer(world, stream), play_consumer(world, stream)]
    return cast


async def play_chance(world: LogWorld) -> None:
    """Crash a broker now and then, and make one stand still."""
    conditions, random = world.conditions, world.random
    crash_in = random.uniform(0.2, 2 * conditions.crash_every)
    pause_in = random.uniform(0.1, 2 * conditions.pause_every)
    while True:
        wait = min(crash_in, pause_in)
        await asyncio.sleep(wait)
        crash_in -= wait
        pause_in -= wait
        place = random.randrange(len(world.brokers))
        if crash_in <= 0:
            await world.replace(place)
            crash_in = random.uniform(0.2, 2 * conditions.crash_every)
        else:
            world.counts["pauses"] += 1
            world.brokers[place].runtime.pause(random.uniform(0.05, conditions.longest_pause))
            pause_in = random.uniform(0.1, 2 * conditions.pause_every)


def crashed_under_us() -> bool:
    """A broker that crashes cancels every call inside it; the end of the run cancels the player."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() == 0


# --- producers


@dataclass(slots=True)
class Sent:
    """A batch that its producer has not seen acknowledged."""

    values: list[bytes]
    data: bytearray
    acknowledged: bool = False


class IdempotentProducer:
    """Several batches in flight, sent in order to one broker; what failed is sent again, to any. Now and
    then it is impatient and sends to two at once, or starts a new epoch and forgets what was under way."""

    def __init__(self, world: LogWorld, stream: int, producer: int) -> None:
        self._world = world
        self._stream = stream
        self._producer = producer
        self._epoch = 0
        self._sequence = 0
        self._number = 0
        self._window: deque[Sent] = deque()

    async def play(self) -> None:
        world, conditions = self._world, self._world.conditions
        while self._stream not in world.closing:
            await asyncio.sleep(world.random.random() * conditions.pace)
            self._fill(world.random.randint(1, conditions.window))
            brokers = [world.any_broker()]
            if world.random.random() < conditions.copies:
                brokers.append(world.any_broker())
            await asyncio.gather(*[self._send(broker, list(self._window)) for broker in brokers])
            while self._window and self._window[0].acknowledged:
                self._window.popleft()
            if world.random.random() < conditions.epochs:
                self._start_anew()

    def _fill(self, upto: int) -> None:
        while len(self._window) < upto:
            count = self._world.random.randint(1, 3)
            name = b"p%d.%d" % (self._producer, self._epoch)
            values = [b"%s:%d:%d" % (name, self._number, place) for place in range(count)]
            data = batch_of(values, (self._producer, self._epoch, self._sequence), times_of(values))
            self._window.append(Sent(values, data))
            self._sequence += count
            self._number += 1

    def _start_anew(self) -> None:
        self._world.counts["epochs"] += 1
        self._window.clear()
        self._epoch += 1
        self._sequence = self._number = 0

    async def _send(self, broker: Broker, batches: list[Sent]) -> None:
        random = self._world.random
        sent: list[asyncio.Future[AppendResult]] = []
        for batch in batches:
            if sent and random.random() < 0.5:
                await asyncio.sleep(random.random() * 0.03)
            sent.append(append(broker, self._stream, batch.data))
            if random.random() < 0.05:  # the same again, before the first is answered
                append(broker, self._stream, batch.data)
        await asyncio.wait(sent, timeout=random.random() * self._world.conditions.patience)
        self._hear(batches, sent)

    def _hear(self, batches: list[Sent], sent: list[asyncio.Future[AppendResult]]) -> None:
        """Batches of a producer are judged in order. One that follows what was acknowledged is never out of
        order; one whose acknowledgement was lost is still remembered, five back; and one behind a batch that
        failed is to be sent again, as that is."""
        for batch, answer in zip(batches, sent, strict=True):
            if not answer.done():
                answer.cancel()
                continue
            error = None if answer.cancelled() else answer.exception()
            if isinstance(error, OutOfOrderSequence):
                raise Violation(f"stream {self._stream}: refused, though sent in order: {error}") from error
            if error is not None or answer.cancelled():
                self._world.counts["behind a failed one"] += "failed before it" in str(error)
                judge_error(self._world, self._stream, error)
            else:
                self._world.truth.acknowledged(self._stream, answer.result(), batch.values)
                self._world.counts["acknowledged"] += 1
                batch.acknowledged = True


async def play_plain_producer(world: LogWorld, stream: int) -> None:
    number = 0
    while stream not in world.closing:
        await asyncio.sleep(world.random.random() * world.conditions.pace)
        values = [b"plain%d:%d:%d" % (stream, number, place) for place in range(2)]
        number += 1
        answer = append(world.any_broker(), stream, batch_of(values, times=times_of(values)))
        await asyncio.wait([answer], timeout=world.random.random() * world.conditions.patience)
        if not answer.done():
            answer.cancel()  # and never sent again: it may be in the log, once
        elif not answer.cancelled() and answer.exception() is None:
            world.truth.acknowledged(stream, answer.result(), values)
            world.counts["acknowledged"] += 1
        else:
            judge_error(world, stream, None if answer.cancelled() else answer.exception())


def judge_error(world: LogWorld, stream: int, error: BaseException | None) -> None:
    """Of a batch that was good: only trouble that the client is asked to try again may come."""
    world.counts["append errors"] += 1
    if error is None or isinstance(error, LogUnavailable):
        return
    if isinstance(error, StreamClosed) and stream in world.closing:
        return
    if isinstance(error, SourceOwnsLog) and stream in world.attached:
        return
    raise Violation(f"stream {stream}: a good batch was refused: {error!r}") from error


def append(broker: Broker, stream: int, data: bytearray) -> asyncio.Future[AppendResult]:
    own = bytearray(data)
    [batch] = validate(own, max_batch_bytes=_MANY, max_decompressed_bytes=_MANY)
    answer = broker.log.append(stream, batch, memoryview(own))
    answer.add_done_callback(hear)  # a client that went away hears no error, and that is none
    return answer


def batch_of(
    values: Sequence[bytes],
    producer: tuple[int, int, int] = (-1, -1, -1),
    times: Sequence[int] | None = None,
) -> bytearray:
    producer_id, epoch, sequence = producer
    records = [
        Record(place, 1000 if times is None else times[place], None, value)
        for place, value in enumerate(values)
    ]
    return twin.encode(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def times_of(values: Sequence[bytes]) -> list[int]:
    return [time_of(identity_of(value)) for value in values]


# --- consumers


async def play_consumer(world: LogWorld, stream: int) -> None:
    """Read the stream from its start, again and again, through whichever broker."""
    while stream not in world.closing:
        await _check_bounds(world, stream)
        await _check_times(world, stream, world.random.choice((None, *TIMES)))
        offset = world.truth.start(stream)
        while offset < world.truth.end(stream) or world.random.random() < 0.7:
            await asyncio.sleep(world.random.uniform(0.0, 0.1))
            following = await _consume(world, stream, offset)
            if following is None:
                break
            offset = following


async def _check_bounds(world: LogWorld, stream: int) -> None:
    before = Bounds(world.truth.start(stream), world.truth.end(stream))
    answer = await _ask(world, stream, world.any_broker().log.bounds(stream))
    if answer is None:
        return
    [found] = answer
    if not (
        before.end <= found.end <= world.truth.end(stream)
        and before.start <= found.start <= world.truth.start(stream)
    ):
        raise Violation(f"stream {stream}: bounds {found}, but {before} was known before it was asked")


async def _check_times(world: LogWorld, stream: int, timestamp: int | None) -> None:
    before = Bounds(world.truth.start(stream), world.truth.end(stream))
    log = world.any_broker().log
    if timestamp is None:
        answer = await _ask(world, stream, log.find_max_timestamp(stream))
    else:
        answer = await _ask(world, stream, log.find_timestamp(stream, timestamp))
    if answer is not None:
        world.truth.found_by_time(stream, timestamp, before, answer[0])
        world.counts["looked up by time"] += 1


async def _ask(world: LogWorld, stream: int, question: Coroutine[Any, Any, T]) -> tuple[T] | None:
    """The answer; None where a client would ask again."""
    try:
        return (await asyncio.wait_for(question, 2.0),)
    except (TimeoutError, LogUnavailable):
        return None
    except LogError as error:
        if not isinstance(error, StreamClosed) or stream not in world.closing:
            raise Violation(f"stream {stream}: {error!r}") from error
        return None
    except asyncio.CancelledError:
        if not crashed_under_us():
            raise
        return None


async def _consume(world: LogWorld, stream: int, offset: int) -> int | None:
    """The offset to go on from; None when the consumer must start over."""
    broker, committed = world.any_broker(), world.truth.end(stream)
    request = ReadRequest(stream, offset, world.random.choice((1, 500, _MANY)))
    try:
        [result] = await asyncio.wait_for(
            broker.log.fetch([request], min_bytes=1, max_bytes=_MANY, max_wait_ms=200), 2.0
        )
    except TimeoutError:
        return offset
    except asyncio.CancelledError:
        if not crashed_under_us():
            raise
        return offset
    if result.error is not None:
        return _judge_read_error(world, stream, offset, result)
    if not result.buffers and offset < committed:
        raise Violation(f"stream {stream}: nothing at {offset}, though it reached {committed} before")
    for buffer in result.buffers:
        for record in decode(buffer).records():
            if record.offset > offset:
                raise Violation(f"stream {stream}: a consumer at {offset} was given {record.offset}")
            world.truth.consumed(stream, record.offset, record.value or b"")
            world.counts["consumed"] += 1
            offset = max(offset, record.offset + 1)
    return offset


def _judge_read_error(world: LogWorld, stream: int, offset: int, result: ReadResult) -> int | None:
    if isinstance(result.error, LogUnavailable):
        return offset
    if isinstance(result.error, OffsetOutOfRange) and offset < world.truth.start(stream):
        return None
    if isinstance(result.error, StreamClosed) and stream in world.closing:
        return None
    raise Violation(f"stream {stream}: reading at {offset} failed: {result.error!r}")


# --- administrators


async def play_retention(world: LogWorld) -> None:
    while True:
        await asyncio.sleep(world.random.uniform(0.05, 2 * world.conditions.retain_every))
        stream = world.random.choice(world.streams)
        before = world.random.randint(world.truth.start(stream), world.truth.end(stream))
        broker = world.any_broker()
        try:
            start = await asyncio.wait_for(broker.log.delete_records(stream, before), 3.0)
        except (LogUnavailable, TimeoutError):
            world.counts["retention errors"] += 1
        except StreamClosed as error:
            if stream not in world.closing:
                raise Violation(f"stream {stream}: {error}") from error
        except SourceOwnsLog as error:
            if stream not in world.attached:
                raise Violation(f"stream {stream}: {error}") from error
            world.counts["deletions refused"] += 1
        except LogError as error:
            raise Violation(f"stream {stream}: records below {before} not deleted: {error!r}") from error
        except asyncio.CancelledError:
            if not crashed_under_us():
                raise
        else:
            world.counts["records deleted"] += 1
            world.deleted_below[stream] = max(before, world.deleted_below.get(stream, 0))
            if not before <= start <= world.truth.start(stream):
                raise Violation(f"stream {stream}: the answer says that it starts at {start}, not {before}")


async def play_lanes(world: LogWorld) -> None:
    """A broker that no longer carries packs all that is carried, heads too; and it may begin again."""
    random = Random(world.seed ^ 0x1A9E)
    while True:
        await asyncio.sleep(random.uniform(0.1, 2 * world.conditions.switch_every))
        world.any_broker().log.carry(random.random() < 0.7)


async def play_sealer(world: LogWorld) -> None:
    while True:
        await asyncio.sleep(world.random.uniform(0.1, 1.5))
        broker = world.any_broker()
        store = StreamStore(broker.store, DOMAINS, world.conditions.settings.producer_expiry_ms)
        stream = world.random.choice(world.streams)
        try:
            found = await store.high_watermark(stream)
            if found is not None and found.value.head is not None:
                await store.write(stream, store.advance(stream, found, found.value.sealed()))
        except MetadataError:
            continue
        except asyncio.CancelledError:
            if not crashed_under_us():
                raise


async def play_deletion(world: LogWorld, stream: int) -> None:
    """Delete a topic under everybody's feet: closed, then swept."""
    await asyncio.sleep(world.random.uniform(1.0, 8.0))
    world.closing.add(stream)
    steps = ["close_streams", "sweep_streams"]
    while steps:
        broker = world.any_broker()
        try:
            await asyncio.wait_for(getattr(broker.log, steps[0])([stream]), 3.0)
        except (LogUnavailable, TimeoutError):
            continue
        except asyncio.CancelledError:
            if not crashed_under_us():
                raise
            continue
        if not world.truth.streams[stream].closed:
            raise Violation(f"stream {stream}: said to be closed, and is not")
        steps.pop(0)
        world.counts["topics deleted"] += 1
