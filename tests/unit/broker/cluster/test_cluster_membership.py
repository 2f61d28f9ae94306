from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.broker.topics.fakes import eventually

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import AUTOMATIC, AdvertisedListener, Broker, BrokerIdTaken, Membership
from dray.metadata import keys
from dray.metadata.contract import Delete, Put
from dray.metadata.memory import MemoryState
from dray.metadata.sessions import KeptSession

HOUR = 3600.0


class QuickRuntime(SystemRuntime):
    """A clock of its own, moved on by whoever sleeps: hours pass in no time, and in order."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        if seconds >= 60:
            await asyncio.Event().wait()
        until = self.now + seconds
        await asyncio.sleep(0)
        self.now = max(self.now, until)


def broker(broker_id: int, port: int = 9092, **fields: object) -> Broker:
    return Broker(broker_id, (AdvertisedListener("PLAINTEXT", "127.0.0.1", port),), **fields)  # type: ignore[arg-type]


class Cluster:
    """Brokers over one store. Each has a store client of its own, so that one can die alone."""

    def __init__(self) -> None:
        self.runtime = SystemRuntime(threads=1)
        self.state = MemoryState()
        self.members: list[Membership] = []

    def member(
        self,
        who: Broker,
        *,
        ttl: float = 30,
        is_dead: Callable[[Broker], bool] = lambda _: False,
        store: ScriptedStore | None = None,
        runtime: SystemRuntime | None = None,
        reread: float = 3600,
    ) -> Membership:
        runtime = runtime or self.runtime
        membership = Membership(
            store or ScriptedStore(runtime, self.state),
            runtime,
            who,
            session_ttl=ttl,
            reread_interval=reread,
            is_dead=is_dead,
        )
        self.members.append(membership)
        return membership


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    cluster = Cluster()
    yield cluster
    for member in cluster.members:
        await member.stop()
    cluster.runtime.close()


def ids(member: Membership) -> list[int]:
    return [broker.broker_id for broker in member.brokers()]


async def test_brokers_come_to_know_each_other_and_see_one_leave(cluster: Cluster) -> None:
    first = cluster.member(broker(1, zone="a"))
    await first.start()
    assert ids(first) == [1]
    second = cluster.member(broker(2, port=9093))
    await second.start()
    assert ids(second) == [1, 2]
    await eventually(lambda: ids(first) == [1, 2])
    found = first.find(2)
    assert found is not None
    assert (found.host, found.port) == ("127.0.0.1", 9093)
    assert first.find(3) is None
    assert second.brokers()[0].zone == "a"
    assert second.me.started_ms > 0
    await second.stop()
    await eventually(lambda: ids(first) == [1])


async def test_ids_are_given_out_from_the_lowest_free(cluster: Cluster) -> None:
    await cluster.member(broker(1)).start()
    members = [cluster.member(broker(AUTOMATIC)) for _ in range(3)]
    await asyncio.gather(*(member.start() for member in members))
    assert sorted(member.me.broker_id for member in members) == [0, 2, 3]


async def test_an_id_that_is_alive_is_refused_in_one_line() -> None:
    state, runtime = MemoryState(), QuickRuntime()
    first = Membership(
        ScriptedStore(SystemRuntime(threads=1), state), SystemRuntime(threads=1), broker(7, 9099)
    )
    await first.start()
    second = Membership(ScriptedStore(SystemRuntime(threads=1), state), runtime, broker(7))
    with pytest.raises(BrokerIdTaken, match=r"broker id 7 is taken by the broker at 127\.0\.0\.1:9099") as no:
        await second.start()
    assert "\n" not in str(no.value)
    assert runtime.now >= 2 * 10, "a crashed namesake's session is waited for"
    await first.stop()


async def test_a_crashed_namesakes_session_is_waited_for(cluster: Cluster) -> None:
    store = ScriptedStore(cluster.runtime, cluster.state)
    crashed = cluster.member(broker(7, 9099), ttl=0.3, store=store)
    await crashed.start()
    store.abandon()
    restarted = cluster.member(broker(7), ttl=0.3)
    await restarted.start()
    assert ids(restarted) == [7]
    assert restarted.me.port == 9092


async def test_a_namesake_known_to_be_dead_is_replaced_at_once(cluster: Cluster) -> None:
    store = ScriptedStore(cluster.runtime, cluster.state)
    await cluster.member(broker(7, 9099, machine="m", process=1234), ttl=HOUR, store=store).start()
    store.abandon()
    restarted = cluster.member(
        broker(7), ttl=HOUR, is_dead=lambda other: (other.machine, other.process) == ("m", 1234)
    )
    async with asyncio.timeout(60):
        await restarted.start()
    record = await ScriptedStore(cluster.runtime, cluster.state).get(keys.CLUSTER_DOMAIN, keys.broker(7))
    assert record is not None
    assert b"9092" in record.value


async def test_a_killed_broker_comes_back_under_the_id_it_was_given(cluster: Cluster) -> None:
    store = ScriptedStore(cluster.runtime, cluster.state)
    await cluster.member(broker(AUTOMATIC, machine="m", process=1234), store=store).start()
    store.abandon()
    restarted = cluster.member(
        broker(AUTOMATIC), is_dead=lambda other: (other.machine, other.process) == ("m", 1234)
    )
    await restarted.start()
    assert [listed.broker_id for listed in restarted.brokers()] == [0]


@pytest.mark.parametrize("broker_id", [4, AUTOMATIC])
async def test_an_unclear_registration_is_settled_by_reading(cluster: Cluster, broker_id: int) -> None:
    store = ScriptedStore(cluster.runtime, cluster.state)
    store.script(Fate.LOSE_REPLY)
    member = cluster.member(broker(broker_id), ttl=HOUR, store=store)
    async with asyncio.timeout(60):
        await member.start()
    assert member.me.broker_id in {0, 4}


async def test_a_broker_whose_session_ended_registers_again(cluster: Cluster) -> None:
    member = cluster.member(broker(1))
    await member.start()
    other = cluster.member(broker(2))
    await other.start()
    session = member._session
    assert session is not None
    await session.close()
    await eventually(lambda: member._session not in {None, session})
    await eventually(lambda: ids(other) == [1, 2])
    assert ids(member) == [1, 2], "it is always in its own list"


async def test_its_own_old_registration_is_not_in_its_way(cluster: Cluster) -> None:
    """The session is given up on this side, and its key has yet to run out."""
    member = cluster.member(broker(1), ttl=3600)
    await member.start()
    before, session = member.me.incarnation, member._session
    assert session is not None
    session.abandon()  # type: ignore[attr-defined]
    await eventually(lambda: member._session not in {None, session})
    assert member.me.incarnation != before


async def test_a_silent_watch_is_made_up_for_by_reading_again(cluster: Cluster) -> None:
    class SilentStore(ScriptedStore):
        async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> Any:
            await asyncio.Event().wait()
            yield None

    member = cluster.member(broker(1), store=SilentStore(cluster.runtime, cluster.state), reread=0.001)
    await member.start()
    await cluster.member(broker(2)).start()
    await eventually(lambda: ids(member) == [1, 2])


async def test_a_broker_of_a_newer_build_hides_no_other(cluster: Cluster) -> None:
    store = ScriptedStore(cluster.runtime, cluster.state)
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.broker(9), b"\x02{}")])
    await cluster.member(broker(2)).start()
    member = cluster.member(broker(1))
    await member.start()
    assert ids(member) == [1, 2]


class HeldStore(ScriptedStore):
    """Sessions are opened only while `open` is set, and watches tell nothing."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.runtime, cluster.state)
        self.open = asyncio.Event()
        self.open.set()
        self.opened = 0

    async def session(self, domain: int, ttl: float) -> KeptSession:
        await self.open.wait()
        self.opened += 1
        return await super().session(domain, ttl)

    async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> Any:
        await asyncio.Event().wait()
        yield None


def ports(member: Membership) -> dict[int, int]:
    return {each.broker_id: each.port for each in member.brokers()}


async def lose_session(member: Membership) -> None:
    session = member._session
    assert session is not None
    await session.close()


async def test_an_automatic_id_that_a_newcomer_has_is_given_up(cluster: Cluster) -> None:
    store = HeldStore(cluster)
    first = cluster.member(broker(AUTOMATIC, 9001), store=store)
    heard: list[int] = []
    first.listen(heard.append)
    await first.start()
    store.open.clear()
    await lose_session(first)
    newcomer = cluster.member(broker(AUTOMATIC, 9002))
    await newcomer.start()
    assert newcomer.me.broker_id == first.me.broker_id == 0
    third = cluster.member(broker(AUTOMATIC, 9003))
    await third.start()
    store.open.set()
    await eventually(lambda: first.is_registered)
    assert first.me.broker_id == 2, "the lowest that is free"
    expected = {0: 9002, 1: 9003, 2: 9001}
    for member in cluster.members:
        await eventually(lambda member=member: ports(member) == expected)  # type: ignore[misc]
    assert heard == [2]


async def test_an_automatic_id_that_is_still_free_is_kept(cluster: Cluster) -> None:
    """Also where ids below it have become free: an id that changes costs clients a look at the metadata."""
    members = [cluster.member(broker(AUTOMATIC, 9001 + number)) for number in range(2)]
    heard: list[int] = []
    for member in members:
        await member.start()
        member.listen(heard.append)
    await members[0].stop()
    before = members[1].me
    await lose_session(members[1])
    await eventually(lambda: members[1].me.incarnation != before.incarnation)
    assert members[1].me.broker_id == 1
    assert heard == []


async def test_an_automatic_id_is_kept_though_its_old_registration_still_stands(cluster: Cluster) -> None:
    member = cluster.member(broker(AUTOMATIC), ttl=3600)
    await member.start()
    before, session = member.me.incarnation, member._session
    assert session is not None
    session.abandon()  # type: ignore[attr-defined]
    await eventually(lambda: member._session not in {None, session})
    assert member.me.incarnation != before
    assert ids(member) == [0]


async def test_a_given_id_is_never_changed(cluster: Cluster) -> None:
    store = HeldStore(cluster)
    first = cluster.member(broker(0, 9001), store=store, ttl=0.3)
    await first.start()
    store.open.clear()
    await lose_session(first)
    newcomer = cluster.member(broker(AUTOMATIC, 9002))
    await newcomer.start()
    store.open.set()
    await eventually(lambda: store.opened >= 2)
    assert first.me.broker_id == newcomer.me.broker_id == 0
    await newcomer.stop()
    await eventually(lambda: first.is_registered)
    assert first.me.broker_id == 0


@pytest.mark.parametrize("value", [b"\x02{}", b"\x01", b""])
async def test_the_id_of_a_broker_that_cannot_be_read_is_taken(cluster: Cluster, value: bytes) -> None:
    store = ScriptedStore(cluster.runtime, cluster.state)
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.broker(0), value)])
    member = cluster.member(broker(AUTOMATIC))
    await member.start()
    assert ids(member) == [1]
    quick = QuickRuntime()
    namesake = Membership(ScriptedStore(SystemRuntime(threads=1), cluster.state), quick, broker(0))
    with pytest.raises(BrokerIdTaken, match=r"^broker id 0 is taken by another broker \(.*\): give this one"):
        await namesake.start()
    record = await store.get(keys.CLUSTER_DOMAIN, keys.broker(0))
    assert record is not None
    assert record.value == value


async def test_a_broker_keeps_trying_while_its_id_cannot_be_read(cluster: Cluster) -> None:
    store = HeldStore(cluster)
    member = cluster.member(broker(4), store=store, ttl=0.05)
    await member.start()
    store.open.clear()
    await lose_session(member)
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.broker(4), b"\x02{}")])
    store.open.set()
    await eventually(lambda: store.opened >= 3)  # so it has failed once
    assert not member.is_registered
    await store.write(keys.CLUSTER_DOMAIN, [Delete(keys.broker(4))])
    await eventually(lambda: member.is_registered)
