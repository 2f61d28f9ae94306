"""A group that waits for its members at another cluster to leave, as consumers and as tools see it."""

from __future__ import annotations

import pytest
from tests.unit.broker.api.fakes import Harness

from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.list_groups import ListGroupsRequest
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dray.migration.groups.copies import GroupCopies


@pytest.fixture
async def topic(broker: Harness) -> Topic:
    topic = await broker.topics.create(NewTopic("t", 3))
    copies = GroupCopies(broker.store, broker.runtime, 4, "old")
    offsets = {("t", 0): (5, "why"), ("t", 2): (7, "")}
    assert await copies.change([("g", None, offsets, False)], {"t": topic.topic_id}) == {"g"}
    assert await copies.make_known("g")
    return topic


@pytest.mark.parametrize("version", [8, 9, 10])
async def test_consumers_wait_and_tools_see_what_was_copied(
    broker: Harness, topic: Topic, version: int
) -> None:
    by_id = version >= 10
    named = OffsetFetchRequestTopics(topic.topic_id if by_id else ZERO_UUID, "" if by_id else "t", [0])
    asked = OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=[named])])
    [answer] = (await broker.ask(asked, version)).groups
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    everything = OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)])
    [answer] = (await broker.ask(everything, version)).groups
    assert answer.error_code == 0
    [found] = answer.topics
    assert [(each.partition_index, each.committed_offset, each.metadata) for each in found.partitions] == [
        (0, 5, "why"),
        (2, 7, ""),
    ]
    assert found.topic_id == (topic.topic_id if by_id else ZERO_UUID)


@pytest.mark.usefixtures("topic")
async def test_it_is_listed_and_described_without_members(broker: Harness) -> None:
    [listed] = (await broker.ask(ListGroupsRequest(), 5)).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == ("g", "Empty", "classic")
    [new] = (await broker.ask(ConsumerGroupDescribeRequest(group_ids=["g"]), 0)).groups
    assert new.error_code == ErrorCode.GROUP_ID_NOT_FOUND  # so that tools ask for a classic one
    [old] = (await broker.ask(DescribeGroupsRequest(groups=["g"]), 6)).groups
    assert (old.error_code, old.group_state, list(old.members)) == (0, "Empty", [])
