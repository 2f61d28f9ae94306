"""The coordinator's side of a group that comes from another cluster: it waits, then takes its offsets in.

A group that is not followed costs one read when it is loaded. One that waits is not loaded at all: each
request is answered COORDINATOR_LOAD_IN_PROGRESS, which clients take for "a little later", and the store is
asked again at most so often.

The value is read after the group was taken over. A migrator puts the value first, and then takes the group
over for a moment itself, or waits where only its lease is there (`copies.py`): so one of the two sees the
other, and what a coordinator would store that has not seen the value finds another version than it expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dray.groups import classic
from dray.groups.classic import ClassicGroup
from dray.groups.coordinator.contract import GroupUnavailable, Unreachable
from dray.groups.coordinator.ledger import Ledger, Place
from dray.groups.coordinator.storage import GroupKind, GroupStorage
from dray.groups.followed import CopiedTopic, GroupCopy, LaterTopic, decode_copy, encode_copy
from dray.groups.offsets import NO_LEADER_EPOCH, CommittedOffset
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore, Put, StoredValue
from dray.protocol import ErrorCode
from dray.runtime import Runtime

AGAIN_SECONDS: Final = 0.2
"""How long a refusal holds for the next who ask."""

MOST_KNOWN: Final = 10_000


class GroupWaits(GroupUnavailable):
    """The group works at the source of a migration. Its clients ask again by themselves."""

    def __init__(self, group_id: str, copy: GroupCopy) -> None:
        super().__init__(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"group '{group_id}' still works at {copy.source}: it is let in here when the topics have moved "
            "and its last member there has left",
        )
        self.copy = copy


class GroupGate:
    def __init__(self, store: MetadataStore, runtime: Runtime, domains: int) -> None:
        self._store = store
        self._runtime = runtime
        self._domains = domains
        self._waiting: dict[str, tuple[float, GroupWaits]] = {}

    async def check_known(self, group_id: str) -> None:
        """Raises `GroupWaits` for a group that was seen to wait, without its lease being taken for that."""
        if group_id not in self._waiting:
            return
        asked_at, refusal = self._waiting[group_id]
        if self._runtime.monotonic() - asked_at < AGAIN_SECONDS:
            raise refusal
        await self._look(group_id)

    async def is_coming(self, group_id: str) -> bool:
        """Whether it is to be loaded though it has no record yet: it waits, or brings offsets along."""
        found = await self._read(group_id)
        if found is None:
            return False
        return found[1].is_waiting or found[1].is_to_take_in or found[1].later is not None

    async def is_news(self, group_id: str, awaited: frozenset[str]) -> bool:
        """Is another topic awaited by now than the group was loaded with, or are offsets here to take in?"""
        found = await self._read(group_id)
        if found is None:
            return bool(awaited)
        return found[1].awaited != awaited or bool(found[1].came_later)

    async def open(self, storage: GroupStorage, ledger: Ledger) -> None:
        """Raises `GroupWaits`, or leaves the group with the offsets that it brought along. The lease is held,
        and both are loaded."""
        found = await self._look(storage.group_id)
        if found is None:
            return
        value, copy = found
        if copy.awaited and storage.record is None and not copy.is_to_take_in and not copy.came_later:
            raise self._wait(storage.group_id, copy)  # nothing of it is here: all of it may wait
        ledger.came, ledger.awaited = True, copy.awaited
        if not copy.is_to_take_in and not copy.came_later:
            return
        await self._take_in(storage, ledger, copy)
        taken = Put(value.key, encode_copy(_taken(copy)), value.version)
        try:
            [outcome] = await self._store.write(self._domain(storage.group_id), [taken])
        except MetadataError as error:
            raise Unreachable(str(error)) from error
        if not outcome.applied:  # the next loading sees what became of it
            raise Unreachable(f"somebody else takes the offsets of group '{storage.group_id}' in")

    async def _take_in(self, storage: GroupStorage, ledger: Ledger, copy: GroupCopy) -> None:
        """Any number of times with the same end: nobody can have committed anything before it is done. Of
        topics that came later somebody may have: that counts.

        Without leader epochs: those of the source say nothing here, and a client that has none does not ask
        whether its log was cut."""
        now_ms = self._runtime.wall_ms()
        if storage.record is None:
            group = ClassicGroup(storage.group_id, now_ms)
            await storage.put(GroupKind.CLASSIC, classic.encode_group(group))
        later = {
            place: offset
            for place, offset in _committed(copy.came_later, now_ms).items()
            if (known := ledger.find(*place)) is None or not known.is_of(offset.topic_id)
        }
        await ledger.change(later | _committed(copy.topics, now_ms))

    async def _look(self, group_id: str) -> tuple[StoredValue, GroupCopy] | None:
        found = await self._read(group_id)
        self._waiting.pop(group_id, None)
        if found is not None and found[1].is_waiting:
            raise self._wait(group_id, found[1])
        return found

    def _wait(self, group_id: str, copy: GroupCopy) -> GroupWaits:
        refusal = GroupWaits(group_id, copy)
        if len(self._waiting) >= MOST_KNOWN:
            self._waiting.pop(next(iter(self._waiting)))
        self._waiting[group_id] = (self._runtime.monotonic(), refusal)
        return refusal

    async def _read(self, group_id: str) -> tuple[StoredValue, GroupCopy] | None:
        domain = self._domain(group_id)
        try:
            await self._store.barrier(domain)
            found = await self._store.get(domain, keys.followed_group(group_id))
            return None if found is None else (found, decode_copy(group_id, found.value))
        except MetadataError as error:
            raise Unreachable(str(error)) from error

    def _domain(self, group_id: str) -> int:
        return keys.domain_of_group(group_id, self._domains)


def _taken(copy: GroupCopy) -> GroupCopy:
    """The offsets are the group's own from now on: which topics it came with is all that is kept."""
    came = copy.came_later
    topics = {name: CopiedTopic(topic.topic_id, ()) for name, topic in copy.topics.items()}
    topics |= {name: CopiedTopic(topic.topic_id, ()) for name, topic in came.items()}
    later = {name: each for name, each in (copy.later or {}).items() if name not in came}
    return replace(copy, topics=topics, taken_in=True, later=later or None)


def _committed(
    topics: Mapping[str, CopiedTopic] | Mapping[str, LaterTopic], now_ms: int
) -> dict[Place, CommittedOffset]:
    return {
        (name, each.partition): CommittedOffset(
            each.offset, NO_LEADER_EPOCH, each.metadata, now_ms, topic_id=topic.topic_id
        )
        for name, topic in topics.items()
        for each in topic.offsets
    }


class CopiedOffsets:
    """What was copied of a group that waits, to be read as a `Ledger` is."""

    def __init__(self, copy: GroupCopy) -> None:
        self._offsets = _committed(copy.topics, 0)

    def find(self, topic: str, partition: int) -> CommittedOffset | None:
        return self._offsets.get((topic, partition))

    def topics(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for topic, partition in sorted(self._offsets):
            found.setdefault(topic, []).append(partition)
        return found
