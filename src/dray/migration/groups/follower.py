"""Groups of the source that read linked topics: followed while they work there, handed over once.

A group works on one side at a time. While it has members at the source, what it commits there is followed,
and Dray lets it wait. Once it has none there, its offsets are copied for the last time and it is Dray's. From
then on nothing is copied: a late copy would take back what it has committed here.

A round reads what all of them have committed, and writes the copies that changed. After the switch a group
without members at the source is Dray's: its members are counted before and after its offsets are read for
the last time, and one compare-and-set of its copy says that it has moved. A migrator that is late loses that,
and finds that there is nothing left to do.

An offset that the source no longer has stays in a copy: its retention of offsets, or an operator who cleans
up there, does not send a group back to the beginning here.

An answer that cannot be read does not count as empty: a group of which the source does not say how far it has
read waits here, as if it had read a linked topic, until that is known. Else it would begin anew.

A group that has moved may read a topic that is linked later, there, in other processes: that topic is
followed by itself, in the same way.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final
from uuid import UUID

from dray.base.runtime import gather_some
from dray.migration.groups.copies import CopyChange, GroupCopies, LaterChange, StoredCopy
from dray.migration.groups.copy import Offsets
from dray.migration.source.source_groups import WITHOUT_MEMBERS, GroupSource, ListedSourceGroup, groups_left

_AT_ONCE: Final = 16


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


class GroupAct(Enum):
    NOTHING = "nothing"
    COPY = "copy"
    COPY_AND_HAND_OVER = "copy and hand over"


@dataclass(frozen=True, slots=True)
class FollowedGroup:
    """A group's record in the migration of a topic."""

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


@dataclass(slots=True)
class FollowReport:
    """The results of a round. Names are in order."""

    copied: int = 0
    handed_over: list[str] = field(default_factory=list)
    waiting: dict[str, str] = field(default_factory=dict)
    """Groups that are not Dray's yet, and what they wait for."""
    topics: set[str] = field(default_factory=set)
    """Those that groups wait for, linked still or not."""
    left: dict[str, str] = field(default_factory=dict)
    """Groups that are not followed, and why."""
    released: list[str] = field(default_factory=list)
    """Groups that waited, of which nothing was ever known."""


class GroupFollower:
    """`linked` says which topics of the source there are now: all of them, as a group moves with all that it
    reads. A round that fails is made again as a whole."""

    def __init__(
        self,
        source: GroupSource,
        copies: GroupCopies,
        linked: Callable[[], Awaitable[Sequence[LinkedTopic]]],
    ) -> None:
        self._source = source
        self._copies = copies
        self._linked = linked
        self._elsewhere: set[str] = set()  # groups that were seen to read none of these topics:
        self._elsewhere_of: frozenset[str] = frozenset()

    async def run_once(self) -> FollowReport:
        report = FollowReport()
        topics = {topic.name: topic for topic in await self._linked()}
        kept = await self._copies.read_all()
        if topics:
            listed = await self._source.listed()
            followed = self._choose(listed, kept, report)
            new = await self._copy(followed, kept, topics, report)
            new |= await self._copy_later(listed, kept, topics, report)
            new |= {group_id for group_id, copy in kept.items() if self._is_unsettled(copy)}
            await self._make_known(new)
            if report.copied or new:
                kept = await self._copies.read_all()
            await self._hand_over(listed, kept, topics, report)
            await self._hand_over_later(listed, kept, topics, report)
        for copy in kept.values():
            report.topics.update(self._topics_of(copy))
        return report

    async def hand_over_without_source(self) -> FollowReport:
        """The source is gone for good, so that nothing says any more whether groups have members there. They
        are Dray's with what was copied last, if their topics are; those of which nothing could be read are
        set free."""
        report = FollowReport()
        topics = {topic.name: topic for topic in await self._linked()}
        await self._make_known(
            [
                group_id
                for group_id, copy in (await self._copies.read_all()).items()
                if self._is_unsettled(copy)
            ]
        )
        kept = await self._copies.read_all()
        changes: list[CopyChange] = []
        later: list[LaterChange] = []
        unread: dict[str, StoredCopy] = {}
        for group_id, copy in sorted(kept.items()):
            if self._is_mine(copy) and not _is_switched(copy, topics):
                report.waiting[group_id] = "for the switch of its topics"
            elif self._is_mine(copy) and not copy.offsets:
                unread[group_id] = copy
            elif self._is_mine(copy):
                changes.append((group_id, copy, _within(copy.offsets, topics), True))
            elif copy.source == self._copies.source and copy.has_moved:
                ready = {
                    name: (_within(each.offsets, topics), True) if each.offsets else None
                    for name, each in copy.later.items()
                    if not each.has_moved and (name not in topics or topics[name].is_switched)
                }
                if ready:
                    later.append((group_id, copy, ready))
        ids = _ids(topics)
        done = {*await self._copies.change(changes, ids), *await self._copies.change_later(later, ids)}
        report.handed_over = sorted(done)
        report.released = sorted(await self._copies.release(unread))
        return report

    def _is_mine(self, copy: StoredCopy) -> bool:
        """Whether it is this migration's to follow, still."""
        return copy.source == self._copies.source and not copy.has_moved and not copy.lives_here

    def _is_unsettled(self, copy: StoredCopy) -> bool:
        if copy.source != self._copies.source or copy.lives_here:
            return False
        return not copy.is_settled or any(not each.is_settled for each in copy.later.values())

    def _topics_of(self, copy: StoredCopy) -> set[str]:
        """Those for which it waits."""
        if self._is_mine(copy):
            return {*copy.topics}
        return {*copy.later} if copy.source == self._copies.source else set()

    def _choose(
        self, listed: Mapping[str, ListedSourceGroup], kept: Mapping[str, StoredCopy], report: FollowReport
    ) -> list[str]:
        """Also those that were found once and are not listed now: a list that was put together while a
        coordinator moved may lack some."""
        found = []
        of_other_kinds = groups_left(listed)
        for group_id in sorted(listed.keys() | kept.keys()):
            copy, group = kept.get(group_id), listed.get(group_id)
            if copy is not None and copy.source != self._copies.source:
                if group is not None:
                    report.left[group_id] = f"it comes from {copy.source}"
            elif copy is not None and copy.lives_here:
                report.left[group_id] = "it has members here already"
            elif copy is not None and copy.has_moved:
                continue
            elif group_id in of_other_kinds:
                report.left[group_id] = of_other_kinds[group_id]
            else:
                found.append(group_id)
        return found

    async def _copy(
        self,
        group_ids: Sequence[str],
        kept: Mapping[str, StoredCopy],
        topics: Mapping[str, LinkedTopic],
        report: FollowReport,
    ) -> set[str]:
        """Those that are found for the first time."""
        committed, refused = await self._source.committed(group_ids, _partitions(topics))
        if topics.keys() != self._elsewhere_of:
            self._elsewhere, self._elsewhere_of = set(), frozenset(topics)
        changes: list[CopyChange] = []
        released: dict[str, StoredCopy] = {}
        for group_id, seen in committed.items():
            before = kept.get(group_id)
            offsets = _joined(before, seen)
            if not offsets:  # it reads other topics
                self._elsewhere.add(group_id)
                if before is not None:
                    released[group_id] = before
                continue
            self._elsewhere.discard(group_id)
            if _act(before, SourceGroup(1, offsets), is_switched=False) is GroupAct.COPY:
                changes.append((group_id, before, offsets, False))
        done = await self._copies.change(changes, _ids(topics))
        unread = [each for each in group_ids if each not in committed]
        to_hold = [
            each for each in unread if each not in kept and (each in refused or each not in self._elsewhere)
        ]
        held = await self._copies.hold(to_hold, _ids(topics)) if to_hold else set()
        report.copied = len(done)
        if released:
            report.copied += len(await self._copies.release(released))
        for group_id in {*unread} | {each[0] for each in changes} - {*done}:
            report.left[group_id] = _why_unread(refused.get(group_id))
        return {group_id for group_id, before, _, _ in changes if before is None and group_id in done} | {
            *held
        }

    async def _copy_later(
        self,
        listed: Mapping[str, ListedSourceGroup],
        kept: Mapping[str, StoredCopy],
        topics: Mapping[str, LinkedTopic],
        report: FollowReport,
    ) -> set[str]:
        """Topics that were linked after their groups had moved. Groups with such a topic that is new."""
        moved = {
            group_id: copy
            for group_id, copy in kept.items()
            if copy.source == self._copies.source
            and copy.has_moved
            and (copy.later or (group_id in listed and topics.keys() - {*copy.topics}))
        }
        if not moved:
            return set()
        read = await self._source.committed(list(moved), _partitions(topics))
        changes: list[LaterChange] = []
        for group_id, copy in moved.items():
            seen = read.offsets.get(group_id)
            if seen is None:
                report.left[group_id] = _why_unread(read.refused.get(group_id))
            wanted: dict[str, tuple[Offsets, bool] | None] = {}
            for name in topics.keys() - {*copy.topics}:
                before = copy.later.get(name)
                if before is not None and before.has_moved:
                    continue
                if seen is None:
                    if before is None and (group_id in read.refused or group_id not in self._elsewhere):
                        wanted[name] = {}, False
                    continue
                theirs = {place: each for place, each in seen.items() if place[0] == name}
                offsets = theirs if before is None else {**before.offsets, **theirs}
                if not offsets and before is not None:
                    wanted[name] = None
                elif offsets and (before is None or dict(before.offsets) != offsets):
                    wanted[name] = offsets, False
            if seen is not None and all(name in copy.topics for name, _ in seen):
                self._elsewhere.add(group_id)
            if wanted:
                changes.append((group_id, copy, wanted))
        done = await self._copies.change_later(changes, _ids(topics)) if changes else set()
        report.copied += len(done)
        return {*done}

    async def _make_known(self, group_ids: Collection[str]) -> None:
        await gather_some(map(self._copies.make_known, group_ids), _AT_ONCE)

    async def _hand_over(
        self,
        listed: Mapping[str, ListedSourceGroup],
        kept: Mapping[str, StoredCopy],
        topics: Mapping[str, LinkedTopic],
        report: FollowReport,
    ) -> None:
        ready = []
        for group_id, copy in sorted(kept.items()):
            if not self._is_mine(copy):
                continue
            state = listed[group_id].state if group_id in listed else ""
            if not _is_switched(copy, topics):
                report.waiting[group_id] = "for the switch of its topics"
            elif not copy.offsets:
                report.waiting[group_id] = "until the source says how far it has read"
            elif state not in WITHOUT_MEMBERS:
                report.waiting[group_id] = f"for its members at the source to leave: it is {state} there"
            else:
                report.waiting[group_id] = "for an answer"
                if copy.is_settled:
                    ready.append(group_id)
        before = await self._members(ready, report)
        empty = [group_id for group_id in ready if before.get(group_id) == 0]
        committed = (await self._source.committed(empty, _partitions(topics))).offsets if empty else {}
        after = await self._members(list(committed), report)
        changes: list[CopyChange] = []
        for group_id, members in after.items():
            copy = kept[group_id]
            offsets = _within(_joined(copy, committed[group_id]), topics)
            act = _act(copy, SourceGroup(members, offsets), is_switched=True)
            if act is GroupAct.COPY_AND_HAND_OVER:
                changes.append((group_id, copy, offsets, True))
        report.handed_over = sorted(await self._copies.change(changes, _ids(topics)))
        for group_id in report.handed_over:
            del report.waiting[group_id]

    async def _hand_over_later(
        self,
        listed: Mapping[str, ListedSourceGroup],
        kept: Mapping[str, StoredCopy],
        topics: Mapping[str, LinkedTopic],
        report: FollowReport,
    ) -> None:
        """As `_hand_over`: of a topic that was linked when its group had moved."""
        ready: dict[str, list[str]] = {}
        for group_id, copy in sorted(kept.items()):
            if copy.source != self._copies.source or not copy.has_moved:
                continue
            state = listed[group_id].state if group_id in listed else ""
            for name, each in copy.later.items():
                if each.has_moved:
                    continue
                if name not in topics or not topics[name].is_switched:
                    report.waiting[group_id] = f"for the switch of {name}"
                elif state not in WITHOUT_MEMBERS:
                    report.waiting[group_id] = f"for its members at the source to leave: it is {state} there"
                else:
                    report.waiting[group_id] = "for an answer"
                    if each.is_settled:
                        ready.setdefault(group_id, []).append(name)
        before = await self._members(list(ready), report)
        empty = [group_id for group_id in ready if before.get(group_id) == 0]
        committed = (await self._source.committed(empty, _partitions(topics))).offsets if empty else {}
        after = await self._members(list(committed), report)
        changes: list[LaterChange] = []
        for group_id, members in after.items():
            if members:
                continue
            copy, wanted = kept[group_id], {}
            for name in ready[group_id]:
                theirs = {place: each for place, each in committed[group_id].items() if place[0] == name}
                wanted[name] = _within({**copy.later[name].offsets, **theirs}, topics), True
            changes.append((group_id, copy, wanted))
        done = await self._copies.change_later(changes, _ids(topics)) if changes else ()
        report.handed_over = sorted({*report.handed_over, *done})
        for group_id in done:
            if all(each.has_moved or name in ready[group_id] for name, each in kept[group_id].later.items()):
                report.waiting.pop(group_id, None)

    async def _members(self, group_ids: Sequence[str], report: FollowReport) -> Mapping[str, int]:
        found = await self._source.members(group_ids) if group_ids else {}
        for group_id, members in found.items():
            if members:
                report.waiting[group_id] = f"for its {members} members at the source to leave"
        return found


def _act(kept: StoredCopy | None, seen: SourceGroup, *, is_switched: bool) -> GroupAct:
    group = FollowedGroup() if kept is None else FollowedGroup(kept.offsets, kept.has_moved)
    return next_act(group, seen, is_switched=is_switched)


def _joined(kept: StoredCopy | None, seen: Offsets) -> Offsets:
    return dict(seen) if kept is None else {**kept.offsets, **seen}


def _is_switched(copy: StoredCopy, topics: Mapping[str, LinkedTopic]) -> bool:
    """A group moves with all that it reads. A topic that is linked no more has its end behind it."""
    return all(topics[name].is_switched for name in copy.topics if name in topics)


def _why_unread(error: str | None) -> str:
    if error is None:
        return "the source or the store did not answer for it: it is tried again"
    return f"the source does not say how far it has read ({error}): it waits here until that is known"


def _within(offsets: Offsets, topics: Mapping[str, LinkedTopic]) -> Offsets:
    """Records of the source beyond the boundary are not here: a group that had read them goes on with the
    first record of Dray's own."""
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
