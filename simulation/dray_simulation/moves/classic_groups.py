"""The groups of a classic source: their members, and what they have committed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dray.kafka.client.cluster import Address
from dray.kafka.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from dray.kafka.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from dray.kafka.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)


@dataclass(slots=True)
class SourceMembers:
    members: int = 0
    committed: dict[int, int] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"


class ClassicGroups:
    """One broker looks after all of them."""

    def __init__(self, topic: str, addresses: Sequence[Address]) -> None:
        self._topic = topic
        self._coordinator = addresses[0]
        self.known: dict[str, SourceMembers] = {}
        self.answers: dict[type[Any], Callable[[int, Any], Awaitable[Any]]] = {
            FindCoordinatorRequest: self._find,
            ListGroupsRequest: self._list,
            DescribeGroupsRequest: self._describe,
            OffsetFetchRequest: self._fetch,
        }

    async def _find(self, _: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        host, port = self._coordinator
        found = [Coordinator(key, 0, host, port) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found, node_id=0, host=host, port=port)

    async def _list(self, broker: int, _: ListGroupsRequest) -> ListGroupsResponse:
        listed = [ListedGroup(name, "consumer", each.state, "classic") for name, each in self.known.items()]
        return ListGroupsResponse(groups=[] if broker else listed)

    async def _describe(self, _: int, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
        found: list[DescribedGroup] = []
        for name in request.groups:
            each = self.known.get(name, SourceMembers())
            members = [DescribedGroupMember(f"{name} {number}") for number in range(each.members)]
            state = each.state if name in self.known else "Dead"
            found.append(DescribedGroup(0, None, name, state, "consumer", "range", members))
        return DescribeGroupsResponse(groups=found)

    async def _fetch(self, _: int, request: OffsetFetchRequest) -> OffsetFetchResponse:
        groups: list[OffsetFetchResponseGroup] = []
        for asked in request.groups:
            committed = self.known.get(asked.group_id, SourceMembers()).committed
            topics = [
                OffsetFetchResponseTopics(
                    topic.topic_id,
                    topic.name,
                    [
                        OffsetFetchResponsePartitions(each, committed.get(each, -1))
                        for each in topic.partition_indexes
                    ],
                )
                for topic in asked.topics or ()
            ]
            groups.append(OffsetFetchResponseGroup(asked.group_id, topics))
        return OffsetFetchResponse(groups=groups)
