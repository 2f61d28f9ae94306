"""Streams of which the log has put a part into compacted files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import aclosing
from uuid import UUID

import pyarrow as pa
from tests.unit.log.harness import DOMAINS, EVERYTHING, World, append, read

from dray.kafka.records import Codec, decode, twin
from dray.kafka.records.columns import Record
from dray.log import Log
from dray.log.entries import IndexEntry
from dray.log.jobs.values import WrittenFile
from dray.log.parquet.reader import one_batch
from dray.log.parquet.writer import FileWriter
from dray.log.stream_store import StreamStore
from dray.log.types import ReadResult
from dray.metadata import keys
from dray.metadata.contract import Delete, Put
from dray.tables.compaction.model import Unit
from dray.tables.compaction.paths import file_path, unit_prefix
from dray.tables.compaction.writing.executor import LocalUnitWriter
from dray.tables.compaction.writing.sources import rows_of

TOPIC_ID = UUID(int=9)
TIME = 1_700_000_000_000


def a_batch(number: int, count: int = 4, producer: tuple[int, int, int] = (-1, -1, -1)) -> bytearray:
    records = [
        Record(
            place,
            TIME + number * 100 + place,
            None if place == 1 else b"key %d" % number,
            None if place == 2 else b"%d/%d" % (number, place) * 10,
            [("h", b"1"), ("h", None), ("i", b"%d" % number)] if place == 0 else [],
        )
        for place in range(count)
    ]
    return twin.encode(
        records,
        codec=Codec.ZSTD if number % 2 else Codec.NONE,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
    )


async def filled(log: Log, count: int) -> int:
    """A stream of so many batches, each in an entry of its own, the last one its head."""
    [stream] = await log.create_streams(1)
    for number in range(count):
        await append(log, stream, a_batch(number))
    return stream


def all_of(result: ReadResult) -> list[Record]:
    if result.error is not None:
        raise result.error
    found = [record for buffer in result.buffers for record in decode(buffer).records()]
    assert result.size == sum(len(buffer) for buffer in result.buffers)
    return found


async def read_on(log: Log, stream: int, offset: int, max_bytes: int = EVERYTHING) -> list[Record]:
    """As a consumer does, until the end."""
    found: list[Record] = []
    while True:
        records = [
            record for record in all_of(await read(log, stream, offset, max_bytes)) if record.offset >= offset
        ]
        if not records:
            return found
        assert records[0].offset == offset
        found += records
        offset = records[-1].offset + 1


async def entries_of(world: World, stream: int) -> list[IndexEntry]:
    """The filed entries and the head, in order."""
    view = await StreamStore(world.store, DOMAINS, 0).view(stream)
    assert view is not None
    head = view.high_watermark.value.head
    return [entry.value for entry in view.split()[0]] + ([] if head is None else [head])


async def compact(world: World, stream: int, inputs: Sequence[IndexEntry], job: int = 1) -> IndexEntry:
    """Puts filed entries into one file, and swaps the index, without the care that a compactor takes."""
    [written] = await LocalUnitWriter(world.objects, world.runtime).write([unit_of(stream, inputs, job)])
    assert isinstance(written, WrittenFile), written
    return await _swap(world, stream, inputs, written)


async def thin(
    world: World, stream: int, inputs: Sequence[IndexEntry], keep: Collection[int], job: int = 1
) -> IndexEntry:
    """The same, with the records at these offsets only."""
    unit = unit_of(stream, inputs, job)
    writer, pieces = FileWriter(), []
    async with aclosing(rows_of(unit, world.objects, world.runtime)) as batches:
        async for rows in batches:
            wanted = [offset in keep for offset in rows.column("offset").to_pylist()]
            pieces += writer.add(rows.filter(pa.array(wanted, pa.bool_())))
    last, statistics = writer.finish()
    parquet_id = world.runtime.uuid()
    path = file_path(unit.prefix, job, parquet_id)
    await world.objects.put(path, [*pieces, *last])
    written = WrittenFile.of(
        statistics, stream=stream, job=job, path=path, parquet_id=parquet_id, start=unit.start, end=unit.end
    )
    return await _swap(world, stream, inputs, written)


async def rows_in(world: World, unit: Unit) -> pa.RecordBatch:
    """All that a unit reads."""
    async with aclosing(rows_of(unit, world.objects, world.runtime)) as batches:
        return one_batch(pa.Table.from_batches([rows async for rows in batches]))


async def seal(world: World, stream: int) -> None:
    """Files the head away."""
    store = StreamStore(world.store, DOMAINS, 0)
    mark = await store.high_watermark(stream)
    assert mark is not None
    await store.write(stream, store.advance(stream, mark, mark.value.sealed()))


def unit_of(stream: int, inputs: Sequence[IndexEntry], job: int = 1) -> Unit:
    return Unit(
        "orders",
        TOPIC_ID,
        0,
        stream,
        job,
        tuple(entry.encode() for entry in inputs),
        inputs[0].start,
        inputs[-1].end,
        unit_prefix("orders", TOPIC_ID, 0, stream),
    )


async def _swap(world: World, stream: int, inputs: Sequence[IndexEntry], written: WrittenFile) -> IndexEntry:
    entry = IndexEntry.parquet(
        inputs, written.parquet_id, written.path, written.file_size, written.footer_length, written.row_groups
    )
    doomed = [Delete(keys.index_entry(stream, inner.end, inner.cumulative_size)) for inner in inputs[:-1]]
    swap = Put(keys.index_entry(stream, entry.end, entry.cumulative_size), entry.encode())
    await world.store.write(stream % DOMAINS, [swap, *doomed])
    return entry


async def drop(world: World, inputs: Sequence[IndexEntry]) -> None:
    for entry in inputs:
        await world.objects.delete(entry.path)
