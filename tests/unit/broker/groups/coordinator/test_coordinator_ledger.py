"""Committed offsets: never lost, never overwritten by who is no coordinator any more."""

from __future__ import annotations

import asyncio

import pytest
from tests.simulation.scripted import Fate
from tests.unit.broker.groups.coordinator.harness import (
    GROUP,
    TTL,
    BrokerUnderTest,
    World,
    passing,
    refused,
    settled,
    simulated,
)

from dray.broker.groups.coordinator import ledger as ledgers
from dray.broker.groups.coordinator.ledger import Forget, Ledger
from dray.broker.groups.offsets import CommittedOffset
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import Delete, Limits, Put, check_write

OFFSETS = keys.group_offsets(GROUP)


def offset(number: int) -> CommittedOffset:
    return CommittedOffset(number, 0, "", 1000)


async def ledger_of(broker: BrokerUnderTest) -> Ledger:
    ledger = await broker.groups.offsets(GROUP, None, -1)
    assert ledger is not None
    return ledger


async def reread(world: World) -> dict[int, int]:
    """What another broker finds: offsets by partition of topic a."""
    reader = await world.broker(9)
    try:
        ledger = await reader.groups.offsets(GROUP, None, -1)
        return {} if ledger is None else {place[1]: one.offset for place, one in ledger.offsets().items()}
    finally:
        await reader.stop()


@simulated
async def test_what_is_committed_is_there_for_this_broker_and_the_next() -> None:
    world = World()
    broker = await world.broker(1)
    assert await broker.commit(5) is ErrorCode.NONE
    assert await broker.commit(6) is ErrorCode.NONE
    assert await broker.commit(7, partition=1, topic="b/c%") is ErrorCode.NONE
    assert await broker.committed() == 6
    assert await broker.committed(partition=1, topic="b/c%") == 7
    assert await broker.committed(partition=3) is None
    await broker.stop()
    heir = await world.broker(2)
    assert await heir.committed() == 6
    assert await heir.committed(partition=1, topic="b/c%") == 7
    assert (await ledger_of(heir)).topics() == {"a": [0], "b/c%": [1]}
    assert await heir.commit(8) is ErrorCode.NONE
    assert await heir.committed() == 8
    await heir.stop()


@simulated
async def test_nothing_is_answered_before_it_is_stored() -> None:
    broker = await World().broker(1)
    await broker.commit(1)
    broker.store.trap(Fate.HOLD_AFTER, "write", OFFSETS)
    committing = asyncio.ensure_future(broker.commit(2))
    await settled()
    assert not committing.done()
    assert await broker.committed() == 1
    broker.store.release()
    assert await committing is ErrorCode.NONE
    assert await broker.committed() == 2


@simulated
async def test_commits_that_come_during_a_write_share_the_next_and_the_last_wins() -> None:
    broker = await World().broker(1)
    await broker.commit(0)
    broker.store.writes.clear()
    broker.store.trap(Fate.HOLD_AFTER, "write", OFFSETS)
    first = asyncio.ensure_future(broker.commit(1))
    await settled()
    others = [asyncio.ensure_future(broker.commit(number, partition=number % 3)) for number in range(2, 20)]
    await settled()
    broker.store.release()
    assert set(await asyncio.gather(first, *others)) == {ErrorCode.NONE}
    assert len(broker.store.writes) == 2
    assert [await broker.committed(partition=partition) for partition in range(3)] == [18, 19, 17]


@simulated
async def test_a_refused_write_changes_nothing() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(1)
    broker.store.trap(Fate.REFUSE, "write", OFFSETS)
    assert await refused(broker.commit(2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await broker.committed() == 1
    assert await broker.commit(3) is ErrorCode.NONE
    await broker.stop()
    assert await reread(world) == {0: 3}


@pytest.mark.parametrize("first", [True, False])
def test_an_unclear_write_that_happened_is_done(first: bool) -> None:
    @simulated
    async def scenario() -> None:
        world = World()
        broker = await world.broker(1)
        if not first:
            await broker.commit(1)
        broker.store.trap(Fate.LOSE_REPLY, "write", OFFSETS)
        assert await broker.commit(2) is ErrorCode.NONE
        assert await broker.committed() == 2
        assert await broker.commit(3) is ErrorCode.NONE
        await broker.stop()
        assert await reread(world) == {0: 3}

    scenario()


@simulated
async def test_the_same_offset_again_is_not_taken_for_the_write_that_got_lost() -> None:
    broker = await World().broker(1)
    ledger_offset = offset(4)
    await broker.commit(1)
    ledger = await ledger_of(broker)
    await ledger.change({("a", 0): ledger_offset})
    broker.store.trap(Fate.LOSE, "write", OFFSETS)
    assert await refused(ledger.change({("a", 0): ledger_offset})) is ErrorCode.COORDINATOR_NOT_AVAILABLE


@simulated
async def test_an_unclear_write_is_answered_only_after_a_reload_and_may_still_arrive() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(1)
    broker.store.trap(Fate.LATE, "write", OFFSETS)
    assert await refused(broker.commit(2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await broker.committed() == 1
    # It arrives before the client comes again: that commit is refused, and then goes to a group loaded anew.
    broker.store.land()
    assert await refused(broker.commit(3)) is ErrorCode.NOT_COORDINATOR
    assert await broker.committed() == 2
    assert await broker.commit(3) is ErrorCode.NONE
    await broker.stop()
    assert await reread(world) == {0: 3}


@simulated
async def test_a_late_write_does_not_overwrite_a_newer_one() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(1)
    broker.store.trap(Fate.LATE, "write", OFFSETS)
    assert await refused(broker.commit(2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await broker.commit(3) is ErrorCode.NONE
    broker.store.land()
    await broker.stop()
    assert await reread(world) == {0: 3}


@simulated
async def test_a_zombies_late_commit_does_not_overwrite_a_newer_one() -> None:
    world = World()
    zombie, heir = await world.broker(1), await world.broker(2)
    await zombie.commit(1)
    zombie.store.trap(Fate.LATE, "write", OFFSETS)
    late = asyncio.ensure_future(refused(zombie.commit(2)))
    await settled()
    zombie.store.down = True
    await passing(TTL + 1)
    await late
    assert await heir.commit(10) is ErrorCode.NONE
    zombie.store.land()
    assert await heir.committed() == 10
    assert await heir.commit(11) is ErrorCode.NONE
    await heir.stop()
    assert await reread(world) == {0: 11}


@simulated
async def test_a_zombie_that_wrote_in_time_and_heard_too_late_says_nothing_good() -> None:
    world = World()
    zombie = await world.broker(1)
    await zombie.commit(1)
    zombie.store.trap(Fate.HOLD_AFTER, "write", OFFSETS)
    late = asyncio.ensure_future(refused(zombie.commit(2)))
    await settled()
    zombie.store.down = True
    await passing(TTL + 1)
    zombie.store.release()
    assert await late is ErrorCode.NOT_COORDINATOR
    assert await reread(world) == {0: 2}


@simulated
async def test_only_what_was_judged_is_forgotten() -> None:
    broker = await World().broker(1)
    await broker.commit(0)
    ledger = await ledger_of(broker)
    await ledger.change({("a", 0): offset(1), ("a", 1): offset(1), ("a", 2): offset(1)})
    await ledger.change({("a", 1): offset(2)})
    broker.store.trap(Fate.HOLD_AFTER, "write", OFFSETS)
    holding = asyncio.ensure_future(ledger.change({("a", 9): offset(9)}))
    await settled()
    # Judged before, written after: a commit in the same write, and one in an earlier.
    committing = asyncio.ensure_future(ledger.change({("a", 2): offset(3)}))
    await settled()
    forgetting = asyncio.ensure_future(
        ledger.change({("a", number): Forget(offset(1)) for number in (0, 1, 2, 5)})
    )
    await settled()
    broker.store.release()
    await asyncio.gather(holding, committing, forgetting)
    assert {place[1]: one.offset for place, one in ledger.offsets().items()} == {1: 2, 2: 3, 9: 9}


@simulated
async def test_deleting_what_is_not_there_writes_nothing() -> None:
    broker = await World().broker(1)
    await broker.commit(0)
    broker.store.writes.clear()
    ledger = await ledger_of(broker)
    await ledger.change({("a", 7): None, ("b", 0): Forget(offset(1))})
    assert broker.store.writes == []


@simulated
async def test_a_deletion_whose_reply_is_lost_is_done() -> None:
    broker = await World().broker(1)
    await broker.commit(0)
    ledger = await ledger_of(broker)
    broker.store.trap(Fate.LOSE_REPLY, "write", OFFSETS)
    await ledger.change({("a", 0): None})
    assert ledger.is_empty()
    await ledger.change({("a", 0): offset(3)})
    broker.store.trap(Fate.LOSE_REPLY, "write", OFFSETS)
    await ledger.change({("a", 0): Forget(offset(3))})
    assert ledger.is_empty()


@simulated
async def test_while_all_is_deleted_nothing_is_committed() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(0)
    ledger = await ledger_of(broker)
    broker.store.trap(Fate.HOLD_AFTER, "write", OFFSETS)
    pending = asyncio.ensure_future(ledger.change({("a", 1): offset(1)}))
    await settled()
    deleting = asyncio.ensure_future(ledger.delete_all())
    await settled()
    assert await refused(ledger.change({("a", 2): offset(1)})) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.store.release()
    await asyncio.gather(pending, deleting)
    assert ledger.is_empty()
    assert world.records(OFFSETS) == []
    await ledger.change({("a", 2): offset(1)})


def test_more_than_one_write_may_hold_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledgers, "OPERATIONS_AT_ONCE", 10)

    @simulated
    async def scenario() -> None:
        broker = await World().broker(1)
        await broker.commit(0)
        broker.store.writes.clear()
        ledger = await ledger_of(broker)
        await ledger.change({("a", number): offset(number) for number in range(35)})
        assert [len(write) for write in broker.store.writes] == [11, 11, 11, 6]  # each with the fence
        await asyncio.gather(*(ledger.change({("a", number): offset(1)}) for number in range(35)))
        assert max(len(write) for write in broker.store.writes) == 11
        assert len(ledger.offsets()) == 35

    scenario()


@pytest.mark.parametrize(
    ("limits", "expected"),
    [(Limits(operations=4, value_bytes=10_000), 4), (Limits(operations=100, value_bytes=3 * 150), 3)],
    ids=["operations", "bytes"],
)
def test_no_write_holds_more_than_the_engine_takes(limits: Limits, expected: int) -> None:
    """Neither of one request nor of several that share it."""

    @simulated
    async def scenario() -> None:
        broker = await World().broker(1)
        await broker.commit(0)
        ledger = await ledger_of(broker)
        ledger._storage.limits = limits
        broker.store.writes.clear()
        long = CommittedOffset(1, 0, "x" * 100, 1000)
        await ledger.change({("a", number): long for number in range(10)})
        await asyncio.gather(*(ledger.change({("b", number): long}) for number in range(10)))
        for write in broker.store.writes:
            check_write(0, write, limits)
        assert max(len(write) for write in broker.store.writes) == expected
        assert len(ledger.offsets()) == 20

    scenario()


@simulated
async def test_every_write_expects_the_version_it_knows() -> None:
    broker = await World().broker(1)
    await broker.commit(0)
    ledger = await ledger_of(broker)
    broker.store.writes.clear()
    await ledger.change({("a", 0): offset(1), ("a", 1): offset(1)})
    await ledger.change({("a", 0): None})
    for write in broker.store.writes:
        for operation in write:
            assert isinstance(operation, Put | Delete)
            assert operation.expect != "any"


@simulated
async def test_an_offset_that_this_build_cannot_read_keeps_the_group_away() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(0)
    await broker.stop()
    [record] = world.records(OFFSETS)
    other = await world.broker(2)
    await other.store.write(keys.domain_of_group(GROUP, 2), [Put(record.key, b"\x63new")])
    assert await refused(other.committed()) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await refused(other.commit(1)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
