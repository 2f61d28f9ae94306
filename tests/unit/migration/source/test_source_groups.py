"""What brokers of the source tell of groups: what they refuse is not taken for nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from dray.kafka.client.cluster import Cluster
from dray.kafka.client.errors import ClientError
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from dray.kafka.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from dray.kafka.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from dray.migration.source.source_groups import ReadOffsets, SourceGroups

PARTITIONS = {"a": range(1)}


class FakeBrokers:
    """One broker coordinates all groups. `errors`: of a group, or of its partition; `unfound`: of its
    coordinator."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.errors: dict[str, tuple[ErrorCode, ErrorCode]] = {}
        self.unfound: dict[str, ErrorCode] = {}
        self.is_silent = False
        self.listed: list[ListedGroup] = []

    @asynccontextmanager
    async def broker(self, _: object) -> AsyncIterator[FakeBrokers]:
        if self.is_silent:
            raise ClientError("no answer")
        yield self

    async def learn(self, _: list[str]) -> MetadataResponse:
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "a", 9092)])

    async def patiently(self, attempt: Any, *_: object) -> Any:
        return await attempt()

    def version_for(self, _: int) -> int:
        return self.version

    async def request(self, request: Any, version: int = 0) -> Any:
        if isinstance(request, ListGroupsRequest):
            return ListGroupsResponse(groups=self.listed)
        if version == 0:
            return FindCoordinatorResponse(
                coordinators=[
                    Coordinator(each, 1, "a", 9092, self.unfound.get(each, ErrorCode.NONE))
                    for each in request.coordinator_keys
                ]
            )
        if self.version < 8:
            of_group, of_partition = self._errors(request.group_id)
            part = OffsetFetchResponsePartition(0, 7, -1, "so far", of_partition)
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic("a", [part])], error_code=of_group)
        groups = []
        for group in request.groups:
            of_group, of_partition = self._errors(group.group_id)
            several = OffsetFetchResponsePartitions(0, 7, -1, "so far", of_partition)
            topics = [OffsetFetchResponseTopics(name="a", partitions=[several])]
            groups.append(OffsetFetchResponseGroup(group.group_id, topics, of_group))
        return OffsetFetchResponse(groups=groups)

    def _errors(self, group_id: str) -> tuple[ErrorCode, ErrorCode]:
        return self.errors.get(group_id, (ErrorCode.NONE, ErrorCode.NONE))


async def committed(brokers: FakeBrokers) -> ReadOffsets:
    return await SourceGroups(cast(Cluster, brokers)).committed(["one", "other"], PARTITIONS)


@pytest.mark.parametrize("version", [7, 9])
async def test_what_is_committed_is_read_with_its_text(version: int) -> None:
    found = {("a", 0): (7, "so far")}
    assert await committed(FakeBrokers(version)) == ReadOffsets({"one": found, "other": found}, {})


@pytest.mark.parametrize("version", [7, 9])
@pytest.mark.parametrize(
    ("errors", "refused"),
    [
        ((ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE), "GROUP_AUTHORIZATION_FAILED"),
        ((ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED), "TOPIC_AUTHORIZATION_FAILED"),
        ((ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT), "UNSTABLE_OFFSET_COMMIT"),
        ((ErrorCode.NOT_COORDINATOR, ErrorCode.NONE), None),
        ((ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE), None),
    ],
)
async def test_what_is_not_told_is_named(
    version: int, errors: tuple[ErrorCode, ErrorCode], refused: str | None
) -> None:
    brokers = FakeBrokers(version)
    brokers.errors = {"one": errors}
    offsets, found = await committed(brokers)
    assert list(offsets) == ["other"]
    assert found == ({} if refused is None else {"one": refused})


async def test_a_coordinator_that_we_may_not_know_is_a_refusal_and_a_silent_one_is_none() -> None:
    brokers = FakeBrokers(9)
    brokers.unfound = {
        "one": ErrorCode.GROUP_AUTHORIZATION_FAILED,
        "other": ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
    assert await committed(brokers) == ReadOffsets({}, {"one": "GROUP_AUTHORIZATION_FAILED"})
    brokers.unfound, brokers.is_silent = {}, True
    assert await committed(brokers) == ReadOffsets({}, {})


async def test_groups_that_never_had_members_are_those_whose_consumers_assign() -> None:
    """Kafka's coordinator gives them no protocol type. One whose members have left keeps its own."""
    brokers = FakeBrokers(9)
    brokers.listed = [
        ListedGroup("flink", "", "Empty", "classic"),
        ListedGroup("restarting", "consumer", "Empty", "classic"),
        ListedGroup("at work", "consumer", "Stable", "consumer"),
        ListedGroup("unreadable", "", "Empty", ""),
    ]
    brokers.errors = {"unreadable": (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.NONE)}
    source = SourceGroups(cast(Cluster, brokers))
    assert await source.assigning("a", 1) == ["flink"]
    brokers.listed = brokers.listed[1:3]
    assert await source.assigning("a", 1) == []
