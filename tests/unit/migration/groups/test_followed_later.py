"""Groups that have moved and read a topic that is linked later; groups of which nothing is told; a source
that is gone for good."""

from __future__ import annotations

import pytest
from tests.unit.broker.groups.coordinator.harness import (
    GROUP,
    BrokerUnderTest,
    World,
    passing,
    refused,
    simulated,
)
from tests.unit.migration.groups.followed_world import (
    FakeGroupSource,
    GroupAtSource,
    Links,
    Migrator,
    migrator,
)

from dray.broker.groups.coordinator import GroupUnavailable
from dray.broker.groups.coordinator.ledger import Place
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.migration.groups.copy import CopyState, GroupCopy, decode_copy, encode_copy
from dray.migration.groups.rounds import GroupsOfTopic, groups_of
from dray_simulation.kernel.loop import run

WAITS = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


async def fetched(broker: BrokerUnderTest, *places: Place) -> list[int | None]:
    """As a consumer does: it names what it wants, and asks again while the group is loaded."""
    for attempt in range(20):
        try:
            ledger = await broker.groups.offsets(GROUP, None, -1, places)
        except GroupUnavailable:
            if attempt == 19:
                raise
            await passing(0.3)
        else:
            assert ledger is not None
            found = [ledger.find(*place) for place in places]
            return [None if each is None else each.offset for each in found]
    raise AssertionError


class Moved:
    """The group is Dray's, with topic a. It reads b at the source, in other processes."""

    def __init__(self) -> None:
        self.world = World()
        self.links = Links(self.world, a=1)
        self.there = GroupAtSource()
        self.source = FakeGroupSource({GROUP: self.there})
        self.follows: Migrator = migrator(self.world, self.source, self.links)

    async def begin(self) -> BrokerUnderTest:
        self.there.commit(7)
        await self.follows.follower.run_once()
        self.links.switch("a")
        assert (await self.follows.follower.run_once()).handed_over == [GROUP]
        self.there.commit(99)  # of one that was forgotten there
        self.there.commit(30, "b")
        self.there.members = 1
        return await self.world.broker(1)

    async def link_b(self) -> None:
        """As `attach.publish` does: a round first, then brokers see the topic."""
        self.links.link("b")
        await self.follows.follower.run_once()
        self.links.show("b")

    async def hand_over_b(self) -> None:
        self.links.switch("b", 1000)
        self.there.members = 0
        assert GROUP in (await self.follows.follower.run_once()).handed_over

    def copy(self) -> GroupCopy:
        [value] = self.world.records(keys.FOLLOWED_GROUPS)
        return decode_copy(GROUP, value.value)


@pytest.mark.parametrize("has_members", [False, True])
def test_a_topic_that_is_linked_after_its_group_has_moved_is_followed_too(has_members: bool) -> None:
    async def play() -> None:
        moved = Moved()
        broker = await moved.begin()
        if has_members:
            await broker.stable_group()
        assert await fetched(broker, ("a", 0)) == [7]
        await moved.link_b()
        assert await refused(broker.committed(topic="b")) is WAITS, "at once"
        assert await fetched(broker, ("a", 0)) == [7], "it goes on with what it has here"
        assert await refused(fetched(broker, ("b", 0))) is WAITS
        assert await refused(fetched(broker, ("a", 0), ("b", 0))) is WAITS, "it would begin b anew"
        assert (await groups_of(moved.follows.copies, "b")) == GroupsOfTopic(
            {CopyState.FOLLOWED: [GROUP]}, []
        )
        moved.there.commit(31, "b")
        moved.links.switch("b", 1000)
        report = await moved.follows.follower.run_once()
        assert (report.handed_over, list(report.waiting)) == ([], [GROUP]), "a member is still there"
        moved.there.commit(33, "b")
        await moved.hand_over_b()
        assert await fetched(broker, ("a", 0), ("b", 0)) == [7, 33]
        assert moved.copy().later is None
        assert (await groups_of(moved.follows.copies, "b")).states == {CopyState.MOVED: [GROUP]}
        moved.there.commit(50, "b")
        await moved.follows.follower.run_once()
        assert await fetched(broker, ("a", 0), ("b", 0)) == [7, 33], "nothing is copied any more"
        await broker.stop()

    run(play())


@simulated
async def test_what_the_group_has_committed_here_in_a_later_topic_counts() -> None:
    moved = Moved()
    broker = await moved.begin()
    await moved.link_b()
    assert await broker.commit(500, topic="b") is ErrorCode.NONE
    assert await fetched(broker, ("b", 0)) == [500]
    await moved.hand_over_b()
    await broker.stop()
    other = await moved.world.broker(2)
    assert await fetched(other, ("b", 0)) == [500]
    await other.stop()


@simulated
async def test_a_later_topic_is_within_its_boundary_and_taken_in_once() -> None:
    moved = Moved()
    broker = await moved.begin()
    await moved.link_b()
    moved.there.commit(5000, "b")
    await moved.hand_over_b()
    assert await fetched(broker, ("b", 0)) == [1000]
    assert await broker.commit(1001, topic="b") is ErrorCode.NONE
    await broker.stop()
    other = await moved.world.broker(2)
    assert await fetched(other, ("b", 0)) == [1001]
    await other.stop()


@simulated
async def test_a_member_that_comes_back_in_between_keeps_a_later_topic_at_the_source() -> None:
    moved = Moved()
    broker = await moved.begin()
    await moved.link_b()
    moved.links.switch("b")
    moved.there.members = 0

    async def nothing() -> None:
        return None

    async def comes_back() -> None:
        moved.there.members = 1

    moved.source.before["members"] = [nothing, comes_back]
    assert (await moved.follows.follower.run_once()).handed_over == []
    assert await refused(fetched(broker, ("b", 0))) is WAITS
    await broker.stop()


@simulated
async def test_a_later_topic_that_is_aborted_is_awaited_no_more() -> None:
    moved = Moved()
    broker = await moved.begin()
    await moved.link_b()
    assert await refused(fetched(broker, ("b", 0))) is WAITS
    del moved.links.topics["b"]
    await moved.follows.copies.forget_topic("b")
    assert await fetched(broker, ("a", 0), ("b", 0)) == [7, None]
    assert moved.copy().state is CopyState.MOVED
    await broker.stop()


@simulated
async def test_a_group_of_which_nothing_is_left_here_waits_as_a_whole() -> None:
    moved = Moved()
    broker = await moved.begin()
    assert await fetched(broker, ("a", 0)) == [7]
    await broker.delete()
    await moved.link_b()
    await passing(1)  # it has left memory
    await moved.follows.follower.run_once()
    assert await refused(broker.join()) is WAITS
    await moved.hand_over_b()
    assert await fetched(broker, ("b", 0)) == [30]
    await broker.stop()


@simulated
async def test_a_group_that_has_moved_and_reads_nothing_else_costs_the_source_nothing() -> None:
    moved = Moved()
    broker = await moved.begin()
    moved.source.asked.clear()
    await moved.follows.follower.run_once()
    assert moved.source.asked.count("committed") == 1, "of those that are followed: none"
    assert moved.copy().later is None
    await broker.stop()


def test_later_topics_are_stored_beside_the_others() -> None:
    async def play() -> None:
        moved = Moved()
        broker = await moved.begin()
        before = moved.copy()
        assert b"later" not in encode_copy(before)
        await moved.link_b()
        assert moved.copy().awaited == {"b"}
        assert decode_copy(GROUP, encode_copy(moved.copy())) == moved.copy()
        await broker.stop()

    run(play())


@simulated
async def test_groups_of_a_topic_that_was_deleted_here_may_come_with_it_again() -> None:
    """A rehearsal: the topic had moved, was deleted here, and is linked again."""
    moved = Moved()
    broker = await moved.begin()
    assert await fetched(broker, ("a", 0)) == [7]
    await moved.follows.copies.forget_topic("a")
    assert moved.copy().state is CopyState.MOVED, "while the topic is here, it stays so"
    await moved.follows.copies.forget_topic("a", moved=True)
    assert moved.world.records(keys.FOLLOWED_GROUPS) == []
    moved.there.members = 0
    moved.there.commit(12)
    assert (await moved.follows.follower.run_once()).handed_over == [GROUP]
    await broker.stop()
    other = await moved.world.broker(2)
    assert await fetched(other, ("a", 0)) == [12]
    await other.stop()


# --- what the source does not tell


@pytest.mark.parametrize("silent", [True, False])
def test_a_group_whose_offsets_cannot_be_read_waits(silent: bool) -> None:
    """It is not taken for one that the source never had: it would begin anew."""

    async def play() -> None:
        world = World()
        links = Links(world, a=1)
        there = GroupAtSource()
        there.commit(7)
        source = FakeGroupSource({GROUP: there})
        if silent:
            source.silent = {GROUP}
        else:
            source.refusing = {GROUP: "GROUP_AUTHORIZATION_FAILED"}
        broker, follows = await world.broker(1), migrator(world, source, links)
        report = await follows.follower.run_once()
        why = "did not answer" if silent else "GROUP_AUTHORIZATION_FAILED): it waits here until that is known"
        assert why in report.left[GROUP]
        for asking in (broker.join(), broker.committed(), broker.commit(3)):
            assert await refused(asking) is WAITS
        assert await groups_of(follows.copies, "a") == GroupsOfTopic({CopyState.FOLLOWED: [GROUP]}, [GROUP])
        links.switch()
        report = await follows.follower.run_once()
        assert report.handed_over == []
        assert report.waiting == {GROUP: "until the source says how far it has read"}
        source.silent, source.refusing = set(), {}
        assert (await follows.follower.run_once()).handed_over == [GROUP]
        await passing(1)
        assert await broker.committed() == 7
        await broker.stop()

    run(play())


@simulated
async def test_a_group_that_reads_other_topics_is_free_as_soon_as_that_is_known() -> None:
    world = World()
    links = Links(world, a=1)
    source = FakeGroupSource({GROUP: GroupAtSource({("elsewhere", 0): (7, "")})}, silent={GROUP})
    broker, follows = await world.broker(1), migrator(world, source, links)
    await follows.follower.run_once()
    assert await refused(broker.join()) is WAITS
    source.silent = set()
    await follows.follower.run_once()
    await passing(1)
    await broker.stable_group()
    assert world.records(keys.FOLLOWED_GROUPS) == []
    await broker.stop()


@simulated
async def test_a_group_that_is_known_to_read_other_topics_does_not_wait_for_a_silent_coordinator() -> None:
    """A broker of the source that restarts would stop thousands of groups that have nothing to do with it."""
    world = World()
    links = Links(world, a=1)
    source = FakeGroupSource({GROUP: GroupAtSource({("elsewhere", 0): (7, "")})})
    broker, follows = await world.broker(1), migrator(world, source, links)
    await follows.follower.run_once()
    source.silent = {GROUP}
    await follows.follower.run_once()
    await broker.stable_group()
    assert world.records(keys.FOLLOWED_GROUPS) == []
    links.link("elsewhere")  # now it may be one that counts
    await follows.follower.run_once()
    assert len(world.records(keys.FOLLOWED_GROUPS)) == 1
    await broker.stop()


@simulated
async def test_a_later_topic_whose_offsets_cannot_be_read_is_awaited() -> None:
    moved = Moved()
    broker = await moved.begin()
    moved.source.refusing = {GROUP: "UNSTABLE_OFFSET_COMMIT"}
    await moved.link_b()
    assert await refused(fetched(broker, ("b", 0))) is WAITS
    assert (await groups_of(moved.follows.copies, "b")).unread == [GROUP]
    moved.links.switch("b")
    moved.there.members = 0
    assert (await moved.follows.follower.run_once()).handed_over == []
    moved.source.refusing = {}
    await moved.follows.follower.run_once()
    assert await fetched(broker, ("b", 0)) == [30]
    await broker.stop()


# --- a source that is gone


@simulated
async def test_groups_of_a_source_that_is_gone_are_handed_over_with_what_was_copied_last() -> None:
    world = World()
    links = Links(world, a=1, b=1)
    source = FakeGroupSource(
        {
            GROUP: GroupAtSource({("a", 0): (7, "")}, members=2),
            "of b": GroupAtSource({("b", 0): (7, "")}, members=1),
            "unread": GroupAtSource({("a", 0): (7, "")}),
        },
        silent={"unread"},
    )
    broker, follows = await world.broker(1), migrator(world, source, links)
    await follows.follower.run_once()
    links.switch("a", 5)
    source.asked.clear()
    report = await follows.follower.hand_over_without_source()
    assert source.asked == []
    assert report.handed_over == [GROUP]
    waits = "for the switch of its topics"
    assert (report.released, report.waiting) == ([], {"of b": waits, "unread": waits})
    await passing(1)
    assert await broker.committed() == 5, "and within the boundary"
    links.switch("b")
    report = await follows.follower.hand_over_without_source()
    assert (report.handed_over, report.released, report.waiting) == (["of b"], ["unread"], {})
    await passing(1)
    await broker.stable_group("unread")
    await broker.stop()


@simulated
async def test_a_later_topic_of_a_source_that_is_gone_is_handed_over_too() -> None:
    moved = Moved()
    broker = await moved.begin()
    await moved.link_b()
    assert (await moved.follows.follower.hand_over_without_source()).handed_over == []
    moved.links.switch("b", 1000)
    assert (await moved.follows.follower.hand_over_without_source()).handed_over == [GROUP]
    assert await fetched(broker, ("b", 0)) == [30]
    await broker.stop()
