"""Ranges of the objects that index entries name, read for fetches and for compaction."""

from __future__ import annotations

from dray.log.entries import IndexEntry
from dray.log.types import ObjectCorrupt
from dray.objects.contract import Buffer, ObjectStore, RangeOutside
from dray.parquet.reader import Footer, ParquetCorrupt
from dray.runtime import Runtime


async def read_range(objects: ObjectStore, entry: IndexEntry, position: int, length: int) -> Buffer:
    """Bytes of an entry's object, or of what the entry carries. Raises `ObjectCorrupt` for an object that
    ends before its entry says, and otherwise the store's own errors."""
    if entry.is_carried:
        return memoryview(entry.data)[position : position + length]
    try:
        [data] = await objects.get_ranges(entry.path, [(position, length)])
    except RangeOutside as error:
        raise ObjectCorrupt(f"{entry.path} is shorter than its index entry says: {error}") from error
    return data


async def read_footer(objects: ObjectStore, runtime: Runtime, entry: IndexEntry) -> Footer:
    """The footer of an entry's Parquet file: one request, since the entry knows where it is."""
    size, length = entry.file_size, entry.footer_length
    data = await read_range(objects, entry, size - length, length)
    try:
        return await runtime.in_thread(Footer, data, size)
    except ParquetCorrupt as error:
        raise ObjectCorrupt(f"{entry.path}: {error}") from error
