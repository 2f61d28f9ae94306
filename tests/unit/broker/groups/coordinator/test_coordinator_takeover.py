"""Another broker carries on: what was told stands, what was not is asked again, the old one is silent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.simulation.scripted import Fate
from tests.unit.broker.groups.coordinator.harness import (
    DOMAINS,
    GROUP,
    TTL,
    BrokerUnderTest,
    World,
    passing,
    refused,
    settled,
    simulated,
)

from dray.broker.groups.consumer import ConsumerGroup, HeartbeatAnswer, Refusal
from dray.broker.groups.coordinator import NotCoordinator
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys

RECORD = keys.group(GROUP)


def answered(answer: HeartbeatAnswer | Refusal) -> HeartbeatAnswer:
    assert isinstance(answer, HeartbeatAnswer), answer
    return answer


async def taken_over(heir: BrokerUnderTest) -> float:
    """When the heir could take the group."""
    while True:
        try:
            await heir.groups.state(GROUP)
        except NotCoordinator:
            await passing(0.1)
        else:
            return asyncio.get_running_loop().time()


# --- going on


@simulated
async def test_a_classic_generation_goes_on() -> None:
    world = World()
    broker, heir = await world.broker(1), await world.broker(2)
    member, generation = await broker.stable_group()
    assert await broker.commit(7, member_id=member, generation=generation) is ErrorCode.NONE
    broker.vanish()
    assert await taken_over(heir) < TTL + 1
    assert await heir.classic_beat(member, generation) is ErrorCode.NONE
    assert await heir.commit(8, member_id=member, generation=generation) is ErrorCode.NONE
    assert (await heir.sync(member, generation)).assignment == b"all"
    parked = asyncio.ensure_future(heir.join(fresh="second"))
    await settled()
    assert await heir.classic_beat(member, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert (await heir.join(member)).generation == generation + 1
    assert (await parked).generation == generation + 1


@simulated
async def test_a_classic_rebalance_that_was_under_way_begins_again() -> None:
    world = World()
    broker, heir = await world.broker(1), await world.broker(2)
    member, generation = await broker.stable_group()
    parked = asyncio.ensure_future(broker.join(fresh="second"))
    await settled()
    await broker.stop()
    assert await refused(parked) is ErrorCode.NOT_COORDINATOR
    assert await heir.classic_beat(member, generation) is ErrorCode.NONE
    parked = asyncio.ensure_future(heir.join(fresh="second"))
    await settled()
    assert (await heir.join(member)).generation == generation + 1
    assert (await parked).generation == generation + 1


@simulated
async def test_a_settled_generation_that_nobody_heard_of_is_told_again() -> None:
    world = World()
    broker, heir = await world.broker(1), await world.broker(2)
    joined = await broker.join()
    broker.vanish()
    await taken_over(heir)
    again = await heir.join(joined.member_id)
    assert (again.error, again.generation) == (ErrorCode.NONE, joined.generation)
    synced = await heir.sync(joined.member_id, joined.generation, [(joined.member_id, b"x")])
    assert synced.assignment == b"x"


@simulated
async def test_epochs_and_ownership_of_a_consumer_group_go_on() -> None:
    world = World()
    topic = world.topics.make("a", 2).topic_id
    broker, heir = await world.broker(1), await world.broker(2)
    first = answered(await broker.beat("m1"))
    assert first.assignment == {topic: frozenset({0, 1})}
    second = answered(await broker.beat("m2"))
    assert second.assignment == {}
    broker.vanish()
    await taken_over(heir)
    # m1 owns both until it says otherwise, and m2 gets nothing before.
    told = answered(await heir.beat("m1", first.member_epoch))
    assert told.assignment is not None
    assert len(told.assignment[topic]) == 1
    assert answered(await heir.beat("m2", second.member_epoch)).assignment is None
    released = answered(
        await heir.beat("m1", told.member_epoch, owned=[(topic, sorted(told.assignment[topic]))])
    )
    assert released.member_epoch == second.member_epoch
    given = answered(await heir.beat("m2", second.member_epoch)).assignment
    assert given is not None
    assert given[topic] == {0, 1} - told.assignment[topic]


@simulated
async def test_every_member_gets_a_whole_session_after_a_takeover() -> None:
    world = World()
    world.topics.make("a", 2)
    broker, heir = await world.broker(1), await world.broker(2)
    first = answered(await broker.beat("m1"))
    await passing(40)
    await broker.stop()
    at = await taken_over(heir)
    await passing(44)
    assert answered(await heir.beat("m1", first.member_epoch)).member_epoch == first.member_epoch
    await passing(46)
    state = await heir.groups.state(GROUP)
    assert isinstance(state, ConsumerGroup)
    assert state.members == {}
    assert at >= 40


# --- the old coordinator


@simulated
async def test_a_zombie_answers_nothing_after_its_lease() -> None:
    world = World()
    world.topics.make("a", 2)
    zombie = await world.broker(1)
    first = answered(await zombie.beat("m1"))
    member, generation = await zombie.stable_group("classic")
    await zombie.commit(5, group_id="classic", member_id=member, generation=generation)
    parked = asyncio.ensure_future(zombie.join(group_id="classic", fresh="second"))
    await settled()
    zombie.store.down = True
    until = min(group.storage.lease._session.confirmed_until() for group in zombie.groups.active())
    await passing(until - asyncio.get_running_loop().time() - 0.001)
    assert answered(await zombie.beat("m1", first.member_epoch)).member_epoch == first.member_epoch
    assert not parked.done()
    await passing(TTL)
    # It cannot even find out who is the coordinator; it certainly does not claim to be.
    for asking in (
        zombie.beat("m1", first.member_epoch),
        zombie.classic_beat(member, generation, group_id="classic"),
        zombie.join(member, group_id="classic"),
        zombie.committed(group_id="classic"),
        zombie.commit(6, group_id="classic", member_id=member, generation=generation),
        zombie.delete(),
        zombie.groups.state(GROUP),
    ):
        assert await refused(asking) in (
            ErrorCode.NOT_COORDINATOR,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
        )
    assert await refused(parked) is ErrorCode.NOT_COORDINATOR


@simulated
async def test_whoever_is_parked_hears_of_it_when_the_lease_ends_without_asking() -> None:
    broker = await World().broker(1)
    await broker.stable_group()
    parked = asyncio.ensure_future(refused(broker.join(fresh="second")))
    await settled()
    broker.store.down = True
    started = asyncio.get_running_loop().time()
    assert await parked is ErrorCode.NOT_COORDINATOR
    assert asyncio.get_running_loop().time() - started <= TTL


@simulated
async def test_the_lease_is_looked_at_for_each_request_even_when_nobody_told() -> None:
    """The session's own watchdog is a timer, and a process that was frozen runs requests before timers."""
    world = World()
    world.topics.make("a", 2)
    zombie, heir = await world.broker(1), await world.broker(2)
    first = answered(await zombie.beat("m1"))
    member, generation = await zombie.stable_group("classic")
    for group in zombie.groups.active():
        session: Any = group.storage.lease._session
        session._watchdog.cancel()
        session._task.cancel()
    zombie.groups.leases._lost = lambda _: None
    await passing(TTL + 1)
    heir_epoch = answered(await heir.beat("m1", first.member_epoch)).member_epoch
    assert heir_epoch == first.member_epoch
    await heir.classic_beat(member, generation, group_id="classic")
    assert await refused(zombie.beat("m1", first.member_epoch)) is ErrorCode.NOT_COORDINATOR
    assert await refused(zombie.committed(group_id="classic")) is ErrorCode.NOT_COORDINATOR
    assert await refused(zombie.classic_beat(member, generation, group_id="classic")) is (
        ErrorCode.NOT_COORDINATOR
    )


@simulated
async def test_a_zombies_timers_do_nothing() -> None:
    world = World()
    world.topics.make("a", 2)
    zombie, heir = await world.broker(1), await world.broker(2)
    first = answered(await zombie.beat("m1"))
    zombie.store.down = True
    epoch = first.member_epoch
    await passing(TTL + 1)
    for _ in range(10):
        epoch = answered(await heir.beat("m1", epoch)).member_epoch
        zombie.store.down = False
        await passing(5)
    assert epoch == first.member_epoch


@simulated
async def test_a_zombie_whose_write_arrives_late_changes_nothing_for_the_heir() -> None:
    world = World()
    world.topics.make("a", 2)
    zombie, heir = await world.broker(1), await world.broker(2)
    first = answered(await zombie.beat("m1"))
    zombie.store.trap(Fate.LATE, "write", RECORD)
    joining = asyncio.ensure_future(refused(zombie.beat("m2")))
    zombie.store.down = True
    await passing(TTL + 1)
    assert await joining is ErrorCode.NOT_COORDINATOR
    assert answered(await heir.beat("m1", first.member_epoch)).member_epoch == first.member_epoch
    zombie.store.land()
    assert answered(await heir.beat("m3")).member_epoch == first.member_epoch + 1
    state = await heir.groups.state(GROUP)
    assert isinstance(state, ConsumerGroup)
    assert set(state.members) == {"m1", "m3"}


@simulated
async def test_a_zombie_that_wrote_in_time_and_heard_too_late_says_nothing_good() -> None:
    world = World()
    world.topics.make("a", 2)
    zombie = await world.broker(1)
    zombie.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    joining = asyncio.ensure_future(refused(zombie.beat("m1")))
    await settled()
    zombie.store.down = True
    await passing(TTL + 1)
    zombie.store.release()
    assert await joining is ErrorCode.NOT_COORDINATOR


@simulated
async def test_after_a_short_cut_a_broker_takes_its_own_groups_up_again() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    first = answered(await broker.beat("m1"))
    await broker.commit(3, group_id="simple")
    broker.store.down = True
    await passing(TTL + 1)
    assert broker.groups.active() == []
    broker.store.down = False
    assert answered(await broker.beat("m1", first.member_epoch)).member_epoch == first.member_epoch
    assert await broker.committed(group_id="simple") == 3


@pytest.mark.parametrize("moment", [0, 1, 2, 3])
def test_a_broker_killed_at_any_moment_of_a_join_leaves_a_group_to_go_on_with(moment: int) -> None:
    @simulated
    async def scenario() -> None:
        world = World()
        world.topics.make("a", 2)
        broker, heir = await world.broker(1), await world.broker(2)
        first = answered(await broker.beat("m1"))
        joining = asyncio.ensure_future(broker.beat("m2"))
        for _ in range(moment):
            await asyncio.sleep(0)
        broker.vanish()
        joining.cancel()
        await taken_over(heir)
        answered(await heir.beat("m1", first.member_epoch))
        again = answered(await heir.beat("m2"))
        assert again.member_epoch >= first.member_epoch + 1

    scenario()


# --- behind the times


@simulated
async def test_a_reader_that_is_behind_does_not_take_a_group_for_absent() -> None:
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    two.store.fall_behind(*range(DOMAINS))
    await one.commit(5)
    await one.stop()
    assert await two.committed() == 5


@simulated
async def test_a_reader_that_is_behind_takes_no_offsets_for_orphans() -> None:
    world = World()
    world.topics.make("a", 2)
    one, two = await world.broker(1), await world.broker(2)
    two.store.fall_behind(*range(DOMAINS))
    await one.commit(5)
    await one.stop()
    assert await two.commit(6, partition=1) is ErrorCode.NONE
    assert await two.committed() == 5


@simulated
async def test_a_reader_that_is_behind_learns_who_holds_the_lease() -> None:
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    two.store.fall_behind(*range(DOMAINS))
    await one.commit(5)
    assert await refused(two.groups.leases.take(GROUP)) is ErrorCode.NOT_COORDINATOR


# --- frozen at the worst moment


def leave_sessions_unwatched(broker: BrokerUnderTest) -> None:
    """Nothing but the clock says that they have ended."""
    for own in broker.groups.leases._sessions.values():
        own.session._watchdog.cancel()  # type: ignore[attr-defined]
        own.session._task.cancel()  # type: ignore[attr-defined]
        own.watching.cancel()


@simulated
async def test_a_broker_frozen_between_a_write_and_what_waited_for_it_says_nothing_more() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    first = answered(await broker.beat("m1"))
    broker.store.trap(Fate.HOLD_AFTER, "write", RECORD)
    joining = asyncio.ensure_future(broker.beat("m2"))
    await settled()
    beating = asyncio.ensure_future(refused(broker.beat("m1", first.member_epoch)))
    await settled()
    leave_sessions_unwatched(broker)
    broker.runtime.pause(TTL + 1)
    broker.store.release()
    answered(await joining)
    assert await beating is ErrorCode.NOT_COORDINATOR


@simulated
async def test_a_broker_frozen_between_an_answer_and_its_way_out_says_nothing() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.beat("m1")
    [group] = broker.groups.active()
    leave_sessions_unwatched(broker)
    adopt = group._adopt

    def adopt_and_freeze(batch: object) -> None:
        adopt(batch)  # type: ignore[arg-type]
        confirmed: Any = group.storage.lease._session
        confirmed._confirmed_until = 0.0

    group._adopt = adopt_and_freeze  # type: ignore[method-assign]
    assert await refused(broker.beat("m2")) is ErrorCode.NOT_COORDINATOR
