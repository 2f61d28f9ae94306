"""What an assignor promises, on any group."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from tests.services.cpu import best_seconds

from dray.broker.groups.assignors import ASSIGNORS, NOTHING, Assignment, MemberSubscription

Pairs = set[tuple[UUID, int]]


def topic(number: int) -> UUID:
    """Ids whose order as signed halves is not their order as numbers."""
    return UUID(int=number | (1 << 127 if number % 2 else 0))


def pairs(assignment: Assignment) -> Pairs:
    return {(topic_id, partition) for topic_id, partitions in assignment.items() for partition in partitions}


def size(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


def run(
    name: str,
    subscriptions: Mapping[str, frozenset[UUID]],
    topics: Mapping[UUID, int],
    previous: Mapping[str, Assignment] | None = None,
    *,
    same: bool = False,
) -> dict[str, Assignment]:
    members = {
        member_id: MemberSubscription(asked, None, None, (previous or {}).get(member_id, NOTHING))
        for member_id, asked in subscriptions.items()
    }
    return ASSIGNORS[name](members, topics, same_subscription=same)


def check(
    targets: Mapping[str, Assignment],
    subscriptions: Mapping[str, frozenset[UUID]],
    topics: Mapping[UUID, int],
) -> None:
    """Every partition of a subscribed topic is with one member, which asked for it."""
    assert targets.keys() == subscriptions.keys()
    seen: Pairs = set()
    for member_id, target in targets.items():
        assert all(target.values()), "a topic without partitions"
        assert target.keys() <= subscriptions[member_id]
        assert not pairs(target) & seen
        seen |= pairs(target)
    wanted = frozenset[UUID]().union(*subscriptions.values())
    assert seen == {(topic_id, partition) for topic_id in wanted for partition in range(topics[topic_id])}


counts = st.dictionaries(st.integers(1, 6).map(topic), st.integers(1, 12), min_size=1, max_size=6)
member_ids = st.lists(st.text("abcdef", min_size=1, max_size=3), min_size=1, max_size=8, unique=True)


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, frozenset[UUID]], dict[UUID, int]]:
    topics = draw(counts)
    asked = st.frozensets(st.sampled_from(sorted(topics)))
    return {member_id: draw(asked) for member_id in draw(member_ids)}, topics


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@settings(deadline=None)
@given(group=groups(), grown=st.integers(0, 3), data=st.data())
def test_every_partition_has_one_taker_that_asked_for_it(
    name: str, group: tuple[dict[str, frozenset[UUID]], dict[UUID, int]], grown: int, data: st.DataObject
) -> None:
    subscriptions, topics = group
    first = run(name, subscriptions, topics)
    check(first, subscriptions, topics)
    assert run(name, subscriptions, topics, first) == first, "a second run moved something"
    larger = {topic_id: count + grown for topic_id, count in topics.items()}
    asked = st.frozensets(st.sampled_from(sorted(topics)))
    changed = {
        member_id: data.draw(st.just(topic_ids) | asked) for member_id, topic_ids in subscriptions.items()
    }
    check(run(name, changed, larger, first), changed, larger)


@settings(deadline=None)
@given(members=member_ids, topics=counts, joins=st.text("ghi", min_size=1, max_size=2))
def test_uniform_with_one_subscription_is_level_and_moves_the_least(
    members: list[str], topics: dict[UUID, int], joins: str
) -> None:
    asked = frozenset(topics)
    total = sum(topics.values())

    def settled(ids: list[str], previous: Mapping[str, Assignment] | None = None) -> dict[str, Assignment]:
        subscriptions = dict.fromkeys(ids, asked)
        targets = run("uniform", subscriptions, topics, previous, same=True)
        check(targets, subscriptions, topics)
        sizes = [size(target) for target in targets.values()]
        assert max(sizes) - min(sizes) <= 1
        return targets

    def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
        return sum(
            len(pairs(after[member_id]) - pairs(before[member_id]))
            for member_id in after
            if member_id in before
        )

    first = settled(members)
    again = settled(members, first)
    assert all(again[member_id] is first[member_id] for member_id in members), "unchanged, but not the same"
    more = settled([*members, joins], first)
    assert size(more[joins]) in (total // len(more), -(-total // len(more)))
    assert moved(first, more) == 0, "partitions moved between members that stayed"
    fewer = settled(members[1:], first) if members[1:] else {}
    if fewer:
        assert moved(first, fewer) == size(first[members[0]]), "more moved than was left behind"


@settings(deadline=None)
@given(group=groups())
def test_uniform_with_many_subscriptions_levels_the_subscribers_of_each_topic(
    group: tuple[dict[str, frozenset[UUID]], dict[UUID, int]],
) -> None:
    """No move of one partition from a heavier to a lighter subscriber of its topic would still help."""
    subscriptions, topics = group
    targets = run("uniform", subscriptions, topics)
    for target in targets.values():
        for topic_id in target:
            for light, asked in subscriptions.items():
                if topic_id in asked:
                    assert size(target) - size(targets[light]) <= 1


@settings(deadline=None)
@given(members=member_ids, topics=counts)
def test_range_gives_contiguous_slices_in_member_order(members: list[str], topics: dict[UUID, int]) -> None:
    targets = run("range", dict.fromkeys(members, frozenset(topics)), topics)
    for topic_id, count in topics.items():
        in_order = [sorted(targets[member_id].get(topic_id, ())) for member_id in sorted(members)]
        assert [partition for part in in_order for partition in part] == list(range(count))
        sizes = list(map(len, in_order))
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] - sizes[-1] <= 1


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_a_large_group_is_assigned_well_within_a_second(name: str, same: bool) -> None:
    topics = {topic(number): 100 for number in range(1, 51)}
    asked = sorted(topics)
    subscriptions = {
        f"member-{number:03}": frozenset(asked if same else asked[number % 3 :]) for number in range(500)
    }
    targets = run(name, subscriptions, topics, same=same)
    assert best_seconds(lambda: run(name, subscriptions, topics, same=same)) < 1
    check(targets, subscriptions, topics)
