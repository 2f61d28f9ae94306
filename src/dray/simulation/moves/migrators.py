"""Migrators of a topic that moves: real mirrors and switches, in processes that die and stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from dray.client.cluster import Cluster
from dray.client.connection import Dialer
from dray.client.errors import ClientError, RequestFailed
from dray.daemon.settings import log_settings
from dray.log.foreign_segments import ForeignSegments
from dray.log.mirroring import MirrorLost, StreamMirror
from dray.log.origins import BoundaryStands
from dray.log.retention import Retention
from dray.log.stream_store import StreamStore
from dray.log.types import LogUnavailable, StreamClosed
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError
from dray.objects.memory import MemoryObjects
from dray.simulation.kernel.faults import FaultyObjects, FaultyStore
from dray.simulation.kernel.runtime import SimulatedRuntime
from dray.upstream.fences import AclFence
from dray.upstream.mirror import MirrorPlace, MirrorReader, MirrorStopped
from dray.upstream.source import SourceProducer, SourceTopic
from dray.upstream.switch import SwitchFailed, SwitchStuck, TopicSwitch

if TYPE_CHECKING:
    from dray.simulation.moves.run import Move

GIVE_UP_SECONDS: Final = 4.0
PASSING: Final = (MetadataError, ObjectError, LogUnavailable, ClientError, RequestFailed, TimeoutError)


class LogTarget:
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
        return await self._mirror.decide(self._streams[partition], boundary)


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
        for act in (self._mirror, self._switch):
            asyncio.get_running_loop().create_task(
                self._keep(act), name=self.name, context=self.runtime.context()
            )

    def kill(self) -> None:
        assert self._store is not None
        assert self._objects is not None
        self._store.cut()
        self._objects.cut()
        self.runtime.kill()
        self._move.world.network.cut_process(self.runtime)
        asyncio.get_running_loop().create_task(_bury(self.runtime), name="the end of a migrator")

    def stream_mirror(self) -> StreamMirror:
        assert self._store is not None
        assert self._objects is not None
        settings = log_settings(self._move.conditions.settings(0, "", 0))
        store = StreamStore(self._store, self._move.conditions.domains, settings.producer_expiry_ms)
        return StreamMirror(
            store,
            self._objects,
            self.runtime,
            settings,
            ForeignSegments(self._objects, self.runtime, {}),
            Retention(store, self.runtime, settings),
        )

    async def _keep(self, act: Callable[[Cluster, StreamMirror], Awaitable[None]]) -> None:
        mirror = self.stream_mirror()
        try:
            while True:
                cluster = Cluster(self._move.source.addresses, Dialer(client_id=self.name), self.runtime)
                with suppress(*PASSING):
                    await act(cluster, mirror)
                await cluster.close()
                await self.runtime.sleep(0.1)
        except Exception as error:
            self._move.world.fail(error)

    async def _mirror(self, cluster: Cluster, mirror: StreamMirror) -> None:
        source = SourceTopic(cluster, self._move.source.topic)
        await source.learn()
        reader = MirrorReader(cluster, source, max_bytes=1 << 20, partition_bytes=600)
        while True:
            places: dict[int, MirrorPlace] = {}
            for partition in source.leaderships:
                stream = self._move.streams[partition]
                with suppress(BoundaryStands, StreamClosed):
                    place = await mirror.place(stream)
                    places[partition] = MirrorPlace(place.end, -1 if place.epoch is None else place.epoch)
            if not places:
                return
            try:
                async with asyncio.timeout(3):
                    await self._bring_in(reader, places, mirror)
            except (RequestFailed, ClientError, TimeoutError):
                await self.runtime.sleep(0.05)
                await source.learn()

    async def _bring_in(
        self, reader: MirrorReader, places: dict[int, MirrorPlace], mirror: StreamMirror
    ) -> None:
        for leader, asked in reader.by_leader(places).items():
            try:
                pieces = await reader.read(leader, asked)
            except MirrorStopped as stopped:
                self._move.world.counts["partitions stopped"] += 1
                self._move.stopped.add(stopped.partition)
                await self.runtime.sleep(0.5)
                continue
            for piece in pieces:
                stream = self._move.streams[piece.partition]
                if piece.batches:
                    with suppress(MirrorLost, BoundaryStands, StreamClosed):
                        expected = (await mirror.place(stream))._replace(end=places[piece.partition].offset)
                        await mirror.commit(
                            stream,
                            piece.batches,
                            [tuple(each) for each in piece.aborted],  # type: ignore[misc]
                            expected=expected,
                        )
                if piece.source_start:
                    with suppress(BoundaryStands, StreamClosed):
                        await mirror.raise_start(stream, piece.source_start)
        await self.runtime.sleep(0.01)

    async def _switch(self, cluster: Cluster, mirror: StreamMirror) -> None:
        if not self._move.may_switch(self):
            return
        source = SourceTopic(cluster, self._move.source.topic)
        fence = AclFence(cluster, self._move.source.topic, self.runtime, allows_rest=False)
        target = LogTarget(mirror, self._move.streams)
        switch = TopicSwitch(source, target, fence, self.runtime, GIVE_UP_SECONDS)
        await self.runtime.sleep(self._move.world.random.uniform(0.5, 2.0))
        try:
            boundaries = await switch.run()
        except SwitchFailed as failure:
            self._move.world.counts["switches went back"] += 1
            self._move.world.trace(self.name, "went back:", failure)
        except SwitchStuck as failure:
            self._move.world.trace(self.name, "is stuck:", failure)
        else:
            self._move.world.trace(self.name, "has switched", boundaries)
            self._move.done = True
