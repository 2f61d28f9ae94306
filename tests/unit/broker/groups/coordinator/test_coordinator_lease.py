"""One holder at a time, and everybody who is none knows it in time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.broker.groups.coordinator.harness import (
    DOMAINS,
    GROUP,
    TTL,
    passing,
    settled,
    simulated,
)

from dray.broker.groups.coordinator.contract import NotCoordinator, Unreachable
from dray.broker.groups.coordinator.lease import Lease, LeaseHolder, Leases, decode_holder, encode_holder
from dray.metadata import keys
from dray.metadata.contract import Operation, Outcome
from dray.metadata.memory import MemoryState
from dray.metadata.values import FormatTooNew, ValueCorrupt, seal
from dray_simulation.kernel.runtime import SimulatedRuntime

LEASES = keys.GROUP_LEASES


class Contender:
    def __init__(self, state: MemoryState, broker_id: int, dead: set[int]) -> None:
        self.runtime = SimulatedRuntime(broker_id)
        self.store = ScriptedStore(self.runtime, state)
        self.lost: list[int] = []
        self.leases = Leases(
            self.store,
            self.runtime,
            LeaseHolder(broker_id, "here", 1000 + broker_id),
            domains=DOMAINS,
            ttl=TTL,
            lost=self.lost.append,
            is_dead=lambda holder: holder.process in dead,
        )


class Contest:
    def __init__(self) -> None:
        self.state = MemoryState()
        self.dead: set[int] = set()
        self.one, self.two = (Contender(self.state, number, self.dead) for number in (1, 2))


@simulated
async def test_one_takes_it_and_the_other_is_told() -> None:
    contest = Contest()
    lease = await contest.one.leases.take(GROUP)
    assert lease.confirmed()
    with pytest.raises(NotCoordinator):
        await contest.two.leases.take(GROUP)
    holder = await contest.two.leases.holder(GROUP)
    assert holder is not None
    assert holder.broker_id == 1
    assert contest.one.leases.is_me(holder)
    assert not contest.two.leases.is_me(holder)


@simulated
async def test_what_is_released_or_stopped_is_free_at_once() -> None:
    contest = Contest()
    await contest.one.leases.release(await contest.one.leases.take(GROUP))
    assert (await contest.two.leases.take(GROUP)).confirmed()
    await contest.two.leases.stop()
    assert (await contest.one.leases.take(GROUP)).confirmed()


@simulated
async def test_a_holder_that_is_cut_off_stops_before_another_can_begin() -> None:
    contest = Contest()
    lease = await contest.one.leases.take(GROUP)
    contest.one.store.down = True
    while True:
        try:
            other = await contest.two.leases.take(GROUP)
        except NotCoordinator:
            await passing(0.05)
        else:
            break
        assert asyncio.get_running_loop().time() < 2 * TTL, "nobody ever took it"
    assert other.confirmed()
    assert not lease.confirmed()
    assert contest.one.lost == [keys.domain_of_group(GROUP, DOMAINS)]


class SilentSession:
    """One that does not notice by itself that it has run out."""

    ended = False

    def __init__(self, until: float) -> None:
        self._until = until

    def confirmed_until(self) -> float:
        return self._until

    async def wait_ended(self) -> None: ...

    async def close(self) -> None: ...


@simulated
async def test_a_lease_is_worth_nothing_from_the_moment_it_was_confirmed_for() -> None:
    """Whatever its session believes: the clock is looked at for each answer."""
    runtime = SimulatedRuntime(1)
    session = SilentSession(runtime.monotonic() + TTL)
    lease = Lease(GROUP, session, 1, runtime)
    assert lease.confirmed()
    await passing(TTL - 0.001)
    assert lease.confirmed()
    await passing(0.001)
    assert not lease.confirmed()
    session = SilentSession(runtime.monotonic() + TTL)
    session.ended = True
    assert not Lease(GROUP, session, 1, runtime).confirmed()


@simulated
async def test_a_dead_holders_lease_is_cleared_once_and_not_its_successors() -> None:
    contest = Contest()
    await contest.one.leases.take(GROUP)
    contest.dead.add(1001)
    three = Contender(contest.state, 3, contest.dead)
    write = contest.two.store.write

    async def write_after_three(domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        """Two has read who is dead; before it clears that away, three has done so and taken the lease."""
        contest.two.store.write = write  # type: ignore[method-assign]
        await three.leases.take(GROUP)
        return await write(domain, operations)

    contest.two.store.write = write_after_three  # type: ignore[method-assign]
    with pytest.raises(NotCoordinator, match="broker 3"):
        await contest.two.leases.take(GROUP)


@simulated
async def test_one_session_serves_all_leases_of_a_domain_and_its_end_is_told() -> None:
    contest = Contest()
    names = [f"group-{number}" for number in range(20)]
    await asyncio.gather(*(contest.one.leases.take(name) for name in names))
    sessions = {record.session for record in _entries(contest) if record.session is not None}
    assert len(sessions) == DOMAINS
    contest.one.store.down = True
    await passing(TTL + 1)
    assert sorted(contest.one.lost) == list(range(DOMAINS))


def _entries(contest: Contest) -> list[Any]:
    return [
        entry for domain in range(DOMAINS) for entry in contest.state.domain(domain, 0.0).entries.values()
    ]


@pytest.mark.parametrize("fate", [Fate.LOSE_REPLY, Fate.LOSE, Fate.LATE])
def test_an_unclear_put_is_settled(fate: Fate) -> None:
    @simulated
    async def scenario() -> None:
        contest = Contest()
        contest.one.store.trap(fate, "write", LEASES)
        lease = await contest.one.leases.take(GROUP)
        contest.one.store.land()
        assert lease.confirmed()
        with pytest.raises(NotCoordinator):
            await contest.two.leases.take(GROUP)

    scenario()


@simulated
async def test_a_release_that_arrives_late_does_not_end_a_lease_that_was_taken_again() -> None:
    contest = Contest()
    lease = await contest.one.leases.take(GROUP)
    contest.one.store.trap(Fate.LATE, "write", LEASES)
    await contest.one.leases.release(lease)
    again = await contest.one.leases.take(GROUP)
    contest.one.store.land()
    assert again.confirmed()
    with pytest.raises(NotCoordinator):
        await contest.two.leases.take(GROUP)


@simulated
async def test_a_lease_of_an_earlier_session_of_ones_own_is_not_waited_for() -> None:
    contest = Contest()
    lease = await contest.one.leases.take(GROUP)
    lease._session.abandon()  # type: ignore[attr-defined] # this side gave up; the store has not
    assert not lease.confirmed()
    await settled()
    before = asyncio.get_running_loop().time()
    assert (await contest.one.leases.take(GROUP)).confirmed()
    assert asyncio.get_running_loop().time() - before < 1


@simulated
async def test_a_lease_of_a_dead_process_is_not_waited_for() -> None:
    contest = Contest()
    await contest.one.leases.take(GROUP)
    contest.one.store.abandon()
    contest.dead.add(1001)
    assert (await contest.two.leases.take(GROUP)).confirmed()
    assert asyncio.get_running_loop().time() < 1


@simulated
async def test_a_session_that_the_store_has_ended_is_replaced_when_that_shows() -> None:
    contest = Contest()
    lease = await contest.one.leases.take(GROUP)
    await contest.one.leases.release(lease)
    contest.state.remove_session(lease._session.identity)  # type: ignore[attr-defined]
    assert (await contest.one.leases.take(GROUP)).confirmed()
    assert contest.one.lost == [keys.domain_of_group(GROUP, DOMAINS)]
    with pytest.raises(NotCoordinator):
        await contest.two.leases.take(GROUP)


@simulated
async def test_a_store_that_is_away_is_said_to_be() -> None:
    contest = Contest()
    contest.one.store.down = True
    with pytest.raises(Unreachable):
        await contest.one.leases.take(GROUP)
    contest.one.store.down = False
    contest.one.store.script(*[Fate.LOSE] * 100, part=LEASES)
    with pytest.raises(Unreachable):
        await contest.one.leases.take(GROUP)


def test_the_format() -> None:
    holder = LeaseHolder(3, "machine", 77, "token")
    assert decode_holder(GROUP, encode_holder(holder)) == holder
    assert decode_holder(GROUP, b'\1{"broker":3,"machine":"m","process":7,"session":"s"}') == LeaseHolder(
        3, "m", 7, "s"
    )
    with pytest.raises(FormatTooNew):
        decode_holder(GROUP, seal(2, b"{}"))
    with pytest.raises(ValueCorrupt):
        decode_holder(GROUP, seal(1, b"{}"))
