"""Groups of the source that read linked topics: followed while they work there, handed over once.

A round reads what all of them have committed, and writes the copies that changed. After the switch a group
without members at the source is Dray's: its members are counted before and after its offsets are read for
the last time, and one compare-and-set of its copy says that it has moved. A migrator that is late loses that,
and finds that there is nothing left to do.

What the source no longer has is not taken from a copy: its retention of offsets, or an operator who cleans
up there, does not send a group back to the beginning here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

from .followed_groups import FollowedGroup, GroupAct, SourceGroup, next_act
from .source_groups import GroupSource, ListedSourceGroup, Offsets

FOLLOWED_TYPES: Final = ("", "classic", "consumer")
"""Share groups have no committed offsets, and Dray has neither them nor groups of Kafka Streams' protocol."""

_AT_ONCE: Final = 16
_WITHOUT_MEMBERS: Final = ("", "Empty", "Dead")


@dataclass(frozen=True, slots=True)
class LinkedTopic:
    """A topic whose groups are followed. `boundaries` are those of all partitions once it is switched, and
    empty before."""

    name: str
    topic_id: UUID
    partitions: int
    boundaries: Mapping[int, int]

    @property
    def is_switched(self) -> bool:
        return len(self.boundaries) == self.partitions


class KeptCopy(Protocol):
    """What is kept of a group, as `GroupTarget` has it."""

    @property
    def offsets(self) -> Offsets: ...

    @property
    def source(self) -> str: ...

    @property
    def has_moved(self) -> bool: ...

    @property
    def lives_here(self) -> bool:
        """It had members at Dray before it was found at the source: it is left alone."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether every coordinator knows of the copy: only then the group can be handed over."""
        ...


Kept = TypeVar("Kept", bound=KeptCopy)


WantedCopy: TypeAlias = tuple[str, Kept | None, Offsets, bool]
"""The group, what was read of its copy, the offsets, whether it has moved."""


class GroupTarget(Protocol[Kept]):
    """The copies at Dray."""

    @property
    def source(self) -> str:
        """Whose groups these are."""
        ...

    async def read_all(self) -> Mapping[str, Kept]: ...

    async def change(
        self, changes: Sequence[WantedCopy[Kept]], topic_ids: Mapping[str, UUID], /
    ) -> Collection[str]:
        """Each by compare-and-set; those that are done."""
        ...

    async def settle(self, group_id: str, /) -> bool: ...


@dataclass(slots=True)
class FollowReport:
    """What a round found and did. Names are in order."""

    copied: int = 0
    handed_over: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    """Groups that are not Dray's yet, and what they wait for."""
    topics: set[str] = field(default_factory=set)
    """Those that groups wait for, linked still or not."""
    left: dict[str, str] = field(default_factory=dict)
    """Groups that are not followed, and why."""


class GroupFollower(Generic[Kept]):
    """`linked` says which topics of the source there are now: all of them, as a group moves with all that it
    reads. A round that fails is made again as a whole."""

    def __init__(
        self,
        source: GroupSource,
        target: GroupTarget[Kept],
        linked: Callable[[], Awaitable[Sequence[LinkedTopic]]],
    ) -> None:
        self._source = source
        self._target = target
        self._linked = linked

    async def run_once(self) -> FollowReport:
        report = FollowReport()
        topics = {topic.name: topic for topic in await self._linked()}
        kept = await self._target.read_all()
        if not topics:
            mine = [copy for copy in kept.values() if self._is_mine(copy)]
            report.topics = {name for copy in mine for name, _ in copy.offsets}
            return report
        listed = await self._source.listed()
        followed = self._choose(listed, kept, report)
        new = await self._copy(followed, kept, topics, report)
        new += [group_id for group_id, copy in kept.items() if self._is_mine(copy) and not copy.is_settled]
        await self._settle(new)
        if report.copied or new:
            kept = await self._target.read_all()
        await self._hand_over(listed, kept, topics, report)
        return report

    def _is_mine(self, copy: Kept) -> bool:
        """Whether it is this migration's to follow, still."""
        return copy.source == self._target.source and not copy.has_moved and not copy.lives_here

    def _choose(
        self, listed: Mapping[str, ListedSourceGroup], kept: Mapping[str, Kept], report: FollowReport
    ) -> list[str]:
        """Also those that were found once and are not listed now: a list that was put together while a
        coordinator moved may lack some."""
        found = []
        for group_id in sorted(listed.keys() | kept.keys()):
            copy, group = kept.get(group_id), listed.get(group_id)
            if copy is not None and copy.source != self._target.source:
                if group is not None:
                    report.left[group_id] = f"it comes from {copy.source}"
            elif copy is not None and copy.lives_here:
                report.left[group_id] = "it has members here already"
            elif copy is not None and copy.has_moved:
                continue
            elif group is not None and group.group_type.lower() not in FOLLOWED_TYPES:
                report.left[group_id] = f"it is a {group.group_type.lower()} group, which Dray does not have"
            else:
                found.append(group_id)
        return found

    async def _copy(
        self,
        group_ids: Sequence[str],
        kept: Mapping[str, Kept],
        topics: Mapping[str, LinkedTopic],
        report: FollowReport,
    ) -> list[str]:
        """Those that are found for the first time."""
        committed = await self._source.committed(group_ids, _partitions(topics))
        changes: list[WantedCopy[Kept]] = []
        for group_id, seen in committed.items():
            before = kept.get(group_id)
            if before is None and not seen:
                continue  # it reads other topics
            offsets = _joined(before, seen)
            if _act(before, SourceGroup(1, offsets), is_switched=False) is GroupAct.COPY:
                changes.append((group_id, before, offsets, False))
        done = await self._target.change(changes, _ids(topics))
        report.copied = len(done)
        for group_id in {*group_ids} - committed.keys() | {each[0] for each in changes} - {*done}:
            report.left[group_id] = "the source or the store did not answer for it: it is tried again"
        return [group_id for group_id, before, _, _ in changes if before is None and group_id in done]

    async def _settle(self, group_ids: Collection[str]) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)

        async def settle(group_id: str) -> None:
            async with gate:
                await self._target.settle(group_id)

        await asyncio.gather(*map(settle, group_ids))

    async def _hand_over(
        self,
        listed: Mapping[str, ListedSourceGroup],
        kept: Mapping[str, Kept],
        topics: Mapping[str, LinkedTopic],
        report: FollowReport,
    ) -> None:
        ready = []
        for group_id, copy in sorted(kept.items()):
            if not self._is_mine(copy):
                continue
            report.topics.update(name for name, _ in copy.offsets)
            state = listed[group_id].state if group_id in listed else ""
            if not _is_switched(copy, topics):
                report.waiting[group_id] = "for the switch of its topics"
            elif state not in _WITHOUT_MEMBERS:
                report.waiting[group_id] = f"for its members at the source to leave: it is {state} there"
            else:
                report.waiting[group_id] = "for an answer"
                if copy.is_settled:
                    ready.append(group_id)
        before = await self._members(ready, report)
        empty = [group_id for group_id in ready if before.get(group_id) == 0]
        committed = await self._source.committed(empty, _partitions(topics)) if empty else {}
        after = await self._members(list(committed), report)
        changes: list[WantedCopy[Kept]] = []
        for group_id, members in after.items():
            copy = kept[group_id]
            offsets = _within(_joined(copy, committed[group_id]), topics)
            act = _act(copy, SourceGroup(members, offsets), is_switched=True)
            if act is GroupAct.COPY_AND_HAND_OVER:
                changes.append((group_id, copy, offsets, True))
        report.handed_over = sorted(await self._target.change(changes, _ids(topics)))
        for group_id in report.handed_over:
            del report.waiting[group_id]

    async def _members(self, group_ids: Sequence[str], report: FollowReport) -> Mapping[str, int]:
        found = await self._source.members(group_ids) if group_ids else {}
        for group_id, members in found.items():
            if members:
                report.waiting[group_id] = f"for its {members} members at the source to leave"
        return found


def _act(kept: KeptCopy | None, seen: SourceGroup, *, is_switched: bool) -> GroupAct:
    group = FollowedGroup() if kept is None else FollowedGroup(kept.offsets, kept.has_moved)
    return next_act(group, seen, is_switched=is_switched)


def _joined(kept: KeptCopy | None, seen: Offsets) -> Offsets:
    return dict(seen) if kept is None else {**kept.offsets, **seen}


def _is_switched(copy: KeptCopy, topics: Mapping[str, LinkedTopic]) -> bool:
    """A group moves with all that it reads. A topic that is linked no more has its end behind it."""
    return all(topics[name].is_switched for name, _ in copy.offsets if name in topics)


def _within(offsets: Offsets, topics: Mapping[str, LinkedTopic]) -> Offsets:
    """What the source has beyond the boundary is not here: a group that had read it goes on with the first
    record of Dray's own."""
    found = dict(offsets)
    for (name, partition), (offset, metadata) in offsets.items():
        boundary = topics[name].boundaries.get(partition) if name in topics else None
        if boundary is not None and offset > boundary:
            found[name, partition] = (boundary, metadata)
    return found


def _partitions(topics: Mapping[str, LinkedTopic]) -> dict[str, range]:
    return {name: range(topic.partitions) for name, topic in topics.items()}


def _ids(topics: Mapping[str, LinkedTopic]) -> dict[str, UUID]:
    return {name: topic.topic_id for name, topic in topics.items()}
