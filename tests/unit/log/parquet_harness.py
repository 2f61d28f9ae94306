"""Streams of which the log has put a part into compacted files."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from tests.unit.log.harness import DOMAINS, World

from dray.compaction.executor import LocalUnitWriter
from dray.compaction.model import Unit
from dray.compaction.paths import unit_prefix
from dray.log.entries import IndexEntry
from dray.log.stream_store import StreamStore
from dray.log.written_file import WrittenFile
from dray.metadata import keys
from dray.metadata.contract import Delete, Put

TOPIC_ID = UUID(int=9)


async def entries_of(world: World, stream: int) -> list[IndexEntry]:
    """The filed entries and the head, in order."""
    view = await StreamStore(world.store, DOMAINS, 0).view(stream)
    assert view is not None
    head = view.high_watermark.value.head
    return [entry.value for entry in view.split()[0]] + ([] if head is None else [head])


async def compact(world: World, stream: int, inputs: Sequence[IndexEntry], job: int = 1) -> IndexEntry:
    """Puts filed entries into one file, and swaps the index, without the care that a compactor takes."""
    unit = Unit(
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
    [written] = await LocalUnitWriter(world.objects, world.runtime).write([unit])
    assert isinstance(written, WrittenFile), written
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
