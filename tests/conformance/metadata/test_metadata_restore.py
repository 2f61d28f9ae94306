"""The metadata store is lost, and the bucket is there: a drill on every engine.

A cluster is backed up into its bucket while it works, works on, and loses its metadata store. An empty one
of the same engine gets the backup. What was acknowledged since is given up, and nothing that was handed out
since is handed out again. The old store, should it turn up, is not the cluster any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from tests.conformance.metadata.engines import ENGINES, Engine
from tests.services.batches import batch, joined, plain

from dray.base.runtime import SystemRuntime
from dray.broker.cluster import TallyKeeper
from dray.broker.cluster.identity import decode_cluster
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.stores import Stores
from dray.daemons.broker.node import Node
from dray.daemons.config import FlagValue, Settings, load
from dray.daemons.recovery import restores
from dray.daemons.recovery.backups import back_up_to_bucket, backups_in
from dray.daemons.recovery.restored import read_topics
from dray.daemons.recovery.restores import NEWEST, RestoreOrder, Restorer, RestoreReport
from dray.kafka.client import KafkaConnection
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import decode
from dray.log import Log
from dray.log.jobs.values import WrittenFile
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.tables.compaction.model import Unit
from dray.tables.compaction.paths import unit_prefix
from dray.tables.compaction.writing.executor import LocalUnitWriter

TOPIC: Final = "orders"
SOON: Final = {"DRAY_CLUSTER__TALLY_INTERVAL": "100ms", "DRAY_TOPICS__PARTITIONS": "1"}
CARRIES_NOTHING: Final = SOON | {"DRAY_LOG__CARRY_BYTES": "0"}
DRILLED: Final = ("memory", "sqlite", "oxia", "etcd")


@dataclass
class Place:
    """A metadata store, and the bucket."""

    engine: Engine
    bucket: MemoryBucket
    environment: Mapping[str, str]

    @property
    def settings(self) -> Settings:
        flags = [
            FlagValue("--listen", "broker.listen", "127.0.0.1:0"),
            FlagValue("--http", "broker.http", "off"),
        ]
        return load(None, dict(self.environment), flags).settings

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Broker]:
        runtime = SystemRuntime()
        objects = MemoryObjects(runtime, self.bucket)
        node = Node(self.settings, runtime, await self.engine.open(), objects)
        try:
            await node.start()
            async with await KafkaConnection.connect(*node.address) as client:
                await client.negotiate()
                yield Broker(node, client, runtime)
        finally:
            await node.stop()
            runtime.close()

    async def restore(self, order: RestoreOrder) -> RestoreReport:
        runtime = SystemRuntime()
        stores = Stores(await self.engine.open(), MemoryObjects(runtime, self.bucket))
        try:
            return await Restorer(self.settings, stores, runtime, order).run()
        finally:
            await stores.close()
            runtime.close()


@dataclass
class Broker:
    node: Node
    client: KafkaConnection
    runtime: SystemRuntime

    async def topic(self) -> MetadataRequestTopic:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=True)
        async with asyncio.timeout(60):
            while True:
                [topic] = (await self.client.request(asked)).topics
                if topic.error_code == 0:
                    return MetadataRequestTopic(topic_id=topic.topic_id, name=TOPIC)

    async def epoch(self) -> int:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
        [topic] = (await self.client.request(asked)).topics
        return topic.partitions[0].leader_epoch

    async def append(self, records: int, producer: tuple[int, int] = (-1, -1)) -> tuple[int, int]:
        """The error, and the offset of the first. `producer`: its id, and the sequence."""
        topic = await self.topic()
        number, sequence = producer
        epoch = -1 if number < 0 else 0
        data = bytes(batch(plain(*[b"value"] * records), producer=number, epoch=epoch, sequence=sequence))
        part = PartitionProduceData(index=0, records=data)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=TOPIC, topic_id=topic.topic_id, partition_data=[part])],
        )
        [answer] = (await self.client.request(request)).responses[0].partition_responses
        return answer.error_code, answer.base_offset

    async def producer_id(self) -> int:
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        return (await self.client.request(asked)).producer_id

    async def end_of(self, epoch: int) -> int:
        part = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
        asked = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[part])]
        )
        return (await self.client.request(asked)).topics[0].partitions[0].end_offset

    async def read(self, offset: int = 0) -> list[int]:
        """The offsets that a consumer sees from there on."""
        topic = await self.topic()
        found: list[int] = []
        while True:
            part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            asked = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=1 << 20,
                topics=[FetchTopic(topic_id=topic.topic_id, topic=TOPIC, partitions=[part])],
            )
            [answer] = (await self.client.request(asked)).responses[0].partitions
            assert answer.error_code == ErrorCode.NONE
            records = [each.offset for each in decode(joined(answer.records or b"")).records()]
            fresh = [each for each in records if each >= offset]
            if not fresh:
                return found
            found += fresh
            offset = fresh[-1] + 1

    async def compact(self, start: int, end: int, job: int) -> str:
        """Writes the file of a job over these offsets, as a compactor does. The metadata stays as it was."""
        store = StreamStore(self.node.parts.metadata, await self._domains(), 0)
        stored = await read_topics(self.node.parts.metadata)
        [topic] = [each for each in stored if each.name == TOPIC]
        view = await store.view(topic.streams[0])
        assert view is not None
        entries = [entry.value for entry in view.split()[0]]
        if (head := view.high_watermark.value.head) is not None:
            entries.append(head)
        inputs = [entry for entry in entries if start <= entry.start and entry.end <= end]
        assert (inputs[0].start, inputs[-1].end) == (start, end)
        prefix = unit_prefix(TOPIC, topic.topic_id, 0, topic.streams[0])
        values = tuple(entry.encode() for entry in inputs)
        unit = Unit(TOPIC, topic.topic_id, 0, topic.streams[0], job, values, start, end, prefix)
        [written] = await LocalUnitWriter(self.node.parts.objects, self.runtime).write([unit])
        assert isinstance(written, WrittenFile)
        return written.path

    async def _domains(self) -> int:
        record = await self.node.parts.metadata.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        assert record is not None
        return decode_cluster(record.value).domains

    async def back_up(self) -> None:
        store = self.node.parts.metadata
        record = await store.get(keys.CLUSTER_DOMAIN, keys.CLUSTER)
        assert record is not None
        await back_up_to_bucket(store, self.node.parts.objects, decode_cluster(record.value), self.runtime)

    def held(self) -> str | None:
        return self.node.parts.need(TallyKeeper).held()


@pytest.mark.parametrize("name", DRILLED)
async def test_the_metadata_store_is_lost_and_the_bucket_is_there(name: str, tmp_path: Path) -> None:
    runtime, bucket = SystemRuntime(), MemoryBucket()
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    old = Place(ENGINES[name](tmp_path / "old", runtime), bucket, CARRIES_NOTHING)
    async with old.serving() as broker:
        assert await broker.append(5) == (0, 0)
        await broker.producer_id()
        await broker.back_up()
    async with old.serving() as broker:  # which takes other blocks of numbers
        assert await broker.append(7) == (0, 5)
        given = await broker.producer_id()
        stream = max(await broker.node.parts.need(Log).create_streams(1))

    new = Place(ENGINES[name](tmp_path / "new", runtime), bucket, CARRIES_NOTHING)
    with pytest.raises(Failure, match="the metadata store is empty"):
        await new.restore(RestoreOrder())
    preview = await new.restore(RestoreOrder(from_bucket=NEWEST))
    assert [(each.topic, each.partition, each.end, each.records) for each in preview.lost] == [
        (TOPIC, 0, 5, 7)
    ]
    assert preview.number == 0
    with pytest.raises(Failure, match="the metadata store is empty"):
        await new.restore(RestoreOrder())  # it was a look
    done = await new.restore(RestoreOrder(from_bucket=NEWEST, execute=True))
    assert done.number == preview.mark + 1
    assert done.lost == preview.lost

    async with new.serving() as broker:
        assert broker.held() is None
        assert await broker.producer_id() > given
        assert min(await broker.node.parts.need(Log).create_streams(1)) > stream
        assert await broker.append(1) == (0, 5)
        epoch = await broker.epoch()
        assert epoch >= done.number
        assert await broker.end_of(0) == 5, "a consumer that was at 12 hears of it"
        assert await broker.end_of(epoch - 1) == 5
        assert await broker.end_of(epoch) == 6

    async with old.serving() as broker:
        assert "is a copy of the cluster's" in (broker.held() or "")
        assert (await broker.append(1))[0] != ErrorCode.NONE
    runtime.close()


@pytest.mark.parametrize("name", DRILLED)
async def test_what_a_compacted_file_has_comes_back(name: str, tmp_path: Path) -> None:
    """Its WAL objects are deleted, as after any compaction: all of the log is in the file."""
    runtime, bucket = SystemRuntime(), MemoryBucket()
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
    old = Place(ENGINES[name](tmp_path / "old", runtime), bucket, CARRIES_NOTHING)
    async with old.serving() as broker:
        producer = await broker.producer_id()
        assert await broker.append(5, (producer, 0)) == (0, 0)
        await broker.back_up()
        assert await broker.append(7, (producer, 5)) == (0, 5)
        assert await broker.append(2, (producer, 12)) == (0, 12)
        await broker.compact(0, 12, job=1)
        await broker.compact(12, 14, job=2)
    for path in [path for path in bucket.objects if path.startswith("wal/")]:
        del bucket.objects[path]

    new = Place(ENGINES[name](tmp_path / "new", runtime), bucket, CARRIES_NOTHING)
    preview = await new.restore(RestoreOrder(from_bucket=NEWEST))
    assert [(each.end, each.brought_to, each.is_lost) for each in preview.lost] == [(5, 14, False)]
    done = await new.restore(RestoreOrder(from_bucket=NEWEST, execute=True))
    assert done.lost == preview.lost
    async with new.serving() as broker:
        assert await broker.read() == list(range(14))
        assert await broker.read(9) == list(range(9, 14))
        assert await broker.end_of(0) == 14, "a consumer that was at 14 lost nothing"
        assert await broker.append(2, (producer, 12)) == (0, 12), "a batch that is sent again is known"
        assert await broker.append(3, (producer, 14)) == (0, 14)
        assert await broker.end_of(await broker.epoch()) == 17
        assert await broker.read() == list(range(17))
    runtime.close()


async def test_a_load_that_was_interrupted_goes_on_with_the_same_backup_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of another one there would be entries behind the end of a stream, for offsets to come."""
    runtime, bucket = SystemRuntime(), MemoryBucket()
    old, new = (Place(ENGINES["memory"](tmp_path, runtime), bucket, CARRIES_NOTHING) for _ in range(2))
    async with old.serving() as broker:
        assert await broker.append(5) == (0, 0)
        await broker.back_up()
    async with old.serving() as broker:
        assert await broker.append(7) == (0, 5)
        assert await broker.append(1) == (0, 12)
        await broker.back_up()
    earlier, later = await backups_in(MemoryObjects(runtime, bucket))

    with monkeypatch.context() as patch:
        flush = restores._Loader.flush

        async def interrupted(loader: restores._Loader) -> None:
            if any(put.key == keys.CLUSTER for put in loader._puts):
                raise KeyboardInterrupt
            await flush(loader)

        patch.setattr(restores._Loader, "flush", interrupted)
        with pytest.raises(KeyboardInterrupt):
            await new.restore(RestoreOrder(from_bucket=later, execute=True))
    with pytest.raises(Failure, match=f"keys that are not in {earlier}"):
        await new.restore(RestoreOrder(from_bucket=earlier, execute=True))
    assert (await new.restore(RestoreOrder(from_bucket=later, execute=True))).number
    async with new.serving() as broker:
        assert await broker.read() == list(range(13))
    runtime.close()


async def test_topics_that_were_made_after_the_backup_are_named(tmp_path: Path) -> None:
    """Nothing brings them back, and their files and tables go with the first compactor. The backup is of an
    empty cluster, which had handed out no numbers: even so none comes again."""
    runtime, bucket = SystemRuntime(), MemoryBucket()
    old, new = (Place(ENGINES["memory"](tmp_path, runtime), bucket, CARRIES_NOTHING) for _ in range(2))
    async with old.serving() as broker:
        await broker.back_up()
        assert await broker.append(7) == (0, 0)
        await broker.compact(0, 7, job=1)
        stream = max(await broker.node.parts.need(Log).create_streams(1))
    preview = await new.restore(RestoreOrder(from_bucket=NEWEST))
    assert (dict(preview.newer.files), preview.newer.records) == ({TOPIC: 1}, 7)
    done = await new.restore(RestoreOrder(from_bucket=NEWEST, execute=True))
    assert done.newer == preview.newer
    async with new.serving() as broker:
        assert min(await broker.node.parts.need(Log).create_streams(1)) > stream
    runtime.close()


async def test_files_that_were_made_since_of_what_the_log_has_are_named(tmp_path: Path) -> None:
    """The objects that they were made of may be deleted, and a compactor would take the files for garbage."""
    runtime, bucket = SystemRuntime(), MemoryBucket()
    old, new = (Place(ENGINES["memory"](tmp_path, runtime), bucket, CARRIES_NOTHING) for _ in range(2))
    async with old.serving() as broker:
        assert await broker.append(5) == (0, 0)
        assert await broker.append(3) == (0, 5)
        await broker.back_up()
        await broker.compact(0, 5, job=1)
    preview = await new.restore(RestoreOrder(from_bucket=NEWEST))
    assert (preview.lost, dict(preview.below)) == ([], {TOPIC: 1})
    runtime.close()


async def test_nothing_is_put_over_a_hole_and_what_was_given_up_never_comes_back(tmp_path: Path) -> None:
    runtime, bucket = SystemRuntime(), MemoryBucket()
    old, new, newer, newest = (
        Place(ENGINES["memory"](tmp_path, runtime), bucket, CARRIES_NOTHING) for _ in range(4)
    )
    async with old.serving() as broker:
        assert await broker.append(5) == (0, 0)
        await broker.back_up()
        [first] = await backups_in(broker.node.parts.objects)
        for offset in (5, 8, 11):
            assert await broker.append(3) == (0, offset)
        await broker.compact(0, 5, job=1)  # it stays as it is: no number is spent, and the note alone holds
        await broker.compact(5, 8, job=2)
        behind = await broker.compact(11, 14, job=3)
    preview = await new.restore(RestoreOrder(from_bucket=NEWEST))
    done = await new.restore(RestoreOrder(from_bucket=NEWEST, execute=True))
    assert preview.lost == done.lost
    [lost] = done.lost
    assert (lost.end, lost.brought_to, lost.known_to, lost.given_up) == (5, 8, 14, [behind])
    async with new.serving() as broker:
        assert await broker.read() == list(range(8))
        assert await broker.end_of(0) == 8
        assert await broker.append(3) == (0, 8), "now the file that was given up begins at the end"
        await broker.back_up()
    again = await newer.restore(RestoreOrder(from_bucket=NEWEST, execute=True))
    assert [each.brought_to for each in again.lost if each.files] == []
    async with newer.serving() as broker:
        assert await broker.append(1) == (0, 11)
    older = await newest.restore(RestoreOrder(from_bucket=first))
    assert older.later == again.number, "records of two logs must not be mixed"
    [lost] = older.lost
    assert (lost.end, lost.brought_to, lost.known_to) == (5, 5, 14)
    runtime.close()


async def test_a_restore_beside_a_living_cluster_is_refused(tmp_path: Path) -> None:
    runtime, bucket = SystemRuntime(), MemoryBucket()
    alive = SOON | {"DRAY_CLUSTER__TALLY_INTERVAL": "700ms"}  # it does not look dead on a slow machine
    old, new = (Place(ENGINES["memory"](tmp_path, runtime), bucket, alive) for _ in range(2))
    async with old.serving() as broker:
        await broker.append(1)
        await broker.back_up()
        with pytest.raises(Failure, match="a cluster lives there"):
            await new.restore(RestoreOrder(from_bucket=NEWEST, execute=True))
        assert broker.held() is None
        taken = await new.restore(RestoreOrder(from_bucket=NEWEST, execute=True, take_over=True))
        async with asyncio.timeout(60):
            while broker.held() is None:
                await broker.node.parts.need(TallyKeeper).look()
        assert taken.number
    runtime.close()


async def test_what_is_carried_comes_back_with_the_backup(tmp_path: Path) -> None:
    runtime, bucket = SystemRuntime(), MemoryBucket()
    old, new = (Place(ENGINES["memory"](tmp_path, runtime), bucket, SOON) for _ in range(2))
    async with old.serving() as broker:
        assert await broker.append(3) == (0, 0)
        assert not any(path.startswith("wal/") for path in bucket.objects)
        await broker.back_up()
        assert await broker.append(3) == (0, 3)
    done = await new.restore(RestoreOrder(from_bucket=NEWEST, execute=True))
    assert done.lost == [], "nothing of the later ones is anywhere"
    async with new.serving() as broker:
        assert await broker.append(1) == (0, 3)


async def test_brokers_back_up_by_themselves_and_keep_so_many(tmp_path: Path) -> None:
    runtime, bucket = SystemRuntime(), MemoryBucket()
    often = SOON | {"DRAY_CLUSTER__BACKUP_INTERVAL": "1s", "DRAY_CLUSTER__BACKUPS_KEPT": "2"}
    place = Place(ENGINES["memory"](tmp_path, runtime), bucket, often)
    seen: set[str] = set()
    async with place.serving() as broker, asyncio.timeout(60):
        while len(seen) < 4:
            found = await backups_in(broker.node.parts.objects)
            seen |= set(found)
            await asyncio.sleep(0.05)
    assert len(await backups_in(MemoryObjects(runtime, bucket))) <= 3
    runtime.close()
