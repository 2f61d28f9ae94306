"""When the records of an index entry were written, as far as the entry itself says."""

from __future__ import annotations

from dray.log.entries import IndexEntry


def time_in(entry: IndexEntry, offset: int) -> int:
    """When the record at an offset was written, to its batch or row group."""
    found = entry.min_timestamp
    if entry.is_parquet:
        for group in entry.row_groups():
            if offset <= group.last_offset:
                return group.min_timestamp
            found = group.max_timestamp
        return found
    if not entry.lists_batches:
        return found
    for base, batch in entry.batches():
        if base <= offset < base + batch.record_count:
            return batch.min_timestamp
    return found
