"""The job of a stream: one pure machine for compaction and retention. State and event in, operations out.

One key per stream holds its job, with a number that only grows. A new job is put over the version that was
read before the plan was made, so a stale plan can never start. A process that finds an unfinished job carries
it on.

    state               event            what is done
    ------------------  ---------------  ----------------------------------------------------------------
    DONE                Planned          CREATED, with the next number
                        StartPlanned     RETAIN, with the next number
    CREATED             FileWritten      PARQUET_WRITTEN: from here on this very file, and no way back
                        Abandoned        DONE: nothing came of it but a file that no key names
    PARQUET_WRITTEN     InTable          ICEBERG_COMMITTED
                        StreamGone       delete what it would replace; DONE
    ICEBERG_COMMITTED   LastInputSeen    the file's entry is there: INDEX_SWAPPED
                                         the input as planned: put the file's entry over it, and look again
                                         neither: look again behind a barrier; if certain, `SwapImpossible`
                        StreamGone       delete what it would replace; DONE
    INDEX_SWAPPED       Resumed          delete what it replaced; DONE
                        StreamGone       the same
    RETAIN              StartSeen        below the threshold: raise it, and look again
                                         there: RAISED
                        StreamGone       DONE
    RAISED              EntriesSeen      delete those below; if there are more, look again; else DONE
                        StreamGone       DONE
    any                 StreamSwept      the key goes, unless a file was written

Any other pair is an `IllegalEvent`. Before `LastInputSeen` and `StartSeen` the producer snapshot must cover
`Job.snapshot_end`: what goes after that takes the detail of the producers with it.

A `JobStep` is at most one write, and after its reply at most one move of the job, which expects the version
that was read. So every step may be taken by any process, at any time, again, and a crash costs nothing but
a look.

When a reply is lost:

- of the swap (the put of the file's entry): the job is still ICEBERG_COMMITTED, and the next step looks at
  the key of the last input again. The file's entry is there: INDEX_SWAPPED. The input is as planned: the same
  put again. The put expects the version planned with, so a late copy of it applies once, or never.
- of a raised start: the job is still RETAIN, and the next step looks at the start again.
- of deletes: the job is not moved, and the next step deletes again. To delete twice is to delete once.
- of a move: the key is read behind a barrier. It holds what was sent: it is moved. Else another was first.

So nothing is moved over a write that was not seen, and DONE stands for deletes that were confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field

from dray.log.entries import EntryKind, IndexEntry, encode_start
from dray.log.types import LogError, Versioned
from dray.log.written_file import WrittenFile
from dray.metadata import keys
from dray.metadata.codec import NOT_IF_NONE, HexUuid, JsonCodec
from dray.metadata.contract import ABSENT, Delete, DeleteRange, Operation, Put
from dray.metadata.values import ValueCorrupt

FORMAT: Final = 1
# The format of jobs that compact. A build that knows no such jobs refuses this format by name.
COMPACTION_FORMAT: Final = 2


class IllegalEvent(ValueError):
    """The table above has no such pair of state and event. The caller made a mistake; no store did."""

    def __init__(self, job: Job, event: object) -> None:
        super().__init__(f"job {job.number} is {job.state.value}: {type(event).__name__} is not for it")


class SwapImpossible(LogError):
    """The last input is neither as it was planned with nor replaced: its stream was deleted and swept."""


# --- states


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


class Awaits(Enum):
    """What a job waits for, and so which processes can carry it on."""

    PLAN = "a plan"
    FILE = "a file, which a compactor writes; all others can only abandon it"
    TABLE = "a commit of its table, if it has one: by a compactor, and nothing else"
    INDEX = "the index: any process"
    START = "the start of the stream: any process"


_AWAITS: Final = {
    JobState.DONE: Awaits.PLAN,
    JobState.CREATED: Awaits.FILE,
    JobState.PARQUET_WRITTEN: Awaits.TABLE,
    JobState.ICEBERG_COMMITTED: Awaits.INDEX,
    JobState.INDEX_SWAPPED: Awaits.INDEX,
    JobState.RETAIN: Awaits.START,
    JobState.RAISED: Awaits.START,
}
_WITHOUT_COMPACTION: Final = frozenset({JobState.DONE, JobState.RETAIN, JobState.RAISED})


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

    @property
    def drops_keyless(self) -> bool:
        """Rows without a key go, as in Kafka: a topic that is compacted takes none."""
        return self.from_start


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a job compacts. It says all that is needed to carry on where its topic is gone."""

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
    def file(self) -> WrittenFile:
        """The file of a written job. Raises `ValueCorrupt` if there is none, or none that can be read."""
        if self.written is None:
            raise ValueCorrupt("a stream's job", "it has no file")
        return WrittenFile.from_json(self.written)


@dataclass(frozen=True, slots=True)
class Job:
    number: int = 0
    state: JobState = JobState.DONE
    threshold: int = 0  # the new start
    need: int = 0  # the end of the last entry that goes: the producer snapshot must cover it
    compaction: Annotated[Compaction | None, NOT_IF_NONE] = None

    @property
    def awaits(self) -> Awaits:
        return _AWAITS[self.state]

    @property
    def compacted(self) -> Compaction:
        """What the job compacts. Only for a job that does."""
        if self.compaction is None:
            raise ValueError(f"job {self.number} ({self.state.value}) compacts nothing")
        return self.compaction

    @property
    def snapshot_end(self) -> int:
        """What the producer snapshot must cover first. Only for a job that awaits the index or the start."""
        return self.need if self.compaction is None else self.compaction.end

    def moved(self, state: JobState) -> Job:
        return replace(self, state=state, compaction=None if state is JobState.DONE else self.compaction)

    def encode(self) -> bytes:
        return _CODEC.encode(self, FORMAT if self.compaction is None else COMPACTION_FORMAT)

    @classmethod
    def decode(cls, value: bytes) -> Job:
        version, job = _CODEC.decode_versioned("a stream's job", value)
        if (version == COMPACTION_FORMAT) != (job.compaction is not None):
            raise ValueCorrupt("a stream's job", f"format {version} does not fit what it compacts")
        if job.compaction is None and job.state not in _WITHOUT_COMPACTION:
            raise ValueCorrupt("a stream's job", f"{job.state.value}, and nothing to compact")
        return job


_CODEC: Final = JsonCodec(Job, COMPACTION_FORMAT)


# --- events


@dataclass(frozen=True, slots=True)
class Planned:
    compaction: Compaction


@dataclass(frozen=True, slots=True)
class StartPlanned:
    threshold: int
    need: int


@dataclass(frozen=True, slots=True)
class FileWritten:
    file: WrittenFile


@dataclass(frozen=True, slots=True)
class Abandoned:
    """No file will come, or records are to be deleted and cannot wait for it."""


@dataclass(frozen=True, slots=True)
class InTable:
    """The table has the file, or the job has no table."""


@dataclass(frozen=True, slots=True)
class StreamGone:
    """The stream was deleted, and the file, if there is one, was taken out of the table."""


@dataclass(frozen=True, slots=True)
class StreamSwept:
    """The stream was deleted, and its index with its references."""


@dataclass(frozen=True, slots=True)
class LastInputSeen:
    """What is at the key of the last input."""

    found: Versioned[IndexEntry] | None
    certain: bool = False  # read behind a barrier, and the job had not moved after that


@dataclass(frozen=True, slots=True)
class Resumed:
    """A process carries the job on. It need not read anything first."""


@dataclass(frozen=True, slots=True)
class StartSeen:
    start: Versioned[int]


@dataclass(frozen=True, slots=True)
class EntriesSeen:
    entries: Sequence[Versioned[IndexEntry]]  # of the stream, from the oldest on
    most_operations: int  # of one write


Event = (
    Planned
    | StartPlanned
    | FileWritten
    | Abandoned
    | InTable
    | StreamGone
    | StreamSwept
    | LastInputSeen
    | Resumed
    | StartSeen
    | EntriesSeen
)


# --- the machine


@dataclass(frozen=True, slots=True)
class JobStep:
    """First the write; once its reply is there, the move."""

    write: Sequence[Operation] = ()
    following: Job | None = None  # put over the version that was read. None: look again
    unclear: bool = False  # what was seen may be old: look behind a barrier
    forget: bool = False  # the job's key goes


def advance(stream: int, job: Job, event: Event) -> JobStep:
    """Raises `IllegalEvent`, and `SwapImpossible` as the table says."""
    transition = _TABLE.get((job.state, type(event)))
    if transition is None:
        raise IllegalEvent(job, event)
    return transition(stream, job, event)


def is_moved(found: Job, sent: Job) -> bool:
    """After the reply to a move was lost: has it happened?"""
    return found == sent


def _create(_: int, job: Job, event: Planned) -> JobStep:
    return JobStep(following=Job(job.number + 1, JobState.CREATED, compaction=event.compaction))


def _retain(_: int, job: Job, event: StartPlanned) -> JobStep:
    return JobStep(following=Job(job.number + 1, JobState.RETAIN, event.threshold, event.need))


def _written(_: int, job: Job, event: FileWritten) -> JobStep:
    compaction = replace(job.compacted, written=event.file.to_json())
    return JobStep(following=replace(job, state=JobState.PARQUET_WRITTEN, compaction=compaction))


def _committed(_: int, job: Job, __: InTable) -> JobStep:
    return JobStep(following=job.moved(JobState.ICEBERG_COMMITTED))


def _swap(stream: int, job: Job, event: LastInputSeen) -> JobStep:
    compaction, found = job.compacted, event.found
    last = compaction.inputs[-1]
    if found is not None and found.value.object_id == compaction.file.parquet_id:
        return JobStep(following=job.moved(JobState.INDEX_SWAPPED))
    if found is not None and found.version == last.version:
        key = keys.index_entry(stream, last.end, last.cumulative_size)
        return JobStep(write=[Put(key, swapped_entry(compaction, found.value).encode(), last.version)])
    if event.certain:
        raise SwapImpossible(f"stream {stream}: job {job.number} has no place for {compaction.file.path}")
    return JobStep(unclear=True)


def _delete_replaced(stream: int, job: Job, _: Resumed | StreamGone) -> JobStep:
    return JobStep(write=replaced(stream, job.compacted), following=job.moved(JobState.DONE))


def _raise(stream: int, job: Job, event: StartSeen) -> JobStep:
    if event.start.value < job.threshold:
        return JobStep(write=[put_start(stream, job.threshold, event.start.version)])
    return JobStep(following=job.moved(JobState.RAISED))


def _delete_below(stream: int, job: Job, event: EntriesSeen) -> JobStep:
    operations: list[Operation] = []
    for entry in event.entries:
        if entry.value.end > job.threshold or len(operations) >= event.most_operations:
            break
        operations += removal(stream, entry.value)
    there_is_more = len(operations) >= event.most_operations
    return JobStep(operations, None if there_is_more else job.moved(JobState.DONE))


def _done(_: int, job: Job, __: Abandoned | StreamGone) -> JobStep:
    return JobStep(following=job.moved(JobState.DONE))


def _forget(_: int, __: Job, ___: StreamSwept) -> JobStep:
    return JobStep(forget=True)


def _keep(_: int, __: Job, ___: StreamSwept) -> JobStep:
    """The job stays: a compactor has to take its file out of the table first."""
    return JobStep()


_TABLE: Final[Mapping[tuple[JobState, type[Event]], Callable[[int, Job, Any], JobStep]]] = {
    (JobState.DONE, Planned): _create,
    (JobState.DONE, StartPlanned): _retain,
    (JobState.DONE, StreamSwept): _forget,
    (JobState.CREATED, FileWritten): _written,
    (JobState.CREATED, Abandoned): _done,
    (JobState.CREATED, StreamSwept): _forget,
    (JobState.PARQUET_WRITTEN, InTable): _committed,
    (JobState.PARQUET_WRITTEN, StreamGone): _delete_replaced,
    (JobState.PARQUET_WRITTEN, StreamSwept): _keep,
    (JobState.ICEBERG_COMMITTED, LastInputSeen): _swap,
    (JobState.ICEBERG_COMMITTED, StreamGone): _delete_replaced,
    (JobState.ICEBERG_COMMITTED, StreamSwept): _keep,
    (JobState.INDEX_SWAPPED, Resumed): _delete_replaced,
    (JobState.INDEX_SWAPPED, StreamGone): _delete_replaced,
    (JobState.INDEX_SWAPPED, StreamSwept): _keep,
    (JobState.RETAIN, StartSeen): _raise,
    (JobState.RETAIN, StreamGone): _done,
    (JobState.RETAIN, StreamSwept): _forget,
    (JobState.RAISED, EntriesSeen): _delete_below,
    (JobState.RAISED, StreamGone): _done,
    (JobState.RAISED, StreamSwept): _forget,
}


# --- operations


def put_job(stream: int, job: Job, version: int) -> Put:
    return Put(keys.job(stream), job.encode(), version or ABSENT)


def put_start(stream: int, offset: int, version: int) -> Put:
    return Put(keys.start(stream), encode_start(offset), version or ABSENT)


def removal(stream: int, entry: IndexEntry, version: int | None = None) -> list[Operation]:
    """Take an entry out of the index together with the reference it holds, in one write."""
    key = keys.index_entry(stream, entry.end, entry.cumulative_size)
    operations: list[Operation] = [Delete(key) if version is None else Delete(key, version)]
    if not entry.is_parquet:  # Parquet files have no references: their collector asks the index
        operations.append(Delete(keys.reference(entry.object_id, stream)))
    return operations


def replaced(stream: int, compaction: Compaction) -> list[Operation]:
    """One write: the keys inside the range, whatever late writes brought back there, and the references."""
    operations: list[Operation] = [
        DeleteRange(keys.index_from(stream, compaction.start + 1), keys.index_from(stream, compaction.end))
    ]
    operations.extend(
        Delete(keys.reference(each.object_id, stream))
        for each in compaction.inputs
        if each.kind is EntryKind.WAL
    )
    return operations


def swapped_entry(compaction: Compaction, last: IndexEntry) -> IndexEntry:
    """The entry of the written file. What it says of the whole stream up to here is what the last input
    said; its timestamps are those of the file, since the other inputs are not read again."""
    file = compaction.file
    entry = IndexEntry.parquet(
        [last],
        file.parquet_id,
        file.path,
        file.file_size,
        file.footer_length,
        file.row_groups,
        compaction.start,
    )
    return replace(entry, min_timestamp=file.min_timestamp, max_timestamp=file.max_timestamp)
