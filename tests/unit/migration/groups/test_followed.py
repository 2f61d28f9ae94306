"""Groups that come from another cluster: they wait here, move once, and go on where they were."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.simulation.scripted import Fate
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
    counted,
    migrator,
)

from dray.broker.groups import consumer
from dray.broker.groups.coordinator import GroupUnavailable
from dray.broker.groups.offsets import NO_LEADER_EPOCH
from dray.kafka.protocol import ErrorCode
from dray.migration.groups.copy import CopyState

WAITS = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def source_with(offset: int = 7, members: int = 0) -> FakeGroupSource:
    group = GroupAtSource(members=members)
    group.commit(offset, metadata="so far")
    return FakeGroupSource({GROUP: group})


async def all_wait(broker: BrokerUnderTest) -> None:
    for asking in (
        broker.join(),
        broker.sync("m", 1),
        broker.classic_beat("m", 1),
        broker.leave("m"),
        broker.beat(),
        broker.commit(3),
        broker.committed(),
        broker.delete(),
    ):
        assert await refused(asking) is WAITS


@simulated
async def test_a_followed_group_waits_until_it_has_moved() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    await follower.run_once()
    await all_wait(broker)
    links.switch()
    assert (await follower.run_once()).handed_over == [GROUP]
    await passing(1)
    assert await broker.committed() == 7
    ledger = await broker.groups.offsets(GROUP, None, -1)
    assert ledger is not None
    found = ledger.find("a", 0)
    assert found is not None
    assert (found.metadata, found.leader_epoch, found.topic_id) == (
        "so far",
        NO_LEADER_EPOCH,
        links.topic_id(),
    )
    await broker.stable_group()
    await broker.stop()


@simulated
async def test_a_group_of_the_new_protocol_goes_on_too() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    source.groups[GROUP].group_type = "consumer"
    await follower.run_once()
    links.switch()
    await follower.run_once()
    answer = await broker.beat()
    assert isinstance(answer, consumer.HeartbeatAnswer)
    ledger = await broker.groups.offsets(GROUP, "m1", answer.member_epoch)
    assert ledger is not None
    assert ledger.find("a", 0) is not None
    await broker.stop()


@simulated
async def test_a_group_that_the_source_never_had_works_at_once() -> None:
    world, source = World(), FakeGroupSource({"elsewhere": GroupAtSource({("b", 0): (1, "")})})
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    assert (await follower.run_once()).waiting == {}
    await broker.stable_group()
    await broker.stable_group("elsewhere")
    await broker.stop()


@simulated
async def test_a_group_that_is_not_followed_costs_one_read_when_it_is_loaded() -> None:
    world = World()
    world.topics.make("a", 1)
    broker, other = await world.broker(1), await world.broker(2)
    member, generation = await broker.stable_group()
    gets = counted(broker.store, "get", "followed-groups")
    for _ in range(5):
        assert await broker.classic_beat(member, generation) is ErrorCode.NONE
        assert await broker.commit(1, member_id=member, generation=generation) is ErrorCode.NONE
        assert await broker.committed() == 1
    assert gets == []
    await broker.stop()
    gets = counted(other.store, "get", "followed-groups")
    assert await other.committed() == 1
    assert await other.committed() == 1
    assert len(gets) == 1
    await other.stop()


@simulated
async def test_a_group_moves_with_its_last_member_and_its_last_topic() -> None:
    world, source = World(), source_with(7, members=2)
    links = Links(world, a=1, b=1)
    source.groups[GROUP].commit(3, "b")
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    links.switch("a")
    assert (await follower.run_once()).waiting == {GROUP: "for the switch of its topics"}
    links.switch("b")
    assert "Stable" in (await follower.run_once()).waiting[GROUP]
    await all_wait(broker)
    source.groups[GROUP].members = 0
    source.groups[GROUP].commit(9)
    assert (await follower.run_once()).handed_over == [GROUP]
    await passing(1)
    assert await broker.committed() == 9
    assert await broker.committed(topic="b") == 3
    await broker.stop()


@simulated
async def test_a_member_that_comes_back_in_between_keeps_the_group_at_the_source() -> None:
    """Its members are counted before and after its offsets are read."""
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    follower = migrator(world, source, links).follower
    await follower.run_once()
    links.switch()

    async def comes_back() -> None:
        source.groups[GROUP].members = 1

    async def nothing() -> None:
        return None

    source.before["members"] = [nothing, comes_back]
    report = await follower.run_once()
    assert report.handed_over == []
    assert report.waiting == {GROUP: "for its 1 members at the source to leave"}


@simulated
async def test_what_is_committed_before_the_last_member_leaves_is_in_the_last_copy() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    await follower.run_once()
    links.switch()

    async def commits() -> None:
        source.groups[GROUP].commit(8)

    source.before["members"] = [commits]  # and leaves: the members are counted after it
    assert (await follower.run_once()).handed_over == [GROUP]
    assert await broker.committed() == 8
    await broker.stop()


@simulated
async def test_a_group_is_never_copied_after_it_moved() -> None:
    """A second migrator stands still between its reading and its writing."""
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker = await world.broker(1)
    first, late_source = migrator(world, source, links).follower, source_with(8)
    late = migrator(world, late_source, links, seed=98).follower
    await first.run_once()
    links.switch()

    async def it_moves() -> None:
        assert (await first.run_once()).handed_over == [GROUP]
        assert await broker.commit(99) is ErrorCode.NONE

    late_source.before["committed"] = [it_moves]
    report = await late.run_once()
    assert (report.copied, report.handed_over) == (0, [])
    await passing(1)
    assert await broker.committed() == 99
    await broker.stop()
    other = await world.broker(2)
    assert await other.committed() == 99
    await other.stop()


@simulated
async def test_offsets_are_taken_in_once() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    await follower.run_once()
    links.switch()
    await follower.run_once()
    assert await broker.commit(50) is ErrorCode.NONE
    await broker.stop()
    other = await world.broker(2)
    assert await other.committed() == 50
    await other.stop()


@simulated
async def test_a_coordinator_that_has_the_group_in_memory_hears_of_its_copy() -> None:
    """It would commit over what the group does at the source."""
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    assert await broker.commit(1, partition=0) is ErrorCode.NONE
    await follower.run_once()
    assert await refused(broker.commit(2)) is ErrorCode.NOT_COORDINATOR
    await all_wait(broker)
    links.switch()
    await follower.run_once()
    await passing(1)
    assert await broker.committed() == 7
    await broker.stop()


@simulated
async def test_a_group_without_members_leaves_memory_when_topics_come_from_elsewhere() -> None:
    """It would tell a consumer that assigns partitions to itself that nothing was ever committed there."""
    world, source = World(), source_with(7)
    world.topics.make("other", 1)
    broker = await world.broker(1)
    assert await broker.commit(1, topic="other") is ErrorCode.NONE
    assert await broker.commit(1, topic="other", group_id="elsewhere") is ErrorCode.NONE
    links = Links(world, a=1)
    await migrator(world, source, links).follower.run_once()
    world.topics.by_name["a"] = replace(world.topics.by_name["a"], leader_epoch=65_536)
    await passing(1)
    assert await refused(broker.committed()) is WAITS
    assert await broker.committed(topic="other", group_id="elsewhere") == 1
    await broker.stop()


@simulated
async def test_a_copy_is_not_settled_while_a_coordinator_may_be_making_the_group() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follows = await world.broker(1), migrator(world, source, links)
    lease = await broker.groups.leases.take(GROUP)
    links.switch()
    assert (await follows.follower.run_once()).handed_over == []
    assert (await follows.copies.read_all())[GROUP].copy.state is CopyState.FOUND
    await broker.groups.leases.release(lease)
    assert (await follows.follower.run_once()).handed_over == [GROUP]
    await broker.stop()


@simulated
async def test_a_group_with_members_here_is_left_alone() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    member, generation = await broker.stable_group()
    assert await broker.commit(40, member_id=member, generation=generation) is ErrorCode.NONE
    links.switch()
    await follower.run_once()
    assert (await follower.run_once()).left == {GROUP: "it has members here already"}
    assert await broker.classic_beat(member, generation) is ErrorCode.NONE
    assert await broker.committed() == 40
    await broker.stop()


@simulated
async def test_what_the_source_no_longer_has_is_not_taken_back() -> None:
    """Its offsets expired there, or the group was deleted: it goes on here where it was."""
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    await follower.run_once()
    del source.groups[GROUP]
    await follower.run_once()
    await all_wait(broker)
    links.switch()
    assert (await follower.run_once()).handed_over == [GROUP]
    await passing(1)
    assert await broker.committed() == 7
    await broker.stop()


@simulated
async def test_an_offset_that_went_back_at_the_source_goes_back_here() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    await follower.run_once()
    source.groups[GROUP].commit(2)
    links.switch()
    await follower.run_once()
    assert await broker.committed() == 2
    await broker.stop()


@simulated
async def test_no_group_goes_on_beyond_the_boundary() -> None:
    """It had read what came to the source after the switch. Beyond the end its reset policy would rule."""
    world, source = World(), source_with(1005)
    links = Links(world, a=1)
    broker, follower = await world.broker(1), migrator(world, source, links).follower
    links.switch(boundary=1000)
    await follower.run_once()
    assert await broker.committed() == 1000
    await broker.stop()


@simulated
async def test_a_coordinator_that_does_not_answer_is_not_a_group_without_members() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    follower = migrator(world, source, links).follower
    await follower.run_once()
    links.switch()
    source.silent = {GROUP}
    report = await follower.run_once()
    assert report.handed_over == []
    assert report.waiting == {GROUP: "for an answer"}
    assert GROUP in report.left
    source.silent, source.uncounted = set(), {GROUP}
    assert (await follower.run_once()).handed_over == []


@simulated
async def test_groups_of_other_kinds_are_named_and_left() -> None:
    world = World()
    links = Links(world, a=1)
    source = FakeGroupSource(
        {name: GroupAtSource({("a", 0): (1, "")}, group_type=name) for name in ("share", "streams")}
    )
    report = await migrator(world, source, links).follower.run_once()
    assert report.left == {
        "share": "it is a share group, which Dray does not have",
        "streams": "it is a streams group, which Dray does not have",
    }
    assert report.copied == 0


@simulated
async def test_a_group_comes_from_one_source_alone() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1)
    await migrator(world, source, links).follower.run_once()
    report = await migrator(world, source_with(8), links, upstream="older").follower.run_once()
    assert (report.copied, report.left) == (0, {GROUP: "it comes from old"})


@simulated
async def test_only_what_changed_is_written_and_many_share_a_write() -> None:
    world = World()
    links = Links(world, a=1)
    source = FakeGroupSource({f"g{n}": GroupAtSource({("a", 0): (n, "")}) for n in range(500)})
    follows = migrator(world, source, links)
    assert (await follows.follower.run_once()).copied == 500
    writes = counted(follows.store, "write")
    assert (await follows.follower.run_once()).copied == 0
    assert writes == []
    source.groups["g3"].commit(77)
    assert (await follows.follower.run_once()).copied == 1
    assert len(writes) == 1
    for group in source.groups.values():
        group.commit(9999)
    assert (await follows.follower.run_once()).copied == 500
    assert len(writes) <= 10


@simulated
async def test_an_abort_sets_the_groups_free() -> None:
    world, source = World(), source_with(7)
    links = Links(world, a=1, b=1)
    source.groups["both"] = GroupAtSource({("a", 0): (1, ""), ("b", 0): (2, "")})
    broker, follows = await world.broker(1), migrator(world, source, links)
    await follows.follower.run_once()
    await all_wait(broker)
    await follows.copies.forget_topic("a")
    await passing(1)
    await broker.stable_group()
    assert await refused(broker.join(group_id="both")) is WAITS
    kept = await follows.copies.read_all()
    assert list(kept) == ["both"]
    assert kept["both"].offsets == {("b", 0): (2, "")}
    await broker.stop()


@pytest.mark.parametrize("part", ["followed-groups/", "group-offsets/", "groups/"])
@pytest.mark.parametrize("fate", [Fate.REFUSE, Fate.LOSE, Fate.LOSE_REPLY])
def test_a_write_that_fails_while_offsets_are_taken_in_is_made_again(fate: Fate, part: str) -> None:
    @simulated
    async def take_in() -> None:
        world, source = World(), source_with(7)
        links = Links(world, a=1)
        broker, follower = await world.broker(1), migrator(world, source, links).follower
        await follower.run_once()
        links.switch()
        await follower.run_once()
        broker.store.trap(fate, part=part)
        while True:
            try:
                assert await broker.commit(8) is ErrorCode.NONE
            except GroupUnavailable:
                await passing(1)
            else:
                break
        assert broker.store.all_sprung()
        assert await broker.committed() == 8
        await broker.stop()
        other = await world.broker(2)
        assert await other.committed() == 8
        await other.stop()

    take_in()
