"""Groups as people and programs see them, with their lag, partition by partition; and resets as they ask for
them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dray.base.config.kinds import DAY, Duration
from dray.cli.options import parse_time
from dray.cli.output import print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.inspection.groups.resets import ChosenPartitions, OffsetMove, ResetTarget, Target
from dray.inspection.groups.views import GroupView, read_group
from dray.kafka.client.admin import offsets_at
from dray.kafka.client.cluster import Cluster, Place
from dray.kafka.client.groups import GroupCalls, MemberDescription
from dray.kafka.client.records import INT64_MAX, LATEST

NOTHING = "-"


async def view_group(group_id: str, cluster: Cluster) -> GroupView:
    calls = GroupCalls(cluster)

    async def ends_of(topics: Sequence[str]) -> Mapping[Place, int]:
        await cluster.learn(topics)
        return await offsets_at(cluster, topics, LATEST)

    return await read_group(await calls.describe(group_id), calls, ends_of)


# --- for people


def print_summary(view: GroupView) -> None:
    group = view.group
    about = [group.group_type, group.state, _count(len(group.members), "member")]
    if group.assignor:
        about.append(f"assignor {group.assignor}")
    if group.epoch is not None:
        about.append(f"epoch {group.epoch}")
    print(f"group {group.group_id}: {', '.join(about)}, coordinator {group.coordinator}, lag {view.lag}")


def print_offsets(view: GroupView) -> None:
    if not view.places:
        print("  no committed offsets, and nothing assigned")
        return
    print_table(
        [
            "topic",
            "partition",
            "current-offset",
            "log-end-offset",
            "lag",
            "consumer-id",
            "host",
            "client-id",
        ],
        [
            (
                *place,
                _or_nothing(view.committed.get(place)),
                _or_nothing(view.ends.get(place)),
                _or_nothing(view.lags.get(place)),
                *_reader(view.owners.get(place)),
            )
            for place in view.places
        ],
        right=("current-offset", "log-end-offset", "lag"),
    )


def _reader(member: MemberDescription | None) -> tuple[str, str, str]:
    return (NOTHING,) * 3 if member is None else (member.member_id, member.host, member.client_id)


def print_members(view: GroupView) -> None:
    if not view.group.members:
        print("  no members")
        return
    print_table(
        ["consumer-id", "instance-id", "host", "client-id", "epoch", "partitions", "assignment", "target"],
        [
            (
                member.member_id,
                member.instance_id or NOTHING,
                member.host,
                member.client_id,
                _or_nothing(member.epoch),
                sum(len(partitions) for partitions in member.assignment.values()),
                _assignment_text(member.assignment),
                _target_text(member),
            )
            for member in view.group.members
        ],
        right=("epoch",),
    )


def print_states(views: Sequence[GroupView]) -> None:
    print_table(
        ["group", "coordinator", "assignor", "state", "type", "epoch", "target-epoch", "members", "lag"],
        [
            (
                view.group.group_id,
                view.group.coordinator,
                view.group.assignor or NOTHING,
                view.group.state,
                view.group.group_type,
                _or_nothing(view.group.epoch),
                _or_nothing(view.group.target_epoch),
                len(view.group.members),
                view.lag,
            )
            for view in views
        ],
        right=("epoch", "target-epoch"),
    )


def print_moves(moves: Sequence[OffsetMove]) -> None:
    print_table(
        ["topic", "partition", "current-offset", "new-offset", "log-end-offset", "lag", "note"],
        [
            (
                move.topic,
                move.partition,
                _or_nothing(move.old),
                move.new,
                move.end,
                move.end - move.new,
                move.note,
            )
            for move in moves
        ],
        right=("current-offset",),
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _or_nothing(number: int | None) -> object:
    return NOTHING if number is None else number


def _assignment_text(assignment: Mapping[str, Sequence[int]] | None) -> str:
    """As Kafka's own tool writes it: `orders(0,1), payments(3)`."""
    if not assignment:
        return NOTHING
    return ", ".join(
        f"{topic}({','.join(map(str, partitions))})" for topic, partitions in sorted(assignment.items())
    )


def _target_text(member: MemberDescription) -> str:
    same = member.target is None or member.target == member.assignment
    return "(as assigned)" if same else _assignment_text(member.target)


# --- for programs


def as_plain(view: GroupView) -> dict[str, Any]:
    group = view.group
    return {
        "group": group.group_id,
        "type": group.group_type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "target_epoch": group.target_epoch,
        "coordinator": {
            "id": group.coordinator.broker_id,
            "host": group.coordinator.host,
            "port": group.coordinator.port,
        },
        "lag": view.lag,
        "members": [_plain_member(member) for member in group.members],
        "partitions": [
            {
                "topic": place[0],
                "partition": place[1],
                "current_offset": view.committed.get(place),
                "log_end_offset": view.ends.get(place),
                "lag": view.lags.get(place),
                "consumer_id": view.owners[place].member_id if place in view.owners else None,
            }
            for place in view.places
        ],
    }


def _plain_member(member: MemberDescription) -> dict[str, Any]:
    return {
        "consumer_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "subscription": member.subscription,
        "assignment": _plain_assignment(member.assignment),
        "target": None if member.target is None else _plain_assignment(member.target),
    }


def _plain_assignment(assignment: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {topic: list(partitions) for topic, partitions in sorted(assignment.items())}


def plain_moves(group_id: str, moves: Sequence[OffsetMove], executed: bool) -> dict[str, Any]:
    return {
        "group": group_id,
        "executed": executed,
        "partitions": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "current_offset": move.old,
                "new_offset": move.new,
                "log_end_offset": move.end,
                "note": move.note or None,
            }
            for move in moves
        ],
    }


# --- the target of `reset-offsets`, read from what was asked for


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
        return aim, parse_time(to_datetime, "--to-datetime")
    if aim is ResetTarget.AGO and by_duration is not None:
        return aim, max(0, now_ms - parse_duration(by_duration))
    return aim, 0
