"""Which requests are refused: heartbeats, commits, deletions, and clients that speak the other protocol.

The order of the checks is Kafka's: of two faults in one request, clients see the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from dray.base.runtime import cut
from dray.broker.groups.consumer.events import Heartbeat, Refusal
from dray.broker.groups.consumer.reconciliation import holds_only
from dray.broker.groups.consumer.state import AWAY, LEAVING, ConsumerGroup, ConsumerGroupSettings, Member
from dray.kafka.protocol import ErrorCode


def fault_of(beat: Heartbeat, settings: ConsumerGroupSettings) -> Refusal | None:
    """A fault of the request in itself."""
    epoch = beat.member_epoch
    if (beat.version >= 1 or epoch > 0 or epoch == LEAVING) and not beat.member_id.strip():
        return _invalid("the member id is empty")
    if not beat.group_id.strip():
        return _invalid("the group id is empty")
    if beat.instance_id is not None and not beat.instance_id.strip():
        return _invalid("the instance id is empty")
    if beat.rack_id is not None and not beat.rack_id.strip():
        return _invalid("the rack id is empty")
    if epoch == 0:
        if beat.rebalance_timeout_ms == -1:
            return _invalid("a member that joins must say its rebalance timeout")
        if beat.owned is None or beat.owned:
            return _invalid("a member that joins must say that it owns no partitions")
        if beat.topic_names is None and beat.topic_regex is None:
            return _invalid("a member that joins must subscribe to names or to a pattern")
    elif epoch == AWAY:
        if beat.instance_id is None:
            return _invalid("only a member with an instance id can leave for a while")
    elif epoch < AWAY:
        return _invalid(f"there is no member epoch {epoch}")
    if beat.server_assignor is not None and beat.server_assignor not in settings.assignors:
        return Refusal(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"the assignor '{cut(beat.server_assignor)}' is not among {', '.join(settings.assignors)}",
        )
    if beat.topic_names is not None and _size_of(beat.topic_names) > settings.largest_member_bytes:
        return _invalid(f"the names of its topics take more than {settings.largest_member_bytes} bytes")
    return None


def _size_of(names: Sequence[str]) -> int:
    return sum(map(len, names)) + len(names)


def fault_of_epoch(member: Member, beat: Heartbeat) -> Refusal | None:
    """Whether the member is the one we know. Epoch 0 is a new start, and always welcome."""
    epoch = beat.member_epoch
    if epoch in (0, member.epoch):
        return None
    if epoch > member.epoch:
        why = "ahead of"
    elif epoch == member.previous_epoch and holds_only(beat.owned, member.assigned):
        return None  # the answer that took it to its present epoch was lost
    else:
        why = "behind"
    return Refusal(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member epoch {epoch} is {why} {member.epoch}, which the coordinator knows: give up all partitions "
        "and join again",
    )


def static_member(group: ConsumerGroup, member_id: str, instance_id: str) -> Member | Refusal:
    """The member with this instance id, if it is the one that says so."""
    holder = group.static.get(instance_id)
    if holder is None:
        return Refusal(ErrorCode.UNKNOWN_MEMBER_ID, f"nobody has the instance id '{cut(instance_id)}'")
    if holder != member_id:
        return Refusal(
            ErrorCode.FENCED_INSTANCE_ID,
            f"the instance id '{cut(instance_id)}' now belongs to member '{cut(holder)}'",
        )
    return group.members[holder]


def unknown_member(group: ConsumerGroup, member_id: str) -> Refusal:
    return Refusal(
        ErrorCode.UNKNOWN_MEMBER_ID, f"'{cut(member_id)}' is not a member of group '{cut(group.group_id)}'"
    )


def unknown_group(group_id: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no consumer group '{cut(group_id)}'")


def _invalid(why: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, why)


# --- offsets, and deletions

FIRST_COMMIT_VERSION_WITH_EPOCHS: Final = 9
"""Older ones cannot carry the errors that send a member back for its new epoch."""


def commit_fault(group: ConsumerGroup, member_id: str, member_epoch: int, api_version: int) -> Refusal | None:
    if member_epoch < 0 and not group.members:
        return None  # an administrator, or a consumer that uses no group management
    member = group.members.get(member_id)
    if member is None:
        return unknown_member(group, member_id)
    if api_version < FIRST_COMMIT_VERSION_WITH_EPOCHS:
        return Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"members of consumer groups commit with version {FIRST_COMMIT_VERSION_WITH_EPOCHS} or later",
        )
    return _epoch_fault(member, member_epoch)


def fetch_fault(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> Refusal | None:
    if member_id is None and member_epoch < 0:
        return None
    member = group.members.get(member_id) if member_id is not None else None
    if member is None:
        return unknown_member(group, member_id or "")
    return _epoch_fault(member, member_epoch)


def deletion_fault(group: ConsumerGroup) -> Refusal | None:
    if group.members:
        return Refusal(ErrorCode.NON_EMPTY_GROUP, f"group '{cut(group.group_id)}' has members")
    return None


def _epoch_fault(member: Member, member_epoch: int) -> Refusal | None:
    if member_epoch == member.epoch:
        return None
    return Refusal(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"member '{cut(member.member_id)}' is at epoch {member.epoch}, not at {member_epoch}",
    )


# --- groups of one protocol that clients of the other come to
#
# Conversion is offline only: a group without members has nothing but offsets, and those know no protocol, so
# it becomes what the next member speaks. It starts at epoch 0, like a new one.


def heartbeat_to_classic_fault(group_id: str, member_epoch: int, *, is_empty: bool) -> Refusal | None:
    """A ConsumerGroupHeartbeat finds a classic group. Without fault, go on as if there were no group."""
    if is_empty and member_epoch == 0:
        return None
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"group '{cut(group_id)}' is a classic group" + ("" if is_empty else " and has members"),
    )


def classic_join_fault(group: ConsumerGroup) -> Refusal | None:
    """A classic JoinGroup finds this group. Without fault, go on as if there were no group."""
    if not group.members:
        return None
    return Refusal(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        f"group '{cut(group.group_id)}' has members that use the consumer protocol",
    )
