"""Whom to ask, what is listed, what stays in memory, what goes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from tests.simulation.scripted import Fate
from tests.unit.broker.groups.coordinator.harness import (
    GROUP,
    SETTINGS,
    TTL,
    World,
    passing,
    refused,
    settled,
    simulated,
)

from dray.broker.groups import classic, consumer
from dray.broker.groups.coordinator import (
    GroupListing,
    delete_offsets,
    describe_classic,
    describe_consumer,
    list_groups,
)
from dray.broker.groups.coordinator.active import ActiveGroup
from dray.broker.groups.coordinator.machines import State
from dray.broker.groups.coordinator.storage import GroupKind, decode_record
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import Put

RECORD = keys.group(GROUP)
OFFSETS = keys.group_offsets(GROUP)


# --- whom to ask


@simulated
async def test_the_coordinator_is_the_holder_of_the_lease_and_else_the_same_candidate_for_all() -> None:
    world = World()
    one, two, three = [await world.broker(number) for number in (1, 2, 3)]
    names = [f"group-{number}" for number in range(60)]
    for name in names:
        found = {(await broker.groups.find_coordinator(name)).broker_id for broker in (one, two, three)}
        assert found == {one.groups.candidate(name).broker_id}
    candidates = {one.groups.candidate(name).broker_id for name in names}
    assert candidates == {1, 2, 3}
    before = {name: one.groups.candidate(name).broker_id for name in names}
    del world.cluster[3]
    moved = [name for name in names if one.groups.candidate(name).broker_id != before[name]]
    assert moved == [name for name in names if before[name] == 3]
    await two.commit(1, group_id=names[0])
    for broker in (one, two):
        assert (await broker.groups.find_coordinator(names[0])).broker_id == 2
    assert await refused(one.commit(2, group_id=names[0])) is ErrorCode.NOT_COORDINATOR


@simulated
async def test_a_holder_that_is_gone_is_not_named() -> None:
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    await one.commit(1)
    one.vanish()
    assert (await two.groups.find_coordinator(GROUP)).broker_id == 1
    world.dead.add(1001)
    del world.cluster[1]
    assert (await two.groups.find_coordinator(GROUP)).broker_id == 2
    assert await two.committed() == 1  # at once, without waiting for the session to run out
    assert asyncio.get_running_loop().time() < 1


@simulated
async def test_a_store_that_is_away_makes_no_coordinator() -> None:
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    await one.commit(1)
    one.store.down = two.store.down = True
    assert (await one.groups.find_coordinator(GROUP)).broker_id == 1
    assert await refused(two.groups.find_coordinator(GROUP)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refused(two.committed()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refused(two.commit(1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@simulated
async def test_requests_at_the_same_time_share_one_loading() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    joining = [asyncio.ensure_future(broker.beat(f"m{number}")) for number in range(10)]
    joining[0].cancel()
    await asyncio.gather(*joining[1:])
    leases = [write for write in broker.store.writes if write[0].key.startswith(keys.GROUP_LEASES)]  # type: ignore[union-attr]
    assert len(leases) == 1


# --- listing and describing


@simulated
async def test_each_group_is_listed_by_one_broker() -> None:
    world = World()
    world.topics.make("a", 2)
    one, two = await world.broker(1), await world.broker(2)
    for number in range(10):
        await one.commit(1, group_id=f"simple-{number}")
    await two.stable_group("classic")
    await two.beat(group_id="consumer")
    listed_one, listed_two = await list_groups(one.groups), await list_groups(two.groups)
    assert GroupListing("classic", "consumer", "Stable", "classic") in listed_two
    assert GroupListing("consumer", "consumer", "Stable", "consumer") in listed_two
    assert GroupListing("simple-3", "", "Empty", "classic") in listed_one
    assert len(listed_one) == 10
    assert len(listed_two) == 2
    # When one is gone, the other tells of all; so it does of groups that nobody looks after.
    one.vanish()
    del world.cluster[1]
    assert len(await list_groups(two.groups)) == 12
    await passing(TTL + 1)
    assert len(await list_groups(two.groups)) == 12
    three = await world.broker(3)
    both = [listing.group_id for broker in (two, three) for listing in await list_groups(broker.groups)]
    assert len(both) == len(set(both)) == 12
    assert await list_groups(three.groups)


@simulated
async def test_a_group_that_cannot_be_read_does_not_hide_the_others() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(1, group_id="good")
    domain = keys.domain_of_group("bad", 2)
    await broker.store.write(domain, [Put(keys.group("bad"), b"\x63?")])
    assert [listing.group_id for listing in await list_groups(broker.groups)] == ["good"]


@simulated
async def test_describing() -> None:
    world = World()
    topic = world.topics.make("a", 2)
    broker = await world.broker(1)
    member, _ = await broker.stable_group("classic")
    await broker.beat(group_id="consumer")
    described = await describe_classic(broker.groups, "classic", 5)
    assert (described.state, described.protocol_name) == (classic.GroupState.STABLE, "range")
    assert [one.member_id for one in described.members] == [member]
    for name in ("consumer", "none"):
        nobody = await describe_classic(broker.groups, name, 5)
        assert (nobody.error, nobody.state) == (ErrorCode.NONE, classic.GroupState.DEAD)
        nobody = await describe_classic(broker.groups, name, 6)
        assert (nobody.error, nobody.state) == (ErrorCode.GROUP_ID_NOT_FOUND, classic.GroupState.DEAD)
    shown = await describe_consumer(broker.groups, "consumer")
    assert (shown.state.value, shown.assignor_name) == ("Stable", "uniform")
    assert shown.members[0].assignment[0].topic_name == topic.name
    for name in ("classic", "none"):
        assert await refused(describe_consumer(broker.groups, name)) is ErrorCode.GROUP_ID_NOT_FOUND


# --- deleting


@simulated
async def test_a_deleted_group_is_gone_with_its_offsets() -> None:
    world = World()
    broker = await world.broker(1)
    for partition in range(5):
        await broker.commit(1, partition=partition)
    assert await broker.delete() is ErrorCode.NONE
    assert world.group_record() is None
    assert world.records(OFFSETS) == []
    assert await broker.delete() is ErrorCode.GROUP_ID_NOT_FOUND
    assert await broker.committed() is None
    assert await broker.commit(2) is ErrorCode.NONE
    assert await broker.committed() == 2


@simulated
async def test_a_deletion_that_is_cut_short_is_finished_by_the_next() -> None:
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    for partition in range(5):
        await one.commit(1, partition=partition)
    one.store.trap(Fate.REFUSE, "write", OFFSETS)
    assert await one.delete() is ErrorCode.NONE  # it is marked, which is what counts
    record = world.group_record()
    assert record is not None
    assert decode_record(GROUP, record.value).kind is GroupKind.DELETED
    assert await list_groups(one.groups) == []
    await one.stop()
    assert await two.committed() is None
    assert world.group_record() is None
    assert world.records(OFFSETS) == []


@simulated
async def test_a_commit_that_waits_behind_a_deletion_begins_a_new_group() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(1)
    # Both wait for the same write: a member that leaves.
    member, _ = await broker.stable_group()
    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    leaving = asyncio.ensure_future(broker.leave(member))
    await settled()
    deleting = asyncio.ensure_future(broker.delete())
    await settled()
    committing = asyncio.ensure_future(broker.commit(2, partition=1))
    await settled()
    broker.store.release()
    assert await asyncio.gather(leaving, deleting, committing) == [ErrorCode.NONE] * 3
    assert await broker.committed() is None
    assert await broker.committed(partition=1) == 2
    await broker.stop()
    heir = await world.broker(2)
    assert [await heir.committed(partition=partition) for partition in (0, 1)] == [None, 2]


@simulated
async def test_a_group_made_anew_after_a_deletion_that_was_cut_short_has_nothing_of_the_old() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await broker.commit(100)
    broker.store.trap(Fate.REFUSE, "write", keys.group_offsets(GROUP))
    assert await broker.delete() is ErrorCode.NONE
    assert await broker.commit(1, partition=1) is ErrorCode.NONE
    assert await broker.committed() is None
    assert await broker.committed(partition=1) == 1


@simulated
async def test_a_commit_that_waits_before_a_deletion_goes_with_the_group() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    member, _ = await broker.stable_group()
    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    leaving = asyncio.ensure_future(broker.leave(member))
    await settled()
    committing = asyncio.ensure_future(broker.commit(1))
    deleting = asyncio.ensure_future(broker.delete())
    await settled()
    broker.store.release()
    answers = await asyncio.gather(leaving, committing, deleting)
    assert answers == [ErrorCode.NONE] * 3
    assert world.group_record() is None
    assert world.records(OFFSETS) == [], "offsets that belong to no group"


@simulated
async def test_a_dead_holder_is_not_named_though_it_is_still_listed() -> None:
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    group_id = next(name for name in map(str, range(100)) if two.groups.is_candidate(name))
    await one.commit(1, group_id=group_id)
    one.vanish()
    assert (await two.groups.find_coordinator(group_id)).broker_id == 1
    world.dead.add(1001)
    assert (await two.groups.find_coordinator(group_id)).broker_id == 2


@simulated
async def test_a_group_that_another_broker_is_just_making_is_not_taken_for_absent() -> None:
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    await one.groups.leases.take(GROUP)
    assert await refused(two.classic_beat("m1", 1)) is ErrorCode.NOT_COORDINATOR


@simulated
async def test_nothing_is_read_from_a_group_whose_lease_ended_while_it_was_loaded() -> None:
    class Doubtful:
        def confirmed(self) -> bool:
            return False

    world = World()
    one, two = await world.broker(1), await world.broker(2)
    await one.commit(1)
    await one.stop()
    load = two.groups._load

    async def slow_load(group_id: str) -> ActiveGroup:
        group = await load(group_id)
        group._lease = Doubtful()  # type: ignore[assignment]
        return group

    two.groups._load = slow_load  # type: ignore[method-assign]
    assert await refused(two.committed()) is ErrorCode.NOT_COORDINATOR


@simulated
async def test_a_member_is_assigned_a_topic_that_was_made_a_moment_ago() -> None:
    world = World()
    broker = await world.broker(1)
    await passing(1.2)  # between two looks at the topics
    topic = world.topics.make("a", 1)
    answer = await broker.beat("m1")
    assert isinstance(answer, consumer.HeartbeatAnswer)
    assert answer.assignment == {topic.topic_id: frozenset({0})}


@simulated
async def test_of_many_that_found_a_group_one_finds_out_that_there_is_none() -> None:
    """A first join computes an assignment: five hundred at once must not do so for nothing."""
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    step = broker.groups.machines.step
    alone = 0

    def counted(state: State, *others: Any) -> Any:
        nonlocal alone
        alone += state is None
        return step(state, *others)

    broker.groups.machines.step = counted  # type: ignore[method-assign, assignment]
    await asyncio.gather(*(broker.beat(f"m{number}") for number in range(10)))
    assert alone == 2, "to see that it must be stored, and then in the group"


@simulated
async def test_a_broker_that_has_stopped_takes_no_group_again() -> None:
    """Not even for a request that came while it was stopping: its leases would outlive it."""
    world = World()
    broker = await world.broker(1)
    await broker.commit(1)
    await broker.stop()
    assert await refused(broker.commit(2)) is ErrorCode.NOT_COORDINATOR
    assert world.records(keys.GROUP_LEASES) == []


@simulated
async def test_a_zombies_deletion_takes_nothing_from_the_heir() -> None:
    world = World()
    world.topics.make("a", 2)
    zombie, heir = await world.broker(1), await world.broker(2)
    await zombie.commit(1)
    zombie.store.trap(Fate.LATE, "write", RECORD)
    deleting = asyncio.ensure_future(refused(zombie.delete()))
    zombie.store.down = True
    await passing(TTL + 1)
    assert await deleting is ErrorCode.NOT_COORDINATOR
    assert await heir.committed() == 1
    zombie.store.land()
    assert await heir.commit(2, partition=1) is ErrorCode.NONE
    await heir.stop()
    other = await world.broker(3)
    assert [await other.committed(partition=partition) for partition in (0, 1)] == [1, 2]


@simulated
async def test_offsets_that_belong_to_no_group_are_not_taken_for_its() -> None:
    """A commit of a coordinator that died may arrive when the group is deleted."""
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    await one.commit(1)
    one.store.trap(Fate.LATE, "write", OFFSETS)
    assert await refused(one.commit(1, partition=1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await one.delete() is ErrorCode.NONE
    await one.stop()
    one.store.land()
    assert len(world.records(OFFSETS)) == 1
    assert await two.committed(partition=1) is None
    assert await two.commit(5) is ErrorCode.NONE
    assert await two.committed(partition=1) is None
    assert len(world.records(OFFSETS)) == 1


@simulated
async def test_deleting_offsets() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    assert await refused(delete_offsets(broker.groups, GROUP, [("a", 0)])) is ErrorCode.GROUP_ID_NOT_FOUND
    await broker.commit(1)
    await broker.commit(1, topic="b")
    member, generation = await broker.stable_group()
    errors = await delete_offsets(broker.groups, GROUP, [("a", 0), ("b", 0), ("b", 7)])
    assert errors == {
        ("a", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ("b", 0): ErrorCode.NONE,
        ("b", 7): ErrorCode.NONE,
    }
    assert await broker.committed() == 1
    assert await broker.committed(topic="b") is None
    await broker.leave(member)
    await broker.beat("m1")
    assert await delete_offsets(broker.groups, GROUP, [("a", 0)]) == {
        ("a", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    }
    await broker.beat("m1", -1)
    assert await delete_offsets(broker.groups, GROUP, [("a", 0)]) == {("a", 0): ErrorCode.NONE}
    assert generation == 1


# --- memory


@simulated
async def test_groups_without_members_leave_memory_when_there_are_too_many() -> None:
    world = World(settings=replace(SETTINGS, memory_groups=20))
    world.topics.make("a", 2)
    broker, other = await world.broker(1), await world.broker(2)
    busy = [await broker.stable_group(f"busy-{number}") for number in range(5)]
    for number in range(100):
        await broker.commit(number, group_id=f"simple-{number}")
        await passing(0.01)
    await settled()
    assert len(broker.groups.active()) <= 21
    leases = {record.key for record in world.records(keys.GROUP_LEASES)}
    assert len(leases) <= 21
    for number, (member, generation) in enumerate(busy):
        assert await broker.classic_beat(member, generation, group_id=f"busy-{number}") is ErrorCode.NONE
    # What left is anybody's, and nothing of it is lost.
    assert await other.committed(group_id="simple-0") == 0
    assert await broker.committed(group_id="simple-1") == 1
    assert await broker.commit(7, group_id="simple-1") is ErrorCode.NONE


@simulated
async def test_a_group_with_something_under_way_is_not_forgotten() -> None:
    broker = await World().broker(1)
    await broker.commit(1)
    [group] = broker.groups.active()
    for held in (OFFSETS, RECORD):
        broker.store.trap(Fate.HOLD_AFTER, "write", held)
        asking = broker.commit(2) if held == OFFSETS else broker.join()
        under_way = asyncio.ensure_future(asking)
        await settled()
        broker.groups.forget(group)
        broker.store.release()
        await under_way
    assert broker.groups.active() == [group]


@simulated
async def test_a_stop_gives_every_group_up_at_once() -> None:
    world = World()
    world.topics.make("a", 2)
    one, two = await world.broker(1), await world.broker(2)
    await one.beat("m1")
    await one.stable_group("classic")
    parked = asyncio.ensure_future(one.join(group_id="classic", fresh="second"))
    await settled()
    await one.stop()
    assert await refused(parked) is ErrorCode.NOT_COORDINATOR
    assert world.records(keys.GROUP_LEASES) == []
    assert (await two.groups.state(GROUP)) is not None
