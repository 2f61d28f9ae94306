"""Committed offsets: who may commit, fetch and delete them, and what is said of what is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from dray.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.referee.cases import group_case, subscription
from tests.referee.groups.members import ClassicMember, ConsumerMember, commit_request, stable
from tests.referee.session import SECONDS, Session

NOWHERE = UUID(int=2**100 + 7)


async def commit(s: Session, label: str, topic: str, version: int = 9, **changes: Any) -> None:
    request = commit_request(changes.pop("group", s.group), topic, changes.pop("partition", 0))
    for name, value in changes.items():
        setattr(request, name, value)
    await s.ask(label, request, version)


async def fetch(
    s: Session,
    label: str,
    topics: Sequence[tuple[str, list[int]]] | None,
    version: int = 9,
    *,
    group: str | None = None,
    member: str | None = None,
    epoch: int = -1,
    stable_only: bool = False,
) -> None:
    wanted = group or s.group
    if version < 8:
        old = (
            None if topics is None else [OffsetFetchRequestTopic(name, list(items)) for name, items in topics]
        )
        request = OffsetFetchRequest(group_id=wanted, topics=old, require_stable=stable_only)
    else:
        new = None
        if topics is not None:
            by_id = version >= 10
            new = [
                OffsetFetchRequestTopics(
                    topic_id=s.topic_id(name) if by_id else UUID(int=0),
                    name=name,
                    partition_indexes=list(items),
                )
                for name, items in topics
            ]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(wanted, member, epoch, new)], require_stable=stable_only
        )
    await s.ask(label, request, version)


def deletion(group: str, *places: tuple[str, int]) -> OffsetDeleteRequest:
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, partition in places:
        topic = topics.setdefault(name, OffsetDeleteRequestTopic(name))
        topic.partitions.append(OffsetDeleteRequestPartition(partition))
    return OffsetDeleteRequest(group, list(topics.values()))


@group_case
async def commits_without_members(s: Session) -> None:
    topic = await s.create(partitions=2)
    await commit(s, "makes a simple group", topic)
    await s.describe("simple group")
    await s.list_own("simple group, listed")
    await commit(s, "again", topic, partition=1)
    for version in range(2, 9):
        await commit(s, f"version {version}", topic, version)
    await fetch(s, "what is there", None)
    await commit(s, "a member id, no generation", topic, member_id="nobody")
    await commit(s, "a generation", topic, member_id="nobody", generation_id_or_member_epoch=1)
    await commit(s, "a generation, no member", topic, generation_id_or_member_epoch=1)
    await commit(s, "an instance", topic, group_instance_id="one")
    await commit(s, "generation -2", topic, generation_id_or_member_epoch=-2)
    await commit(s, "empty group id", topic, group="")
    other = s.group_named("other")
    for version in (8, 9):
        await commit(
            s,
            f"generation of no group, version {version}",
            topic,
            version,
            group=other,
            member_id="nobody",
            generation_id_or_member_epoch=1,
        )
    await s.list_own("no other group came of it")


@group_case
async def commits_that_name_what_is_not_there(s: Session) -> None:
    topic = await s.create(partitions=1)
    await commit(s, "unknown topic", "golden-no-such-topic")
    await commit(s, "unknown partition", topic, partition=1)
    await commit(s, "negative partition", topic, partition=-1)
    await commit(s, "illegal topic", "no spaces")
    await s.list_own("no group came of it")
    mixed = OffsetCommitRequest(
        group_id=s.group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(0, 7, 3, None),
                    OffsetCommitRequestPartition(1, 7, -1, "beyond"),
                ],
            ),
            OffsetCommitRequestTopic(
                name="golden-no-such-topic", partitions=[OffsetCommitRequestPartition(0, 1)]
            ),
        ],
    )
    await s.ask("good and bad together", mixed, 9)
    await fetch(s, "the good one is there", [(topic, [0, 1, 2]), ("golden-no-such-topic", [0])])
    too_long = commit_request(s.group, topic)
    too_long.topics[0].partitions[0].committed_metadata = "x" * 4097
    await s.ask("metadata too long", too_long, 9)
    just_right = commit_request(s.group, topic)
    just_right.topics[0].partitions[0].committed_metadata = "x" * 4096
    await s.ask("metadata of 4096 letters", just_right, 9)
    negative = commit_request(s.group, topic, 0, -1)
    await s.ask("offset -1", negative, 9)
    await fetch(s, "after offset -1", [(topic, [0])])
    await s.ask("nothing at all", OffsetCommitRequest(group_id=s.group, topics=[]), 9)
    empty = OffsetCommitRequest(group_id=s.group, topics=[OffsetCommitRequestTopic(name=topic)])
    await s.ask("no partitions", empty, 9)
    await s.ask("nothing, of no group", OffsetCommitRequest(group_id=s.group_named("none"), topics=[]), 9)
    await s.list_own("still one group")


@group_case
async def offsets_by_topic_id(s: Session) -> None:
    topic = await s.create(partitions=2)
    request = commit_request(s.group, "")
    request.topics[0].topic_id = s.topic_id(topic)
    request.topics.append(OffsetCommitRequestTopic(NOWHERE, "", [OffsetCommitRequestPartition(0, 1)]))
    await s.ask("one that is there, one that is not", request, 10)
    await fetch(s, "one partition", [(topic, [0, 1, 9])], 10)
    await fetch(s, "everything", None, 10)
    unknown = OffsetFetchRequestTopics(topic_id=NOWHERE, partition_indexes=[0, 1])
    group = OffsetFetchRequestGroup(s.group, topics=[unknown])
    await s.ask("unknown id", OffsetFetchRequest(groups=[group]), 10)
    request = commit_request(s.group, "")
    await s.ask("no id", request, 10)


@group_case
async def offsets_of_a_topic_that_goes_and_comes(s: Session) -> None:
    topic = await s.create(partitions=2)
    await commit(s, "to the first", topic)
    by_id = commit_request(s.group, "", 1)
    by_id.topics[0].topic_id = s.topic_id(topic)
    await s.ask("to the first, by id", by_id, 10)
    await s.send(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000), 6)
    await _until_forgotten(s)
    await fetch(s, "when it is gone", [(topic, [0, 1])])
    await fetch(s, "everything, when it is gone", None)
    await commit(s, "to what is gone", topic)
    s.forget_topic(topic)
    await s.create(partitions=2)
    await fetch(s, "of the second", [(topic, [0, 1])])
    await fetch(s, "of the second, by id", [(topic, [0, 1])], 10)
    await commit(s, "to the second", topic, partition=1)
    await fetch(s, "everything", None)
    await fetch(s, "everything, by id", None, 10)


async def _until_forgotten(s: Session) -> None:
    """Offsets go a moment after their topic."""
    async with asyncio.timeout(SECONDS):
        while True:
            asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(s.group)])
            asked.groups[0].topics = None
            found: Any = await s.send(asked, 9)
            if not found.groups[0].topics:
                return
            await asyncio.sleep(0.02)


@group_case
async def commits_of_members(s: Session) -> None:
    topic = await s.create()
    a, b = ClassicMember(s, "a"), ClassicMember(s, "b")
    join = a.entering("a joins")
    await s.until("PreparingRebalance", 1)
    await b.enter("b joins")
    await join
    await a.commit("while completing", topic)
    await a.sync("a leads", {a: b"a", b: b"b"})
    await a.commit("while stable", topic, 6)
    await a.commit("version 8", topic, 7, version=8)
    await a.commit("wrong generation", topic, generation_id_or_member_epoch=2)
    await a.commit("old generation", topic, generation_id_or_member_epoch=0)
    await a.commit("no generation", topic, generation_id_or_member_epoch=-1)
    await a.commit("no generation, no member", topic, generation_id_or_member_epoch=-1, member_id="")
    await a.commit("unknown member", topic, member_id="nobody")
    await a.commit(
        "unknown member and generation", topic, member_id="nobody", generation_id_or_member_epoch=9
    )
    await a.commit("an instance that is none", topic, group_instance_id="one")
    c = ClassicMember(s, "c")
    join = c.entering("c joins")
    await s.until("PreparingRebalance", 3)
    await a.commit("while preparing", topic, 8)
    await b.commit("while preparing, wrong generation", topic, generation_id_or_member_epoch=0)
    await asyncio.gather(a.join("a joins again"), b.join("b joins again"), join)
    await a.commit("of the generation before", topic, 9, generation_id_or_member_epoch=1)
    await fetch(s, "what is there", [(topic, [0])])
    for member in (a, b, c):
        await member.leave(f"{member.name} leaves")
    await a.commit("after it left", topic)
    await commit(s, "simple commit to the empty group", topic)
    await s.describe("empty, with a protocol type")


@group_case
async def fetches(s: Session) -> None:
    topic = await s.create(partitions=2)
    unknown = s.group_named("unknown")
    for version in range(1, 10):
        await fetch(s, f"unknown group, version {version}", [(topic, [0, 1])], version, group=unknown)
        if version >= 2:
            await fetch(s, f"unknown group, everything, version {version}", None, version, group=unknown)
    await commit(s, "commit", topic, partition=1)
    for version in range(1, 10):
        await fetch(s, f"version {version}", [(topic, [0, 1, 5])], version)
        if version >= 2:
            await fetch(s, f"everything, version {version}", None, version)
    await fetch(s, "no topics", [])
    await fetch(s, "no partitions", [(topic, [])])
    await fetch(s, "unknown topic", [("golden-no-such-topic", [0])])
    await fetch(s, "stable ones", [(topic, [1])], stable_only=True)
    await fetch(s, "empty group id", [(topic, [0])], group="")
    await fetch(s, "empty group id, version 7", [(topic, [0])], 7, group="")
    await fetch(s, "a member of a classic group", [(topic, [1])], member="nobody", epoch=3)
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[1])]
    both = [OffsetFetchRequestGroup(s.group, topics=topics), OffsetFetchRequestGroup(unknown, topics=None)]
    await s.ask("two groups", OffsetFetchRequest(groups=both), 9)
    await s.ask("no groups", OffsetFetchRequest(groups=[]), 9)


@group_case
async def offsets_deleted(s: Session) -> None:
    topic, other = await s.create("one", 2), await s.create("two")
    await s.ask("unknown group", deletion(s.group, (topic, 0)), 0)
    await s.ask("empty group id", deletion("", (topic, 0)), 0)
    for partition in range(2):
        await commit(s, f"commit {partition}", topic, partition=partition)
    await commit(s, "commit to the other", other)
    await s.ask("one of them", deletion(s.group, (topic, 0)), 0)
    await s.ask("again", deletion(s.group, (topic, 0)), 0)
    await s.ask("unknown topic", deletion(s.group, ("golden-no-such-topic", 0)), 0)
    await s.ask("unknown partition", deletion(s.group, (topic, 7), (topic, 1)), 0)
    await s.ask("nothing", deletion(s.group), 0)
    await fetch(s, "what is left", None)
    a = ClassicMember(s, "a", protocols=[("range", subscription(topic))])
    await stable(s, a)
    await a.commit("a commits", topic)
    await s.ask("subscribed and not", deletion(s.group, (topic, 0), (other, 0)), 0)
    await fetch(s, "the subscribed one is left", None)
    await a.leave("a leaves")
    await s.ask("nobody subscribes any more", deletion(s.group, (topic, 0)), 0)
    await fetch(s, "nothing is left", None)
    await s.describe("an empty group is left")


@group_case
async def offsets_deleted_of_a_group_that_is_no_consumer(s: Session) -> None:
    topic = await s.create()
    await commit(s, "commit", topic)
    a = ClassicMember(s, "a", protocols=[("x", b"garbage")])
    await a.join("for an id", protocol_type="connect")
    await a.join("joins", protocol_type="connect")
    await s.ask("while it has members", deletion(s.group, (topic, 0)), 0)
    await a.sync("syncs", {a: b""}, protocol_type="connect")
    await s.ask("while stable", deletion(s.group, (topic, 0)), 0)
    await s.describe("described")
    await a.leave("leaves")
    await s.ask("when empty", deletion(s.group, (topic, 0)), 0)


@group_case
async def garbage_in_subscriptions(s: Session) -> None:
    topic = await s.create()
    a = ClassicMember(s, "a", protocols=[("range", b"\0\1\0\0\0")])
    await stable(s, a)
    await s.describe("kept as it is")
    await a.commit("a commits", topic)
    await s.ask("nobody knows what it reads", deletion(s.group, (topic, 0)), 0)
    await fetch(s, "what is left", None)


@group_case
async def groups_described(s: Session) -> None:
    topic = await s.create()
    unknown = s.group_named("unknown")
    for version in range(7):
        await s.describe(f"unknown, version {version}", version, unknown)
    await s.describe("empty id", 6, "")
    await s.describe("empty id, version 5", 5, "")
    await commit(s, "commit", topic)
    groups = [unknown, s.group]
    await s.ask("two", DescribeGroupsRequest(groups, include_authorized_operations=True), 6)
    await s.ask("two, version 5", DescribeGroupsRequest(groups, include_authorized_operations=True), 5)
    await s.ask("none", DescribeGroupsRequest([]), 6)
    await s.describe_consumer("as a consumer group")
    await s.describe_consumer("unknown, as a consumer group", group=unknown)


@group_case
async def groups_listed(s: Session) -> None:
    topic = await s.assignable()
    await commit(s, "a simple group", topic, group=s.group_named("simple"))
    await stable(s, ClassicMember(s, "a", group=s.group_named("stable")))
    member = ConsumerMember(s, "m", [topic], group=s.group_named("consumer"))
    await member.join("a consumer group")
    left = ConsumerMember(s, "m", [topic], group=s.group_named("left"))
    await left.join("another")
    await left.leave("which is left")
    for version in range(6):
        await s.list_own(f"version {version}", version=version)
    for states in (
        ["Stable"],
        ["stable"],
        ["EMPTY", "Stable"],
        ["Dead"],
        ["Assigning"],
        ["no such state"],
        [""],
    ):
        await s.list_own(f"states {states}", states)
    for types in (["classic"], ["Consumer"], ["classic", "consumer"], ["share"], ["no such"], [""]):
        await s.list_own(f"types {types}", (), types)
    await s.list_own("both", ["Empty"], ["consumer"])
    await s.list_own("states, version 4", ["Stable"], version=4)


@group_case
async def groups_deleted(s: Session) -> None:
    topic = await s.assignable()
    names = [s.group_named(suffix) for suffix in ("simple", "classic", "consumer", "unknown")]
    simple, classic, consumer, _ = names
    await commit(s, "a simple group", topic, group=simple)
    a = ClassicMember(s, "a", group=classic)
    await stable(s, a)
    m = ConsumerMember(s, "m", [topic], group=consumer)
    await m.join("a consumer group")
    await m.commit("it commits", topic)
    await s.ask("all of them", DeleteGroupsRequest([*names, ""]), 2)
    await s.list_own("two are left")
    await fetch(s, "offsets of the deleted", None, group=simple)
    await a.leave("a leaves")
    await m.leave("m leaves")
    await s.ask("again", DeleteGroupsRequest(names), 0)
    await s.list_own("none is left")
    await fetch(s, "offsets of the consumer group", None, group=consumer)
    await s.describe("simple", group=simple)
    await s.describe_consumer("consumer", group=consumer)
    await a.heartbeat("a heartbeat to a deleted group")
    await m.beat("another")
    await s.ask("nothing", DeleteGroupsRequest([]), 2)
    await s.ask("twice the same", DeleteGroupsRequest([simple, simple]), 2)


@group_case
async def coordinators(s: Session) -> None:
    await commit(s, "until there is one", await s.create())
    for version in range(4):
        await s.ask(f"version {version}", FindCoordinatorRequest(key=s.group), version)
    for version in range(4, 7):
        many = FindCoordinatorRequest(coordinator_keys=[s.group, s.group_named("other")])
        await s.ask(f"version {version}", many, version)
    await s.ask("no keys", FindCoordinatorRequest(coordinator_keys=[]), 4)
    await s.ask("empty key", FindCoordinatorRequest(coordinator_keys=[""]), 4)
    await s.ask("empty key, version 3", FindCoordinatorRequest(key=""), 3)
    await s.ask("type 3", FindCoordinatorRequest(key_type=3, coordinator_keys=[s.group]), 6)
    await s.ask("type -1", FindCoordinatorRequest(key_type=-1, coordinator_keys=[s.group]), 6)
    await s.ask(
        "share key below version 6", FindCoordinatorRequest(key_type=2, coordinator_keys=["a:b:1"]), 5
    )
