"""A group is copied while it works at the source, moves once, and is never copied after that."""

from __future__ import annotations

import pytest

from dray.migration.groups.copy import Offsets
from dray.migration.groups.follower import (
    FollowedGroup,
    GroupAct,
    SourceGroup,
    next_act,
)


def at(offset: int) -> Offsets:
    return {("a", 0): (offset, "")}


AT_5 = FollowedGroup(copied=at(5))


@pytest.mark.parametrize(
    ("kept", "seen", "is_switched", "expected"),
    [
        (FollowedGroup(), SourceGroup(1, at(5)), False, GroupAct.COPY),
        (FollowedGroup(), SourceGroup(0, {}), False, GroupAct.COPY),
        (AT_5, SourceGroup(1, at(5)), False, GroupAct.NOTHING),
        (AT_5, SourceGroup(1, at(6)), False, GroupAct.COPY),
        (AT_5, SourceGroup(1, at(4)), False, GroupAct.COPY),
        (AT_5, SourceGroup(0, at(5)), False, GroupAct.NOTHING),
        (AT_5, SourceGroup(2, at(6)), True, GroupAct.COPY),
        (AT_5, SourceGroup(0, at(6)), True, GroupAct.COPY_AND_HAND_OVER),
        (AT_5, SourceGroup(0, at(5)), True, GroupAct.COPY_AND_HAND_OVER),
        (FollowedGroup(at(5), has_moved=True), SourceGroup(1, at(9)), True, GroupAct.NOTHING),
        (FollowedGroup(at(5), has_moved=True), SourceGroup(0, at(9)), True, GroupAct.NOTHING),
    ],
)
def test_what_is_done(kept: FollowedGroup, seen: SourceGroup, is_switched: bool, expected: GroupAct) -> None:
    assert next_act(kept, seen, is_switched=is_switched) is expected
