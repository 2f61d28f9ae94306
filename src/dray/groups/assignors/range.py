"""`range`: every topic is cut into contiguous slices, one per subscriber.

Topics with equal partition counts are cut alike, so a member gets the same numbers of each: that is what
people choose it for. It does not look at previous targets; the order of members alone keeps it steady, which
is why static members, whose instance ids survive a restart, come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from dray.groups.assignors.contract import Assignment, MemberSubscription


def assign(
    members: Mapping[str, MemberSubscription], topics: Mapping[UUID, int], *, same_subscription: bool
) -> dict[str, Assignment]:
    del same_subscription  # slices come out the same either way
    subscribers: dict[UUID, list[str]] = {}
    for member_id in sorted(members, key=lambda member_id: _order(member_id, members[member_id])):
        for topic_id in members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    slices: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in members}
    for topic_id, takers in subscribers.items():
        quota, extras = divmod(topics[topic_id], len(takers))
        start = 0
        for position, member_id in enumerate(takers):
            end = start + quota + (position < extras)
            if start == end:
                break
            slices[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {
        member_id: members[member_id].previous if partitions == members[member_id].previous else partitions
        for member_id, partitions in slices.items()
    }


def _order(member_id: str, subscription: MemberSubscription) -> tuple[bool, str]:
    if subscription.instance_id is None:
        return True, member_id
    return False, subscription.instance_id
