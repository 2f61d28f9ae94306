"""The finds of a restore: compacted files of the bucket that reach beyond the ends of their streams.

The path of a file says its stream and job, and its footer says its offsets. A job of the restored metadata
and all before it compacted what that metadata knows, so only files of later jobs are looked at. If such a
file begins at an entry of the stream, or at its end, and reaches further, the stream goes on with it: an
entry for the whole file, which covers what it was made of, as after a swap. If no file holds the next offset,
the stream ends: nothing is put over a hole.

Every row is read before that: a file with a wrong checksum is passed over. The producers of the rows come
into the stream's snapshot, so a batch that is sent once more is still known.

Several restores may start from one backup. Records that the first one gave up must not come back in the
second, beside records that were given their offsets. So each restore leaves a note in the bucket that names
the files it gave up; and where one is newer than the metadata, nothing is brought back at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

import structlog

from dray.base.runtime import Runtime
from dray.kafka.records.header import LOG_APPEND_TIME
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.jobs.machine import Abandoned, JobState, LeftTable, advance
from dray.log.parquet.reader import Footer, ParquetCorrupt, greatest_time
from dray.log.parquet.statistics import RowGroup
from dray.log.producer_state import ProducerSnapshot, ProducerStates, RememberedBatch, next_sequence
from dray.log.stream_state import advance_snapshot, largest_snapshot
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import ANY, Put, Unavailable
from dray.metadata.update import ALL_FAILURES, update
from dray.metadata.values import JsonCodec
from dray.objects.contract import ObjectMissing, ObjectStore

if TYPE_CHECKING:
    import pyarrow

_log = structlog.get_logger(__name__)

NOTE_FORMAT: Final = 1
NOTES: Final = "dray-restores/"
_FOOTER_END: Final = 8
_TRIES: Final = 64
_BESIDE_SNAPSHOT: Final = 1 << 10
"""The bytes of a write with a snapshot beside the snapshot and the new entry: the high watermark."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a job that the metadata does not know."""

    path: str
    parquet_id: UUID
    job: int
    size: int
    modified_ms: int
    first: int
    last: int


class Continuation(NamedTuple):
    """A file that a stream goes on with, and where its entry begins."""

    file: FoundFile
    start: int


# --- which files


def continuations(
    starts: Collection[int], end: int, files: Iterable[FoundFile], *, compacts: bool
) -> list[Continuation]:
    """The files that a stream goes on with from its end, in order, up to the first hole. `starts`: where its
    entries begin. Of several files that hold an offset, that of the highest job says last what is there."""
    left, known = list(files), {*starts, end}
    found: list[Continuation] = []
    while True:
        fitting = [
            Continuation(file, start)
            for file in left
            if file.first <= end <= file.last
            and (start := _start_of(file, known, end, compacts=compacts)) is not None
        ]
        if not fitting:
            return found
        best = max(fitting, key=lambda each: (each.file.job, each.file.path))
        end = best.file.last + 1
        known = {end}
        found.append(best)


def _start_of(file: FoundFile, starts: Collection[int], end: int, *, compacts: bool) -> int | None:
    """The entry of a file covers whole entries. Compaction by key may have taken its first rows, so there it
    began with the entry that its first row was in."""
    if file.first in starts:
        return file.first
    before = [start for start in starts if start < file.first and start < end]
    return max(before) if compacts and before else None


async def read_footer(objects: ObjectStore, path: str, size: int) -> Footer:
    """Raises `ParquetCorrupt`."""
    [end] = await objects.get_ranges(path, [(max(0, size - _FOOTER_END), min(size, _FOOTER_END))])
    length = min(size, int.from_bytes(end[:4], "little") + _FOOTER_END)
    [footer] = await objects.get_ranges(path, [(size - length, length)])
    return Footer(footer, size)


async def continuations_of(
    streams: StreamStore, stream: int, files: Iterable[FoundFile], *, compacts: bool
) -> list[Continuation]:
    """Nothing for a stream whose log another cluster owns: it is mirrored again from there."""
    view = await streams.view(stream)
    if view is None or view.high_watermark.value.closed or view.high_watermark.value.is_classic:
        return []
    mark = view.high_watermark.value
    starts = {entry.value.start for entry in view.split()[0]}
    if mark.head is not None:
        starts.add(mark.head.start)
    return continuations(starts, mark.end, files, compacts=compacts)


# --- bringing them back


async def bring_back(
    objects: ObjectStore,
    streams: StreamStore,
    runtime: Runtime,
    stream: int,
    files: Sequence[FoundFile],
    *,
    compacts: bool,
) -> list[Continuation]:
    """The files that came. No broker may run. A file at a time, each in one write: begun again, it goes on
    where it was."""
    left, came = list(files), list[Continuation]()
    while following := await continuations_of(streams, stream, left, compacts=compacts):
        best = following[0]
        try:
            await _Append(objects, streams, runtime, stream, best).run()
            came.append(best)
            left = [file for file in left if file.first > best.file.last]
        except (ParquetCorrupt, ObjectMissing) as error:
            _log.warning("a file is not brought back", path=best.file.path, error=str(error))
            left = [] if compacts else [file for file in left if file != best.file]
    return came


def covers(came: Iterable[Continuation], file: FoundFile) -> bool:
    """Is what a file holds in one that came?"""
    return any(each.start <= file.first and file.last <= each.file.last for each in came)


class _Append:
    """One file, as an entry at the end of its stream."""

    def __init__(
        self,
        objects: ObjectStore,
        streams: StreamStore,
        runtime: Runtime,
        stream: int,
        continuation: Continuation,
    ) -> None:
        self._objects = objects
        self._streams = streams
        self._runtime = runtime
        self._stream = stream
        self._file, self._start = continuation

    async def run(self) -> None:
        end = await update(self._runtime, self._sealed, ALL_FAILURES)
        for _ in range(_TRIES):
            if await advance_snapshot(self._streams, self._stream, end, None):
                break
        else:
            raise Unavailable(f"the producers of stream {self._stream} cannot be folded")
        await update(self._runtime, self._append, ALL_FAILURES)

    async def _sealed(self) -> int | None:
        """The end of the stream, once its head is filed."""
        await self._streams.barrier(self._stream)
        found = await self._streams.high_watermark(self._stream)
        if found is None or found.value.head is None:
            return 0 if found is None else found.value.end
        sealed = self._streams.advance(self._stream, found, found.value.sealed())
        outcomes = await self._streams.write(self._stream, sealed)
        return found.value.end if outcomes[0].applied else None

    async def _append(self) -> bool | None:
        await self._streams.barrier(self._stream)
        mark = await self._streams.high_watermark(self._stream)
        if mark is None or mark.value.end > self._file.last:
            return True  # by a try whose reply was lost
        snapshot = await self._streams.snapshot(self._stream)
        footer = await read_footer(self._objects, self._file.path, self._file.size)
        groups = footer.row_groups()
        following = await self._fold(footer, groups, mark.value, snapshot.value.states)
        entry = self._entry(following, groups, footer.size)
        value = entry.encode()
        outcomes = await self._streams.write(
            self._stream,
            [
                Put(keys.high_watermark(self._stream), following.encode(), mark.version),
                Put(keys.index_entry(self._stream, entry.end, entry.cumulative_size), value, ANY),
                self._streams.put_snapshot(
                    self._stream,
                    ProducerSnapshot(entry.end, self._bounded(snapshot.value.states, len(value))),
                    snapshot.version,
                ),
            ],
        )
        if not all(outcome.applied for outcome in outcomes):
            raise Unavailable(f"stream {self._stream}: somebody else writes to it")
        return True

    def _bounded(self, states: ProducerStates, entry_bytes: int) -> ProducerStates:
        """The states that fit into one write with the entry."""
        room = largest_snapshot(self._streams) - entry_bytes - _BESIDE_SNAPSHOT
        return states.within(room, states.newest_ms())[0]

    async def _fold(
        self, footer: Footer, groups: Sequence[RowGroup], mark: HighWatermark, states: ProducerStates
    ) -> HighWatermark:
        """The high watermark behind the file. The producers of its new rows are taken into `states`. All rows
        are read, since those below the end take the place of others, too."""
        greatest = mark.max_timestamp, mark.max_timestamp_offset
        for number, group in enumerate(groups):
            rows = await self._rows(footer, number, group)
            if group.last_offset < mark.end:
                continue
            fold_rows(states, rows, mark.end, self._file.modified_ms)
            if group.max_timestamp > greatest[0]:
                offset, time = greatest_time(rows, mark.end)
                greatest = max(greatest, (time, offset), key=lambda each: each[0])
        return replace(
            mark,
            end=self._file.last + 1,
            cumulative_size=mark.cumulative_size
            + sum(group.raw_bytes for group in groups if group.last_offset >= mark.end),
            max_timestamp=greatest[0],
            max_timestamp_offset=greatest[1],
        )

    async def _rows(self, footer: Footer, number: int, group: RowGroup) -> pyarrow.RecordBatch:
        [data] = await self._objects.get_ranges(self._file.path, [(group.position, group.length)])
        place = group.position, data, group.first_offset, group.record_count, group.last_offset
        return await self._runtime.in_thread(footer.read_group, number, *place)

    def _entry(self, mark: HighWatermark, groups: Sequence[RowGroup], footer_length: int) -> IndexEntry:
        file = self._file
        bounds = IndexEntry(
            start=self._start,
            end=mark.end,
            cumulative_size=mark.cumulative_size,
            created_ms=file.modified_ms,
            min_timestamp=min(group.min_timestamp for group in groups),
            max_timestamp=max(group.max_timestamp for group in groups),
            running_max_timestamp=mark.max_timestamp,
            running_max_offset=mark.max_timestamp_offset,
            object_id=file.parquet_id,
            path=file.path,
            table=b"",
        )
        return IndexEntry.parquet([bounds], file.parquet_id, file.path, file.size, footer_length, groups)


def fold_rows(states: ProducerStates, rows: pyarrow.RecordBatch, end: int, at_ms: int) -> None:
    """Take in the batches of rows from offset `end` on. If compaction by key took the last rows of one, it
    seems shorter than it was, and whoever sends on is refused, as over a gap."""
    names = ("producer_id", "producer_epoch", "base_sequence", "offset", "timestamp", "attributes")
    columns = [rows.column(name).to_pylist() for name in names]
    of_producers = (row for row in zip(*columns, strict=True) if row[0] is not None and row[3] >= end)
    for (producer, epoch, sequence), batch in groupby(of_producers, key=lambda row: row[:3]):
        first, *more = batch
        last = more[-1] if more else first
        stamped = first[5] & LOG_APPEND_TIME
        remembered = RememberedBatch(
            sequence,
            next_sequence(sequence, last[3] - first[3]),
            first[3],
            round(first[4].timestamp() * 1000) if stamped else -1,
        )
        states.remember(producer, epoch, remembered, at_ms)


# --- what is not brought back


async def settle_job(streams: StreamStore, runtime: Runtime, stream: int, number: int) -> None:
    """No job will have a number that a file in the bucket has: what is given up is garbage from now on, and
    may leave the table. So not where such a file may be the last that has records of the stream.

    And the stream has left its table, which may have rows that were given up: it is brought up to the log in
    one commit, before any other. This is no step of the machine of jobs: no broker and no compactor runs. A
    job that has its file goes its way."""

    async def attempt() -> bool | None:
        await streams.barrier(stream)
        job = await streams.job(stream)
        value = job.value
        if value.state is JobState.CREATED:
            await streams.perform(stream, job, advance(stream, value, Abandoned()))
            return None
        left = value.left_table or LeftTable(value.number, merged=False)
        following = replace(value, number=max(value.number, number), left_table=left)
        if value.state is not JobState.DONE or following == value:
            return True
        return None if await streams.move_job(stream, job, following) is None else True

    await update(runtime, attempt, ALL_FAILURES)


@dataclass(frozen=True, slots=True)
class RestoreNote:
    """The note of a restore in the bucket: the number that it gave the tally, and the files that it did not
    bring back."""

    number: int
    given_up: tuple[str, ...]


_NOTE: Final = JsonCodec(RestoreNote, NOTE_FORMAT)


def encode_note(note: RestoreNote) -> bytes:
    return _NOTE.encode(note)


def decode_note(path: str, value: bytes) -> RestoreNote:
    return _NOTE.decode(path, value)


async def read_notes(objects: ObjectStore) -> list[RestoreNote]:
    paths = [info.path async for info in objects.list(NOTES)]
    return [decode_note(path, bytes(await objects.get(path))) for path in paths]


async def put_note(objects: ObjectStore, runtime: Runtime, note: RestoreNote) -> None:
    """One that is begun again puts another: both say what is true."""
    await objects.put(f"{NOTES}{keys.number(note.number)}-{runtime.uuid().hex}", [encode_note(note)])
