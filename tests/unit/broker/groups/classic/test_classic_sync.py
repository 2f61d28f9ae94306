"""SyncGroup: who is refused, who waits for the leader, and who waited too long."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.classic.harness import REBALANCE_MS, SESSION_MS, Coordinator

from dray.broker.groups.classic import GroupState, SyncAnswer, TimerKind, decode_group
from dray.kafka.protocol import ErrorCode


def error_of(coordinator: Coordinator, token: int) -> ErrorCode:
    return coordinator.answer(token, SyncAnswer).error


def test_a_group_has_a_name() -> None:
    coordinator = Coordinator()
    assert error_of(coordinator, coordinator.sync("me", 1, group_id="")) is ErrorCode.INVALID_GROUP_ID


def test_a_group_that_is_missing_or_empty_has_no_members() -> None:
    coordinator = Coordinator()
    assert error_of(coordinator, coordinator.sync("me", 1)) is ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.commit()
    assert error_of(coordinator, coordinator.sync("me", 0)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("is_stable", [False, True])
def test_refused_in_this_order(is_stable: bool) -> None:
    coordinator = Coordinator()
    members = coordinator.settle(None, None) if is_stable else coordinator.enrol(None, None)
    group = coordinator.group
    follower = members[1]
    sync = coordinator.sync
    assert error_of(coordinator, sync("nobody", 9, protocol_name="x")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert error_of(coordinator, sync(follower, 9, protocol_name="x")) is ErrorCode.ILLEGAL_GENERATION
    assert error_of(coordinator, sync(follower, 0)) is ErrorCode.ILLEGAL_GENERATION
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(coordinator, sync(follower, protocol_name="sticky")) is inconsistent
    assert error_of(coordinator, sync(follower, protocol_type="connect")) is inconsistent
    assert coordinator.group is group


def test_while_members_are_awaited_there_is_nothing_to_sync() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    coordinator.join(leader)
    assert error_of(coordinator, coordinator.sync(follower)) is ErrorCode.REBALANCE_IN_PROGRESS


def test_followers_wait_for_the_leader() -> None:
    coordinator = Coordinator()
    leader, first, second = coordinator.enrol(None, None, None)
    waiting = [coordinator.sync(first, protocol_type="consumer", protocol_name="range")]
    assert coordinator.is_parked(*waiting)
    assert coordinator.state is GroupState.COMPLETING
    writes = coordinator.writes
    waiting.append(coordinator.sync(leader, assignments=[(first, b"A"), (leader, b"B"), ("stranger", b"C")]))
    assert coordinator.state is GroupState.STABLE
    assert coordinator.writes == writes + 1
    assert [coordinator.answer(token, SyncAnswer) for token in waiting] == [
        SyncAnswer(ErrorCode.NONE, "consumer", "range", b"A"),
        SyncAnswer(ErrorCode.NONE, "consumer", "range", b"B"),
    ]
    late = coordinator.sync(second)
    assert coordinator.answer(late, SyncAnswer) == SyncAnswer(ErrorCode.NONE, "consumer", "range", b"")
    assert coordinator.stored is not None
    stored = decode_group("group", coordinator.stored)
    assert [member.assignment for member in stored.members.values()] == [b"B", b"A", b""]


def test_a_stable_group_does_not_listen_to_another_assignment() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    group, writes = coordinator.group, coordinator.writes
    token = coordinator.sync(leader, assignments=[(leader, b"other")])
    assert coordinator.answer(token, SyncAnswer).assignment == b"0"
    assert coordinator.member(follower).assignment == b"1"
    assert coordinator.group is group
    assert coordinator.writes == writes


def test_of_two_assignments_to_one_member_the_last_counts() -> None:
    coordinator = Coordinator()
    (leader,) = coordinator.enrol(None)
    token = coordinator.sync(leader, assignments=[(leader, b"first"), (leader, b"last")])
    assert coordinator.answer(token, SyncAnswer).assignment == b"last"


def test_with_its_assignment_a_member_gets_a_whole_session() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    coordinator.sync(follower)
    coordinator.advance(SESSION_MS - 1)
    coordinator.sync(leader)
    assert coordinator.timers[TimerKind.SESSION, follower] == coordinator.now_ms + SESSION_MS


def test_a_sync_that_is_sent_again_replaces_the_first() -> None:
    coordinator = Coordinator()
    _, follower = coordinator.enrol(None, None)
    first = coordinator.sync(follower)
    second = coordinator.sync(follower)
    assert error_of(coordinator, first) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.is_parked(second)


def beat_until_time_is_up(coordinator: Coordinator, *members: str) -> None:
    for _ in range(REBALANCE_MS // 5_000):
        for member in members:
            assert coordinator.beat(member) is ErrorCode.NONE
        coordinator.advance(5_000)


def test_a_follower_that_never_syncs_is_dropped_though_it_sends_heartbeats() -> None:
    coordinator = Coordinator()
    leader, silent = coordinator.enrol(None, None)
    coordinator.sync(leader)
    beat_until_time_is_up(coordinator, leader, silent)
    assert set(coordinator.there.members) == {leader}
    assert coordinator.beat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.beat(silent) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_never_syncs_is_dropped_and_the_others_go_on() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.enrol(None, None)
    waiting = coordinator.sync(follower)
    beat_until_time_is_up(coordinator, leader)
    assert error_of(coordinator, waiting) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.joined(coordinator.join(follower)).leader_id == follower


def test_when_nobody_syncs_the_group_is_empty() -> None:
    coordinator = Coordinator()
    beat_until_time_is_up(coordinator, *coordinator.enrol(None, None))
    assert coordinator.state is GroupState.EMPTY


def test_who_has_synced_is_not_waited_for() -> None:
    coordinator = Coordinator()
    members = coordinator.settle(None, None)
    beat_until_time_is_up(coordinator, *members)
    assert coordinator.state is GroupState.STABLE
    assert set(coordinator.there.members) == set(members)


def test_a_rebalance_that_is_called_off_takes_the_assignments_with_it() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    coordinator.join(leader)
    assert coordinator.member(follower).assignment == b"1", "what it still has"
    coordinator.join(follower)
    coordinator.leave(follower)
    assert coordinator.member(leader).assignment == b""


def test_after_another_rebalance_has_begun_nobody_owes_a_sync() -> None:
    coordinator = Coordinator()
    leader, silent = coordinator.enrol(None, None)
    coordinator.sync(leader)
    assert coordinator.member(silent).owes_sync
    coordinator.join(leader)
    assert not coordinator.member(silent).owes_sync
    assert (TimerKind.SYNC, "") not in coordinator.timers
