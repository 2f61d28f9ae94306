"""The fence: what a deposed coordinator commits is not acknowledged, even if its clock stood still.

Here the deposed one believes in its lease for ever. That is more than any clock could do to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

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

from dray.broker.groups.coordinator.fence import encode_fence
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import Delete, Operation, Outcome, StoredValue

FIXTURE = Path(__file__).parents[4] / "fixtures" / "values" / "group-fence.v1.bin"
OFFSETS = keys.group_offsets(GROUP)


class UndoubtedSession:
    """A session that its holder never doubts."""

    ended = False

    def confirmed_until(self) -> float:
        return float("inf")


async def deposed(world: World) -> tuple[BrokerUnderTest, BrokerUnderTest]:
    """A coordinator that does not know that it is none any more, and the one in its place."""
    world.topics.make("a", 2)
    zombie, heir = await world.broker(1), await world.broker(2)
    assert await zombie.commit(10) is ErrorCode.NONE
    zombie.groups.leases._lost = lambda _: None
    for group in zombie.groups.active():
        session = group.storage.lease._session
        session._watchdog.cancel()  # type: ignore[attr-defined]
        session._task.cancel()  # type: ignore[attr-defined]
        group.storage.lease._session = UndoubtedSession()  # type: ignore[assignment]
    await passing(TTL + 1)
    assert await heir.committed() == 10
    return zombie, heir


@pytest.mark.parametrize("partition", [0, 1], ids=["that has an offset", "that has none"])
def test_a_commit_of_a_deposed_coordinator_is_not_acknowledged(partition: int) -> None:
    @simulated
    async def scenario() -> None:
        zombie, heir = await deposed(World())
        assert await refused(zombie.commit(20, partition=partition)) is ErrorCode.NOT_COORDINATOR
        assert zombie.groups.active() == []
        # Nobody was told of it, so it may be there or not; what the heir acknowledges stays.
        assert await refused(heir.commit(14, partition=partition)) is ErrorCode.NOT_COORDINATOR
        assert await heir.commit(15, partition=partition) is ErrorCode.NONE
        assert await heir.committed(partition=partition) == 15

    scenario()


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE])
def test_nor_is_one_whose_reply_was_lost(fate: Fate) -> None:
    @simulated
    async def scenario() -> None:
        zombie, _ = await deposed(World())
        zombie.store.trap(fate, "write", OFFSETS)
        assert await refused(zombie.commit(20)) is ErrorCode.NOT_COORDINATOR

    scenario()


@simulated
async def test_a_late_write_of_ones_own_is_not_taken_for_anothers() -> None:
    """It moves the fence as the coordinator itself would."""
    broker = await World().broker(1)
    await broker.commit(1)
    broker.store.trap(Fate.LATE, "write", OFFSETS)
    assert await refused(broker.commit(2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.store.land()
    assert await broker.commit(3, partition=1) is ErrorCode.NONE
    assert len(broker.groups.active()) == 1


@pytest.mark.parametrize("place", ["after it saw its lease", "before it moves the fence"])
def test_a_coordinator_that_was_stopped_while_it_took_over_does_not_pass_the_next_one(place: str) -> None:
    @simulated
    async def scenario() -> None:
        world = World()
        first = await world.broker(1)
        assert await first.commit(10) is ErrorCode.NONE
        await first.stop()
        slow, heir = await world.broker(2), await world.broker(3)
        stopped, go_on = asyncio.Event(), asyncio.Event()
        write, get = slow.store.write, slow.store.get
        written: list[Sequence[Operation]] = []

        async def stop() -> None:
            stopped.set()
            await go_on.wait()

        async def get_and_stop(domain: int, key: str) -> StoredValue | None:
            found = await get(domain, key)
            if place == "after it saw its lease" and key == keys.group_lease(GROUP) and written:
                await stop()
            return found

        async def stop_and_write(domain: int, operations: Sequence[Operation]) -> list[Outcome]:
            written.append(operations)  # the lease, at first
            if place == "before it moves the fence" and len(written) == 2:
                await stop()
            return await write(domain, operations)

        slow.store.write, slow.store.get = stop_and_write, get_and_stop  # type: ignore[method-assign]
        taking = asyncio.ensure_future(refused(slow.committed()))
        await stopped.wait()
        [lease] = world.records(keys.GROUP_LEASES)
        world.state.apply(keys.domain_of_group(GROUP, DOMAINS), [Delete(lease.key)], None, 0.0)
        assert await heir.commit(20) is ErrorCode.NONE
        go_on.set()
        assert await taking is ErrorCode.NOT_COORDINATOR
        assert await heir.commit(21) is ErrorCode.NONE
        assert len(heir.groups.active()) == 1

    scenario()


@simulated
async def test_the_fence_goes_with_the_group_and_comes_with_its_offsets() -> None:
    world = World()
    broker = await world.broker(1)
    await broker.commit(1)
    assert len(world.records(keys.GROUP_FENCES)) == 1
    await broker.delete()
    await settled()
    assert world.records(keys.GROUP_FENCES) == []
    assert await broker.commit(2) is ErrorCode.NONE
    assert len(world.records(keys.GROUP_FENCES)) == 1


def test_the_stored_format() -> None:
    assert encode_fence(UUID(int=0x0123456789ABCDEF0123456789ABCDEF)) == FIXTURE.read_bytes()
