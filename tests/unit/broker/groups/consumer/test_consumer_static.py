"""Static members: gone for a while, back under another id, and those who come for another's place."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.consumer.harness import Coordinator, listed, parts

from dray.broker.groups.consumer import (
    ConsumerGroupSettings,
    GroupState,
    MemberState,
    RemovalAnswer,
    RemoveMembers,
    TimerKind,
    timers_after_load,
)
from dray.kafka.protocol import ErrorCode

ALL = parts(a=[0, 1, 2, 3])


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.join("m1", instance_id="i1")
    return coordinator


def go_away(coordinator: Coordinator, member_id: str = "m1", instance_id: str = "i1") -> None:
    answer = coordinator.beat(member_id, -2, instance_id=instance_id)
    assert answer == (member_id, -2, 0, None)


def test_one_that_is_away_keeps_its_partitions(coordinator: Coordinator) -> None:
    go_away(coordinator)
    member = coordinator.state.members["m1"]
    assert (member.epoch, member.assigned, member.target) == (-2, ALL, ALL)
    assert coordinator.state.epoch == 1
    assert coordinator.state.state is GroupState.RECONCILING


def test_going_away_twice_is_stored_once(coordinator: Coordinator) -> None:
    assert coordinator.send("m1", -2, instance_id="i1").persist
    assert not coordinator.send("m1", -2, instance_id="i1").persist


def test_it_comes_back_under_another_id_with_all_it_had_and_without_an_epoch(
    coordinator: Coordinator,
) -> None:
    go_away(coordinator)
    answer = coordinator.join("m2", instance_id="i1")
    assert answer == ("m2", 1, 5_000, ALL)
    assert list(coordinator.state.members) == ["m2"]
    assert coordinator.state.epoch == 1
    assert coordinator.state.members["m2"].previous_epoch == 0
    assert coordinator.timers.keys() == {(TimerKind.SESSION, "m2")}


def test_it_may_come_back_under_the_same_id(coordinator: Coordinator) -> None:
    go_away(coordinator)
    answer = coordinator.join("m1", instance_id="i1")
    assert (answer.member_epoch, answer.assignment) == (1, ALL)
    assert coordinator.state.members["m1"].previous_epoch == 0
    assert coordinator.state.state is GroupState.STABLE


def test_it_comes_back_with_another_subscription(coordinator: Coordinator) -> None:
    coordinator.set_topics(a=4, b=1)
    go_away(coordinator)
    answer = coordinator.join("m2", "b", instance_id="i1")
    assert (answer.member_epoch, answer.assignment) == (2, parts(b=[0]))


def test_its_target_may_have_changed_while_it_was_away(coordinator: Coordinator) -> None:
    go_away(coordinator)
    coordinator.join("m2")
    assert coordinator.state.members["m2"].state is MemberState.UNRELEASED
    answer = coordinator.join("m3", instance_id="i1")
    assert (answer.member_epoch, answer.assignment) == (2, parts(a=[0, 1]))
    assert coordinator.beat("m2", 2).assignment == parts(a=[2, 3])


def test_it_lets_go_of_what_it_was_to_give_up_when_it_goes(coordinator: Coordinator) -> None:
    coordinator.join("m2")
    coordinator.beat("m1", 1, instance_id="i1")
    assert (TimerKind.REBALANCE, "m1") in coordinator.timers
    go_away(coordinator)
    assert (TimerKind.REBALANCE, "m1") not in coordinator.timers
    assert coordinator.beat("m2", 2).assignment == parts(a=[2, 3])
    answer = coordinator.join("m1", instance_id="i1")
    assert (answer.member_epoch, answer.assignment) == (2, parts(a=[0, 1]))


def test_its_session_goes_on_and_ends_it(coordinator: Coordinator) -> None:
    coordinator.join("m2")
    deadline = coordinator.timers[TimerKind.SESSION, "m1"].at_ms
    coordinator.now_ms += 10
    go_away(coordinator)
    assert coordinator.timers[TimerKind.SESSION, "m1"].at_ms == deadline
    coordinator.expire(TimerKind.SESSION, "m1")
    assert list(coordinator.state.members) == ["m2"]
    assert coordinator.state.static == {}
    assert coordinator.beat("m2", 2).assignment == ALL


def test_it_has_nothing_left_to_give_up_for_the_next_coordinator_either(coordinator: Coordinator) -> None:
    coordinator.join("m2")
    coordinator.beat("m1", 1, instance_id="i1")
    go_away(coordinator)
    timers = timers_after_load(coordinator.state, 0, coordinator.settings)
    assert [timer[0] for timer in timers] == [TimerKind.SESSION, TimerKind.SESSION]


@pytest.mark.parametrize("member_id", ["m1", "m2"])
def test_nobody_takes_the_place_of_one_that_is_there(coordinator: Coordinator, member_id: str) -> None:
    refused = coordinator.try_join(member_id, instance_id="i1")
    assert coordinator.refused(refused) is ErrorCode.UNRELEASED_INSTANCE_ID


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_whoever_lost_its_place_is_fenced(coordinator: Coordinator, epoch: int) -> None:
    go_away(coordinator)
    coordinator.join("m2", instance_id="i1")
    refused = coordinator.send("m1", epoch, instance_id="i1")
    assert coordinator.refused(refused) is ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_an_instance_id_that_nobody_has_is_unknown(coordinator: Coordinator, epoch: int) -> None:
    refused = coordinator.send("m1", epoch, instance_id="i2")
    assert coordinator.refused(refused) is ErrorCode.UNKNOWN_MEMBER_ID


def test_one_that_is_away_is_fenced_until_it_joins(coordinator: Coordinator) -> None:
    go_away(coordinator)
    refused = coordinator.send("m1", 1, instance_id="i1")
    assert coordinator.refused(refused) is ErrorCode.FENCED_MEMBER_EPOCH


def test_its_epoch_is_checked_like_any_others(coordinator: Coordinator) -> None:
    refused = coordinator.send("m1", 2, instance_id="i1")
    assert coordinator.refused(refused) is ErrorCode.FENCED_MEMBER_EPOCH


def test_it_can_leave_for_good(coordinator: Coordinator) -> None:
    answer = coordinator.beat("m1", -1, instance_id="i1")
    assert answer == ("m1", -1, 0, None)
    assert coordinator.state.members == {}
    assert coordinator.state.static == {}


def test_a_full_group_has_no_room_for_one_that_comes_back_under_another_id() -> None:
    coordinator = Coordinator(settings=ConsumerGroupSettings(largest_group=1))
    coordinator.join("m1", instance_id="i1")
    go_away(coordinator)
    refused = coordinator.try_join("m2", instance_id="i1")
    assert coordinator.refused(refused) is ErrorCode.GROUP_MAX_SIZE_REACHED
    coordinator.join("m1", instance_id="i1")


def test_a_member_that_takes_anothers_place_under_its_own_id_leaves_nothing_to_nobody(
    coordinator: Coordinator,
) -> None:
    """No client does this. It must not leave partitions that no target has, or a pattern that nobody uses."""
    coordinator.join("m2", "a", topic_regex="[z]")
    coordinator.beat("m1", 1, instance_id="i1")
    coordinator.beat("m1", 1, instance_id="i1", owned=listed(parts(a=[0, 1])))
    coordinator.beat("m2", 2)
    go_away(coordinator)
    answer = coordinator.join("m2", instance_id="i1")
    assert answer.assignment == ALL
    assert list(coordinator.state.members) == ["m2"]
    assert coordinator.state.patterns == {}
    assert coordinator.state.state is GroupState.STABLE


class TestRemovalByAnAdministrator:
    @pytest.fixture
    def coordinator(self) -> Coordinator:
        coordinator = Coordinator()
        coordinator.join("m1", instance_id="i1")
        coordinator.join("m2")
        return coordinator

    def remove(self, coordinator: Coordinator, *members: tuple[str, str | None]) -> tuple[ErrorCode, ...]:
        answer = coordinator.handle(RemoveMembers(members)).answer
        assert isinstance(answer, RemovalAnswer)
        return answer.errors

    def test_by_instance_id_alone(self, coordinator: Coordinator) -> None:
        assert self.remove(coordinator, ("", "i1")) == (ErrorCode.NONE,)
        assert list(coordinator.state.members) == ["m2"]

    def test_of_many_is_one_epoch(self, coordinator: Coordinator) -> None:
        assert self.remove(coordinator, ("m1", "i1"), ("m2", None), ("m2", None)) == (ErrorCode.NONE,) * 3
        assert coordinator.state.members == {}
        assert coordinator.state.epoch == 3
        assert coordinator.timers == {}

    def test_answers_for_each(self, coordinator: Coordinator) -> None:
        errors = self.remove(coordinator, ("", "i9"), ("m9", "i1"), ("m9", None))
        assert errors == (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.FENCED_INSTANCE_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        )
        assert coordinator.state.epoch == 2

    def test_from_no_group(self) -> None:
        assert self.remove(Coordinator(), ("m1", None)) == (ErrorCode.UNKNOWN_MEMBER_ID,)
