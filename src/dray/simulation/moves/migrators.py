"""Migrators of a topic that moves: real mirrors and switches, in processes that die and stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dray.client.cluster import Cluster
from dray.client.connection import Dialer
from dray.client.errors import ClientError, RequestFailed
from dray.daemon.settings import log_settings
from dray.log.boundary_decision import forbid_boundary
from dray.log.foreign_segments import ForeignSegments
from dray.log.mirroring import MirrorLost, StreamMirror
from dray.log.origins import BoundaryStands
from dray.log.retention import Retention
from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable, StreamClosed
from dray.metadata.contract import MetadataError
from dray.metadata.values import ValueCorrupt
from dray.migration.live_migration import LiveMigration, LiveSettings
from dray.migration.record import MigrationLost, MigrationRecord, Migrations
from dray.objects.contract import ObjectError
from dray.objects.memory import MemoryObjects
from dray.simulation.kernel.faults import FaultyObjects, FaultyStore
from dray.simulation.kernel.runtime import SimulatedRuntime
from dray.upstream.fences import AclFence, WriterFence
from dray.upstream.mirror import MirrorPlace, MirrorReader, MirrorStopped
from dray.upstream.source import Source, SourceProducer, SourceTopic
from dray.upstream.stragglers import find_stragglers
from dray.upstream.switch import Target

if TYPE_CHECKING:
    from dray.simulation.moves.run import Move

PASSING: Final = (
    MetadataError,
    ObjectError,
    LogUnavailable,
    ClientError,
    RequestFailed,
    MigrationLost,
    BoundaryStands,  # another migrator has decided meanwhile
    TimeoutError,
)
_SETTINGS: Final = LiveSettings(
    give_up_seconds=4.0, straggler_seconds=1.0, follow_seconds=0.3, look_seconds=0.1
)
_READ_SECONDS: Final = 3.0


class StreamsTarget:
    """The topic's streams, for a switch."""

    def __init__(self, mirror: StreamMirror, streams: list[int]) -> None:
        self._mirror = mirror
        self._streams = streams

    async def end(self, partition: int) -> int:
        return (await self._mirror.place(self._streams[partition])).end

    async def last_epoch(self, partition: int) -> int | None:
        return (await self._mirror.place(self._streams[partition])).epoch

    async def producers(self, partition: int) -> Collection[SourceProducer]:
        found = await self._mirror.producers(self._streams[partition])
        return [SourceProducer(*each) for each in found]

    async def boundary(self, partition: int) -> int | None:
        return await self._mirror.boundary(self._streams[partition])

    async def decide(self, partition: int, boundary: int) -> bool:
        raise AssertionError(f"{partition} at {boundary}: the record is asked first")


class MovingTopic:
    """The topic at both sides, as `LiveMigration` asks for it."""

    def __init__(
        self, move: Move, runtime: SimulatedRuntime, store: StreamStore, mirror: StreamMirror
    ) -> None:
        self._move = move
        self._runtime = runtime
        self._store = store
        self._log = mirror
        self._cluster = Cluster(move.source.addresses, Dialer(client_id="migrator"), runtime)
        self._stopped: dict[int, str] = {}
        self.source: Source = SourceTopic(self._cluster, move.source.topic)
        self.target: Target = StreamsTarget(mirror, move.streams)

    def stopped(self) -> Mapping[int, str]:
        return dict(self._stopped)

    async def before_fence(self, _kind: str) -> Mapping[str, str]:
        return {}

    def fence(self, _kind: str, _undo: Mapping[str, str]) -> WriterFence:
        return AclFence(self._cluster, self._move.source.topic, self._runtime, allows_rest=False)

    async def decide(self, partition: int, boundary: int, is_allowed: Callable[[], Awaitable[bool]]) -> bool:
        return await self._log.decide(self._move.streams[partition], boundary, is_allowed)

    async def forbid(self, partition: int) -> int | None:
        return await forbid_boundary(self._store, self._runtime, self._move.streams[partition])

    async def follow(self, _record: MigrationRecord) -> int:
        return 0

    async def stragglers(self, _record: MigrationRecord) -> Mapping[int, int]:
        boundaries = {}
        for partition in range(len(self._move.streams)):
            found = await self.target.boundary(partition)
            assert found is not None
            boundaries[partition] = found
        await self.source.learn()
        found_ones = await find_stragglers(self.source, boundaries)
        return {partition: each.end - each.start for partition, each in found_ones.items()}

    async def mirror(self) -> None:
        """Until every partition is decided."""
        cluster = Cluster(self._move.source.addresses, Dialer(client_id="mirror"), self._runtime)
        source = SourceTopic(cluster, self._move.source.topic)
        await source.learn()
        reader = MirrorReader(cluster, source, max_bytes=1 << 20, partition_bytes=600)
        while True:
            places: dict[int, MirrorPlace] = {}
            decided = 0
            for partition in range(len(self._move.streams)):
                try:
                    place = await self._log.place(self._move.streams[partition])
                except BoundaryStands:
                    decided += 1
                    continue
                if partition not in self._stopped:
                    places[partition] = MirrorPlace(place.end, -1 if place.epoch is None else place.epoch)
            if decided == len(self._move.streams):
                return
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    await self._bring_in(reader, places)
            except (RequestFailed, ClientError, TimeoutError):
                await self._runtime.sleep(0.05)
                await source.learn()
            await self._runtime.sleep(0.01)

    async def _bring_in(self, reader: MirrorReader, places: Mapping[int, MirrorPlace]) -> None:
        for leader, asked in reader.by_leader(places).items():
            try:
                pieces = await reader.read(leader, asked)
            except MirrorStopped as stopped:
                self._move.world.counts["partitions stopped"] += 1
                self._stopped[stopped.partition] = str(stopped)
                continue
            for piece in pieces:
                stream = self._move.streams[piece.partition]
                with suppress(MirrorLost, BoundaryStands, StreamClosed):
                    if piece.batches:
                        expected = (await self._log.place(stream))._replace(
                            end=places[piece.partition].offset
                        )
                        aborted = [(each.producer_id, each.first_offset) for each in piece.aborted]
                        await self._log.commit(stream, piece.batches, aborted, expected=expected)
                    if piece.source_start:
                        await self._log.raise_start(stream, piece.source_start)


async def _bury(runtime: SimulatedRuntime) -> None:
    """Code that tidies up when it is cancelled does not know that its process is gone: it waits for answers
    that do not come."""
    for _ in range(20):
        await asyncio.sleep(0.05)
        runtime.kill()


class Migrator:
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
        assert self._store is not None
        assert self._objects is not None
        settings = log_settings(self._move.conditions.settings(0, "", 0))
        store = StreamStore(self._store, self._move.conditions.domains, settings.producer_expiry_ms)
        mirror = StreamMirror(
            store,
            self._objects,
            self.runtime,
            settings,
            ForeignSegments(self._objects, self.runtime, {}),
            Retention(store, self.runtime, settings),
        )
        topic = MovingTopic(self._move, self.runtime, store, mirror)
        migrations = Migrations(self._store, self.runtime)
        return LiveMigration(
            self._move.source.topic, migrations, topic, self.runtime, _SETTINGS, self._reached
        )

    def _reached(self, step: str) -> None:
        self._move.world.trace(self.name, "has reached:", step)
        self._move.reached[step] += 1

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
