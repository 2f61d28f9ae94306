"""A small cluster with one topic that began elsewhere, to compact, retain, adopt and delete."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from uuid import UUID

from tests.services.attached_log import CACHE_BYTES
from tests.services.compaction_cluster import Cluster
from tests.unit.migration.entries.foreign_harness import EPOCH, STORE, Source

from dray.broker.topics.model import Topic, TopicSettings
from dray.kafka.records import Record, decode, twin
from dray.kafka.records.header import CONTROL, TRANSACTIONAL
from dray.log import Collector
from dray.log.life.retention import Retention
from dray.log.types import ReadRequest
from dray.migration.entries.kind import ForeignEntries
from dray.migration.entries.lay_down import lay_down
from dray.migration.entries.ownership import ForeignOwnership
from dray.migration.entries.pieces import as_data
from dray.migration.entries.segments import ForeignSegments, ForeignStore
from dray.migration.formats import walk_batches
from dray.objects.memory import MemoryObjects
from dray.objects.read_only import ReadOnlyStore
from dray_simulation.kernel.runtime import SimulatedRuntime

MANY = 1 << 30
PRODUCER = 5
"""Of the transactions that tests make up."""


class Attached:
    """A cluster with one topic that began elsewhere."""

    def __init__(self, source: Source, config: dict[str, str] | None = None) -> None:
        self.source = source
        objects = ReadOnlyStore(MemoryObjects(SimulatedRuntime(9), source.bucket))
        self.cluster = Cluster(foreign={STORE: ForeignStore(objects, source.keys)})
        self.config = {"retention.ms": "-1", **(config or {})}
        self.stream = -1
        self.topic: Topic | None = None

    async def start(self) -> Attached:
        [self.stream] = await self.cluster.log.take_stream_ids(1)
        await lay_down(self.cluster.streams, self.stream, self.source.attached())
        self.topic = Topic(
            "orders",
            UUID(int=77),
            (self.stream,),
            self.config,
            0,
            TopicSettings.of(self.config, {}),
            leader_epoch=EPOCH,
        )
        self.cluster.topics.topics.append(self.topic)
        self.cluster.written[self.stream] = []
        return self

    def committed(self) -> list[tuple[int, bytes]]:
        """What a reader of committed records sees of the source: by a walk over its bytes."""
        found: list[tuple[int, bytes]] = []
        for data in self.source.contents:
            for batch in walk_batches(data):
                header = batch.header
                aborted = header.attributes & TRANSACTIONAL and any(
                    one.producer_id == header.producer_id
                    and one.first_offset <= header.base_offset <= one.last_offset
                    for one in self.source.aborted
                )
                if header.attributes & CONTROL or aborted:
                    continue
                plain = as_data(data[batch.position : batch.end])
                columns = decode(plain, sparse=True)
                found += [(record.offset, bytes(record.value or b"")) for record in columns.records()]
        return found

    async def read(self) -> list[tuple[int, bytes]]:
        """As a consumer of committed records does, with a broker that has nothing in memory."""
        log = self.cluster.new_log()
        bounds = await log.bounds(self.stream)
        offset, found = bounds.start, []
        while offset < bounds.end:
            [result] = await log.fetch(
                [ReadRequest(self.stream, offset, MANY)], min_bytes=0, max_bytes=MANY, max_wait_ms=0
            )
            if result.error is not None:
                raise result.error
            assert result.buffers, f"a consumer stands still at {offset}"
            ahead = sorted(result.aborted, key=lambda one: one[1])
            aborted: set[int] = set()  # as Java's consumer does: from its first offset to its marker
            for buffer in result.buffers:
                for batch in walk_batches(buffer):
                    header = batch.header
                    assert header.leader_epoch == EPOCH
                    beyond = batch.last_offset + 1
                    while ahead and ahead[0][1] <= batch.last_offset:
                        aborted.add(ahead.pop(0)[0])
                    if header.attributes & CONTROL:
                        aborted.discard(header.producer_id)
                    hidden = header.attributes & TRANSACTIONAL and header.producer_id in aborted
                    if not header.attributes & CONTROL and not hidden:
                        plain = as_data(buffer[batch.position : batch.end])
                        found += [
                            (record.offset, bytes(record.value or b""))
                            for record in decode(plain, sparse=True).records()
                            if record.offset >= offset
                        ]
                    offset = max(offset, beyond)
        return found

    def ownership(self) -> ForeignOwnership:
        cluster = self.cluster
        segments = ForeignSegments(cluster.objects, cluster.runtime, cluster.foreign)
        retention = Retention(cluster.streams, cluster.runtime, cluster.settings)
        return ForeignOwnership(cluster.streams, segments, cluster.objects, cluster.runtime, retention)

    async def collect(self, rounds: int = 3) -> None:
        cluster = self.cluster
        collector = Collector(
            cluster.streams,
            cluster.objects,
            cluster.runtime,
            cluster.settings,
            may_delete=cluster.may_delete,
            outside=ForeignEntries(cluster.objects, cluster.runtime, cluster.foreign, CACHE_BYTES),
        )
        for _ in range(rounds):
            await collector.run()
            await asyncio.sleep(cluster.settings.orphan_ttl + 1)

    def foreign_bytes(self) -> dict[str, bytes]:
        return {path: stored.data for path, stored in self.source.bucket.objects.items()}


def aborted(base: int) -> tuple[int, bytearray]:
    """Two records of a transaction, at their base offset."""
    return base, transactional([b"aborted"] * 2, TRANSACTIONAL)


def transactional(values: Sequence[bytes], attributes: int) -> bytearray:
    records = [
        Record(offset=place, timestamp=1_000, key=b"\0\0\0\0", value=value, headers=())
        for place, value in enumerate(values)
    ]
    return twin.encode(
        records, attributes=attributes, producer_id=PRODUCER, producer_epoch=0, base_sequence=0
    )
