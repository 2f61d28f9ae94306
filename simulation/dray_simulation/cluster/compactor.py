"""A compactor of a simulated cluster: the real one, in a process that can be killed and held up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dray.broker.cluster import ClockGuard, ProcessDescription
from dray.broker.cluster.levels import NEWEST
from dray.broker.topics.live import StoredTopics
from dray.daemons.assembly.settings import compaction_settings, log_settings
from dray.daemons.config import Settings
from dray.log.stream_store import StreamStore
from dray.log.types import LogError
from dray.metadata.contract import MetadataError
from dray.migration.entries.rows import ForeignRows
from dray.objects.contract import ObjectError
from dray.objects.memory import MemoryObjects
from dray.tables.compaction.cycle import Compactor, CompactorStores
from dray.tables.compaction.planning.shares import WHOLE, TopicShare
from dray.tables.compaction.settings import CompactionSettings
from dray.tables.compaction.writing.executor import LocalUnitWriter
from dray.tables.contract import TableChange, TablesError, TopicTable
from dray_simulation.cluster.tables import FaultyTables, MemoryCatalog, Table
from dray_simulation.kernel.faults import FaultyObjects, FaultyStore
from dray_simulation.kernel.runtime import SimulatedRuntime
from dray_simulation.kernel.weather import UnexpectedErrors, check_alive, was_injected

if TYPE_CHECKING:
    from dray_simulation.cluster.world import ClusterWorld

_TROUBLE = (MetadataError, ObjectError, LogError, TablesError)


class JudgedCatalog(MemoryCatalog):
    """Tells the oracle of every commit, at the moment it happens."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__()
        self._world = world

    def commit(self, on: Table, changes: Sequence[TableChange], now_ms: int) -> bool:
        done = super().commit(on, changes, now_ms)
        if done:
            self._world.table_changed(self.tables[on.topic.topic])
        return done

    def drop(self, topic: TopicTable) -> bool:
        done = super().drop(topic)
        if done:
            self._world.table_dropped(topic)
        return done


class ClusterCompactor:
    def __init__(self, world: ClusterWorld, number: int) -> None:
        self.name = f"compactor-{number}"
        self._number = number
        self._world = world
        self._running: asyncio.Task[None] | None = None
        self.runtime = SimulatedRuntime(0)
        self._cut: list[FaultyStore | FaultyObjects] = []
        self._tables: FaultyTables | None = None

    def start(self) -> None:
        compactor = self._make(self._world.conditions.compaction(), compares_clocks=True)
        self._running = asyncio.get_running_loop().create_task(
            self._run(compactor), name=self.name, context=self.runtime.context()
        )

    async def _run(self, compactor: Compactor) -> None:
        """A round that fails is begun again, as `drayd compactor` is by its supervisor."""
        while True:
            try:
                await compactor.run(asyncio.Event())
            except _TROUBLE as error:
                self._world.trace(self.name, "is interrupted:", error)
            except Exception as error:
                self._world.fail(error)
                return
            await self.runtime.sleep(0.2)

    def last(self) -> Compactor:
        """One that does all there is to do, and waits for nothing."""
        return self._make(
            replace(
                compaction_settings(Settings()),
                takeover_seconds=0.0,
                collect_grace=0.0,
                snapshot_keep_ms=0,
                failed_pause_seconds=0.0,
                collect_seconds=0.0,
                bottom_raw_bytes=self._world.conditions.compaction().bottom_raw_bytes,
                round_keys=self._world.conditions.round_keys,
            )
        )

    def _make(self, settings: CompactionSettings, *, compares_clocks: bool = False) -> Compactor:
        world = self._world
        weather = world.conditions.weather
        self.runtime = runtime = SimulatedRuntime(world.random.getrandbits(48))
        unexpected = UnexpectedErrors(weather, whole_process=True)
        older = self._number in world.conditions.older_compactors
        store = world.store_client(runtime, older=older, unexpected=unexpected)
        objects = FaultyObjects(
            MemoryObjects(runtime, world.bucket),
            world.store_object,
            world.delete_object,
            runtime,
            weather,
            unexpected,
        )
        self._cut = [store, objects]
        self._tables = FaultyTables(world.catalog, runtime, weather, unexpected)
        clocks: ClockGuard | None = None
        if compares_clocks:
            tolerance = world.conditions.clock_tolerance
            clocks = runtime.context().run(
                ClockGuard,
                store,
                runtime,
                machine=self.name,
                tolerance=tolerance,
                reads=None if older and not world.builds.upgraded else NEWEST,  # from before levels
                process=ProcessDescription("compactor", "simulated"),
            )
            runtime.context().run(clocks.start)
        brokers = log_settings(Settings())
        return runtime.context().run(
            Compactor,
            CompactorStores(
                StreamStore(store, world.conditions.domains, brokers.producer_expiry_ms),
                objects,
                world.guard(objects),
            ),
            runtime,
            LocalUnitWriter(objects, runtime, ForeignRows(objects, runtime)),
            self._tables,
            StoredTopics(store, {}),
            settings,
            brokers,
            expiry=clocks,
            share=lambda: WHOLE if clocks is None else TopicShare(clocks.process, clocks.peers()),
        )

    def check(self) -> None:
        """Raise errors that it met and did not expect, and check that it goes on all the same."""
        for failure in self.runtime.failures:
            if not (isinstance(failure, _TROUBLE) or was_injected(failure)):
                raise failure
        if not self.runtime.dead:
            check_alive(self.name, self.runtime)

    def kill(self) -> None:
        self.check()
        for client in self._cut:
            client.cut()
        if self._tables is not None:
            self._tables.cut_off = True
        self.runtime.kill()
