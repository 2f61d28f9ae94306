"""A cluster in bad weather: whole brokers on shared stores, the network between, and the truth about all.

The oracle hears of every write at the moment it happens, and of every answer that a client is given.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextvars import Context
from hashlib import blake2b
from random import Random
from typing import Any, Final, cast

from dray.broker.cluster import BucketGuard
from dray.broker.cluster.identity import decode_cluster
from dray.kafka.client.cluster import Address
from dray.kafka.protocol import ErrorCode
from dray.metadata import keys
from dray.metadata.contract import Operation, Outcome, Put
from dray.metadata.memory import MemoryState
from dray.metadata.sessions import session_identity
from dray.objects.contract import ObjectStore
from dray.objects.memory import MemoryBucket
from dray.tables.contract import TopicTable
from dray_simulation.checks import history
from dray_simulation.checks.cluster_truth import ClusterTruth, check_starts
from dray_simulation.checks.group_truth import CommittedOffsets, Ownership
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.administrator import Administrator
from dray_simulation.cluster.broker import TROUBLE, ClusterBroker
from dray_simulation.cluster.builds import Builds, OlderStore
from dray_simulation.cluster.compactor import ClusterCompactor, JudgedCatalog
from dray_simulation.cluster.conditions import (
    COMPACTED,
    COMPACTED_CONFIG,
    MAIN,
    SPARE,
    SPARE_PARTITIONS,
    ClusterConditions,
    Place,
)
from dray_simulation.cluster.tables import Table
from dray_simulation.kernel.faults import FaultyStore
from dray_simulation.kernel.loop import SimulationLoop
from dray_simulation.kernel.network import SimulatedNetwork
from dray_simulation.kernel.runtime import SimulatedRuntime, true_wall_ms
from dray_simulation.kernel.trace import Trace
from dray_simulation.kernel.weather import UnexpectedErrors, was_injected

PORT: Final = 9092
_TICKS: Final = 1000


class _ServerState(MemoryState):
    """Sessions run out by the server's clock, whatever has become of the process that opened them."""

    def _expire_later(self, *about: Any) -> None:
        Context().run(super()._expire_later, *about)


class ClusterWorld:
    def __init__(self, conditions: ClusterConditions) -> None:
        self.conditions = conditions
        self.random = Random(conditions.seed ^ 0x5EED)
        self.counts: Counter[str] = Counter()
        self.operations: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.trace = Trace()
        self.state = _ServerState()
        self.bucket = MemoryBucket()
        self.catalog = JudgedCatalog(self)
        self.network = SimulatedNetwork(conditions.network)
        self.truth = ClusterTruth()
        self.builds = Builds(self)
        self.history = history.History()
        self.committed = CommittedOffsets()
        self.ownership: dict[str, Ownership] = {}
        self.generations: dict[str, int] = defaultdict(int)
        self.calm = False  # whether members have stopped coming and going
        self.under_way: dict[tuple[str, bytes], tuple[Place, list[bytes], float]] = {}
        self.violation: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.compactors = [ClusterCompactor(self, number) for number in range(conditions.compactors)]
        self.brokers = [
            ClusterBroker(self, place, f"broker-{place}", PORT) for place in range(conditions.brokers)
        ]
        self.addresses: list[Address] = [(broker.host, broker.port) for broker in self.brokers]
        self._fingerprint = blake2b(digest_size=16)
        self._processes = 0
        self._running: set[int] = set()
        loop = cast(SimulationLoop, asyncio.get_running_loop())
        loop.network = self.network
        loop.ticks = _TICKS
        loop.set_exception_handler(self._complain)

    # --- time, and what is known of it

    @staticmethod
    def now() -> float:
        return asyncio.get_running_loop().time()

    def owners(self, group: str) -> Ownership:
        return self.ownership.setdefault(group, Ownership(group))

    # --- the shared stores, at the moment something happens

    def apply(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        sessions = {operation.session for operation in operations if isinstance(operation, Put)} - {None}
        identity = session_identity(domain, sessions.pop()) if sessions else None
        self._judge(lambda: self.builds.check_deletions(domain, operations))
        outcomes = self.state.apply(domain, operations, identity, self.now())
        self._happened(domain, [outcome.version or int(outcome.applied) for outcome in outcomes])
        self._judge(lambda: self.truth.applied(operations, outcomes))
        self._judge(lambda: check_starts(operations, outcomes, self.history.starts))
        self._judge(lambda: self.builds.check_level(operations))
        self.counts["index swaps"] = self.truth.log.swaps
        self.counts["carried entries"] = self.truth.log.carried
        self.counts["packs"] = self.truth.log.packs
        self.counts["compacted by key"] = self.truth.cleaned.superseded
        self.counts["tombstones gone"] = self.truth.cleaned.tombstones
        self.counts["cleaning rounds"] = len(self.truth.cleaned.rounds)
        self.counts["clean points"] = self.truth.cleaned.points
        return outcomes

    def store_client(
        self, runtime: SimulatedRuntime, *, older: bool, unexpected: UnexpectedErrors | None = None
    ) -> FaultyStore:
        """For one process, of the older build or of the newer one."""
        apply, weather = self.builds.apply(older=older), self.conditions.weather
        limits = self.conditions.limits
        if not older or self.builds.upgraded:
            return FaultyStore(self.state, apply, runtime, weather, limits, unexpected)
        store = OlderStore(self.state, apply, runtime, weather, limits, unexpected)
        store.builds = self.builds
        return store

    def store_object(self, path: str, data: bytes) -> None:
        self._happened("put", path, len(data))
        self.bucket.put(path, data, true_wall_ms())
        self._judge(lambda: self.truth.log.uploaded(path, data))

    def delete_object(self, path: str) -> None:
        self._happened("delete", path)
        self.bucket.delete(path)
        self._judge(lambda: self._check_deleted(path))

    def _check_deleted(self, path: str) -> None:
        self.truth.log.deleted(path)
        for table in self.catalog.tables.values():
            if any(path in snapshot.files for snapshot in table.snapshots):
                raise Violation(f"{path} was deleted, and the table of {table.topic.topic} needs it")

    def table_changed(self, table: Table) -> None:
        """A commit of a table has happened."""
        self._happened("table", table.topic.topic, len(table.newest.files))
        self.counts["table commits"] += 1
        files = table.newest.files.values()
        self._judge(lambda: self.truth.table_committed(table.topic.topic_id, files))

    def table_dropped(self, topic: TopicTable) -> None:
        self._happened("drop", topic.topic)
        self._judge(lambda: self.builds.check_drop(topic.topic, topic.topic_id))

    def _happened(self, *what: object) -> None:
        self._fingerprint.update(repr((self.now(), *what)).encode())

    def keys(self, prefix: str) -> list[str]:
        """Those that are there now, in any domain."""
        found: list[str] = []
        for number in range(self.conditions.domains):
            found += [key for key in self.state.domain(number, self.now()).keys if key.startswith(prefix)]
        return found

    def guard(self, objects: ObjectStore) -> BucketGuard:
        """Of a process that knows the cluster, as every compactor does when it begins to work."""
        record = self.state.domain(keys.CLUSTER_DOMAIN, self.now()).entries[keys.CLUSTER]
        return BucketGuard(objects, decode_cluster(record.record.value).cluster_id)

    def fingerprint(self) -> str:
        return self._fingerprint.hexdigest()

    def complete_history(self) -> history.History:
        """With the writes whose fate is not known."""
        for (client, _), (place, values, sent) in self.under_way.items():
            for stream in self.truth.streams_of(*place):
                write = history.Write(
                    client, stream, tuple(values), sent, self.now(), history.WriteOutcome.UNKNOWN
                )
                self.history.writes.append(write)
        self.under_way.clear()
        return self.history

    # --- violations

    def _judge(self, act: Callable[[], None]) -> None:
        """A violation ends the run: raised into the code under test, it might be caught."""
        try:
            act()
        except Violation as violation:
            self.fail(violation)

    def fail(self, violation: BaseException) -> None:
        if not self.violation.done():
            self.violation.set_exception(violation)

    def _complain(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Of errors that were not caught, in a callback or in a task that is not awaited."""
        error = context.get("exception")
        if isinstance(error, BaseException) and not (isinstance(error, TROUBLE) or was_injected(error)):
            self.fail(error)

    def expect(self, who: str, what: str, code: int, allowed: str) -> None:
        """An answer with an error that a client of a good request may get; any other is a violation."""
        name = ErrorCode.name_of(code)
        self.errors[f"{what}: {name}"] += 1
        self.trace(who, what, "was answered", name)
        if name not in allowed.split():
            raise Violation(f"{who}: {what} was answered {name}")

    # --- brokers

    def new_process(self) -> int:
        self._processes += 1
        self._running.add(self._processes)
        return self._processes

    def process_ended(self, process: int) -> None:
        self._running.discard(process)

    def is_running(self, process: int) -> bool:
        return process in self._running

    async def start(self) -> None:
        if self.builds.are_two:
            self.builds.found()
        if self.conditions.level_wait is not None:  # the older one is there first
            for place in self.conditions.older_brokers:
                await self.brokers[place].up()
        await asyncio.gather(*(broker.up() for broker in self.brokers))

    @property
    def places(self) -> list[Place]:
        """The partitions that clients work on."""
        main = [(MAIN, partition) for partition in range(self.conditions.partitions)]
        return main + [(SPARE, partition) for partition in range(SPARE_PARTITIONS)]

    async def create_topics(self) -> None:
        """In the same weather, by a client like any other."""
        founder = Administrator(self, "founder", self.conditions.seed)
        for name, partitions in ((MAIN, self.conditions.partitions), (SPARE, SPARE_PARTITIONS)):
            while name not in self.truth.named:
                await founder.create(name, partitions)
        while COMPACTED not in self.truth.named:
            await founder.create(COMPACTED, 1, COMPACTED_CONFIG)

    def faults(self) -> Counter[str]:
        conditions = self.conditions
        kinds = {disaster: self.counts[disaster] for disaster in self.counts if disaster.startswith("! ")}
        found = Counter({name.removeprefix("! "): count for name, count in kinds.items()})
        return found + conditions.weather.counts + conditions.network.counts
