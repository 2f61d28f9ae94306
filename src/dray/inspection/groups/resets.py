"""The place to which a reset takes a group: the new offset of each partition, before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from dray.kafka.client.admin import offsets_at
from dray.kafka.client.cluster import Cluster, Place
from dray.kafka.client.errors import RequestFailed, check
from dray.kafka.client.records import EARLIEST, LATEST

RESETTABLE: Final = "Empty"
"""The state of a group without live members."""


class ResetRefused(RequestFailed):
    """The reset cannot be done as asked."""


class ResetTarget(Enum):
    EARLIEST = "--to-earliest"
    LATEST = "--to-latest"
    CURRENT = "--to-current"
    OFFSET = "--to-offset"
    SHIFT = "--shift-by"
    TIME = "--to-datetime"
    AGO = "--by-duration"


Target: TypeAlias = tuple[ResetTarget, int]
"""The number is an offset, a distance, or a time in milliseconds; of no meaning for the others."""


@dataclass(frozen=True)
class ChosenPartitions:
    """A topic, and which of its partitions: None for all."""

    topic: str
    partitions: Sequence[int] | None


@dataclass(frozen=True)
class PartitionBounds:
    """The offsets that a partition has now, and the one of the time that was asked for."""

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True)
class OffsetMove:
    topic: str
    partition: int
    old: int | None
    new: int
    end: int
    note: str = ""


async def find_bounds(
    chosen: Sequence[ChosenPartitions] | None,
    committed: Mapping[Place, int],
    target: Target,
    cluster: Cluster,
) -> dict[Place, PartitionBounds]:
    """The bounds of the partitions that were chosen; None for all that have something committed, as far as
    their topics still exist."""
    names = sorted({topic for topic, _ in committed}) if chosen is None else [item.topic for item in chosen]
    metadata = await cluster.learn(names)
    aim, number = target
    starts = await offsets_at(cluster, names, EARLIEST)
    ends = await offsets_at(cluster, names, LATEST)
    times = await offsets_at(cluster, names, number) if aim in (ResetTarget.TIME, ResetTarget.AGO) else {}
    if chosen is None:
        wanted = [place for place in committed if place in starts and place in ends]
    else:
        for topic in metadata.topics:
            check(f"cannot look up topic {topic.name}", topic.error_code)
        wanted = _places(chosen, starts)
    for name, partition in wanted:
        if (name, partition) not in starts or (name, partition) not in ends:
            raise ResetRefused(
                f"cannot look up {name}-{partition}: there is no such partition, or nobody leads it"
            )
    return {place: PartitionBounds(starts[place], ends[place], times.get(place)) for place in wanted}


def _places(chosen: Sequence[ChosenPartitions], known: Mapping[Place, int]) -> list[Place]:
    places: list[Place] = []
    for item in chosen:
        if item.partitions is None:
            places += [place for place in known if place[0] == item.topic]
        else:
            places += [(item.topic, partition) for partition in item.partitions]
    return places


def plan_moves(
    target: Target, partitions: Mapping[Place, PartitionBounds], committed: Mapping[Place, int]
) -> list[OffsetMove]:
    """The new offset of every partition. One outside of what the partition holds is moved to its nearer end,
    as Kafka's own tool does."""
    moves = []
    for (topic, partition), bounds in sorted(partitions.items()):
        old = committed.get((topic, partition))
        if old is None and target[0] is ResetTarget.SHIFT:
            raise ResetRefused(
                f"--shift-by needs an offset to count from: {topic}-{partition} has none committed"
            )
        new, note = _aimed(target, bounds, old)
        if new < bounds.start:
            new, note = bounds.start, f"{new} is below the start"
        elif new > bounds.end:
            new, note = bounds.end, f"{new} is beyond the end"
        moves.append(OffsetMove(topic, partition, old, new, bounds.end, note))
    return moves


def _aimed(target: Target, bounds: PartitionBounds, old: int | None) -> tuple[int, str]:
    aim, number = target
    match aim:
        case ResetTarget.EARLIEST:
            return bounds.start, ""
        case ResetTarget.LATEST:
            return bounds.end, ""
        case ResetTarget.OFFSET:
            return number, ""
        case ResetTarget.CURRENT:
            return (bounds.end, "nothing was committed") if old is None else (old, "")
        case ResetTarget.SHIFT:
            return (old or 0) + number, ""
        case ResetTarget.TIME | ResetTarget.AGO:
            if bounds.at_time is None or bounds.at_time < 0:
                return bounds.end, "no record is as late"
            return bounds.at_time, ""
