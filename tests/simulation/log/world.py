"""A cluster of logs in bad weather: brokers that crash and stand still, clients that try again, collectors.

Everything goes through the real code of `dray.log`. The oracle hears of every step at the moment it
happens; at the end the weather calms, everything late arrives, and nothing may be left over.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from random import Random

from tests.services.attached_log import CACHE_BYTES
from tests.simulation.log.conditions import LogConditions
from tests.simulation.scripted import bucket_is_ours

from dray.broker.cluster.bucket_owner import OWNER
from dray.log import Collector, Log
from dray.log.append.carried_hints import CarriedSurvey, survey_carried
from dray.log.life.deletions import RELEASED, MayDelete
from dray.log.life.retention import Retention
from dray.log.settings import LogSettings
from dray.log.stream_state import load_stream_state
from dray.log.stream_store import StreamStore
from dray.log.types import LogError, LogUnavailable
from dray.metadata import keys
from dray.metadata.contract import MetadataError, Operation, Outcome
from dray.metadata.memory import MemoryState
from dray.migration.entries.kind import ForeignEntries
from dray.migration.entries.segments import ForeignStore
from dray.objects.contract import ObjectError, ObjectStore
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray_simulation.checks.log_truth import LogTruth, Violation
from dray_simulation.kernel.faults import FaultyObjects, FaultyStore
from dray_simulation.kernel.runtime import SimulatedRuntime, true_wall_ms

DOMAINS = 2
_QUIET_ROUNDS = 4
_MOST_ROUNDS = 200


class Broker:
    """One simulated process: its own clients of the shared stores, and a log on them."""

    def __init__(self, world: LogWorld, seed: int) -> None:
        self.runtime = SimulatedRuntime(seed)
        weather = world.conditions.weather
        self.store = FaultyStore(world.state, world.apply, self.runtime, weather)
        self.objects = FaultyObjects(
            MemoryObjects(self.runtime, world.bucket),
            world.store_object,
            world.delete_object,
            self.runtime,
            weather,
        )
        self.log = Log(
            self.store,
            self.objects,
            self.runtime,
            DOMAINS,
            world.conditions.settings,
            may_delete=world.guard(self.objects),
            outside=world.outside(self.objects, self.runtime),
        )
        self.log.carry(True)

    def crash(self) -> None:
        self.store.cut()
        self.objects.cut()
        self.runtime.kill()


@dataclass(frozen=True, slots=True)
class Report:
    """What a run covered, and a fingerprint of all that happened in it, in order and to the instant."""

    counts: Counter[str]
    fingerprint: str


class LogWorld:
    """The stores that brokers share, the brokers, and the truth about both."""

    def __init__(self, seed: int, conditions: LogConditions | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.conditions = conditions or LogConditions.choose(seed)
        self.counts: Counter[str] = Counter()
        self.state = MemoryState()
        self.bucket = MemoryBucket()
        self.truth = LogTruth()
        self.streams: list[int] = []
        self.closing: set[int] = set()  # streams whose closing has begun
        self.deleted_below: dict[int, int] = {}  # by stream, as it was acknowledged
        self.attached: set[int] = set()  # streams that began elsewhere
        self.brokers: list[Broker] = []
        self.violation: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fingerprint = blake2b(digest_size=16)

    # --- the shared stores, at the moment something happens

    def apply(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        now = asyncio.get_running_loop().time()
        outcomes = self.state.apply(domain, operations, None, now)
        self._happened(domain, [outcome.version or int(outcome.applied) for outcome in outcomes])
        self._judge(lambda: self.truth.applied(operations, outcomes))
        return outcomes

    def store_object(self, path: str, data: bytes) -> None:
        self._happened("put", path, data)
        self.bucket.put(path, data, true_wall_ms())
        self._judge(lambda: self.truth.uploaded(path, data))

    def delete_object(self, path: str) -> None:
        self._happened("delete", path)
        self.bucket.delete(path)
        self._judge(lambda: self.truth.deleted(path))

    def guard(self, _objects: ObjectStore) -> MayDelete:
        """What a process of this cluster asks before it deletes."""
        return bucket_is_ours

    def outside(self, objects: ObjectStore, runtime: SimulatedRuntime) -> ForeignEntries:
        return ForeignEntries(objects, runtime, self.foreign_stores(runtime), CACHE_BYTES)

    def foreign_stores(self, _runtime: SimulatedRuntime) -> dict[str, ForeignStore]:
        """The stores of other systems."""
        return {}

    def _happened(self, *what: object) -> None:
        self._fingerprint.update(repr((asyncio.get_running_loop().time(), *what)).encode())

    def _judge(self, act: Callable[[], None]) -> None:
        """A violation ends the run: raised into the code under test, it might be caught."""
        try:
            act()
        except Violation as violation:
            self.fail(violation)

    def fail(self, violation: BaseException) -> None:
        if not self.violation.done():
            self.violation.set_exception(violation)

    def report(self) -> Report:
        self.counts["carried entries"] += self.truth.carried
        self.counts["packs"] += self.truth.packs
        return Report(self.counts, self._fingerprint.hexdigest())

    # --- brokers

    def any_broker(self) -> Broker:
        return self.random.choice(self.brokers)

    async def start(self) -> None:
        for _ in range(self.conditions.brokers):
            self.brokers.append(self._new_broker())
        await self._create_streams()
        for broker in self.brokers:
            await broker.log.start()

    async def replace(self, place: int) -> None:
        """Crash a broker, and start another in its place."""
        self.counts["crashes"] += 1
        self.check_tasks()
        self.brokers[place].crash()
        self.brokers[place] = self._new_broker()
        await self.brokers[place].log.start()

    def check_tasks(self) -> None:
        for broker in self.brokers:
            for failure in broker.runtime.failures:
                self.fail(failure)

    def _new_broker(self) -> Broker:
        return Broker(self, self.random.getrandbits(48))

    async def _create_streams(self) -> None:
        """In the same weather: ids whose creation is unclear are never used."""
        while not self.streams:
            try:
                self.streams = await self.brokers[0].log.create_streams(self.conditions.streams)
            except LogUnavailable:
                self.counts["streams burnt"] += self.conditions.streams
        self.truth.create(self.streams)

    # --- the end

    async def calm_down(self) -> None:
        """Brokers die, late writes arrive while a collector works, then all quiesces."""
        weather, settings = self.conditions.weather, self.conditions.settings
        self.check_tasks()
        for broker in self.brokers:
            broker.crash()
        weather.calm()
        self.brokers = [self._new_broker()]
        [last] = self.brokers
        store = StreamStore(last.store, DOMAINS, settings.producer_expiry_ms)
        collector = self._collector(store, last, settings)
        rounds = 0
        while weather.pending or rounds < _QUIET_ROUNDS:
            rounds = 0 if weather.pending else rounds + 1
            try:
                await self._finish_streams(store, last)
                braked = (await collector.run()).braked
            except (MetadataError, ObjectError, LogError) as error:
                raise Violation(f"calm, but {error}") from error
            if rounds == _QUIET_ROUNDS and braked is not None:
                # By late copies, where little else is: somebody looks at them, and lets them go.
                self.counts["brakes released"] += 1
                rounds = 0
                collector = self._collector(store, last, replace(settings, brake=RELEASED))
            await asyncio.sleep(settings.orphan_ttl + settings.collect_grace)
        await self._go_back(store, last.log)
        await self._check_leftovers(store)

    def _collector(self, store: StreamStore, broker: Broker, settings: LogSettings) -> Collector:
        return Collector(
            store,
            broker.objects,
            broker.runtime,
            settings,
            may_delete=self.guard(broker.objects),
            outside=self.outside(broker.objects, broker.runtime),
        )

    async def _go_back(self, store: StreamStore, log: Log) -> None:
        """Carrying ends, as before an older build comes: nothing is left that it could not read."""
        log.carry(False)
        for _ in range(_MOST_ROUNDS):
            for rounds in log._packing:
                await rounds.run()
            if not self._keys(keys.CARRIED):
                break
        if (left := await survey_carried(store)) != CarriedSurvey():
            raise Violation(f"an older build would meet {left}")

    async def _finish_streams(self, store: StreamStore, last: Broker) -> None:
        """What is left of jobs is done, and what late writes bring back is removed."""
        retention = Retention(store, last.runtime, self.conditions.settings)
        for stream in self.streams:
            if self.truth.streams[stream].closed:
                await last.log.sweep_streams([stream])
            else:
                await retention.raise_start(stream, self.truth.start(stream))

    async def _check_leftovers(self, store: StreamStore) -> None:
        self.truth.check_leftovers(
            set(self.bucket.objects) - {OWNER},
            self._keys(keys.REFERENCES),
            self._keys(keys.STAGING),
            self._keys(keys.OBJECTS),
        )
        for stream in self.streams:
            if not self.truth.streams[stream].closed:
                await self._check_producers(store, stream)

    async def _check_producers(self, store: StreamStore, stream: int) -> None:
        """The state of the producers is what their batches say."""
        state = await load_stream_state(store, stream)
        for producer in (1, 2):
            epoch, batch = self.truth.last_batch(stream, f"p{producer}")
            found = state.producers.get(producer)
            if (found is None) != (batch < 0) or (found is not None and found.epoch != epoch):
                raise Violation(f"stream {stream}: the state of producer {producer} is lost")
            if found is not None and (newest := found.batches[-1]).base_offset < self.truth.end(stream):
                record = self.truth.streams[stream].records[newest.base_offset]
                if record != (f"p{producer}.{epoch}", batch, 0):
                    raise Violation(f"stream {stream}: the state of producer {producer} is at {record}")

    def _keys(self, prefix: str) -> list[str]:
        found: list[str] = []
        for number in range(DOMAINS):
            domain = self.state.domain(number, asyncio.get_running_loop().time())
            found += [key for key in domain.keys if key.startswith(prefix)]
        return found
