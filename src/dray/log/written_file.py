"""A Parquet file that was written for a job: what the job stores, the index swaps in and the table adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from dray.log.entries import IndexEntry
from dray.parquet.statistics import ColumnSizes, FileStatistics, RowGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile(FileStatistics):
    """What comes back for a unit: what the writer counted, and whose file it is. Of all the attempts at a
    unit, only this one's path counts."""

    stream: int
    job: int
    path: str  # <prefix>/job-<number>-<attempt id>.parquet: see `dray.compaction.paths`
    parquet_id: UUID
    start: int
    end: int
    min_timestamp: int
    max_timestamp: int
    split_offsets: tuple[int, ...]

    @classmethod
    def of(
        cls,
        counted: FileStatistics,
        *,
        stream: int,
        job: int,
        path: str,
        parquet_id: UUID,
        start: int,
        end: int,
    ) -> WrittenFile:
        """A file of the offsets `start` up to `end`, as its writer counted it."""
        groups = counted.row_groups
        return cls(
            stream=stream,
            job=job,
            path=path,
            parquet_id=parquet_id,
            start=start,
            end=end,
            file_size=counted.file_size,
            footer_length=counted.footer_length,
            record_count=counted.record_count,
            row_groups=groups,
            columns=counted.columns,
            min_timestamp=min(group.min_timestamp for group in groups),
            max_timestamp=max(group.max_timestamp for group in groups),
            split_offsets=tuple(group.position for group in groups),
        )

    @classmethod
    def of_entry(cls, entry: IndexEntry, *, stream: int, job: int) -> WrittenFile:
        """A file as the index knows it: without the sizes of its columns, which only its writer knew."""
        groups = tuple(entry.row_groups())
        return cls(
            stream=stream,
            job=job,
            path=entry.path,
            parquet_id=entry.object_id,
            start=entry.start,
            end=entry.end,
            file_size=entry.file_size,
            footer_length=entry.footer_length,
            record_count=entry.end - entry.start,
            row_groups=groups,
            columns=(),
            min_timestamp=entry.min_timestamp,
            max_timestamp=entry.max_timestamp,
            split_offsets=tuple(group.position for group in groups),
        )

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
