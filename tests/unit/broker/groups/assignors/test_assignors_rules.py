"""Each rule of the assignors by an example: the results are Kafka's, up to who of equals gets which."""

from __future__ import annotations

from uuid import UUID

from dray.broker.groups.assignors import ASSIGNORS, NOTHING, Assignment, MemberSubscription

A, B, C = (UUID(int=number) for number in (1, 2, 3))


def assigned(**topics: list[int]) -> Assignment:
    ids = {"a": A, "b": B, "c": C}
    return {ids[name]: frozenset(partitions) for name, partitions in topics.items()}


def member(*topics: UUID, instance: str | None = None, previous: Assignment = NOTHING) -> MemberSubscription:
    return MemberSubscription(frozenset(topics), instance, None, previous)


uniform = ASSIGNORS["uniform"]
range_ = ASSIGNORS["range"]


def test_nobody_gets_nothing() -> None:
    assert uniform({}, {}, same_subscription=True) == {}
    assert range_({}, {}, same_subscription=True) == {}


def test_nothing_subscribed_gives_nothing() -> None:
    for same in (True, False):
        assert uniform({"m": member()}, {}, same_subscription=same) == {"m": {}}
        assert range_({"m": member()}, {}, same_subscription=same) == {"m": {}}


def test_uniform_lets_go_of_topics_that_are_no_longer_asked_for() -> None:
    previous = assigned(a=[0, 1], b=[0])
    for same in (True, False):
        targets = uniform({"m": member(A, previous=previous)}, {A: 2}, same_subscription=same)
        assert targets == {"m": assigned(a=[0, 1])}


def test_uniform_hands_out_in_order() -> None:
    targets = uniform({"m1": member(A), "m2": member(A), "m3": member(A)}, {A: 7}, same_subscription=True)
    assert targets == {"m1": assigned(a=[0, 1]), "m2": assigned(a=[2, 3]), "m3": assigned(a=[4, 5, 6])}


def test_uniform_leaves_the_extra_partition_with_whoever_has_it() -> None:
    had = {"m1": assigned(a=[0]), "m2": assigned(a=[1, 2])}
    targets = uniform(
        {member_id: member(A, previous=previous) for member_id, previous in had.items()},
        {A: 3},
        same_subscription=True,
    )
    assert targets == had


def test_uniform_forces_the_extra_on_the_last_members_that_can_take_it() -> None:
    had = {"m1": assigned(a=[0]), "m2": assigned(a=[1])}
    targets = uniform(
        {member_id: member(A, previous=previous) for member_id, previous in had.items()},
        {A: 3},
        same_subscription=True,
    )
    assert targets == {"m1": assigned(a=[0]), "m2": assigned(a=[1, 2])}


def test_uniform_takes_what_is_over_the_quota_from_the_end() -> None:
    targets = uniform(
        {"m1": member(A, previous=assigned(a=[0, 1, 2, 3])), "m2": member(A)}, {A: 4}, same_subscription=True
    )
    assert targets == {"m1": assigned(a=[0, 1]), "m2": assigned(a=[2, 3])}


def test_uniform_mixed_gives_to_the_least_loaded_subscriber() -> None:
    targets = uniform({"m1": member(A), "m2": member(A, B)}, {A: 3, B: 2}, same_subscription=False)
    # b first, since it has more partitions per subscriber; then a evens the two out.
    assert targets == {"m1": assigned(a=[0, 1, 2]), "m2": assigned(b=[0, 1])}


def test_uniform_mixed_orders_equal_topics_by_fewer_subscribers_and_then_by_signed_id() -> None:
    low = UUID(int=1 << 127)  # as a signed number this is the smallest there is
    targets = uniform(
        {"m1": member(A, low), "m2": member(A, low), "m3": member()}, {A: 1, low: 1}, same_subscription=False
    )
    assert targets == {"m1": {low: frozenset([0])}, "m2": assigned(a=[0]), "m3": {}}
    targets = uniform(
        {"m1": member(B), "m2": member(A, B), "m3": member(A)}, {A: 2, B: 2}, same_subscription=False
    )
    assert targets == {"m1": assigned(b=[0, 1]), "m2": assigned(a=[0]), "m3": assigned(a=[1])}


def test_uniform_mixed_moves_from_the_most_to_the_least_loaded() -> None:
    targets = uniform(
        {
            "m1": member(A, B, previous=assigned(a=[0, 1, 2], b=[0, 1, 2])),
            "m2": member(A),
        },
        {A: 3, B: 3},
        same_subscription=False,
    )
    assert targets == {"m1": assigned(b=[0, 1, 2]), "m2": assigned(a=[0, 1, 2])}


def test_uniform_mixed_passes_over_a_heavy_member_with_nothing_of_the_topic_to_give() -> None:
    targets = uniform(
        {
            "m1": member(A, B, previous=assigned(b=[0, 1, 2, 3, 4])),
            "m2": member(A, previous=assigned(a=[0, 1, 2])),
            "m3": member(A),
        },
        {A: 3, B: 5},
        same_subscription=False,
    )
    assert targets == {"m1": assigned(b=[0, 1, 2, 3, 4]), "m2": assigned(a=[0, 1]), "m3": assigned(a=[2])}


def test_range_puts_static_members_first_by_instance_id() -> None:
    targets = range_(
        {"m1": member(A), "m2": member(A, instance="z"), "m3": member(A, instance="y")},
        {A: 4},
        same_subscription=True,
    )
    assert targets == {"m3": assigned(a=[0, 1]), "m2": assigned(a=[2]), "m1": assigned(a=[3])}


def test_range_cuts_each_topic_among_its_own_subscribers() -> None:
    targets = range_(
        {"m1": member(A, B), "m2": member(B, C), "m3": member(B)}, {A: 2, B: 4, C: 1}, same_subscription=False
    )
    assert targets == {
        "m1": assigned(a=[0, 1], b=[0, 1]),
        "m2": assigned(b=[2], c=[0]),
        "m3": assigned(b=[3]),
    }


def test_range_with_more_members_than_partitions_leaves_the_last_without() -> None:
    targets = range_({"m1": member(A), "m2": member(A), "m3": member(A)}, {A: 2}, same_subscription=True)
    assert targets == {"m1": assigned(a=[0]), "m2": assigned(a=[1]), "m3": {}}


def test_range_returns_the_previous_target_where_it_is_the_same() -> None:
    previous = assigned(a=[0, 1])
    targets = range_({"m1": member(A, previous=previous)}, {A: 2}, same_subscription=True)
    assert targets["m1"] is previous
