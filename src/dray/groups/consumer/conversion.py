"""Groups of one protocol that clients of the other come to.

Conversion is offline only: a group without members has nothing but offsets, and those know no protocol, so it
becomes whatever the next member speaks. It starts at epoch 0, like a new one.
"""

from __future__ import annotations

from dray.groups.consumer.events import Refusal
from dray.groups.consumer.state import ConsumerGroup
from dray.protocol import ErrorCode


def heartbeat_to_classic_fault(group_id: str, member_epoch: int, *, is_empty: bool) -> Refusal | None:
    """A ConsumerGroupHeartbeat finds a classic group. Without fault, go on as if there were no group."""
    if is_empty and member_epoch == 0:
        return None
    return Refusal(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"group '{group_id}' is a classic group" + ("" if is_empty else " and has members"),
    )


def classic_join_fault(group: ConsumerGroup) -> Refusal | None:
    """A classic JoinGroup finds this group. Without fault, go on as if there were no group."""
    if not group.members:
        return None
    return Refusal(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        f"group '{group.group_id}' has members that use the consumer protocol",
    )
