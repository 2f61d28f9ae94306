"""Which segments make a partition: pure, from what was found of them.

Brokers of several epochs may have copied the same offsets, and one that was deposed may have copied what no
later leader had. At each offset only a segment of the epoch that the newest leader's checkpoint names for it
counts. Of those that do, the one that reaches furthest is taken, and the next begins where it ends. Offsets
that are in no segment are a gap. Offsets of which two segments say different things are ambiguous. Both are
refused: a log that was put together wrongly once is wrong for ever.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dray.migration.attach.found import FoundSegment, PartitionRefused
from dray.migration.formats.kafka_files import AbortedTransaction, EpochStart

_LAST: Final = 2**63 - 1


class ChosenSegment(NamedTuple):
    """Offsets `start` up to `end` come from this segment, which may hold more."""

    segment: FoundSegment
    start: int
    end: int
    aborted: tuple[AbortedTransaction, ...]
    """All that reach into these offsets, wherever they end."""


@dataclass(frozen=True, slots=True)
class PartitionLineage:
    start: int
    end: int
    epoch: int
    """The newest leader's; -1 where there were none."""
    chosen: tuple[ChosenSegment, ...]
    left_out: tuple[str, ...] = field(default=())
    """The objects that no offset comes from."""

    @property
    def last_epoch(self) -> int:
        """That of the leader who wrote the last offset; -1 where there is none, or it is not known."""
        epochs = self.chosen[-1].segment.epochs if self.chosen else ()
        return max((each.epoch for each in epochs if each.offset < self.end), default=-1)


class _Range(NamedTuple):
    start: int
    end: int
    segment: FoundSegment


def newest_epochs(found: Sequence[FoundSegment]) -> tuple[EpochStart, ...]:
    """The checkpoint of the newest leader that copied anything."""
    known = [each for each in found if each.epochs]
    if not known:
        return ()
    return max(known, key=lambda each: (each.epochs[-1].epoch, each.end, each.segment_id.int)).epochs


def choose(partition: int, found: Sequence[FoundSegment]) -> PartitionLineage:
    """Raises `PartitionRefused`."""
    epochs = newest_epochs(found)
    ranges: list[_Range] = []
    for each in found:
        if epochs and not each.epochs:
            raise PartitionRefused(partition, f"{each.path}: nothing says of which leader's epoch it is")
        usable = _usable(each, epochs) if epochs else [(each.start, each.end)]
        ranges += [_Range(start, end, each) for start, end in usable]
    ranges.sort(key=lambda each: (each.start, -each.end, each.segment.segment_id.int))
    covering = _covering(partition, ranges, ordered=bool(epochs))
    if not covering:
        raise PartitionRefused(partition, "no segment of the newest leader's epochs was found")
    chosen = _with_aborted(covering)
    used = {each.segment.segment_id for each in covering}
    return PartitionLineage(
        start=covering[0].start,
        end=covering[-1].end,
        epoch=epochs[-1].epoch if epochs else -1,
        chosen=chosen,
        left_out=tuple(sorted(each.path for each in found if each.segment_id not in used)),
    )


def _usable(segment: FoundSegment, epochs: Sequence[EpochStart]) -> list[tuple[int, int]]:
    """The offsets of the segment whose epoch is the one that `epochs` has for them. Offsets below the first
    of `epochs` are below the log's start."""
    wanted = dict(_spans(epochs))
    usable: list[tuple[int, int]] = []
    for epoch, (start, end) in _spans(segment.epochs):
        of_lineage = wanted.get(epoch)
        if of_lineage is None:
            continue
        low = max(start, of_lineage[0], segment.start)
        high = min(end, of_lineage[1], segment.end)
        if low >= high:
            continue
        if usable and usable[-1][1] == low:
            usable[-1] = (usable[-1][0], high)
        else:
            usable.append((low, high))
    return usable


def _spans(epochs: Sequence[EpochStart]) -> list[tuple[int, tuple[int, int]]]:
    ends = [each.offset for each in epochs[1:]] + [_LAST]
    return [(each.epoch, (each.offset, end)) for each, end in zip(epochs, ends, strict=True)]


def _covering(partition: int, ranges: Sequence[_Range], *, ordered: bool) -> list[_Range]:
    """Ranges that adjoin, the furthest-reaching first. `ranges` are sorted by their start."""
    covering: list[_Range] = []
    reached = ranges[0].start if ranges else 0
    following = 0
    best: _Range | None = None
    while following < len(ranges) or best is not None:
        while following < len(ranges) and ranges[following].start <= reached:
            candidate = ranges[following]
            following += 1
            if candidate.end <= reached:
                _refuse_overlap(partition, candidate, covering, ordered=ordered)
            elif best is None or candidate.end > best.end:
                if best is not None and not ordered:
                    raise _ambiguous(partition, best, candidate)
                best = candidate
            elif not ordered or _differ(best, candidate):
                raise _ambiguous(partition, best, candidate)
        if best is None or best.end <= reached:
            if following == len(ranges):
                break
            raise PartitionRefused(
                partition,
                f"offsets {reached} to {ranges[following].start - 1} are in no segment: what was found ends "
                f"before them with {covering[-1].segment.path}, and goes on with "
                f"{ranges[following].segment.path}",
            )
        if best.start < reached and not ordered:
            raise _ambiguous(partition, covering[-1], best)
        covering.append(_Range(reached, best.end, best.segment))
        reached = best.end
        best = None
    return covering


def _refuse_overlap(partition: int, candidate: _Range, covering: list[_Range], *, ordered: bool) -> None:
    """A range that is covered already is passed over, if epochs say that both hold the same."""
    if not covering:
        return
    covered = covering[bisect_right(covering, candidate.start, key=lambda each: each.start) - 1]
    if not ordered or _differ(covered, candidate):
        raise _ambiguous(partition, covered, candidate)


def _differ(first: _Range, second: _Range) -> bool:
    """Two copies of one segment have one size. Segments of other bounds cannot be compared so, and need
    not: of one epoch at each offset, they hold the same batches."""
    one, other = first.segment, second.segment
    same_bounds = (one.start, one.end) == (other.start, other.end)
    return same_bounds and one.segment_size != other.segment_size


def _ambiguous(partition: int, first: _Range, second: _Range) -> PartitionRefused:
    start, end = max(first.start, second.start), min(first.end, second.end)
    return PartitionRefused(
        partition,
        f"offsets {start} to {end - 1} are in {first.segment.path} and in {second.segment.path}, and "
        "nothing says "
        "which of them counts",
    )


def _with_aborted(covering: Sequence[_Range]) -> tuple[ChosenSegment, ...]:
    """Kafka lists an aborted transaction where its end is. Each piece gets those that reach into it."""
    ends = [each.end for each in covering]
    listed: list[list[AbortedTransaction]] = [[] for _ in covering]
    for each in covering:
        for row in each.segment.aborted:
            if not each.start <= row.last_offset < each.end:
                continue  # of the part that another segment is taken for
            first = bisect_right(ends, row.first_offset)
            last = bisect_right(ends, row.last_offset)
            for piece in range(first, last + 1):
                listed[piece].append(row)
    return tuple(
        ChosenSegment(
            each.segment, each.start, each.end, tuple(sorted(rows, key=lambda row: row.first_offset))
        )
        for each, rows in zip(covering, listed, strict=True)
    )
