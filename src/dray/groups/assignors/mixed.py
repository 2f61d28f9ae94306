"""`uniform` for members that asked for different topics.

Three steps. Members keep what they had of the topics they still want. Each free partition goes to the least
loaded subscriber of its topic, topics with the most partitions per subscriber first, since there the choice
weighs most. Then topics are levelled one by one, partitions moving from the most to the least loaded
subscriber while the two differ by more than one; that can unlevel another topic, so it goes round until a
whole round moves nothing, sixteen times at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace
from typing import Final
from uuid import UUID

from dray.groups.assignors.contract import Assignment, MemberSubscription

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
    """Who holds what while the assignment is worked out. Members are numbered in the order of their ids.

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
