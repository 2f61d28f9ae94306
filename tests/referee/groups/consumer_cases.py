"""KIP-848 groups: what heartbeats are answered, epoch by epoch."""

from __future__ import annotations

import asyncio
from typing import Any

from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.consumer_group_heartbeat import TopicPartitions
from dray.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.referee.cases import group_case
from tests.referee.groups.classic_cases import SHORT_MS
from tests.referee.groups.members import ClassicMember, ConsumerMember, settle, stable
from tests.referee.groups.offset_cases import NOWHERE, commit, deletion, fetch
from tests.referee.session import Session


@group_case
async def consumer_joins(s: Session) -> None:
    topic = await s.assignable(partitions=3)
    await s.describe_consumer("before")
    a = ConsumerMember(s, "a", [topic])
    await a.join("joins")
    await s.describe_consumer("joined")
    await s.describe_consumer("version 0", version=0)
    await s.describe("as a classic group")
    await s.describe("as a classic group, version 5", version=5)
    await s.list_own("listed")
    await a.beat("lives")
    await a.report("and owns it all")
    await a.report("owns less than it was given", {topic: [0]})
    await a.beat("a full heartbeat", **everything(a, topic))
    await a.join("joins again")
    await s.describe_consumer("the same epoch")
    operations = ConsumerGroupDescribeRequest([s.group], include_authorized_operations=True)
    await s.ask("operations", operations, 1)


def everything(member: ConsumerMember, topic: str) -> dict[str, Any]:
    return {
        "rebalance_timeout_ms": member.rebalance_ms,
        "subscribed_topic_names": [topic],
        "topic_partitions": member.partitions(member.owned),
    }


@group_case
async def consumer_join_version_0(s: Session) -> None:
    topic = await s.assignable()
    a = ConsumerMember(s, "a", [topic])
    a.member_id = ""
    await a.join("a broker may make the id", version=0)
    await a.beat("lives", version=0)
    b = ConsumerMember(s, "b", [topic])
    await b.join("or the client", version=0)


@group_case
async def consumer_requests_that_are_none(s: Session) -> None:
    topic = await s.assignable()
    a = ConsumerMember(s, "a", [topic])
    await a.join("empty group id", group_id="")
    await a.join("empty group id of spaces", group_id="  ")
    await a.join("empty instance id", instance_id="")
    await a.join("empty rack", rack_id="")
    await a.join("empty member id", member_id="")
    await a.join("empty member id, epoch 1, version 0", member_id="", member_epoch=1, version=0)
    await a.join("empty member id, epoch -1, version 0", member_id="", member_epoch=-1, version=0)
    await a.join("epoch -3", member_epoch=-3)
    await a.join("epoch -2, no instance", member_epoch=-2)
    await a.join("no rebalance timeout", rebalance_timeout_ms=-1)
    await a.join("rebalance timeout of 0", rebalance_timeout_ms=0, group_id=s.group_named("zero"))
    await a.join("owned partitions at once", topic_partitions=[TopicPartitions(s.topic_id(topic), [0])])
    await a.join("owned partitions not said", topic_partitions=None)
    await a.join("no subscription", subscribed_topic_names=None)
    await a.join("unknown assignor", server_assignor="sticky")
    await a.join("empty assignor", server_assignor="")
    await a.join("a pattern that is none", subscribed_topic_names=None, subscribed_topic_regex="(")
    await a.beat("epoch 5 of no group", member_epoch=5)
    await a.beat("leaves no group", member_epoch=-1)
    await a.beat("leaves no group for a while", member_epoch=-2, instance_id="one")
    await s.list_own("nothing came of it")
    await a.join("an empty subscription", subscribed_topic_names=[])
    await s.describe_consumer("which is one", version=1)
    b = ConsumerMember(s, "b", [topic])
    await b.beat("unknown member", member_epoch=5)
    await b.beat("unknown member leaves", member_epoch=-1)
    await b.beat("unknown static member leaves", member_epoch=-2, instance_id="one")
    await a.beat("assignor that is none", server_assignor="sticky")
    await a.beat("a rebalance timeout of -2", rebalance_timeout_ms=-2)
    await a.beat("a rack in the middle", rack_id="")
    await a.beat("an instance in the middle", instance_id="one")
    await a.beat("unknown topic owned", topic_partitions=[TopicPartitions(NOWHERE, [0])])
    await a.beat("lives")
    await s.describe_consumer("unknown group", group=s.group_named("unknown"))
    await s.describe_consumer("empty group id described", group="")


@group_case
async def consumer_partitions_move(s: Session) -> None:
    topic = await s.assignable(partitions=4)
    a, b = ConsumerMember(s, "a", [topic]), ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins, and must wait")
    await s.describe_consumer("a must give up two")
    await b.beat("b waits")
    await a.beat("a is told")
    await s.describe_consumer("a is told to give up two")
    await a.beat("a is told once")
    await a.report("a still owns all", {topic: [0, 1, 2, 3]})
    await b.beat("b still waits")
    await a.report("a gave them up")
    await s.describe_consumer("a gave them up, described")
    await b.beat("b gets them")
    await b.report("b has them")
    await s.describe_consumer("stable")
    await b.leave("b leaves")
    await s.describe_consumer("b left")
    await a.beat("a gets all of them")
    await a.leave("a leaves")
    await s.describe_consumer("empty")
    await s.list_own("listed as empty")
    await a.beat("after it left")
    await a.join("a comes back")
    await s.describe_consumer("again")


@group_case
async def consumer_is_fenced(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    a = ConsumerMember(s, "a", [topic])
    await a.join("joins")
    await a.beat("subscribes to more", subscribed_topic_names=[topic, "golden-not-yet"])
    await s.describe_consumer("the epoch went up")
    await a.beat("an epoch of the future", member_epoch=a.epoch + 1)
    before = a.epoch - 1
    await a.beat("the epoch before, nothing owned said", member_epoch=before)
    owned = a.partitions(a.owned)
    await a.beat("the epoch before, and all it was given", member_epoch=before, topic_partitions=owned)
    fewer = a.partitions({topic: [0]})
    await a.beat("the epoch before, and some of it", member_epoch=before, topic_partitions=fewer)
    more = a.partitions({topic: [0, 1, 2]})
    await a.beat("the epoch before, and more", member_epoch=before, topic_partitions=more)
    other = [TopicPartitions(NOWHERE, [0])]
    await a.beat("the epoch before, and a topic of its own", member_epoch=before, topic_partitions=other)
    await a.beat("the epoch before, and nothing", member_epoch=before, topic_partitions=[])
    await a.beat("an epoch before that", member_epoch=max(1, before - 1), topic_partitions=owned)
    await a.beat("lives")
    await s.describe_consumer("unharmed")


@group_case
async def consumer_response_is_lost(s: Session) -> None:
    """Between the members: the one that must give up, and the one that waits."""
    topic = await s.assignable(partitions=4)
    a, b = ConsumerMember(s, "a", [topic]), ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up two")
    await a.report("a gave them up")
    epoch = a.epoch
    await a.beat("a did not hear that", member_epoch=epoch - 1, topic_partitions=a.partitions(a.owned))
    await b.beat("b gets them")
    await b.beat("b did not hear that", member_epoch=b.epoch - 1, topic_partitions=[])
    await b.report("b has them")
    await s.describe_consumer("stable")


@group_case
async def consumer_subscription_changes(s: Session) -> None:
    one, two = await s.assignable("one", 2), await s.assignable("two", 2)
    a = ConsumerMember(s, "a", [one])
    await a.join("joins")
    await a.beat("the same subscription", subscribed_topic_names=[one])
    await a.beat("another", subscribed_topic_names=[two])
    await a.report("gave up the first", {})
    await s.describe_consumer("the other topic")
    await a.report("has the second")
    await a.beat("both", subscribed_topic_names=[two, one])
    await a.beat("the same in another order", subscribed_topic_names=[one, two])
    await a.beat("twice the same", subscribed_topic_names=[one, one, two])
    await a.beat("nothing", subscribed_topic_names=[])
    await a.report("gave up everything", {})
    await s.describe_consumer("without a subscription")
    await a.beat("a topic that is not there", subscribed_topic_names=["golden-not-there"])
    await s.describe_consumer("with nothing to read")


@group_case
async def consumer_assignor_changes(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    a = ConsumerMember(s, "a", [topic], assignor="range")
    await a.join("range")
    await s.describe_consumer("range, described")
    await a.beat("uniform", server_assignor="uniform")
    await s.describe_consumer("uniform, described")
    b = ConsumerMember(s, "b", [topic], assignor="range")
    await b.join("one each")
    c = ConsumerMember(s, "c", [topic], assignor="range")
    await c.join("range has more")
    await s.describe_consumer("most votes win")


@group_case
async def consumer_is_static(s: Session) -> None:
    topic = await s.assignable(partitions=4)
    a = ConsumerMember(s, "a", [topic], instance="one")
    b = ConsumerMember(s, "b", [topic], instance="two")
    await a.join("a joins")
    await b.join("b joins")
    await settle(s, a, b)
    await s.describe_consumer("stable")
    again = ConsumerMember(s, "b2", [topic], instance="two")
    await again.join("somebody has that instance")
    await b.leave("b leaves for a while", -2)
    await s.describe_consumer("b is away")
    await b.beat("b at the epoch it had")
    await a.beat("a gets nothing of it")
    await again.join("b comes back under another id")
    await s.describe_consumer("b is back")
    await b.beat("its old self", member_epoch=1)
    await b.beat("its old self leaves", member_epoch=-1)
    await b.beat("its old self leaves for a while", member_epoch=-2)
    await b.commit("its old self commits", topic)
    await again.beat("its new self lives")
    await again.beat("its new self, without the instance", instance_id=None)
    await again.beat("as another instance", instance_id="one")
    await again.beat("as an unknown instance", instance_id="three")
    await again.leave("it leaves for good")
    await s.describe_consumer("it is gone")
    await a.beat("a gets all of it")


@group_case
async def consumer_static_member_stays_itself(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    a = ConsumerMember(s, "a", [topic], instance="one")
    await a.join("joins")
    await a.leave("leaves for a while", -2)
    await a.join("comes back under the same id")
    await s.describe_consumer("back")
    await a.leave("leaves for a while again", -2)
    other = ConsumerMember(s, "a2", [topic, "golden-other"], instance="one")
    await other.join("comes back with another subscription")
    await s.describe_consumer("with a new epoch")
    await other.leave("leaves once more", -2)
    await other.leave("and again", -2)
    await other.leave("and now for good", -1)
    await s.describe_consumer("empty")


@group_case
async def consumer_session_expires(s: Session) -> None:
    """The brokers of these cases give every member six seconds."""
    topic = await s.assignable(partitions=2)
    a, b = ConsumerMember(s, "a", [topic]), ConsumerMember(s, "b", [topic])
    c = ConsumerMember(s, "c", [topic], instance="one")
    for member in (a, b, c):
        await member.join(f"{member.name} joins")
    await settle(s, a, b, c)
    await c.leave("c leaves for a while", -2)
    async with asyncio.timeout(60):
        while a.owned != {topic: [0, 1]}:
            await a.report("(a waits)")
            del s.notes["(a waits)"]
            await asyncio.sleep(0.1)
    await b.beat("b is not known any more")
    await c.beat("nor is c", member_epoch=1)
    await s.describe_consumer("a alone, whatever the epoch")
    del s.notes["a alone, whatever the epoch"]["groups"][0]["group_epoch"]
    del s.notes["a alone, whatever the epoch"]["groups"][0]["assignment_epoch"]
    for member in s.notes["a alone, whatever the epoch"]["groups"][0]["members"]:
        del member["member_epoch"]


@group_case
async def consumer_revocation_times_out(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    a = ConsumerMember(s, "a", [topic], rebalance_ms=SHORT_MS)
    b = ConsumerMember(s, "b", [topic])
    await a.join("a joins")
    await b.join("b joins")
    await a.beat("a is told to give up one")
    async with asyncio.timeout(60):
        while b.owned != {topic: [0, 1]}:
            await b.report("(b waits)")
            del s.notes["(b waits)"]
            await asyncio.sleep(0.1)
    await a.beat("a is fenced")
    await s.describe_consumer("b has all")


@group_case
async def consumer_group_is_full(s: Session) -> None:
    topic = await s.assignable()
    members = [ConsumerMember(s, name, [topic]) for name in "abcd"]
    for member in members:
        await member.join(f"{member.name} joins")
    e = ConsumerMember(s, "e", [topic])
    await e.join("one too many")
    await members[0].join("one that is in may join again")
    await s.describe_consumer("four")


@group_case
async def consumer_offsets(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    a = ConsumerMember(s, "a", [topic])
    await a.join("joins")
    await a.commit("commits", topic)
    await a.commit("version 8", topic, version=8)
    await a.commit("version 2", topic, version=2)
    await a.commit("an epoch of the future", topic, generation_id_or_member_epoch=a.epoch + 1)
    await a.commit("an epoch of the past", topic, generation_id_or_member_epoch=a.epoch - 1)
    await a.commit("no epoch", topic, generation_id_or_member_epoch=-1)
    await a.commit("nobody, no epoch", topic, member_id="", generation_id_or_member_epoch=-1)
    await a.commit("unknown member", topic, member_id="nobody")
    await a.commit("an instance that is none", topic, group_instance_id="one")
    wanted = [(topic, [0, 1])]
    await fetch(s, "nobody fetches", wanted)
    await fetch(s, "nobody fetches, version 8", wanted, 8)
    await fetch(s, "nobody fetches, version 5", wanted, 5)
    await fetch(s, "the member fetches", wanted, member="a", epoch=a.epoch)
    await fetch(s, "the member fetches everything", None, member="a", epoch=a.epoch)
    await fetch(s, "an epoch of the past, fetching", wanted, member="a", epoch=a.epoch - 1)
    await fetch(s, "an epoch of the future, fetching", wanted, member="a", epoch=a.epoch + 1)
    await fetch(s, "no epoch, fetching", wanted, member="a", epoch=-1)
    await fetch(s, "unknown member fetching", wanted, member="nobody", epoch=a.epoch)
    await fetch(s, "unknown member fetching, no epoch", wanted, member="nobody", epoch=-1)
    await fetch(s, "no member fetching, an epoch", wanted, epoch=1)
    await fetch(s, "empty member fetching", wanted, member="", epoch=1)
    await s.ask("subscribed", deletion(s.group, (topic, 0)), 0)
    await a.leave("leaves")
    await a.commit("after it left", topic)
    await fetch(s, "after it left, fetching", wanted, member="a", epoch=1)
    await commit(s, "nobody commits to the empty group", topic)
    await commit(s, "nobody commits to the empty group, version 8", topic, 8)
    await s.ask("not subscribed any more", deletion(s.group, (topic, 0)), 0)
    await fetch(s, "nothing is left", wanted)


@group_case
async def consumer_topics_come_grow_and_go(s: Session) -> None:
    """When a member hears of it is the broker's own affair, so only where it ends is written down."""
    topic = await s.assignable("one", 2)
    later = f"{topic}-later"
    a = ConsumerMember(s, "a", [topic, later])
    await a.join("joins")

    async def until_owned(wanted: dict[str, list[int]]) -> None:
        async with asyncio.timeout(60):
            while a.owned != wanted:
                await a.report("(a waits)")
                del s.notes["(a waits)"]
                await asyncio.sleep(0.05)

    growth = CreatePartitionsTopic(name=topic, count=4, assignments=None)
    await s.send(CreatePartitionsRequest(topics=[growth], timeout_ms=10_000), 3)
    await until_owned({topic: [0, 1, 2, 3]})
    await s.describe_consumer("it grew")
    created = await s.create("one-later", 1)
    assert created == later
    await until_owned({topic: [0, 1, 2, 3], later: [0]})
    await s.describe_consumer("another came")
    await s.send(
        DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], topic_names=[topic], timeout_ms=10_000), 6
    )
    await until_owned({later: [0]})
    await s.describe_consumer("and the first went")


@group_case
async def consumer_patterns(s: Session) -> None:
    """Patterns are resolved in the background: members hear of the topics when they are found."""
    one, two = await s.assignable("one"), await s.assignable("two")
    other = await s.assignable("other-one")
    a = ConsumerMember(s, "a", regex=f"{one[:-3]}(one|two)")
    await a.join("by pattern")

    async def until_owned(member: ConsumerMember, wanted: dict[str, list[int]]) -> None:
        async with asyncio.timeout(60):
            while member.owned != wanted:
                await member.report("(waits)")
                del s.notes["(waits)"]
                await asyncio.sleep(0.05)

    await until_owned(a, {one: [0], two: [0]})
    await s.describe_consumer("only whole names match")
    await a.beat("a pattern that is none", subscribed_topic_regex="[")
    await a.beat("lives")
    await a.beat("the same pattern", subscribed_topic_regex=a.regex)
    await a.beat("no pattern any more, and names", subscribed_topic_regex="", subscribed_topic_names=[other])
    await until_owned(a, {other: [0]})
    await s.describe_consumer("by name now")
    b = ConsumerMember(s, "b", [other], regex=f"{one}$", group=s.group_named("both"))
    await b.join("by name and pattern")
    await until_owned(b, {one: [0], other: [0]})
    await s.describe_consumer("both", group=b.group)
    await b.leave("leaves")
    c = ConsumerMember(s, "c", regex="golden-nothing-is-called-so.*", group=s.group_named("nothing"))
    await c.join("a pattern that nothing matches")
    await c.beat("gets nothing")


@group_case
async def conversion_when_empty(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    a = ClassicMember(s, "a")
    await stable(s, a)
    await a.commit("a commits", topic)
    await a.leave("a leaves")
    m = ConsumerMember(s, "m", [topic])
    await m.join("a consumer joins what was classic")
    await s.describe_consumer("it is a consumer group")
    await s.describe("no classic one")
    await fetch(s, "the offsets are there", None, member="m", epoch=m.epoch)
    await m.commit("it commits", topic, 9)
    await m.leave("m leaves")
    await a.heartbeat("the classic member is not known")
    b = ClassicMember(s, "b")
    await b.enter("a classic member joins what was a consumer group")
    await s.describe("it is classic")
    await s.list_own("listed as classic")
    await fetch(s, "the offsets are still there", None)
    await m.beat("the consumer is not known")


@group_case
async def conversion_of_simple_groups(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    await commit(s, "a simple group", topic)
    m = ConsumerMember(s, "m", [topic])
    await m.beat("not by an epoch", member_epoch=3)
    await m.beat("nor by leaving", member_epoch=-1)
    await m.join("a consumer joins it")
    await s.list_own("listed")
    await fetch(s, "the offsets are there", None)


@group_case
async def protocols_do_not_mix(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    a = ClassicMember(s, "a", group=s.group_named("classic"))
    await stable(s, a)
    m = ConsumerMember(s, "m", [topic], group=a.group)
    await m.join("a consumer to a classic group")
    await m.beat("a consumer's heartbeat to a classic group", member_epoch=4)
    await s.describe_consumer("the classic group", group=a.group)
    await a.heartbeat("the classic member lives")
    n = ConsumerMember(s, "n", [topic], group=s.group_named("consumer"))
    await n.join("a consumer group")
    b = ClassicMember(s, "b", group=n.group)
    await b.heartbeat("heartbeat", generation_id=1, member_id="n")
    await b.sync("sync", generation_id=1, member_id="n")
    await b.leave("an administrator removes nobody", members=[b.identity("nobody")])
    await b.join("a classic member to a consumer group", protocol_type="connect")
    await n.beat("the consumer lives")
    await b.leave("an administrator removes the consumer", members=[b.identity("n")])
    await n.beat("it is not known any more")
    await s.describe_consumer("the consumer group", group=n.group)


@group_case
async def classic_member_joins_consumers(s: Session) -> None:
    topic = await s.assignable(partitions=2)
    n = ConsumerMember(s, "n", [topic])
    await n.join("a consumer group")
    b = ClassicMember(s, "b")
    await b.join("a classic member, for an id")
    await n.beat("the consumer lives")
