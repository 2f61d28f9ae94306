"""One bucket, and more than one metadata store that would collect in it.

A cluster of logs lives through its weather on a bucket that it owns. Three others come to it. A stranger, a
cluster with fresh metadata that was given the same bucket by mistake: first its start, which must be refused,
and then its collectors, as of a broker that is past its start. A stranger at a copy of the bucket from before
there were owners. And the past of the cluster itself, its metadata as it was at an earlier moment, which
collects in a copy of the bucket of now. None of them may delete what the cluster needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.players import players
from tests.simulation.log.run import first_trouble, until_calm
from tests.simulation.log.world import DOMAINS, LogWorld, Report

from dray.broker.cluster import bucket_owner
from dray.broker.cluster.identity import ClusterInfo, open_cluster
from dray.daemons.assembly.settings import log_settings
from dray.daemons.config import Settings
from dray.log import Collector
from dray.log.life.deletions import RELEASED, Brake, MayDelete
from dray.log.stream_store import StreamStore
from dray.log.wal import parse_object_path
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Operation, Outcome
from dray.metadata.memory import MemoryState
from dray.objects.contract import ObjectError, ObjectStore
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.tables.compaction.upkeep import bucket_survey
from dray_simulation.checks.log_truth import Violation
from dray_simulation.kernel.faults import FaultyObjects, FaultyStore
from dray_simulation.kernel.loop import run
from dray_simulation.kernel.runtime import SimulatedRuntime, true_wall_ms

SECONDS: Final = 4.0
_OURS: Final = ClusterInfo("the-cluster-that-owns-", DOMAINS, 1)
_STRANGE: Final = 0x57_4A_46
_ROUNDS: Final = 8
_GRACE: Final = 5.0  # longer than any round takes
_BRAKE: Final = Brake(share=0.5, least=2)


def simulate_shared_bucket(seed: int, seconds: float = SECONDS) -> Report:
    """Raises what it found; else says what it covered."""
    return run(_simulate(seed, seconds))


class _OwnedWorld(LogWorld):
    """The cluster whose bucket it is: its collectors ask, and are allowed."""

    def guard(self, objects: ObjectStore) -> MayDelete:
        return bucket_owner.BucketGuard(objects, _OURS.cluster_id)


async def _simulate(seed: int, seconds: float) -> Report:
    world = _OwnedWorld(seed)
    chance = Random(seed ^ _STRANGE)
    await bucket_owner.put_owner(MemoryObjects(SimulatedRuntime(seed), world.bucket), _OURS)
    await world.start()
    stranger = _Visitor(world.bucket, MemoryState(), chance.getrandbits(48), world.fail)
    stranger.forbid = lambda path: f"a stranger deleted {path}"
    tasks = [asyncio.ensure_future(player) for player in (*players(world), _intrude(stranger, world))]
    past = MemoryState()
    remembered = chance.random() * chance.random() * seconds  # rather early: little is known then
    tasks.append(asyncio.ensure_future(_remember(world, remembered, past)))
    try:
        await first_trouble(world, tasks, seconds)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await _come_before_owners(world, chance)
        await _come_from_the_past(world, past, chance)
        await until_calm(world)
    finally:
        stranger.end()
        for broker in world.brokers:
            broker.crash()
        await asyncio.sleep(1)  # until the last of their tasks is gone
    return world.report()


class _Visitor:
    """A process with a metadata store of its own, or an earlier one, at the bucket of another cluster."""

    def __init__(
        self, bucket: MemoryBucket, state: MemoryState, seed: int, fail: Callable[[BaseException], None]
    ) -> None:
        self.bucket = bucket
        self.forbid: Callable[[str], str | None] = lambda _: None  # why this object may not be deleted
        self.deleted = 0
        self._state = state
        self._fail = fail
        self.runtime = SimulatedRuntime(seed)
        weather = LogConditions.choose(seed).weather
        self.store = FaultyStore(state, self._apply, self.runtime, weather)
        self.objects = FaultyObjects(
            MemoryObjects(self.runtime, bucket),
            lambda path, data: bucket.put(path, data, true_wall_ms()),
            self._delete,
            self.runtime,
            weather,
        )

    def _apply(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        return self._state.apply(domain, operations, None, asyncio.get_running_loop().time())

    def _delete(self, path: str) -> None:
        why = self.forbid(path)
        if why is not None:
            self._fail(Violation(why))
        self.deleted += path in self.bucket.objects
        self.bucket.delete(path)

    async def claim(self) -> str | None:
        """Start as a broker does, again while stores fail: why it is refused, None where it is not."""

        async def look_around() -> str | None:
            random = self.runtime.random
            return (await bucket_survey.survey_bucket(self.store, DOMAINS, self.objects, random)).doubt()

        while True:
            try:
                cluster = await open_cluster(self.store, self.runtime, DOMAINS)
                await bucket_owner.claim_bucket(self.objects, cluster, look_around)
            except bucket_owner.BucketRefused as refused:
                return str(refused)
            except (MetadataError, ObjectError):
                await asyncio.sleep(0.05)
            else:
                return None

    def collector(self, cluster_id: str, grace_seconds: float, brake: Brake) -> Collector:
        settings = replace(log_settings(Settings()), orphan_ttl=0.1, collect_grace=grace_seconds, brake=brake)
        return Collector(
            StreamStore(self.store, DOMAINS, settings.producer_expiry_ms),
            self.objects,
            self.runtime,
            settings,
            may_delete=bucket_owner.BucketGuard(self.objects, cluster_id),
        )

    def end(self) -> None:
        self.store.cut()
        self.objects.cut()
        self.runtime.kill()


# --- strangers


async def _intrude(stranger: _Visitor, world: LogWorld) -> None:
    """Its start is refused; its collectors, were they at work, delete nothing, and no brake is needed."""
    if await stranger.claim() is None:
        raise Violation("a stranger was let in")
    world.counts["strangers refused"] += 1
    collector = stranger.collector("a-cluster-of-strangers", 0.1, RELEASED)
    while True:
        try:
            seen = await collector.run()
            world.counts["rounds held"] += seen.held is not None
        except (MetadataError, ObjectError):
            world.counts["rounds interrupted"] += 1
        await asyncio.sleep(0.1)


async def _come_before_owners(world: LogWorld, chance: Random) -> None:
    """The same bucket as an older build left it: fresh metadata does not get it if anything lies there."""
    copy = MemoryBucket(
        {path: data for path, data in world.bucket.objects.items() if path != bucket_owner.OWNER}
    )
    stranger = _Visitor(copy, MemoryState(), chance.getrandbits(48), world.fail)
    refused = await stranger.claim()
    if copy.objects.keys() - {bucket_owner.OWNER} and refused is None:
        raise Violation("a stranger was given a bucket that is full of another's objects")
    world.counts["buckets without an owner"] += 1
    stranger.end()


# --- the past


async def _remember(world: LogWorld, after: float, past: MemoryState) -> None:
    """The metadata as it is then: what a backup would hold."""
    await asyncio.sleep(after)
    now = asyncio.get_running_loop().time()
    for number in range(DOMAINS):
        source, copy = world.state.domain(number, now), past.domain(number, now)
        copy.entries.update(source.entries)
        copy.keys.extend(source.keys)
    await asyncio.get_running_loop().create_future()


async def _come_from_the_past(world: LogWorld, past: MemoryState, chance: Random) -> None:
    """Restored metadata, of the same cluster: what only the newer one knew waits, and mostly stays."""
    bucket = MemoryBucket(dict(world.bucket.objects))
    visitor = _Visitor(bucket, past, chance.getrandbits(48), world.fail)
    known = {
        keys.wal_id_of(key)
        for number in range(DOMAINS)
        for key in past.domain(number, asyncio.get_running_loop().time()).keys
        if key.startswith((keys.OBJECTS, keys.REFERENCES))
    }
    parsed = {path: found for path in bucket.objects if (found := parse_object_path(path)) is not None}
    unknown = {path for path, found in parsed.items() if found.wal_id not in known}
    await asyncio.sleep(0.2)  # all of it is old enough for garbage
    begun = asyncio.get_running_loop().time()
    must_hold = len(unknown) > _BRAKE.least and len(unknown) > _BRAKE.share * len(parsed)

    def forbid(path: str) -> str | None:
        if path not in unknown:
            return None
        if must_hold:
            return (
                f"restored metadata deleted {path}, one of {len(unknown)} of {len(parsed)} it does not know"
            )
        if asyncio.get_running_loop().time() - begun < _GRACE:
            return f"restored metadata deleted {path}, which it does not know, without waiting"
        return None

    visitor.forbid = forbid
    collector = visitor.collector(_OURS.cluster_id, _GRACE, _BRAKE)
    for _ in range(_ROUNDS):
        try:
            await collector.run()
        except (MetadataError, ObjectError):
            world.counts["rounds interrupted"] += 1
        await asyncio.sleep(_GRACE / 3)
    world.counts["restored"] += 1
    world.counts["restored and braked"] += must_hold
    world.counts["deleted by the restored"] += visitor.deleted
    visitor.end()
    if world.violation.done():
        world.violation.result()
