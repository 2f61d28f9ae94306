"""Classic groups as DescribeGroups and ListGroups show them, and the topics read out of their metadata."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.groups.classic.harness import DELAY_MS, Coordinator, protocols, subscription

from dray.broker.groups.classic import (
    ClassicGroupDescription,
    ClassicGroupListing,
    ClassicMemberDescription,
    GroupState,
    description_of,
    description_of_none,
    listing_of,
)
from dray.kafka.protocol import ErrorCode


def test_the_states_are_called_as_kafka_calls_them() -> None:
    assert [state.value for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]


def test_a_stable_group_shows_everything() -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, "static")
    description = description_of(coordinator.there)
    metadata = subscription("orders")
    assert description == ClassicGroupDescription(
        ErrorCode.NONE,
        "group",
        GroupState.STABLE,
        "consumer",
        "range",
        (
            ClassicMemberDescription(leader, None, "client", "/127.0.0.1", metadata, b"0"),
            ClassicMemberDescription(follower, "static", "client", "/127.0.0.1", metadata, b"1"),
        ),
    )


@pytest.mark.parametrize("state", [GroupState.PREPARING, GroupState.COMPLETING])
def test_a_group_in_a_rebalance_shows_who_is_in_but_no_metadata(state: GroupState) -> None:
    coordinator = Coordinator()
    leader, follower = coordinator.settle(None, None)
    coordinator.join(leader)
    if state is GroupState.COMPLETING:
        coordinator.join(follower)
    description = description_of(coordinator.there)
    assert (description.state, description.protocol_type, description.protocol_name) == (
        state,
        "consumer",
        "",
    )
    assert [(member.metadata, member.assignment) for member in description.members] == [
        (b"", b"0"),
        (b"", b"1"),
    ]


def test_an_empty_group_remembers_what_it_was() -> None:
    coordinator = Coordinator()
    coordinator.commit()
    assert description_of(coordinator.there) == ClassicGroupDescription(
        ErrorCode.NONE, "group", GroupState.EMPTY
    )
    coordinator.leave(*coordinator.settle(None))
    assert description_of(coordinator.there).protocol_type == "consumer"


def test_a_group_that_does_not_exist_is_dead_and_from_version_6_on_an_error() -> None:
    assert description_of_none("group", 5) == ClassicGroupDescription(
        ErrorCode.NONE, "group", GroupState.DEAD
    )
    assert description_of_none("group", 6).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_listing() -> None:
    coordinator = Coordinator()
    coordinator.commit()
    assert listing_of(coordinator.there) == ClassicGroupListing("group", "", GroupState.EMPTY, "classic")
    coordinator.settle(None)
    assert listing_of(coordinator.there) == ClassicGroupListing(
        "group", "consumer", GroupState.STABLE, "classic"
    )


# The topics that a group is subscribed to


def test_all_that_any_member_reads() -> None:
    coordinator = Coordinator()
    coordinator.join(version=3, using=protocols(topics=["a", "b"]))
    coordinator.join(version=3, using=protocols(topics=["b", "c"]))
    coordinator.advance(2 * DELAY_MS)
    assert coordinator.there.subscribed_topics == frozenset({"a", "b", "c"})


def test_one_list_of_topics_may_be_the_start_of_another() -> None:
    coordinator = Coordinator()
    for topics in (["a"], ["a", "b"], ["a"], ["aa"], []):
        coordinator.join(version=3, using=protocols(topics=topics))
    coordinator.advance(2 * DELAY_MS)
    assert coordinator.there.subscribed_topics == frozenset({"a", "aa", "b"})


@pytest.mark.parametrize("version", [0, 1, 2, 3, 99])
def test_subscriptions_of_every_version_are_read(version: int) -> None:
    coordinator = Coordinator()
    coordinator.enrol(None, using=[("range", subscription("a", version=version))])
    assert coordinator.there.subscribed_topics == frozenset({"a"})


def test_only_the_chosen_protocol_counts() -> None:
    coordinator = Coordinator()
    coordinator.enrol(None, using=[("range", subscription("a")), ("sticky", subscription("b"))])
    assert coordinator.there.subscribed_topics == frozenset({"a"})


def test_during_a_rebalance_the_last_generation_counts() -> None:
    coordinator = Coordinator()
    leader, _ = coordinator.settle(None, None)
    coordinator.join(leader, using=protocols(topics=["payments"]))
    assert coordinator.there.subscribed_topics == frozenset({"orders"})


GARBAGE = [
    b"",
    b"\0",
    b"\0\1",
    b"\0\1\x7f\xff\xff\xff",
    b"\0\1\0\0\0\1\0\5ab",
    b"\0\1\0\0\0\1\0\2\xff\xfe\0\0\0\0",
    b"\xff" * 20,
]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_cannot_be_read_counts_as_everything_and_breaks_nothing(garbage: bytes) -> None:
    coordinator = Coordinator()
    coordinator.join(version=3)
    coordinator.join(version=3, using=[("range", garbage)])
    coordinator.advance(2 * DELAY_MS)
    assert coordinator.state is GroupState.COMPLETING
    assert coordinator.there.subscribed_topics is None
    assert coordinator.there.is_subscribed_to("anything")


@pytest.mark.parametrize(
    ("members", "each", "is_read"), [(2, 49_000, True), (1, 100_001, False), (3, 40_000, False)]
)
def test_too_many_topics_of_a_group_are_not_read(members: int, each: int, is_read: bool) -> None:
    """Eight members of a megabyte each, all names of nothing, held the loop for a second."""
    coordinator = Coordinator()
    for number in range(members):
        metadata = struct.pack(">hi", 1, each + number) + bytes(2 * (each + number)) + struct.pack(">i", -1)
        coordinator.join(version=3, using=[("range", metadata)])
    coordinator.advance(2 * DELAY_MS)
    assert coordinator.state is GroupState.COMPLETING
    assert (coordinator.there.subscribed_topics is not None) == is_read


@given(st.binary(max_size=64))
def test_no_bytes_break_a_group(garbage: bytes) -> None:
    coordinator = Coordinator()
    (member,) = coordinator.settle(None, using=[("range", garbage)])
    coordinator.take_over()
    assert coordinator.beat(member) is ErrorCode.NONE


def test_other_protocol_types_are_not_read() -> None:
    coordinator = Coordinator()
    coordinator.settle(None, protocol_type="connect")
    assert coordinator.there.subscribed_topics is None
    assert not coordinator.there.is_subscribed_to("orders")
