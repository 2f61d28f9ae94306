"""Groups as people and programs see them: with their lag, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dray.cli.output import print_table
from dray.client.admin import offsets_at
from dray.client.cluster import Cluster, Place
from dray.client.groups import GroupCalls, GroupDescription, MemberDescription
from dray.client.records import LATEST
from dray.inspection.resets import OffsetMove

NOTHING = "-"


@dataclass(frozen=True)
class PartitionView:
    """A partition that the group has read, or that a member is to read."""

    topic: str
    partition: int
    current: int | None
    end: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        if self.current is None or self.end is None:
            return None
        return max(0, self.end - self.current)


@dataclass(frozen=True)
class GroupView:
    group: GroupDescription
    partitions: Sequence[PartitionView]

    @property
    def lag(self) -> int:
        return sum(partition.lag or 0 for partition in self.partitions)


async def view_group(group_id: str, cluster: Cluster) -> GroupView:
    calls = GroupCalls(cluster)
    group = await calls.describe(group_id)
    committed = await calls.committed(group_id)
    owners: dict[Place, MemberDescription] = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    places = sorted({*committed, *owners})
    names = sorted({topic for topic, _ in places})
    await cluster.learn(names)
    ends = await offsets_at(cluster, names, LATEST)
    return GroupView(
        group,
        [PartitionView(*place, committed.get(place), ends.get(place), owners.get(place)) for place in places],
    )


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
    if not view.partitions:
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
                item.topic,
                item.partition,
                _or_nothing(item.current),
                _or_nothing(item.end),
                _or_nothing(item.lag),
                NOTHING if item.member is None else item.member.member_id,
                NOTHING if item.member is None else item.member.host,
                NOTHING if item.member is None else item.member.client_id,
            )
            for item in view.partitions
        ],
        right=("current-offset", "log-end-offset", "lag"),
    )


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
                "topic": item.topic,
                "partition": item.partition,
                "current_offset": item.current,
                "log_end_offset": item.end,
                "lag": item.lag,
                "consumer_id": None if item.member is None else item.member.member_id,
            }
            for item in view.partitions
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
