"""Consumer groups: Kafka requests out, plain values back. Works on Apache Kafka too.

Requests about a group go to its coordinator, which is looked for again when it has moved. The protocol of a
group is not known beforehand: it is described as a KIP-848 group first, and as a classic one if it is none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NoReturn, TypeVar

from dray.base.runtime import gather_some
from dray.kafka.client.cluster import Cluster, Place, coordinator_in
from dray.kafka.client.connection import BrokerConnection
from dray.kafka.client.errors import ClientError, RequestFailed, check
from dray.kafka.protocol import DecodeError, ErrorCode
from dray.kafka.protocol.messages import consumer_group_describe, describe_groups
from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from dray.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

T = TypeVar("T")

NO_EPOCH: Final = -1
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
DEAD: Final = "Dead"

_ASK_AGAIN: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
_PATIENCE_SECONDS: Final = 30.0
_VERSION_SIZE: Final = 2
_AT_ONCE: Final = 8
_TOGETHER: Final = 500


@dataclass(frozen=True)
class BrokerAddress:
    broker_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port} ({self.broker_id})"


@dataclass(frozen=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Mapping[str, Sequence[int]] = field(default_factory=dict)
    epoch: int | None = None
    """Only members of KIP-848 groups have one."""

    target: Mapping[str, Sequence[int]] | None = None
    subscription: str | None = None


@dataclass(frozen=True)
class GroupDescription:
    group_id: str
    group_type: str
    state: str
    assignor: str
    protocol_type: str
    coordinator: BrokerAddress
    members: Sequence[MemberDescription]
    epoch: int | None = None
    target_epoch: int | None = None


class GroupCalls:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list_groups(
        self, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[ListedGroup]:
        """Every broker lists the groups that it coordinates. After a broker has died, the others list its
        groups a little later, when it is no longer a member."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        return await self._cluster.patiently(
            partial(self._list_groups, request), _PATIENCE_SECONDS, _ASK_AGAIN
        )

    async def _list_groups(self, request: ListGroupsRequest) -> list[ListedGroup]:
        found: dict[str, ListedGroup] = {}
        for listed in (await self._cluster.learn([])).brokers:
            async with self._cluster.broker((listed.host, listed.port)) as broker:
                response = await broker.request(request)
            check(f"cannot list the groups of {listed.host}:{listed.port}", response.error_code)
            found.update({group.group_id: group for group in response.groups})
        return [group for _, group in sorted(found.items())]

    async def describe(self, group_id: str) -> GroupDescription:
        """`RequestFailed` with GROUP_ID_NOT_FOUND where there is none."""
        found = await self.describe_if_any(group_id)
        if found is None:
            raise RequestFailed(
                f"cannot describe group {group_id}: GROUP_ID_NOT_FOUND: there is no such group"
            )
        return found

    async def describe_if_any(self, group_id: str) -> GroupDescription | None:
        attempt = f"cannot describe group {group_id}"

        async def as_consumer(broker: BrokerConnection) -> consumer_group_describe.DescribedGroup:
            return (await broker.request(ConsumerGroupDescribeRequest(group_ids=[group_id]))).groups[0]

        async def as_classic(broker: BrokerConnection) -> describe_groups.DescribedGroup:
            return (await broker.request(DescribeGroupsRequest(groups=[group_id]))).groups[0]

        new, address = await self._at_coordinator(group_id, attempt, as_consumer, _error_of)
        if new.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            check(attempt, new.error_code, new.error_message)
            return _consumer_description(new, address)
        old, address = await self._at_coordinator(group_id, attempt, as_classic, _error_of)
        if old.error_code == ErrorCode.GROUP_ID_NOT_FOUND or (not old.error_code and old.group_state == DEAD):
            return None
        check(attempt, old.error_code, old.error_message)
        return _classic_description(old, address)

    async def committed(self, group_id: str) -> dict[Place, int]:
        """Every offset that the group has committed."""
        attempt = f"cannot read the offsets of group {group_id}"
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id, topics=None)], group_id=group_id, topics=None
        )

        async def fetch(broker: BrokerConnection) -> tuple[int, list[tuple[str, int, int, int]]]:
            response = await broker.request(request, min(NAMES_UNTIL, broker.version_for(request.API_KEY)))
            answer = response.groups[0] if response.groups else response
            return answer.error_code, [
                (topic.name, item.partition_index, item.error_code, item.committed_offset)
                for topic in answer.topics
                for item in topic.partitions
            ]

        (code, found), _ = await self._at_coordinator(group_id, attempt, fetch, lambda answer: answer[0])
        check(attempt, code)
        for name, partition, error, _ in found:
            check(f"{attempt} in {name}-{partition}", error)
        return {(name, partition): offset for name, partition, _, offset in found if offset >= 0}

    async def committed_of(self, group_ids: Sequence[str]) -> dict[str, dict[Place, int] | None]:
        """The offsets of many groups, all of one coordinator in one request; None for a group whose
        coordinator does not answer. A broker that takes one group at a time is asked so."""
        found: dict[str, dict[Place, int] | None] = {}
        for some in _pieces(group_ids):
            found.update(await committed_together(self._cluster, some))

        async def alone(group_id: str) -> dict[Place, int] | None:
            try:
                return await self.committed(group_id)
            except (ClientError, RequestFailed):
                return None

        left = [group_id for group_id in group_ids if group_id not in found]
        return found | dict(zip(left, await gather_some(map(alone, left), _AT_ONCE), strict=True))

    async def commit(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """For a group without members; all or, where a partition is refused, perhaps some."""
        attempt = f"cannot reset the offsets of group {group_id}"
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (name, partition), offset in offsets.items():
            by_topic.setdefault(name, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=""
                )
            )
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=NO_EPOCH,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=items) for name, items in by_topic.items()
            ],
        )

        async def send(broker: BrokerConnection) -> list[tuple[str, int, int]]:
            response = await broker.request(request, min(NAMES_UNTIL, broker.version_for(request.API_KEY)))
            return [
                (topic.name, item.partition_index, item.error_code)
                for topic in response.topics
                for item in topic.partitions
            ]

        answers, _ = await self._at_coordinator(
            group_id, attempt, send, lambda answer: next((code for _, _, code in answer if code), 0)
        )
        for name, partition, code in answers:
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                refuse_live(group_id)
            check(f"{attempt} in {name}-{partition}", code)

    async def delete(self, group_id: str, may_be_absent: bool = False) -> bool:
        """False when there was none, and that was allowed."""
        attempt = f"cannot delete group {group_id}"

        async def send(broker: BrokerConnection) -> int:
            return (await broker.request(DeleteGroupsRequest(groups_names=[group_id]))).results[0].error_code

        code, _ = await self._at_coordinator(group_id, attempt, send, lambda answer: answer)
        if code == ErrorCode.GROUP_ID_NOT_FOUND and may_be_absent:
            return False
        check(attempt, code, "stop its consumers first" if code == ErrorCode.NON_EMPTY_GROUP else None)
        return True

    async def _at_coordinator(
        self,
        group_id: str,
        attempt: str,
        call: Callable[[BrokerConnection], Awaitable[T]],
        error_of: Callable[[T], int],
    ) -> tuple[T, BrokerAddress]:
        """The answer of the group's coordinator, and its address. While it moves or starts, ask again."""

        async def ask() -> tuple[T, BrokerAddress]:
            request = FindCoordinatorRequest(key=group_id, coordinator_keys=[group_id])
            found = coordinator_in(await self._cluster.request(request), group_id)
            check(attempt, found.error_code, found.error_message)
            try:
                async with self._cluster.broker((found.host, found.port)) as broker:
                    answer = await call(broker)
            except ClientError as error:  # the coordinator may have died, and another will take its place
                check(attempt, ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error))
                raise
            if error_of(answer) in _ASK_AGAIN:
                check(attempt, error_of(answer))
            return answer, BrokerAddress(found.node_id, found.host, found.port)

        return await self._cluster.patiently(ask, _PATIENCE_SECONDS, _ASK_AGAIN)


def _pieces(group_ids: Sequence[str]) -> list[Sequence[str]]:
    return [group_ids[first : first + _TOGETHER] for first in range(0, len(group_ids), _TOGETHER)]


def refuse_live(group_id: str, state: str = "", members: int = 0) -> NoReturn:
    """Kafka refuses it too: the members would go on where they are, and commit over what was reset."""
    about = f" ({state}, {members} member{'' if members == 1 else 's'})" if state else ""
    raise RequestFailed(
        f"cannot reset the offsets of group {group_id}: it has live members{about}; stop its consumers first"
    )


def _error_of(group: consumer_group_describe.DescribedGroup | describe_groups.DescribedGroup) -> int:
    return group.error_code


def _consumer_description(
    group: consumer_group_describe.DescribedGroup, address: BrokerAddress
) -> GroupDescription:
    return GroupDescription(
        group_id=group.group_id,
        group_type=CONSUMER,
        state=group.group_state,
        assignor=group.assignor_name,
        protocol_type=CONSUMER,
        coordinator=address,
        members=[
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=_by_topic(member.assignment),
                epoch=member.member_epoch,
                target=_by_topic(member.target_assignment),
                subscription=", ".join(
                    [*member.subscribed_topic_names, *filter(None, [member.subscribed_topic_regex])]
                ),
            )
            for member in group.members
        ],
        epoch=group.group_epoch,
        target_epoch=group.assignment_epoch,
    )


def _by_topic(assignment: consumer_group_describe.Assignment) -> dict[str, Sequence[int]]:
    return {topic.topic_name: sorted(topic.partitions) for topic in assignment.topic_partitions}


def _classic_description(group: describe_groups.DescribedGroup, address: BrokerAddress) -> GroupDescription:
    consumers = group.protocol_type == CONSUMER
    return GroupDescription(
        group_id=group.group_id,
        group_type=CLASSIC,
        state=group.group_state,
        assignor=group.protocol_data,
        protocol_type=group.protocol_type,
        coordinator=address,
        members=[
            MemberDescription(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                host=member.client_host,
                assignment=assigned_in(bytes(member.member_assignment)) if consumers else {},
            )
            for member in group.members
        ],
    )


def assigned_in(assignment: bytes) -> dict[str, Sequence[int]]:
    """The assignment that the leader of a classic group wrote for a member. It may be anything: one that
    cannot be read counts as empty. Every version of it starts as version 0 does."""
    if len(assignment) < _VERSION_SIZE:
        return {}
    try:
        decoded, _ = ConsumerProtocolAssignment.decode(memoryview(assignment), _VERSION_SIZE, 0)
    except DecodeError:
        return {}
    return {topic.topic: sorted(topic.partitions) for topic in decoded.assigned_partitions}


# --- the committed offsets of many groups
#
# In few requests: one for the coordinators, one to each of them.


NAMES_UNTIL: Final = 9
"""The last version of OffsetFetch and OffsetCommit that names topics: a topic that is gone has no id."""
SEVERAL_FROM: Final = 8
"""The first version of OffsetFetch that takes several groups."""


async def committed_together(
    cluster: Cluster, group_ids: Sequence[str]
) -> dict[str, dict[Place, int] | None]:
    """Of the groups that were answered so; the others have to be asked for one by one."""
    try:
        coordinators = await _coordinators(cluster, group_ids)
    except ClientError:
        return {}
    found: dict[str, dict[Place, int] | None] = {}
    for address, groups in coordinators.items():
        try:
            found.update(await _fetch(cluster, address, groups))
        except ClientError:
            continue
    return found


async def _coordinators(cluster: Cluster, group_ids: Sequence[str]) -> dict[tuple[str, int], list[str]]:
    answer = await cluster.request(FindCoordinatorRequest(key=group_ids[0], coordinator_keys=list(group_ids)))
    by_address: dict[tuple[str, int], list[str]] = {}
    for each in answer.coordinators:  # older brokers answer with one alone, outside of this list
        if not each.error_code and each.key in group_ids:
            by_address.setdefault((each.host, each.port), []).append(each.key)
    return by_address


async def _fetch(
    cluster: Cluster, address: tuple[str, int], groups: Sequence[str]
) -> dict[str, dict[Place, int] | None]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name, topics=None) for name in groups])
    async with cluster.broker(address) as broker:
        version = min(NAMES_UNTIL, broker.version_for(request.API_KEY))
        if version < SEVERAL_FROM:
            return {}
        response = await broker.request(request, version)
    found: dict[str, dict[Place, int] | None] = {}
    for group in response.groups:
        partitions = [(topic.name, item) for topic in group.topics for item in topic.partitions]
        if group.error_code or any(item.error_code for _, item in partitions):
            continue  # asked for alone, it says why, or answers once it has moved
        found[group.group_id] = {
            (name, item.partition_index): item.committed_offset
            for name, item in partitions
            if item.committed_offset >= 0
        }
    return found


def lag(committed: int, end: int) -> int:
    """The records that a group has not read. An end that was asked for earlier may lie below what is
    committed: that is no lag."""
    return max(0, end - committed)


def lags(committed: Mapping[Place, int], ends: Mapping[Place, int]) -> dict[Place, int]:
    """By partition, as far as both are known."""
    return {place: lag(offset, ends[place]) for place, offset in committed.items() if place in ends}
