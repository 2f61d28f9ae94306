"""Consumer groups: a page of their list with what each lags, one of them whole, and who reads a topic.

Lag in seconds is the age of the first record that a group has not read: that record's own time, so nothing
has to be sampled. Zero where it has read everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from dray.base.runtime import gather_some
from dray.inspection.brokers import Brokers
from dray.inspection.records.reading import FetchedRecord, OffsetGone, TopicReader
from dray.kafka.client import ClientError, RequestFailed
from dray.kafka.client.cluster import Place
from dray.kafka.client.groups import GroupCalls, GroupDescription, MemberDescription, lags
from dray.kafka.client.records import LATEST
from dray.kafka.protocol.messages.list_groups import ListedGroup

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
class GroupView:
    """A group with what it has committed, beside where its partitions end."""

    group: GroupDescription
    committed: Mapping[Place, int]
    ends: Mapping[Place, int]
    owners: Mapping[Place, MemberDescription]
    """The members that are to read the partitions."""
    lags: Mapping[Place, int]

    @property
    def places(self) -> list[Place]:
        """The partitions that the group has read, or that a member is to read."""
        return sorted({*self.committed, *self.owners})

    @property
    def lag(self) -> int:
        return sum(self.lags.values())


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
    lag = sum(lags(committed, ends).values())
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
    found: dict[str, LagOfGroup] = {}
    for name, offsets in committed.items():
        behind = lags(offsets or {}, ends)
        if not behind:
            continue
        worst = max(behind, key=lambda place: behind[place])
        ages = await _ages(brokers, offsets or {}, {worst: behind[worst]}, find)
        found[name] = LagOfGroup(sum(behind.values()), ages.get(worst))
    return found


async def group_view(brokers: Brokers, name: str, time_of: TimeOf | None = None) -> GroupDetail:
    """Raises `NoSuchGroup`. `time_of` looks the times of records up; without it they are fetched."""
    calls = group_calls(brokers)
    group = await calls.describe_if_any(name)
    if group is None:
        raise NoSuchGroup(f"there is no group {name}")
    view = await read_group(group, calls, lambda topics: _ends(brokers, topics))
    ages = await _ages(brokers, view.committed, view.lags, time_of or RecordTimes(brokers).time_of)
    return _detail(view, ages)


async def read_group(
    group: GroupDescription,
    calls: GroupCalls,
    ends_of: Callable[[Sequence[str]], Awaitable[Mapping[Place, int]]],
) -> GroupView:
    """`ends_of`: the ends of these topics' partitions."""
    committed = await calls.committed(group.group_id)
    owners: dict[Place, MemberDescription] = {
        (topic, partition): member
        for member in group.members
        for topic, partitions in member.assignment.items()
        for partition in partitions
    }
    ends = await ends_of(sorted({topic for topic, _ in (*committed, *owners)}))
    return GroupView(group, committed, ends, owners, lags(committed, ends))


def _detail(view: GroupView, ages: Mapping[Place, int]) -> GroupDetail:
    group = view.group
    partitions = [
        GroupPartition(
            *place,
            view.committed.get(place),
            view.ends.get(place),
            view.lags.get(place),
            ages.get(place),
            view.owners[place].member_id if place in view.owners else None,
        )
        for place in view.places
    ]
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
        view.lag,
        max(ages.values(), default=None),
        group.state == "Empty",
    )


async def _ages(
    brokers: Brokers, committed: Mapping[Place, int], lags: Mapping[Place, int], time_of: TimeOf
) -> dict[Place, int]:
    now = brokers.runtime.wall_ms()
    ages = {place: 0 for place, lag in lags.items() if lag == 0}
    behind = sorted((place for place, lag in lags.items() if lag), key=lambda place: -lags[place])

    async def age(place: Place) -> int | None:
        written = await time_of(*place, committed[place])
        return None if written is None or written < 0 else max(0, now - written)

    found = await gather_some((age(place) for place in behind[:_TIMED]), _AT_ONCE)
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
    """The committed offsets of every group. None if there are too many groups to ask them all, or if they
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
            place: offset for place, offset in (committed[group.group_id] or {}).items() if place[0] == topic
        }
        if not of_topic:
            continue
        behind = lags(of_topic, ends)
        lag = sum(behind.values()) if behind else None
        offsets = {number: offset for (_, number), offset in of_topic.items()}
        rows.append(TopicReaderRow(group.group_id, group.group_type, group.group_state, lag, offsets))
    return TopicReaders(rows, len(asked), len(listed))


# --- how old the first unread record of a group is
# Of a group, the partitions that lag most are looked at, and a record is fetched once: as long as the group
# has not moved, its time stands.


PARTITIONS: Final = 4
"""So many partitions of a group are looked at."""


class GroupAges:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._times: dict[tuple[Place, int], int | None] = {}

    async def look(self, names: Sequence[str]) -> Mapping[str, int]:
        """Milliseconds by group; 0 where it has read everything. A group whose time is not known is left
        out."""
        try:
            committed = await group_calls(self._brokers).committed_of(names)
            topics = sorted({place[0] for found in committed.values() for place in found or ()})
            if not topics:
                return {}
            metadata = await self._brokers.metadata(topics)
            ends = await self._brokers.offsets(metadata, LATEST)
        except (ClientError, RequestFailed):
            return {}
        behind = {name: _furthest(found, ends) for name, found in committed.items() if found}
        await self._read({each for places in behind.values() for each in places})
        now = self._brokers.runtime.wall_ms()
        ages: dict[str, int] = {}
        for name, places in behind.items():
            times = [time for each in places if (time := self._times.get(each)) is not None]
            if not places:
                ages[name] = 0
            elif times:
                ages[name] = max(0, now - min(times))
        return ages

    async def _read(self, wanted: set[tuple[Place, int]]) -> None:
        self._times = {each: time for each, time in self._times.items() if each in wanted}
        records = RecordTimes(self._brokers)

        async def one(each: tuple[Place, int]) -> None:
            (topic, partition), offset = each
            self._times[each] = await records.time_of(topic, partition, offset)

        await gather_some((one(each) for each in sorted(wanted - self._times.keys())), _AT_ONCE)


def _furthest(committed: Mapping[Place, int], ends: Mapping[Place, int]) -> list[tuple[Place, int]]:
    """The places that lag most, with what is committed."""
    behind = lags(committed, ends)
    lagging = sorted((place for place, lag in behind.items() if lag), key=lambda place: -behind[place])
    return [(place, committed[place]) for place in lagging[:PARTITIONS]]
