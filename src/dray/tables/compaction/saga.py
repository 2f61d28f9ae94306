"""A compaction from CREATED to DONE: what `log/jobs/machine.py` decides, performed by a compactor.

The saga owns nothing: all that it needs to go on is in the job's value, so a crash after any step leaves
a job that the next compactor carries on. If a reply is lost, the key is read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from dray.base.runtime import DAY_MS, ExpiryClock, Runtime
from dray.broker.topics.model import Topic
from dray.log.entries import IndexEntry
from dray.log.jobs.cleaned import Cleaned, CleaningRound
from dray.log.jobs.machine import (
    Abandoned,
    Cleaning,
    Compaction,
    Event,
    FileWritten,
    Input,
    InTable,
    Job,
    JobState,
    Planned,
    StreamGone,
    StreamSwept,
    SwapImpossible,
    WithoutTable,
    advance,
    is_moved,
)
from dray.log.jobs.swap import Swap
from dray.log.jobs.values import WrittenFile
from dray.log.life.lifecycle import note_closed
from dray.log.parquet.statistics import are_dense
from dray.log.stream_store import StreamStore, Versioned
from dray.metadata import keys
from dray.metadata.contract import Ambiguous, Delete
from dray.tables.compaction.model import Unit, WrittenKeys
from dray.tables.compaction.paths import file_path, unit_prefix

_STEPS = 32


@dataclass(slots=True)
class RunningJob:
    """A job that this compactor works on, as it last saw it."""

    stream: int
    job: Versioned[Job]
    _read: tuple[object, WrittenFile] | None = field(default=None, compare=False, repr=False)

    @property
    def compaction(self) -> Compaction:
        return self.job.value.compacted

    @property
    def identity(self) -> str:
        """The name under which the table knows the job."""
        return f"{self.stream}-{self.job.value.number}"

    @property
    def written(self) -> WrittenFile:
        """Read once: a file costs more to read than all else that is asked of a job."""
        stored = self.compaction.written
        if self._read is None or self._read[0] is not stored:
            self._read = stored, self.compaction.file
        return self._read[1]


class Saga:
    def __init__(
        self, store: StreamStore, runtime: Runtime, owner: str, expiry: ExpiryClock | None = None
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._swap = Swap(store, runtime, expiry)
        self.owner = owner

    # --- CREATED

    async def create(
        self,
        topic: Topic,
        partition: int,
        job: Versioned[Job],
        inputs: list[Versioned[IndexEntry]],
        *,
        start: int,
        table: bool,
        cleaning: Cleaning | None = None,
    ) -> tuple[RunningJob, Unit] | None:
        """Start a job over the version that was read *before* the plan was made. None: another compactor did.
        `start` is the stream's, of the same view: nothing below it goes into a file. As long as the job is
        there it cannot be raised."""
        stream = topic.streams[partition]
        if cleaning is not None and cleaning.from_start and inputs[0].value.start > start:
            raise ValueError(f"stream {stream}: a bottom merge begins at its start, and not above {start}")
        compaction = Compaction(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=partition,
            start=max(start, inputs[0].value.start),
            end=inputs[-1].value.end,
            inputs=tuple(Input.of(entry) for entry in inputs),
            table=table,
            by_day=topic.settings.partition_by_day,
            owner=self.owner,
            cleaning=cleaning,
        )
        underway = await self._move(stream, job, Planned(compaction))
        if underway is None:
            return None
        return underway, _unit(underway, [entry.value for entry in inputs])

    async def take_over(self, underway: RunningJob) -> Unit | None:
        """The unit of a job that another compactor created. None if its inputs have changed since."""
        compaction = underway.compaction
        records = await self._store.scan_in(
            self._store.domain(underway.stream),
            keys.index_from(underway.stream, compaction.start + 1),
            keys.index_from(underway.stream, compaction.end + 1),
        )
        planned = {
            (keys.index_entry(underway.stream, each.end, each.cumulative_size), each.version)
            for each in compaction.inputs
        }
        found = [record for record in records if (record.key, record.version) in planned]
        if len(found) < len(planned):
            return None
        return _unit(underway, [IndexEntry.decode(record.value) for record in found])

    async def abandon(self, underway: RunningJob) -> bool:
        """Only for a job that is CREATED: a file that was written for it is named nowhere, and the collector
        deletes it."""
        return await self._move(underway.stream, underway.job, Abandoned()) is not None

    # --- cleaning rounds

    async def begin_round(self, unit: Unit, found: WrittenKeys) -> bool:
        """One at a time. The keys begin at the clean point that was planned with, or at the stream's start;
        one that has moved meanwhile only leaves less to do."""
        stored = await self._store.cleaned(unit.stream)
        if stored.value.round is not None or stored.value.end >= found.end:
            return False
        begun = replace(stored.value, round=CleaningRound(found.path, found.end))
        return await self._put_cleaned(unit.stream, begun, stored.version)

    async def end_round(self, stream: int, keys_path: str) -> None:
        """A file could not be written against these keys: the next round begins with others."""
        stored = await self._store.cleaned(stream)
        if stored.value.round is not None and stored.value.round.keys == keys_path:
            await self._put_cleaned(stream, replace(stored.value, round=None), stored.version)

    async def _put_cleaned(self, stream: int, cleaned: Cleaned, version: int) -> bool:
        [outcome] = await self._store.write(stream, [self._store.put_cleaned(stream, cleaned, version)])
        return outcome.applied

    # --- PARQUET_WRITTEN

    async def written(self, underway: RunningJob, file: WrittenFile) -> RunningJob | None:
        """From here on this very file counts, and the job is never abandoned."""
        return await self._move(underway.stream, underway.job, FileWritten(file))

    # --- ICEBERG_COMMITTED

    async def committed(self, underway: RunningJob) -> RunningJob | None:
        return await self._move(underway.stream, underway.job, InTable())

    async def without_table(self, underway: RunningJob) -> RunningJob | None:
        """The log does not wait any longer, and the job says so: `LeftTables` brings the table up to it."""
        return await self._move(underway.stream, underway.job, WithoutTable())

    # --- INDEX_SWAPPED and DONE

    async def finish(self, underway: RunningJob) -> bool:
        """Swap the index entry, delete what was replaced, and end the job. False: not in this cycle; a later
        one, or another compactor, carries the job on. Raises `SwapImpossible` if all that is left is to take
        the file out of the table."""
        job = underway.job
        for _ in range(_STEPS):
            if job.value.number != underway.job.value.number or job.value.state is JobState.DONE:
                return True
            if job.value.state is JobState.ICEBERG_COMMITTED and await self.is_closed(underway.stream):
                raise SwapImpossible(f"stream {underway.stream} is closed")
            try:
                moved = await self._swap.step(underway.stream, job)
            except Ambiguous:
                moved = None
            if moved is None:
                # A stale read would show the job in its earlier state.
                await self._store.barrier(underway.stream)
                moved = await self._store.job(underway.stream)
            job = moved
        return False

    async def give_up(self, underway: RunningJob) -> bool:
        """The end of a job whose stream is gone, after its file was taken out of the table. The entries that
        it replaces go too: once swapped, the sweep of the stream no longer finds the last input."""
        return await self._move(underway.stream, underway.job, StreamGone()) is not None

    async def forget(self, stream: int, job: Versioned[Job]) -> None:
        """Delete the key of a job that is done, once its stream is closed: no other job can follow it.
        Earlier builds kept that key, and the closed mark too: so this also notes that the mark may go."""
        step = advance(stream, job.value, StreamSwept())
        if not step.forget:
            return
        noted = note_closed(stream, self._runtime.wall_ms())
        await self._store.write(stream, [*step.write, Delete(keys.job(stream), job.version), noted])

    # --- looking

    async def clean_range(self, underway: RunningJob) -> tuple[int, frozenset[str]] | None:
        """Up to where no key has two records once the job's own file is swapped in, and the files that hold
        the records below. None: the job does not end with a clean point. While it is there nothing else
        changes these files."""
        compaction = underway.compaction
        if compaction.cleaned_to is None and compaction.cleaned_with is None:
            return None
        await self._store.barrier(underway.stream)
        view = await self._store.view(underway.stream)
        if view is None:
            return None
        end = compaction.cleaned_to
        if end is None:
            end = _end_of_round(view.cleaned, compaction)
        if end is None:
            return None
        replaced = {each.path for each in compaction.inputs}
        live = [entry.value for entry in view.split()[0]]
        left = {entry.path for entry in live if entry.is_parquet and entry.start < end}
        return end, frozenset(left - replaced | {underway.written.path})

    async def is_closed(self, stream: int) -> bool:
        found = await self._store.high_watermark(stream)
        if found is None:  # every stream has one, for ever, so this may be a stale read
            await self._store.barrier(stream)
            found = await self._store.high_watermark(stream)
        return found is None or found.value.closed

    async def last_job(self, stream: int) -> Versioned[Job]:
        """The stream's job now, or as it was: what is begun over it expects its version."""
        return await self._store.job(stream)

    async def still_ours(self, underway: RunningJob) -> bool:
        """Is the job still at the version that this compactor knows? Asked behind a barrier: if another has
        finished the job, the table may have dropped its snapshot. Only the version counts, so the value need
        not be readable: a newer build may have written it."""
        await self._store.barrier(underway.stream)
        return await self._store.job_version(underway.stream) == underway.job.version

    async def _move(self, stream: int, job: Versioned[Job], event: Event) -> RunningJob | None:
        step = advance(stream, job.value, event)
        if step.write:
            await self._store.write(stream, step.write)  # not confirmed, it raises: the job stays where it is
        if step.following is None:
            return None
        try:
            moved = await self._store.move_job(stream, job, step.following)
        except Ambiguous:
            await self._store.barrier(stream)
            found = await self._store.job(stream)
            moved = found if is_moved(found.value, step.following) else None
        return None if moved is None else RunningJob(stream, moved)


def _end_of_round(cleaned: Cleaned, compaction: Compaction) -> int | None:
    """The clean point of a round whose last file this job has written; None if there is more of it to come.
    The files before were written against the same keys, as the round says: only then is the point true."""
    keys, cleaning = compaction.cleaned_with, compaction.cleaning
    if keys is None or cleaning is None or cleaning.after is None:
        return None
    return cleaned.completed_to(keys, cleaning.after, compaction.end, emptied=compaction.is_emptied)


def _unit(underway: RunningJob, entries: list[IndexEntry]) -> Unit:
    compaction = underway.compaction
    return Unit(
        topic=compaction.topic,
        topic_id=compaction.topic_id,
        partition=compaction.partition,
        stream=underway.stream,
        job=underway.job.value.number,
        entries=tuple(entry.encode() for entry in entries),
        start=compaction.start,
        end=compaction.end,
        prefix=unit_prefix(compaction.topic, compaction.topic_id, compaction.partition, underway.stream),
        cleaning=compaction.cleaning,
    )


def keys_unit(
    topic: Topic, partition: int, job: Job, inputs: list[Versioned[IndexEntry]], start: int, most_keys: int
) -> Unit:
    """The unit that collects the keys of a cleaning round. It bears the number of the last job. Its object is
    named as soon as it is there; until then the collector's grace protects it, and where that was too short
    the round begins again."""
    stream = topic.streams[partition]
    return Unit(
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=partition,
        stream=stream,
        job=job.number,
        entries=tuple(entry.value.encode() for entry in inputs),
        start=max(start, inputs[0].value.start),
        end=inputs[-1].value.end,
        prefix=unit_prefix(topic.name, topic.topic_id, partition, stream),
        most_keys=most_keys,
    )


def mismatch(unit: Unit, file: WrittenFile, *, by_day: bool = False) -> str | None:
    """How a written file differs from what its unit asked for; None if it does not. `by_day`: its table takes
    no file of two days. An entry need not know all the times of an outside object, so only the file shows
    it."""
    if by_day and file.min_timestamp // DAY_MS != file.max_timestamp // DAY_MS:
        return f"{unit.decoded()[0].place}: its records from offset {unit.start} on are of two days"
    inputs = unit.decoded()
    sparse = any(entry.sparse for entry in inputs)
    outside = any(entry.is_outside for entry in inputs)
    holes = sparse or outside or unit.cleaning is not None
    least, most = _expected_records(unit, inputs, sparse=sparse)
    checks: list[tuple[str, Callable[[], bool]]] = [
        ("its path", lambda: file.path == file_path(unit.prefix, unit.job, file.parquet_id)),
        ("its offsets", lambda: (file.start, file.end) == (unit.start, unit.end)),
        ("its number of records", lambda: least <= file.record_count <= most),
        (
            "its row groups",
            lambda: _rise(file) if holes else are_dense(file.row_groups, file.start, file.end),
        ),
    ]
    wrong = [what for what, right in checks if not right()]
    return f"{file.path}: {', '.join(wrong)} are not those of its unit" if wrong else None


def removed_by_key(unit: Unit, file: WrittenFile) -> int:
    """How many records of a unit compaction by key left out of its file. Of a file with holes that the unit's
    start lies in, those below it are among them."""
    if unit.cleaning is None:
        return 0
    inputs = unit.decoded()
    most = _expected_records(unit, inputs, sparse=any(entry.sparse for entry in inputs))[1]
    return most - file.record_count


def _expected_records(unit: Unit, inputs: list[IndexEntry], *, sparse: bool) -> tuple[int, int]:
    """How many records the file must have, at least and at most. Of an input with holes only a look would say
    how many lie below the unit's start; of an outside object, how many there are at all."""
    most = sum(entry.record_count for entry in inputs) if sparse else unit.end - unit.start
    outside = any(entry.is_outside for entry in inputs)
    if inputs and all(entry.is_gap for entry in inputs):
        return 0, 0
    if outside or unit.cleaning is not None or (sparse and unit.start > inputs[0].start):
        return 1, most
    return most, most


def _rise(file: WrittenFile) -> bool:
    """One row at most for an offset, and the rows that it says."""
    reached = file.start
    for group in file.row_groups:
        if group.first_offset < reached or group.last_offset - group.first_offset < group.record_count - 1:
            return False
        reached = group.last_offset + 1
    return reached <= file.end and file.record_count == sum(group.record_count for group in file.row_groups)
