"""Heartbeats that come together: one run of the assignor serves them all, each is answered as by itself."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from tests.unit.broker.groups.consumer.harness import Coordinator, first_heartbeat, heartbeat, listed, parts

from dray.broker.groups.assignors import ASSIGNORS
from dray.broker.groups.consumer import (
    Answer,
    ConsumerGroupSettings,
    Heartbeat,
    HeartbeatAnswer,
    Refusal,
    TimerKind,
    count_together,
)
from dray.kafka.protocol import ErrorCode


def codes(answers: list[Answer]) -> list[ErrorCode]:
    return [answer.error if isinstance(answer, Refusal) else ErrorCode.NONE for answer in answers]


def assigned(answer: Answer) -> Any:
    assert isinstance(answer, HeartbeatAnswer)
    return answer.assignment


def test_a_group_founded_by_many_is_assigned_once() -> None:
    coordinator = Coordinator()
    runs = 0
    uniform = ASSIGNORS["uniform"]

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal runs
        runs += 1
        return uniform(*arguments, **named)

    with patch.dict(ASSIGNORS, {"uniform": counted}):
        answers = coordinator.handle_together([first_heartbeat(f"m{number}") for number in range(4)])
    assert runs == 1
    assert [assigned(answer) for answer in answers] == [parts(a=[number]) for number in range(4)]
    assert {answer.member_epoch for answer in answers if isinstance(answer, HeartbeatAnswer)} == {4}
    assert (coordinator.state.epoch, coordinator.state.assignment_epoch) == (4, 4), "each join is an epoch"
    assert coordinator.writes == 1
    assert set(coordinator.timers) == {(TimerKind.SESSION, f"m{number}") for number in range(4)}


def test_members_that_hold_and_members_that_come() -> None:
    coordinator = Coordinator()
    first = coordinator.join("m1")
    held = listed(parts(a=[0, 1, 2, 3]))
    answers = coordinator.handle_together(
        [heartbeat("m1", first.member_epoch, owned=held), first_heartbeat("m2"), first_heartbeat("m3")]
    )
    assert assigned(answers[0]) == parts(a=[0, 1])  # it is told to give up the rest, for both
    assert [assigned(answer) for answer in answers[1:]] == [{}, {}], "nobody gets what is not given up"
    assert (TimerKind.REBALANCE, "m1") in coordinator.timers


def test_a_refused_heartbeat_leaves_no_trace_among_others() -> None:
    coordinator = Coordinator(settings=ConsumerGroupSettings(largest_group=2))
    answers = coordinator.handle_together(
        [
            heartbeat("stranger", 7),
            first_heartbeat("m1"),
            first_heartbeat("no-timeout", rebalance_timeout_ms=-1),
            first_heartbeat("bad-pattern", topic_regex="(", regex_fault="unclosed"),
            heartbeat("m9", 3),
            first_heartbeat("m2"),
            first_heartbeat("one-too-many"),
        ]
    )
    assert codes(answers) == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert set(coordinator.state.members) == {"m1", "m2"}
    assert coordinator.state.epoch == 2


def test_refused_all_together() -> None:
    coordinator = Coordinator()
    answers = coordinator.handle_together([heartbeat("m1", 3), heartbeat("m2", 3)])
    assert codes(answers) == [ErrorCode.GROUP_ID_NOT_FOUND] * 2
    assert coordinator.group is None
    first = coordinator.join("m1")
    coordinator.send("m2", -1)
    writes = coordinator.writes
    answers = coordinator.handle_together([heartbeat("m8", 3), heartbeat("m9", 3)])
    assert codes(answers) == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert coordinator.writes == writes
    assert coordinator.state.members["m1"].epoch == first.member_epoch


def test_heartbeats_that_change_nothing_together_are_not_stored() -> None:
    coordinator = Coordinator()
    coordinator.handle_together([first_heartbeat("m1"), first_heartbeat("m2")])
    writes = coordinator.writes
    answers = coordinator.handle_together([heartbeat("m1", 2), heartbeat("m2", 2)])
    assert [assigned(answer) for answer in answers] == [None, None]
    assert coordinator.writes == writes


STATIC = {"instance_id": "i1"}


@pytest.mark.parametrize(
    ("beats", "together"),
    [
        ([first_heartbeat("m1"), first_heartbeat("m2"), heartbeat("m0", 1)], 3),
        ([first_heartbeat("m1"), first_heartbeat("m2"), first_heartbeat("m1")], 2),
        ([heartbeat("m0", 1), heartbeat("m0", 1)], 1),
        ([first_heartbeat("m1"), heartbeat("m0", -1), first_heartbeat("m2")], 1),
        ([heartbeat("m0", -1), first_heartbeat("m2")], 1),
        ([first_heartbeat("m1", **STATIC), first_heartbeat("m2", **STATIC)], 1),
        ([first_heartbeat("m1", **STATIC), first_heartbeat("m2", instance_id="i2")], 2),
        ([heartbeat("m0", 1), first_heartbeat("m2", instance_id="static")], 1),
        ([first_heartbeat("m2", instance_id="static"), heartbeat("m0", 1)], 1),
        ([heartbeat("s", 1, instance_id="static"), heartbeat("m0", 1)], 2),
        (
            [
                first_heartbeat("", version=0, fresh_member_id="x"),
                first_heartbeat("", version=0, fresh_member_id="y"),
            ],
            2,
        ),
    ],
    ids=[
        "different members",
        "a member twice",
        "a member twice at once",
        "one leaves",
        "one leaves first",
        "an instance id twice",
        "two instance ids",
        "one comes for an instance id",
        "one comes for an instance id first",
        "a static member at work",
        "ids made by the broker",
    ],
)
def test_who_can_be_served_together(beats: list[Heartbeat], together: int) -> None:
    coordinator = Coordinator()
    coordinator.join("m0")
    coordinator.join("s", instance_id="static")
    assert count_together(coordinator.group, beats) == together


def test_who_can_found_a_group_together() -> None:
    assert count_together(None, [first_heartbeat("m1"), first_heartbeat("m2", instance_id="i")]) == 2


def test_a_static_member_is_replaced_among_others() -> None:
    coordinator = Coordinator()
    coordinator.join("s", instance_id="static")
    coordinator.join("m0")
    coordinator.send("s", -2, instance_id="static")
    answers = coordinator.handle_together(
        [
            heartbeat("m0", coordinator.state.members["m0"].epoch),
            first_heartbeat("s2", instance_id="static"),
            heartbeat("s", 1),
        ]
    )
    assert codes(answers) == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert set(coordinator.state.members) == {"m0", "s2"}


def test_a_pattern_is_resolved_once_for_all_who_bring_it() -> None:
    coordinator = Coordinator()
    coordinator.handle_together([first_heartbeat(f"m{number}", topic_regex="[ab]") for number in range(3)])
    assert coordinator.asked is not None
    assert coordinator.asked.patterns == {"[ab]"}
