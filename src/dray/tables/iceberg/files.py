"""Data files as a table lists them, made from what their writer counted: no file is read again."""

from __future__ import annotations

from typing import Final

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, TimestamptzType

from dray.tables.contract import TableFile
from dray.tables.iceberg.schema import OFFSET, PARTITION, TIMESTAMP

_DAY_MS: Final = 86_400_000


def data_file(file: TableFile, location: str, spec: PartitionSpec, day_partitioned: bool) -> DataFile:
    """Bounds are given for the three columns that a query narrows by; they are exact, so engines may answer
    `max(offset)` from them. So they are those of the rows: a file with holes covers offsets beyond. Raises
    `ValueError` for a file that does not fit into one partition."""
    written = file.written
    groups = written.row_groups
    first, last = (
        (groups[0].first_offset, groups[-1].last_offset) if groups else (file.first_offset, file.last_offset)
    )
    made = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=_partition(file, day_partitioned),
        record_count=written.record_count,
        file_size_in_bytes=written.file_size,
        column_sizes={column.field_id: column.compressed_bytes for column in written.columns} or None,
        value_counts={column.field_id: column.value_count for column in written.columns} or None,
        null_value_counts={column.field_id: column.null_count for column in written.columns} or None,
        nan_value_counts=None,
        lower_bounds=_bounds(file.partition, first, written.min_timestamp),
        upper_bounds=_bounds(file.partition, last, written.max_timestamp),
        key_metadata=None,
        split_offsets=list(written.split_offsets) or None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = spec.spec_id
    return made


def _partition(file: TableFile, day_partitioned: bool) -> Record:
    if not day_partitioned:
        return Record(file.partition)
    day = file.written.min_timestamp // _DAY_MS
    if file.written.max_timestamp // _DAY_MS != day:
        raise ValueError(
            f"{file.path}: its records are of more than one day, and its table is partitioned by day"
        )
    return Record(file.partition, day)


def _bounds(partition: int, offset: int, timestamp: int) -> dict[int, bytes]:
    return {
        PARTITION: to_bytes(IntegerType(), partition),
        OFFSET: to_bytes(LongType(), offset),
        TIMESTAMP: to_bytes(TimestamptzType(), timestamp * 1000),
    }
