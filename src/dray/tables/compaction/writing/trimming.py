"""Leaving out what was deleted: the rows of a unit below the stream's start.

The start may lie inside of an entry, a row group or a batch. Whole batches and row groups below it are known
by the index, and never read. Of the one that the start lies in, the first rows are left out here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dray.log.entries import IndexEntry
from dray.log.parquet.reader import place_of

if TYPE_CHECKING:
    import pyarrow

_OF_A_BATCH: Final = ("producer_id", "producer_epoch", "base_sequence")
_SEQUENCES: Final = 1 << 31  # after the last comes 0 again


def first_needed(entry: IndexEntry, start: int) -> tuple[int, int]:
    """Which batch or row group of an entry holds `start` (or is the first behind it): its number, and its
    first offset. An entry that does not say so is damaged: its first rows will not be those that are expected
    from `start` on."""
    if entry.is_outside:
        return entry.outside().piece_of(start), entry.start
    if entry.sparse:
        groups = entry.row_groups()
        below = sum(group.last_offset < start for group in groups)
        return below, entry.end if below == len(groups) else entry.start
    if entry.is_parquet:
        begins = [group.first_offset for group in entry.row_groups()]
    else:
        begins = [base_offset for base_offset, _ in entry.batches()]
    number = sum(offset <= start for offset in begins[1:])
    return number, min(start, begins[number]) if begins else start


def rows_from(rows: pyarrow.RecordBatch, start: int) -> pyarrow.RecordBatch:
    """The rows from an offset on. Rows rise, and they are what is left of whole batches of their producers.

    In a batch that is cut, each record keeps its sequence number: the base sequence moves up by as many
    records as went."""
    if not len(rows):
        return rows
    offsets = rows.column("offset")
    if start <= offsets[0].as_py():
        return rows
    cut = place_of(rows, start)
    left = rows.slice(cut)
    if not len(left) or not rows.column("producer_id")[cut].is_valid:
        return left
    first, end = _batch_around(rows, cut)
    if first == cut:
        return left
    return _moved(left, end - cut, offsets[cut].as_py() - offsets[first].as_py())


def offsets_from(rows: pyarrow.RecordBatch, start: int) -> pyarrow.RecordBatch:
    """The rows from an offset on, of which only some columns are there."""
    return rows.slice(place_of(rows, start)) if len(rows) else rows


def _batch_around(rows: pyarrow.RecordBatch, row: int) -> tuple[int, int]:
    """The rows of the batch that a row is in."""
    import pyarrow.compute as pc

    same: Any = None
    for name in _OF_A_BATCH:
        column = rows.column(name)
        equal = pc.fill_null(pc.equal(column, column[row]), False)
        same = equal if same is None else pc.and_(same, equal)
    before = pc.indices_nonzero(pc.invert(same.slice(0, row)))
    first = before[-1].as_py() + 1 if len(before) else 0
    following = pc.index(same.slice(row), False).as_py()
    return first, len(rows) if following < 0 else row + following


def _moved(rows: pyarrow.RecordBatch, count: int, by: int) -> pyarrow.RecordBatch:
    """The first rows with another base sequence."""
    import pyarrow as pa

    place = rows.schema.get_field_index("base_sequence")
    column = rows.column(place)
    sequence = (column[0].as_py() + by) % _SEQUENCES
    moved = pa.repeat(pa.scalar(sequence, column.type), count)
    return rows.set_column(place, rows.schema.field(place), pa.concat_arrays([moved, column.slice(count)]))
