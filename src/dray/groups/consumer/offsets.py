"""Who may commit and fetch offsets of a KIP-848 group, and when a group or its offsets may be deleted."""

from __future__ import annotations

from typing import Final

from dray.groups.consumer.events import Refusal
from dray.groups.consumer.state import ConsumerGroup, Member
from dray.groups.consumer.validation import unknown_member
from dray.protocol import ErrorCode

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
        return Refusal(ErrorCode.NON_EMPTY_GROUP, f"group '{group.group_id}' has members")
    return None


def _epoch_fault(member: Member, member_epoch: int) -> Refusal | None:
    if member_epoch == member.epoch:
        return None
    return Refusal(
        ErrorCode.STALE_MEMBER_EPOCH,
        f"member '{member.member_id}' is at epoch {member.epoch}, not at {member_epoch}",
    )
