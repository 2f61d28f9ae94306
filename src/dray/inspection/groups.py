"""Consumer groups: a page of their list with what each lags, one of them whole, and who reads a topic.

Lag in seconds is the age of the first record that a group has not read: that record's own time, so nothing
has to be sampled. Zero where it has read everything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from dray.client import ClientError, RequestFailed
from dray.client.cluster import Place
from dray.client.groups import GroupCalls, GroupDescription, MemberDescription
from dray.client.records import LATEST
from dray.inspection.brokers import Brokers
from dray.inspection.reading import FetchedRecord, OffsetGone, TopicReader
from dray.protocol.messages.list_groups import ListedGroup

PAGE: Final = 50
ASKED_FOR_TOPIC: Final = 200
"""So many groups are asked whether they read a topic; a page that shows fewer than all says so."""

_AT_ONCE: Final = 8
_TIMED: Final = 32
"""So many partitions of a group have their first unread record looked up: those that lag most."""

TimeOf: TypeAlias = Callable[[str, int, int], Awaitable[int | None]]
"""When the first record from an offset on was written, as (topic, partition, offset)."""


@dataclass(frozen=True)
class LagOfGroup:
    records: int
    milliseconds: int | None
    """The age of the first unread record; None where it is not known."""


class NoSuchGroup(Exception):
    """There is no group of that name."""


@dataclass(frozen=True)
class GroupRow:
    name: str
    group_type: str
    state: str
    lag: int | None
    topics: Sequence[str]
    trouble: str | None = None


@dataclass(frozen=True)
class GroupsPage:
    rows: Sequence[GroupRow]
    total: int
    matching: int
    page: int
    pages: int
    filter: str


@dataclass(frozen=True)
class MemberRow:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    epoch: int | None
    partitions: int


@dataclass(frozen=True)
class GroupPartition:
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    lag_ms: int | None
    """How old the first unread record is."""
    member: str | None


@dataclass(frozen=True)
class GroupDetail:
    name: str
    group_type: str
    state: str
    assignor: str
    coordinator: int
    """The broker that leads the group,"""
    coordinator_address: str
    """and where it is."""
    epoch: int | None
    members: Sequence[MemberRow]
    partitions: Sequence[GroupPartition]
    lag: int
    lag_ms: int | None
    resettable: bool


@dataclass(frozen=True)
class TopicReaderRow:
    """A group that has committed offsets of a topic."""

    name: str
    group_type: str
    state: str
    lag: int | None
    committed: Mapping[int, int]


@dataclass(frozen=True)
class TopicReaders:
    rows: Sequence[TopicReaderRow]
    asked: int
    total: int


def group_calls(brokers: Brokers) -> GroupCalls:
    return GroupCalls(brokers.cluster())


async def listed_groups(brokers: Brokers) -> list[ListedGroup]:
    """Every broker lists its groups, one request each."""
    return await brokers.recall("groups", group_calls(brokers).list_groups)


async def groups_page(brokers: Brokers, wanted: str = "", page: int = 1, size: int = PAGE) -> GroupsPage:
    """Offsets are asked for the rows of this page alone, all of one coordinator in one request."""
    calls = group_calls(brokers)
    listed = await listed_groups(brokers)
    matching = [group for group in listed if wanted.lower() in group.group_id.lower()]
    pages = max(1, -(-len(matching) // size))
    page = min(max(page, 1), pages)
    shown = matching[(page - 1) * size : page * size]
    committed = await _committed(calls, [group.group_id for group in shown])
    ends = await _ends(brokers, {place[0] for found in committed.values() for place in found or ()})
    rows = [_row(group, committed[group.group_id], ends) for group in shown]
    return GroupsPage(rows, len(listed), len(matching), page, pages, wanted)


def _row(group: ListedGroup, committed: Mapping[Place, int] | None, ends: Mapping[Place, int]) -> GroupRow:
    if committed is None:
        return GroupRow(
            group.group_id, group.group_type, group.group_state, None, (), "its coordinator does not answer"
        )
    lag = sum(max(0, ends[place] - offset) for place, offset in committed.items() if place in ends)
    topics = sorted({topic for topic, _ in committed})
    return GroupRow(group.group_id, group.group_type, group.group_state, lag if committed else None, topics)


async def _committed(calls: GroupCalls, names: Sequence[str]) -> Mapping[str, Mapping[Place, int] | None]:
    """The committed offsets of groups; None for a group whose coordinator does not answer."""
    return await calls.committed_of(list(names))


async def _ends(brokers: Brokers, topics: Iterable[str]) -> dict[Place, int]:
    names = sorted(set(topics))
    if not names:
        return {}
    try:
        return await brokers.offsets(await brokers.metadata(names), LATEST)
    except (ClientError, RequestFailed):
        return {}


async def lags_of(
    brokers: Brokers, names: Sequence[str], time_of: TimeOf | None = None
) -> dict[str, LagOfGroup]:
    """Of many groups at once. Those that have committed nothing, or whose coordinator does not answer, are
    left out. The age is that of the partition that lags most: one look-up a group."""
    calls = group_calls(brokers)
    committed = await _committed(calls, names)
    ends = await _ends(brokers, {place[0] for found in committed.values() for place in found or ()})
    find = time_of or RecordTimes(brokers).time_of
    lags: dict[str, LagOfGroup] = {}
    for name, offsets in committed.items():
        behind = {
            place: max(0, ends[place] - offset) for place, offset in (offsets or {}).items() if place in ends
        }
        if not behind:
            continue
        worst = max(behind, key=lambda place: behind[place])
        ages = await _ages(brokers, offsets or {}, {worst: behind[worst]}, find)
        lags[name] = LagOfGroup(sum(behind.values()), ages.get(worst))
    return lags


async def group_view(brokers: Brokers, name: str, time_of: TimeOf | None = None) -> GroupDetail:
    """Raises `NoSuchGroup`. `time_of` looks the times of records up; without it they are fetched."""
    calls = group_calls(brokers)
    group = await calls.describe_if_any(name)
    if group is None:
        raise NoSuchGroup(f"there is no group {name}")
    committed = await calls.committed(name)
    owners: dict[Place, MemberDescription] = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    places = sorted({*committed, *owners})
    ends = await _ends(brokers, {topic for topic, _ in places})
    lags = {
        place: max(0, ends[place] - committed[place])
        for place in places
        if place in committed and place in ends
    }
    ages = await _ages(brokers, committed, lags, time_of or RecordTimes(brokers).time_of)
    partitions = [
        GroupPartition(
            *place,
            committed.get(place),
            ends.get(place),
            lags.get(place),
            ages.get(place),
            owners[place].member_id if place in owners else None,
        )
        for place in places
    ]
    return _view(group, partitions)


def _view(group: GroupDescription, partitions: Sequence[GroupPartition]) -> GroupDetail:
    ages = [row.lag_ms for row in partitions if row.lag_ms is not None]
    return GroupDetail(
        group.group_id,
        group.group_type,
        group.state,
        group.assignor,
        group.coordinator.broker_id,
        f"{group.coordinator.host}:{group.coordinator.port}",
        group.epoch,
        [
            MemberRow(
                member.member_id,
                member.client_id,
                member.host.removeprefix("/"),
                member.instance_id,
                member.epoch,
                sum(len(owned) for owned in member.assignment.values()),
            )
            for member in group.members
        ],
        partitions,
        sum(row.lag or 0 for row in partitions),
        max(ages, default=None),
        group.state == "Empty",
    )


async def _ages(
    brokers: Brokers, committed: Mapping[Place, int], lags: Mapping[Place, int], time_of: TimeOf
) -> dict[Place, int]:
    now = brokers.runtime.wall_ms()
    ages = {place: 0 for place, lag in lags.items() if lag == 0}
    behind = sorted((place for place, lag in lags.items() if lag), key=lambda place: -lags[place])
    gate = asyncio.Semaphore(_AT_ONCE)

    async def age(place: Place) -> int | None:
        async with gate:
            written = await time_of(*place, committed[place])
        return None if written is None or written < 0 else max(0, now - written)

    found = await asyncio.gather(*(age(place) for place in behind[:_TIMED]))
    return ages | {place: age for place, age in zip(behind, found, strict=False) if age is not None}


class RecordTimes:
    """The time of a record, from the record itself."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._readers: dict[str, TopicReader] = {}

    async def time_of(self, topic: str, partition: int, offset: int) -> int | None:
        reader = self._readers.setdefault(topic, TopicReader(self._brokers, topic))
        try:
            fetched = await reader.fetch(partition, offset, max_bytes=1)
        except OffsetGone as error:
            if error.start <= offset:
                return None
            return await self.time_of(topic, partition, error.start)
        except (ClientError, RequestFailed):
            return None
        for item in fetched.items:
            if isinstance(item, FetchedRecord):
                return item.record.timestamp
        return None


async def commits_of_all(brokers: Brokers) -> Mapping[str, Mapping[Place, int]] | None:
    """What every group has committed. None where there are too many groups to ask them all, and where they
    cannot be listed: a part of them would look like all."""
    try:
        listed = await listed_groups(brokers)
        if len(listed) > ASKED_FOR_TOPIC:
            return None
        names = [group.group_id for group in listed]
        found = await brokers.recall("commits", partial(_committed, group_calls(brokers), names))
    except (ClientError, RequestFailed):
        return None
    return {name: offsets for name, offsets in found.items() if offsets}


async def readers_of(brokers: Brokers, topic: str) -> TopicReaders:
    """The groups that have committed offsets of a topic."""
    calls = group_calls(brokers)
    listed = await listed_groups(brokers)
    asked = listed[:ASKED_FOR_TOPIC]
    committed = await _committed(calls, [group.group_id for group in asked])
    ends = await _ends(brokers, [topic])
    rows = []
    for group in asked:
        of_topic = {
            partition: offset
            for (name, partition), offset in (committed[group.group_id] or {}).items()
            if name == topic
        }
        if not of_topic:
            continue
        lags = [
            max(0, ends[topic, number] - offset)
            for number, offset in of_topic.items()
            if (topic, number) in ends
        ]
        lag = sum(lags) if lags else None
        rows.append(TopicReaderRow(group.group_id, group.group_type, group.group_state, lag, of_topic))
    return TopicReaders(rows, len(asked), len(listed))
