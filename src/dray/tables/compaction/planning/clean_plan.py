"""When a stream is compacted by key, and what of it: a pure function of one snapshot, as `plan.py`.

Files may be cleaned from the stream's start on, up to the first entry that is in the WAL, or too young
(`min.compaction.lag.ms`). Two kinds of merges do it. A *bottom merge* of all of them leaves one record per
key, and sets a clean point. It is due when the part above the last clean point is large enough
(`min.cleanable.dirty.ratio`) or old enough (`max.compaction.lag.ms`). Every other merge, also the first one
of WAL entries, drops what it holds twice on its way.

If one merge would be too large, or its file would hold two days and the table is partitioned by them, a
*cleaning round* does what a bottom merge does (`log/jobs/cleaned.py`): first the keys of the dirty part are
collected, then file after file is written against them.

There are no transactions: the last stable offset is the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.base.runtime import DAY_MS
from dray.broker.topics.model import TopicSettings
from dray.log.entries import NO_TIMESTAMP, IndexEntry
from dray.log.jobs.cleaned import Cleaned, CleaningRound
from dray.log.jobs.machine import Cleaning
from dray.log.stream_store import Versioned

_MANY_DIRTY_FILES: Final = 8

Entries = list[Versioned[IndexEntry]]


@dataclass(frozen=True, slots=True)
class CleanStep:
    """A bottom merge, or the next files of a cleaning round, or the files whose keys begin one."""

    inputs: Entries = field(default_factory=list)
    cleaning: Cleaning | None = None
    collects_keys: bool = False


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """The rules for cleaning, by the topic and its stream's clean points. `now_ms` is the clock that
    deletions go by."""

    settings: TopicSettings
    cleaned: Cleaned
    now_ms: int
    most_raw_bytes: int  # of a bottom merge
    by_day: bool = False  # no file may hold records of two days

    def may_clean(self, entries: Sequence[Versioned[IndexEntry]]) -> bool:
        """Are all of these old enough?"""
        return all(self._is_old_enough(entry.value) for entry in entries)

    def _is_old_enough(self, entry: IndexEntry) -> bool:
        lag = self.settings.min_compaction_lag_ms
        return lag == 0 or _newest_ms(entry) <= self.now_ms - lag

    def cleaning(self, *, from_start: bool, of: CleaningRound | None = None) -> Cleaning:
        retention_ms = self.settings.delete_retention_ms
        below = self.cleaned.tombstones_below(self.now_ms, retention_ms)
        if of is None:
            return Cleaning(below, retention_ms, from_start)
        return Cleaning(below, retention_ms, from_start, of.keys, of.reached)

    def waits(self, live: Entries) -> bool:
        """May a bottom merge become due by the passing of time alone?"""
        dirty = self._parts(live)[1]
        limited = self.settings.min_compaction_lag_ms > 0 or self.settings.max_compaction_lag_ms < 2**62
        return bool(dirty or any(entry.value.end > self.cleaned.end for entry in live)) and limited

    def next_step(self, live: Entries, most_inputs: int, target_bytes: int, *, everything: bool) -> CleanStep:
        """A bottom merge or a step of a round, if one is due. `everything`: due as soon as there is anything
        to clean."""
        if self.cleaned.round is not None:
            inputs = self._next_of_round(live, self.cleaned.round, most_inputs, target_bytes)
            return CleanStep(inputs, self.cleaning(from_start=False, of=self.cleaned.round))
        clean, dirty = self._parts(live)
        inputs = clean + dirty
        with_rows = [entry.value for entry in dirty if not entry.value.is_gap]
        if not with_rows:
            return CleanStep()
        size, of_all = _file_bytes(dirty), _file_bytes(inputs)
        oldest_ms = min(entry.min_timestamp for entry in with_rows)
        too_old = oldest_ms < self.now_ms - self.settings.max_compaction_lag_ms
        if not (everything or too_old or size > self.settings.dirty_ratio * of_all):
            return CleanStep()
        if self.by_day or len(inputs) > most_inputs or _raw_bytes(inputs) > self.most_raw_bytes:
            return CleanStep(dirty, collects_keys=True)
        return CleanStep(inputs, self.cleaning(from_start=True))

    def _next_of_round(
        self, live: Entries, round_: CleaningRound, most_inputs: int, target_bytes: int
    ) -> Entries:
        """The next files of a round: as many small ones as make a file, and one in any case. One that is
        emptied goes with the file behind it, of whatever day, since nothing of it is left then. A gap goes
        with the files beside it: there is nothing to be written of it alone."""
        taken: Entries = []
        last: IndexEntry | None = None  # of those with rows
        size = 0
        for entry in live:
            value = entry.value
            if value.end <= round_.reached:
                continue
            follows = not taken or taken[-1].value.end == value.start
            if not value.is_parquet or not follows:
                break
            size += value.file_size
            if last is not None and not (round_.emptied and len(taken) == 1):
                ends = value.start >= round_.end or size > target_bytes
                ends = ends or (self.by_day and _day(value) != _day(last))
                if len(taken) >= most_inputs or (ends and not value.is_gap):
                    break
            taken.append(entry)
            last = last if value.is_gap else value
        return [] if last is None else taken

    def comes_first(self, step: CleanStep, planned: Entries) -> bool:
        """Is the step taken, or what is planned otherwise? New files come before bottom merges, unless so
        many files are dirty that they would go on growing in number; new files, and merges above it, before
        the steps of a round, which takes its time."""
        if not step.inputs:
            return False
        if not planned:
            return True
        if self.cleaned.round is not None or step.collects_keys:
            end = 0 if self.cleaned.round is None else self.cleaned.round.end
            return planned[0].value.is_parquet and planned[0].value.start < max(
                end, step.inputs[-1].value.end
            )
        dirty = sum(entry.value.end > self.cleaned.end for entry in step.inputs)
        return planned[0].value.is_parquet or dirty >= _MANY_DIRTY_FILES

    def _parts(self, live: Entries) -> tuple[Entries, Entries]:
        """The files that may be cleaned: those below the last clean point, and those above."""
        clean: Entries = []
        dirty: Entries = []
        reached: int | None = None
        for entry in live:
            value = entry.value
            if not value.is_parquet or not self._is_old_enough(value):
                break
            if reached is not None and value.start != reached:
                break
            reached = value.end
            (clean if value.end <= self.cleaned.end else dirty).append(entry)
        return clean, dirty


def _day(entry: IndexEntry) -> int:
    return entry.min_timestamp // DAY_MS


def _newest_ms(entry: IndexEntry) -> int:
    return entry.max_timestamp if entry.max_timestamp != NO_TIMESTAMP else entry.created_ms


def _file_bytes(entries: Entries) -> int:
    return sum(entry.value.file_size for entry in entries)


def _raw_bytes(entries: Entries) -> int:
    return sum(group.raw_bytes for entry in entries for group in entry.value.row_groups())
