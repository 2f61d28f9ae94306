"""KIP-848 groups with several members, whose partitions change hands step by step."""

from __future__ import annotations

from tests.referee.cases import group_case
from tests.referee.groups.members import ConsumerMember, settle
from tests.referee.groups.offset_cases import fetch
from tests.referee.session import Session


@group_case
async def partitions_are_given_up_one_by_one(s: Session) -> None:
    topic = await s.assignable(partitions=4)
    a, b = ConsumerMember(s, "a", [topic]), ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up two")
    keeps = a.owned[topic]
    gives = [partition for partition in range(4) if partition not in keeps]
    await a.report("a gave up one", {topic: sorted([*keeps, gives[0]])})
    await b.beat("b waits")
    await s.describe_consumer("still revoking")
    await a.report("a gave up too much", {topic: keeps[:1]})
    await b.beat("b gets both")
    await s.describe_consumer("stable")
    await a.report("a has what it should")
    await b.report("b claims what is not its own", {topic: [0, 1, 2, 3]})
    await b.report("b claims a partition that is none", {topic: [17]})
    await b.report("b has nothing", {})
    await s.describe_consumer("nothing changed")


@group_case
async def target_changes_midway(s: Session) -> None:
    topic = await s.assignable(partitions=6)
    a, b, c = (ConsumerMember(s, name, [topic]) for name in "abc")
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up three")
    await c.join("c joins before it does")
    await s.describe_consumer("three members")
    await a.beat("a hears nothing new")
    await b.beat("b waits")
    await a.report("a gave them up")
    await s.describe_consumer("the next step")
    await b.beat("b gets what is free")
    await c.beat("c gets what is free")
    await a.report("a is there")
    await settle(s, a, b, c)
    await s.describe_consumer("settled")
    await c.leave("c leaves")
    await a.beat("a gets some of it")
    await b.beat("b gets the rest")
    await s.describe_consumer("two members")


@group_case
async def who_waits_leaves(s: Session) -> None:
    topic = await s.assignable(partitions=4)
    a, b = ConsumerMember(s, "a", [topic]), ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up two")
    await b.leave("b leaves before it got any")
    await s.describe_consumer("b is gone")
    await a.beat("a, still to give up two")
    await a.report("a gave them up")
    await s.describe_consumer("a has them back")


@group_case
async def who_gives_up_leaves(s: Session) -> None:
    topic = await s.assignable(partitions=4)
    a, b = ConsumerMember(s, "a", [topic]), ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up two")
    await a.leave("a leaves instead")
    await b.beat("b gets all")
    await s.describe_consumer("b alone")


@group_case
async def who_gives_up_starts_again(s: Session) -> None:
    topic = await s.assignable(partitions=4)
    a, b = ConsumerMember(s, "a", [topic]), ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up two")
    await a.join("a starts again, and owns nothing")
    await s.describe_consumer("a gave them up by that")
    await b.beat("b gets them")


@group_case
async def static_member_is_away_midway(s: Session) -> None:
    topic = await s.assignable(partitions=4)
    a = ConsumerMember(s, "a", [topic], instance="one")
    b = ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up two")
    await a.leave("a leaves for a while", -2)
    await s.describe_consumer("a is away")
    await b.beat("b waits, or not")
    again = ConsumerMember(s, "a2", [topic], instance="one")
    await again.join("a comes back under another id")
    await s.describe_consumer("a is back")
    await b.beat("b gets what is free")
    await settle(s, again, b)
    await s.describe_consumer("settled")


@group_case
async def offsets_midway(s: Session) -> None:
    """A member that has yet to give up partitions is still in the epoch before, and commits in it."""
    topic = await s.assignable(partitions=4)
    a, b = ConsumerMember(s, "a", [topic]), ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up two")
    before = a.epoch
    await a.commit("a commits in its epoch", topic)
    await a.commit("in the epoch of the group", topic, generation_id_or_member_epoch=before + 1)
    await a.report("a gave them up")
    await a.commit("in the epoch before", topic, generation_id_or_member_epoch=before)
    await a.commit("in the new epoch", topic, 6)
    await fetch(s, "in the epoch before, fetching", [(topic, [0])], member="a", epoch=before)
    await fetch(s, "in the new epoch, fetching", [(topic, [0])], member="a", epoch=a.epoch)


@group_case
async def members_of_several_topics(s: Session) -> None:
    one, two = await s.assignable("one", 2), await s.assignable("two", 2)
    a = ConsumerMember(s, "a", [one], assignor="range")
    b = ConsumerMember(s, "b", [one, two], assignor="range")
    await a.join("a joins")
    await b.join("b joins")
    await settle(s, a, b)
    await s.describe_consumer("one shared, one not")
    await a.beat("a reads both", subscribed_topic_names=[one, two])
    await settle(s, a, b)
    await s.describe_consumer("both shared")
    await b.beat("b reads nothing", subscribed_topic_names=[])
    await settle(s, a, b)
    await s.describe_consumer("a has all")
