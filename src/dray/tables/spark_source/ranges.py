"""Offsets to read: pure arithmetic, so that a batch that is planned again is the same batch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dray.kafka.client.cluster import Place

UNBOUNDED = 2**63 - 1


@dataclass(frozen=True)
class Range:
    """The records of a partition from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def is_empty(self) -> bool:
        return self.start >= self.end


@dataclass(frozen=True)
class PartitionOffsets:
    """The offsets that the filters of a query leave to read; Spark checks the filters again, so only what
    certainly holds is taken from them."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = UNBOUNDED

    def only(self, partitions: Iterable[int]) -> PartitionOffsets:
        wanted = frozenset(partitions)
        return replace(self, partitions=wanted if self.partitions is None else self.partitions & wanted)

    def named(self, topics: Iterable[str]) -> PartitionOffsets:
        wanted = frozenset(topics)
        return replace(self, topics=wanted if self.topics is None else self.topics & wanted)

    def within(self, first: int, end: int) -> PartitionOffsets:
        return replace(self, first_offset=max(self.first_offset, first), end_offset=min(self.end_offset, end))

    def applied(self, ranges: Iterable[Range]) -> list[Range]:
        narrowed = [
            Range(*each.place, max(each.start, self.first_offset), min(each.end, self.end_offset))
            for each in ranges
            if (self.partitions is None or each.partition in self.partitions)
            and (self.topics is None or each.topic in self.topics)
        ]
        return [each for each in narrowed if not each.is_empty]


def split(ranges: Iterable[Range], records: int) -> list[Range]:
    """Pieces of no more than so many records, one task each."""
    return [
        Range(*each.place, start, min(start + records, each.end))
        for each in ranges
        for start in range(each.start, each.end, records)
    ]


def between(start: Mapping[Place, int], end: Mapping[Place, int]) -> list[Range]:
    """A partition that is new in `end` is read from offset 0."""
    ranges = [Range(*place, start.get(place, 0), stop) for place, stop in sorted(end.items())]
    return [each for each in ranges if not each.is_empty]


def limited(start: Mapping[Place, int], end: Mapping[Place, int], most: int) -> dict[Place, int]:
    """The end of a batch of no more than `most` offsets, each partition getting its share of them, and at
    least one if it has any."""
    waiting = {place: stop - start.get(place, 0) for place, stop in end.items()}
    total = sum(max(count, 0) for count in waiting.values())
    if total <= most:
        return dict(end)
    return {
        place: start.get(place, 0) + (max(1, most * count // total) if count > 0 else 0)
        for place, count in waiting.items()
    }


@dataclass(frozen=True)
class Offset:
    """As Spark keeps it in a checkpoint: offsets in the shape that its Kafka source has, and the topics' ids,
    since offsets mean nothing in another topic of the same name.

    Spark stores where a batch ends before it is read, but not where the first batch began: it asks for that
    again. So the end of a batch also holds where partitions began (`began`) whose beginning cannot be found
    out again: all, if the stream began at what was the latest then, and those that came later. An offset
    that only answers Spark's question is marked (`initial`).
    """

    topic_ids: Mapping[str, str]
    offsets: Mapping[Place, int]
    began: Mapping[Place, int] = field(default_factory=dict)
    initial: bool = False
    behind: int = 0
    """How many offsets were left for later batches when this end was chosen. For people: it is in the
    progress, where Spark itself says nothing of sources in Python."""

    def to_json(self) -> dict[str, Any]:
        """Equal offsets have equal texts: by them, Spark knows that there is nothing new."""
        found: dict[str, Any] = {
            "topic_ids": dict(sorted(self.topic_ids.items())),
            "offsets": _to_names(self.offsets),
        }
        if self.began:
            found["began"] = _to_names(self.began)
        if self.initial:
            found["initial"] = True
        if self.behind:
            found["behind"] = self.behind
        return found

    @classmethod
    def from_json(cls, found: Mapping[str, Any], topic: str | None) -> Offset:
        """`topic` is what a checkpoint of the first form is of: it had one topic, and left its name out."""
        if "topic_id" in found:
            if topic is None:
                raise ValueError("the checkpoint is of a stream of one topic")
            found = {**found, "topic_ids": {topic: found["topic_id"]}}
            found |= {key: {topic: found[key]} for key in ("offsets", "began") if key in found}
        return cls(
            {str(name): str(topic_id) for name, topic_id in found["topic_ids"].items()},
            _from_names(found["offsets"]),
            _from_names(found.get("began", {})),
            bool(found.get("initial", False)),
            int(found.get("behind", 0)),
        )


def _to_names(offsets: Mapping[Place, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def _from_names(found: Mapping[str, Mapping[str, Any]]) -> dict[Place, int]:
    return {
        (topic, int(name)): int(value) for topic, offsets in found.items() for name, value in offsets.items()
    }


# --- errors


class SourceError(Exception):
    """The log cannot be read as asked. The message is one line that says what to do."""


class RecordsGone(SourceError):
    """Records that were to be read are no longer in the log."""
