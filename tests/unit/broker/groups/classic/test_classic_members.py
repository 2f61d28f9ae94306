"""Heartbeat, LeaveGroup, commits and deletions: who may do what in which state."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.classic.harness import DELAY_MS, SESSION_MS, Coordinator, protocols

from dray.broker.groups.classic import (
    ClassicGroupSettings,
    GroupState,
    JoinAnswer,
    SyncAnswer,
    TimerKind,
    abandoned,
    deletion_fault,
    offset_deletion_fault,
)
from dray.kafka.protocol import ErrorCode

# Heartbeats


def test_a_heartbeat_to_nowhere() -> None:
    coordinator = Coordinator()
    assert coordinator.beat("me", 1, group_id="") is ErrorCode.INVALID_GROUP_ID
    assert coordinator.beat("me", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    coordinator.commit()
    assert coordinator.beat("me", 0) is ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_are_refused_in_this_order() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    assert coordinator.beat("nobody", 7) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.beat(member, 0) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.beat(member, 2) is ErrorCode.ILLEGAL_GENERATION


def test_an_id_that_was_handed_out_is_no_member_yet() -> None:
    coordinator = Coordinator()
    pending = coordinator.joined(coordinator.join()).member_id
    assert coordinator.beat(pending, 0) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("is_stable", [False, True])
def test_a_heartbeat_starts_the_session_anew_and_changes_nothing(is_stable: bool) -> None:
    coordinator = Coordinator()
    member, *_ = coordinator.settle(None, None) if is_stable else coordinator.enrol(None, None)
    group, writes = coordinator.group, coordinator.writes
    coordinator.advance(1_000)
    assert coordinator.beat(member) is ErrorCode.NONE
    assert coordinator.timers[TimerKind.SESSION, member] == coordinator.now_ms + SESSION_MS
    assert coordinator.group is group
    assert coordinator.writes == writes


def test_a_heartbeat_during_a_rebalance_starts_the_session_anew_too() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    coordinator.join(leader)
    coordinator.advance(1_000)
    assert coordinator.beat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.timers[TimerKind.SESSION, follower] == coordinator.now_ms + SESSION_MS


# Leaving


def test_leaving_nowhere() -> None:
    coordinator = Coordinator()
    assert coordinator.leave("me", group_id="") == [ErrorCode.INVALID_GROUP_ID]
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.leave("me", ("", "instance")) == [unknown, unknown]


def test_each_that_leaves_has_its_own_error() -> None:
    coordinator = Coordinator()
    dynamic, one, two, other = coordinator.settle(None, "one", "two", None)
    errors = coordinator.leave(
        dynamic,
        dynamic,
        "nobody",
        (one, "two"),
        (one, "three"),
        ("", "two"),
        ("", "three"),
        ("", None),
    )
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert errors == [
        ErrorCode.NONE,
        unknown,
        unknown,
        ErrorCode.FENCED_INSTANCE_ID,
        unknown,
        ErrorCode.NONE,
        unknown,
        unknown,
    ]
    assert set(coordinator.there.members) == {one, other}
    assert coordinator.state is GroupState.PREPARING
    assert two not in coordinator.there.members


def test_a_refused_leave_changes_nothing() -> None:
    coordinator = Coordinator()
    coordinator.settle(None)
    group = coordinator.group
    coordinator.leave("nobody")
    assert coordinator.group is group


def test_the_last_to_leave_empties_the_group() -> None:
    coordinator = Coordinator()
    members = coordinator.settle(None, None)
    coordinator.advance(1_000)
    writes = coordinator.writes
    coordinator.leave(*members)
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.there.since_ms == coordinator.now_ms
    assert coordinator.there.generation == 2
    assert coordinator.there.leader_id is None
    assert coordinator.there.protocol_name is None
    assert coordinator.writes == writes + 1


def test_who_leaves_is_not_waited_for() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    token = coordinator.join(leader)
    coordinator.leave(follower)
    assert coordinator.joined(token).generation == 2


def test_whatever_was_parked_is_answered_on_leaving() -> None:
    coordinator = Coordinator()
    leader, follower, third = coordinator.enrol(None, None, None)
    sync = coordinator.sync(follower)
    coordinator.leave(follower)
    assert coordinator.answer(sync, SyncAnswer).error is ErrorCode.UNKNOWN_MEMBER_ID
    join = coordinator.join(leader)
    coordinator.leave(leader)
    assert coordinator.joined(join) == JoinAnswer(ErrorCode.UNKNOWN_MEMBER_ID, "")
    assert coordinator.there.leader_id == third


def test_an_id_that_was_handed_out_can_leave() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    pending = coordinator.joined(coordinator.join()).member_id
    token = coordinator.join(member)
    assert coordinator.is_parked(token)
    assert coordinator.leave(pending) == [ErrorCode.NONE]
    assert coordinator.joined(token).generation == 2


def test_an_id_that_leaves_a_stable_group_costs_a_rebalance_as_in_kafka() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    coordinator.leave(coordinator.joined(coordinator.join()).member_id)
    assert coordinator.beat(member) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_id_can_leave_an_empty_group() -> None:
    coordinator = Coordinator()
    pending = coordinator.joined(coordinator.join()).member_id
    assert coordinator.leave(pending) == [ErrorCode.NONE]
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.there.generation == 0


# Commits


def test_a_commit_without_a_generation_makes_a_simple_group() -> None:
    coordinator = Coordinator()
    assert coordinator.commit() is ErrorCode.NONE
    assert coordinator.state is GroupState.EMPTY
    assert coordinator.there.protocol_type is None
    assert coordinator.writes == 1
    assert coordinator.commit("whoever", -1) is ErrorCode.NONE
    assert coordinator.writes == 1


@pytest.mark.parametrize(
    ("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_commit_of_a_generation_that_nobody_knows(version: int, error: ErrorCode) -> None:
    coordinator = Coordinator()
    assert coordinator.commit("me", 0, version=version) is error
    assert coordinator.group is None
    assert not coordinator.writes


def test_a_group_with_members_takes_commits_of_members_only() -> None:
    coordinator = Coordinator()
    member, _ = coordinator.settle(None, None)
    assert coordinator.commit() is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit(member, -1) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.commit(member, 2) is ErrorCode.ILLEGAL_GENERATION
    assert coordinator.commit(member, 1, "instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit(member, 1) is ErrorCode.NONE


def test_a_commit_is_a_sign_of_life() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    group, writes = coordinator.group, coordinator.writes
    coordinator.advance(1_000)
    coordinator.commit(follower, 1)
    assert coordinator.timers[TimerKind.SESSION, follower] == coordinator.now_ms + SESSION_MS
    assert coordinator.group is group
    assert coordinator.writes == writes
    coordinator.join(leader)
    coordinator.advance(1_000)
    assert coordinator.commit(follower, 1) is ErrorCode.NONE, "before it rejoins, a member commits"
    assert coordinator.timers[TimerKind.SESSION, follower] == coordinator.now_ms + SESSION_MS


def test_who_does_not_know_its_assignment_has_nothing_to_commit() -> None:
    coordinator = Coordinator()
    member, _ = coordinator.enrol(None, None)
    assert coordinator.commit(member, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.commit("nobody", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit(member, 0) is ErrorCode.ILLEGAL_GENERATION


def test_an_empty_group_knows_no_generations() -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None)
    coordinator.leave(member)
    assert coordinator.commit(member, 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit("", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    assert coordinator.commit() is ErrorCode.NONE


# Deletions


def test_only_an_empty_group_is_deleted() -> None:
    coordinator = Coordinator()
    assert coordinator.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    members = coordinator.settle(None, None)
    assert coordinator.delete() is ErrorCode.NON_EMPTY_GROUP
    coordinator.join(members[0])
    assert coordinator.delete() is ErrorCode.NON_EMPTY_GROUP
    coordinator.join(members[1])
    assert coordinator.delete() is ErrorCode.NON_EMPTY_GROUP
    assert deletion_fault(coordinator.group) is ErrorCode.NON_EMPTY_GROUP
    coordinator.leave(*members)
    coordinator.join()
    assert coordinator.delete() is ErrorCode.NONE
    assert coordinator.group is None
    assert coordinator.stored is None
    assert not coordinator.timers


def test_offsets_of_a_group_of_consumers_may_be_deleted_but_for_what_it_reads() -> None:
    coordinator = Coordinator()
    assert offset_deletion_fault(None) is ErrorCode.GROUP_ID_NOT_FOUND
    coordinator.commit()
    assert offset_deletion_fault(coordinator.group) is ErrorCode.NONE
    assert not coordinator.there.is_subscribed_to("orders")
    members = coordinator.settle(None)
    assert offset_deletion_fault(coordinator.group) is ErrorCode.NONE
    assert coordinator.there.is_subscribed_to("orders")
    assert not coordinator.there.is_subscribed_to("payments")
    coordinator.leave(*members)
    assert not coordinator.there.is_subscribed_to("orders")


def test_offsets_of_other_groups_are_deleted_when_they_are_empty() -> None:
    coordinator = Coordinator()
    members = coordinator.settle(None, protocol_type="connect", using=[("default", b"")])
    assert offset_deletion_fault(coordinator.group) is ErrorCode.NON_EMPTY_GROUP
    coordinator.leave(*members)
    assert offset_deletion_fault(coordinator.group) is ErrorCode.NONE


# Giving up


def test_whoever_gives_a_group_up_answers_what_is_parked() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    join = coordinator.join(leader)
    replies = abandoned(coordinator.there, ErrorCode.NOT_COORDINATOR)
    assert replies == ((join, JoinAnswer(ErrorCode.NOT_COORDINATOR, leader)),)
    coordinator.join(follower)
    sync = coordinator.sync(follower)
    replies = abandoned(coordinator.there, ErrorCode.NOT_COORDINATOR)
    assert replies == ((sync, SyncAnswer(ErrorCode.NOT_COORDINATOR)),)


# Settings


@pytest.mark.parametrize(
    "wrong",
    [
        {"session_timeout_minimum_ms": 0},
        {"session_timeout_minimum_ms": 10, "session_timeout_maximum_ms": 9},
        {"initial_rebalance_delay_ms": -1},
        {"new_member_join_timeout_ms": 0},
        {"largest_group": 0},
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError):
        ClassicGroupSettings(**wrong)


def test_many_groups_of_settings_are_possible() -> None:
    quick = ClassicGroupSettings(session_timeout_minimum_ms=1, initial_rebalance_delay_ms=0)
    coordinator = Coordinator(quick)
    token = coordinator.join(version=3, session_ms=1, using=protocols())
    coordinator.advance(DELAY_MS)
    assert coordinator.joined(token).generation == 1
