"""A group is copied while it works at the source, moves once, and is never copied after that."""

from __future__ import annotations

import pytest

from dray.upstream.followed_groups import (
    FollowedGroup,
    GroupAct,
    SourceGroup,
    after,
    may_work_here,
    next_act,
)

AT_5 = FollowedGroup(copied={0: 5})


@pytest.mark.parametrize(
    ("kept", "seen", "is_switched", "expected"),
    [
        (FollowedGroup(), SourceGroup(1, {0: 5}), False, GroupAct.COPY),
        (FollowedGroup(), SourceGroup(0, {}), False, GroupAct.COPY),
        (AT_5, SourceGroup(1, {0: 5}), False, GroupAct.NOTHING),
        (AT_5, SourceGroup(1, {0: 6}), False, GroupAct.COPY),
        (AT_5, SourceGroup(1, {0: 4}), False, GroupAct.COPY),
        (AT_5, SourceGroup(0, {0: 5}), False, GroupAct.NOTHING),
        (AT_5, SourceGroup(2, {0: 6}), True, GroupAct.COPY),
        (AT_5, SourceGroup(0, {0: 6}), True, GroupAct.COPY_AND_HAND_OVER),
        (AT_5, SourceGroup(0, {0: 5}), True, GroupAct.COPY_AND_HAND_OVER),
        (FollowedGroup({0: 5}, has_moved=True), SourceGroup(1, {0: 9}), True, GroupAct.NOTHING),
        (FollowedGroup({0: 5}, has_moved=True), SourceGroup(0, {0: 9}), True, GroupAct.NOTHING),
    ],
)
def test_what_is_done(kept: FollowedGroup, seen: SourceGroup, is_switched: bool, expected: GroupAct) -> None:
    assert next_act(kept, seen, is_switched=is_switched) is expected


def test_a_group_works_here_once_it_has_moved() -> None:
    kept = after(FollowedGroup(), GroupAct.COPY, {0: 5})
    assert kept == FollowedGroup({0: 5})
    assert not may_work_here(kept)
    kept = after(kept, GroupAct.COPY_AND_HAND_OVER, {0: 6})
    assert kept == FollowedGroup({0: 6}, has_moved=True)
    assert may_work_here(kept)
    assert after(kept, GroupAct.NOTHING, {0: 9}) == kept


def test_a_group_that_the_source_never_had_works_at_once() -> None:
    assert may_work_here(None)
