"""A Parquet file that was written for a job: what the job stores, the index swaps in and the table adds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final
from uuid import UUID

from dray.log.entries import IndexEntry
from dray.metadata.codec import NOT_IF_NONE, HexUuid, JsonCodec
from dray.parquet.statistics import FileStatistics, RowGroup, are_dense


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile(FileStatistics):
    """The answer for a unit: what the writer counted, and the job that the file is for. There may be files of
    other attempts at the unit: only this path counts."""

    stream: int
    job: int
    path: str  # <prefix>/job-<number>-<attempt id>.parquet: see `dray.compaction.paths`
    parquet_id: HexUuid
    start: int
    end: int
    min_timestamp: int
    max_timestamp: int
    split_offsets: tuple[int, ...]
    # The file begins where the stream does, and below this offset no key has two records in it.
    cleaned_to: Annotated[int | None, NOT_IF_NONE] = None
    # The path of the object with keys that the file was written against: it holds no row that they supersede.
    cleaned_with: Annotated[str | None, NOT_IF_NONE] = None
    # But one, where that is all of it.
    emptied: Annotated[bool | None, NOT_IF_NONE] = None

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
        cleaned_to: int | None = None,
        cleaned_with: str | None = None,
        emptied: bool | None = None,
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
            cleaned_to=cleaned_to,
            cleaned_with=cleaned_with,
            emptied=emptied,
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
            record_count=entry.record_count,
            row_groups=groups,
            columns=(),
            min_timestamp=entry.min_timestamp,
            max_timestamp=entry.max_timestamp,
            split_offsets=tuple(group.position for group in groups),
        )

    def to_json(self) -> dict[str, Any]:
        """As it is stored in the job, and travels back through Spark. Row groups of a file without holes go
        without their last offset, as older builds know them."""
        fields = _CODEC.fields(self)
        if are_dense(self.row_groups, self.start, self.end):
            fields["row_groups"] = [group[:-1] for group in fields["row_groups"]]
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> WrittenFile:
        """Raises `ValueCorrupt` for what `to_json` did not make."""
        groups = fields.get("row_groups")
        if isinstance(groups, Sequence) and not isinstance(groups, str):
            fields = {**fields, "row_groups": [_with_last_offset(group) for group in groups]}
        return _CODEC.from_fields("a written file", fields)


def _with_last_offset(group: Any) -> Any:
    """A row group as it is stored: without its last offset where it has a row for every one."""
    known = len(RowGroup._fields)
    if not isinstance(group, Sequence) or len(group) != known - 1:
        return group
    count, first = group[_COUNT_AT], group[_FIRST_AT]
    return [*group, first + count - 1] if isinstance(count, int) and isinstance(first, int) else group


_COUNT_AT: Final = RowGroup._fields.index("record_count")
_FIRST_AT: Final = RowGroup._fields.index("first_offset")
_CODEC: Final = JsonCodec(WrittenFile)
