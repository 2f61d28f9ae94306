"""Whether a job of Spark gets on, from what is seen of its tasks now and then: pure.

Spark itself ends what has died. It waits for ever for tasks that live and do nothing: a Python worker that
hangs, a cluster on which no executor takes a task (it has no workers, or its master was started again and
does not know the session any more). So each task has a deadline, and each job a time in which some task has
to run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

SLOWEST_BYTES: Final = 1 << 20
"""The bytes that a task reads and writes in a second at least. A core does fifty times as much; below this
the store or the machine is in trouble."""
_MOST_OVERDUE: Final = 2  # attempts of one task
_SAY_AFTER: Final = 1 / 3  # of the patience


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A job as it is seen at one moment."""

    running: Mapping[int, int] = field(default_factory=dict)  # by the id of the attempt: the task's place
    done: int = 0  # tasks


@dataclass(frozen=True, slots=True)
class Verdict:
    overdue: tuple[int, ...] = ()  # attempts that are to be ended; Spark begins others
    stands: str | None = None  # why the job stands still
    failed: str | None = None  # why it is given up: others may go better
    gone: str | None = None  # why no other would go better


class JobWatch:
    """`names`: of the tasks, by place; `weights`: the bytes of each."""

    def __init__(self, names: Sequence[str], weights: Sequence[int], patience: float, now: float) -> None:
        self._names = names
        self._patience = patience
        self._deadlines = [patience + weight / SLOWEST_BYTES for weight in weights]
        self._moved = now  # when a task was last seen to run or to end
        self._done = 0
        self._since: dict[int, float] = {}  # by attempt
        self._ended: dict[int, float] = {}  # attempts that are overdue: since when
        self._overdue: Counter[int] = Counter()  # attempts by place
        self._stands: str | None = None

    def see(self, now: float, seen: JobSeen) -> Verdict:
        if seen.done > self._done:
            self._stands = None
        if seen.running or seen.done > self._done:
            self._moved, self._done = now, seen.done
        self._since = {attempt: self._since.get(attempt, now) for attempt in seen.running}
        self._ended = {attempt: at for attempt, at in self._ended.items() if attempt in seen.running}
        if not seen.running:
            return self._without_tasks(now - self._moved)
        for attempt, at in self._ended.items():
            if now - at >= self._patience:
                place = self._names[seen.running[attempt]]
                return Verdict(gone=f"Spark has not ended the task of {place} in {self._patience:.0f} s")
        return self._with_tasks(now, seen.running)

    def _without_tasks(self, seconds: float) -> Verdict:
        if seconds >= self._patience:
            return Verdict(
                gone=f"no executor has taken a task for {seconds:.0f} s: look whether the cluster has "
                "workers with free cores, and whether its master was started again"
            )
        if seconds >= self._patience * _SAY_AFTER:
            return Verdict(stands=f"no executor has taken a task for {seconds:.0f} s")
        return Verdict(stands=self._stands)

    def _with_tasks(self, now: float, running: Mapping[int, int]) -> Verdict:
        overdue = []
        for attempt, place in running.items():
            deadline = self._deadlines[place] * 2 ** self._overdue[place]
            if attempt in self._ended or now - self._since[attempt] < deadline:
                continue
            overdue.append(attempt)
            self._ended[attempt] = now
            self._stands = f"a worker got no further with {self._names[place]} in {deadline:.0f} s"
        self._overdue.update(running[attempt] for attempt in overdue)
        if any(self._overdue[running[attempt]] >= _MOST_OVERDUE for attempt in overdue):
            return Verdict(
                tuple(overdue), self._stands, failed=f"{self._stands}, and so did the one before it"
            )
        return Verdict(tuple(overdue), self._stands)


class AnswerWatch:
    """Of a job whose tasks cannot be seen (Spark Connect): only that its answers come, one after the
    other."""

    def __init__(self, weights: Sequence[int], patience: float, now: float) -> None:
        self._deadline = patience + max(weights) / SLOWEST_BYTES
        self._moved = now
        self._answers = 0

    def see(self, now: float, answers: int) -> Verdict:
        if answers > self._answers:
            self._moved, self._answers = now, answers
        seconds = now - self._moved
        if seconds < self._deadline:
            return Verdict()
        reason = f"no unit was answered for {seconds:.0f} s"
        return Verdict(stands=reason, failed=reason)
