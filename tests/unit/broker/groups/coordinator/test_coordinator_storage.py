"""The one record of a group: nobody's late write arrives, and an unclear one is settled before it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.broker.groups.coordinator.harness import (
    DOMAINS,
    GROUP,
    TTL,
    passing,
    refused,
    settled,
    simulated,
    until,
)

from dray.base.runtime import Runtime
from dray.broker.groups.coordinator.contract import NotCoordinator, Unreachable
from dray.broker.groups.coordinator.lease import LeaseHolder, Leases
from dray.broker.groups.coordinator.storage import (
    GroupKind,
    GroupRecord,
    GroupStorage,
    decode_record,
    encode_record,
)
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import Limits, Put
from dray.metadata.memory import MemoryState
from dray.metadata.values import FormatTooNew, ValueCorrupt, seal
from dray_simulation.kernel.runtime import SimulatedRuntime

DOMAIN = keys.domain_of_group(GROUP, DOMAINS)
KEY = keys.group(GROUP)


class Owner:
    """A broker with the lease of the group."""

    def __init__(self, state: MemoryState, broker_id: int) -> None:
        self.runtime: Runtime = SimulatedRuntime(broker_id)
        assert isinstance(self.runtime, SimulatedRuntime)
        self.store = ScriptedStore(self.runtime, state)
        self._leases = Leases(
            self.store,
            self.runtime,
            LeaseHolder(broker_id),
            domains=DOMAINS,
            ttl=TTL,
            lost=lambda _: None,
        )

    async def open(self) -> GroupStorage:
        lease = await self._leases.take(GROUP)
        storage = GroupStorage(self.store, self.runtime, GROUP, DOMAIN, lease)
        await storage.open()
        return storage

    async def stored(self) -> GroupRecord | None:
        record = await self.store.get(DOMAIN, KEY)
        return None if record is None else decode_record(GROUP, record.value)


@simulated
async def test_who_may_have_lost_the_lease_does_not_even_try_to_write() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    await storage.put(GroupKind.CLASSIC, b"first")
    owner.store.down = True
    await passing(2 * TTL)
    owner.store.down = False
    owner.store.writes.clear()
    for asking in (storage.put(GroupKind.CLASSIC, b"second"), storage.delete(), storage.write_offsets([])):
        assert await refused(asking) is ErrorCode.NOT_COORDINATOR
    assert owner.store.writes == []
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 1, b"first")


@pytest.mark.parametrize("fate", [Fate.PASS, Fate.LOSE])
def test_a_record_that_somebody_else_wrote_is_not_deleted(fate: Fate) -> None:
    @simulated
    async def scenario() -> None:
        owner = Owner(MemoryState(), 1)
        storage = await owner.open()
        await storage.put(GroupKind.CLASSIC, b"first")
        theirs = GroupRecord(GroupKind.CLASSIC, 2, b"theirs")
        await owner.store.write(DOMAIN, [Put(KEY, encode_record(theirs))])
        owner.store.trap(fate, "write", KEY)
        assert await refused(storage.delete()) is ErrorCode.NOT_COORDINATOR
        assert await owner.stored() == theirs

    scenario()


@simulated
async def test_a_deletion_is_not_told_by_who_may_have_lost_the_lease_meanwhile() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    await storage.put(GroupKind.CLASSIC, b"first")
    owner.store.trap(Fate.HOLD_AFTER, "write", KEY)
    deleting = asyncio.ensure_future(refused(storage.delete()))
    await settled()
    owner.store.down = True
    await passing(2 * TTL)
    owner.store.release()
    assert await deleting is ErrorCode.NOT_COORDINATOR


@simulated
async def test_what_one_stores_the_next_finds_at_a_higher_coordinator_epoch() -> None:
    state = MemoryState()
    one, two = Owner(state, 1), Owner(state, 2)
    storage = await one.open()
    assert storage.coordinator_epoch is None
    await storage.put(GroupKind.CLASSIC, b"first")
    await storage.put(GroupKind.CONSUMER, b"second")
    assert storage.coordinator_epoch == 1
    assert await one.stored() == GroupRecord(GroupKind.CONSUMER, 1, b"second")
    await one._leases.stop()
    lease = await two._leases.take(GROUP)
    taken = GroupStorage(two.store, two.runtime, GROUP, DOMAIN, lease)
    assert await taken.open() == await two.stored() == GroupRecord(GroupKind.CONSUMER, 2, b"second")
    assert taken.coordinator_epoch == 2


@simulated
async def test_opening_nothing_writes_nothing() -> None:
    state = MemoryState()
    owner = Owner(state, 1)
    await owner.open()
    assert await owner.stored() is None
    assert len(owner.store.writes) == 1  # the lease


@simulated
async def test_a_zombie_overwrites_nothing_and_is_told() -> None:
    state = MemoryState()
    one, two = Owner(state, 1), Owner(state, 2)
    zombie = await one.open()
    await zombie.put(GroupKind.CLASSIC, b"old")
    one.store.trap(Fate.LATE, "write", KEY)
    late = begun(zombie.put(GroupKind.CLASSIC, b"late"))
    one.store.down = True
    await passing(TTL + 1)
    assert await late is ErrorCode.NOT_COORDINATOR
    heir = await two.open()
    one.store.land()
    assert heir.coordinator_epoch == 2
    assert await two.stored() == GroupRecord(GroupKind.CLASSIC, 2, b"old")
    one.store.down = False
    assert await refused(zombie.put(GroupKind.CLASSIC, b"zombie")) is ErrorCode.NOT_COORDINATOR
    assert await refused(zombie.delete()) is ErrorCode.NOT_COORDINATOR
    assert await two.stored() == GroupRecord(GroupKind.CLASSIC, 2, b"old")


def begun(putting: Awaitable[None]) -> asyncio.Future[ErrorCode]:
    """Started now, and to be refused later."""
    return asyncio.ensure_future(refused(putting))


@simulated
async def test_a_write_by_somebody_else_is_noticed_even_with_a_lease() -> None:
    state = MemoryState()
    one, two = Owner(state, 1), Owner(state, 2)
    storage = await one.open()
    await storage.put(GroupKind.CLASSIC, b"mine")
    record = await two.store.get(DOMAIN, KEY)
    assert record is not None
    await two.store.write(DOMAIN, [Put(KEY, record.value)])
    with pytest.raises(NotCoordinator):
        await storage.put(GroupKind.CLASSIC, b"again")


@simulated
async def test_an_answer_that_comes_after_the_lease_is_no_answer() -> None:
    state = MemoryState()
    owner = Owner(state, 1)
    storage = await owner.open()
    owner.store.trap(Fate.HOLD_AFTER, "write", KEY)
    putting = begun(storage.put(GroupKind.CLASSIC, b"x"))
    await settled()
    owner.store.down = True
    await passing(TTL + 1)
    owner.store.release()
    assert await putting is ErrorCode.NOT_COORDINATOR


@simulated
async def test_a_refused_write_changes_nothing() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    await storage.put(GroupKind.CLASSIC, b"old")
    owner.store.trap(Fate.REFUSE, "write", KEY)
    with pytest.raises(Unreachable):
        await storage.put(GroupKind.CLASSIC, b"new")
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 1, b"old")
    assert storage.coordinator_epoch == 1
    await storage.put(GroupKind.CLASSIC, b"new")
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 1, b"new")
    assert storage.coordinator_epoch == 1


@simulated
async def test_an_unclear_write_that_happened_is_taken_for_done() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    for body in (b"made", b"changed"):
        owner.store.trap(Fate.LOSE_REPLY, "write", KEY)
        await storage.put(GroupKind.CLASSIC, body)
        assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 1, body)
        assert storage.coordinator_epoch == 1
    await storage.put(GroupKind.CLASSIC, b"next")
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 1, b"next")


@simulated
async def test_an_unclear_write_that_did_not_happen_never_will() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    await storage.put(GroupKind.CLASSIC, b"old")
    owner.store.trap(Fate.LATE, "write", KEY)
    with pytest.raises(Unreachable):
        await storage.put(GroupKind.CLASSIC, b"new")
    owner.store.land()
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 2, b"old")
    assert storage.coordinator_epoch == 2
    await storage.put(GroupKind.CLASSIC, b"newer")
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 2, b"newer")


@pytest.mark.parametrize("second", [Fate.LOSE_REPLY, Fate.LOSE, Fate.REFUSE, Fate.LATE])
def test_settling_goes_on_until_it_is_clear(second: Fate) -> None:
    @simulated
    async def scenario() -> None:
        owner = Owner(MemoryState(), 1)
        storage = await owner.open()
        await storage.put(GroupKind.CLASSIC, b"old")
        owner.store.script(Fate.LATE, second, part=KEY)
        with pytest.raises(Unreachable):
            await storage.put(GroupKind.CLASSIC, b"new")
        owner.store.land()
        assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 2, b"old")
        assert storage.coordinator_epoch == 2

    scenario()


@simulated
async def test_an_unclear_write_that_happens_while_it_is_settled_is_done() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    await storage.put(GroupKind.CLASSIC, b"old")
    owner.store.script(Fate.LATE, Fate.REFUSE, part=KEY)
    putting = asyncio.ensure_future(storage.put(GroupKind.CLASSIC, b"new"))
    await until(owner.store.all_sprung)
    owner.store.land()
    await putting
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 1, b"new")
    assert storage.coordinator_epoch == 1


@simulated
async def test_where_there_was_nothing_a_late_write_is_met_by_the_next() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    owner.store.trap(Fate.LATE, "write", KEY)
    with pytest.raises(Unreachable):
        await storage.put(GroupKind.CLASSIC, b"late")
    owner.store.land()
    with pytest.raises(NotCoordinator):
        await storage.put(GroupKind.CLASSIC, b"other")
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 1, b"late")


@simulated
async def test_deleting() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    await storage.delete()
    await storage.put(GroupKind.CLASSIC, b"x")
    owner.store.trap(Fate.REFUSE, "write", KEY)
    with pytest.raises(Unreachable):
        await storage.delete()
    owner.store.trap(Fate.LOSE, "write", KEY)
    with pytest.raises(Unreachable):
        await storage.delete()
    owner.store.trap(Fate.LOSE_REPLY, "write", KEY)
    await storage.delete()
    assert storage.coordinator_epoch is await owner.stored() is None
    await storage.put(GroupKind.CLASSIC, b"y")
    assert await owner.stored() == GroupRecord(GroupKind.CLASSIC, 1, b"y")


@simulated
async def test_what_no_write_can_hold_is_refused_before_it_is_tried() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    storage.limits = Limits(operations=10, value_bytes=100)
    writes = len(owner.store.writes)
    assert await refused(storage.put(GroupKind.CLASSIC, bytes(200))) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(owner.store.writes) == writes


@simulated
async def test_loading_gives_up_where_settling_would_not() -> None:
    owner = Owner(MemoryState(), 1)
    storage = await owner.open()
    await storage.put(GroupKind.CLASSIC, b"x")
    owner.store.script(*[Fate.LOSE] * 20, part=KEY)
    with pytest.raises(Unreachable):
        await owner.open()


@simulated
async def test_a_record_of_a_newer_build_is_left_alone() -> None:
    owner = Owner(MemoryState(), 1)
    await owner.store.write(DOMAIN, [Put(KEY, seal(9, b"from the future"))])
    with pytest.raises(Unreachable, match="upgrade"):
        await owner.open()


def test_the_format() -> None:
    record = GroupRecord(GroupKind.CONSUMER, 7, b"state")
    value = encode_record(record)
    assert value == b"\1\2\0\0\0\0\0\0\0\7state"
    assert decode_record(GROUP, value) == record
    with pytest.raises(FormatTooNew):
        decode_record(GROUP, b"\2" + value[1:])
    for broken in (b"\1", b"\1\2\0", b"\1\11\0\0\0\0\0\0\0\7"):
        with pytest.raises(ValueCorrupt):
            decode_record(GROUP, broken)


@simulated
async def test_what_was_acknowledged_before_the_lease_was_taken_is_seen() -> None:
    state = MemoryState()
    before, owner = Owner(state, 1), Owner(state, 2)
    lease = await owner._leases.take(GROUP)
    owner.store.fall_behind(*range(DOMAINS))
    record = GroupRecord(GroupKind.CLASSIC, 1, b"acknowledged")
    offset = keys.group_offset(GROUP, "a", 0)
    await before.store.write(DOMAIN, [Put(KEY, encode_record(record)), Put(offset, b"5")])
    storage = GroupStorage(owner.store, owner.runtime, GROUP, DOMAIN, lease)
    assert await storage.open() == record._replace(coordinator_epoch=2)
    owner.store.fall_behind(*range(DOMAINS))
    await before.store.write(DOMAIN, [Put(offset, b"6")])
    assert [found.value for found in await storage.scan_offsets()] == [b"6"]
