"""Offsets to read: pure arithmetic, so that a batch that is planned again is the same batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

UNBOUNDED = 2**63 - 1


@dataclass(frozen=True)
class Range:
    """The records of a partition from `start` to before `end`."""

    partition: int
    start: int
    end: int

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


@dataclass(frozen=True)
class PartitionOffsets:
    """What the filters of a query leave to read; they are checked again by Spark, so only what certainly
    holds is taken from them."""

    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = UNBOUNDED

    def only(self, partitions: Iterable[int]) -> PartitionOffsets:
        wanted = frozenset(partitions)
        return replace(self, partitions=wanted if self.partitions is None else self.partitions & wanted)

    def within(self, first: int, end: int) -> PartitionOffsets:
        return replace(self, first_offset=max(self.first_offset, first), end_offset=min(self.end_offset, end))

    def applied(self, ranges: Iterable[Range]) -> list[Range]:
        narrowed = [
            Range(each.partition, max(each.start, self.first_offset), min(each.end, self.end_offset))
            for each in ranges
            if self.partitions is None or each.partition in self.partitions
        ]
        return [each for each in narrowed if not each.is_empty]


def split(ranges: Iterable[Range], records: int) -> list[Range]:
    """Pieces of no more than so many records, one task each."""
    return [
        Range(each.partition, start, min(start + records, each.end))
        for each in ranges
        for start in range(each.start, each.end, records)
    ]


def between(start: Mapping[int, int], end: Mapping[int, int]) -> list[Range]:
    """A partition that is new in `end` is read from its beginning."""
    ranges = [Range(partition, start.get(partition, 0), stop) for partition, stop in sorted(end.items())]
    return [each for each in ranges if not each.is_empty]


def limited(start: Mapping[int, int], end: Mapping[int, int], most: int) -> dict[int, int]:
    """The end of a batch of no more than `most` offsets, each partition getting its share of them, and at
    least one if it has any."""
    waiting = {partition: stop - start.get(partition, 0) for partition, stop in end.items()}
    total = sum(max(count, 0) for count in waiting.values())
    if total <= most:
        return dict(end)
    return {
        partition: start.get(partition, 0) + (max(1, most * count // total) if count > 0 else 0)
        for partition, count in waiting.items()
    }


@dataclass(frozen=True)
class Offset:
    """As Spark keeps it in a checkpoint. The topic's id is in it: offsets mean nothing in another topic of
    the same name.

    Spark stores where a batch ends before it is read, but not where the first batch began: it asks for that
    again. So the end of a batch also holds where the stream began (`began`), if that cannot be found out
    again. An offset that only answers Spark's question is marked (`initial`).
    """

    topic_id: str
    offsets: Mapping[int, int]
    began: Mapping[int, int] | None = None
    initial: bool = False

    def to_json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"topic_id": self.topic_id, "offsets": _to_names(self.offsets)}
        if self.began is not None:
            found["began"] = _to_names(self.began)
        if self.initial:
            found["initial"] = True
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Offset:
        began = found.get("began")
        return cls(
            str(found["topic_id"]),
            _from_names(found["offsets"]),
            None if began is None else _from_names(began),
            bool(found.get("initial", False)),
        )


def _to_names(offsets: Mapping[int, int]) -> dict[str, int]:
    return {str(partition): offset for partition, offset in offsets.items()}


def _from_names(offsets: Mapping[str, Any]) -> dict[int, int]:
    return {int(name): int(value) for name, value in offsets.items()}
