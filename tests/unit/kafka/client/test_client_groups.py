"""What the group commands make of brokers' answers: coordinators that move, old versions, odd bytes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.kafka.client.client_fakes import Clock
from tests.unit.kafka.client.client_fakes import ScriptedBroker as Broker

from dray.kafka.client import ClientError, Cluster, RequestFailed
from dray.kafka.client.groups import GroupCalls, assigned_in
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages import consumer_group_describe as consumer_messages
from dray.kafka.protocol.messages import describe_groups as classic_messages
from dray.kafka.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from dray.kafka.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from dray.kafka.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from dray.kafka.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from dray.kafka.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


def calls_to(first: Broker, **others: Broker) -> GroupCalls:
    async def dial(host: str, port: int) -> Broker:
        assert port == 9
        if host not in brokers:
            raise ClientError(f"cannot reach {host}")
        return brokers[host]

    brokers = {"first": first, **others}
    return GroupCalls(Cluster([("first", 9)], dial, Clock()))


def coordinator(host: str, code: int = 0, message: str | None = None) -> FindCoordinatorResponse:
    found = Coordinator(key="g", node_id=1, host=host, port=9, error_code=code, error_message=message)
    return FindCoordinatorResponse(coordinators=[found])


def deleted(code: int = 0) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult("g", code)])


# --- the coordinator


async def test_a_coordinator_that_moved_is_looked_for_again() -> None:
    first = Broker(
        FindCoordinatorRequest=[
            coordinator("", ErrorCode.COORDINATOR_NOT_AVAILABLE),
            coordinator("gone"),
            coordinator("old"),
            coordinator("new"),
        ]
    )
    old = Broker(DeleteGroupsRequest=deleted(ErrorCode.NOT_COORDINATOR))
    new = Broker(
        DeleteGroupsRequest=[deleted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), deleted(ErrorCode.NONE)]
    )
    assert await calls_to(first, old=old, new=new).delete("g")
    assert (len(first.seen), len(old.seen), len(new.seen)) == (5, 1, 2)
    assert (first.seen[0].key, first.seen[0].coordinator_keys) == ("g", ["g"])


async def test_a_coordinator_that_never_comes_is_not_waited_for_forever() -> None:
    first = Broker(FindCoordinatorRequest=coordinator("gone"))
    with pytest.raises(RequestFailed, match="cannot delete group g: COORDINATOR_NOT_AVAILABLE: cannot reach"):
        await calls_to(first).delete("g")


async def test_a_refusal_to_name_the_coordinator_ends_it_at_once() -> None:
    first = Broker(FindCoordinatorRequest=coordinator("", ErrorCode.GROUP_AUTHORIZATION_FAILED, "no"))
    with pytest.raises(RequestFailed, match="cannot delete group g: GROUP_AUTHORIZATION_FAILED: no"):
        await calls_to(first).delete("g")
    assert len(first.seen) == 1


async def test_brokers_that_name_one_coordinator_per_request() -> None:
    first = Broker(FindCoordinatorRequest=FindCoordinatorResponse(node_id=1, host="it", port=9))
    assert await calls_to(first, it=Broker(DeleteGroupsRequest=deleted())).delete("g")


async def test_deleting() -> None:
    async def delete(code: int, **allowed: bool) -> bool:
        first = Broker(FindCoordinatorRequest=coordinator("it"))
        return await calls_to(first, it=Broker(DeleteGroupsRequest=deleted(code))).delete("g", **allowed)

    assert not await delete(ErrorCode.GROUP_ID_NOT_FOUND, may_be_absent=True)
    with pytest.raises(RequestFailed, match="cannot delete group g: GROUP_ID_NOT_FOUND"):
        await delete(ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(RequestFailed, match="NON_EMPTY_GROUP: stop its consumers first"):
        await delete(ErrorCode.NON_EMPTY_GROUP, may_be_absent=True)


# --- listing


async def test_every_broker_is_asked_for_its_groups() -> None:
    brokers = [MetadataResponseBroker(1, "one", 9), MetadataResponseBroker(2, "two", 9)]
    first = Broker(MetadataRequest=MetadataResponse(brokers=brokers))
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    one = Broker(ListGroupsRequest=[loading, ListGroupsResponse(groups=[ListedGroup("b"), ListedGroup("c")])])
    two = Broker(ListGroupsRequest=ListGroupsResponse(groups=[ListedGroup("a"), ListedGroup("c")]))
    listed = await calls_to(first, one=one, two=two).list_groups(["Stable"], ["consumer"])
    assert [group.group_id for group in listed] == ["a", "b", "c"]
    assert (two.seen[0].states_filter, two.seen[0].types_filter) == (["Stable"], ["consumer"])


async def test_a_broker_that_died_is_waited_for_until_it_is_no_longer_listed() -> None:
    one, gone = MetadataResponseBroker(1, "one", 9), MetadataResponseBroker(2, "gone", 9)
    answers = [MetadataResponse(brokers=[one, gone]), MetadataResponse(brokers=[one])]
    broker = Broker(ListGroupsRequest=ListGroupsResponse(groups=[ListedGroup("a")]))
    listed = await calls_to(Broker(MetadataRequest=answers), one=broker).list_groups()
    assert [group.group_id for group in listed] == ["a"]
    with pytest.raises(ClientError, match="cannot reach gone"):
        await calls_to(Broker(MetadataRequest=answers[:1]), one=broker).list_groups()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "CLUSTER_AUTHORIZATION_FAILED"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "COORDINATOR_NOT_AVAILABLE"),
    ],
)
async def test_a_broker_that_cannot_tell_ends_the_listing(code: int, name: str) -> None:
    first = Broker(MetadataRequest=MetadataResponse(brokers=[MetadataResponseBroker(1, "one", 9)]))
    one = Broker(ListGroupsRequest=ListGroupsResponse(error_code=code))
    with pytest.raises(RequestFailed, match=f"cannot list the groups of one:9: {name}"):
        await calls_to(first, one=one).list_groups()


# --- describing


def as_consumer(**fields: Any) -> consumer_messages.ConsumerGroupDescribeResponse:
    group = consumer_messages.DescribedGroup(group_id="g", **fields)
    return consumer_messages.ConsumerGroupDescribeResponse(groups=[group])


def as_classic(**fields: Any) -> classic_messages.DescribeGroupsResponse:
    return classic_messages.DescribeGroupsResponse(
        groups=[classic_messages.DescribedGroup(group_id="g", **fields)]
    )


NO_CONSUMER_GROUP = as_consumer(error_code=ErrorCode.GROUP_ID_NOT_FOUND)


def describing(**answers: Any) -> GroupCalls:
    return calls_to(Broker(FindCoordinatorRequest=coordinator("it")), it=Broker(**answers))


def assigned(**topics: list[int]) -> consumer_messages.Assignment:
    return consumer_messages.Assignment(
        [
            consumer_messages.TopicPartitions(topic_name=name, partitions=items)
            for name, items in topics.items()
        ]
    )


async def test_a_consumer_group() -> None:
    member = consumer_messages.Member(
        member_id="m",
        instance_id="i",
        member_epoch=6,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="u.*",
        assignment=assigned(t=[1, 0]),
        target_assignment=assigned(t=[0]),
    )
    answer = as_consumer(
        group_state="Reconciling",
        group_epoch=7,
        assignment_epoch=6,
        assignor_name="uniform",
        members=[member],
    )
    found = await describing(ConsumerGroupDescribeRequest=answer).describe("g")
    assert (found.group_type, found.state, found.assignor) == ("consumer", "Reconciling", "uniform")
    assert (found.epoch, found.target_epoch, str(found.coordinator)) == (7, 6, "it:9 (1)")
    [seen] = found.members
    assert (seen.member_id, seen.instance_id, seen.client_id, seen.host) == ("m", "i", "c", "/h")
    assert (seen.epoch, seen.subscription) == (6, "t, u.*")
    assert (seen.assignment, seen.target) == ({"t": [0, 1]}, {"t": [0]})


@pytest.mark.parametrize("code", [ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION])
async def test_a_classic_group(code: int) -> None:
    wire = ConsumerProtocolAssignment([TopicPartition("t", [2, 1])]).encode(0)
    member = classic_messages.DescribedGroupMember(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        member_assignment=b"\0\1" + b"".join(bytes(part) for part in wire),
    )
    answer = as_classic(
        group_state="Stable", protocol_type="consumer", protocol_data="range", members=[member]
    )
    found = await describing(
        ConsumerGroupDescribeRequest=as_consumer(error_code=code), DescribeGroupsRequest=answer
    ).describe("g")
    assert (found.group_type, found.state, found.assignor, found.epoch) == (
        "classic",
        "Stable",
        "range",
        None,
    )
    assert found.members[0].assignment == {"t": [1, 2]}
    assert found.members[0].target is None


@pytest.mark.parametrize(
    "answer", [as_classic(group_state="Dead"), as_classic(error_code=ErrorCode.GROUP_ID_NOT_FOUND)]
)
async def test_a_group_that_does_not_exist(answer: Any) -> None:
    """Below version 6 of DescribeGroups such a group is dead, not absent."""
    calls = describing(ConsumerGroupDescribeRequest=NO_CONSUMER_GROUP, DescribeGroupsRequest=answer)
    assert await calls.describe_if_any("g") is None
    with pytest.raises(RequestFailed, match="cannot describe group g: GROUP_ID_NOT_FOUND: there is no such"):
        await calls.describe("g")


async def test_groups_that_may_not_be_described() -> None:
    refused = as_consumer(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, error_message="no")
    with pytest.raises(RequestFailed, match="cannot describe group g: GROUP_AUTHORIZATION_FAILED: no"):
        await describing(ConsumerGroupDescribeRequest=refused).describe("g")
    classic = as_classic(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(RequestFailed, match="cannot describe group g: GROUP_AUTHORIZATION_FAILED"):
        await describing(
            ConsumerGroupDescribeRequest=NO_CONSUMER_GROUP, DescribeGroupsRequest=classic
        ).describe("g")


@pytest.mark.parametrize("assignment", [b"", b"\0", b"\0\1", b"garbage that is no assignment"])
def test_assignments_that_cannot_be_read_say_nothing(assignment: bytes) -> None:
    assert assigned_in(assignment) == {}


async def test_members_that_are_no_consumers_have_no_partitions() -> None:
    wire = ConsumerProtocolAssignment([TopicPartition("t", [2])]).encode(0)
    member = classic_messages.DescribedGroupMember(
        member_id="m", member_assignment=b"\0\1" + b"".join(bytes(part) for part in wire)
    )
    answer = as_classic(group_state="Stable", protocol_type="connect", members=[member])
    found = await describing(
        ConsumerGroupDescribeRequest=NO_CONSUMER_GROUP, DescribeGroupsRequest=answer
    ).describe("g")
    assert found.members[0].assignment == {}


# --- offsets


def committed(code: int = 0, of_partition: int = 0) -> OffsetFetchResponse:
    partitions = [
        OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, error_code=of_partition),
        OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1),
    ]
    topics = [OffsetFetchResponseTopics(name="t", partitions=partitions)]
    return OffsetFetchResponse(groups=[OffsetFetchResponseGroup("g", topics, code)])


async def test_committed_offsets_by_name() -> None:
    it = Broker(OffsetFetchRequest=committed())
    calls = calls_to(Broker(FindCoordinatorRequest=coordinator("it")), it=it)
    assert await calls.committed("g") == {("t", 0): 5}
    assert it.seen[0].groups[0].topics is None
    assert it.versions == [9]  # from 10 on topics have no names, and those that are gone nothing at all


async def test_committed_offsets_of_old_brokers() -> None:
    topic = OffsetFetchResponseTopic(
        "t", [OffsetFetchResponsePartition(partition_index=3, committed_offset=8)]
    )
    it = Broker(highest=7, OffsetFetchRequest=OffsetFetchResponse(topics=[topic]))
    calls = calls_to(Broker(FindCoordinatorRequest=coordinator("it")), it=it)
    assert await calls.committed("g") == {("t", 3): 8}
    assert (it.seen[0].group_id, it.seen[0].topics, it.versions) == ("g", None, [7])


async def test_offsets_that_cannot_be_read() -> None:
    with pytest.raises(RequestFailed, match="cannot read the offsets of group g: GROUP_AUTHORIZATION_FAILED"):
        await describing(OffsetFetchRequest=committed(ErrorCode.GROUP_AUTHORIZATION_FAILED)).committed("g")
    unstable = committed(of_partition=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    with pytest.raises(RequestFailed, match="the offsets of group g in t-0: UNSTABLE_OFFSET_COMMIT"):
        await describing(OffsetFetchRequest=unstable).committed("g")


def commit_answer(*codes: int) -> OffsetCommitResponse:
    partitions = [OffsetCommitResponsePartition(number, code) for number, code in enumerate(codes)]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])


async def test_committing() -> None:
    it = Broker(OffsetCommitRequest=[commit_answer(ErrorCode.NOT_COORDINATOR), commit_answer(0, 0)])
    calls = calls_to(Broker(FindCoordinatorRequest=coordinator("it")), it=it)
    await calls.commit("g", {("t", 0): 4, ("t", 1): 5})
    request = it.seen[-1]
    assert (request.group_id, request.member_id, request.generation_id_or_member_epoch) == ("g", "", -1)
    [topic] = request.topics
    assert [(item.partition_index, item.committed_offset) for item in topic.partitions] == [(0, 4), (1, 5)]
    assert it.versions == [9, 9]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, "group g: it has live members; stop its consumers first"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "group g in t-1: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
async def test_commits_that_are_refused(code: int, line: str) -> None:
    with pytest.raises(RequestFailed, match=f"cannot reset the offsets of {line}"):
        await describing(OffsetCommitRequest=commit_answer(0, code)).commit("g", {("t", 0): 4, ("t", 1): 5})
