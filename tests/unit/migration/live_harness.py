"""A classic source at work, a topic that is mirrored from it, and migrators that may die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from random import Random
from typing import Any, cast
from uuid import UUID

from tests.services.two_builds import MIGRATION
from tests.unit.migration.source.classic_source import ClassicFence, ClassicSource, DrayDestination, fold

from dray.kafka.client.errors import RequestFailed
from dray.kafka.protocol import ErrorCode
from dray.log.types import StreamClosed
from dray.metadata.memory import MemoryState, MemoryStore
from dray.migration.live.migration import FAILPOINTS, LiveMigration, LiveSettings
from dray.migration.record import NO_TIER, TRANSACTIONS, MigrationRecord, Migrations, MigrationState
from dray.migration.source.fences import FenceRefused
from dray.migration.source.source import SourceProducer
from dray_simulation.kernel.runtime import SimulatedRuntime

SETTINGS = LiveSettings(
    give_up_seconds=5, straggler_seconds=3, follow_seconds=0.5, look_seconds=0.1, fence_seconds=0.5
)
OPEN = {"before": "open"}
OFF = (MigrationState.MIRRORING, MigrationState.ABORTING)
PARTITIONS = 2


class Killed(BaseException):
    """What a kill -9 is to the code that it hits."""


class WatchedFence(ClassicFence):
    """Remembers with what it was lifted."""

    def __init__(self, world: World, undo: Mapping[str, str]) -> None:
        super().__init__(world.source)
        self.world = world
        self.undo = undo

    async def put_up(self) -> None:
        async def arrives() -> None:
            await self.world.runtime.sleep(self.world.fence_seconds)
            self.source.put_up()

        # Once it is sent, it arrives: also when its process has died since.
        await asyncio.shield(self.world.runtime.spawn(arrives(), "a fence on its way"))

    async def lift(self) -> None:
        self.world.lifted_with.append(dict(self.undo))
        await super().lift()
        self.world.decided_when_lifted |= bool(self.world.target.boundaries)
        self.world.write_on()  # those that were refused have ended


class World:
    """What outlives a process: source, log, record."""

    def __init__(self, seed: int, *, forgets: bool = False) -> None:
        self.runtime = SimulatedRuntime(seed)
        self.random = Random(seed)
        self.source = ClassicSource(self.runtime, self.random, PARTITIONS)
        self.source.records_a_second = 60
        self.source.gone[0] = frozenset({SourceProducer(100, 3, 5)})
        self.target = DeletableDestination(self.source, self.runtime, self.random, forgets=forgets)
        self.versions = dict.fromkeys(range(PARTITIONS), 0)
        self.store = MemoryStore(self.runtime, MemoryState())
        self.migrations = Migrations(self.store, self.runtime)
        self.groups = 2
        self.stragglers: dict[int, int] = {}
        self.lifted_with: list[dict[str, str]] = []
        self.decided_when_lifted = False
        self.seen: list[str] = []
        self.processes: list[LiveMigration] = []
        self.decision_seconds = 0.0
        """How long a write is on its way that decides."""
        self.fence_seconds = 0.0
        """How long the call is on its way that puts a fence up."""
        self.deciding = False
        self.refuses_fence: Exception | None = None
        self.last: MigrationRecord | None = None
        self.groups_are_denied = False
        self.writes_transactions = False
        self.stopped: dict[int, str] = {}
        self.is_mirror_running = True
        self.tried_again = self.mirrors = 0
        self.writers: list[asyncio.Task[None]] = []
        self.write_on()

    def write_on(self) -> None:
        first = len(self.writers)
        self.writers += [
            self.runtime.spawn(self.source.write(number % PARTITIONS, first + number), "writer")
            for number in range(2 * PARTITIONS)
        ]

    async def link(self) -> None:
        record = replace(
            MIGRATION,
            state=MigrationState.MIRRORING,
            layout=NO_TIER,
            partitions=PARTITIONS,
            streams=tuple(range(1, PARTITIONS + 1)),
            bounds=((0, 0),) * PARTITIONS,
            upstream="old",
            source_topic_id=UUID(int=6),
            attempt=0,
        )
        await self.migrations.begin("orders", record)
        await self.runtime.sleep(0.5)

    def process(self, dies_after: str = "", give_up_seconds: float = 5) -> LiveMigration:
        def reached(step: str) -> None:
            assert step in FAILPOINTS
            self.seen.append(step)
            if step == dies_after:
                live.destination.is_dead = True
                raise Killed

        live = SimulatedTopic(self)
        settings = replace(SETTINGS, give_up_seconds=give_up_seconds)
        made = LiveMigration("orders", self.migrations, cast(Any, live), self.runtime, settings, reached)
        self.processes.append(made)
        return made

    async def record(self) -> MigrationRecord:
        found = await self.migrations.read("orders")
        assert found is not None
        return found

    async def work(self, process: LiveMigration, until: Callable[[MigrationRecord], bool]) -> None:
        for _ in range(600):
            if until(await self.record()):
                return
            await process.turn()
            await self.runtime.sleep(0.1)
        raise AssertionError(f"never: {await self.record()}, after {self.seen}")

    async def die(self, process: LiveMigration, until: Callable[[MigrationRecord], bool]) -> None:
        """At its failpoint, with all of its tasks."""
        try:
            await self.work(process, until)
        except Killed:
            await process.stop()
        else:
            raise AssertionError(f"it never died: {self.seen}")

    async def close(self) -> None:
        for process in self.processes:
            await process.stop()
        await self.runtime.sleep(0.5)  # what is on the way arrives
        self.last = await self.migrations.read("orders")
        for task in self.writers:
            task.cancel()

    def faults(self) -> list[str]:
        """What must never be, whatever has died."""
        found = []
        if self.decided_when_lifted or (self.target.boundaries and not self.source.is_up):
            found.append("the fence was lifted after a decision")
        is_on = self.last is not None and (self.last.state not in OFF or self.last.undo is not None)
        if self.source.is_up and not is_on:
            found.append("a fence is up, and no switch is on")
        if any(undo != OPEN for undo in self.lifted_with):
            found.append(f"lifted to what was never there: {self.lifted_with}")
        for partition, boundary in self.target.boundaries.items():
            here, there = self.target.logs[partition], self.source.partitions[partition].log
            if here != there[: len(here)] or len(here) != boundary:
                found.append("another log than the source's")
            unknown = self.source.known(partition) - fold(here) - self.target.taken_over[partition]
            if unknown:
                found.append(f"a retry of these would be there twice: {unknown}")
            beyond = set(self.source.acknowledged[partition]) - {each.write for each in here}
            if beyond:
                found.append(f"acknowledged and not here: {sorted(beyond)[:3]}")
        return found


class DeletableDestination(DrayDestination):
    """`is_deleted`: its topic is, here."""

    is_deleted = False

    async def boundary(self, partition: int) -> int | None:
        if self.is_deleted:
            raise StreamClosed(f"stream {partition} is closed")
        return await super().boundary(partition)


class ProcessDestination:
    """The topic at Dray, as one process decides it. Versions are those of the log."""

    is_dead = False

    def __init__(self, world: World) -> None:
        self._world = world
        self._target = world.target
        self.end = world.target.end
        self.last_epoch = world.target.last_epoch
        self.producers = world.target.producers
        self.boundary = world.target.boundary

    async def decide(
        self,
        partition: int,
        boundary: int,
        taken_over: Collection[SourceProducer],
        is_allowed: Callable[[], Awaitable[bool]],
    ) -> bool:
        world = self._world
        while True:
            version = world.versions[partition]
            if partition in self._target.boundaries:
                return self._target.boundaries[partition] == boundary
            await world.runtime.sleep(0.01 * partition)  # a process may die with some of them decided
            if self.is_dead:
                raise Killed
            if len(self._target.logs[partition]) != boundary or not await is_allowed():
                return False
            world.deciding = True
            # Once it is sent, it arrives: also when its process has died since.
            write = self._write(partition, boundary, taken_over, version)
            sent = world.runtime.spawn(write, "a write on its way")
            if (done := await asyncio.shield(sent)) is not None:
                return done

    async def _write(
        self, partition: int, boundary: int, taken_over: Collection[SourceProducer], version: int
    ) -> bool | None:
        world = self._world
        await world.runtime.sleep(world.decision_seconds)
        if world.versions[partition] != version:
            return None
        return await self._target.decide(partition, boundary, taken_over)


class SimulatedTopic:
    """The topic as one process has it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.source = world.source
        self.target = world.target
        self.destination = ProcessDestination(world)

    async def mirror(self) -> None:
        self._world.mirrors += 1
        await asyncio.gather(*[self.target.mirror(each) for each in range(PARTITIONS)])

    def stopped(self) -> Mapping[int, str] | None:
        return self._world.stopped

    def try_stopped_again(self) -> bool:
        self._world.tried_again += 1
        return self._world.is_mirror_running

    async def check_users(self, allows: Collection[str]) -> None:
        if self._world.writes_transactions and TRANSACTIONS not in allows:
            raise FenceRefused("payments write transactions to orders")

    async def before_fence(self, kind: str) -> Mapping[str, str]:
        assert kind == "acl"
        if self._world.refuses_fence is not None:
            raise self._world.refuses_fence
        return {"before": "fenced"} if self.source.is_up else OPEN

    def fence(self, kind: str, undo: Mapping[str, str]) -> WatchedFence:
        assert kind == "acl"
        return WatchedFence(self._world, undo)

    async def is_fenced(self, kind: str) -> bool:
        assert kind == "acl"
        return self.source.is_up

    async def forbid(self, partition: int) -> int | None:
        self._world.versions[partition] += 1
        return self.target.boundaries.get(partition)

    async def follow(self, record: MigrationRecord) -> int:
        if self._world.groups_are_denied:
            raise RequestFailed("denied", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if record.state is MigrationState.SWITCHED and self._world.groups:
            self._world.groups -= 1
        return self._world.groups

    async def stragglers(self, record: MigrationRecord) -> Mapping[int, int]:
        assert record.state is MigrationState.SWITCHED
        return self._world.stragglers
