"""Where `reset-offsets` is to take a group: what was asked for, read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from dray.config.kinds import DAY, Duration
from dray.daemon.failures import USAGE, Failure
from dray.inspection.resets import ChosenPartitions, ResetTarget, Target

INT64_MAX: Final = 2**63 - 1
LONGEST: Final = 100 * 365 * DAY

_ISO_DURATION: Final = re.compile(
    r"P(?=.)(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


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
