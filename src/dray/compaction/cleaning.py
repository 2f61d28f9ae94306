"""Compaction by key: which rows of a unit go.

A row goes if the unit itself holds a later one of the same key: that one is written to the same file, so no
reader can miss both. Later means a greater offset; timestamps say nothing. Keys are compared as bytes; an
empty key is a key. A merge from the stream's start on (a *bottom merge*) also drops rows without a key, as
Kafka does. A tombstone goes only where the unit says so (`log/cleaned.py` has the rule). The last row always
stays, so that every file has one.

This takes two passes over the unit: the first one reads keys and offsets only, and finds the last offset of
every key. What it keeps in memory are the distinct keys.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from dray.log.jobs import Cleaning

if TYPE_CHECKING:
    import pyarrow

COLUMNS: Final = ("offset", "key")
_FOLD_ROWS: Final = 1 << 20


class LastOffsets:
    """The last offset of every key, of rows that come piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[pyarrow.Table] = []
        self._rows = 0
        self._folded = 0  # rows of the first piece, which have distinct keys
        self._last_row = -1

    def add(self, rows: pyarrow.RecordBatch) -> None:
        """Rows that follow those before."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not len(rows):
            return
        self._last_row = max(self._last_row, rows.column("offset")[-1].as_py())
        table = pa.table({"key": rows.column("key"), "offset": rows.column("offset")})
        self._pieces.append(table.filter(pc.is_valid(table.column("key"))))
        self._rows += len(rows)
        if self._rows - self._folded > max(_FOLD_ROWS, self._folded):
            self._fold()

    def survivors(self) -> Survivors:
        import pyarrow as pa

        self._fold()
        offsets = (
            self._pieces[0].column("offset").combine_chunks() if self._pieces else pa.array([], pa.int64())
        )
        self._pieces = []
        return Survivors(offsets.sort(), self._last_row)

    def _fold(self) -> None:
        import pyarrow as pa

        if not self._pieces:
            return
        # On one thread: this costs a third less, and a unit has one core of its own anyhow.
        rows = pa.concat_tables(self._pieces)
        folded = rows.group_by("key", use_threads=False).aggregate([("offset", "max")])
        self._pieces = [folded.rename_columns({"offset_max": "offset"}).select(["key", "offset"])]
        self._rows = self._folded = len(folded)


class Survivors:
    """The rows that no later one supersedes, by their offsets."""

    def __init__(self, offsets: Any, last_row: int) -> None:
        self._array = offsets
        self._offsets = (
            memoryview(offsets.buffers()[1]).cast("q") if len(offsets) else memoryview(b"").cast("q")
        )
        self._last_row = last_row

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
