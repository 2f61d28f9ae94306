"""Jobs as they are stored: the states of a stream's job, what it compacts or packs, and the Parquet file
that was written for it. `machine.py` moves a job on.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, Final, NamedTuple
from uuid import UUID

from pydantic import Field

from dray.log.entries import NO_TIMESTAMP, EntryKind, IndexEntry
from dray.log.parquet.statistics import FileStatistics, RowGroup, are_dense
from dray.log.types import Versioned
from dray.metadata.values import NOT_IF_NONE, HexUuid, JsonCodec, ValueCorrupt

# --- a Parquet file that was written for a job
#
# The job stores it, the index swaps it in and the table adds it.


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile(FileStatistics):
    """The answer for a unit: what the writer counted, and the job that the file is for. There may be files of
    other attempts at the unit: only this path counts."""

    stream: int
    job: int
    path: str  # <prefix>/job-<number>-<attempt id>.parquet: see `dray.tables.compaction.paths`
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
    def gap(cls, stream: int, job: int, path: str, parquet_id: UUID, *, start: int, end: int) -> WrittenFile:
        """No file and no row: what takes the place of offsets that were given up (`lost_objects.py`)."""
        return cls(
            stream=stream,
            job=job,
            path=path,
            parquet_id=parquet_id,
            start=start,
            end=end,
            file_size=0,
            footer_length=0,
            record_count=0,
            row_groups=(),
            columns=(),
            min_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            split_offsets=(),
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
        fields = _FILE_CODEC.fields(self)
        if are_dense(self.row_groups, self.start, self.end):
            fields["row_groups"] = [group[:-1] for group in fields["row_groups"]]
        return fields

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> WrittenFile:
        """Raises `ValueCorrupt` for what `to_json` did not make."""
        groups = fields.get("row_groups")
        if isinstance(groups, Sequence) and not isinstance(groups, str):
            fields = {**fields, "row_groups": [_with_last_offset(group) for group in groups]}
        return _FILE_CODEC.from_fields("a written file", fields)


def _with_last_offset(group: Any) -> Any:
    """A row group as it is stored: without its last offset where it has a row for every one."""
    known = len(RowGroup._fields)
    if not isinstance(group, Sequence) or len(group) != known - 1:
        return group
    count, first = group[_COUNT_AT], group[_FIRST_AT]
    return [*group, first + count - 1] if isinstance(count, int) and isinstance(first, int) else group


_COUNT_AT: Final = RowGroup._fields.index("record_count")
_FIRST_AT: Final = RowGroup._fields.index("first_offset")
_FILE_CODEC: Final = JsonCodec(WrittenFile)


# --- the job


FORMAT: Final = 1
# The format of jobs that compact. A build that knows no such jobs refuses this format by name.
COMPACTION_FORMAT: Final = 2
# The format of jobs that pack, and of those that compact carried entries, for the same reason.
CARRIED_FORMAT: Final = 3
# Of jobs that compact or copy outside objects.
OUTSIDE_FORMAT: Final = 4


class JobState(Enum):
    DONE = "DONE"
    # Retention
    RETAIN = "RETAIN"  # raising the start to `threshold` has been decided
    RAISED = "RAISED"  # the start is there: what lies below may go
    # Compaction
    CREATED = "CREATED"  # a file is being written, or was; it may be abandoned
    PARQUET_WRITTEN = "PARQUET_WRITTEN"  # this very file: from here on there is no way back
    ICEBERG_COMMITTED = "ICEBERG_COMMITTED"  # it is in the topic's table, if that has one
    INDEX_SWAPPED = "INDEX_SWAPPED"  # its entry covers the inputs: what it replaces may go
    # Packing
    PACKED = "PACKED"  # this very object: there is no way back
    PACK_SWAPPED = "PACK_SWAPPED"  # the merged entry covers the inputs: what it replaces may go


class Awaits(Enum):
    """The thing that a job waits for, and so which processes can carry it on."""

    PLAN = "a plan"
    FILE = "a file, which a compactor writes; all others can only abandon it"
    TABLE = "a commit of its table, if it has one: by a compactor, and nothing else"
    INDEX = "the index: any process"
    PACK = "the index, for a pack: any process"
    START = "the start of the stream: any process"


_AWAITS: Final = {
    JobState.DONE: Awaits.PLAN,
    JobState.CREATED: Awaits.FILE,
    JobState.PARQUET_WRITTEN: Awaits.TABLE,
    JobState.ICEBERG_COMMITTED: Awaits.INDEX,
    JobState.INDEX_SWAPPED: Awaits.INDEX,
    JobState.PACKED: Awaits.PACK,
    JobState.PACK_SWAPPED: Awaits.PACK,
    JobState.RETAIN: Awaits.START,
    JobState.RAISED: Awaits.START,
}
_WITHOUT_COMPACTION: Final = frozenset({JobState.DONE, JobState.RETAIN, JobState.RAISED})
_OF_PACKS: Final = frozenset({JobState.PACKED, JobState.PACK_SWAPPED})


class Input(NamedTuple):
    """An index entry that a job replaces: its key, the version planned with, and its object."""

    end: int
    cumulative_size: int
    version: int
    object_id: HexUuid
    kind: EntryKind
    path: str  # of a Parquet file, which must leave the table; empty for a WAL object

    @classmethod
    def of(cls, entry: Versioned[IndexEntry]) -> Input:
        value = entry.value
        path = value.path if value.is_parquet else ""
        return cls(value.end, value.cumulative_size, entry.version, value.object_id, value.kind, path)


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How a job compacts by key: which rows may go beside those that a later one of the job supersedes."""

    tombstones_below: int = 0  # an offset: those below it have been seen for long enough
    retention_ms: int = 0  # how long that is, when the job was planned
    from_start: bool = False  # the job begins where the stream does: a bottom merge
    # Of a cleaning round: the path of the object with its keys, which say what is superseded.
    keys: Annotated[str | None, NOT_IF_NONE] = None
    # How far the round was then: from there on to the job's own range the stream has no records.
    after: Annotated[int | None, NOT_IF_NONE] = None

    @property
    def drops_keyless(self) -> bool:
        """Rows without a key go, as in Kafka: a topic that is compacted takes none."""
        return self.from_start or self.keys is not None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The compaction of a job. It says all that is needed to carry on where its topic is gone."""

    topic: str
    topic_id: HexUuid
    partition: int
    start: int
    end: int
    inputs: Annotated[tuple[Input, ...], Field(min_length=1)]  # adjoining, in order
    table: bool  # whether the file goes into the topic's table
    by_day: bool = False  # whether that is partitioned by day
    owner: str = ""  # who works on it. Others keep off for a while, only to save work
    # The file, once it is written, as it is stored: `file` reads it. Where another build describes it in some
    # other way, the job's state can still be read.
    written: Mapping[str, Any] | None = None
    cleaning: Annotated[Cleaning | None, NOT_IF_NONE] = None  # None: every row stays

    @property
    def cleaned_to(self) -> int | None:
        """Up to where the written file has one record of each key: as its writer said, and not as it was
        planned, since an older build may have taken the job over and dropped nothing."""
        found = None if self.written is None else self.written.get("cleaned_to")
        return found if isinstance(found, int) else None

    @property
    def cleaned_with(self) -> str | None:
        """The object with the keys that the file was written against, as its writer said, for that reason."""
        found = None if self.written is None else self.written.get("cleaned_with")
        return found if isinstance(found, str) else None

    @property
    def is_emptied(self) -> bool:
        """Does the file hold nothing but one row that those keys supersede?"""
        return self.written is not None and self.written.get("emptied") is True

    @property
    def file(self) -> WrittenFile:
        """The file of a written job. Raises `ValueCorrupt` if there is none, or none that can be read."""
        if self.written is None:
            raise ValueCorrupt("a stream's job", "it has no file")
        return WrittenFile.from_json(self.written)


@dataclass(frozen=True, slots=True)
class Packing:
    """The packing of a job: adjoining carried entries, whose batches are in a WAL object by now. They hold no
    references, so only the last is named: its key is where the merged entry goes."""

    start: int
    last: Input
    object_id: HexUuid  # of the WAL object
    # The merged entry as it is stored (base64): `merged` reads it.
    entry: str

    @classmethod
    def of(cls, inputs: Sequence[Versioned[IndexEntry]], merged: IndexEntry) -> Packing:
        entry = b64encode(merged.encode()).decode()
        return cls(merged.start, Input.of(inputs[-1]), merged.object_id, entry)

    @property
    def end(self) -> int:
        return self.last.end

    @property
    def merged(self) -> IndexEntry:
        """Raises `UnreadableValue`."""
        try:
            stored = b64decode(self.entry, validate=True)
        except ValueError as error:
            raise ValueCorrupt("a stream's job", "its merged entry is no base64") from error
        return IndexEntry.decode(stored)


@dataclass(frozen=True, slots=True)
class LeftTable:
    """Jobs of the stream went on without its table, which could not be written for long. Until it was brought
    up to the log it lacks files, and a commit for one of these jobs may still be on its way to it."""

    job: int  # the number of the first of them
    merged: bool  # was that a merge? Then the table has what its file replaced. Later ones are none


@dataclass(frozen=True, slots=True)
class Job:
    number: int = 0
    state: JobState = JobState.DONE
    threshold: int = 0  # the new start
    need: int = 0  # the end of the last entry that goes: the producer snapshot must cover it
    compaction: Annotated[Compaction | None, NOT_IF_NONE] = None
    packing: Annotated[Packing | None, NOT_IF_NONE] = None
    # Of the stream: it stays while jobs come and go. An older build drops it, and holds the table against the
    # log at its next collection.
    left_table: Annotated[LeftTable | None, NOT_IF_NONE] = None

    @property
    def awaits(self) -> Awaits:
        return _AWAITS[self.state]

    @property
    def compacted(self) -> Compaction:
        """The job's compaction. Only for a job that has one."""
        if self.compaction is None:
            raise ValueError(f"job {self.number} ({self.state.value}) compacts nothing")
        return self.compaction

    @property
    def packed(self) -> Packing:
        """The job's packing. Only for a job that has one."""
        if self.packing is None:
            raise ValueError(f"job {self.number} ({self.state.value}) packs nothing")
        return self.packing

    def packs_into(self, wal_id: UUID) -> bool:
        """Is this the object that the job brings into the log, or brought there?"""
        return self.packing is not None and self.packing.object_id == wal_id

    @property
    def last_input(self) -> Input:
        """The input at whose key the new entry is put. Only for a job that compacts or packs."""
        return self.compacted.inputs[-1] if self.packing is None else self.packing.last

    @property
    def snapshot_end(self) -> int:
        """The end that the producer snapshot must reach. Only for a job that awaits the index or the
        start."""
        if self.packing is not None:
            return self.packing.end
        return self.need if self.compaction is None else self.compaction.end

    def moved(self, state: JobState) -> Job:
        if state is JobState.DONE:
            return replace(self, state=state, compaction=None, packing=None)
        return replace(self, state=state)

    @property
    def _format(self) -> int:
        if self.packing is not None:
            return OUTSIDE_FORMAT if self.packing.last.kind is EntryKind.OUTSIDE else CARRIED_FORMAT
        if self.compaction is None:
            return FORMAT
        kinds = {each.kind for each in self.compaction.inputs}
        if EntryKind.OUTSIDE in kinds:
            return OUTSIDE_FORMAT
        return CARRIED_FORMAT if EntryKind.CARRIED in kinds else COMPACTION_FORMAT

    def encode(self) -> bytes:
        return _CODEC.encode(self, self._format)

    @classmethod
    def decode(cls, value: bytes) -> Job:
        version, job = _CODEC.decode_versioned("a stream's job", value)
        if version != job._format:
            raise ValueCorrupt("a stream's job", f"format {version} does not fit what it compacts or packs")
        if job.compaction is None and job.packing is None and job.state not in _WITHOUT_COMPACTION:
            raise ValueCorrupt("a stream's job", f"{job.state.value}, and nothing to compact")
        if (job.packing is not None) != (job.state in _OF_PACKS):
            raise ValueCorrupt("a stream's job", f"{job.state.value} does not fit what it packs")
        return job


_CODEC: Final = JsonCodec(Job, OUTSIDE_FORMAT)


def with_versions(job: Job, version_of: Callable[[Input], int]) -> Job:
    """The job of a stream whose keys were restored: they have other versions there."""

    def moved(each: Input) -> Input:
        return each._replace(version=version_of(each))

    if job.packing is not None:
        return replace(job, packing=replace(job.packing, last=moved(job.packing.last)))
    if job.compaction is None:
        return job
    return replace(job, compaction=replace(job.compaction, inputs=tuple(map(moved, job.compaction.inputs))))
