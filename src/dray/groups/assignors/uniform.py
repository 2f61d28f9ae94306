"""`uniform`: everyone gets as many partitions as everyone else, and keeps what they had.

Where all members asked for the same topics a quota settles it (here). Where they did not, loads have to be
levelled topic by topic (`mixed.py`).

Every member may hold `P div M` partitions, and `P mod M` members one more. A member that holds one more
already keeps it; the others only take one when otherwise too few members would be left to take them. So a run
over a balanced group moves nothing, and one more or one fewer member moves as little as can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from uuid import UUID

from dray.groups.assignors.contract import Assignment, MemberSubscription
from dray.groups.assignors.mixed import assign_mixed


def assign(
    members: Mapping[str, MemberSubscription], topics: Mapping[UUID, int], *, same_subscription: bool
) -> dict[str, Assignment]:
    if not members:
        return {}
    if same_subscription:
        return _assign_same(members, topics)
    return assign_mixed(members, topics)


def _assign_same(
    members: Mapping[str, MemberSubscription], topics: Mapping[UUID, int]
) -> dict[str, Assignment]:
    order = sorted(members)
    subscribed = members[order[0]].topics
    quota, extras = divmod(sum(topics[topic_id] for topic_id in subscribed), len(order))
    targets: dict[str, Assignment] = {}
    unfilled: list[tuple[str, int]] = []
    loose: list[tuple[UUID, int]] = []
    taken: dict[UUID, set[int]] = {topic_id: set() for topic_id in subscribed}
    for position, member_id in enumerate(order):
        previous = members[member_id].previous
        takes_extra = extras > 0
        room = quota + takes_extra
        kept: dict[UUID, frozenset[int]] = {}
        for topic_id, partitions in previous.items():
            if topic_id not in subscribed:
                continue
            taken[topic_id] |= partitions
            if len(partitions) <= room:
                kept[topic_id] = partitions
            else:
                in_order = sorted(partitions)
                loose.extend((topic_id, partition) for partition in in_order[room:])
                if room:
                    kept[topic_id] = frozenset(in_order[:room])
            room -= len(kept.get(topic_id, ()))
        if room and takes_extra and len(order) - position > extras:
            room -= 1
            takes_extra = False
        extras -= takes_extra
        if room:
            unfilled.append((member_id, room))
        targets[member_id] = previous if kept == previous else kept
    unfinished = [topic_id for topic_id in subscribed if len(taken[topic_id]) < topics[topic_id]]
    free = [
        (topic_id, partition)
        for topic_id in sorted(unfinished, key=attrgetter("int"))
        for partition in range(topics[topic_id])
        if partition not in taken[topic_id]
    ]
    _hand_out(free + loose, unfilled, targets)
    return targets


def _hand_out(
    free: list[tuple[UUID, int]], unfilled: list[tuple[str, int]], targets: dict[str, Assignment]
) -> None:
    start = 0
    for member_id, room in unfilled:
        added: dict[UUID, list[int]] = {}
        for topic_id, partition in free[start : start + room]:
            added.setdefault(topic_id, []).append(partition)
        start += room
        grown = dict(targets[member_id])
        for topic_id, partitions in added.items():
            grown[topic_id] = grown.get(topic_id, frozenset()).union(partitions)
        targets[member_id] = grown
    assert start == len(free), "quotas and partitions do not add up"
