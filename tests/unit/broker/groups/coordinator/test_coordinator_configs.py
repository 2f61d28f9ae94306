"""Configs of single groups: who may set what, who hears of it, and what is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.broker.groups.coordinator.harness import (
    GROUP,
    SETTINGS,
    BrokerUnderTest,
    World,
    passing,
    refused,
    simulated,
)

from dray.broker.groups.consumer import HeartbeatAnswer
from dray.broker.groups.coordinator.configs import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    GroupConfigs,
    decode_configs,
    encode_configs,
)
from dray.broker.groups.coordinator.contract import consumer_settings
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.values import FormatTooNew
from dray_simulation.kernel.runtime import SimulatedRuntime

CONFIGS = keys.GROUP_CONFIGS


async def put(broker: BrokerUnderTest, group_id: str = GROUP, **values: str) -> None:
    """`session` and `heartbeat`, beside what is set."""
    names = {"session": SESSION_TIMEOUT, "heartbeat": HEARTBEAT_INTERVAL}
    new = {names.get(name, name): value for name, value in values.items()}
    await broker.groups.configs.alter(group_id, lambda before: {**before, **new})


async def interval(broker: BrokerUnderTest, member: str = "m1", epoch: int = 0, group_id: str = GROUP) -> int:
    answer = await broker.beat(member, epoch, group_id=group_id)
    assert isinstance(answer, HeartbeatAnswer), answer
    return answer.heartbeat_interval_ms


def test_the_stored_form() -> None:
    stored = b'\x01{"consumer.session.timeout.ms":"50000"}'
    assert encode_configs({SESSION_TIMEOUT: "50000"}) == stored
    assert decode_configs("g", stored) == {SESSION_TIMEOUT: "50000"}
    with pytest.raises(FormatTooNew, match="the configs of group 'g'"):
        decode_configs("g", b"\x02{}")


@simulated
async def test_members_of_the_group_hear_of_it_and_others_do_not() -> None:
    world = World()
    world.topics.make("a", 4)
    one, two = await world.broker(1), await world.broker(2)
    assert await interval(one) == 5000
    await put(two, heartbeat="6000")
    await passing(0.1)
    assert await interval(one, epoch=1) == 6000
    assert await interval(one, group_id="other") == 5000
    await two.groups.configs.alter(GROUP, lambda _: {})
    await passing(0.1)
    assert await interval(one, epoch=1) == 5000
    assert world.records(CONFIGS) == [], "nothing is kept of what is as everywhere"


@simulated
async def test_a_session_of_its_own() -> None:
    world = World()
    world.topics.make("a", 4)
    broker = await world.broker(1)
    await put(broker, session="60000")
    await broker.beat("m1")
    await broker.beat("m1", group_id="other")
    await passing(50)
    assert await broker.groups.state(GROUP) is not None
    state, other = await broker.groups.state(GROUP), await broker.groups.state("other")
    assert state is not None
    assert other is not None
    assert (set(state.members), set(other.members)) == ({"m1"}, set())
    # Whoever takes over gives the members a session as long.
    await broker.stop()
    heir = await world.broker(2)
    await heir.groups.state(GROUP)
    await passing(55)
    state = await heir.groups.state(GROUP)
    assert state is not None
    assert set(state.members) == {"m1"}
    await passing(10)
    state = await heir.groups.state(GROUP)
    assert state is not None
    assert not state.members


@pytest.mark.parametrize(
    "overrides",
    [
        {"consumer.nothing": "1"},
        {SESSION_TIMEOUT: "soon"},
        {SESSION_TIMEOUT: ""},
        {SESSION_TIMEOUT: "4_6000"},
        {SESSION_TIMEOUT: "44999"},
        {SESSION_TIMEOUT: "60001"},
        {SESSION_TIMEOUT: "-1"},
        {SESSION_TIMEOUT: "99999999999999999999"},
        {HEARTBEAT_INTERVAL: "4999"},
        {HEARTBEAT_INTERVAL: "15001"},
    ],
    ids=lambda overrides: " ".join(f"{name}={value}" for name, value in overrides.items()),
)
def test_what_is_refused_changes_nothing(overrides: Mapping[str, str]) -> None:
    @simulated
    async def scenario() -> None:
        world = World()
        broker = await world.broker(1)
        await put(broker, session="50000")
        configs = broker.groups.configs
        asking = configs.alter(GROUP, lambda before: {**before, **overrides})
        assert await refused(asking) is ErrorCode.INVALID_CONFIG
        asking = configs.alter(GROUP, lambda before: {**before, **overrides}, validate_only=True)
        assert await refused(asking) is ErrorCode.INVALID_CONFIG
        assert await configs.read(GROUP) == {SESSION_TIMEOUT: "50000"}

    scenario()


@simulated
async def test_only_looking_changes_nothing() -> None:
    broker = await World().broker(1)
    await broker.groups.configs.alter(GROUP, lambda _: {SESSION_TIMEOUT: "50000"}, validate_only=True)
    assert await broker.groups.configs.read(GROUP) == {}


@simulated
async def test_two_that_alter_at_once_both_count() -> None:
    world = World()
    one, two = await world.broker(1), await world.broker(2)
    await asyncio.gather(put(one, session="50000"), put(two, heartbeat="6000"))
    assert await one.groups.configs.read(GROUP) == {SESSION_TIMEOUT: "50000", HEARTBEAT_INTERVAL: "6000"}


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE])
def test_an_unclear_write_is_done_again(fate: Fate) -> None:
    @simulated
    async def scenario() -> None:
        world = World()
        broker = await world.broker(1)
        broker.store.trap(fate, "write", CONFIGS)
        await put(broker, session="50000")
        assert await broker.groups.configs.read(GROUP) == {SESSION_TIMEOUT: "50000"}

    scenario()


@simulated
async def test_a_broker_starts_though_the_store_is_away_and_learns_later() -> None:
    world = World()
    await put(await world.broker(1), heartbeat="6000")
    runtime = SimulatedRuntime(2)
    store = ScriptedStore(runtime, world.state)
    store.down = True
    configs = GroupConfigs(store, runtime, consumer_settings(SETTINGS))
    await configs.start()
    assert configs.settings_of(GROUP).heartbeat_interval_ms == 5000
    store.down = False
    await passing(6)
    assert configs.settings_of(GROUP).heartbeat_interval_ms == 6000
    await configs.stop()


@simulated
async def test_a_store_that_is_away() -> None:
    broker = await World().broker(1)
    broker.store.down = True
    assert await refused(put(broker, session="50000")) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refused(broker.groups.configs.read(GROUP)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@simulated
async def test_configs_that_cannot_be_used_are_not_and_harm_nobody() -> None:
    world = World()
    world.topics.make("a", 4)
    one = await world.broker(1)
    await put(one, "good", heartbeat="6000")
    for group_id, value in (
        ("newer", b"\x63{}"),
        ("odd", b'\x01{"consumer.session.timeout.ms":"soon"}'),
        ("clamped", b'\x01{"consumer.heartbeat.interval.ms":"99999"}'),
    ):
        await one.store.write(keys.CLUSTER_DOMAIN, [Put(keys.group_configs(group_id), value)])
    two = await world.broker(2)
    for broker in (one, two):
        await passing(6)
        known = broker.groups.configs.settings_of
        assert known("good").heartbeat_interval_ms == 6000
        assert known("newer") == known("odd") == known("never heard of")
        assert known("clamped").heartbeat_interval_ms == 15_000
