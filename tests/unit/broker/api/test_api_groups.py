"""The APIs of groups, byte for byte: every version there and back, every code that a client acts upon."""

from __future__ import annotations

import asyncio

import pytest
from tests.services import room_settings
from tests.unit.broker.api.fakes import METADATA, FakeConnection, Harness, beat, join, joined, running, stable
from tests.unit.broker.topics.fakes import settle

from dray.broker.topics import NewTopic
from dray.daemons.assembly.settings import GROUP_PROTOCOLS
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest
from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from dray.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.kafka.protocol.messages.list_groups import ListGroupsRequest
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment


def code(error: ErrorCode) -> int:
    return int(error)


def sync(group_id: str, generation: int, member_id: str) -> SyncGroupRequest:
    return SyncGroupRequest(group_id, generation, member_id, None, "consumer", "range")


# --- classic


@pytest.mark.parametrize("version", range(10))
async def test_join(broker: Harness, version: int) -> None:
    first = await broker.ask(join(), version)
    if version >= 4:
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert first.member_id.startswith("test-")
        assert (first.generation_id, first.leader) == (-1, "")
        assert first.protocol_name == (None if version >= 7 else "")
        first = await broker.ask(join(first.member_id), version)
    assert first.error_code == 0
    assert first.member_id.startswith("test-")
    assert first.leader == first.member_id
    assert (first.generation_id, first.protocol_name) == (1, "range")
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    assert [(one.member_id, one.metadata) for one in first.members] == [(first.member_id, METADATA)]
    assert not first.skip_assignment


@pytest.mark.parametrize("version", range(10))
async def test_join_refused(broker: Harness, version: int) -> None:
    for request, error in (
        (join(group_id=""), ErrorCode.INVALID_GROUP_ID),
        (join(session_timeout_ms=1), ErrorCode.INVALID_SESSION_TIMEOUT),
        (join("stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (join(protocols=[]), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ):
        answer = await broker.ask(request, version)
        assert answer.error_code == error
        assert answer.member_id == request.member_id
        assert (answer.generation_id, answer.protocol_type) == (-1, None)
        assert answer.protocol_name == (None if version >= 7 else "")


@pytest.mark.parametrize("version", range(5, 10))
async def test_static_members(broker: Harness, version: int) -> None:
    first = await joined(broker, version, group_instance_id="here")
    assert first.member_id.startswith("here-")
    assert first.members[0].group_instance_id == "here"
    await broker.ask(
        SyncGroupRequest(
            "g", 1, first.member_id, "here", assignments=[SyncGroupRequestAssignment(first.member_id, b"x")]
        ),
        3,
    )
    back = await broker.ask(join(group_instance_id="here"), version)
    assert (back.error_code, back.generation_id) == (0, 1)
    assert back.member_id != first.member_id
    assert back.skip_assignment is (version >= 9)
    fenced = await broker.ask(HeartbeatRequest("g", 1, first.member_id, "here"), 4)
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("version", range(6))
async def test_sync(broker: Harness, version: int) -> None:
    answer = await joined(broker, 9)
    synced = await broker.ask(
        SyncGroupRequest(
            "g",
            1,
            answer.member_id,
            None,
            "consumer" if version >= 5 else None,
            "range" if version >= 5 else None,
            [SyncGroupRequestAssignment(answer.member_id, b"mine")],
        ),
        version,
    )
    assert (synced.error_code, synced.assignment) == (0, b"mine")
    assert (synced.protocol_type, synced.protocol_name) == (
        ("consumer", "range") if version >= 5 else (None, None)
    )
    for request, error in (
        (sync("", 1, answer.member_id), ErrorCode.INVALID_GROUP_ID),
        (sync("none", 1, answer.member_id), ErrorCode.UNKNOWN_MEMBER_ID),
        (sync("g", 1, "stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (sync("g", 7, answer.member_id), ErrorCode.ILLEGAL_GENERATION),
    ):
        if version < 5:
            request.protocol_type = request.protocol_name = None
        refused = await broker.ask(request, version)
        assert (refused.error_code, refused.assignment) == (error, b"")
    if version >= 5:
        for kind, name in (("consumer", "other"), ("other", "range"), (None, None)):
            other = await broker.ask(SyncGroupRequest("g", 1, answer.member_id, None, kind, name), 5)
            assert other.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize("version", range(5))
async def test_heartbeat(broker: Harness, version: int) -> None:
    answer = await stable(broker)
    for request, error in (
        (HeartbeatRequest("g", 1, answer.member_id), ErrorCode.NONE),
        (HeartbeatRequest("g", 2, answer.member_id), ErrorCode.ILLEGAL_GENERATION),
        (HeartbeatRequest("g", 1, "stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest("none", 1, "stranger"), ErrorCode.UNKNOWN_MEMBER_ID),
        (HeartbeatRequest("", 1, "stranger"), ErrorCode.INVALID_GROUP_ID),
    ):
        assert (await broker.ask(request, version)).error_code == error
    parked = asyncio.ensure_future(broker.ask(join(), 3))
    await settle()
    again = await broker.ask(HeartbeatRequest("g", 1, answer.member_id), version)
    assert again.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    await broker.ask(join(answer.member_id), 9)
    assert (await parked).generation_id == 2


@pytest.mark.parametrize("version", range(6))
async def test_leave(broker: Harness, version: int) -> None:
    answer = await stable(broker)
    if version < 3:
        assert (await broker.ask(LeaveGroupRequest("g", member_id="stranger"), version)).error_code == (
            ErrorCode.UNKNOWN_MEMBER_ID
        )
        assert (await broker.ask(LeaveGroupRequest("", member_id="x"), version)).error_code == (
            ErrorCode.INVALID_GROUP_ID
        )
        left = await broker.ask(LeaveGroupRequest("g", member_id=answer.member_id), version)
        assert (left.error_code, left.members) == (0, [])
    else:
        members = [MemberIdentity("stranger"), MemberIdentity(answer.member_id), MemberIdentity("", "where")]
        left = await broker.ask(LeaveGroupRequest("g", members), version)
        assert left.error_code == 0
        assert [(one.member_id, one.group_instance_id, one.error_code) for one in left.members] == [
            ("stranger", None, ErrorCode.UNKNOWN_MEMBER_ID),
            (answer.member_id, None, ErrorCode.NONE),
            ("", "where", ErrorCode.UNKNOWN_MEMBER_ID),
        ]
    described = await broker.ask(DescribeGroupsRequest(["g"]), 5)
    assert described.groups[0].group_state == "Empty"


async def test_a_parked_join_ends_with_its_connection(broker: Harness) -> None:
    await stable(broker)
    connection = FakeConnection()
    parked = asyncio.ensure_future(broker.ask(join(), 3, connection))
    await settle()
    assert not parked.done()
    connection.end()
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
    # Nor is anything parked on one that is ending.
    assert (await broker.ask(join(), 3, connection)).error_code == ErrorCode.NOT_COORDINATOR
    assert (await broker.ask(sync("g", 1, "m"), 5, connection)).error_code == ErrorCode.NOT_COORDINATOR


async def test_another_brokers_group(broker: Harness) -> None:
    answer = await stable(broker)
    async with running(beside=broker, broker_id=1) as other:
        wrong = code(ErrorCode.NOT_COORDINATOR)
        assert (await other.ask(join(), 9)).error_code == wrong
        assert (await other.ask(sync("g", 1, answer.member_id), 5)).error_code == wrong
        assert (await other.ask(HeartbeatRequest("g", 1, answer.member_id), 4)).error_code == wrong
        assert (await other.ask(LeaveGroupRequest("g", [MemberIdentity("x")]), 5)).error_code == wrong
        assert (await other.ask(DescribeGroupsRequest(["g"]), 6)).groups[0].error_code == wrong
        assert (await other.ask(DeleteGroupsRequest(["g"]), 2)).results[0].error_code == wrong
        assert (await other.ask(ConsumerGroupDescribeRequest(["g"]), 1)).groups[0].error_code == wrong
        assert (await other.ask(beat(), 1)).error_code == wrong
        found = await other.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
        assert [(one.key, one.node_id, one.port) for one in found.coordinators] == [("g", 0, 9092)]
        outside = FakeConnection("OUTSIDE")
        found_outside = await other.ask(FindCoordinatorRequest(key="g"), 0, outside)
        assert (found_outside.host, found_outside.port) == ("broker.example", 9192)
    listed = await broker.ask(ListGroupsRequest(), 5)
    assert [group.group_id for group in listed.groups] == ["g"]


async def test_a_store_that_is_away(broker: Harness) -> None:
    answer = await stable(broker)
    broker.store.down = True
    away = code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (await broker.ask(HeartbeatRequest("g", 1, answer.member_id), 4)).error_code == 0
    assert (await broker.ask(FindCoordinatorRequest(key="other"), 3)).error_code == away
    assert (await broker.ask(join(group_id="other"), 9)).error_code == away
    assert (await broker.ask(beat(group_id="other"), 1)).error_code == away
    assert (await broker.ask(ListGroupsRequest(), 5)).error_code == away
    assert (await broker.ask(DescribeGroupsRequest(["other"]), 6)).groups[0].error_code == away
    assert (await broker.ask(DeleteGroupsRequest(["other"]), 2)).results[0].error_code == away


# --- KIP-848


@pytest.mark.parametrize("version", [0, 1])
async def test_consumer_group_heartbeat(broker: Harness, version: int) -> None:
    topic = await broker.topics.create(NewTopic("t", 3))
    answer = await broker.ask(beat("" if version == 0 else "m"), version)
    assert (answer.error_code, answer.error_message, answer.member_epoch) == (0, None, 1)
    assert answer.heartbeat_interval_ms == 5000
    assert answer.member_id
    assert answer.assignment is not None
    assert [(one.topic_id, one.partitions) for one in answer.assignment.topic_partitions] == [
        (topic.topic_id, [0, 1, 2])
    ]
    again = await broker.ask(beat(answer.member_id, 1), version)
    assert (again.member_epoch, again.assignment) == (1, None)
    left = await broker.ask(beat(answer.member_id, -1), version)
    assert (left.error_code, left.member_epoch) == (0, -1)


async def test_consumer_group_heartbeat_refused(broker: Harness) -> None:
    await broker.topics.create(NewTopic("t", 3))
    await broker.ask(beat(), 1)
    for request, error in (
        (beat(group_id=""), ErrorCode.INVALID_REQUEST),
        (beat(""), ErrorCode.INVALID_REQUEST),
        (beat("m", -3), ErrorCode.INVALID_REQUEST),
        (beat("m", -2), ErrorCode.INVALID_REQUEST),
        (beat(rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST),
        (beat(server_assignor="none"), ErrorCode.UNSUPPORTED_ASSIGNOR),
        (beat(subscribed_topic_regex="a("), ErrorCode.INVALID_REGULAR_EXPRESSION),
        (beat("m", 7), ErrorCode.FENCED_MEMBER_EPOCH),
        (beat("stranger", 1), ErrorCode.UNKNOWN_MEMBER_ID),
        (beat("m", 1, group_id="none"), ErrorCode.GROUP_ID_NOT_FOUND),
    ):
        answer = await broker.ask(request, 1)
        assert answer.error_code == error, request
        assert answer.error_message
        assert answer == ConsumerGroupHeartbeatResponse(
            error_code=answer.error_code, error_message=answer.error_message
        )
    await stable(broker, "classic")
    assert (await broker.ask(beat(group_id="classic"), 1)).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await broker.ask(join(), 9)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


async def test_patterns(broker: Harness) -> None:
    await broker.topics.create(NewTopic("audit", 1))
    await broker.topics.create(NewTopic("billing", 1))
    answer = await broker.ask(beat(subscribed_topic_names=[], subscribed_topic_regex="a.*t"), 1)
    assert answer.error_code == 0
    async with asyncio.timeout(60):
        while answer.assignment is None or not answer.assignment.topic_partitions:
            await asyncio.sleep(0.01)
            answer = await broker.ask(beat("m", answer.member_epoch), 1)
    [described] = (await broker.ask(ConsumerGroupDescribeRequest(["g"]), 1)).groups
    [member] = described.members
    assert member.subscribed_topic_regex == "a.*t"
    assert [one.topic_name for one in member.assignment.topic_partitions] == ["audit"]


@pytest.mark.parametrize("version", [0, 1])
async def test_consumer_group_describe(broker: Harness, version: int) -> None:
    topic = await broker.topics.create(NewTopic("t", 2))
    await broker.ask(beat(rack_id="rack"), 1)
    await stable(broker, "classic")
    request = ConsumerGroupDescribeRequest(["g", "classic", "none", ""], include_authorized_operations=True)
    group, *others = (await broker.ask(request, version)).groups
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "uniform")
    assert (group.group_epoch, group.assignment_epoch) == (1, 1)
    assert group.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))
    [member] = group.members
    assert (member.member_id, member.member_epoch, member.rack_id) == ("m", 1, "rack")
    assert (member.client_id, member.client_host) == ("test", "/127.0.0.1")
    assert member.subscribed_topic_names == ["t"]
    assert member.member_type == (1 if version >= 1 else -1)
    for assignment in (member.assignment, member.target_assignment):
        [one] = assignment.topic_partitions
        assert (one.topic_id, one.topic_name, one.partitions) == (topic.topic_id, "t", [0, 1])
    assert [one.error_code for one in others] == [
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_GROUP_ID,
    ]
    plain = await broker.ask(ConsumerGroupDescribeRequest(["g"]), version)
    assert plain.groups[0].authorized_operations == -(2**31)


# --- administration


@pytest.mark.parametrize("version", range(7))
async def test_describe_groups(broker: Harness, version: int) -> None:
    answer = await stable(broker)
    await broker.topics.create(NewTopic("t", 2))
    await broker.ask(beat(group_id="consumer"), 1)
    request = DescribeGroupsRequest(["g", "none", "consumer"], include_authorized_operations=version >= 3)
    group, *others = (await broker.ask(request, version)).groups
    assert (group.error_code, group.group_state) == (0, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    if version >= 3:
        assert group.authorized_operations == sum(1 << bit for bit in (3, 6, 8, 10, 11))
    [member] = group.members
    assert (member.member_id, member.client_id, member.client_host) == (
        answer.member_id,
        "test",
        "/127.0.0.1",
    )
    assert (member.member_metadata, member.member_assignment) == (METADATA, b"mine")
    for other in others:
        assert other.group_state == "Dead"
        assert other.members == []
        assert other.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE)


@pytest.mark.parametrize("version", range(6))
async def test_list_groups(broker: Harness, version: int) -> None:
    await stable(broker)
    await broker.topics.create(NewTopic("t", 2))
    await broker.ask(beat(group_id="consumer"), 1)
    await joined(broker, 9, group_id="joining")
    listed = (await broker.ask(ListGroupsRequest(), version)).groups
    assert [(one.group_id, one.protocol_type) for one in listed] == [
        ("consumer", "consumer"),
        ("g", "consumer"),
        ("joining", "consumer"),
    ]
    if version >= 4:
        assert [one.group_state for one in listed] == ["Stable", "Stable", "CompletingRebalance"]
        stable_ones = await broker.ask(ListGroupsRequest(["sTable"]), version)
        assert [one.group_id for one in stable_ones.groups] == ["consumer", "g"]
    if version >= 5:
        assert [one.group_type for one in listed] == ["consumer", "classic", "classic"]
        classic = await broker.ask(ListGroupsRequest(["Stable", "Empty"], ["Classic"]), version)
        assert [one.group_id for one in classic.groups] == ["g"]
        assert (await broker.ask(ListGroupsRequest([], ["share"]), version)).groups == []


@pytest.mark.parametrize("version", range(3))
async def test_delete_groups(broker: Harness, version: int) -> None:
    answer = await stable(broker)
    deleted = await broker.ask(DeleteGroupsRequest(["g", "none"]), version)
    assert [(one.group_id, one.error_code) for one in deleted.results] == [
        ("g", ErrorCode.NON_EMPTY_GROUP),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    await broker.ask(LeaveGroupRequest("g", [MemberIdentity(answer.member_id)]), 5)
    deleted = await broker.ask(DeleteGroupsRequest(["g"]), version)
    assert [one.error_code for one in deleted.results] == [ErrorCode.NONE]
    assert (await broker.ask(ListGroupsRequest(), 5)).groups == []


async def test_the_feature_is_told() -> None:
    async with running(room_settings.api(features=(GROUP_PROTOCOLS,))) as broker:
        answer = await broker.ask(
            ApiVersionsRequest(client_software_name="x", client_software_version="1"), 4
        )
        assert [(one.name, one.max_version) for one in answer.supported_features] == [("group.version", 1)]
        assert [(one.name, one.max_version_level) for one in answer.finalized_features] == [
            ("group.version", 1)
        ]
