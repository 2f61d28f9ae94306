"""Compaction by key: which rows of a unit go.

A row goes if the unit itself holds a later one of the same key: that one is written to the same file, so no
reader can miss both. Later means a greater offset; timestamps say nothing. Keys are compared as bytes; an
empty key is a key. A merge from the stream's start on (a *bottom merge*) also drops rows without a key, as
Kafka does. A tombstone goes only where the unit says so (`log/cleaned.py` has the rule). The last row always
stays, so that every file has one.

This takes two passes over the unit: the first one reads keys and offsets only, and finds the last offset of
every key. What it keeps in memory are the distinct keys. Every row passes both, so both are compiled: the
first hashes keys, and the second makes rows only of what stays.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from dray.log.jobs import Cleaning
from dray.records import Kept, KeyOffsets
from dray.records.arrow import KEY_COLUMNS, keys_from_arrow

if TYPE_CHECKING:
    import pyarrow

COLUMNS: Final = KEY_COLUMNS


class LastOffsets:
    """The last offset of every key, of rows that come piece by piece. `secret`: 16 bytes that no producer
    knows."""

    def __init__(self, secret: bytes) -> None:
        self._keys = KeyOffsets(secret)
        self._last_row = -1

    def add(self, rows: pyarrow.RecordBatch) -> None:
        """Rows that follow those before."""
        if not len(rows):
            return
        self._last_row = max(self._last_row, rows.column("offset")[-1].as_py())
        keys, first, offsets = keys_from_arrow(rows)
        self._keys.add(keys, offsets, first, len(rows))

    def survivors(self) -> Survivors:
        import pyarrow as pa

        offsets = pa.Array.from_buffers(
            pa.int64(), len(self._keys), [None, pa.py_buffer(self._keys.offsets())]
        )
        return Survivors(offsets.sort(), self._last_row)


class Survivors:
    """The rows that no later one supersedes, by their offsets."""

    def __init__(self, offsets: Any, last_row: int) -> None:
        self._array = offsets
        self._offsets = (
            memoryview(offsets.buffers()[1]).cast("q") if len(offsets) else memoryview(b"").cast("q")
        )
        self._last_row = last_row

    def kept(self, cleaning: Cleaning) -> Kept:
        """The same rule, for those who decode records: what goes need not become rows first."""
        return Kept(
            offsets=self._offsets,
            tombstones_below=cleaning.tombstones_below,
            keyless=not cleaning.drops_keyless,
            last=self._last_row,
        )

    def filtered(self, rows: pyarrow.RecordBatch, cleaning: Cleaning) -> pyarrow.RecordBatch:
        """What is left of some rows of the unit."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not len(rows):
            return rows
        offsets, keys = rows.column("offset"), rows.column("key")
        first = bisect_left(self._offsets, offsets[0].as_py(), hi=len(self._array))
        end = bisect_left(self._offsets, offsets[-1].as_py() + 1, hi=len(self._array))
        keep = pc.is_in(offsets, value_set=self._array.slice(first, end - first))
        if not cleaning.drops_keyless:
            keep = pc.or_(keep, pc.is_null(keys))
        if cleaning.tombstones_below > 0:
            below = pc.less(offsets, pa.scalar(cleaning.tombstones_below, pa.int64()))
            tombstone = pc.and_(pc.is_null(rows.column("value")), pc.is_valid(keys))
            keep = pc.and_not(keep, pc.and_(tombstone, below))
        keep = pc.or_(keep, pc.equal(offsets, pa.scalar(self._last_row, pa.int64())))
        return rows if pc.all(keep).as_py() else rows.filter(keep)
