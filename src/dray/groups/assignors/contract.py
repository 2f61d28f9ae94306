"""What every server-side assignor is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partitions by topic id. No topic with an empty set is in it, and it is not changed after it is made:
states share them."""

NOTHING: Final[Assignment] = MappingProxyType({})


class MemberSubscription(NamedTuple):
    topics: frozenset[UUID]
    """Only topics that exist: the caller leaves the others out."""

    instance_id: str | None
    rack_id: str | None
    previous: Assignment
    """The target of the last run. The previous targets of two members never overlap."""


class Assignor(Protocol):
    def __call__(
        self,
        members: Mapping[str, MemberSubscription],
        topics: Mapping[UUID, int],
        *,
        same_subscription: bool,
    ) -> dict[str, Assignment]:
        """Give every partition of a subscribed topic to one of its subscribers.

        `topics` holds the partition count of each subscribed topic. `same_subscription` says that all members
        asked for the same, which some assignors can use. A member whose partitions did not change gets the
        very object that was its `previous`, so that the caller can tell at a glance.
        """
        ...
