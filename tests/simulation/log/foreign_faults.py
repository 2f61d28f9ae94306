"""A foreign store that fails: it does not answer, is slow, says that an object is gone, or gives other bytes.

What it does is beyond this cluster's care, so a reader may be refused for it. But no reader is given anything
that the source did not write, none is led over a record, nothing of it is remembered once the store is well
again, and streams that were born here are served as if it were not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeVar

from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.foreign_source import STORE
from tests.simulation.log.foreign_world import ForeignLogWorld, SourceObjects, consume, foreign_players
from tests.simulation.log.players import play_plain_producer
from tests.simulation.log.run import first_trouble, until_calm
from tests.simulation.log.world import Report

from dray.log.types import LogError, OutsideFault, ReadRequest
from dray.migration.entries.segments import ForeignStore
from dray.migration.formats import walk_batches
from dray.objects.contract import ObjectError, ObjectMissing
from dray.objects.read_only import ReadOnlyStore
from dray_simulation.checks.log_truth import Violation
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime

SECONDS: Final = 5.0
_BESIDE_SECONDS: Final = 1.5
"""More than a fetch waits for a foreign store beside an answer, and less than it waits for one alone."""
_MANY: Final = 1 << 30
_BASE_OFFSET_SIZE: Final = 8

T = TypeVar("T")


class SourceFaults:
    """Chances are per read."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.refused = random.choice((0.0, 0.2))
        self.missing = random.choice((0.0, 0.1))
        self.damaged = random.choice((0.0, 0.2))
        self.slow = random.choice((0.0, 0.2, 1.0))
        self.slowest = random.choice((0.5, 30.0))
        self.under_way = 0  # slow reads
        self.denied = 0  # reads after which an error may be seen

    def calm(self) -> None:
        self.refused = self.missing = self.damaged = self.slow = 0.0

    def happens(self, chance: float) -> bool:
        return self.random.random() < chance


class FaultySourceObjects(SourceObjects):
    def __init__(self, world: FaultyForeignWorld, runtime: SimulatedRuntime) -> None:
        super().__init__(world, runtime)
        self._faults = world.faults
        self._counts = world.counts

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytearray]:
        faults = self._faults
        if faults.happens(faults.slow):
            self._counts["! foreign store was slow"] += 1
            faults.under_way += 1
            try:
                await asyncio.sleep(faults.random.uniform(0, faults.slowest))
            finally:
                faults.under_way -= 1
        if faults.happens(faults.refused):
            self._counts["! foreign store did not answer"] += 1
            raise ObjectError("the foreign store timed out")
        if faults.happens(faults.missing):
            self._counts["! foreign object was away"] += 1
            faults.denied += 1
            raise ObjectMissing(f"{path}: no such object")
        found = await super().get_ranges(path, ranges)
        if faults.happens(faults.damaged):
            self._counts["! foreign bytes were damaged"] += 1
            faults.denied += 1
            _damage(faults.random.choice(found), faults.random)
        return found

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[Any]], T]
    ) -> T:
        return work(await self.get_ranges(path, ranges))


def _damage(part: bytearray, random: Random) -> None:
    """One bit of a batch, but not of its base offset: no checksum of Kafka covers that."""
    batch = random.choice(list(walk_batches(bytes(part))))
    part[random.randrange(batch.position + _BASE_OFFSET_SIZE, batch.end)] ^= 1 << random.randrange(8)


class FaultyForeignWorld(ForeignLogWorld):
    def __init__(self, seed: int, conditions: LogConditions | None = None) -> None:
        super().__init__(seed, conditions)
        self.faults = SourceFaults(Random(seed ^ 0xFA17))

    def foreign_stores(self, runtime: SimulatedRuntime) -> dict[str, ForeignStore]:
        return {STORE: ForeignStore(ReadOnlyStore(FaultySourceObjects(self, runtime)))}

    def may_refuse(self, error: BaseException) -> bool:
        return isinstance(error, OutsideFault) and self.faults.denied > 0

    def may_be_empty(self, offset: int) -> bool:
        """A fetch does not wait for a slow store for ever."""
        return offset < self.source.end and self.faults.under_way > 0


async def play_beside(world: FaultyForeignWorld, own: int) -> None:
    """Reads a stream that was born here together with the foreign one."""
    while True:
        await asyncio.sleep(world.random.uniform(0.05, 0.3))
        broker, stream = world.any_broker(), world.foreign.stream
        if own in world.closing or world.truth.end(own) <= world.truth.start(own):
            continue
        near = ReadRequest(own, world.truth.start(own), _MANY)
        far = ReadRequest(stream, world.truth.start(stream), _MANY)
        now = asyncio.get_running_loop().time
        try:
            [alone] = await asyncio.wait_for(
                broker.log.fetch([near], min_bytes=1, max_bytes=_MANY, max_wait_ms=0), 5.0
            )
            began = now()
            found = await broker.log.fetch([far, near], min_bytes=1, max_bytes=_MANY, max_wait_ms=0)
        except TimeoutError:
            continue
        if alone.error is None and alone.buffers and now() - began > _BESIDE_SECONDS:
            raise Violation(f"stream {own} was held up by a foreign store for {now() - began:.1f} s")
        world.counts["read beside"] += found[1].error is None


def faulty_players(world: FaultyForeignWorld) -> list[Coroutine[Any, Any, None]]:
    own = next(stream for stream in world.streams if stream != world.foreign.stream)
    return [*foreign_players(world), play_plain_producer(world, own), play_beside(world, own)]


def faulty_conditions(seed: int) -> LogConditions:
    """Only the foreign store fails, so that what is held up is held up by it."""
    chosen = LogConditions.choose(seed)
    chosen.weather.calm()
    weather = replace(chosen.weather, slowest_upload=0.02)
    return replace(chosen, weather=weather, crash_every=1e6, pause_every=1e6, closes=False)


def simulate_faulty_source(seed: int, seconds: float = SECONDS) -> Report:
    """As `simulate_foreign`, with a store of the source that fails."""
    return run(_simulate(seed, seconds))


async def _simulate(seed: int, seconds: float) -> Report:
    world = FaultyForeignWorld(seed, faulty_conditions(seed))
    await world.start()
    tasks = [asyncio.ensure_future(player) for player in faulty_players(world)]
    try:
        await first_trouble(world, tasks, seconds)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        world.faults.calm()
        await asyncio.sleep(world.faults.slowest)
        world.faults.denied = 0
        await _read_to_the_end(world)
        await until_calm(world)
    finally:
        for broker in world.brokers:
            broker.crash()
        await asyncio.sleep(1)
    return world.report()


async def _read_to_the_end(world: FaultyForeignWorld) -> None:
    """The store is well again, and the brokers that met its faults serve all of it."""
    stream = world.foreign.stream
    offset, attempts = world.truth.start(stream), 0
    while offset < world.truth.end(stream):
        attempts += 1
        try:
            following = await consume(world, stream, offset)
        except LogError as error:
            raise Violation(f"all is well, but {error!r} at {offset}") from error
        offset = world.truth.start(stream) if following is None else following
        if attempts > 1000:
            raise Violation(f"all is well, but nothing comes at {offset}")
