"""Where `reset-offsets` takes a group: what was asked for, read; and the new offset of each partition.

Nothing is asked of a broker here but by way of what it is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Final, TypeAlias

from dray.client.cluster import Place
from dray.config.kinds import DAY, Duration
from dray.daemon.failures import USAGE, Failure

INT64_MAX: Final = 2**63 - 1
LONGEST: Final = 100 * 365 * DAY
RESETTABLE: Final = "Empty"
"""The state of a group without live members."""

_ISO_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


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


def parse_topics(given: Sequence[str]) -> list[ChosenPartitions]:
    """`orders`, or `orders:0,3` for some of its partitions, as in Kafka's own tool."""
    chosen: dict[str, ChosenPartitions] = {}
    for text in given:
        name, colon, listed = text.partition(":")
        numbers = listed.split(",") if colon else []
        if not name or not all(number.isascii() and number.isdigit() for number in numbers):
            raise Failure(f"--topic = {text!r}: must be TOPIC or TOPIC:0,1,2", USAGE)
        if name in chosen:
            raise Failure(f"--topic names {name} twice", USAGE)
        chosen[name] = ChosenPartitions(name, sorted({int(number) for number in numbers}) if colon else None)
    return list(chosen.values())


def parse_time(text: str) -> int:
    """Milliseconds since the epoch, never below it: to brokers, negative times mean something else. A time
    without a zone is UTC, as for Kafka's own tool."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise Failure(
            f"--to-datetime = {text!r}: must be a time such as 2026-01-31T18:00:00.000 (UTC), "
            "2026-01-31T18:00:00+01:00 or 2026-01-31",
            USAGE,
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0, round(moment.timestamp() * 1000))


def parse_duration(text: str) -> int:
    """Milliseconds: as ISO 8601 has it (P1DT2H30M), or as Dray's config does (90m)."""
    match = _ISO_DURATION.fullmatch(text.strip())
    if match is not None:
        days, hours, minutes = (int(part or 0) for part in match.groups()[:3])
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + float(match[4] or 0)
        if seconds <= LONGEST:
            return round(seconds * 1000)
    try:
        return round(Duration(0.0, LONGEST).parse(text) * 1000)
    except ValueError as error:
        raise Failure(f"--by-duration = {text!r}: must be such as PT2H30M, P7D or 90m", USAGE) from error


def choose_target(
    *,
    to_earliest: bool,
    to_latest: bool,
    to_current: bool,
    to_offset: int | None,
    shift_by: int | None,
    to_datetime: str | None,
    by_duration: str | None,
    now_ms: int,
) -> Target:
    """Exactly one of them."""
    wanted: list[ResetTarget] = [
        aim
        for aim, given in (
            (ResetTarget.EARLIEST, to_earliest),
            (ResetTarget.LATEST, to_latest),
            (ResetTarget.CURRENT, to_current),
            (ResetTarget.OFFSET, to_offset is not None),
            (ResetTarget.SHIFT, shift_by is not None),
            (ResetTarget.TIME, to_datetime is not None),
            (ResetTarget.AGO, by_duration is not None),
        )
        if given
    ]
    if len(wanted) != 1:
        said = "nothing says where to" if not wanted else " and ".join(aim.value for aim in wanted)
        raise Failure(f"{said}: give one of {', '.join(target.value for target in ResetTarget)}", USAGE)
    (aim,) = wanted
    if aim is ResetTarget.OFFSET and to_offset is not None:
        if not 0 <= to_offset <= INT64_MAX:
            raise Failure(f"--to-offset = {to_offset}: must be 0 or more", USAGE)
        return aim, to_offset
    if aim is ResetTarget.SHIFT and shift_by is not None:
        return aim, shift_by
    if aim is ResetTarget.TIME and to_datetime is not None:
        return aim, parse_time(to_datetime)
    if aim is ResetTarget.AGO and by_duration is not None:
        return aim, max(0, now_ms - parse_duration(by_duration))
    return aim, 0


def plan_moves(
    target: Target, partitions: Mapping[Place, PartitionBounds], committed: Mapping[Place, int]
) -> list[OffsetMove]:
    """The new offset of every partition. One outside of what the partition holds is moved to its nearer end,
    as Kafka's own tool does."""
    moves = []
    for (topic, partition), bounds in sorted(partitions.items()):
        old = committed.get((topic, partition))
        if old is None and target[0] is ResetTarget.SHIFT:
            raise Failure(f"--shift-by needs an offset to count from: {topic}-{partition} has none committed")
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
