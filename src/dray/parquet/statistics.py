"""What the writer of a Parquet file reports. It counts while it writes: no file is read again for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class RowGroup(NamedTuple):
    """One row group. `position` and `length` are the bytes of its columns in the file, `raw_bytes` about what
    its records take as uncompressed Kafka batches; timestamps are in milliseconds."""

    position: int
    length: int
    record_count: int
    first_offset: int
    raw_bytes: int
    min_timestamp: int
    max_timestamp: int


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
