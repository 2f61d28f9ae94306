"""One bucket, and two metadata stores of the same cluster: production, and a copy of its metadata that a
drill starts beside it, while both live through the weather of their stores.

Processes of production come and go, but some always run. Those of the drill start at any time after the copy
was made. All of them are asked all the time whether they may delete: production must come to it and never
lose it for long, the drill must never come to it, and must know within a bound that it is not the cluster.

From the copy on until the bucket has a mark that the copy cannot know (the two are *apart*), production keeps
a process with proof. Without one, nothing tells it from the copy: `docs/design/0150-disaster-recovery.md`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from hashlib import blake2b
from random import Random
from typing import Final

from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.world import Report

from dray.broker.cluster import TallyKeeper
from dray.broker.cluster.bucket_owner import put_owner
from dray.broker.cluster.identity import ClusterInfo
from dray.broker.cluster.tally import NOTHING, Tally, decode_tally, number_of_mark
from dray.metadata import keys
from dray.metadata.contract import Operation, Outcome
from dray.metadata.memory import MemoryState
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray_simulation.checks.log_truth import Violation
from dray_simulation.kernel.faults import FaultyObjects, FaultyStore
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime, true_wall_ms

INTERVAL: Final = 10.0
_DOMAINS: Final = 2
_CLUSTER: Final = ClusterInfo("the-cluster-of-this-bu", _DOMAINS, 1)
_APART: Final = 2.5 * INTERVAL
"""In which the two are apart. The copy may know the next mark, which is put at once, and the one after it
comes in an interval and a half, as looks are half of one apart. One more for looks that fail: each is
repeated after a twelfth of an interval."""
_KNOWS: Final = 1.5 * INTERVAL
"""In which a drill that runs knows, once they are: half an interval for looking, one for looks that fail."""
_PROVEN: Final = 10 * INTERVAL
"""In which a process of production that runs has proof. Alone it may have to wait twice, as the first mark
may be one that was announced before it began: for six intervals in which looks succeed. In the worst of these
stores one in eleven fails, and five sixths of the time count."""
_ASKS_EVERY: Final = 1.0


def simulate_forks(seed: int) -> Report:
    """Raises what it found; else says what it covered."""
    return run(_simulate(seed))


class _Side:
    """A metadata store, and the processes on it."""

    def __init__(self, world: _World, name: str, state: MemoryState) -> None:
        self.world = world
        self.name = name
        self.state = state
        self.processes: list[_Process] = []

    def start(self, *, is_new: bool = False) -> _Process:
        process = _Process(self, is_new)
        self.processes.append(process)
        return process

    def apply(self, domain: int, operations: list[Operation]) -> list[Outcome]:
        outcomes = self.state.apply(domain, operations, None, asyncio.get_running_loop().time())
        self.world.happened(
            self.name, domain, [outcome.version or int(outcome.applied) for outcome in outcomes]
        )
        return outcomes

    @property
    def is_held(self) -> bool:
        return any(process.keeper.held() is not None for process in self.processes)


class _Process:
    def __init__(self, side: _Side, is_new: bool) -> None:
        self.side = side
        self.started = asyncio.get_running_loop().time()
        self.allowed_at: float | None = None  # since it was started, or all were by an outage
        world = side.world
        self.runtime = runtime = SimulatedRuntime(world.chance.getrandbits(48))
        self.store = FaultyStore(side.state, side.apply, runtime, world.weather)  # type: ignore[arg-type]
        self.objects = FaultyObjects(
            MemoryObjects(runtime, world.bucket),
            world.put,
            world.delete,
            runtime,
            world.weather,
        )
        self.keeper = TallyKeeper(
            self.store, self.objects, runtime, _CLUSTER.cluster_id, INTERVAL, is_new=is_new
        )
        self.keeper.start()
        self.asking = asyncio.ensure_future(self._ask())

    async def _ask(self) -> None:
        while True:
            if await self.keeper() is None:
                self.side.world.allowed(self)
            await asyncio.sleep(_ASKS_EVERY)

    def end(self) -> None:
        self.side.processes.remove(self)
        self.asking.cancel()
        self.store.cut()
        self.objects.cut()
        self.runtime.kill()


class _World:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.weather = LogConditions.choose(seed).weather
        self.weather.stalled = 0.0
        self.bucket = MemoryBucket()
        self.counts: Counter[str] = Counter()
        self.violation: str | None = None
        self.production = _Side(self, "production", MemoryState())
        self.drill: _Side | None = None
        self.copied: Tally | None = None
        self.copied_at = 0.0
        self.apart_at: float | None = None
        self.fingerprint = blake2b(digest_size=16)

    def happened(self, *what: object) -> None:
        self.fingerprint.update(repr((asyncio.get_running_loop().time(), *what)).encode())

    def put(self, path: str, data: bytes) -> None:
        self.happened("put", path, data)
        self.bucket.put(path, data, true_wall_ms())

    def delete(self, path: str) -> None:
        self.happened("delete", path)
        self.bucket.delete(path)

    def allowed(self, process: _Process) -> None:
        self.counts[f"{process.side.name} may delete"] += 1
        process.allowed_at = asyncio.get_running_loop().time()
        if process.side is not self.production and self.production.processes:
            self.violation = "a drill beside production may delete"

    def copy(self) -> MemoryState:
        """The metadata as it is now."""
        past, now = MemoryState(), asyncio.get_running_loop().time()
        for number in range(_DOMAINS):
            source, copied = self.production.state.domain(number, now), past.domain(number, now)
            copied.entries.update(source.entries)
            copied.keys.extend(source.keys)
        past._last_version = self.production.state._last_version
        self.copied, self.copied_at = self.tally(), now
        return past

    def tally(self) -> Tally:
        """Production's."""
        entries = self.production.state.domain(0, asyncio.get_running_loop().time()).entries
        return decode_tally(entries[keys.TALLY].record.value) if keys.TALLY in entries else NOTHING

    @property
    def is_together(self) -> bool:
        return self.copied is not None and self.apart_at is None

    def has_proof(self, *, without: _Process | None = None) -> bool:
        return any(each.allowed_at is not None for each in self.production.processes if each is not without)

    def may_end(self, process: _Process) -> bool:
        """Whether production can do without."""
        return not self.is_together or self.has_proof(without=process)

    def _look_apart(self, now: float) -> None:
        if self.copied is None or self.apart_at is not None:
            return
        newest = max((number_of_mark(path) or 0 for path in self.bucket.objects), default=0)
        if newest > self.copied.number + (self.copied.next is not None):
            self.apart_at = now

    def check(self) -> None:
        now = asyncio.get_running_loop().time()
        self._look_apart(now)
        if self.production.is_held:
            self.violation = "production is held"
        for process in self.production.processes:
            if now - max(process.started, process.allowed_at or 0.0) > _PROVEN:
                self.violation = "production may not delete for long"
        if self.is_together and now - self.copied_at > _APART:
            self.violation = "production does not raise its tally"
        if self.drill is not None and (apart_at := self.apart_at) is not None:
            for process in self.drill.processes:
                if now - max(process.started, apart_at) > _KNOWS and not process.keeper.held():
                    self.violation = "a drill does not know that it is not the cluster"
        if self.violation is not None:
            raise Violation(self.violation)


async def _simulate(seed: int) -> Report:
    world = _World(seed)
    chance = world.chance
    await put_owner(MemoryObjects(SimulatedRuntime(seed), world.bucket), _CLUSTER)
    world.production.start(is_new=True)
    world.production.start()
    copied_at = chance.uniform(0.0, 6 * INTERVAL)
    drilled_at = copied_at + chance.choice((0.0, 0.0, chance.uniform(0, INTERVAL)))
    outage_at = chance.choice((1e9, drilled_at + chance.uniform(0, INTERVAL)))
    past: MemoryState | None = None
    try:
        while (now := asyncio.get_running_loop().time()) < 16 * INTERVAL or world.is_together:
            if past is None and now >= copied_at and world.has_proof():
                past = world.copy()
                if chance.random() < 0.5:
                    past = await _between_its_steps(world) or past
            if past is not None and world.drill is None and now >= drilled_at:
                world.drill = _Side(world, "drill", past)
                for _ in range(chance.choice((1, 2))):
                    world.drill.start()
            if now >= outage_at:
                outage_at = 1e9
                await _outage(world)
            if chance.random() < 0.02 and world.may_end(world.production.processes[0]):
                world.production.start()
                world.production.processes[0].end()
                world.counts["production's processes ended"] += 1
            if world.drill is not None and chance.random() < 0.02:
                world.drill.processes[0].end()
                world.drill.start()
            world.check()
            await asyncio.sleep(INTERVAL / 20)
        await _production_ends(world)
    finally:
        for side in (world.production, world.drill):
            for process in [] if side is None else list(side.processes):
                process.end()
        await asyncio.sleep(1)
    return Report(world.counts, world.fingerprint.hexdigest())


async def _between_its_steps(world: _World) -> MemoryState | None:
    """A copy from when a token was announced, and its mark not confirmed: the drill knows the token too."""
    for _ in range(int(2 * INTERVAL / 0.005)):
        if world.tally().next is not None:
            world.counts["copied between two steps"] += 1
            return world.copy()
        await asyncio.sleep(0.005)
    return None


async def _outage(world: _World) -> None:
    """Of the bucket, for all."""
    world.counts["outages"] += 1
    before, world.weather.refused = world.weather.refused, 1.0
    for _ in range(int(5 * INTERVAL)):
        await asyncio.sleep(1.0)
        if world.violation is not None:
            raise Violation(world.violation)
    world.weather.refused = before
    now = asyncio.get_running_loop().time()
    world.copied_at = max(world.copied_at, now)
    for side in (world.production, world.drill):
        for process in [] if side is None else side.processes:
            process.started = now


async def _production_ends(world: _World) -> None:
    """All of it is started again: it is the cluster still, and the drill is not."""
    for process in list(world.production.processes):
        process.end()
    await asyncio.sleep(INTERVAL / 2)
    last = world.production.start()
    for _ in range(200):
        await asyncio.sleep(INTERVAL / 20)
        world.check()
    if last.allowed_at is None:
        raise Violation("production was started again, and may not delete")
