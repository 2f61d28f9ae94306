"""The coordinator's side of a group that comes from another cluster: it waits, then takes its offsets in.

All that the coordinator knows of this is that it may load a group or not (`Admission`).

A group that is not followed costs one read when it is loaded. One that waits is not loaded at all: each
request is answered COORDINATOR_LOAD_IN_PROGRESS, which clients take for "a little later", and the store is
asked again at most so often.

The value is read after the group was taken over. A migrator puts the value first, and then takes the group
over for a moment itself, or waits where only its lease is there (`copies.py`): so one of the two sees the
other, and what a coordinator would store that has not seen the value finds another version than it expects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from dray.base.runtime import Runtime, cut
from dray.broker.groups import classic
from dray.broker.groups.classic import ClassicGroup
from dray.broker.groups.coordinator.active import ActiveGroup
from dray.broker.groups.coordinator.admission import (
    Admission,
    Admitted,
    KnownOffsets,
    NotAdmitted,
    OffsetsElsewhere,
)
from dray.broker.groups.coordinator.contract import Unreachable
from dray.broker.groups.coordinator.ledger import Ledger, Place
from dray.broker.groups.coordinator.storage import GroupKind, GroupStorage
from dray.broker.groups.offsets import NO_LEADER_EPOCH, CommittedOffset
from dray.metadata import keys
from dray.metadata.contract import MetadataError, MetadataStore, Put, StoredValue
from dray.metadata.values import UnreadableValue
from dray.migration.groups.copy import CopiedTopic, GroupCopy, LaterTopic, decode_copy, encode_copy

_log = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 0.2
"""How long a refusal holds for the next who ask."""

MOST_KNOWN: Final = 10_000

_JUDGED_AT_ONCE: Final = 100
"""How many copies of groups may keep the processor: each is a JSON value with all offsets of its group."""


class GroupWaits(NotAdmitted):
    """The group works at the source of a migration."""

    def __init__(self, group_id: str, copy: GroupCopy) -> None:
        super().__init__(
            f"group '{group_id}' still works at {copy.source}: it is let in here when the topics have moved "
            "and its last member there has left"
        )
        self._copy = copy

    def offsets(self) -> KnownOffsets:
        """Those that were copied so far."""
        return KnownOffsets(_committed(self._copy.topics, 0))


class GroupGate(Admission):
    def __init__(self, store: MetadataStore, runtime: Runtime, domains: int) -> None:
        self._store = store
        self.runtime = runtime
        self._domains = domains
        self._waiting: dict[str, tuple[float, GroupWaits]] = {}

    async def may_load(self, group_id: str) -> None:
        """Refuses a group that was seen to wait, without its lease being taken for that."""
        if group_id not in self._waiting:
            return
        asked_at, refusal = self._waiting[group_id]
        if self.runtime.monotonic() - asked_at < AGAIN_SECONDS:
            raise refusal
        await self._look(group_id)

    async def is_expected(self, group_id: str) -> bool:
        """It waits, or brings offsets along."""
        found = await self._read(group_id)
        if found is None:
            return False
        return found[1].is_waiting or found[1].is_to_take_in or found[1].later is not None

    async def admit(self, storage: GroupStorage, ledger: Ledger) -> Admitted:
        """Leaves the group with the offsets that it brought along."""
        found = await self._look(storage.group_id)
        if found is None:
            return Admitted()
        value, copy = found
        if (
            copy.awaited
            and storage.coordinator_epoch is None
            and not copy.is_to_take_in
            and not copy.came_later
        ):
            raise self._wait(storage.group_id, copy)  # nothing of it is here: all of it may wait
        if not copy.is_to_take_in and not copy.came_later:
            return _Arrived(self, copy.awaited)
        made = await self._take_in(storage, ledger, copy)
        taken = Put(value.key, encode_copy(_taken(copy)), value.version)
        try:
            [outcome] = await self._store.write(self._domain(storage.group_id), [taken])
        except MetadataError as error:
            raise Unreachable(str(error)) from error
        if not outcome.applied:  # the next loading sees what became of it
            raise Unreachable(f"somebody else takes the offsets of group '{storage.group_id}' in")
        return _Arrived(self, copy.awaited, made)

    async def is_news(self, group_id: str, awaited: frozenset[str]) -> bool:
        """Is another topic awaited by now than the group was loaded with, or are offsets here to take in?"""
        found = await self._read(group_id)
        if found is None:
            return bool(awaited)
        return found[1].awaited != awaited or bool(found[1].came_later)

    async def kept_out(self, domain: int, known: Collection[str]) -> Iterable[str]:
        found = []
        end = keys.prefix_end(keys.FOLLOWED_GROUPS)
        for count, stored in enumerate(await self._store.scan(domain, keys.FOLLOWED_GROUPS, end), 1):
            if count % _JUDGED_AT_ONCE == 0:
                await self.runtime.sleep(0)
            group_id = keys.group_of_followed(stored.key)
            if group_id is not None and group_id not in known and _waits(group_id, stored):
                found.append(group_id)
        return found

    async def _take_in(self, storage: GroupStorage, ledger: Ledger, copy: GroupCopy) -> ClassicGroup | None:
        """Any number of times with the same end: nobody can have committed anything before it is done. Of
        topics that came later somebody may have: that counts.

        Without leader epochs: those of the source say nothing here, and a client that has none does not ask
        whether its log was cut."""
        now_ms = self.runtime.wall_ms()
        made = None
        if storage.coordinator_epoch is None:
            made = ClassicGroup(storage.group_id, now_ms)
            await storage.put(GroupKind.CLASSIC, classic.encode_group(made))
        later = {
            place: offset
            for place, offset in _committed(copy.came_later, now_ms).items()
            if (known := ledger.find(*place)) is None or not known.is_of(offset.topic_id)
        }
        await ledger.change(later | _committed(copy.topics, now_ms))
        return made

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
        self._waiting[group_id] = (self.runtime.monotonic(), refusal)
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


class _Arrived(Admitted):
    """A group that came from another cluster, and may still read topics there in other processes."""

    def __init__(self, gate: GroupGate, awaited: frozenset[str], made: ClassicGroup | None = None) -> None:
        """`awaited` are topics of which offsets are still there: what is not here may not be said to be
        nowhere."""
        self.made = made
        self._gate = gate
        self._awaited = awaited
        self._looked_at = float("-inf")
        self._doubted = False

    def doubt(self) -> None:
        """It may read the topics there that have just come."""
        self._doubted = True

    async def check_offsets(self, group: ActiveGroup, wanted: Iterable[Place]) -> None:
        """When the offsets are here, the group is loaded anew with them."""
        if self._doubted:
            self._doubted = False
            await self._look(group)
        ledger = group.ledger
        if not self._awaited or not any(
            name in self._awaited and ledger.find(name, partition) is None for name, partition in wanted
        ):
            return
        now = self._gate.runtime.monotonic()
        if now - self._looked_at >= AGAIN_SECONDS:
            self._looked_at = now
            await self._look(group)
        raise _elsewhere(group)

    async def _look(self, group: ActiveGroup) -> None:
        if await self._gate.is_news(group.group_id, self._awaited):
            group.drop("what it has read at another cluster is looked at again", by_choice=True)
            raise _elsewhere(group)


def _elsewhere(group: ActiveGroup) -> OffsetsElsewhere:
    return OffsetsElsewhere(
        f"offsets of group '{cut(group.group_id)}' are at another cluster, or come from there just now"
    )


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


def _waits(group_id: str, stored: StoredValue) -> bool:
    try:
        return decode_copy(group_id, stored.value).is_waiting
    except UnreadableValue as error:
        _log.error("a group is left out", group=group_id, error=str(error))
        return False
