"""Migrators of a topic that moves: real mirrors and switches, in processes that die and stand still."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING, Final

from dray.broker.cluster.identity import ClusterInfo
from dray.broker.topics import TopicError
from dray.daemons.assembly.stores import Stores
from dray.daemons.migrator.migration import rooms_on
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.connection import Dialer
from dray.kafka.client.errors import ClientError, RequestFailed
from dray.log.origins import BoundaryStands
from dray.log.types import LogUnavailable
from dray.metadata.contract import MetadataError
from dray.metadata.values import ValueCorrupt
from dray.migration.live.leader_reads import MirrorMemory
from dray.migration.live.migration import LiveMigration, LiveSettings
from dray.migration.live.moving_topic import MovingTopic, SourceCluster
from dray.migration.record import MigrationLost
from dray.migration.source.mirror import WaitingFetches
from dray.objects.contract import ObjectError
from dray.objects.memory import MemoryObjects
from dray_simulation.kernel.faults import FaultyObjects, FaultyStore
from dray_simulation.kernel.runtime import SimulatedRuntime
from dray_simulation.moves.classic_cluster import ADDRESSES

if TYPE_CHECKING:
    from dray_simulation.moves.run import Move

PASSING: Final = (
    MetadataError,
    ObjectError,
    LogUnavailable,
    ClientError,
    RequestFailed,
    MigrationLost,
    TopicError,
    BoundaryStands,  # another migrator has decided meanwhile
    TimeoutError,
)
_FOLLOW_SECONDS: Final = 0.3
_FENCE_SECONDS: Final = 1.0
_HELD_SECONDS: Final = 8.0
UPSTREAM: Final = "classic"


async def _bury(runtime: SimulatedRuntime) -> None:
    """Code that tidies up when it is cancelled does not know that its process is gone: it waits for answers
    that do not come."""
    for _ in range(20):
        await asyncio.sleep(0.05)
        runtime.kill()


class SimulatedMigrator:
    """A place at which one process after the other runs."""

    def __init__(self, move: Move, number: int) -> None:
        self.name = f"migrator-{number}"
        self._move = move
        self.runtime = SimulatedRuntime(0)
        self._store: FaultyStore | None = None
        self._objects: FaultyObjects | None = None

    def start(self) -> None:
        world = self._move.world
        self.runtime = SimulatedRuntime(world.random.getrandbits(48))
        self._store = world.store_client(self.runtime, older=False)
        self._objects = FaultyObjects(
            MemoryObjects(self.runtime, world.bucket),
            world.store_object,
            world.delete_object,
            self.runtime,
            world.conditions.weather,
        )
        asyncio.get_running_loop().create_task(self._run(), name=self.name, context=self.runtime.context())

    def kill(self) -> None:
        assert self._store is not None
        assert self._objects is not None
        self._store.cut()
        self._objects.cut()
        self.runtime.kill()
        self._move.world.network.cut_process(self.runtime)
        asyncio.get_running_loop().create_task(_bury(self.runtime), name="the end of a migrator")

    def _migration(self) -> LiveMigration:
        """As `daemons/migrator/process.py` makes it, without its leases: they only save work."""
        assert self._store is not None
        assert self._objects is not None
        move, settings = self._move, self._move.conditions.settings(0, "", 0)
        stores = Stores(self._store, self._objects)
        rooms = rooms_on(stores, ClusterInfo("", move.conditions.domains, 0), settings, self.runtime)
        groups = rooms.group_rounds(UPSTREAM, self._cluster(), self.runtime, _FOLLOW_SECONDS)
        waiting = WaitingFetches(self._cluster(), self.runtime)
        source = SourceCluster(self._cluster(), self._cluster(), waiting, groups)
        topic = MovingTopic(
            move.source.topic, move.record, rooms.here, source, self.runtime, memory=MirrorMemory(1)
        )
        migrations = rooms.attacher.migrations
        timing = LiveSettings(
            move.conditions.give_up_seconds,
            1.0,
            _FOLLOW_SECONDS,
            look_seconds=0.1,
            fence_seconds=_FENCE_SECONDS,
        )
        return LiveMigration(move.source.topic, migrations, topic, self.runtime, timing, self._reached)

    def _cluster(self) -> Cluster:
        return Cluster(ADDRESSES, Dialer(client_id=self.name), self.runtime)

    def _reached(self, step: str) -> None:
        self._move.world.trace(self.name, "has reached:", step)
        self._move.reached[step] += 1
        if step == "forbidden" and self._move.conditions.lifts_late and not self._move.is_lifting_late:
            self._move.is_lifting_late = True
            holding = self._hold(self.runtime)
            asyncio.get_running_loop().create_task(holding, name="a late lift", context=Context())

    async def _hold(self, runtime: SimulatedRuntime) -> None:
        """Before it lifts the fence it stands still, until another switch has decided: to lift it is wrong by
        then."""
        self._move.world.counts["! migrator stood still before it lifted"] += 1
        until = self._move.world.now() + _HELD_SECONDS
        while not runtime.dead and not self._move.is_decided and self._move.world.now() < until:
            runtime.pause(0.1)
            await asyncio.sleep(0.05)
        self._move.is_lifting_late = False

    async def _turn(self, migration: LiveMigration) -> None:
        try:
            await migration.turn()
        except ValueCorrupt as error:
            raise AssertionError("a value that cannot be read") from error
        for failure in self.runtime.failures:
            if not isinstance(failure, PASSING):
                raise failure

    async def _run(self) -> None:
        """As `drayd migrator`: what fails is begun again."""
        migration = self._migration()
        try:
            while True:
                with suppress(*PASSING):
                    await self._turn(migration)
                await self.runtime.sleep(0.05)
        except Exception as error:
            self._move.world.fail(error)
