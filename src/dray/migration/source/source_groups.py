"""The groups of the source: which there are, who works in them, and how far they have read.

Many groups share a request. A question that a broker does not answer is left out, and does not count as
empty: a group that is not in an answer is one of which nothing is known now.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from dray.kafka.client.cluster import Address, Cluster, coordinator_in
from dray.kafka.client.connection import BrokerConnection
from dray.kafka.client.errors import AuthenticationFailed, ClientError
from dray.kafka.client.groups import DEAD, GroupCalls
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

Offsets: TypeAlias = Mapping[tuple[str, int], tuple[int, str]]
"""By topic and partition: offset, and the text that the group committed with it."""

FOLLOWED_TYPES: Final = ("", "classic", "consumer")
"""Share groups have no committed offsets, and Dray has neither them nor groups of Kafka Streams' protocol."""

WITHOUT_MEMBERS: Final = ("", "Empty", "Dead")

GROUPS_AT_ONCE: Final = 500
PLACES_AT_ONCE: Final = 20_000
"""How many partitions one request names, of all its groups together."""

_NAMES_UNTIL: Final = 9  # later versions of OffsetFetch name topics by their ids
_SEVERAL_FROM: Final = 8
_PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_NO_SUCH_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class ListedSourceGroup(NamedTuple):
    group_type: str
    """Empty where the source is too old to say."""
    state: str
    protocol_type: str = "consumer"
    """Empty of a group that never had members: its consumers assign partitions to themselves."""

    @property
    def assigns(self) -> bool:
        return not self.protocol_type and self.state in WITHOUT_MEMBERS


def groups_left(listed: Mapping[str, ListedSourceGroup]) -> dict[str, str]:
    """Those of kinds that are not followed, and why."""
    return {
        group_id: f"it is a {group.group_type.lower()} group, which Dray does not have"
        for group_id, group in sorted(listed.items())
        if group.group_type.lower() not in FOLLOWED_TYPES
    }


class ReadOffsets(NamedTuple):
    """The committed offsets of groups, as far as they could be read. A group that is in neither: its
    coordinator did not answer, or is only just coming."""

    offsets: Mapping[str, Offsets]
    refused: Mapping[str, str]
    """Groups whose offsets are not told, and with which error."""


class GroupSource(Protocol):
    """The requests to the source, in few requests for many groups."""

    async def listed(self) -> Mapping[str, ListedSourceGroup]: ...

    async def members(self, group_ids: Collection[str]) -> Mapping[str, int]:
        """How many each has; 0 for a group that is not there any more."""
        ...

    async def committed(
        self, group_ids: Collection[str], partitions: Mapping[str, Sequence[int]]
    ) -> ReadOffsets:
        """The offsets of each in these partitions, by topic; nothing for a group that is not there."""
        ...


class SourceGroups:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def listed(self) -> dict[str, ListedSourceGroup]:
        listed = await GroupCalls(self._cluster).list_groups()
        return {
            each.group_id: ListedSourceGroup(each.group_type, each.group_state, each.protocol_type)
            for each in listed
        }

    async def assigning(self, topic: str, partitions: int) -> list[str]:
        """Groups that have committed offsets of the topic and never had members (Flink, say): nothing at the
        source says whether their consumers still work."""
        groups = [name for name, each in (await self.listed()).items() if each.assigns]
        found = (await self.committed(groups, {topic: range(partitions)})).offsets if groups else {}
        return sorted(name for name, offsets in found.items() if offsets)

    async def members(self, group_ids: Collection[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for some in _parts(group_ids, GROUPS_AT_ONCE):
            for address, theirs in (await self._coordinators(some, {})).items():
                try:
                    async with self._cluster.broker(address) as broker:
                        found.update(await _members(broker, theirs))
                except AuthenticationFailed:
                    raise
                except ClientError:
                    continue
        return found

    async def committed(
        self, group_ids: Collection[str], partitions: Mapping[str, Sequence[int]]
    ) -> ReadOffsets:
        places = sum(len(indexes) for indexes in partitions.values())
        step = max(1, min(GROUPS_AT_ONCE, PLACES_AT_ONCE // max(1, places)))
        found: dict[str, Offsets] = {}
        refused: dict[str, str] = {}
        for some in _parts(group_ids, step):
            for address, theirs in (await self._coordinators(some, refused)).items():
                try:
                    async with self._cluster.broker(address) as broker:
                        found.update(await _committed(broker, theirs, partitions, refused))
                except AuthenticationFailed:
                    raise
                except ClientError:
                    continue
        return ReadOffsets(found, refused)

    async def _coordinators(
        self, group_ids: Sequence[str], refused: dict[str, str]
    ) -> dict[Address, list[str]]:
        """Those that are known. `refused` gets the groups of which we may not know it."""
        by_address: dict[Address, list[str]] = {}
        try:
            request = FindCoordinatorRequest(key=group_ids[0], coordinator_keys=list(group_ids))
            found = (await self._cluster.request(request)).coordinators
            if not found:  # an old broker, which tells of one at a time
                for group_id in group_ids:
                    answer = await self._cluster.request(FindCoordinatorRequest(key=group_id))
                    found.append(coordinator_in(answer, group_id))
        except AuthenticationFailed:
            raise
        except ClientError:
            return {}
        for each in found:
            if not each.error_code:
                by_address.setdefault((each.host, each.port), []).append(each.key)
            elif each.error_code not in _PASSING:
                refused[each.key] = ErrorCode.name_of(each.error_code)
        return by_address


async def _members(broker: BrokerConnection, group_ids: Sequence[str]) -> dict[str, int]:
    """A group is of the one protocol or the other: what is none of the first is asked for as the second."""
    found: dict[str, int] = {}
    others: list[str] = []
    for group in (await broker.request(DescribeGroupsRequest(groups=list(group_ids)))).groups:
        if group.error_code in _NO_SUCH_GROUP or (not group.error_code and group.group_state == DEAD):
            others.append(group.group_id)
        elif not group.error_code:
            found[group.group_id] = len(group.members)
    if not others:
        return found
    request = ConsumerGroupDescribeRequest(group_ids=others)
    if not _serves(broker, request.API_KEY):
        return found | dict.fromkeys(others, 0)
    for each in (await broker.request(request)).groups:
        if each.error_code in _NO_SUCH_GROUP:
            found[each.group_id] = 0
        elif not each.error_code:
            found[each.group_id] = len(each.members)
    return found


def _serves(broker: BrokerConnection, api_key: int) -> bool:
    try:
        broker.version_for(api_key)
    except ClientError:
        return False
    return True


async def _committed(
    broker: BrokerConnection,
    group_ids: Sequence[str],
    partitions: Mapping[str, Sequence[int]],
    refused: dict[str, str],
) -> dict[str, Offsets]:
    """Stable ones: a group whose offsets are part of a transaction that has not ended is refused. Its offsets
    from before would be older than what its producer may yet commit."""
    version = min(_NAMES_UNTIL, broker.version_for(OffsetFetchRequest.API_KEY))
    found: dict[str, Offsets] = {}
    if version < _SEVERAL_FROM:
        topics = [OffsetFetchRequestTopic(name, list(indexes)) for name, indexes in partitions.items()]
        for group_id in group_ids:
            asked = OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=True)
            answer = await broker.request(asked, version)
            rows = [(topic.name, item) for topic in answer.topics for item in topic.partitions]
            if not _is_refused(refused, group_id, answer.error_code, [item.error_code for _, item in rows]):
                found[group_id] = {
                    (name, item.partition_index): (item.committed_offset, item.metadata or "")
                    for name, item in rows
                    if item.committed_offset >= 0
                }
        return found
    wanted = [
        OffsetFetchRequestTopics(name=name, partition_indexes=list(indexes))
        for name, indexes in partitions.items()
    ]
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id, topics=wanted) for group_id in group_ids],
        require_stable=True,
    )
    for group in (await broker.request(request, version)).groups:
        several = [(topic.name, item) for topic in group.topics for item in topic.partitions]
        errors = [item.error_code for _, item in several]
        if _is_refused(refused, group.group_id, group.error_code, errors):
            continue
        found[group.group_id] = {
            (name, item.partition_index): (item.committed_offset, item.metadata or "")
            for name, item in several
            if item.committed_offset >= 0
        }
    return found


def _is_refused(
    refused: dict[str, str], group_id: str, group_error: int, partition_errors: Sequence[int]
) -> bool:
    """Is there an error in the answer? One that does not pass by itself is noted."""
    found = [code for code in (group_error, *partition_errors) if code]
    lasting = [code for code in found if code not in _PASSING]
    if lasting:
        refused[group_id] = ErrorCode.name_of(lasting[0])
    return bool(found)


def _parts(group_ids: Collection[str], size: int) -> list[list[str]]:
    ordered = sorted(group_ids)
    return [ordered[first : first + size] for first in range(0, len(ordered), size)]
