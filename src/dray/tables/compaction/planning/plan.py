"""The plan for a stream: a pure function of one snapshot of it, the clock, and the settings.

A unit is a run of adjoining live entries below the head, all WAL objects, all Parquet files or all outside
objects, from the oldest on. Nothing is decided here about other streams, so tiny ones simply come many to a
cycle.

Of a stretch of outside objects there may be no record left: only markers, and transactions that were aborted.
No file is empty, so it cannot become one alone. That nothing is left is known only once a unit
was read, so the planner remembers it, and joins the stretch with what follows it, of whatever kind and day;
where nothing follows, with the file before it. The joined unit is read and checked whole: the memory only
says what to read together, and a compactor that has lost it finds out again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final, NamedTuple

from dray.base.runtime import DAY_MS
from dray.log.entries import IndexEntry
from dray.log.jobs.machine import Cleaning
from dray.log.stream_store import StreamView, Versioned
from dray.tables.compaction.planning.clean_plan import CleaningRules
from dray.tables.compaction.settings import CompactionSettings

# --- empty stretches

Entries = list[Versioned[IndexEntry]]


class EmptyStretch(NamedTuple):
    """Offsets of a unit that had no record."""

    start: int
    end: int


class LiveParts(NamedTuple):
    before: Entries
    empty: Entries
    after: Entries

    @property
    def rest(self) -> Entries:
        """Without what is empty: there is a gap in its place."""
        return self.before + self.after


def parted(live: Entries, stretch: EmptyStretch | None) -> LiveParts:
    if stretch is None:
        return LiveParts(live, [], [])
    places = [
        place
        for place, entry in enumerate(live)
        if entry.value.is_outside and stretch.start < entry.value.end <= stretch.end
    ]
    if not places:
        return LiveParts(live, [], [])
    first, following = places[0], places[-1] + 1
    return LiveParts(live[:first], live[first:following], live[following:])


def join(
    parts: LiveParts,
    run: Entries,
    is_due: Callable[[Entries], bool],
    cut: Callable[[Entries, int], Entries],
) -> Entries:
    """The inputs of one unit, or none as long as there is nothing to join with. `run`: the first of what is
    behind the stretch. `cut`: as many of it as make a file, beside so many entries. A run that was produced
    here waits until it is due, as it would alone."""
    empty = parts.empty
    if run and run[0].value.start == empty[-1].value.end:
        if run[0].value.lists_batches and not is_due(run):
            return []
        return empty + cut(run, len(empty))
    before = parts.before[-1:]
    if before and before[0].value.is_parquet and before[0].value.end == empty[0].value.start:
        return before + empty
    return []


# --- units

MOST_AHEAD: Final = 31
"""Units of one stream that are written together with that of its job, at most. `cycle_bytes` bounds them,
too."""


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """The next steps for a stream, in the order in which they are done."""

    dead: Entries = field(default_factory=list)  # covered or expired: late writes brought them back
    seal: bool = False  # the head is old (or all is wanted): file it, then plan again
    inputs: Entries = field(default_factory=list)  # what becomes one file; empty for nothing
    more: bool = False  # there is more to do as soon as that is done
    trims: bool = False  # the one input is a file of which the first records were deleted
    refused: str | None = None  # why the stream cannot be compacted
    start: int = 0  # the stream's, as it was seen: what lies below it goes into no file
    cleaning: Cleaning | None = None  # the inputs are compacted by key
    waits: bool = False  # time alone may make a bottom merge due
    collects_keys: bool = False  # of the inputs no file is made, but an object with their keys
    following: Sequence[Entries] = ()  # what adjoins the inputs and becomes further files: see `ahead.py`

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to do until the stream changes or something in it comes of age."""
        return not (self.dead or self.seal or self.inputs or self.refused)


def plan_stream(
    view: StreamView,
    now_ms: int,
    settings: CompactionSettings,
    *,
    everything: bool = False,
    by_day: bool = False,
    most_inputs: int | None = None,
    settled_files: int = 0,
    trim: bool = False,
    rules: CleaningRules | None = None,
    empty: EmptyStretch | None = None,
    merges: bool = True,
) -> StreamPlan:
    """`by_day`: no file may hold records of two days (UTC), since its table is partitioned by them.
    `settled_files`: how many lie below the view, where only the end of the index was read (`settled`).
    `trim`: a file that reaches below the start is written again from there on, before anything else, since
    its table shows what was deleted. `rules`: the topic is compacted by key. `empty`: where a unit was found
    to have no record. `merges`: files may become one."""
    plan = _plan(view, now_ms, settings, everything, by_day, most_inputs, settled_files, trim, empty, merges)
    if rules is None or plan.trims or plan.refused is not None:
        return plan
    live = view.split()[0]
    most = settings.max_inputs if most_inputs is None else min(most_inputs, settings.max_inputs)
    step = rules.next_step(live, most, settings.target_file_bytes, everything=everything)
    if rules.comes_first(step, plan.inputs):
        return replace(
            plan, inputs=step.inputs, more=True, cleaning=step.cleaning, collects_keys=step.collects_keys
        )
    cleans = bool(plan.inputs) and rules.may_clean(plan.inputs)
    return replace(
        plan,
        cleaning=rules.cleaning(from_start=False) if cleans else None,
        waits=rules.waits(live),
        following=(),
    )


def _plan(
    view: StreamView,
    now_ms: int,
    settings: CompactionSettings,
    everything: bool,
    by_day: bool,
    most_inputs: int | None,
    settled_files: int,
    trim: bool,
    empty: EmptyStretch | None,
    merges: bool,
) -> StreamPlan:
    live, dead = view.split()
    parts = parted(live, empty)
    head = view.high_watermark.value.head
    seal = head is not None and (everything or now_ms - head.created_ms >= settings.wal_max_age_ms)
    most = settings.max_inputs if most_inputs is None else min(most_inputs, settings.max_inputs)
    cut = _to_trim(live, view.start) if trim else []
    if cut and not (by_day and _spanning(cut)):
        return StreamPlan(dead, seal, cut, more=True, trims=True)
    if by_day and (spanning := _spanning(parts.rest)) is not None:
        reason = (
            f"{spanning.path}: its records from offset {spanning.start} on are of two days, and the table is "
            "partitioned by day"
        )
        return StreamPlan(dead, refused=reason)
    if parts.empty:
        plan = _join(parts, now_ms, settings, everything, by_day, most)
        if plan.inputs or plan.refused:
            return replace(plan, dead=dead, seal=seal)
    runs = _runs(parts.rest, by_day)
    merge = _merge(runs, settings, most, settled_files) if merges else []
    if merge and sum(map(len, _small_groups(runs, settings))) > 2 * settings.parquet_max_files:
        return StreamPlan(dead, seal, merge, more=True)
    for run in runs:
        if not run[0].value.is_parquet and (everything or _due(run, now_ms, settings, most)):
            inputs = _cut(run, settings.target_file_bytes, most)
            rest = run[len(inputs) :]
            following = _following(
                rest, lambda run: everything or _due(run, now_ms, settings, most), settings, most
            )
            more = everything or bool(following)
            return StreamPlan(dead, seal, inputs, more, following=following)
    return StreamPlan(dead, seal, merge, more=bool(merge))


def _following(
    rest: Entries, is_due: Callable[[Entries], bool], settings: CompactionSettings, most: int
) -> list[Entries]:
    found: list[Entries] = []
    while rest and len(found) < MOST_AHEAD and is_due(rest):
        found.append(_cut(rest, settings.target_file_bytes, most))
        rest = rest[len(found[-1]) :]
    return found


def _join(
    parts: LiveParts, now_ms: int, settings: CompactionSettings, everything: bool, by_day: bool, most: int
) -> StreamPlan:
    """A unit of empty segments, with the entries beside them. A stretch that went on being empty grows by its
    own size, so that a long one is not read once for each of its segments."""
    if len(parts.empty) >= most:
        first = parts.empty[0].value
        reason = (
            f"{first.path}: no record is left in {len(parts.empty)} segments from offset {first.start} on"
        )
        return StreamPlan(refused=reason)
    target = max(settings.target_file_bytes, _size(parts.empty))
    runs = _runs(parts.after, by_day)
    inputs = join(
        parts,
        runs[0] if runs else [],
        lambda run: everything or _due(run, now_ms, settings, most),
        lambda run, taken: _cut(run, target, most - taken),
    )
    return StreamPlan(inputs=inputs, more=bool(inputs))


def reaches_below(live: Entries, start: int) -> bool:
    """Is the oldest live entry a file whose first records were deleted? Only DeleteRecords cuts into an
    entry: what expires, expires as a whole."""
    return bool(live) and live[0].value.is_parquet and live[0].value.start < start


def _to_trim(live: Entries, start: int) -> Entries:
    """The oldest file, if its first records were deleted. If all of them were and only the offsets behind
    them are left, it is written together with the file that follows; without one it stays as it is."""
    if not reaches_below(live, start):
        return []
    for count, entry in enumerate(live, 1):
        if not entry.value.is_parquet:
            break
        if entry.value.last_record >= start:
            return live[:count]
    return []


def settled(live: Entries, settings: CompactionSettings, *, by_day: bool) -> Entries:
    """The oldest entries that no plan will ever touch again: files that are large, or have no small one
    beside them. A small one at the end is not among them: another may come to stand beside it."""
    taken: Entries = []
    for run in _runs(live, by_day):
        groups = [list(group) for _, group in groupby(run, lambda entry: _is_small(entry, settings))]
        for files in groups:
            if not files[0].value.is_parquet or (_is_small(files[0], settings) and len(files) > 1):
                return _without_small_end(taken, settings)
            taken += files
    return _without_small_end(taken, settings)


def _without_small_end(files: Entries, settings: CompactionSettings) -> Entries:
    return files[:-1] if files and _is_small(files[-1], settings) else files


def due_ms(view: StreamView, settings: CompactionSettings) -> int | None:
    """When the stream must be looked at because of the age of its records, even if nothing changes. None:
    never."""
    created = [entry.value.created_ms for entry in view.split()[0] if not entry.value.is_parquet]
    if view.high_watermark.value.head is not None:
        created.append(view.high_watermark.value.head.created_ms)
    return min(created) + settings.wal_max_age_ms if created else None


def size_of(entry: IndexEntry) -> int:
    """Bytes that have to be read to compact the entry."""
    return entry.stored_bytes


def day_of(timestamp_ms: int) -> int:
    return timestamp_ms // DAY_MS


def _spanning(live: Entries) -> IndexEntry | None:
    for entry in live:
        if day_of(entry.value.min_timestamp) != day_of(entry.value.max_timestamp):
            return entry.value
    return None


def _runs(live: Entries, by_day: bool) -> list[Entries]:
    """Adjoining entries of one kind (and of one day)."""
    gap = 0
    numbered: list[tuple[int, Versioned[IndexEntry]]] = []
    reached: int | None = None
    for entry in live:
        gap += reached is not None and entry.value.start != reached
        reached = entry.value.end
        numbered.append((gap, entry))

    def belongs(item: tuple[int, Versioned[IndexEntry]]) -> tuple[int, bool, bool, int]:
        value = item[1].value
        return item[0], value.is_parquet, value.is_outside, day_of(value.min_timestamp) if by_day else 0

    return [[entry for _, entry in group] for _, group in groupby(numbered, belongs)]


def _due(run: Entries, now_ms: int, settings: CompactionSettings, most: int) -> bool:
    return (
        now_ms - run[0].value.created_ms >= settings.wal_max_age_ms
        or len(run) >= min(settings.wal_max_entries, most)
        or _size(run) >= min(settings.wal_max_bytes, settings.target_file_bytes)
    )


def _cut(run: Sequence[Versioned[IndexEntry]], target: int, most: int) -> Entries:
    """As many from the front as make a file of at most `target`, and one in any case."""
    taken: Entries = []
    size = 0
    for entry in run[:most]:
        size += size_of(entry.value)
        if taken and size > target:
            break
        taken.append(entry)
    return taken


def _is_small(entry: Versioned[IndexEntry], settings: CompactionSettings) -> bool:
    """A gap is not: nothing of it is left to merge."""
    value = entry.value
    return value.is_parquet and not value.is_gap and value.file_size < settings.target_file_bytes // 2


def _small_groups(runs: list[Entries], settings: CompactionSettings) -> list[Entries]:
    """Small files that adjoin each other, and could be one."""
    groups = [
        list(group)
        for run in runs
        for small, group in groupby(run, lambda entry: _is_small(entry, settings))
        if small
    ]
    return [group for group in groups if len(group) > 1]


def _merge(runs: list[Entries], settings: CompactionSettings, most: int, settled_files: int) -> Entries:
    """The adjoining small files whose merging leaves the fewest, if there are too many at all."""
    files = sum(len(run) for run in runs if run[0].value.is_parquet)
    if settled_files + files <= settings.parquet_max_files:
        return []
    best: Entries = []
    for group in _small_groups(runs, settings):
        left = group
        while len(left) > 1:
            taken = _cut(left, settings.target_file_bytes, most)
            if len(taken) > max(1, len(best)):
                best = taken
            left = left[len(taken) :]
    return best


def _size(run: Entries) -> int:
    return sum(size_of(entry.value) for entry in run)
