"""The level of a cluster, raised and lowered in its metadata store while brokers go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from tests.services import room_settings
from tests.services.room_settings import ETCD
from tests.simulation.log.players import batch_of

from dray.broker.cluster import ProcessDescription, open_cluster
from dray.broker.cluster.clock_guard import StoredBeat, encode_beat
from dray.broker.cluster.identity import decode_cluster
from dray.broker.cluster.levels import BASE, NEWEST, ClusterLevel
from dray.broker.cluster.membership import AdvertisedListener, Broker, encode_broker
from dray.broker.topics import NewTopic, Topics
from dray.daemons.assembly.failures import Failure
from dray.daemons.config import Settings
from dray.daemons.recovery.levels import PATIENCE_SECONDS, SETTLED_SECONDS, StoredLevel
from dray.kafka.records import validate
from dray.log import Log
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.memory import MemoryStore
from dray.objects.memory import MemoryObjects
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

VALUES = Path(__file__).parents[2] / "fixtures" / "values"
DOMAINS = 2
MANY = 1 << 30
LOG = room_settings.log(carry=ETCD, pack_look_seconds=1e9, settle_seconds=0.01, orphan_ttl=3600.0)


def simulated(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @wraps(test)
    def in_virtual_time() -> None:
        run(test())

    del in_virtual_time.__wrapped__
    return in_virtual_time


class World:
    def __init__(self) -> None:
        self.runtime = SimulatedRuntime(1)
        self.store = MemoryStore(self.runtime)
        self.log = Log(self.store, MemoryObjects(self.runtime), self.runtime, DOMAINS, LOG)
        self.topics = Topics(self.store, self.runtime, self.log, room_settings.topics(sweep_interval=1e9))
        self.stored = StoredLevel(self.store, self.runtime, Settings())
        self.told: list[str] = []

    async def begin(self, level: int = NEWEST) -> None:
        await open_cluster(self.store, self.runtime, DOMAINS, True, level)

    async def broker(self, number: int, reads: int | None, writes: int | None) -> None:
        listeners = (AdvertisedListener("PLAINTEXT", "h", 1),)
        broker = Broker(number, listeners, build="b", reads=reads)
        await self.put(keys.broker(number), encode_broker(broker))
        if writes is not None:
            beat = StoredBeat("m", self.runtime.wall_ms(), False, None, reads, writes)
            await self.put(keys.clock(f"broker{number}"), encode_beat(beat))

    async def put(self, key: str, value: bytes, domain: int = keys.CLUSTER_DOMAIN) -> None:
        await self.store.write(domain, [Put(key, value)])

    async def carry(self, stream: int) -> None:
        self.log.carry(True)
        data = batch_of([b"value"])
        [batch] = validate(data, max_batch_bytes=MANY, max_decompressed_bytes=MANY)
        await self.log.append(stream, batch, memoryview(data))
        self.log.carry(False)

    async def pack(self) -> None:
        for rounds in self.log._packing:
            await rounds.run()

    async def level(self) -> ClusterLevel:
        record = await self.store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        assert record is not None
        return decode_cluster(record.value).level

    def lowering(self, to: int = BASE) -> asyncio.Task[None]:
        return asyncio.get_running_loop().create_task(self.stored.lower(to, self.told.append))


@simulated
async def test_a_level_is_lowered_when_nothing_above_it_is_written_or_stored() -> None:
    world = World()
    await world.begin()
    [stream] = await world.log.create_streams(1)
    await world.carry(stream)
    await world.broker(0, NEWEST, NEWEST)
    lowering = world.lowering()
    await asyncio.sleep(10)
    assert await world.level() == ClusterLevel(NEWEST, ceiling=BASE), "at once: brokers follow it"
    assert world.told == ["1 carried entries; waiting for beat broker0 of a broker to stop writing them"]
    await world.broker(0, NEWEST, BASE)
    await asyncio.sleep(10)
    assert world.told[1:] == ["1 carried entries"]
    await world.pack()
    await asyncio.sleep(SETTLED_SECONDS)
    assert not lowering.done(), "what was under way may yet come"
    await world.carry(stream)
    await asyncio.sleep(2 * SETTLED_SECONDS)
    assert not lowering.done()
    await world.pack()
    await asyncio.sleep(SETTLED_SECONDS / 2)
    assert not lowering.done(), "it came: now the wait begins anew"
    await asyncio.sleep(SETTLED_SECONDS)
    await lowering
    assert await world.level() == ClusterLevel(BASE, ceiling=BASE)
    record = await world.store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
    assert record is not None
    assert record.value[0] == 1, "builds from before levels read it"


@simulated
async def test_a_broker_that_has_not_beaten_yet_is_waited_for() -> None:
    world = World()
    await world.begin()
    await world.broker(0, NEWEST, BASE)
    await world.broker(1, NEWEST, None)
    lowering = world.lowering()
    await asyncio.sleep(3 * SETTLED_SECONDS)
    assert not lowering.done()
    assert "a broker that has not beaten yet" in world.told[-1]
    await world.broker(1, NEWEST, BASE)
    await asyncio.sleep(2 * SETTLED_SECONDS)
    await lowering


@simulated
async def test_a_lowering_that_does_not_move_ends_and_goes_on_when_it_is_run_again() -> None:
    world = World()
    await world.begin()
    [stream] = await world.log.create_streams(1)
    await world.carry(stream)
    lowering = world.lowering()
    await asyncio.sleep(2 * PATIENCE_SECONDS)
    with pytest.raises(Failure, match="nothing has moved for ten minutes: 1 carried entries"):
        await lowering
    await world.pack()
    await world.stored.lower(BASE, world.told.append)
    assert (await world.level()).number == BASE


@simulated
async def test_a_raise_takes_a_lowering_back() -> None:
    world = World()
    await world.begin()
    await world.broker(0, NEWEST, NEWEST)
    lowering = world.lowering()
    await asyncio.sleep(5)
    assert await world.stored.raise_level() == ClusterLevel(NEWEST)
    await world.broker(0, NEWEST, BASE)
    await asyncio.sleep(3 * SETTLED_SECONDS)
    with pytest.raises(Failure, match="somebody raised the level meanwhile"):
        await lowering
    assert await world.level() == ClusterLevel(NEWEST)


@simulated
async def test_at_its_level_a_cluster_can_be_kept_from_rising() -> None:
    world = World()
    await world.begin(BASE)
    await world.broker(0, None, None)  # from before levels: it never says what it writes
    await world.stored.lower(BASE, world.told.append)
    assert await world.level() == ClusterLevel(BASE, ceiling=BASE)


@simulated
async def test_a_raise_names_who_does_not_read_the_next_level() -> None:
    world = World()
    await world.begin(BASE)
    with pytest.raises(Failure, match="no process is there"):
        await world.stored.raise_level()
    await world.broker(0, NEWEST, BASE)
    await world.broker(1, None, None)
    old = StoredBeat("m", 1, False, ProcessDescription("compactor", "0.0.9"))
    await world.put(keys.clock("c0ffee"), encode_beat(old))
    with pytest.raises(Failure, match=r"more is not read by broker 1 \(b\), compactor c0ffee \(0.0.9\)$"):
        await world.stored.raise_level()
    assert await world.level() == ClusterLevel(BASE)


@simulated
async def test_a_raise_does_not_wait() -> None:
    world = World()
    await world.begin(BASE)
    await world.broker(0, NEWEST, BASE)
    assert await world.stored.raise_level() == await world.level() == ClusterLevel(NEWEST)


@simulated
async def test_what_no_command_undoes_is_shown_with_its_topics() -> None:
    world = World()
    await world.begin()
    streams: dict[str, int] = {}
    for name in ("by-key", "attached", "lost", "linked", "plain"):
        [streams[name]] = (await world.topics.create(NewTopic(name, 1))).streams
    for name, file in (("by-key", "v4"), ("attached", "v5"), ("lost", "v6")):
        value = (VALUES / f"log-index-entry.{file}.bin").read_bytes()
        await world.put(keys.index_entry(streams[name], 7, 7), value, streams[name] % DOMAINS)
    value = (VALUES / "log-high-watermark.v3.bin").read_bytes()
    await world.put(keys.high_watermark(streams["linked"]), value, streams["linked"] % DOMAINS)
    raised = await world.topics.create(NewTopic("raised", 1))
    value = (VALUES / "topic-epoch.v2.bin").read_bytes().replace(b"[7,8,11]", b"[%d]" % raised.streams[0])
    await world.put(keys.topic("raised"), value)
    await world.put(keys.migration("linked"), (VALUES / "migration.v2.bin").read_bytes())
    assert dict((await world.stored.look()).kept) == {
        "files with holes": ["by-key"],
        "objects of others": ["attached", "linked"],  # in its head
        "gaps": ["lost"],
        "high watermarks with an origin": ["linked"],
        "topics with a leader epoch": ["raised"],
        "live migrations": ["linked"],
    }
