"""The report of a Parquet file's writer. It counts while it writes: no file is read again for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class RowGroup(NamedTuple):
    """One row group. `position` and `length` are the bytes of its columns in the file, `raw_bytes` about what
    its records take as uncompressed Kafka batches; timestamps are in milliseconds. If records were compacted
    away by key, fewer rows than offsets lie between the first and the last offset."""

    position: int
    length: int
    record_count: int
    first_offset: int
    raw_bytes: int
    min_timestamp: int
    max_timestamp: int
    last_offset: int

    @property
    def is_dense(self) -> bool:
        """One row for every offset?"""
        return self.last_offset - self.first_offset == self.record_count - 1


def are_dense(groups: Sequence[RowGroup], start: int, end: int) -> bool:
    """Do row groups hold one row for every offset from `start` to before `end`?"""
    for group in groups:
        if group.first_offset != start or not group.is_dense:
            return False
        start = group.last_offset + 1
    return start == end


class ColumnSizes(NamedTuple):
    """One column that holds values, over the whole file: what an Iceberg data file says of it. Values count
    what is null too."""

    field_id: int
    compressed_bytes: int
    value_count: int
    null_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatistics:
    file_size: int
    footer_length: int  # with the eight bytes behind the footer
    record_count: int
    row_groups: tuple[RowGroup, ...]
    columns: tuple[ColumnSizes, ...]


def first_byte(leaf: Any) -> int:
    """Of a column of a row group, as pyarrow describes it."""
    offsets = [leaf.data_page_offset]
    if leaf.has_dictionary_page and leaf.dictionary_page_offset is not None:
        offsets.append(leaf.dictionary_page_offset)
    return int(min(offsets))
