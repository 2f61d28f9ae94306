"""A partition of Kafka as the model knows it: leaders, a log that replicas follow, fences that take effect
late, requests that are on their way into the log, elections. Time is the model's: so many steps."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import NamedTuple

from tests.model.world import Batch, Record, records_of

LEADERS = 2
FENCE_IS_LATE = 600
ON_THE_WAY = 60
REPLICATION = 15
SLOW_REPLICATION = 200
MOMENT = ON_THE_WAY + 1
"""For how long the end must stand still. A request that got past the fence is in the log by then."""


class Leadership(NamedTuple):
    leader: int
    epoch: int


class Stored(NamedTuple):
    offset: int
    batch: Batch
    epoch: int

    @property
    def end(self) -> int:
        return self.offset + self.batch.records


@dataclass(slots=True)
class Outcome:
    is_over: bool = False


class KafkaSource:
    """`acknowledge` hears of what a client is told to be written: where, and what."""

    def __init__(
        self, random: Random, now: Callable[[], int], acknowledge: Callable[[int, Batch], None]
    ) -> None:
        self._random = random
        self._now = now
        self._acknowledge = acknowledge
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self.leadership = Leadership(0, 0)
        self.gone: list[Stored] = []  # deleted by retention. Their producers are remembered.
        self.log: list[Stored] = []
        self.committed = 0  # the high watermark
        self.acknowledged: dict[int, Batch] = {}  # without what an unclean election has lost
        self.ever: defaultdict[int, set[Record]] = defaultdict(set)  # what consumers may have read, by offset
        self._fenced_at: dict[int, int] = {}
        self.is_up = False

    @property
    def start(self) -> int:
        return self.gone[-1].end if self.gone else 0

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else self.start

    def write_and_delete(self, batches: Iterable[Batch]) -> None:
        """What happened before the link: it was written, and retention has deleted it."""
        for batch in batches:
            self.gone.append(Stored(self.end, batch, 0))
        self.committed = self.end

    def catch_up(self) -> None:
        while self._events and self._events[0][0] <= self._now():
            heapq.heappop(self._events)[2]()

    def _after(self, most: int, act: Callable[[], None]) -> None:
        when = self._now() + self._random.randint(0, most)
        heapq.heappush(self._events, (when, next(self._order), act))

    # --- clients

    def produce(self, batch: Batch) -> Outcome:
        self.catch_up()
        outcome, leadership = Outcome(), self.leadership
        if self.refuses(leadership):
            outcome.is_over = True
            return outcome
        self._after(ON_THE_WAY, lambda: self._append(batch, leadership, outcome))
        return outcome

    def _append(self, batch: Batch, leadership: Leadership, outcome: Outcome) -> None:
        if self.leadership != leadership:
            outcome.is_over = True
            return
        stored = next((each for each in (*self.gone, *self.log) if each.batch == batch), None)
        if stored is None:
            if batch.producer is not None and batch.sequence != self._last(batch.producer) + 1:
                outcome.is_over = True
                return
            stored = Stored(self.end, batch, leadership.epoch)
            self.log.append(stored)
        slowly = self._random.random() < 0.2
        self._after(
            SLOW_REPLICATION if slowly else REPLICATION, lambda: self._replicated(stored, leadership, outcome)
        )

    def _replicated(self, stored: Stored, leadership: Leadership, outcome: Outcome) -> None:
        outcome.is_over = True
        if self.leadership != leadership:
            return
        self._commit(stored.end)
        self.acknowledged[stored.offset] = stored.batch
        self._acknowledge(stored.offset, stored.batch)

    def _commit(self, end: int) -> None:
        self.committed = max(self.committed, end)
        for each in self.log:
            if each.end <= self.committed:
                for offset, record in enumerate(records_of(each.batch), each.offset):
                    self.ever[offset].add(record)

    def _last(self, producer: str) -> int:
        written = [each.batch for each in (*self.gone, *self.log)]
        return max((batch.sequence for batch in written if batch.producer == producer), default=-1)

    # --- what a migrator asks

    def read(self, offset: int, epoch: int | None, *, uncommitted: bool = False) -> list[tuple[Batch, int]]:
        """Up to two batches from an offset on, with their epochs. None where the history is another one."""
        self.catch_up()
        if epoch is not None and self.end_of_epoch(epoch) < offset:
            return []
        upto = self.end if uncommitted else self.committed
        found = [each for each in self.log if each.offset >= offset and each.end <= upto]
        if not found or found[0].offset != offset:
            return []
        return [(each.batch, each.epoch) for each in found[: self._random.randint(1, 2)]]

    def refuses(self, leadership: Leadership) -> bool:
        return self._now() >= self._fenced_at.get(leadership.leader, 1 << 60)

    def measure(self, leadership: Leadership) -> tuple[int, int] | None:
        """High watermark and end, of this very leadership."""
        self.catch_up()
        return (self.committed, self.end) if leadership == self.leadership else None

    def measured_end(self) -> int:
        self.catch_up()
        return self.end

    def end_of_epoch(self, epoch: int) -> int:
        self.catch_up()
        return min((each.offset for each in self.log if each.epoch > epoch), default=self.end)

    def producers(self) -> dict[str, int]:
        self.catch_up()
        written = (*self.gone, *self.log)
        names = {each.batch.producer for each in written if each.batch.producer is not None}
        return {name: self._last(name) for name in names}

    # --- fences and elections

    def put_up(self) -> None:
        """A leader that has it already keeps it. The others hear of it some time after."""
        self.is_up = True
        for leader in range(LEADERS):
            self._fenced_at.setdefault(leader, self._now() + self._random.randint(0, FENCE_IS_LATE))

    def lift(self) -> None:
        self.is_up = False
        self._fenced_at.clear()

    def elect(self, *, unclean: bool) -> None:
        """A broker hears of its leadership after all that the cluster had decided before, so also of a fence.
        An unclean election loses plain batches only: so producers need no numbers anew."""
        self.catch_up()
        self.log = [each for each in self.log if each.end <= self.committed]
        while unclean and self.log and self.log[-1].batch.producer is None:
            self.acknowledged.pop(self.log.pop().offset, None)
        self.committed = self.end
        leader = (self.leadership.leader + 1) % LEADERS
        self.leadership = Leadership(leader, self.leadership.epoch + 1)
        if leader in self._fenced_at:
            self._fenced_at[leader] = min(self._fenced_at[leader], self._now())
