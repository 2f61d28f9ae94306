"""Stores of other systems in the config, and a broker that serves a topic from Kafka's tiered files."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest
from tests.services.batches import batch, plain
from tests.unit.migration.entries.foreign_harness import EPOCH, STORE, Source, aiven, kafka
from tests.unit.migration.formats.fixture_files import AIVEN, LOCAL

from dray.base.runtime import SystemRuntime
from dray.broker.topics import Topics
from dray.daemons.assembly.failures import Failure
from dray.daemons.assembly.foreign_stores import foreign_addresses
from dray.daemons.broker.node import Node
from dray.daemons.config import FlagValue, Settings, load
from dray.kafka.client import KafkaConnection
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.log import Log
from dray.log.stream_store import StreamStore
from dray.metadata.memory import MemoryState, MemoryStore
from dray.migration.entries.lay_down import lay_down
from dray.migration.entries.ownership import ForeignAuditLoop
from dray.migration.entries.segments import ForeignAddress, open_foreign_stores
from dray.migration.formats import walk_batches
from dray.objects.contract import Unsupported
from dray.objects.memory import MemoryObjects
from dray.objects.read_only import ReadOnlyStore, open_read_only

TOPIC_ID = UUID(int=4711)
DOMAINS = 4


def settings(*given: tuple[str, str]) -> Settings:
    flags = [
        FlagValue("test", "broker.listen", "127.0.0.1:0"),
        FlagValue("test", "broker.http", "off"),
        *[FlagValue("test", key, value) for key, value in given],
    ]
    return load(None, {}, flags).settings


def test_the_stores_of_the_config_arrive(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.write_bytes(b"a private key")
    config = settings(
        ("foreign.stores", "{old: s3://bucket/prefix, older: 'file:./tier'}"),
        ("foreign.options", "{old.region: sample-region}"),
        ("foreign.secrets", "{old.access_key_id: sample-key}"),
        ("foreign.keys", f"{{old.key1: {key}}}"),
    )
    found = foreign_addresses(config)
    assert found == {
        "old": ForeignAddress(
            "s3://bucket/prefix",
            {"region": "sample-region"},
            {"access_key_id": "sample-key"},
            {"key1": b"a private key"},
        ),
        "older": ForeignAddress(f"file:{Path('tier').absolute()}"),
    }
    assert "sample-key" not in repr(found)
    assert "private" not in repr(found)


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("foreign.options", "{other.region: x}", "foreign.options other.region: foreign.stores has no store"),
        ("foreign.keys", "{old.k: /no/such/file}", "foreign.keys old.k: cannot read /no/such/file"),
    ],
)
def test_what_does_not_fit_is_one_line(key: str, value: str, line: str) -> None:
    with pytest.raises(Failure, match=line):
        foreign_addresses(settings(("foreign.stores", "{old: 's3://bucket'}"), (key, value)))


async def test_nothing_is_written_to_a_foreign_directory(tmp_path: Path) -> None:
    runtime = SystemRuntime()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file.log").write_bytes(b"0123456789")
    store = await open_read_only(f"file:{tmp_path}", {}, runtime)
    assert await store.get("folder/file.log") == b"0123456789"
    assert await store.get_ranges("folder/file.log", [(2, 3), (9, 1)]) == [b"234", b"9"]
    assert [info.path async for info in store.list("")] == ["folder/file.log"]
    for refused in (
        store.put("folder/new", [b"x"]),
        store.put_if_absent("folder/new", [b"x"]),
        store.delete("folder/file.log"),
    ):
        with pytest.raises(Unsupported, match="only read"):
            await refused
    assert [info.path async for info in store.list("")] == ["folder/file.log"]
    assert os.listdir(tmp_path) == ["folder"], "and no folder of ours"
    runtime.close()


async def test_an_adopted_file_of_a_foreign_directory_can_be_deleted(tmp_path: Path) -> None:
    runtime = SystemRuntime()
    for name in ("adopted.log", "other.log"):
        (tmp_path / name).write_bytes(b"0123456789")
    store = await open_read_only(f"file:{tmp_path}", {}, runtime)
    assert isinstance(store, ReadOnlyStore)
    for _ in range(2):  # also one that is gone
        await store.delete_adopted("adopted.log")
    assert os.listdir(tmp_path) == ["other.log"]
    runtime.close()


@asynccontextmanager
async def serving(
    source: Source,
    root: Path,
    config: Settings | None = None,
    *,
    knows_store: bool = True,
    nodes: list[Node] | None = None,
) -> AsyncIterator[KafkaConnection]:
    """A broker with the topic `orders`, whose one partition is read from files of the source."""
    runtime = SystemRuntime()
    state = MemoryState()
    metadata = MemoryStore(runtime, state)
    config = config or settings()
    stores = await open_foreign_stores({STORE: ForeignAddress(f"file:{root}", keys=source.keys)}, runtime)
    node = Node(config, runtime, metadata, MemoryObjects(runtime), foreign=stores if knows_store else None)
    await node.start()
    if nodes is not None:
        nodes.append(node)
    [stream] = await node.parts.need(Log).take_stream_ids(1)
    await lay_down(StreamStore(MemoryStore(runtime, state), DOMAINS, 1 << 40), stream, source.attached())
    topics = node.parts.need(Topics)
    await topics.attach("orders", TOPIC_ID, [stream], {"retention.ms": "-1"}, EPOCH)
    await topics.attach("orders", TOPIC_ID, [stream], {"retention.ms": "-1"}, EPOCH)
    try:
        async with await KafkaConnection.connect(*node.address) as connection:
            await connection.negotiate()
            yield connection
    finally:
        await node.stop()


def joined(part: PartitionData) -> bytes:
    records = part.records or b""
    return bytes(records) if isinstance(records, bytes | bytearray | memoryview) else b"".join(records)


def fetch(offset: int, *, committed: bool = False, epoch: int = -1) -> FetchRequest:
    asked = FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 30, current_leader_epoch=epoch
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 30,
        isolation_level=int(committed),
        topics=[FetchTopic(topic="orders", topic_id=TOPIC_ID, partitions=[asked])],
    )


async def list_offset(connection: KafkaConnection, timestamp: int) -> tuple[int, int, int]:
    asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    answer = await connection.request(
        ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=[asked])])
    )
    [part] = answer.topics[0].partitions
    assert part.error_code == 0
    return part.offset, part.timestamp, part.leader_epoch


async def read_through(connection: KafkaConnection, end: int) -> tuple[bytes, set[tuple[int, int]]]:
    offset, data, aborted = 0, b"", set()
    while offset < end:
        response: FetchResponse = await connection.request(fetch(offset, committed=True, epoch=EPOCH))
        [part] = response.responses[0].partitions
        assert part.error_code == 0
        assert part.high_watermark == part.last_stable_offset >= end
        aborted |= {(one.producer_id, one.first_offset) for one in part.aborted_transactions or []}
        found = joined(part)
        data += found
        offset = list(walk_batches(found))[-1].last_offset + 1
    return data, aborted


@pytest.mark.parametrize("layout", ["kafka", "aiven"])
async def test_a_broker_serves_a_topic_where_its_source_left_it(layout: str) -> None:
    source, root = (kafka(0), LOCAL) if layout == "kafka" else (aiven(0), AIVEN)
    end = source.end
    async with serving(source, root) as connection:
        data, aborted = await read_through(connection, end)
        assert data == source.served()
        assert aborted == {(one.producer_id, one.first_offset) for one in source.aborted}
        uncommitted = await connection.request(fetch(0))
        assert uncommitted.responses[0].partitions[0].aborted_transactions is None

        asked = MetadataRequest(topics=[MetadataRequestTopic(topic_id=TOPIC_ID, name=None)])
        [topic] = (await connection.request(asked)).topics
        assert (topic.name, topic.partitions[0].leader_epoch) == ("orders", EPOCH)

        assert await list_offset(connection, -1) == (end, -1, EPOCH)
        assert await list_offset(connection, -2) == (0, -1, EPOCH)
        assert await list_offset(connection, -4) == (end, -1, EPOCH), "where the tier ended"
        assert await list_offset(connection, -5) == (end - 1, -1, EPOCH)

        for epoch in (0, EPOCH):
            of_epoch = OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(
                        topic="orders",
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=0, current_leader_epoch=EPOCH, leader_epoch=epoch
                            )
                        ],
                    )
                ]
            )
            [answer] = (await connection.request(of_epoch)).topics[0].partitions
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, epoch, end)

        produced = await connection.request(
            ProduceRequest(
                acks=-1,
                timeout_ms=10_000,
                topic_data=[
                    TopicProduceData(
                        name="orders",
                        topic_id=TOPIC_ID,
                        partition_data=[PartitionProduceData(index=0, records=bytes(batch(plain(b"new"))))],
                    )
                ],
            )
        )
        [written] = produced.responses[0].partition_responses
        assert (written.error_code, written.base_offset) == (0, end)
        [part] = (await connection.request(fetch(end))).responses[0].partitions
        [appended] = walk_batches(joined(part))
        assert (appended.header.base_offset, appended.header.leader_epoch) == (end, EPOCH)


async def test_segments_that_are_gone_are_counted(tmp_path: Path) -> None:
    source = kafka(0)
    root = tmp_path / "tier"
    shutil.copytree(LOCAL, root)
    nodes: list[Node] = []
    async with serving(source, root, nodes=nodes):
        [node] = nodes
        audit = node.parts.need(ForeignAuditLoop)
        await audit.once()
        assert b"dray_foreign_segments_missing 0.0" in node.metrics.exposition()
        (root / source.segments[-1][0].path).unlink()
        await audit.once()
        assert b"dray_foreign_segments_missing 1.0" in node.metrics.exposition()


async def test_a_broker_without_the_store_answers_with_a_storage_error() -> None:
    async with serving(kafka(1), LOCAL, knows_store=False) as connection:
        [part] = (await connection.request(fetch(0))).responses[0].partitions
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await list_offset(connection, -1) == (kafka(1).end, -1, EPOCH)
