"""Every client passes over holes in a log, from any offset, and its position comes to the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from tests.services.cleaner import clean
from tests.services.clients import BUILT_CLIENTS, CLIENTS
from tests.services.clients.aiokafka_client import run
from tests.services.clients.to_end import BUILT_TO_END, TO_END, ReadToEnd
from tests.services.dray import DrayProcess
from tests.services.fetch_tap import SeenFetches
from tests.services.marks import longer
from tests.services.proxy import TcpProxy
from tests.services.topics import create_topic

from dray.base.runtime import SystemRuntime
from dray.broker.topics.model import encode_topic
from dray.daemons.assembly.stores import open_stores
from dray.daemons.compactor.pipeline import open_pipeline
from dray.daemons.config import FlagValue, load
from dray.log.entries import IndexEntry
from dray.log.parquet.writer import FileWriter
from dray.log.stream_state import advance_snapshot
from dray.metadata import keys
from dray.metadata.contract import Delete, Put
from dray.tables.compaction.model import Unit
from dray.tables.compaction.paths import file_path, unit_prefix
from dray.tables.compaction.writing.sources import rows_of

END = 300
KEPT = [0, 1, 40, 41, 42, 120, 200, 210]
"""Of the rest nothing is there, the whole tail included."""
BEYOND = END
"""In the topic that goes on: one more record, in the WAL."""
KEYS = 7
EPOCH = 70_000
"""Of the topics, as of a log that began elsewhere. Consumers come with an earlier one."""
OLDER_EPOCH = 3
TOPICS = {
    "emptied": (KEPT, (0, 1, 2, 43, 199, 211, 298, 299)),
    "cleaned": (range(END - KEYS, END), (0, 150, 294, 299)),
}
"""What is left of each, and where readers begin. A compactor made the second one."""
SEEN = SeenFetches()
SECONDS = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DrayProcess]:
    """Behind a proxy that sees what clients ask for."""
    directory = tmp_path_factory.mktemp("holes")
    settings = {"DRAY_LOG__TAIL_CACHE_BYTES": "0B", "DRAY_TEST_KNOB__LOG__SEGMENT_CACHE_BYTES": "0"}
    broker = DrayProcess(directory, settings=settings)
    with TcpProxy(broker.port, tap=SEEN.tap) as proxy:
        broker.settings["DRAY_BROKER__ADVERTISED"] = proxy.address
        with broker:
            create_topic(broker.bootstrap, "cleaned", config={"cleanup.policy": "compact"})
            produce(broker.bootstrap, "cleaned", range(END))
            clean(broker)
            raise_epoch(broker.data_directory, "cleaned")
            for topic in ("emptied", "goes-on"):
                create_topic(broker.bootstrap, topic)
                produce(broker.bootstrap, topic, range(END))
                with_holes(broker.data_directory, topic)
                raise_epoch(broker.data_directory, topic)
            broker.terminate()  # it knows the entries that were there before
            broker.start()
            produce(broker.bootstrap, "goes-on", [BEYOND])
            yield broker


def value_of(number: int) -> bytes:
    """Larger than the least that any client asks for, and nothing to compress. It is text, for kcat."""
    return Random(number).randbytes(800).hex().encode()


def produce(bootstrap: str, topic: str, numbers: range | list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50})
    for number in numbers:
        producer.produce(topic, value_of(number), b"%d" % (number % KEYS))
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
        await stores.close()
        runtime.close()

    run(rewrite())


def raise_epoch(data: Path, topic: str) -> None:
    settings = load(None, {}, [FlagValue("test", "data_dir", str(data))]).settings

    async def write() -> None:
        runtime = SystemRuntime()
        stores = await open_stores(settings, runtime)
        pipeline = await open_pipeline(settings, runtime, stores)
        [found] = [each for each in (await pipeline.topics.live()).known if each.name == topic]
        raised = encode_topic(replace(found, leader_epoch=EPOCH))
        await stores.metadata.write(keys.CLUSTER_DOMAIN, [Put(keys.topic(topic), raised)])
        await stores.close()
        runtime.close()

    run(write())


def left_from(start: int) -> list[int]:
    return [offset for offset in KEPT if offset >= start]


@pytest.mark.parametrize(
    "name", [*CLIENTS, *(pytest.param(name, marks=pytest.mark.soak) for name in BUILT_CLIENTS)]
)
def test_every_client_passes_over_holes(name: str, broker: DrayProcess) -> None:
    client = (CLIENTS | BUILT_CLIENTS)[name](broker.bootstrap)
    for start in (0, 43, 250):
        wanted = [*left_from(start), BEYOND]
        found = client.fetch("goes-on", len(wanted), start=start)
        assert [message.offset for message in found] == wanted
        assert [message.value for message in found] == [value_of(offset) for offset in wanted]


@pytest.mark.parametrize("most_bytes", [1, longer(1 << 20)])
@pytest.mark.parametrize(
    "name", [*TO_END, *(pytest.param(name, marks=pytest.mark.soak) for name in BUILT_TO_END)]
)
def test_every_client_comes_to_the_end(name: str, most_bytes: int, broker: DrayProcess) -> None:
    """From offsets with a record and from holes, in a topic that a compactor cleaned and in one whose tail is
    gone; with less than a record at a time too. And none asks for more bytes than it began with, as
    librdkafka does for an answer of nothing but empty data batches, until it gives up."""
    read = (TO_END | BUILT_TO_END)[name]
    for topic, (kept, starts) in TOPICS.items():
        SEEN.forget()
        how = ReadToEnd(broker.bootstrap, topic, END, most_bytes, OLDER_EPOCH, SEEN)
        assert read(how, starts) == {
            start: [offset for offset in kept if offset >= start] for start in starts
        }, topic
        assert SEEN.fetches, "it did not go through the proxy"
        assert {fetch.most_bytes for fetch in SEEN.fetches} == {most_bytes}, "it asks for other sizes"
        assert len({fetch.most_of_all for fetch in SEEN.fetches}) == 1
