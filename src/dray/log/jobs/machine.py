"""The job of a stream: one pure machine for compaction, packing and retention. State and event in, operations
out.

One key per stream holds its job, with a number that only grows. A new job is put over the version that was
read before the plan was made, so a stale plan can never start. A process that finds an unfinished job carries
it on.

    state               event            what is done
    ------------------  ---------------  ----------------------------------------------------------------
    DONE                Planned          CREATED, with the next number
                        StartPlanned     RETAIN, with the next number
                        CaughtUp         DONE: the table is what the log is again
                        Packed           PACKED, with the next number: its object is uploaded, and no way back
                        NumbersSpent     DONE, with a later number: no job will have those in between
    CREATED             FileWritten      PARQUET_WRITTEN: from here on this very file, and no way back
                        Abandoned        DONE: nothing came of it but a file that no key names
    PARQUET_WRITTEN     InTable          ICEBERG_COMMITTED
                        WithoutTable     ICEBERG_COMMITTED, and from here on the stream has left its table
                        StreamGone       delete what it would replace; DONE
    ICEBERG_COMMITTED   LastInputSeen    the file's entry is there: INDEX_SWAPPED
                                         the input as planned: put the file's entry over it, and look again
                                         neither: look again behind a barrier; if certain, `SwapImpossible`
                        StreamGone       delete what it would replace; DONE
    INDEX_SWAPPED       Resumed          delete what it replaced; DONE
                        StreamGone       the same
    PACKED              LastInputSeen    the merged entry is there: PACK_SWAPPED
                                         else as ICEBERG_COMMITTED, with the merged entry
                        StreamGone       delete its reference; DONE
    PACK_SWAPPED        Resumed          delete what it replaced; DONE
                        StreamGone       delete that and its reference; DONE
    RETAIN              StartSeen        below the threshold: raise it, and look again
                                         there: RAISED
                        StreamGone       DONE
    RAISED              EntriesSeen      delete those below; if there are more, look again; else DONE
                        StreamGone       DONE
    any                 StreamSwept      the key goes, unless a file was written; of a pack also its reference

That a stream has left its table is said by every job of it from then on, until `CaughtUp`.

Any other pair is an `IllegalEvent`. Before `LastInputSeen` and `StartSeen` the producer snapshot must cover
`Job.snapshot_end`: what goes after that takes the detail of the producers with it.

A `JobStep` is at most one write, and after its reply at most one move of the job, which expects the version
that was read. So every step may be taken by any process, at any time, again, and a crash costs nothing but
a look.

When a reply is lost:

- of the swap (the put of the new entry): the job is still ICEBERG_COMMITTED or PACKED, and the next step
  looks at the key of the last input again. The new entry is there: the job goes on. The input is as planned:
  the same put again. The put expects the version planned with, so a late copy of it applies once, or never.
- of a raised start: the job is still RETAIN, and the next step looks at the start again.
- of deletes: the job is not moved, and the next step deletes again. To delete twice is to delete once.
- of a move: the key is read behind a barrier. It holds what was sent: it is moved. Else another was first.

So nothing is moved over a write that was not seen, and DONE stands for deletes that were confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dray.log.entries import EntryKind, IndexEntry, encode_start
from dray.log.jobs.values import (
    Awaits,
    Cleaning,
    Compaction,
    Input,
    Job,
    JobState,
    LeftTable,
    Packing,
    WrittenFile,
)
from dray.log.types import LogError, Versioned
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Delete, DeleteRange, Operation, Put

__all__ = [
    "Abandoned",
    "Awaits",
    "CaughtUp",
    "Cleaning",
    "Compaction",
    "EntriesSeen",
    "Event",
    "FileWritten",
    "IllegalEvent",
    "InTable",
    "Input",
    "Job",
    "JobState",
    "JobStep",
    "LastInputSeen",
    "LeftTable",
    "NumbersSpent",
    "Packed",
    "Packing",
    "Planned",
    "Resumed",
    "StartPlanned",
    "StartSeen",
    "StreamGone",
    "StreamSwept",
    "SwapImpossible",
    "WithoutTable",
    "advance",
    "dereference",
    "inside",
    "is_moved",
    "put_job",
    "put_start",
    "removal",
    "replaced",
    "swapped_entry",
]


class IllegalEvent(ValueError):
    """The table above has no such pair of state and event. The caller made a mistake; no store did."""

    def __init__(self, job: Job, event: object) -> None:
        super().__init__(f"job {job.number} is {job.state.value}: {type(event).__name__} is not for it")


class SwapImpossible(LogError):
    """The last input is neither as it was planned with nor replaced: its stream was deleted and swept."""


# --- events


@dataclass(frozen=True, slots=True)
class Planned:
    compaction: Compaction


@dataclass(frozen=True, slots=True)
class StartPlanned:
    threshold: int
    need: int


@dataclass(frozen=True, slots=True)
class Packed:
    """The object of a pack is staged and uploaded, for carried entries that were live when it was planned."""

    packing: Packing


@dataclass(frozen=True, slots=True)
class NumbersSpent:
    """Files were written for jobs to come, and nobody came for them: they are to be known as garbage."""

    upto: int


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
class WithoutTable:
    """The table was held, refused or away for too long: the log does not wait for it. A commit of the file
    may still reach it, so nothing is known of the table from here on."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """A commit made the table what the log was at this very version of the job, and stopped all before it."""


@dataclass(frozen=True, slots=True)
class StreamGone:
    """The stream was deleted, and the file, if there is one, was taken out of the table."""


@dataclass(frozen=True, slots=True)
class StreamSwept:
    """The stream was deleted, and its index with its references."""


@dataclass(frozen=True, slots=True)
class LastInputSeen:
    """The entry that is now at the key of the last input."""

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
    most: int  # of one write: each takes up to two operations


Event = (
    Planned
    | StartPlanned
    | Packed
    | NumbersSpent
    | FileWritten
    | Abandoned
    | InTable
    | WithoutTable
    | CaughtUp
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
    return JobStep(following=replace(_next(job, JobState.CREATED), compaction=event.compaction))


def _retain(_: int, job: Job, event: StartPlanned) -> JobStep:
    following = replace(_next(job, JobState.RETAIN), threshold=event.threshold, need=event.need)
    return JobStep(following=following)


def _pack(_: int, job: Job, event: Packed) -> JobStep:
    return JobStep(following=replace(_next(job, JobState.PACKED), packing=event.packing))


def _next(job: Job, state: JobState) -> Job:
    return Job(job.number + 1, state, left_table=job.left_table)


def _caught_up(_: int, job: Job, __: CaughtUp) -> JobStep:
    return JobStep(following=replace(job, left_table=None))


def _spend(_: int, job: Job, event: NumbersSpent) -> JobStep:
    return JobStep(following=replace(job, number=max(job.number, event.upto)))


def _written(_: int, job: Job, event: FileWritten) -> JobStep:
    compaction = replace(job.compacted, written=event.file.to_json())
    return JobStep(following=replace(job, state=JobState.PARQUET_WRITTEN, compaction=compaction))


def _committed(_: int, job: Job, __: InTable) -> JobStep:
    return JobStep(following=job.moved(JobState.ICEBERG_COMMITTED))


def _leave_table(_: int, job: Job, __: WithoutTable) -> JobStep:
    merged = any(each.path for each in job.compacted.inputs)
    left = job.left_table or LeftTable(job.number, merged)
    return JobStep(following=replace(job, state=JobState.ICEBERG_COMMITTED, left_table=left))


def _swap(stream: int, job: Job, event: LastInputSeen) -> JobStep:
    compaction, found = job.compacted, event.found
    if found is not None and found.value.object_id == compaction.file.parquet_id:
        return JobStep(following=job.moved(JobState.INDEX_SWAPPED))
    if found is not None and found.version == job.last_input.version:
        return _put_over_last(stream, job, swapped_entry(compaction, found.value))
    return _no_place(stream, job, compaction.file.path, event.certain)


def _swap_merged(stream: int, job: Job, event: LastInputSeen) -> JobStep:
    packing, found = job.packed, event.found
    if found is not None and found.value.object_id == packing.object_id:
        return JobStep(following=job.moved(JobState.PACK_SWAPPED))
    if found is not None and found.version == job.last_input.version:
        return _put_over_last(stream, job, packing.merged)
    return _no_place(stream, job, packing.object_id.hex, event.certain)


def _put_over_last(stream: int, job: Job, entry: IndexEntry) -> JobStep:
    last = job.last_input
    key = keys.index_entry(stream, last.end, last.cumulative_size)
    return JobStep(write=[Put(key, entry.encode(), last.version)])


def _no_place(stream: int, job: Job, what: str, certain: bool) -> JobStep:
    """The last input is not as planned, and not replaced."""
    if certain:
        raise SwapImpossible(f"stream {stream}: job {job.number} has no place for {what}")
    return JobStep(unclear=True)


def _delete_replaced(stream: int, job: Job, _: Resumed | StreamGone) -> JobStep:
    return JobStep(write=replaced(stream, job.compacted), following=job.moved(JobState.DONE))


def _delete_packed(stream: int, job: Job, _: Resumed) -> JobStep:
    return JobStep(write=[inside(stream, job.packed)], following=job.moved(JobState.DONE))


def _unpack(stream: int, job: Job, _: StreamGone) -> JobStep:
    """The stream is closed: nothing of it is read any more, so its part of the object is not needed."""
    dropped: list[Operation] = [inside(stream, job.packed), dereference(stream, job.packed)]
    return JobStep(write=dropped, following=job.moved(JobState.DONE))


def _forget_packed(stream: int, job: Job, _: StreamSwept) -> JobStep:
    """The sweep may have deleted the merged entry for the one that it replaced: the reference goes too."""
    return JobStep(write=[dereference(stream, job.packed)], forget=True)


def _raise(stream: int, job: Job, event: StartSeen) -> JobStep:
    if event.start.value < job.threshold:
        return JobStep(write=[put_start(stream, job.threshold, event.start.version)])
    return JobStep(following=job.moved(JobState.RAISED))


def _delete_below(stream: int, job: Job, event: EntriesSeen) -> JobStep:
    operations: list[Operation] = []
    below = [entry.value for entry in event.entries[: event.most] if entry.value.end <= job.threshold]
    for entry in below:
        operations += removal(stream, entry)
    there_is_more = len(below) >= event.most
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
    (JobState.DONE, Packed): _pack,
    (JobState.DONE, CaughtUp): _caught_up,
    (JobState.DONE, NumbersSpent): _spend,
    (JobState.DONE, StreamSwept): _forget,
    (JobState.CREATED, FileWritten): _written,
    (JobState.CREATED, Abandoned): _done,
    (JobState.CREATED, StreamSwept): _forget,
    (JobState.PARQUET_WRITTEN, InTable): _committed,
    (JobState.PARQUET_WRITTEN, WithoutTable): _leave_table,
    (JobState.PARQUET_WRITTEN, StreamGone): _delete_replaced,
    (JobState.PARQUET_WRITTEN, StreamSwept): _keep,
    (JobState.ICEBERG_COMMITTED, LastInputSeen): _swap,
    (JobState.ICEBERG_COMMITTED, StreamGone): _delete_replaced,
    (JobState.ICEBERG_COMMITTED, StreamSwept): _keep,
    (JobState.INDEX_SWAPPED, Resumed): _delete_replaced,
    (JobState.INDEX_SWAPPED, StreamGone): _delete_replaced,
    (JobState.INDEX_SWAPPED, StreamSwept): _keep,
    (JobState.PACKED, LastInputSeen): _swap_merged,
    (JobState.PACKED, StreamGone): _unpack,
    (JobState.PACKED, StreamSwept): _forget_packed,
    (JobState.PACK_SWAPPED, Resumed): _delete_packed,
    (JobState.PACK_SWAPPED, StreamGone): _unpack,
    (JobState.PACK_SWAPPED, StreamSwept): _forget_packed,
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
    if entry.is_referenced:
        operations.append(Delete(keys.reference(entry.object_id, stream)))
    elif entry.is_outside:  # there is one only if the object is ours
        operations.append(Delete(keys.entry_reference(entry.object_id, stream, entry.end)))
    return operations


def inside(stream: int, of: Compaction | Packing) -> DeleteRange:
    """The keys inside the range, whatever late writes brought back there."""
    return DeleteRange(keys.index_from(stream, of.start + 1), keys.index_from(stream, of.end))


def dereference(stream: int, packing: Packing) -> Delete:
    """Of an object that was packed, or of an outside object that was copied."""
    if packing.last.kind is EntryKind.OUTSIDE:
        return Delete(keys.entry_reference(packing.object_id, stream, packing.end))
    return Delete(keys.reference(packing.object_id, stream))


def replaced(stream: int, compaction: Compaction) -> list[Operation]:
    """One write: the keys inside the range, and the references."""
    operations: list[Operation] = [inside(stream, compaction)]
    operations.extend(
        Delete(keys.reference(each.object_id, stream))
        for each in compaction.inputs
        if each.kind is EntryKind.WAL
    )
    operations.extend(
        Delete(keys.entry_reference(each.object_id, stream, each.end))
        for each in compaction.inputs
        if each.kind is EntryKind.OUTSIDE
    )
    return operations


def swapped_entry(compaction: Compaction, last: IndexEntry) -> IndexEntry:
    """The entry of the written file. The totals of the stream up to here are those of the last input; its
    timestamps are those of the file, since the other inputs are not read again."""
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
