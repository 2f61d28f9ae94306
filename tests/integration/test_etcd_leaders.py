"""Three etcd servers whose leaders are killed and frozen, while several clients write through it all."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.services.etcd import EtcdCluster, EtcdProcess

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import ABSENT, Ambiguous, Expectation, MetadataStore, Put, Unavailable
from dray.metadata.etcd import EtcdSettings
from dray.metadata.etcd.store import EtcdStore

WRITERS = 3
PATIENCE = 60.0
LIST = "/list"
SESSION = 20.0
"""Longer than any freeze here: Debian's etcd has a leader that wakes up revoke what it believes run out."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path) as cluster:
        yield cluster


class Writer:
    """Appends names to one list by compare-and-set, as a broker appends to a stream."""

    def __init__(self, name: str, store: MetadataStore) -> None:
        self.name = name
        self.store = store
        self.tried: set[bytes] = set()
        self.acknowledged: list[bytes] = []
        self.unclear = 0
        self.stopping = False
        self._newest = 0
        self._acknowledged_one = asyncio.Condition()

    async def has_acknowledged(self, count: int) -> None:
        async with self._acknowledged_one:
            await self._acknowledged_one.wait_for(lambda: len(self.acknowledged) >= count)

    async def run(self) -> None:
        for number in itertools.count():
            if self.stopping:
                return
            mine = f"{self.name}{number}".encode()
            self.tried.add(mine)
            try:
                record = await self.store.get(0, LIST)
                if record is not None:
                    assert record.version >= self._newest, "a read went back"
                    self._newest = record.version
                value = mine if record is None else record.value + b" " + mine
                expect: Expectation = ABSENT if record is None else record.version
                [outcome] = await self.store.write(0, [Put(LIST, value, expect)])
            except Ambiguous:
                self.unclear += 1
                continue
            except Unavailable:
                continue
            if outcome.applied:
                assert outcome.version > self._newest, "a version came again"
                self._newest = outcome.version
                async with self._acknowledged_one:
                    self.acknowledged.append(mine)
                    self._acknowledged_one.notify_all()


async def progress(writers: list[Writer]) -> None:
    """Every writer is acknowledged something that it sent from now on."""
    targets = [len(writer.acknowledged) + 3 for writer in writers]
    async with asyncio.timeout(PATIENCE):
        for writer, target in zip(writers, targets, strict=True):
            await writer.has_acknowledged(target)


async def test_nothing_acknowledged_is_lost_and_nothing_happens_twice(cluster: EtcdCluster) -> None:
    runtime = SystemRuntime()
    async with AsyncExitStack() as opened:
        stores = [EtcdStore(EtcdSettings(endpoints=cluster.addresses), runtime) for _ in range(WRITERS + 1)]
        for store in stores:
            await store.open()
            opened.push_async_callback(store.close)
        observer = stores.pop()
        session = await observer.session(0, SESSION)
        await observer.write(0, [Put("/lease", b"", ABSENT, session)])
        confirmed = session.confirmed_until()
        hints = asyncio.ensure_future(follow(observer))
        writers = [Writer(name, store) for name, store in zip("abc", stores, strict=True)]
        running = [asyncio.ensure_future(writer.run()) for writer in writers]
        await progress(writers)
        for harm in (kill, freeze, kill):
            leader = await asyncio.to_thread(cluster.leader)
            await harm(leader, writers)
        for writer in writers:
            writer.stopping = True
        await asyncio.gather(*running)

        record = await observer.get(0, LIST)
        assert record is not None
        names = record.value.split()
        assert len(names) == len(set(names)), "a write happened twice"
        assert set(names) <= set().union(*(writer.tried for writer in writers))
        for writer in writers:
            kept = [name for name in names if name in set(writer.acknowledged)]
            assert kept == writer.acknowledged, "an acknowledged write is missing, or out of order"
        # The session lived through it, and was confirmed again and again.
        async with asyncio.timeout(SESSION):
            while session.confirmed_until() == confirmed:
                await runtime.sleep(0.1)
        assert not session.ended
        assert await observer.get(0, "/lease") is not None
        # What happened last was told.
        await observer.write(0, [Put("/last", b"")])
        await asyncio.wait_for(hints, PATIENCE)
    runtime.close()


async def follow(store: MetadataStore) -> None:
    """Until the last key is told, by its name or with all others."""
    async for _ in store.watch(0):
        if await store.get(0, "/last") is not None:
            return
    raise AssertionError("the watch ended")


async def kill(leader: EtcdProcess, writers: list[Writer]) -> None:
    leader.kill()
    await progress(writers)
    await asyncio.to_thread(leader.start)


async def freeze(leader: EtcdProcess, writers: list[Writer]) -> None:
    leader.freeze()
    await progress(writers)
    leader.thaw()
    await progress(writers)


async def test_without_a_majority_nothing_is_written_and_it_says_so(cluster: EtcdCluster) -> None:
    runtime = SystemRuntime()
    settings = EtcdSettings(
        endpoints=cluster.addresses, patience=1.0, request_timeout=0.5, connect_timeout=0.3
    )
    store = EtcdStore(settings, runtime)
    await store.open()
    await store.write(0, [Put("/a", b"1")])
    for member in cluster.members[1:]:
        member.kill()
    with pytest.raises((Unavailable, Ambiguous)):
        await store.write(0, [Put("/a", b"2")])
    with pytest.raises(Unavailable):
        await store.barrier(0)
    with pytest.raises(Unavailable):
        await store.get(0, "/a")
    for member in cluster.members[1:]:
        await asyncio.to_thread(member.start)
    await asyncio.to_thread(cluster.leader)
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                record = await store.get(0, "/a")
                break
            except Unavailable:
                continue
    assert record is not None
    assert record.value in (b"1", b"2")  # an unclear write may yet have happened
    await store.close()
    runtime.close()
