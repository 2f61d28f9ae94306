"""When a consumer group's offsets are copied from the source, and when the group is Dray's: pure rules.

A group works on one side at a time. While it has members at the source, what it commits there is followed,
and Dray lets it wait. Once it has none there, its offsets are copied for the last time and it is Dray's. From
then on nothing is copied: a late copy would take back what it has committed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias

Offsets: TypeAlias = Mapping[Any, object]
"""By place: whatever says how far the group has read there."""


class GroupAct(Enum):
    NOTHING = "nothing"
    COPY = "copy"
    COPY_AND_HAND_OVER = "copy and hand over"


@dataclass(frozen=True, slots=True)
class FollowedGroup:
    """What is kept of a group with the migration of a topic."""

    copied: Offsets | None = None
    has_moved: bool = False


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """A group as its coordinator at the source says it."""

    members: int
    committed: Offsets


def next_act(kept: FollowedGroup, seen: SourceGroup, *, is_switched: bool) -> GroupAct:
    """Before the switch every group is the source's, even an empty one: its members may be restarting."""
    if kept.has_moved:
        return GroupAct.NOTHING
    if is_switched and seen.members == 0:
        return GroupAct.COPY_AND_HAND_OVER
    if kept.copied is None or dict(kept.copied) != dict(seen.committed):
        return GroupAct.COPY
    return GroupAct.NOTHING


def after(kept: FollowedGroup, act: GroupAct, committed: Offsets) -> FollowedGroup:
    if act is GroupAct.NOTHING:
        return kept
    return replace(kept, copied=dict(committed), has_moved=act is GroupAct.COPY_AND_HAND_OVER)


def may_work_here(kept: FollowedGroup | None) -> bool:
    """Whether Dray's coordinator lets members in: until then they are answered COORDINATOR_LOAD_IN_PROGRESS.
    A group that the source never had is Dray's own from the start."""
    return kept is None or kept.has_moved
