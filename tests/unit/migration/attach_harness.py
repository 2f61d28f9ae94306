"""The stores of a cluster, and processes on them that attach a topic, and may die."""

from __future__ import annotations

from dataclasses import replace

from tests.services import room_settings
from tests.unit.migration.sources import aiven_key, in_memory

from dray.base.runtime import SystemRuntime
from dray.broker.groups.offsets import CommittedOffset
from dray.broker.topics import Topics
from dray.log.entries import EntryKind
from dray.log.life.counters import IdCounter
from dray.log.life.lifecycle import Lifecycle
from dray.log.life.retention import Retention
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.memory import MemoryState, MemoryStore
from dray.migration.attach.aiven_tiered import KeyRing
from dray.migration.attach.inventory import Question, SourceLayout, take_inventory
from dray.migration.attach.offsets import GroupOffset
from dray.migration.attach.plan import AttachPlan, make_plan
from dray.migration.attach.reading import SourceReader
from dray.migration.attach.steps import FAILPOINTS, UPLOADS, Attacher, AttachOrder
from dray.migration.entries.ownership import ForeignOwnership
from dray.migration.entries.segments import ForeignSegments
from dray.objects.memory import MemoryBucket, MemoryObjects

DOMAINS = 4
OFFSETS = (GroupOffset("billing", 0, 100, 100, "m", 5), GroupOffset("billing", 1, 7, 7, "", 5))


class Killed(BaseException):
    """What a kill -9 is to the code that it hits."""


class Cluster:
    """The stores of a cluster, and processes on them."""

    def __init__(self, layout: SourceLayout, files: dict[str, bytes]) -> None:
        self.runtime = SystemRuntime(threads=1)
        self.state = MemoryState()
        self.store = MemoryStore(self.runtime, self.state)
        self.bucket = MemoryBucket()
        self.objects = MemoryObjects(self.runtime, self.bucket)
        self.streams = StreamStore(self.store, DOMAINS, 86_400_000)
        self.layout = layout
        self.files = files
        self._source: SourceReader | None = None

    async def source(self) -> SourceReader:
        if self._source is None:
            self._source = await in_memory(self.files.items())
        return self._source

    async def order(self) -> AttachOrder:
        """The inventory is taken anew."""
        source = await self.source()
        keys_known = KeyRing({"key1": aiven_key()})
        question = Question("orders", self.layout, keys=keys_known)
        plan = await make_plan(source, question, await take_inventory(source, question), now_ms=1)
        config = {"compression.type": "zstd"}
        return AttachOrder(replace(plan, offsets=OFFSETS), "memory:", "old", config, keys_known)

    def process(self, dies_after: str = "") -> Attacher:
        def reached(step: str) -> None:
            assert step in FAILPOINTS
            self.seen.append(step)
            if step == dies_after:
                raise Killed

        self.seen: list[str] = []
        lifecycle = Lifecycle(
            self.streams, IdCounter(self.store, self.runtime, keys.STREAM_COUNTER, 1), self.runtime
        )
        topics = Topics(self.store, self.runtime, _Streams(lifecycle), room_settings.topics())
        return Attacher(
            metadata=self.store,
            domains=DOMAINS,
            streams=self.streams,
            lifecycle=lifecycle,
            topics=topics,
            objects=self.objects,
            ownership=ForeignOwnership(
                self.streams,
                ForeignSegments(self.objects, self.runtime),
                self.objects,
                self.runtime,
                Retention(self.streams, self.runtime, room_settings.log()),
            ),
            runtime=self.runtime,
            reached=reached,
        )

    async def keys_below(self, *prefixes: str) -> list[str]:
        found: list[str] = []
        for domain in range(DOMAINS):
            for prefix in prefixes:
                found += [each.key for each in await self.store.scan(domain, prefix, keys.prefix_end(prefix))]
        return sorted(found)

    async def uploads(self) -> list[str]:
        return [info.path async for info in self.objects.list(UPLOADS)]

    async def check_attached(self, plan: AttachPlan) -> None:
        """All of it is there, once."""
        topics = self.process().topics
        topic = await topics.refresh("orders")
        assert topic is not None
        assert (topic.topic_id, len(topic.streams)) == (plan.topic_id, 2)
        assert topic.leader_epoch == 65_536
        assert topic.config == {"retention.ms": "-1", "retention.bytes": "-1", "compression.type": "zstd"}
        for partition, stream in zip(plan.partitions, topic.streams, strict=True):
            view = await self.streams.view(stream)
            assert view is not None
            assert (view.start, view.high_watermark.value.end) == (partition.start, partition.end)
            assert view.high_watermark.value.origin is not None
            assert view.high_watermark.value.origin.boundary == partition.end
            assert {entry.value.kind for entry in view.entries} == {EntryKind.OUTSIDE}
            snapshot = await self.streams.snapshot(stream)
            assert {number for number, _ in snapshot.value.states.items()} == {
                row.producer_id for row in partition.producers
            }
        for offset in OFFSETS:
            domain = keys.domain_of_group(offset.group, DOMAINS)
            stored = await self.store.get(domain, keys.group_offset("billing", "orders", offset.partition))
            assert stored is not None
            assert CommittedOffset.decode(stored.value).offset == offset.offset
            assert CommittedOffset.decode(stored.value).topic_id == plan.topic_id


class _Streams:
    def __init__(self, lifecycle: Lifecycle) -> None:
        self.create_streams = lifecycle.create
        self.close_streams = lifecycle.close
        self.sweep_streams = lifecycle.sweep
