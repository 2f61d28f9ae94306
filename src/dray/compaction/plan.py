"""What to compact in a stream: a pure function of one snapshot of it, the clock, and the settings.

A unit is a run of adjoining live entries below the head, all WAL objects, all Parquet files or all foreign
segments, from the oldest on. Nothing is decided here about other streams, so tiny ones simply come many to a
cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from dray.compaction.clean_plan import DAY_MS, CleaningRules
from dray.compaction.empty_stretches import EmptyStretch, LiveParts, join, parted
from dray.compaction.settings import CompactionSettings
from dray.log.entries import IndexEntry
from dray.log.jobs import Cleaning
from dray.log.stream_store import StreamView, Versioned

Entries = list[Versioned[IndexEntry]]


@dataclass(frozen=True, slots=True)
class StreamPlan:
    """What a stream needs, in the order in which it is done."""

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
) -> StreamPlan:
    """`by_day`: no file may hold records of two days (UTC), since its table is partitioned by them.
    `settled_files`: how many lie below the view, where only the end of the index was read (`settled`).
    `trim`: a file that reaches below the start is written again from there on, before anything else, since
    its table shows what was deleted. `rules`: the topic is compacted by key. `empty`: where a unit was found
    to have no record."""
    plan = _plan(view, now_ms, settings, everything, by_day, most_inputs, settled_files, trim, empty)
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
        plan, cleaning=rules.cleaning(from_start=False) if cleans else None, waits=rules.waits(live)
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
    merge = _merge(runs, settings, most, settled_files)
    if merge and sum(map(len, _small_groups(runs, settings))) > 2 * settings.parquet_max_files:
        return StreamPlan(dead, seal, merge, more=True)
    for run in runs:
        if not run[0].value.is_parquet and (everything or _due(run, now_ms, settings, most)):
            inputs = _cut(run, settings.target_file_bytes, most)
            rest = run[len(inputs) :]
            more = everything or bool(rest and _due(rest, now_ms, settings, most))
            return StreamPlan(dead, seal, inputs, more)
    return StreamPlan(dead, seal, merge, more=bool(merge))


def _join(
    parts: LiveParts, now_ms: int, settings: CompactionSettings, everything: bool, by_day: bool, most: int
) -> StreamPlan:
    """What is empty, with what lies beside it. A stretch that went on being empty grows by its own size, so
    that a long one is not read once for each of its segments."""
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
        return item[0], value.is_parquet, value.is_foreign, day_of(value.min_timestamp) if by_day else 0

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
    return entry.value.is_parquet and entry.value.file_size < settings.target_file_bytes // 2


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
