"""What the planner, the executors and the saga hand each other: plain data that can be pickled.

A job of a stream is one unit of work, becomes one Parquet file, and ends as one index entry. An executor
gets units and gives back written files; there is no store in either, so it can run anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from dray.log.entries import IndexEntry, RowGroup


@dataclass(frozen=True, slots=True)
class Unit:
    """What an executor needs, and nothing it could misuse."""

    topic: str
    topic_id: UUID
    partition: int
    stream: int
    job: int  # the job's number
    # Encoded index entries, adjoining, in order: WAL batches to decode, or Parquet files to merge.
    entries: tuple[bytes, ...]
    start: int
    end: int
    prefix: str  # of the path of its file, without a slash at the end

    def decoded(self) -> list[IndexEntry]:
        return [IndexEntry.decode(entry) for entry in self.entries]


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


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """A unit that did not become a file. One that is not worth another try stops its stream until somebody
    has looked: `reason` names the object and the place in it."""

    stream: int
    job: int
    reason: str
    retriable: bool


Progress = Callable[[int, int], None]  # units done, units in all


class WriterGone(Exception):
    """No unit can be written any more: the process had better end and be started again."""


class UnitWriter(Protocol):
    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None
    ) -> list[WrittenFile | UnitFailed]:
        """One answer per unit, in any order. What it raises is a failure of all of them, and
        `WriterGone` one for good; some may have left files behind, which the collector finds."""
