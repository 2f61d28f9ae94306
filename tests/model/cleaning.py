"""Compaction by key in the model: what jobs drop, clean points, cleaning rounds, and the oracle of them.

Keys, values and tombstones follow from the records. Time is the number of steps. As in the code, a merge
drops what it holds a later record of; a bottom merge or the last file of a round makes a clean point; and
tombstones go by clean points that are old enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tests.model.store import Key, Put, Violation

if TYPE_CHECKING:
    from tests.model.jobs import Found
    from tests.model.world import Entry, Job, ObjectName, Record, Steps, World

RETENTION_STEPS = 250


class Thinned(dict[int, Any]):
    """The content of a file of which records may be missing."""


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How a job compacts by key."""

    below: int  # tombstones below this offset may go
    from_start: bool = False
    keys: ObjectName | None = None
    after: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    keys: ObjectName
    end: int
    reached: int = 0
    emptied: bool = False


@dataclass(frozen=True, slots=True)
class Cleaned:
    points: tuple[tuple[int, int], ...] = ()  # (end, since)
    round: Round | None = None

    @property
    def end(self) -> int:
        return self.points[-1][0] if self.points else 0

    def moved(self, end: int, now: int) -> Cleaned:
        if end <= self.end:
            return self
        left = self.round if self.round is not None and self.round.end > end else None
        return Cleaned((*self.points, (end, now)), left)


def key_of(record: Record) -> int:
    return (record.sequence * 5 + record.place * 3 + len(record.producer or "")) % 6


def is_tombstone(record: Record) -> bool:
    return (record.sequence + record.place) % 3 == 0


def _below(world: World, cleaned: Cleaned) -> int:
    if "clean-tombstone" in world.without:
        return 1 << 40
    age = 0 if "clean-young" in world.without else RETENTION_STEPS
    return max((end for end, since in cleaned.points if since + age <= world.now), default=0)


# --- jobs


def plan(
    world: World, stream: int, live: list[Found], start: int
) -> Steps[tuple[list[Found], Cleaning] | None]:
    """What a job would clean, or nothing; perhaps the keys of a round are collected. Clean points are read
    after the job, as the index is."""
    cleaned: Cleaned
    cleaned, version = world.store.get("cleaned", stream)
    yield
    below = _below(world, cleaned)
    found = cleaned.round
    if found is not None and world.chance(0.6):
        files = [each for each in live if each[0] > found.reached][: 2 if found.emptied else 1]
        if not files or any(entry.has_detail for _, entry, _ in files):
            return None
        return files, Cleaning(below, keys=found.keys, after=found.reached)
    files = []
    for each in live:
        if each[1].has_detail:
            break
        files.append(each)
    new = live[len(files) : len(files) + 1]
    if new and world.chance(0.6):
        return new, Cleaning(below)  # a file of its own: rounds go over many
    dirty = [each for each in files if each[0] > cleaned.end]
    if found is None and dirty and files[0][1].low <= start and world.chance(0.5):
        if world.chance(0.3):
            return files, Cleaning(below, from_start=True)
        yield from _collect_keys(
            world, stream, dirty[: world.random.randint(1, len(dirty))], cleaned, version
        )
        return None
    first = world.random.randrange(len(live)) if live else 0
    some = live[first : first + 3]
    return (some, Cleaning(below)) if len(some) >= 2 and world.chance(0.3) else None


def _collect_keys(
    world: World, stream: int, dirty: list[Found], cleaned: Cleaned, version: int
) -> Steps[None]:
    last: dict[int, int] = {}
    for _, entry, _ in dirty:
        content = world.content(stream, entry)
        if content is None:
            return
        for offset, record in content.items():
            last[key_of(record)] = max(offset, last.get(key_of(record), -1))
        if world.chance(0.3):
            yield
    job: Job = world.store.get("job", stream).value
    name = world.new_keys(stream, job.number)
    written = world.upload(name, last)
    yield
    if written:
        world.counts["rounds"] += 1
        begun = replace(cleaned, round=Round(name, dirty[-1][0]))
        world.send([Put(Key("cleaned", 0, stream), begun, version)])
        yield


def filtered(world: World, job: Job, content: dict[int, Record]) -> tuple[Thinned, bool] | None:
    """What the file holds, and whether that is one record which is superseded. None: the keys are gone."""
    how = job.cleaning
    assert how is not None
    last: dict[int, int] = {}
    for offset in sorted(content):
        last[key_of(content[offset])] = offset
    if how.keys is not None:
        found = world.objects.get(how.keys)
        if found is None:
            return None
        last = found
    superseded = {offset for offset, record in content.items() if last.get(key_of(record), -1) > offset}
    gone = superseded | {offset for offset in content if is_tombstone(content[offset]) and offset < how.below}
    end = max(content)
    kept = Thinned({offset: record for offset, record in content.items() if offset not in gone})
    if how.keys is None:
        kept[end] = content[end]
        return kept, False
    emptied = not kept and end in superseded
    if not kept:
        kept[end] = content[end]
    return kept, emptied and "round-emptied" not in world.without


def note(world: World, stream: int, job: Job) -> Steps[bool]:
    """True once what the job's file is good for is stored."""
    how = job.cleaning
    if how is None:
        return True
    cleaned: Cleaned
    cleaned, version = world.store.get("cleaned", stream)
    moved = cleaned
    if how.from_start or "clean-not-start" in world.without:
        moved = cleaned.moved(job.high, world.now)
    elif how.keys is not None:
        moved = _advanced(world, cleaned, how, job)
    if moved == cleaned:
        return True
    yield
    world.send([Put(Key("cleaned", 0, stream), moved, version)])
    yield
    return False


def _advanced(world: World, cleaned: Cleaned, how: Cleaning, job: Job) -> Cleaned:
    found = cleaned.round
    if found is None or found.keys != how.keys or how.after > found.reached or job.high <= found.reached:
        return cleaned
    if job.emptied:
        return replace(cleaned, round=replace(found, emptied=True))
    if job.high < found.end and "round-first" not in world.without:
        return replace(cleaned, round=replace(found, reached=job.high, emptied=False))
    world.counts["rounds over"] += 1
    return replace(cleaned.moved(found.end, world.now), round=None)


def end_round(world: World, stream: int, keys: ObjectName | None) -> Steps[None]:
    cleaned: Cleaned
    cleaned, version = world.store.get("cleaned", stream)
    yield
    if keys is not None and cleaned.round is not None and cleaned.round.keys == keys:
        world.send([Put(Key("cleaned", 0, stream), replace(cleaned, round=None), version)])
        yield


# --- what is true


class CleaningOracle:
    def __init__(self, streams: int) -> None:
        self.gone: list[set[int]] = [set() for _ in range(streams)]
        self._alone_since: dict[tuple[int, int], int] = {}

    def judge(self, stream: int, start: int, records: dict[int, Record], found: set[int], now: int) -> None:
        """An entry was put: what is missing now may be missing."""
        gone = self.gone[stream]
        if found & gone:
            raise Violation("a record came back")
        last = {key_of(records[offset]): offset for offset in sorted(found)}
        for offset in sorted(set(records) - found - gone):
            if offset < start:
                continue
            gone.add(offset)
            if last.get(key_of(records[offset]), -1) > offset:
                continue
            if not is_tombstone(records[offset]):
                raise Violation("the last record of a key is gone")
            alone = self._alone_since.get((stream, offset))
            if alone is None:
                raise Violation("a tombstone is gone before what it deletes")
            if alone + RETENTION_STEPS > now:
                raise Violation("a tombstone is gone too early")
        seen: set[int] = set()
        for offset in sorted(found):
            key = key_of(records[offset])
            if is_tombstone(records[offset]) and key not in seen:
                self._alone_since.setdefault((stream, offset), now)
            seen.add(key)

    def clean_point(self, stream: int, end: int, records: dict[int, Record], start: int) -> None:
        there = [offset for offset in records if start <= offset < end and offset not in self.gone[stream]]
        if len({key_of(records[offset]) for offset in there}) < len(there):
            raise Violation("two records of a key below a clean point")


def offsets_in(entries: Iterable[tuple[Entry, Any]]) -> set[int]:
    """Of live entries with their content."""
    found: set[int] = set()
    for entry, content in entries:
        has_holes = isinstance(content, Thinned)
        found |= content.keys() if has_holes else set(range(entry.low, entry.high))
    return found
