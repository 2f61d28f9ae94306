"""From when on the committed offsets of a classic group grow old, and when the group itself may go."""

from __future__ import annotations

from dray.groups.classic.state import CONSUMER_PROTOCOL_TYPE, ClassicGroup, GroupState
from dray.groups.offsets import ExpiryRule


def expiry_rule(group: ClassicGroup) -> ExpiryRule | None:
    """None while nothing may expire."""
    if group.protocol_type is None:
        return ExpiryRule(None, group.is_subscribed_to)  # a simple group, which nobody is ever seen to leave
    if group.state is GroupState.EMPTY:
        return ExpiryRule(group.since_ms, group.is_subscribed_to)
    if group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ExpiryRule(None, group.is_subscribed_to)
    return None


def may_go(group: ClassicGroup) -> bool:
    """Whether a group whose last offset has expired is of no more use to anyone."""
    return group.state is GroupState.EMPTY and not group.pending
