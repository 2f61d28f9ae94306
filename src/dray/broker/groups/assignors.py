"""Server-side assignors: members and partition counts in, a target for each member out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace
from operator import attrgetter
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


# --- range: every topic is cut into contiguous slices, one per subscriber
#
# Topics with equal partition counts are cut alike, so a member gets the same numbers of each: that is what
# people choose it for. It does not look at previous targets; the order of members alone keeps it steady,
# which is why static members, whose instance ids survive a restart, come first.


def assign_range(
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


# --- uniform: everyone gets as many partitions as everyone else, and keeps what they had
#
# If all members asked for the same topics, a quota decides. If they did not, loads have to be levelled topic
# by topic (below).
#
# Every member may hold `P div M` partitions, and `P mod M` members one more. A member that holds one more
# already keeps it; the others only take one when otherwise too few members would be left to take them. So a
# run over a balanced group moves nothing, and one more or one fewer member moves as little as can be.


def assign_uniform(
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


# --- uniform, for members that asked for different topics
#
# Three steps. Members keep what they had of the topics they still want. Each free partition goes to the least
# loaded subscriber of its topic, topics with the most partitions per subscriber first, since there the choice
# weighs most. Then topics are levelled one by one, partitions moving from the most to the least loaded
# subscriber while the two differ by more than one; that can unlevel another topic, so it goes round until a
# whole round moves nothing, sixteen times at most.

ROUNDS: Final = 16
FREE: Final = -1


def assign_mixed(
    members: Mapping[str, MemberSubscription], topics: Mapping[UUID, int]
) -> dict[str, Assignment]:
    table = _Table(members, topics)
    table.keep_previous()
    table.hand_out_free()
    table.level()
    return table.targets()


class _Table:
    """The holder of each partition while the assignment is worked out. Members are numbered by their ids'
    order.

    Most members ask for the same few sets of topics, and so most topics have the same subscribers: those are
    worked out once for each such set, not once for each topic.
    """

    def __init__(self, members: Mapping[str, MemberSubscription], topics: Mapping[UUID, int]) -> None:
        self._members = members
        self._order = sorted(members)
        self._loads = [0] * len(self._order)
        self._moves = 0
        self._changed: set[int] = set()
        self._subscribers = _subscribers([members[member_id].topics for member_id in self._order])
        self._holders = {topic_id: [FREE] * topics[topic_id] for topic_id in self._subscribers}
        self._levelled: dict[int, int] = {}  # lists of subscribers that stood level, and after how many moves

    def keep_previous(self) -> None:
        for number, member_id in enumerate(self._order):
            subscription = self._members[member_id]
            for topic_id, partitions in subscription.previous.items():
                if topic_id in subscription.topics:
                    holders = self._holders[topic_id]
                    for partition in partitions:
                        holders[partition] = number
                    self._loads[number] += len(partitions)
                else:
                    self._changed.add(number)

    def hand_out_free(self) -> None:
        for topic_id in self._by_weight(
            topic_id for topic_id, holders in self._holders.items() if FREE in holders
        ):
            holders = self._holders[topic_id]
            in_order = self._by_load(topic_id)
            queue = [(self._loads[number], place) for place, number in enumerate(in_order)]
            heapify(queue)
            for partition, holder in enumerate(holders):
                if holder == FREE:
                    load, place = queue[0]
                    heapreplace(queue, (load + 1, place))
                    holders[partition] = in_order[place]
                    self._loads[in_order[place]] = load + 1
                    self._changed.add(in_order[place])

    def level(self) -> None:
        in_order = self._by_weight(
            topic_id for topic_id, subscribers in self._subscribers.items() if len(subscribers) > 1
        )
        last_moved = None
        for _ in range(ROUNDS):
            for topic_id in in_order:
                if topic_id is last_moved:
                    return  # a whole round without a move
                if self._level_topic(topic_id) or last_moved is None:
                    last_moved = topic_id

    def targets(self) -> dict[str, Assignment]:
        targets = {member_id: self._members[member_id].previous for member_id in self._order}
        held: dict[int, dict[UUID, list[int]]] = {number: {} for number in self._changed}
        for topic_id, holders in self._holders.items():
            for partition, holder in enumerate(holders):
                if holder in held:
                    held[holder].setdefault(topic_id, []).append(partition)
        for number, topics in held.items():
            target = {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
            if target != targets[self._order[number]]:
                targets[self._order[number]] = target
        return targets

    def _stands_level(self, subscribers: list[int]) -> bool:
        if self._levelled.get(id(subscribers)) == self._moves:
            return True
        loads = [self._loads[number] for number in subscribers]
        if max(loads) - min(loads) > 1:
            return False
        self._levelled[id(subscribers)] = self._moves
        return True

    def _level_topic(self, topic_id: UUID) -> bool:
        """Whether anything moved."""
        if self._stands_level(self._subscribers[topic_id]):
            return False
        loads = self._loads
        holders = self._holders[topic_id]
        held: dict[int, list[int]] = {}
        for partition, holder in enumerate(holders):
            held.setdefault(holder, []).append(partition)
        scales = _Scales(self._by_load(topic_id), loads)
        moves = self._moves
        while (giver := scales.next_giver(held)) is not None:
            taker = scales.next_taker()
            if scales.are_level():
                break
            holders[held[giver].pop()] = taker
            loads[giver] -= 1
            loads[taker] += 1
            self._changed |= {giver, taker}
            self._moves += 1
        return self._moves > moves

    def _by_load(self, topic_id: UUID) -> list[int]:
        return sorted(self._subscribers[topic_id], key=lambda number: (self._loads[number], number))

    def _by_weight(self, topic_ids: Iterable[UUID]) -> list[UUID]:
        def weight(topic_id: UUID) -> tuple[float, int, int, int]:
            subscribers = len(self._subscribers[topic_id])
            return -len(self._holders[topic_id]) / subscribers, subscribers, *_signed_halves(topic_id)

        return sorted(topic_ids, key=weight)


class _Scales:
    """The subscribers of a topic in order of load, drawn on from both ends.

    Takers are a stretch at the light end that all stand at one level; each takes one, then the level rises
    and the stretch grows by those who stand there already. Givers are the same at the heavy end, downwards;
    one with nothing of this topic to give steps behind the end of the stretch.
    """

    def __init__(self, in_order: list[int], loads: list[int]) -> None:
        self._in_order = in_order
        self._loads = loads
        self._light_level = loads[in_order[0]] - 1
        self._light_end = 0
        self._taker = 0
        self._heavy_level = loads[in_order[-1]] + 1
        self._heavy_start = self._heavy_end = len(in_order)
        self._giver = len(in_order) - 1

    def next_taker(self) -> int:
        if self._taker >= self._light_end:
            self._light_level += 1
            while (
                self._light_end < len(self._in_order)
                and self._loads[self._in_order[self._light_end]] == self._light_level
            ):
                self._light_end += 1
            self._taker = 0
        self._taker += 1
        return self._in_order[self._taker - 1]

    def next_giver(self, held: Mapping[int, list[int]]) -> int | None:
        while True:
            if self._giver < self._heavy_start:
                self._lower_the_heavy_end()
            if self._giver < 0:
                return None
            giver = self._in_order[self._giver]
            if held.get(giver):
                self._giver -= 1
                return giver
            self._heavy_end -= 1
            self._in_order[self._giver] = self._in_order[self._heavy_end]
            self._in_order[self._heavy_end] = giver
            self._giver -= 1

    def are_level(self) -> bool:
        return self._heavy_level - self._light_level <= 1

    def _lower_the_heavy_end(self) -> None:
        if self._heavy_end <= self._heavy_start and self._heavy_start > 0:
            # No member in the stretch had anything to give: go on at the level of the next one down.
            self._heavy_level = self._loads[self._in_order[self._heavy_start - 1]]
        else:
            self._heavy_level -= 1
        while (
            self._heavy_start > 0 and self._loads[self._in_order[self._heavy_start - 1]] == self._heavy_level
        ):
            self._heavy_start -= 1
        self._giver = self._heavy_end - 1


def _subscribers(subscriptions: list[frozenset[UUID]]) -> dict[UUID, list[int]]:
    """The subscribers of each topic in ascending order; topics with the same ones share a list."""
    askers: dict[frozenset[UUID], list[int]] = {}
    for number, topics in enumerate(subscriptions):
        askers.setdefault(topics, []).append(number)
    sets_with: dict[UUID, list[int]] = {}
    for place, topics in enumerate(askers):
        for topic_id in topics:
            sets_with.setdefault(topic_id, []).append(place)
    numbers = list(askers.values())
    merged: dict[tuple[int, ...], list[int]] = {}
    subscribers: dict[UUID, list[int]] = {}
    for topic_id, places in sets_with.items():
        key = tuple(places)
        if key not in merged:
            merged[key] = sorted(number for place in places for number in numbers[place])
        subscribers[topic_id] = merged[key]
    return subscribers


def _signed_halves(topic_id: UUID) -> tuple[int, int]:
    """The order of topic ids in Kafka, where each half of one is a signed number."""
    high, low = divmod(topic_id.int, 1 << 64)
    return (high ^ _SIGN) - _SIGN, (low ^ _SIGN) - _SIGN


_SIGN = 1 << 63


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
"""By the names that clients use. If as many members name one as another, the earlier here is taken."""
