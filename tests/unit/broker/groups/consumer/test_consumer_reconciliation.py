"""How members come from what they have to what they should have."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.consumer.harness import Coordinator, listed, parts

from dray.broker.groups.assignors import Assignment
from dray.broker.groups.consumer import GroupState, MemberState, TimerKind

ALL = parts(a=[0, 1, 2, 3])


@pytest.fixture
def coordinator() -> Coordinator:
    """m1 has all four partitions and m2 has just joined: two of them are to move."""
    coordinator = Coordinator()
    coordinator.join("m1")
    answer = coordinator.join("m2")
    assert (answer.member_epoch, answer.assignment) == (2, {})
    return coordinator


KEPT, MOVING = parts(a=[0, 1]), parts(a=[2, 3])


def test_a_joining_member_waits_for_partitions_that_others_hold(coordinator: Coordinator) -> None:
    assert coordinator.state.members["m2"].state is MemberState.UNRELEASED
    assert coordinator.state.members["m2"].target == MOVING
    assert coordinator.state.state is GroupState.RECONCILING
    assert coordinator.beat("m2", 2).assignment is None


def test_waiting_is_not_stored_again_and_again(coordinator: Coordinator) -> None:
    coordinator.beat("m2", 2)
    assert not coordinator.send("m2", 2).persist


def test_a_member_is_first_told_what_it_keeps_at_its_old_epoch(coordinator: Coordinator) -> None:
    answer = coordinator.beat("m1", 1, owned=listed(ALL))
    assert (answer.member_epoch, answer.assignment) == (1, KEPT)
    member = coordinator.state.members["m1"]
    assert (member.state, member.assigned, member.pending) == (MemberState.UNREVOKED, KEPT, MOVING)


@pytest.mark.parametrize("owned", [None, ALL, parts(a=[0, 1, 3])])
def test_a_member_stays_while_it_may_still_hold_what_it_must_give_up(
    coordinator: Coordinator, owned: Assignment | None
) -> None:
    coordinator.beat("m1", 1)
    reported = None if owned is None else listed(owned)
    result = coordinator.send("m1", 1, owned=reported)
    answer = coordinator.accepted(result)
    assert (answer.member_epoch, answer.assignment) == (1, None)
    assert not result.persist
    coordinator.beat("m2", 2)
    assert coordinator.state.members["m2"].assigned == {}, "it is the member's until it says otherwise"


def test_partitions_move_on_when_the_member_says_it_let_go(coordinator: Coordinator) -> None:
    coordinator.beat("m1", 1)
    answer = coordinator.beat("m1", 1, owned=listed(KEPT))
    assert (answer.member_epoch, answer.assignment) == (2, None)
    assert coordinator.state.members["m1"].pending == {}
    answer = coordinator.beat("m2", 2)
    assert (answer.member_epoch, answer.assignment) == (2, MOVING)
    assert coordinator.state.state is GroupState.STABLE


def test_a_member_that_holds_less_than_it_was_assigned_goes_straight_on(coordinator: Coordinator) -> None:
    answer = coordinator.beat("m1", 1, owned=listed(parts(a=[0])))
    assert (answer.member_epoch, answer.assignment) == (2, KEPT)


def test_a_waiting_member_takes_what_comes_free_bit_by_bit() -> None:
    coordinator = Coordinator(topics={"a": 6})
    coordinator.join("m1")
    coordinator.join("m2")
    coordinator.beat("m1", 1)
    coordinator.beat("m1", 1, owned=listed(parts(a=[0, 1, 2])))
    assert coordinator.beat("m2", 2).assignment == parts(a=[3, 4, 5])
    coordinator.join("m3")
    target = coordinator.state.members["m3"].target
    assert target == parts(a=[2, 5])
    coordinator.beat("m1", 2)
    coordinator.beat("m1", 2, owned=listed(parts(a=[0, 1])))
    assert coordinator.beat("m3", 3).assignment == parts(a=[2])
    assert coordinator.state.members["m3"].state is MemberState.UNRELEASED
    coordinator.beat("m2", 2)
    coordinator.beat("m2", 2, owned=listed(parts(a=[3, 4])))
    assert coordinator.beat("m3", 3).assignment == parts(a=[2, 5])
    assert coordinator.state.state is GroupState.STABLE


def test_a_member_revokes_only_what_its_newest_target_takes(coordinator: Coordinator) -> None:
    """m2 goes before m1 was told anything: there is nothing to give up any more."""
    coordinator.send("m2", -1)
    answer = coordinator.beat("m1", 1)
    assert (answer.member_epoch, answer.assignment) == (3, None)
    assert coordinator.state.members["m1"].assigned == ALL


def test_a_member_told_to_give_up_gets_it_back_only_after_letting_go(coordinator: Coordinator) -> None:
    coordinator.beat("m1", 1)
    coordinator.send("m2", -1)
    answer = coordinator.beat("m1", 1)
    assert (answer.member_epoch, answer.assignment) == (1, None)
    assert coordinator.state.members["m1"].target == ALL
    answer = coordinator.beat("m1", 1, owned=listed(KEPT))
    assert (answer.member_epoch, answer.assignment) == (3, ALL)
    assert coordinator.state.members["m1"].state is MemberState.STABLE


def test_the_epoch_before_is_kept_for_one_lost_answer(coordinator: Coordinator) -> None:
    coordinator.beat("m1", 1)
    coordinator.beat("m1", 1, owned=listed(KEPT))
    member = coordinator.state.members["m1"]
    assert (member.previous_epoch, member.epoch) == (1, 2)


class TestTheRebalanceTimer:
    def test_runs_from_when_the_member_is_told(self, coordinator: Coordinator) -> None:
        coordinator.beat("m1", 1, rebalance_timeout_ms=7_000)
        timer = coordinator.timers[TimerKind.REBALANCE, "m1"]
        assert (timer.at_ms, timer.member_epoch) == (coordinator.now_ms + 7_000, 1)

    def test_stops_when_the_member_let_go(self, coordinator: Coordinator) -> None:
        coordinator.beat("m1", 1)
        coordinator.beat("m1", 1, owned=listed(KEPT))
        assert (TimerKind.REBALANCE, "m1") not in coordinator.timers

    def test_removes_a_member_that_does_not_let_go(self, coordinator: Coordinator) -> None:
        coordinator.beat("m1", 1)
        result = coordinator.expire(TimerKind.REBALANCE, "m1")
        assert result.persist
        assert list(coordinator.state.members) == ["m2"]
        assert coordinator.state.epoch == 3
        assert coordinator.beat("m2", 2).assignment == ALL

    def test_does_nothing_at_another_epoch(self, coordinator: Coordinator) -> None:
        coordinator.beat("m1", 1)
        timer = coordinator.timers[TimerKind.REBALANCE, "m1"]
        coordinator.beat("m1", 1, owned=listed(KEPT))
        coordinator.timers[TimerKind.REBALANCE, "m1"] = timer
        before = coordinator.group
        assert not coordinator.expire(TimerKind.REBALANCE, "m1").persist
        assert coordinator.group is before

    def test_is_left_alone_by_a_heartbeat_that_changes_nothing(self, coordinator: Coordinator) -> None:
        coordinator.beat("m1", 1)
        timer = coordinator.timers[TimerKind.REBALANCE, "m1"]
        coordinator.now_ms += 100
        coordinator.beat("m1", 1)
        assert coordinator.timers[TimerKind.REBALANCE, "m1"] == timer
