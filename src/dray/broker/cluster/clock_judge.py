"""Whether this machine's wall clock is to be believed: evidence in, a verdict out, and no clock inside.

Evidence is what other clocks showed, each as bounds of *how far it is ahead of our monotonic clock*. Those
hold for a while, whatever our wall clock does: when it jumps, the very next question notices.

- Another process stores its wall time now and then, a *beat*. One that has changed since the last look was
  written between the two looks, so its clock is known as precisely as they are apart.
- The object store says when it took an object of ours.
- Where there is nothing else, the wall clock is held against itself: it may not jump while this process runs.

Machines vote, since processes of one machine share a clock, and the object store votes like one. The clock is
believed when more than half of all, its own vote included, agree with it. So a minority that is wrong doubts
itself, and the majority goes on; of two that disagree, both doubt. The object store has a veto: the age of
objects is judged by its times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isinf
from typing import Final, NamedTuple

FRESH_BEATS: Final = 3
"""For how many beats a comparison counts."""

GONE_BEATS: Final = 10
"""After how many beats of silence a process counts as gone. A process that is left alone believes itself, and
the others may only be paused: so it is longer."""

LEAST_LOOKS: Final = 2
"""Of two processes that start at the same time, one sees the other only in its second look."""

STEP_SECONDS: Final = 24 * 3600.0
"""After which a clock that jumped, and stayed, is believed where no other clock can be asked."""


class ClockBeat(NamedTuple):
    """The last beat that another process stored."""

    process: str
    machine: str
    version: int
    wall_ms: int | None
    """None: it cannot be read by this build."""

    stepped: bool = False
    """It saw the clock of its machine jump."""


class ClockVerdict(NamedTuple):
    believed: bool
    reason: str = ""
    """Of a doubt, for people."""

    ahead_ms: float = 0.0
    """By how much the clock is ahead of what it was compared with, as far as known."""

    certain: bool = True
    """False while more will be known soon."""


BELIEVED: Final = ClockVerdict(True)


@dataclass(slots=True)
class _Evidence:
    """Bounds, in milliseconds, of how far another clock is ahead of our monotonic one."""

    least: float
    most: float
    seen: float
    """When it was last known to go on, on our monotonic clock."""

    def ahead(self, offset: float) -> float:
        """By how much ours is ahead of it at least; negative: behind."""
        return min(offset - self.least, 0.0) + max(offset - self.most, 0.0)


@dataclass(slots=True)
class _Process:
    machine: str
    version: int
    evidence: _Evidence
    stepped: bool


class ClockJudge:
    """`machine` is ours: processes there share our clock, and have no vote. `beat_seconds` is how often
    processes store their times. `has_store_clock`: the object store's clock is another one, and it must be
    known."""

    def __init__(self, machine: str, tolerance: float, beat_seconds: float, *, has_store_clock: bool) -> None:
        self._machine = machine
        self._tolerance_ms = tolerance * 1000
        self._beat_ms = beat_seconds * 1000
        self._fresh = FRESH_BEATS * beat_seconds
        self._gone = GONE_BEATS * beat_seconds
        self._has_store_clock = has_store_clock
        self._store: _Evidence | None = None
        self._processes: dict[str, _Process] = {}
        self._looks = 0
        self._looked = 0.0  # when the last look began
        self._base: float | None = None  # how far our wall clock was ahead when it was last believed
        self._jump: tuple[float, float] | None = None  # how far it is since it jumped, and since when

    # --- evidence

    def looked(self, began: float, ended: float, beats: Sequence[ClockBeat]) -> None:
        """The beats of all other processes, read between two moments of our monotonic clock."""
        before, self._processes = self._processes, {}
        for beat in beats:
            known = before.get(beat.process)
            if known is not None and known.version == beat.version:
                self._processes[beat.process] = known
                continue
            wall_ms = float("-inf") if beat.wall_ms is None else float(beat.wall_ms)
            # In the first look it may be of any age, and its process dead.
            bounded = self._looks > 0
            most = wall_ms - self._looked * 1000 if bounded else float("inf")
            evidence = _Evidence(wall_ms - ended * 1000, most, ended)
            self._processes[beat.process] = _Process(beat.machine, beat.version, evidence, beat.stepped)
        self._looks += 1
        self._looked = began

    def probed(self, began: float, ended: float, wall_ms: int) -> None:
        """The object store took an object of ours at this time, by its own clock."""
        self._store = _Evidence(wall_ms - ended * 1000, wall_ms - began * 1000, ended)

    def silent_since(self, process: str) -> float | None:
        """When another process was last known to go on."""
        known = self._processes.get(process)
        return None if known is None else known.evidence.seen

    @property
    def settled(self) -> bool:
        """Whether enough was seen to say anything."""
        return self._looks >= LEAST_LOOKS

    @property
    def has_stepped(self) -> bool:
        """Whether our clock jumped, as far as this process saw."""
        return self._jump is not None

    # --- the verdict

    def judge(self, now: float, wall_ms: int) -> ClockVerdict:
        """At a moment of our monotonic and our wall clock."""
        offset = wall_ms - now * 1000
        if not self.settled:
            return ClockVerdict(False, "it was not compared with other clocks yet", certain=False)
        if now - self._looked > self._fresh:
            return ClockVerdict(False, "it was not compared with other clocks lately", certain=False)
        differences: list[float | None] = []
        if self._has_store_clock:
            store = self._store
            if store is None or now - store.seen > self._fresh:
                return ClockVerdict(False, "the object store's clock could not be read lately", certain=False)
            ahead = store.ahead(offset)
            if abs(ahead) > self._tolerance_ms:
                return ClockVerdict(False, f"it is {_in_words(ahead)} the object store's", ahead)
            differences.append(ahead)
        differences += self._others(offset)
        if not differences:
            return self._judge_alone(now, offset)
        agreeing = [ahead for ahead in differences if ahead is not None and abs(ahead) <= self._tolerance_ms]
        if 2 * (len(agreeing) + 1) > len(differences) + 1:
            self._base, self._jump = offset, None
            return BELIEVED
        return self._outvoted(differences, len(agreeing))

    def _others(self, offset: float) -> list[float | None]:
        """By how much we are ahead of each other machine; None where that is not known yet."""
        newest: dict[str, _Process] = {}
        for name, process in self._processes.items():
            if self._is_silent(process) or (process.machine and process.machine == self._machine):
                continue
            voter = process.machine or name
            if voter not in newest or process.evidence.seen > newest[voter].evidence.seen:
                newest[voter] = process
        return [self._ahead_of(process, offset) for process in newest.values()]

    def _is_silent(self, process: _Process) -> bool:
        """By what the last look could show: what came after it began is not known."""
        return self._looked - process.evidence.seen > self._gone

    def _ahead_of(self, process: _Process, offset: float) -> float | None:
        evidence = process.evidence
        if isinf(evidence.least):
            return None  # it cannot be read
        ahead = evidence.ahead(offset)
        if ahead < -self._tolerance_ms:
            return ahead  # a clock only goes on from what it showed
        if evidence.most - evidence.least > max(self._tolerance_ms, 2 * self._beat_ms):
            return None  # seen once, or in looks that were far apart: its next beat tells, or its silence
        return ahead

    def _outvoted(self, differences: Sequence[float | None], agreeing: int) -> ClockVerdict:
        known = sorted(
            ahead for ahead in differences if ahead is not None and abs(ahead) > self._tolerance_ms
        )
        others = f"of {len(differences)} other clocks, {agreeing} agree with it"
        if not known:
            return ClockVerdict(False, f"{others}, and the rest is not known yet", certain=False)
        middle = known[len(known) // 2]
        certain = None not in differences
        return ClockVerdict(False, f"it is {_in_words(middle)} others: {others}", middle, certain)

    def _judge_alone(self, now: float, offset: float) -> ClockVerdict:
        """Nothing to compare with but what our clock showed before."""
        if self._base is None:
            self._base = offset
        ahead = offset - self._base
        if abs(ahead) <= self._tolerance_ms:
            self._jump = None
        elif self._jump is None or abs(offset - self._jump[0]) > self._tolerance_ms:
            self._jump = offset, now
        elif now - self._jump[1] >= STEP_SECONDS:
            self._base, self._jump = offset, None
        if self._jump is not None:
            jumped = "ahead" if ahead > 0 else "back"
            return ClockVerdict(
                False,
                f"it was set {_seconds(ahead)} {jumped} while this process ran, and there is no other clock",
                ahead,
            )
        if any(process.stepped and not self._is_silent(process) for process in self._processes.values()):
            return ClockVerdict(False, "another process on this machine saw it jump")
        return BELIEVED


def _in_words(ahead_ms: float) -> str:
    return f"{_seconds(ahead_ms)} {'ahead of' if ahead_ms > 0 else 'behind'}"


def _seconds(milliseconds: float) -> str:
    return f"{abs(milliseconds) / 1000:.0f} s"
