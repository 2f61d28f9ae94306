"""Every client passes over holes in a log, from any offset, and its position comes to the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition
from tests.services.clients import BUILT_CLIENTS, CLIENTS
from tests.services.clients.aiokafka_client import run
from tests.services.clients.java_client import Java
from tests.services.dray import DrayProcess
from tests.services.topics import create_topic

from dray.compaction.model import Unit
from dray.compaction.paths import file_path, unit_prefix
from dray.compaction.sources import rows_of
from dray.config import FlagValue, load
from dray.daemon.pipeline import open_pipeline
from dray.daemon.stores import open_stores
from dray.log.entries import IndexEntry
from dray.log.snapshots import advance_snapshot
from dray.metadata import keys
from dray.metadata.contract import Delete, Put
from dray.parquet.writer import FileWriter
from dray.runtime import SystemRuntime
from dray.topics.model import encode_topic

END = 300
KEPT = [0, 1, 40, 41, 42, 120, 200, 210]
"""Of the rest nothing is there, the whole tail included."""
BEYOND = END
"""In the topic that goes on: one more record, in the WAL."""
STARTS = (0, 1, 2, 43, 199, 211, 298, 299)
EPOCH = 70_000
"""Of the topics, as of a log that began elsewhere. Consumers come with an earlier one."""
SECONDS = 60.0


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("holes")
    settings = {"DRAY_LOG__TAIL_CACHE_BYTES": "0B", "DRAY_LOG__SEGMENT_CACHE_BYTES": "0B"}
    with DrayProcess(directory, settings=settings) as broker:
        for topic in ("emptied", "goes-on"):
            create_topic(broker.bootstrap, topic)
            produce(broker.bootstrap, topic, range(END))
            with_holes(broker.data_directory, topic)
        broker.terminate()  # it knows the entries that were there before
        broker.start()
        produce(broker.bootstrap, "goes-on", [BEYOND])
        yield broker.bootstrap


def produce(bootstrap: str, topic: str, numbers: range | list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in numbers:
        producer.produce(topic, b"%d" % number * 20, b"%d" % (number % 7))
    assert producer.flush(SECONDS) == 0


def with_holes(data: Path, topic: str) -> None:
    """Put what is there into one file of which only some rows are left, as a compactor would swap it in."""
    settings = load(None, {}, [FlagValue("test", "data_dir", str(data))]).settings

    async def rewrite() -> None:
        runtime = SystemRuntime()
        stores = await open_stores(settings, runtime)
        pipeline = await open_pipeline(settings, runtime, stores)
        [found] = [each for each in (await pipeline.topics.live()).known if each.name == topic]
        [stream] = found.streams
        store = pipeline.streams
        mark = await store.high_watermark(stream)
        assert mark is not None
        await store.write(stream, store.advance(stream, mark, mark.value.sealed()))
        while not await advance_snapshot(store, stream, END, None):
            pass
        inputs = [entry.value for entry in await store.entries_above(stream, -1)]
        prefix = unit_prefix(topic, found.topic_id, 0, stream)
        unit = Unit(topic, found.topic_id, 0, stream, 1, tuple(e.encode() for e in inputs), 0, END, prefix)
        writer, pieces = FileWriter(), []
        async with aclosing(rows_of(unit, stores.objects, runtime)) as batches:
            async for rows in batches:
                keep = [offset in KEPT for offset in rows.column("offset").to_pylist()]
                pieces += writer.add(rows.filter(pa.array(keep, pa.bool_())))
        last, counted = writer.finish()
        parquet_id = runtime.uuid()
        path = file_path(prefix, 1, parquet_id)
        await stores.objects.put(path, [*pieces, *last])
        entry = IndexEntry.parquet(
            inputs, parquet_id, path, counted.file_size, counted.footer_length, counted.row_groups
        )
        assert entry.sparse
        key = keys.index_entry(stream, entry.end, entry.cumulative_size)
        covered = [Delete(keys.index_entry(stream, each.end, each.cumulative_size)) for each in inputs[:-1]]
        await store.write(stream, [Put(key, entry.encode()), *covered])
        raised = encode_topic(replace(found, leader_epoch=EPOCH))
        await stores.metadata.write(keys.CLUSTER_DOMAIN, [Put(keys.topic(topic), raised)])
        await stores.close()
        runtime.close()

    run(rewrite())


def left_from(start: int) -> list[int]:
    return [offset for offset in KEPT if offset >= start]


@pytest.mark.parametrize(
    "name", [*CLIENTS, *(pytest.param(name, marks=pytest.mark.soak) for name in BUILT_CLIENTS)]
)
def test_every_client_passes_over_holes(name: str, bootstrap: str) -> None:
    client = (CLIENTS | BUILT_CLIENTS)[name](bootstrap)
    for start in (0, 43, 250):
        wanted = [*left_from(start), BEYOND]
        found = client.fetch("goes-on", len(wanted), start=start)
        assert [message.offset for message in found] == wanted
        assert [message.value for message in found] == [b"%d" % offset * 20 for offset in wanted]


@pytest.mark.parametrize("most_bytes", [1, 1 << 20])
def test_librdkafka_comes_to_the_end(bootstrap: str, most_bytes: int) -> None:
    """And asks for no more bytes than before: it would, for an answer of nothing but empty data batches."""
    said: list[str] = []

    class Heard(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger = logging.Logger("librdkafka")
    logger.addHandler(Heard())
    for start in STARTS:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.message.max.bytes": most_bytes,
                "debug": "consumer,fetch,msg",
            },
            logger=logger,
        )
        consumer.assign([TopicPartition("emptied", 0, start, leader_epoch=3)])
        found: list[int | None] = []
        deadline = time.monotonic() + SECONDS
        while True:
            assert time.monotonic() < deadline, "the end did not come"
            message = consumer.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                assert message.offset() == END
                break
            found.append(message.offset())
        consumer.close()
        assert found == left_from(start)
    assert said, "it says nothing at all"
    assert not [line for line in said if "ncreasing max fetch" in line]


@pytest.mark.parametrize("most_bytes", [1, 1 << 20])
def test_kafka_python_comes_to_the_end(bootstrap: str, most_bytes: int) -> None:
    place = PythonTopicPartition("emptied", 0)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=most_bytes
    )
    try:
        consumer.assign([place])
        for start in STARTS:
            consumer.seek(place, start)
            found: list[int] = []
            deadline = time.monotonic() + SECONDS
            while consumer.position(place) < END:
                assert time.monotonic() < deadline, "the end did not come"
                found += [each.offset for batch in consumer.poll(200).values() for each in batch]
            assert (found, consumer.position(place)) == (left_from(start), END)
    finally:
        consumer.close()


@pytest.mark.parametrize("most_bytes", [1, 1 << 20])
def test_aiokafka_comes_to_the_end(bootstrap: str, most_bytes: int) -> None:
    place = AioTopicPartition("emptied", 0)

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=most_bytes
        )
        await consumer.start()
        try:
            consumer.assign([place])
            for start in STARTS:
                consumer.seek(place, start)
                found: list[int] = []
                while await consumer.position(place) < END:
                    batches = await consumer.getmany(place, timeout_ms=200)
                    found += [each.offset for batch in batches.values() for each in batch]
                assert (found, await consumer.position(place)) == (left_from(start), END)
        finally:
            await consumer.stop()

    run(asyncio.wait_for(read(), SECONDS))


def test_java_comes_to_the_end(bootstrap: str) -> None:
    """As Connect reads its topics: up to where `position` is the end, with the least it may ask for too."""
    starts = ",".join(map(str, STARTS))
    lines = Java(bootstrap).run("ReadToEnd", "emptied", starts)
    wanted = [f"{most} {start}: {left_from(start)}" for most in (1, 1 << 20) for start in STARTS]
    assert lines == wanted
