"""Checks of the right to speak for a member, to commit offsets, or to delete things.

The order of the checks is Kafka's: of two faults in one request, clients see the same one.
"""

from __future__ import annotations

from typing import Final

from dray.broker.groups.classic.events import CommitCheck
from dray.broker.groups.classic.state import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState
from dray.kafka.protocol import ErrorCode

FIRST_COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND: Final = 9


def member_fault(group: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """NONE where there is such a member, and the instance id, if one is said, is its own."""
    if instance_id is not None:
        holder = group.static.get(instance_id)
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if holder != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID


def generation_fault(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    fault = member_fault(group, member_id, instance_id)
    if fault is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return fault


def commit_fault(group: ClassicGroup | None, commit: CommitCheck) -> ErrorCode:
    """A negative generation is an administrator's, or that of a consumer that uses no group management."""
    if group is None:
        if commit.generation < 0:
            return ErrorCode.NONE
        if commit.version >= FIRST_COMMIT_VERSION_WITH_GROUP_ID_NOT_FOUND:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if commit.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    fault = generation_fault(group, commit.member_id, commit.instance_id, commit.generation)
    if fault is ErrorCode.NONE and group.state is GroupState.COMPLETING:
        # It knows of this generation, but not yet what it owns in it.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return fault


def deletion_fault(group: ClassicGroup | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state is GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def offset_deletion_fault(group: ClassicGroup | None) -> ErrorCode:
    """Of the request as a whole; a topic the group `is_subscribed_to` is GROUP_SUBSCRIBED_TO_TOPIC besides.

    The subscriptions of other protocol types are not known, so their groups must be empty.
    """
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE
