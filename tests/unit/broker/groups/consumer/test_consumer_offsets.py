"""Who may commit and fetch, what may be deleted or converted, and what Describe shows."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.consumer.harness import Coordinator, listed, parts, topic

from dray.broker.groups.consumer import (
    GroupState,
    Refusal,
    classic_join_fault,
    commit_fault,
    deletion_fault,
    description_of,
    fetch_fault,
    heartbeat_to_classic_fault,
    is_subscribed,
)
from dray.kafka.protocol import ErrorCode


@pytest.fixture
def coordinator() -> Coordinator:
    coordinator = Coordinator()
    coordinator.join("m1")
    return coordinator


def code(fault: Refusal | None) -> ErrorCode:
    return ErrorCode.NONE if fault is None else fault.error


@pytest.mark.parametrize(
    ("member_id", "epoch", "version", "expected"),
    [
        ("m1", 1, 9, ErrorCode.NONE),
        ("m1", 1, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("m1", 0, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", 2, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", -1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("m2", 1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m2", 1, 8, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits(
    coordinator: Coordinator, member_id: str, epoch: int, version: int, expected: ErrorCode
) -> None:
    assert code(commit_fault(coordinator.state, member_id, epoch, version)) is expected


@pytest.mark.parametrize("version", [2, 9])
def test_commits_of_an_administrator_need_an_empty_group(coordinator: Coordinator, version: int) -> None:
    coordinator.beat("m1", -1)
    assert commit_fault(coordinator.state, "", -1, version) is None
    assert code(commit_fault(coordinator.state, "m1", 1, version)) is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member_id", "epoch", "expected"),
    [
        (None, -1, ErrorCode.NONE),
        ("m1", 1, ErrorCode.NONE),
        ("m1", 0, ErrorCode.STALE_MEMBER_EPOCH),
        ("m1", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("m2", 1, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 1, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_fetches(coordinator: Coordinator, member_id: str | None, epoch: int, expected: ErrorCode) -> None:
    assert code(fetch_fault(coordinator.state, member_id, epoch)) is expected


def test_only_an_empty_group_is_deleted(coordinator: Coordinator) -> None:
    assert code(deletion_fault(coordinator.state)) is ErrorCode.NON_EMPTY_GROUP
    coordinator.beat("m1", -1)
    assert deletion_fault(coordinator.state) is None


def test_subscribed_topics_are_those_named_and_those_a_pattern_stands_for() -> None:
    coordinator = Coordinator(topics={"a": 1, "b": 1, "c": 1})
    coordinator.join("m1", "a", topic_regex="[bx]")
    assert not is_subscribed(coordinator.state, "b")
    coordinator.resolve(bx="b")
    assert [is_subscribed(coordinator.state, name) for name in "abc"] == [True, True, False]


def test_only_an_empty_group_becomes_classic(coordinator: Coordinator) -> None:
    assert code(classic_join_fault(coordinator.state)) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    coordinator.beat("m1", -1)
    assert classic_join_fault(coordinator.state) is None


def test_only_an_empty_classic_group_becomes_a_consumer_group_and_only_by_joining() -> None:
    assert heartbeat_to_classic_fault("g", 0, is_empty=True) is None
    for epoch, is_empty in ((0, False), (1, True), (-1, True)):
        fault = heartbeat_to_classic_fault("g", epoch, is_empty=is_empty)
        assert code(fault) is ErrorCode.GROUP_ID_NOT_FOUND


def test_the_description() -> None:
    coordinator = Coordinator(topics={"a": 2, "b": 2})
    coordinator.join("m2", "b", "a", instance_id="i2", rack_id="r2", server_assignor="range")
    coordinator.join("m1", "a", client_id="one", client_host="/10.0.0.1")
    described = description_of(coordinator.state, coordinator.view(), coordinator.settings)
    assert (described.group_id, described.state, described.assignor_name) == (
        "group",
        GroupState.RECONCILING,
        "range",
    )
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    first, second = described.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("m1", None, None, 2)
    assert (first.client_id, first.client_host) == ("one", "/10.0.0.1")
    assert (first.topic_names, first.topic_regex) == (("a",), "")
    assert (first.assignment, first.target_assignment) == ((), ((topic("a"), "a", (1,)),))
    assert (second.member_id, second.instance_id, second.rack_id, second.member_epoch) == (
        "m2",
        "i2",
        "r2",
        1,
    )
    assert second.topic_names == ("a", "b")
    assert second.assignment == ((topic("a"), "a", (0, 1)), (topic("b"), "b", (0, 1)))
    assert second.target_assignment == ((topic("a"), "a", (0,)), (topic("b"), "b", (0, 1)))


def test_the_description_leaves_out_topics_that_are_gone() -> None:
    coordinator = Coordinator(topics={"a": 1, "b": 1})
    coordinator.join("m1", "a", "b")
    coordinator.set_topics(b=1)
    described = description_of(coordinator.state, coordinator.view(), coordinator.settings)
    assert described.members[0].assignment == ((topic("b"), "b", (0,)),)


def test_the_states_of_a_group() -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    assert coordinator.state.state is GroupState.STABLE
    coordinator.join("m2")
    assert coordinator.state.state is GroupState.RECONCILING
    coordinator.beat("m1", 1)
    coordinator.beat("m1", 1, owned=listed(parts(a=[0, 1])))
    coordinator.beat("m2", 2)
    assert coordinator.state.state is GroupState.STABLE
    coordinator.beat("m1", -1)
    assert coordinator.state.state is GroupState.ASSIGNING
    coordinator.beat("m2", -1)
    assert coordinator.state.state is GroupState.EMPTY
    assert {state.value for state in GroupState} == {"Empty", "Assigning", "Reconciling", "Stable", "Dead"}
