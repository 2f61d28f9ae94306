"""What nobody needs goes; what somebody may need stays."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.simulation.scripted import Fate
from tests.unit.broker.groups.coordinator.harness import (
    GROUP,
    SETTINGS,
    World,
    passing,
    refused,
    settled,
    simulated,
    until,
)

from dray.base.runtime import UndoubtedClock
from dray.broker.groups.coordinator.sweep import forget_topics, sweep, sweep_group
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.topics import Topic
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys

DAY = 24 * 3600.0
HOUR_MS = 3600 * 1000
RETENTION = replace(SETTINGS, offset_retention=3600.0, sweep_interval=600.0)


@simulated
async def test_offsets_of_a_simple_group_expire_from_their_commit_on_and_the_group_with_the_last() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(1)
    await passing(3000)
    await broker.commit(2, partition=1)
    await passing(1500)
    assert await broker.committed() is None
    assert await broker.committed(partition=1) == 2
    await passing(3600)
    assert world.group_record() is None
    assert world.records(keys.group_offsets(GROUP)) == []


@simulated
async def test_nothing_expires_while_the_clock_is_doubted() -> None:
    class Doubted:
        def now_ms(self) -> int | None:
            return None

        def likely_ms(self) -> int:
            return 0

    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(1)
    broker.groups.expiry = Doubted()
    await passing(3 * 3600)
    assert await broker.committed() == 1
    broker.groups.expiry = UndoubtedClock(broker.runtime)
    await passing(1000)
    assert await broker.committed() is None


@simulated
async def test_offsets_of_a_living_group_stay() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    world.topics.make("b", 2)
    broker = await world.broker(1)
    epoch = (await broker.beat("m1")).member_epoch  # type: ignore[union-attr]
    await broker.commit(1, member_id="m1", generation=epoch)
    await broker.commit(1, topic="b", member_id="m1", generation=epoch)
    for _ in range(300):
        await passing(30)
        await broker.beat("m1", epoch)
    assert await broker.committed() == 1
    assert await broker.committed(topic="b") is None  # nobody subscribes to it
    await broker.beat("m1", -1)
    await passing(4800)
    assert world.group_record() is None


@simulated
async def test_an_empty_classic_group_counts_from_when_it_became_empty() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    member, generation = await broker.stable_group()
    await broker.commit(1, member_id=member, generation=generation)
    for _ in range(200):
        await passing(25)
        assert await broker.classic_beat(member, generation) is ErrorCode.NONE
    await broker.leave(member)
    await passing(3000)
    assert await broker.committed() == 1
    await passing(1300)
    assert world.group_record() is None


@simulated
async def test_groups_that_nobody_looks_after_are_swept_by_one_broker() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    for number in range(10):
        await broker.commit(1, group_id=f"group-{number}")
    await broker.stop()
    del world.cluster[1]
    await passing(3000)
    two, three = await world.broker(2), await world.broker(3)
    await two.commit(2, group_id="group-0")
    await passing(2000)
    left = [record.key for record in world.records(keys.GROUPS)]
    assert left == [keys.group("group-0")]
    await settled()
    assert {record.key for record in world.records(keys.GROUP_LEASES)} <= {
        keys.group_lease(f"group-{number}") for number in range(10)
    }
    assert await three.committed(group_id="group-3") is None


@simulated
async def test_only_the_broker_that_would_be_asked_sweeps_what_nobody_looks_after() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    groups = [f"group-{number}" for number in range(10)]
    for group_id in groups:
        await broker.commit(1, group_id=group_id)
    await broker.stop()
    del world.cluster[1]
    two, three = await world.broker(2), await world.broker(3)
    await passing(4000 - asyncio.get_running_loop().time() % 600)
    for one in (two, three):
        one.store.writes.clear()
        await sweep(one.groups)
        written = {str(getattr(operation, "key", "")) for write in one.store.writes for operation in write}
        assert written, "neither has all of them"
        for group_id in groups:
            mine = one.groups.is_candidate(group_id)
            assert mine or not any(keys.name(group_id) in key for key in written), group_id


@simulated
async def test_a_group_in_which_something_is_under_way_is_not_swept_away() -> None:
    """Its last offset has expired, but somebody is just coming to it."""
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    member, _ = await broker.stable_group()
    await broker.leave(member)
    broker.store.trap(Fate.HOLD_AFTER, "write", keys.group(GROUP))
    joining = asyncio.ensure_future(broker.join(fresh="another"))
    await settled()
    await sweep(broker.groups)
    broker.store.release()
    assert (await joining).error is ErrorCode.NONE
    assert world.group_record() is not None


@simulated
async def test_what_is_committed_while_the_sweep_makes_up_its_mind_stays() -> None:
    world = World(settings=RETENTION)
    broker = await world.broker(1)
    await broker.commit(1)

    async def gone(name: str) -> Topic | None:
        """The topic is gone; but before that is acted on, there is another, and a commit to it."""
        world.topics.make(name, 2)
        await broker.commit(2)
        return None

    world.topics.refresh = gone  # type: ignore[method-assign]
    await sweep(broker.groups)
    assert await broker.committed() == 2


@simulated
async def test_groups_that_others_look_after_are_left_to_them() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    one, two = await world.broker(1), await world.broker(2)
    group_id = next(name for name in map(str, range(100)) if two.groups.is_candidate(name))
    await one.commit(1, group_id=group_id)
    asked: list[str] = []

    async def existing(group_id: str) -> None:
        asked.append(group_id)

    two.groups.existing = existing  # type: ignore[method-assign]
    await sweep(two.groups)
    assert asked == []
    await one.stop()
    await sweep(two.groups)
    assert asked == [group_id]


@simulated
async def test_looking_at_a_group_that_nobody_looks_after_does_not_keep_it() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(1)
    await broker.stop()
    two = await world.broker(2)
    del world.cluster[1]
    await sweep(two.groups)
    await settled()
    assert two.groups.active() == []
    assert world.records(keys.GROUP_LEASES) == []
    assert await two.committed() == 1


@simulated
async def test_offsets_go_with_their_topic() -> None:
    world = World()
    world.topics.make("a", 2)
    world.topics.make("b", 2)
    broker = await world.broker(1)
    await broker.commit(1)
    await broker.commit(2, topic="b")
    await passing(1)
    del world.topics.by_name["a"]
    await passing(1)
    assert await broker.committed() is None
    assert await broker.committed(topic="b") == 2


@simulated
async def test_offsets_go_with_a_topic_that_lived_but_a_moment() -> None:
    world = World()
    broker = await world.broker(1)
    await passing(1.2)  # between two looks at the topics
    world.topics.make("a", 2)
    await broker.commit(1)
    del world.topics.by_name["a"]
    await passing(1)
    assert await broker.committed() is None


@simulated
async def test_who_takes_a_group_over_misses_topics_that_went_before() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(1)
    await broker.stop()
    del world.topics.by_name["a"]
    heir = await world.broker(2)
    await heir.committed()
    await passing(1)
    assert await heir.committed() is None
    assert world.records(keys.group_offsets(GROUP)) == []


@simulated
async def test_offsets_of_a_topic_made_anew_under_the_old_name_are_its_own() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(100)
    await passing(1)
    world.topics.make("a", 2, created_ms=broker.runtime.wall_ms())
    await passing(0.1)
    await broker.commit(1, partition=1)  # to the new one, before anybody noticed
    await passing(1)
    assert await broker.committed() is None
    assert await broker.committed(partition=1) == 1


@simulated
async def test_the_ids_of_topics_decide_and_not_the_clocks_of_brokers() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(100)
    await broker.stop()
    # The broker that made the topic anew was behind: by the clock, the old offset would be the new topic's.
    world.topics.make("a", 2, created_ms=1)
    heir = await world.broker(2)
    await heir.commit(1, partition=1)
    await sweep(heir.groups)
    assert await heir.committed() is None
    assert await heir.committed(partition=1) == 1
    # And a broker ahead of the others costs nobody an offset.
    made = world.topics.by_name["a"]
    world.topics.by_name["a"] = replace(made, created_ms=heir.runtime.wall_ms() + 3_600_000)
    await sweep(heir.groups)
    assert await heir.committed(partition=1) == 1


@simulated
async def test_offsets_of_the_old_format_are_told_by_their_time() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(100)  # nobody knows the topic's id
    await passing(1)
    world.topics.make("a", 2, created_ms=broker.runtime.wall_ms())
    await passing(0.1)
    ledger = await broker.groups.offsets(GROUP, None, -1)
    assert ledger is not None
    await ledger.change({("a", 1): CommittedOffset.at(1, 0, "", broker.runtime.wall_ms())})
    await forget_topics(broker.groups, frozenset({"a"}))
    assert await broker.committed() is None
    assert await broker.committed(partition=1) == 1


@simulated
async def test_no_offset_goes_by_an_old_answer_about_its_topic() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(1)
    broker.store.barriers.clear()
    refresh = world.topics.refresh
    asked_after: list[list[int]] = []

    async def noted(name: str) -> Topic | None:
        asked_after.append(list(broker.store.barriers))
        return await refresh(name)

    world.topics.refresh = noted  # type: ignore[method-assign]
    await sweep(broker.groups)
    assert [keys.CLUSTER_DOMAIN in barriers for barriers in asked_after] == [True]
    world.topics.make("b", 1)
    await broker.commit(1, topic="b")
    await passing(1)
    asked_after.clear()
    await sweep(broker.groups)
    assert asked_after == [], "a topic that is known and has the right id is not asked for"


@simulated
async def test_the_sweep_finds_offsets_of_topics_that_went_while_nobody_looked() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(1)
    await broker.stop()
    del world.cluster[1], world.topics.by_name["a"]
    await world.broker(2)
    await passing(700)
    assert world.group_record() is None
    assert world.records(keys.group_offsets(GROUP)) == []


@simulated
async def test_a_store_that_is_away_only_delays_the_sweep() -> None:
    world = World(settings=RETENTION)
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(1)
    broker.store.down = True
    await passing(5000)
    broker.store.down = False
    await passing(1300)
    assert world.group_record() is None
    await broker.stop()


@simulated
async def test_a_commit_that_a_new_group_has_just_allowed_is_not_acknowledged_and_swept() -> None:
    world = World()
    world.topics.make("a", 2)
    broker = await world.broker(1)
    committing = asyncio.ensure_future(refused(broker.commit(1)))
    # The group has stored itself, and its answer is on the way to the commit that made it.
    await until(lambda: any(group.is_idle() for group in broker.groups.active() if group.state is not None))
    await sweep_group(broker.groups, broker.groups.active()[0])
    assert await committing is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.records(keys.group_offsets(GROUP)) == []
    assert await broker.commit(1) is ErrorCode.NONE  # as the client does by itself
    assert await broker.committed() == 1
