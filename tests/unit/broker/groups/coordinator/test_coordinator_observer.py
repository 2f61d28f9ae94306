"""What whoever measures hears of the groups."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.simulation.scripted import Fate
from tests.unit.broker.groups.coordinator.harness import (
    GROUP,
    TTL,
    BrokerUnderTest,
    World,
    passing,
    settled,
    simulated,
)

from dray.broker.groups.coordinator import GROUP_STATES, GroupsObserver
from dray.metadata import keys


class RecordingObserver(GroupsObserver):
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.seconds: list[float] = []

    def rebalanced(self, kind: str) -> None:
        self.counts[f"{kind} rebalanced"] += 1

    def member_expired(self, kind: str) -> None:
        self.counts[f"{kind} expired"] += 1

    def committed(self, offsets: int, seconds: float) -> None:
        self.counts["committed"] += offsets
        self.seconds.append(seconds)

    def taken(self) -> None:
        self.counts["taken"] += 1

    def lost(self) -> None:
        self.counts["lost"] += 1


async def measured(world: World, broker_id: int = 1) -> tuple[BrokerUnderTest, RecordingObserver]:
    broker, heard = await world.broker(broker_id), RecordingObserver()
    broker.groups.observer = heard
    return broker, heard


@simulated
async def test_rebalances_are_counted_and_heartbeats_are_none() -> None:
    world = World()
    world.topics.make("a", 4)
    broker, heard = await measured(world)
    member, generation = await broker.stable_group("classic")
    await broker.beat("m1")
    await broker.beat("m2")
    for _ in range(5):
        await broker.classic_beat(member, generation, group_id="classic")
        await broker.beat("m2", 2)
    assert heard.counts == {"taken": 2, "classic rebalanced": 1, "consumer rebalanced": 2}
    await broker.leave(member, group_id="classic")
    assert heard.counts["classic rebalanced"] == 1, "nobody is left to share anything"


@simulated
async def test_members_that_expire_are_counted() -> None:
    world = World()
    world.topics.make("a", 4)
    broker, heard = await measured(world)
    await broker.stable_group("classic")
    await broker.beat("m1")
    await broker.beat("m2")
    await broker.beat("m2", -1)
    await passing(60)
    assert (heard.counts["classic expired"], heard.counts["consumer expired"]) == (1, 1)


@simulated
async def test_commits_are_timed_until_they_are_stored() -> None:
    world = World()
    broker, heard = await measured(world)
    await broker.commit(1)
    broker.store.trap(Fate.HOLD_AFTER, "write", keys.group_offsets(GROUP))
    committing = asyncio.ensure_future(broker.commit(2))
    await settled()
    await passing(3)
    assert heard.counts["committed"] == 1
    broker.store.release()
    await committing
    assert heard.counts["committed"] == 2
    assert [round(seconds) for seconds in heard.seconds] == [0, 3]


@simulated
async def test_a_lease_that_ends_is_a_loss_and_a_stop_is_none() -> None:
    world = World()
    broker, heard = await measured(world)
    await broker.commit(1)
    await broker.stop()
    assert heard.counts["lost"] == 0
    other, heard = await measured(world, 2)
    await other.commit(2)
    other.store.down = True
    await passing(2 * TTL)
    assert heard.counts["lost"] == 1


@simulated
async def test_groups_are_counted_by_kind_and_state() -> None:
    world = World()
    world.topics.make("a", 4)
    broker, _ = await measured(world)
    await broker.stable_group("classic")
    await broker.commit(1, group_id="simple")
    await broker.beat("m1")
    assert broker.groups.census() == {
        ("classic", "Stable"): 1,
        ("classic", "Empty"): 1,
        ("consumer", "Stable"): 1,
    }
    await broker.beat("m1", -1)
    await passing(2)
    assert broker.groups.census()["consumer", "Empty"] == 1
    assert set(broker.groups.census()) <= set(GROUP_STATES)
