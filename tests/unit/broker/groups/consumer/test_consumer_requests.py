"""What a heartbeat must not say, who is fenced, and what an answer carries."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.unit.broker.groups.consumer.harness import Coordinator, listed, parts, topic

from dray.broker.groups.consumer import ConsumerGroupSettings, HeartbeatAnswer
from dray.kafka.protocol import ErrorCode

JOINING: dict[str, Any] = {"rebalance_timeout_ms": 1000, "topic_names": ["a"], "owned": []}


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields"),
    [
        pytest.param("m1", 0, {**JOINING, "group_id": ""}, id="no group id"),
        pytest.param("m1", 0, {**JOINING, "group_id": "  "}, id="a blank group id"),
        pytest.param("m1", 0, {**JOINING, "instance_id": ""}, id="an empty instance id"),
        pytest.param("m1", 0, {**JOINING, "rack_id": " "}, id="a blank rack id"),
        pytest.param("", 0, JOINING, id="no member id in version 1"),
        pytest.param("", 1, {"version": 0}, id="no member id in a later request"),
        pytest.param("", -1, {"version": 0}, id="no member id when leaving"),
        pytest.param("m1", -3, {}, id="an epoch below -2"),
        pytest.param("m1", -2, {}, id="leaving for a while without an instance id"),
        pytest.param(
            "m1", 0, {**JOINING, "rebalance_timeout_ms": -1}, id="joining without a rebalance timeout"
        ),
        pytest.param("m1", 0, {**JOINING, "owned": None}, id="joining without saying what is owned"),
        pytest.param("m1", 0, {**JOINING, "owned": [(topic("a"), [0])]}, id="joining with partitions"),
        pytest.param("m1", 0, {**JOINING, "topic_names": None}, id="joining without a subscription"),
    ],
)
def test_invalid_requests(member_id: str, epoch: int, fields: dict[str, Any]) -> None:
    coordinator = Coordinator()
    result = coordinator.send(member_id, epoch, **fields)
    assert coordinator.refused(result) is ErrorCode.INVALID_REQUEST
    assert coordinator.group is None


def test_a_member_may_join_with_an_empty_list_of_topics() -> None:
    coordinator = Coordinator()
    answer = coordinator.accepted(coordinator.send("m1", 0, **{**JOINING, "topic_names": []}))
    assert (answer.member_epoch, answer.assignment) == (1, {})


def test_version_0_members_get_the_id_that_the_caller_made() -> None:
    coordinator = Coordinator()
    answer = coordinator.accepted(coordinator.send("", 0, version=0, fresh_member_id="made", **JOINING))
    assert answer.member_id == "made"
    assert list(coordinator.state.members) == ["made"]


def test_an_unknown_assignor_is_refused() -> None:
    coordinator = Coordinator()
    refused = coordinator.try_join("m1", server_assignor="sticky")
    assert coordinator.refused(refused) is ErrorCode.UNSUPPORTED_ASSIGNOR
    only_range = Coordinator(settings=ConsumerGroupSettings(assignors=("range",)))
    refused = only_range.try_join("m1", server_assignor="uniform")
    assert only_range.refused(refused) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_a_full_group_takes_nobody_else() -> None:
    coordinator = Coordinator(settings=ConsumerGroupSettings(largest_group=1))
    coordinator.join("m1")
    assert coordinator.refused(coordinator.try_join("m2")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    coordinator.beat("m1", 1)
    coordinator.join("m1")


@pytest.mark.parametrize("epoch", [1, -1, -2])
def test_only_joining_makes_a_group(epoch: int) -> None:
    coordinator = Coordinator()
    refused = coordinator.send("m1", epoch, instance_id="i1" if epoch == -2 else None)
    assert coordinator.refused(refused) is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.group is None


@pytest.mark.parametrize("epoch", [1, -1])
def test_only_joining_makes_a_member(epoch: int) -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    assert coordinator.refused(coordinator.send("m2", epoch)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_epoch_ahead_is_fenced() -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    assert coordinator.refused(coordinator.send("m1", 2)) is ErrorCode.FENCED_MEMBER_EPOCH


class TestAnEpochBehind:
    @pytest.fixture
    def coordinator(self) -> Coordinator:
        """A member at epoch 3, before at 1; its last answer gave it a-1 back."""
        coordinator = Coordinator(topics={"a": 2})
        coordinator.join("m1")
        coordinator.join("m2")
        coordinator.beat("m1", 1, owned=listed(parts(a=[0, 1])))
        coordinator.beat("m1", 1, owned=listed(parts(a=[0])))
        coordinator.send("m2", -1)
        assert coordinator.beat("m1", 2).member_epoch == 3
        return coordinator

    def test_is_a_lost_answer_if_it_is_the_previous_one_and_nothing_else_is_owned(
        self, coordinator: Coordinator
    ) -> None:
        for owned in (parts(a=[0]), parts(a=[0, 1]), {}):
            answer = coordinator.beat("m1", 2, owned=listed(owned))
            assert answer.member_epoch == 3
        assert coordinator.state.members["m1"].epoch == 3

    def test_hears_its_assignment_again_in_a_full_request(self, coordinator: Coordinator) -> None:
        answer = coordinator.beat(
            "m1", 2, owned=listed(parts(a=[0])), rebalance_timeout_ms=60_000, topic_names=["a"]
        )
        assert answer.assignment == parts(a=[0, 1])

    def test_is_fenced_without_the_owned_partitions(self, coordinator: Coordinator) -> None:
        assert coordinator.refused(coordinator.send("m1", 2)) is ErrorCode.FENCED_MEMBER_EPOCH

    def test_is_fenced_with_partitions_it_should_not_have(self, coordinator: Coordinator) -> None:
        wrong: list[tuple[UUID, list[int]]] = [(topic("a"), [0, 2]), (topic("b"), [0]), (topic("b"), [])]
        for one in wrong:
            owned = [one]
            refused = coordinator.send("m1", 2, owned=owned)
            assert coordinator.refused(refused) is ErrorCode.FENCED_MEMBER_EPOCH

    def test_is_fenced_if_it_is_older(self, coordinator: Coordinator) -> None:
        refused = coordinator.send("m1", 1, owned=listed(parts(a=[0])))
        assert coordinator.refused(refused) is ErrorCode.FENCED_MEMBER_EPOCH


def test_epoch_0_is_a_new_start_for_a_known_member() -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    coordinator.join("m2")
    epoch = coordinator.state.members["m2"].epoch
    answer = coordinator.join("m2")
    assert answer.member_epoch == epoch
    assert answer.assignment == coordinator.state.members["m2"].assigned
    assert coordinator.state.epoch == 2, (
        "the same member with the same subscription is no reason for an epoch"
    )


def test_the_answer_to_a_join() -> None:
    coordinator = Coordinator()
    assert coordinator.join("m1") == HeartbeatAnswer("m1", 1, 5_000, parts(a=[0, 1, 2, 3]))


def test_the_heartbeat_interval_is_the_groups_own() -> None:
    coordinator = Coordinator(settings=ConsumerGroupSettings().for_group(heartbeat_interval_ms=9_000))
    assert coordinator.join("m1").heartbeat_interval_ms == 9_000


def test_the_assignment_is_left_out_where_the_member_knows_it() -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    assert coordinator.beat("m1", 1).assignment is None
    assert coordinator.beat("m1", 1, owned=listed(parts(a=[0, 1, 2, 3]))).assignment is None


@pytest.mark.parametrize(
    ("fields", "is_full"),
    [
        ({"rebalance_timeout_ms": 60_000, "topic_names": ["a"], "owned": []}, True),
        ({"rebalance_timeout_ms": 60_000, "topic_regex": "", "owned": []}, True),
        ({"rebalance_timeout_ms": 60_000, "topic_names": ["a"]}, False),
        ({"rebalance_timeout_ms": 60_000, "owned": []}, False),
        ({"topic_names": ["a"], "owned": []}, False),
    ],
)
def test_a_full_request_gets_the_assignment(fields: dict[str, Any], is_full: bool) -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    answer = coordinator.beat("m1", 1, **fields)
    assert answer.assignment == (parts(a=[0, 1, 2, 3]) if is_full else None)


def test_a_heartbeat_that_changes_nothing_is_not_stored_and_keeps_the_very_state() -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    before = coordinator.group
    result = coordinator.send("m1", 1)
    assert not result.persist
    assert coordinator.group is before


@pytest.mark.parametrize(
    "fields",
    [
        {"client_id": "other"},
        {"client_host": "/127.0.0.2"},
        {"rack_id": "r1"},
        {"rebalance_timeout_ms": 5},
        {"server_assignor": "range"},
        {"topic_names": ["b"]},
        {"topic_regex": "b.*"},
    ],
)
def test_what_a_member_says_anew_is_stored(fields: dict[str, Any]) -> None:
    coordinator = Coordinator()
    coordinator.join("m1")
    assert coordinator.send("m1", 1, **fields).persist
    assert not coordinator.send("m1", coordinator.state.members["m1"].epoch, **fields).persist


def test_a_member_names_no_more_topics_than_kafka_could_store() -> None:
    coordinator = Coordinator()
    refused = coordinator.try_join("m1", *["x" * 249] * 4_200)
    assert coordinator.refused(refused) is ErrorCode.INVALID_REQUEST
    coordinator.join("m1", *["x" * 249] * 4_100)
    refused = coordinator.send("m1", 1, topic_names=["x" * 249] * 4_200)
    assert coordinator.refused(refused) is ErrorCode.INVALID_REQUEST
