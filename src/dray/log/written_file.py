"""A Parquet file that was written for a job: what the job stores, the index swaps in and the table adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from dray.log.entries import RowGroup


@dataclass(frozen=True, slots=True)
class ColumnSizes:
    """Of one column of a file, what an Iceberg data file says of it."""

    field_id: int
    compressed_bytes: int
    value_count: int
    null_count: int


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """The row that comes back for a unit. Of all the attempts at it, only this one's path counts."""

    stream: int
    job: int
    path: str  # <prefix>/job-<number>-<attempt id>.parquet: see `dray.compaction.paths`
    parquet_id: UUID
    file_size: int
    footer_length: int  # with the eight bytes behind the footer
    record_count: int
    min_timestamp: int
    max_timestamp: int
    start: int
    end: int
    row_groups: tuple[RowGroup, ...]
    columns: tuple[ColumnSizes, ...]
    split_offsets: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        """It is stored in the job. Row groups and columns are lists of numbers, in their fields' order."""
        return {
            "stream": self.stream,
            "job": self.job,
            "path": self.path,
            "parquet_id": self.parquet_id.hex,
            "file_size": self.file_size,
            "footer_length": self.footer_length,
            "record_count": self.record_count,
            "min_timestamp": self.min_timestamp,
            "max_timestamp": self.max_timestamp,
            "start": self.start,
            "end": self.end,
            "row_groups": [list(group) for group in self.row_groups],
            "columns": [
                [column.field_id, column.compressed_bytes, column.value_count, column.null_count]
                for column in self.columns
            ],
            "split_offsets": list(self.split_offsets),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> WrittenFile:
        """Raises `KeyError`, `TypeError` or `ValueError` for what `to_json` did not make."""
        return cls(
            stream=int(fields["stream"]),
            job=int(fields["job"]),
            path=str(fields["path"]),
            parquet_id=UUID(hex=fields["parquet_id"]),
            file_size=int(fields["file_size"]),
            footer_length=int(fields["footer_length"]),
            record_count=int(fields["record_count"]),
            min_timestamp=int(fields["min_timestamp"]),
            max_timestamp=int(fields["max_timestamp"]),
            start=int(fields["start"]),
            end=int(fields["end"]),
            row_groups=tuple(RowGroup(*map(int, group)) for group in fields["row_groups"]),
            columns=tuple(ColumnSizes(*map(int, column)) for column in fields["columns"]),
            split_offsets=tuple(map(int, fields["split_offsets"])),
        )
