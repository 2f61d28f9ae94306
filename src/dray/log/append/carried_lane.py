"""The lane of small appends: they are carried in the commit, while the object lane goes its own way.

A lane is of one domain, or of all where the store brings in one write at a time anyway (SQLite). One write of
it is under way at a time. The next one gathers meanwhile, and closes as soon as the lane is free. There is no
linger, but where one lane serves all domains, the batches of producers that always come back at once are
waited for (`ReturningProducers`).

A stream is in one lane at a time. While any batch of it is in the object lane, all go there; and an object
that holds a stream of which a carried write is under way is committed after that.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

import structlog

from dray.base.runtime import DAY_MS, Runtime, run_once
from dray.log.append.carry import CarriedBacklog, CarryLimits, CarryPolicy, LaneSwitch, ReturningProducers
from dray.log.append.chunks import CarriedAppend, OpenObject, PendingBatch
from dray.log.append.commit import CommitResult, Committer
from dray.log.observer import LogObserver
from dray.log.types import LogUnavailable

_log = structlog.get_logger(__name__)

# The timers of the event loop count whole milliseconds, and may be as much too early.
_TIMER_SECONDS = 0.001


class CarriedLane:
    def __init__(
        self,
        runtime: Runtime,
        limits: CarryLimits,
        backlogs: Sequence[CarriedBacklog],
        committer: Committer,
        observer: LogObserver,
        on_settled: Callable[[list[int]], None],
        on_much: Callable[[], None],
        most_streams: int,
    ) -> None:
        """`backlogs` are those of all domains. `on_much` is called when so much is carried that it should be
        packed now."""
        self.is_open = False
        self.largest = limits.chunk_bytes  # a larger batch need not be offered
        self._runtime = runtime
        self._limits = limits
        self._backlogs = backlogs
        self._domains = len(backlogs)
        # Over a network, writes have their own pace.
        self._returning = ReturningProducers(limits.wait_after) if limits.across_domains else None
        self._is_waiting = False  # for batches that should come at once
        if limits.across_domains:
            limits = replace(limits, write_bytes=limits.write_bytes * self._domains)
        self._worth_a_wait = limits.write_bytes // 2  # a fuller one might have to refuse what it waits for
        self._policies = [CarryPolicy(limits, backlog) for backlog in backlogs]
        self._committer = committer
        self._observer = observer
        self._on_settled = on_settled
        self._on_much = on_much
        self._most_streams = most_streams
        self._open = OpenObject()
        self._day: int | None = None  # of the append times in the open write
        self._underway: OpenObject | None = None
        self._done: asyncio.Future[None] | None = None  # when that is committed, or has failed
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._begun: deque[float] = deque(maxlen=max(1, limits.free_writes))  # when the last writes were

    @property
    def has_room(self) -> bool:
        """Is no domain at the bound of its backlog?"""
        return not any(policy.is_over_backlog for policy in self._policies)

    def takes(self, stream: int, size: int) -> bool:
        """Count a small batch, and say whether its stream is slow enough to be carried."""
        if self._policies[stream % self._domains].rate.takes(self._runtime.monotonic(), stream, size):
            return True
        self._observer.lane_switched(LaneSwitch.RATE.value)
        return False

    def append(self, stream: int, pending: PendingBatch) -> bool:
        """False if the batch has to go the way of objects, together with what waits here of its stream."""
        opened = self._open
        now = self._runtime.monotonic()
        waiting = opened.chunks.get(stream)
        chunk = 0 if waiting is None else sum([each.batch.length for each in waiting.pending])
        reason = self._policies[stream % self._domains].refusal(
            now, stream, chunk, opened.size, pending.batch.length
        )
        if reason is None and waiting is None and len(opened.chunks) >= self._most_streams:
            reason = LaneSwitch.FULL
        if reason is not None or not self._is_of_the_day(pending):
            self._observer.lane_switched((reason or LaneSwitch.FULL).value)
            return False
        opened.add(stream, pending)
        if self._returning is not None:
            self._returning.came(now)
        if self._underway is None and (self._timer is None or self._is_waiting):
            self._launch_soon(now)
        return True

    def _launch_soon(self, now: float) -> None:
        """Not at once, so that batches that arrived together are carried together."""
        if self._waits(now):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_soon(self._launch)

    def _waits(self, now: float) -> bool:
        """Does the open write wait for more?"""
        returning = self._returning
        if returning is None:
            return False
        has_room = self._open.size <= self._worth_a_wait
        if self._is_waiting:
            self._is_waiting = has_room and not returning.is_complete
        elif has_room and returning.are_waited_for(now):
            self._is_waiting = True
            wait = returning.until - now + _TIMER_SECONDS
            self._timer = asyncio.get_running_loop().call_later(wait, self._launch)
        return self._is_waiting

    def _is_of_the_day(self, pending: PendingBatch) -> bool:
        """Batches that the broker stamps at two sides of midnight (UTC) go into two entries, as in the object
        lane."""
        if pending.append_time_ms < 0:
            return True
        day = pending.append_time_ms // DAY_MS
        if self._day not in (None, day):
            return False
        self._day = day
        return True

    def take_back(self, stream: int) -> list[PendingBatch]:
        """Take out the waiting batches of a stream that goes over to the object lane, in their order."""
        chunk = self._open.chunks.pop(stream, None)
        if chunk is None:
            return []
        self._open.size -= sum([each.batch.length for each in chunk.pending])
        self._open.batch_count -= len(chunk.pending)
        return chunk.pending

    async def passed(self, streams: Collection[int]) -> None:
        """Wait until no write is under way that holds one of these streams: what was carried came first."""
        while self._underway is not None and not self._underway.chunks.keys().isdisjoint(streams):
            assert self._done is not None
            await asyncio.shield(self._done)

    def lost_races(self, streams: Iterable[int]) -> None:
        """Of commits in the other lane."""
        now = self._runtime.monotonic()
        for stream in streams:
            self._policies[stream % self._domains].lost_race(now, stream)

    def forget_idle(self) -> None:
        now = self._runtime.monotonic()
        for policy in self._policies:
            policy.forget_idle(now)

    async def stop(self) -> None:
        """Carry what waits, and wait for it."""
        while self._underway is not None or self._open.batch_count:
            if self._underway is None:
                self._launch()
            if self._done is not None:
                await asyncio.shield(self._done)

    # --- one write

    def _launch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_waiting and self._returning is not None:
            self._is_waiting = False
            self._returning.stayed_away()
        if self._underway is not None or not self._open.batch_count:
            return
        opened, self._open, self._day = self._open, OpenObject(), None
        self._underway = opened
        self._done = asyncio.get_running_loop().create_future()
        self._begun.append(self._runtime.monotonic())
        run_once(self._runtime, "carried append", self._carry, opened, self._done)

    async def _carry(self, opened: OpenObject, done: asyncio.Future[None]) -> None:
        try:
            await self._commit(opened)
        finally:
            for chunk in opened.chunks.values():
                self._committer.fail(chunk, LogUnavailable("the append was cut short: try again"))
            self._underway = None
            if not done.done():
                done.set_result(None)
            self._go_on(opened.batch_count)

    def _go_on(self, answered: int) -> None:
        now = self._runtime.monotonic()
        if self._returning is not None:
            self._returning.ended(now, now - self._begun[-1], answered, self._open.batch_count)
        if not self._open.batch_count or self._timer is not None:
            return
        wait = self._pause()
        if wait > 0:
            self._timer = asyncio.get_running_loop().call_later(wait, self._launch)
        elif not self._waits(now):
            self._launch()

    def _pause(self) -> float:
        """How long the next write gathers. Over a network, many writes a second are worth less than few."""
        limits = self._limits
        if limits.pace_seconds <= 0 or len(self._begun) < limits.free_writes:
            return 0.0
        now = self._runtime.monotonic()
        if now - self._begun[0] >= 1.0:
            return 0.0
        return max(0.0, self._begun[-1] + limits.pace_seconds - now)

    async def _commit(self, opened: OpenObject) -> None:
        now = self._runtime.monotonic()
        carried = CarriedAppend.of(opened, self._runtime.uuid(), self._runtime.wall_ms())
        result = await self._committer.commit(carried)
        self._count(opened, result, now)
        self.lost_races(result.lost)
        self._on_settled([stream for stream in opened.chunks if stream not in result.failed])

    def _count(self, opened: OpenObject, result: CommitResult, now: float) -> None:
        """An undecided one may be in the log: it counts, until a look at the stream shows better."""
        batches = size = 0
        for stream, chunk in opened.chunks.items():
            if stream in result.failed:
                continue
            length = sum([each.batch.length for each in chunk.pending])
            backlog = self._backlogs[stream % self._domains]
            backlog.add(stream, length, now)
            batches += len(chunk.pending)
            size += length
            if backlog.is_much(stream):
                self._on_much()
        self._observer.carried(batches, size)
