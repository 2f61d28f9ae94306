"""When the committed offsets of a classic group grow old, and when the group may go."""

from __future__ import annotations

from tests.unit.broker.groups.classic.harness import Coordinator

from dray.broker.groups.classic import GroupState, expiry_rule, may_go
from dray.broker.groups.offsets import CommittedOffset, expired_offsets

WEEK_MS = 7 * 24 * 3600 * 1000
ORDERS, PAYMENTS = ("orders", 0), ("payments", 3)


def expired(
    coordinator: Coordinator, offsets: dict[tuple[str, int], CommittedOffset], now_ms: int
) -> list[tuple[str, int]]:
    rule = expiry_rule(coordinator.there)
    assert rule is not None
    return expired_offsets(offsets, rule, now_ms, WEEK_MS)


def committed(now_ms: int) -> dict[tuple[str, int], CommittedOffset]:
    return {key: CommittedOffset.at(5, 0, "", now_ms) for key in (ORDERS, PAYMENTS)}


def test_offsets_of_an_emptied_group_expire_a_week_after_that() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    offsets = committed(coordinator.now_ms)
    for _ in range(4):
        coordinator.advance(5_000)
        coordinator.beat(member)
    coordinator.leave(member)
    emptied = coordinator.now_ms
    assert expired(coordinator, offsets, emptied + WEEK_MS - 1) == []
    assert expired(coordinator, offsets, emptied + WEEK_MS) == [ORDERS, PAYMENTS]


def test_offsets_of_a_simple_group_expire_a_week_after_their_commit() -> None:
    coordinator = Coordinator()
    coordinator.commit()
    offsets = committed(coordinator.now_ms)
    offsets[ORDERS] = CommittedOffset.at(6, 0, "", coordinator.now_ms + 1_000)
    assert expired(coordinator, offsets, coordinator.now_ms + WEEK_MS - 1) == []
    assert expired(coordinator, offsets, coordinator.now_ms + WEEK_MS) == [PAYMENTS]
    assert expired(coordinator, offsets, coordinator.now_ms + WEEK_MS + 1_000) == [ORDERS, PAYMENTS]


def test_in_a_stable_group_only_what_nobody_reads_any_more_expires() -> None:
    coordinator = Coordinator()
    offsets = committed(coordinator.now_ms)
    coordinator.settle(None)
    assert expired(coordinator, offsets, coordinator.now_ms + 2 * WEEK_MS) == [PAYMENTS]


def test_where_the_subscription_cannot_be_read_nothing_expires() -> None:
    coordinator = Coordinator()
    offsets = committed(coordinator.now_ms)
    coordinator.settle(None, using=[("range", b"garbage")])
    assert expired(coordinator, offsets, coordinator.now_ms + 2 * WEEK_MS) == []


def test_nothing_expires_during_a_rebalance_or_in_groups_that_are_not_of_consumers() -> None:
    coordinator = Coordinator()
    members = coordinator.enrol(None, None)
    assert coordinator.state is GroupState.COMPLETING
    assert expiry_rule(coordinator.there) is None
    coordinator.leave(members[1])
    assert coordinator.state is GroupState.PREPARING
    assert expiry_rule(coordinator.there) is None
    connect = Coordinator()
    connect.settle(None, protocol_type="connect")
    assert expiry_rule(connect.there) is None


def test_a_group_may_go_when_it_is_empty() -> None:
    coordinator = Coordinator()
    pending = coordinator.joined(coordinator.join()).member_id
    assert not may_go(coordinator.there), "someone is about to join"
    coordinator.leave(pending)
    assert may_go(coordinator.there)
    coordinator.settle(None)
    assert not may_go(coordinator.there)
