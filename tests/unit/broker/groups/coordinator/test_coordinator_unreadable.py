"""What this build cannot read of groups and topics: nothing of it goes, and everything else goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.simulation.scripted import Fate
from tests.unit.broker.groups.coordinator.harness import (
    DOMAINS,
    GROUP,
    SETTINGS,
    World,
    passing,
    refused,
    settled,
    simulated,
)

from dray.broker.groups.consumer import HeartbeatAnswer
from dray.broker.groups.coordinator.administration import list_groups
from dray.broker.groups.coordinator.configs import SESSION_TIMEOUT
from dray.broker.groups.coordinator.sweep import forget_topics, sweep
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import Put

OTHER = "another/group"


@simulated
async def test_offsets_of_an_unreadable_topic_stay_and_those_of_a_deleted_one_go() -> None:
    world = World()
    for name in ("a", "b"):
        world.topics.make(name, 1)
    first = await world.broker(1)
    for name in ("a", "b"):
        await first.commit(7, topic=name)
    await first.groups.stop()
    del world.topics.by_name["b"]
    world.topics.hidden.add("a")
    second = await world.broker(2)
    assert await second.committed() == 7
    await sweep(second.groups)
    await forget_topics(second.groups, frozenset({"a", "b"}))
    assert await second.committed() == 7
    assert await second.committed(topic="b") is None


@simulated
async def test_offsets_of_an_unreadable_topic_do_not_expire() -> None:
    world = World(settings=replace(SETTINGS, offset_retention=1.0, sweep_interval=1e9))
    world.topics.make("a", 2)
    broker = await world.broker(1)
    await broker.commit(7)
    await passing(60)
    world.topics.hidden.add("a")
    await sweep(broker.groups)
    assert await broker.committed() == 7
    world.topics.hidden.clear()
    await sweep(broker.groups)
    assert world.group_record() is None


@simulated
async def test_members_keep_what_they_read_of_a_topic_that_becomes_unreadable() -> None:
    world = World()
    topic = world.topics.make("a", 2)
    broker = await world.broker(1)
    joined = await broker.beat("m1")
    assert isinstance(joined, HeartbeatAnswer)
    version = broker.groups.view.version
    world.topics.hidden.add("a")
    await passing(5)
    answer = await broker.beat("m1", joined.member_epoch, owned=[(topic.topic_id, [0, 1])])
    assert isinstance(answer, HeartbeatAnswer)
    assert answer.member_epoch == joined.member_epoch
    assert answer.assignment is None
    assert broker.groups.view.version == version
    del world.topics.by_name["a"]
    world.topics.hidden.clear()
    await passing(5)
    assert broker.groups.view.shape("a") is None, "now it is gone"


@simulated
async def test_a_group_that_cannot_be_swept_keeps_no_other_from_it() -> None:
    world = World()
    world.topics.make("a", 1)
    broker = await world.broker(1)
    for group_id in (GROUP, OTHER):
        await broker.commit(7, group_id=group_id)
    del world.topics.by_name["a"]
    broker.store.trap(Fate.REFUSE, "write", keys.group_offsets(broker.groups.active()[0].group_id))
    broker.groups.view._gone = lambda _: None  # only the sweep acts on it
    broker.groups.view.look()
    await sweep(broker.groups)
    assert broker.store.all_sprung()
    assert len(world.records(keys.GROUP_OFFSETS)) == 1


@simulated
async def test_the_lease_of_a_group_that_cannot_be_read_is_free_for_others() -> None:
    world = World()
    broker = await world.broker(1)
    domain = keys.domain_of_group(GROUP, DOMAINS)
    await broker.store.write(domain, [Put(keys.group(GROUP), b"\x02newer")])
    assert await refused(broker.commit(1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refused(broker.groups.offsets(GROUP, None, -1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await settled()
    assert world.records(keys.GROUP_LEASES) == []
    record = world.group_record()
    assert record is not None
    assert record.value == b"\x02newer"


@simulated
async def test_configs_that_become_unreadable_stay_as_they_were() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.groups.configs.alter(GROUP, lambda _: {SESSION_TIMEOUT: "50000"})
    await broker.store.write(keys.CLUSTER_DOMAIN, [Put(keys.group_configs(GROUP), b"\x02{}")])
    await passing(30)
    assert broker.groups.configs.settings_of(GROUP).session_timeout_ms == 50_000
    assert await refused(broker.groups.configs.alter(GROUP, lambda _: {})) is (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
    )


@simulated
async def test_a_lease_that_cannot_be_read_hides_no_group() -> None:
    world = World()
    world.topics.make("a", 1)
    broker = await world.broker(1)
    await broker.commit(7)
    domain = keys.domain_of_group(OTHER, DOMAINS)
    await broker.store.write(domain, [Put(keys.group_lease(OTHER), b"\x02{}")])
    assert [listed.group_id for listed in await list_groups(broker.groups)] == [GROUP]


@simulated
async def test_a_broker_with_another_id_takes_its_leases_anew() -> None:
    """Or else those who look for the coordinator are sent to the broker that has the old id now."""
    world = World()
    world.topics.make("a", 1)
    broker = await world.broker(1)
    await broker.commit(7)
    held = broker.groups.active()
    broker.groups._membership.renumbered(5)  # type: ignore[attr-defined]
    await settled()
    assert not held[0].usable()
    assert world.records(keys.GROUP_LEASES) == []
    assert await broker.commit(8) is ErrorCode.NONE
    [lease] = world.records(keys.GROUP_LEASES)
    assert b'"broker":5' in lease.value
    await asyncio.sleep(60)
    assert broker.runtime.failures == []
