"""The settings of classic groups, under the names they have here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClassicGroupSettings:
    session_timeout_minimum_ms: int = 6_000
    session_timeout_maximum_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    """How long the first member of an empty group waits for others, so that they share one rebalance."""

    new_member_join_timeout_ms: int = 300_000
    """How long the join of a new member is parked at most. It cannot send heartbeats yet, and one that gave
    up and came again under another id must not be waited for."""

    largest_group: int = 2**31 - 1

    def __post_init__(self) -> None:
        if not 0 < self.session_timeout_minimum_ms <= self.session_timeout_maximum_ms:
            raise ValueError(
                f"the least session timeout of {self.session_timeout_minimum_ms} ms is not between 1 and the "
                f"greatest, {self.session_timeout_maximum_ms} ms"
            )
        if self.initial_rebalance_delay_ms < 0:
            raise ValueError("the initial rebalance delay cannot be negative")
        if self.new_member_join_timeout_ms < 1:
            raise ValueError("a new member must have time to join")
        if self.largest_group < 1:
            raise ValueError("a group must have room for a member")
