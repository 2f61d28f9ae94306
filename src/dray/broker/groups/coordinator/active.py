"""A group in the memory of the broker that holds its lease: events in, one after another, answers out.

An event that changes nothing to be stored is answered at once. One that does waits for its write, and so do
those that come meanwhile; they then go through the machine together and share the next write. Nothing leaves
before the write it rests on is confirmed, nor when the lease may have ended. An event that could not be
stored has not happened: the state before it still holds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

import structlog

from dray.base.runtime import Runtime, run_once
from dray.broker.groups import classic, consumer
from dray.broker.groups.coordinator.admission import Admitted
from dray.broker.groups.coordinator.contract import GroupsObserver, GroupUnavailable, NotCoordinator
from dray.broker.groups.coordinator.ledger import Ledger
from dray.broker.groups.coordinator.machines import (
    Effect,
    Event,
    Machines,
    State,
    StepResult,
    encode_state,
    kind_of,
    rounds_of,
)
from dray.broker.groups.coordinator.storage import GroupKind, GroupStorage

_log = structlog.get_logger(__name__)

BATCH_SECONDS: Final = 0.01
"""How long the events that share a write may keep the processor: other groups wait meanwhile."""

MOST_TOGETHER: Final = 250
"""How many heartbeats may share one run of the assignor, and keep the processor until all are worked on."""

RETRY_SECONDS: Final = 1.0
"""After which an event without a request (a timer) is tried again, when it could not be stored."""

ScheduleTimer: TypeAlias = classic.ScheduleTimer | consumer.ScheduleTimer

Resolve: TypeAlias = Callable[[consumer.ResolvePatterns], Awaitable[tuple[Mapping[str, frozenset[str]], int]]]
"""Finds the topic names that match patterns: names by pattern, and the version of the topics."""


class _Entry(NamedTuple):
    event: Event
    future: asyncio.Future[Any] | None
    key: Hashable = None
    timer: Timer | None = None


class _Batch(NamedTuple):
    entries: list[_Entry]
    state: State
    replies: list[tuple[Any, Any]]
    effects: list[tuple[float, Effect]]
    """Each with the moment, on the monotonic clock, that its times are counted from: see `_apply`."""
    persist: bool


class ActiveGroup:
    def __init__(
        self,
        storage: GroupStorage,
        ledger: Ledger,
        machines: Machines,
        runtime: Runtime,
        *,
        state: State,
        admitted: Admitted,
        resolve: Resolve,
        dropped: Callable[[ActiveGroup], None],
        observer: GroupsObserver,
    ) -> None:
        self.group_id = storage.group_id
        self.ledger = ledger
        self.state = state
        self.admitted = admitted
        self.last_used = runtime.monotonic()
        self._storage = storage
        self._lease = storage.lease
        self._machines = machines
        self._runtime = runtime
        self._resolve = resolve
        self._dropped = dropped
        self._observer = observer
        self._timers: GroupTimers = GroupTimers(runtime, self._on_due)
        self._queue: deque[_Entry] = deque()
        self._busy = False
        self._gone = False
        self._half_deleted = False
        ledger.fenced = self.drop

    # --- what the service asks

    @property
    def storage(self) -> GroupStorage:
        return self._storage

    def usable(self) -> bool:
        return not self._gone and self._lease.confirmed()

    def is_idle(self) -> bool:
        """Whether nothing would be lost if the group left this broker's memory now."""
        state = self.state
        is_empty = state is None or (
            not state.members and not (isinstance(state, classic.ClassicGroup) and state.pending)
        )
        return is_empty and not self._busy and not self._queue and not self.ledger.is_busy()

    def begin(self) -> None:
        """The first steps after loading."""
        entry_state = self.state
        stepped = self._machines.after_load(entry_state, self._runtime.wall_ms())
        batch = _Batch([], stepped.group, list(stepped.replies), self._timed(stepped), stepped.persist)
        self._go_on(batch)

    def ask(self, event: Event, future: asyncio.Future[Any]) -> None:
        """The future gets the answer, or a `GroupUnavailable`; before this returns, or much later."""
        if not self.usable():
            self.drop()
            raise NotCoordinator(f"the lease of group '{self.group_id}' may have ended")
        self.last_used = self._runtime.monotonic()
        self._submit(_Entry(event, future))

    def drop(self, message: str = "", *, by_choice: bool = False) -> None:
        """Drop the group from memory. Requests that wait are answered with NOT_COORDINATOR."""
        if self._gone:
            return
        self._gone = True
        if not by_choice:
            self._observer.lost()
        self._timers.close()
        error = NotCoordinator(message or f"this broker no longer looks after group '{self.group_id}'")
        if isinstance(self.state, classic.ClassicGroup):
            for parked, _ in classic.abandoned(self.state, error.error):
                _fail(parked, error)
        queue, self._queue = self._queue, deque()
        _refuse(queue, error)
        self.ledger.drop(error)
        self._dropped(self)

    # --- events

    def _submit(self, entry: _Entry) -> None:
        self._queue.append(entry)
        if not self._busy:
            self._go_on(self._work())

    def _go_on(self, batch: _Batch) -> None:
        if not batch.persist:
            self._adopt(batch)
            return
        self._busy = True
        run_once(self._runtime, "write group", self._drain, batch)

    async def _drain(self, batch: _Batch) -> None:
        try:
            while True:
                await self._finish(batch)
                if self._gone or not self._queue:
                    return
                await self._runtime.sleep(0)  # others have waited too
                batch = self._work()
        finally:
            self._busy = False

    async def _finish(self, batch: _Batch) -> None:
        """Store the batch if it must be, then let it out."""
        try:
            if batch.persist:
                await self._store(batch.state)
        except NotCoordinator as error:
            _refuse(batch.entries, error)
            self.drop(error.message)
        except GroupUnavailable as error:
            _log.debug("a group was not stored", group=self.group_id, error=error.message)
            self._undo(batch, error)
        except BaseException as error:
            # Cancelled, or a mistake of ours: what was stored is not known, so the group is read again.
            _refuse(batch.entries, NotCoordinator(repr(error)))
            self.drop()
            raise
        else:
            if self._gone:  # while the write was under way
                _refuse(batch.entries, NotCoordinator("the group was given up meanwhile"))
            else:
                self._adopt(batch)
                if self._half_deleted:
                    self.drop(by_choice=True)

    async def _store(self, state: State) -> None:
        if state is not None:
            await self._storage.put(*encode_state(state))
            return
        # First the mark, then what goes with it: a coordinator that takes over in between goes on with it.
        await self._storage.put(GroupKind.DELETED, b"")
        try:
            await self.ledger.delete_all()
            await self._storage.delete()
        except GroupUnavailable as error:
            # It is deleted all the same: who loads it next finishes this.
            _log.info("a deleted group is left to be swept", group=self.group_id, error=error.message)
            self._half_deleted = True

    def _work(self) -> _Batch:
        """Run the machine on what has come. Effects of an earlier event of the batch are not seen by a later
        one, so a timer is always the first of its batch: what it depends on has been let out."""
        queue = self._queue
        entries: list[_Entry] = []
        state, persist = self.state, False
        replies: list[tuple[Any, Any]] = []
        effects: list[tuple[float, Effect]] = []
        now_ms = self._runtime.wall_ms()
        until = self._runtime.monotonic() + BATCH_SECONDS
        while queue and not (entries and _begins_batch(queue[0])):
            together = self._take_together(state)
            entries += together
            first = together[0]
            if first.timer is not None and not self._timers.take(first.key, first.timer):
                continue  # scheduled anew or cancelled while it was waiting its turn
            try:
                stepped = self._machines.step_together(
                    state, [entry.event for entry in together], [entry.future for entry in together], now_ms
                )
            except (
                BaseException
            ) as error:  # a mistake of ours: leave nobody waiting, and read the group again
                _refuse(entries, NotCoordinator(repr(error)))
                self.drop()
                raise
            state = stepped.group
            persist = persist or stepped.persist
            replies += stepped.replies
            if stepped.effects:
                effects += self._timed(stepped, now_ms)
            if _stands_alone(first) or self._runtime.monotonic() > until:
                break
        return _Batch(entries, state, replies, effects, persist)

    def _take_together(self, state: State) -> list[_Entry]:
        """The next event, with those after it that the machine can work on at once."""
        queue = self._queue
        beats = list(islice(_leading_heartbeats(queue), MOST_TOGETHER))
        count = self._machines.count_together(state, beats) if len(beats) > 1 else 1
        return [queue.popleft() for _ in range(count)]

    def _adopt(self, batch: _Batch) -> None:
        before, self.state = self.state, batch.state
        if batch.state is not before:
            self._tell(before, batch)
        for base, effect in batch.effects:
            self._apply(base, effect)
        _deliver(batch.replies)

    def _tell(self, before: State, batch: _Batch) -> None:
        """Report what happened to the observer."""
        after = batch.state
        if after is None:
            return
        kind = kind_of(after)
        if type(before) is type(after) and before is not None:
            first = batch.entries[0] if batch.entries else None
            event = None if first is None or first.timer is None else first.event
            if isinstance(event, (classic.TimerFired, consumer.TimerFired)) and (
                event.member_id in before.members and event.member_id not in after.members
            ):
                self._observer.member_expired(kind)
        if rounds_of(after) != (rounds_of(before) if type(before) is type(after) else 0) and after.members:
            self._observer.rebalanced(kind)

    def _undo(self, batch: _Batch, error: GroupUnavailable) -> None:
        """Nothing of it has happened. Requests are refused; events without a request come again."""
        _refuse(batch.entries, error)
        for entry in batch.entries:
            if entry.timer is not None:
                again = self._runtime.monotonic() + RETRY_SECONDS
                self._timers.schedule(entry.key, again, entry.timer.effect)
            elif isinstance(entry.event, consumer.PatternsResolved):
                run_once(self._runtime, "patterns of group", self._submit_later, entry)

    async def _submit_later(self, entry: _Entry) -> None:
        await self._runtime.sleep(RETRY_SECONDS)
        if self.usable():
            self._submit(entry)

    # --- effects

    def _timed(self, stepped: StepResult, now_ms: int | None = None) -> list[tuple[float, Effect]]:
        """The machines count milliseconds of the wall clock, which may be set; timers run on the other."""
        if now_ms is None:
            now_ms = self._runtime.wall_ms()
        base = self._runtime.monotonic() - now_ms / 1000
        return [(base, effect) for effect in stepped.effects]

    def _apply(self, base: float, effect: Effect) -> None:
        if isinstance(effect, (classic.ScheduleTimer, consumer.ScheduleTimer)):
            self._timers.schedule((effect.kind, effect.member_id), base + effect.at_ms / 1000, effect)
        elif isinstance(effect, consumer.ResolvePatterns):
            run_once(self._runtime, "patterns of group", self._resolve_patterns, effect)
        else:
            self._timers.cancel((effect.kind, effect.member_id))

    async def _resolve_patterns(self, effect: consumer.ResolvePatterns) -> None:
        names, version = await self._resolve(effect)
        if self.usable():
            self._submit(_Entry(consumer.PatternsResolved(names, version), None))

    def _on_due(self, key: Hashable, timer: Timer) -> None:
        if not self.usable():
            self.drop()
            return
        effect = timer.effect
        event: Event
        if isinstance(effect, classic.ScheduleTimer):
            event = classic.TimerFired(effect.kind, effect.member_id)
        else:
            event = consumer.TimerFired(effect.kind, effect.member_id, effect.member_epoch)
        self._submit(_Entry(event, None, key, timer))


class Timer(NamedTuple):
    deadline: float
    effect: ScheduleTimer


class GroupTimers:
    """The timers of one group, cheap to move: ten thousand members move theirs with every heartbeat.

    Only the earliest deadline is armed in the event loop. Moving a deadline further away changes a table and
    nothing else; when the armed time comes, what is really due is looked up, and the next one is armed.
    """

    def __init__(self, runtime: Runtime, due: Callable[[Hashable, Timer], None]) -> None:
        """`due` is called with a timer whose time has come. It stays in the table until it is taken."""
        self._runtime = runtime
        self._due = due
        self._table: dict[Hashable, Timer] = {}
        self._armed: asyncio.TimerHandle | None = None
        self._armed_for = float("inf")

    def __len__(self) -> int:
        return len(self._table)

    def schedule(self, key: Hashable, deadline: float, effect: ScheduleTimer) -> None:
        self._table[key] = Timer(deadline, effect)
        if deadline < self._armed_for:
            self._arm(deadline)

    def cancel(self, key: Hashable) -> None:
        self._table.pop(key, None)

    def take(self, key: Hashable, timer: Timer) -> bool:
        """Whether this very timer is still there; it is then taken out."""
        if self._table.get(key) is not timer:
            return False
        del self._table[key]
        return True

    def close(self) -> None:
        self._table.clear()
        if self._armed is not None:
            self._armed.cancel()

    def _arm(self, deadline: float) -> None:
        if self._armed is not None:
            self._armed.cancel()
        self._armed_for = deadline
        delay = max(deadline - self._runtime.monotonic(), 0.0)
        self._armed = asyncio.get_running_loop().call_later(delay, self._look)

    def _look(self) -> None:
        self._armed, self._armed_for = None, float("inf")
        now = self._runtime.monotonic()
        due = [(key, timer) for key, timer in self._table.items() if timer.deadline <= now]
        reported = {key for key, _ in due}
        waiting = (timer.deadline for key, timer in self._table.items() if key not in reported)
        if (earliest := min(waiting, default=None)) is not None:
            self._arm(earliest)
        for key, timer in due:
            try:
                self._due(key, timer)
            except Exception as error:  # the others are due as well, and come but once
                self._runtime.background.report("group timers", error)


def _leading_heartbeats(queue: Iterable[_Entry]) -> Iterator[consumer.Heartbeat]:
    for entry in queue:
        if not isinstance(entry.event, consumer.Heartbeat):
            return
        yield entry.event


def _begins_batch(entry: _Entry) -> bool:
    return entry.timer is not None or _stands_alone(entry)


def _stands_alone(entry: _Entry) -> bool:
    return isinstance(entry.event, classic.DeleteGroup)


def _deliver(replies: Iterable[tuple[Any, Any]]) -> None:
    for future, answer in replies:
        if not future.done():  # its client may have left
            future.set_result(answer)


def _refuse(entries: Iterable[_Entry], error: GroupUnavailable) -> None:
    for entry in entries:
        _fail(entry.future, error)


def _fail(future: Any, error: GroupUnavailable) -> None:
    if future is not None and not future.done():
        future.set_exception(error)
        future.exception()  # whoever asked may have had an error of its own: then nobody hears this one
