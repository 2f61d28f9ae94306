"""When a stream is compacted by key, and what of it: a pure function of one snapshot, as `plan.py`.

What may be cleaned are files from the stream's start on, up to the first entry that is in the WAL, or too
young (`min.compaction.lag.ms`). Two kinds of merges do it. A *bottom merge* of all of them leaves one record
per key, and sets a clean point. It is due when the part above the last clean point is large enough
(`min.cleanable.dirty.ratio`) or old enough (`max.compaction.lag.ms`). Every other merge, also the first one
of WAL entries, drops what it holds twice on its way.

There are no transactions: the last stable offset is the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dray.log.cleaned import Cleaned
from dray.log.entries import NO_TIMESTAMP, IndexEntry
from dray.log.jobs import Cleaning
from dray.log.stream_store import Versioned
from dray.topics.settings import TopicSettings

# A merge holds the distinct keys in memory. Streams of more are cleaned by their ordinary merges only.
MOST_RAW_BYTES: Final = 3 << 29
_MANY_DIRTY_FILES: Final = 8

Entries = list[Versioned[IndexEntry]]


@dataclass(frozen=True, slots=True)
class CleaningRules:
    """What a topic and its stream's clean points say. `now_ms` is the clock that deletions go by."""

    settings: TopicSettings
    cleaned: Cleaned
    now_ms: int
    most_raw_bytes: int = MOST_RAW_BYTES

    def may_clean(self, entries: Sequence[Versioned[IndexEntry]]) -> bool:
        """Are all of these old enough?"""
        return all(self._is_old_enough(entry.value) for entry in entries)

    def _is_old_enough(self, entry: IndexEntry) -> bool:
        lag = self.settings.min_compaction_lag_ms
        return lag == 0 or _newest_ms(entry) <= self.now_ms - lag

    def cleaning(self, *, from_start: bool) -> Cleaning:
        retention_ms = self.settings.delete_retention_ms
        below = self.cleaned.tombstones_below(self.now_ms, retention_ms)
        return Cleaning(below, retention_ms, from_start)

    def waits(self, live: Entries) -> bool:
        """May a bottom merge become due by the passing of time alone?"""
        dirty = self._parts(live)[1]
        limited = self.settings.min_compaction_lag_ms > 0 or self.settings.max_compaction_lag_ms < 2**62
        return bool(dirty or any(entry.value.end > self.cleaned.end for entry in live)) and limited

    def bottom(self, live: Entries, most_inputs: int, *, everything: bool) -> Entries:
        """The files of a bottom merge that is due; none if none is. `everything`: due as soon as there is
        anything to clean."""
        clean, dirty = self._parts(live)
        inputs = clean + dirty
        if not dirty or len(inputs) > most_inputs or _raw_bytes(inputs) > self.most_raw_bytes:
            return []
        size, of_all = _file_bytes(dirty), _file_bytes(inputs)
        oldest_ms = min(entry.value.min_timestamp for entry in dirty)
        too_old = oldest_ms < self.now_ms - self.settings.max_compaction_lag_ms
        return inputs if everything or too_old or size > self.settings.dirty_ratio * of_all else []

    def is_urgent(self, inputs: Entries) -> bool:
        """Are there so many dirty files that a bottom merge comes before new ones?"""
        return sum(entry.value.end > self.cleaned.end for entry in inputs) >= _MANY_DIRTY_FILES

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


def _newest_ms(entry: IndexEntry) -> int:
    return entry.max_timestamp if entry.max_timestamp != NO_TIMESTAMP else entry.created_ms


def _file_bytes(entries: Entries) -> int:
    return sum(entry.value.file_size for entry in entries)


def _raw_bytes(entries: Entries) -> int:
    return sum(group.raw_bytes for entry in entries for group in entry.value.row_groups())
