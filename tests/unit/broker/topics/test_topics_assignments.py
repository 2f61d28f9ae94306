from __future__ import annotations

from collections.abc import Sequence

import pytest

from dray.broker.topics import InvalidReplicaAssignment
from dray.broker.topics.alterations import check_assignments, count_assigned


@pytest.mark.parametrize(
    "assignments", [[], [(0, [1])], [(1, [2]), (0, [1])], [(0, [1, 2]), (2, [2, 1]), (1, [1, 2])]]
)
def test_good_assignments(assignments: list[tuple[int, Sequence[int]]]) -> None:
    assert count_assigned(assignments, {1, 2}) == len(assignments)
    assert count_assigned(assignments, None) == len(assignments)


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ([(0, [1]), (0, [1])], "multiple manual partition assignments for partition 0"),
        ([(0, [1]), (2, [1])], "consecutive 0-based"),
        ([(1, [1])], "consecutive 0-based"),
        ([(-1, [1]), (0, [1])], "consecutive 0-based"),
    ],
)
def test_partitions_are_numbered_from_0_without_a_gap(
    assignments: list[tuple[int, Sequence[int]]], why: str
) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=why):
        count_assigned(assignments, None)


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        ([[]], "empty replica list"),
        ([[1], []], "empty replica list"),
        ([[1, 1]], "includes the broker 1 more than once"),
        ([[1], [7]], "broker 7, but no such broker is registered"),
        ([[1], [1, 2]], r"2 replica\(s\), but .* which have 1 replica"),
    ],
)
def test_brokers_are_known_and_everywhere_as_many(assignments: list[list[int]], why: str) -> None:
    with pytest.raises(InvalidReplicaAssignment, match=why):
        check_assignments(assignments, {1, 2})
    with pytest.raises(InvalidReplicaAssignment, match=why):
        count_assigned(list(enumerate(assignments)), {1, 2})


def test_without_a_list_any_broker_will_do() -> None:
    check_assignments([[7], [8]], None)
