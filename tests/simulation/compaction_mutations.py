"""Every rule of compaction, taken out of the code: the simulation, or a schedule, must notice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tests.simulation.commit_mutations import WithoutBarrier, plain_puts, yes

from dray.log.entries import IndexEntry
from dray.log.jobs.machine import Job, JobState, put_job, replaced
from dray.log.jobs.swap import Swap
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.metadata.contract import Ambiguous, Delete, Put
from dray.tables.compaction import table_commits, table_keeper
from dray.tables.compaction.left_tables import LeftTables, TableLag
from dray.tables.compaction.paths import FilePath
from dray.tables.compaction.planning import stream_planner
from dray.tables.compaction.planning.job_board import JobBoard
from dray.tables.compaction.saga import RunningJob, Saga
from dray.tables.compaction.summary import CycleSummary
from dray.tables.compaction.upkeep import file_collector
from dray.tables.compaction.upkeep.rounds import Upkeep
from dray.tables.contract import TopicTable
from dray_simulation.cluster.tables import MemoryTables, Table

Patch = Callable[[pytest.MonkeyPatch], None]

# --- starting, and not giving up


def plan_over_a_later_job(patch: pytest.MonkeyPatch) -> None:
    """The job's version is read after the index was looked at, not before."""
    kept = Saga.create

    async def create(self: Saga, topic: Any, partition: int, job: Any, inputs: Any, **rest: Any) -> Any:
        job = await self._store.job(topic.streams[partition])
        if job.value.state is not JobState.DONE:
            return None
        return await kept(self, topic, partition, job, inputs, **rest)

    patch.setattr(Saga, "create", create)


def start_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    """The last to come has the job."""
    kept = StreamStore.move_job

    async def move(self: StreamStore, stream: int, job: Versioned[Job], to: Job) -> Versioned[Job] | None:
        if to.state is not JobState.CREATED:
            return await kept(self, stream, job, to)
        [outcome] = await self.write(stream, plain_puts([put_job(stream, to, job.version)]))
        return Versioned(to, outcome.version)

    patch.setattr(StreamStore, "move_job", move)


def covered_entries_count(patch: pytest.MonkeyPatch) -> None:
    def split(self: StreamView) -> tuple[list[Versioned[IndexEntry]], list[Versioned[IndexEntry]]]:
        live = [entry for entry in self.entries if entry.value.end > self.start]
        return live, [entry for entry in self.entries if entry.value.end <= self.start]

    patch.setattr(StreamView, "split", split)


def abandon_a_written_job(patch: pytest.MonkeyPatch) -> None:
    kept = stream_planner.StreamPlanner.sort

    async def sort(self: stream_planner.StreamPlanner, now: Any, stream: int, job: Versioned[Job]) -> None:
        if job.value.state is JobState.PARQUET_WRITTEN and self._runtime.random.random() < 0.5:
            await self._store.move_job(stream, job, job.value.moved(JobState.DONE))
        else:
            await kept(self, now, stream, job)

    patch.setattr(stream_planner.StreamPlanner, "sort", sort)


# --- the swap


def swap_without_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Swap, "_snapshot_covers", yes)


def swap_unseen(patch: pytest.MonkeyPatch) -> None:
    kept = Swap._swap

    async def swap(self: Swap, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        if not await self._snapshot_covers(stream, job.value.compacted.end):
            return None
        with suppress(Ambiguous):
            await kept(self, stream, job)
        return await self._store.move_job(stream, job, job.value.moved(JobState.INDEX_SWAPPED))

    patch.setattr(Swap, "_swap", swap)


def finish_by_an_older_read(patch: pytest.MonkeyPatch) -> None:
    """What the simulation found: read from behind, the job is where it was before our own last step."""
    kept = Saga.finish

    async def finish(self: Saga, underway: RunningJob) -> bool:
        return await kept(WithoutBarrier(self), underway)  # type: ignore[arg-type]

    patch.setattr(Saga, "finish", finish)


def previous_head_filed_over_what_is_there(patch: pytest.MonkeyPatch) -> None:
    """A late append puts the entry back that a compaction has replaced."""
    kept = StreamStore.advance

    def advance(stream: int, previous: Any, following: Any) -> list[Put]:
        first, *filed = kept(stream, previous, following)
        return [first, *plain_puts(filed)]

    patch.setattr(StreamStore, "advance", staticmethod(advance))


def done_before_the_deletes_are_confirmed(patch: pytest.MonkeyPatch) -> None:
    async def delete(self: Swap, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        with suppress(Ambiguous):
            await self._store.write(stream, replaced(stream, job.value.compacted))
        return await self._store.move_job(stream, job, job.value.moved(JobState.DONE))

    patch.setattr(Swap, "_delete_replaced", delete)


def references_apart_from_the_index(patch: pytest.MonkeyPatch) -> None:
    """Two writes, and what to delete is read from the index."""

    async def delete(self: Swap, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        compaction = job.value.compacted
        inside = [
            entry.value
            for entry in await self._store.entries_above(stream, compaction.start)
            if entry.value.end < compaction.end and not entry.value.is_parquet
        ]
        there = {entry.object_id for entry in inside} | {compaction.inputs[-1].object_id}
        operations = replaced(stream, compaction)
        await self._store.write(stream, operations[:1])
        references = [
            operation
            for operation in operations[1:]
            if isinstance(operation, Delete) and any(object_id.hex in operation.key for object_id in there)
        ]
        if references:
            await self._store.write(stream, references)
        return await self._store.move_job(stream, job, job.value.moved(JobState.DONE))

    patch.setattr(Swap, "_delete_replaced", delete)


# --- tables


def commit_without_asking_whether_the_job_is_ours(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Saga, "still_ours", yes)


def ask_before_the_table_is_loaded(patch: pytest.MonkeyPatch) -> None:
    """The job is looked at first, the table afterwards: another commits and finishes in between."""
    kept = MemoryTables.commit

    async def commit(self: MemoryTables, topic: TopicTable, changes: Any, still_ours: Any) -> Any:
        ours: dict[str, bool] = {change.job: await still_ours(change) for change in changes}

        async def as_it_was(change: Any) -> bool:
            return ours[change.job]

        return await kept(self, topic, changes, as_it_was)

    patch.setattr(MemoryTables, "commit", commit)


def commit_without_looking_for_the_job(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Table, "jobs", lambda self: set())


def forget_the_commits_of_unfinished_jobs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JobBoard, "unfinished_names", lambda self, streams: [])


def swap_before_the_table(patch: pytest.MonkeyPatch) -> None:
    """The index is swapped whether or not the table has the file."""

    async def commit(self: Any, table: TopicTable, jobs: Any, summary: CycleSummary) -> list[RunningJob]:
        moved = [await self._saga.committed(job) for job in jobs]
        return [job for job in moved if job is not None]

    patch.setattr(table_commits.TableCommits, "commit", commit)
    patch.setattr(table_keeper.TableKeeper, "restore", _nothing)


async def _nothing(*_: object) -> int:
    return 0


def take_out_only_what_is_there(patch: pytest.MonkeyPatch) -> None:
    """No commit where the file is not in the table, and so nothing that stops a slower one."""
    kept = table_commits.TableCommits.take_out

    async def take_out(self: Any, table: TopicTable, job: RunningJob, summary: CycleSummary) -> bool:
        if self._tables is not None and job.written.path not in (
            await self._tables.current_files(table) or set()
        ):
            given_up: bool = await self._saga.give_up(job)
            return given_up
        return await kept(self, table, job, summary)

    patch.setattr(table_commits.TableCommits, "take_out", take_out)


def restore_what_a_merge_took_out(patch: pytest.MonkeyPatch) -> None:
    """The index alone says what the table lacks, whatever job is under way."""

    async def settled(self: Any, stream: int) -> list[IndexEntry]:
        view = await self._store.view(stream)
        return [entry.value for entry in view.split()[0] if entry.value.is_parquet] if view else []

    patch.setattr(table_keeper.TableKeeper, "_settled_entries", settled)


def let_go_of_files_under_way(patch: pytest.MonkeyPatch) -> None:
    """The table loses what the index does not name, though a job is about to put it there."""

    async def all_settled(store: StreamStore, files: dict[str, FilePath], _: Any) -> dict[str, FilePath]:
        return files

    patch.setattr(table_keeper, "settled_files", all_settled)


def give_up_and_keep_the_references(patch: pytest.MonkeyPatch) -> None:
    """Of a deleted stream whose last input was swapped away already."""

    async def give_up(self: Saga, underway: RunningJob) -> bool:
        done = underway.job.value.moved(JobState.DONE)
        return await self._store.move_job(underway.stream, underway.job, done) is not None

    patch.setattr(Saga, "give_up", give_up)


# --- logs that go on without their tables


def catch_up_without_a_commit(patch: pytest.MonkeyPatch) -> None:
    """Where the table is what the log is, nothing stops the commits that are on their way."""
    kept = LeftTables._commit

    async def commit(self: LeftTables, table: TopicTable, current: Any, lags: Any) -> list[TableLag]:
        same = [lag for lag in lags if not (lag.missing or lag.gone)]
        return same + await kept(self, table, current, [lag for lag in lags if lag not in same])

    patch.setattr(LeftTables, "_commit", commit)


def collect_what_a_late_commit_may_name(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(file_collector.FileCollector, "_grace_of", lambda self, path: self._grace)


def catch_up_whatever_the_table_has_become(patch: pytest.MonkeyPatch) -> None:
    def as_it_was(self: LeftTables, table: Any, current: Any, by_change: Any) -> Any:
        async def ours(change: Any) -> bool:
            lag, _ = by_change[change.job]
            return await self._store.job_version(lag.stream) in (lag.job.version, lag.job.version + 1)

        return ours

    patch.setattr(LeftTables, "_as_it_was", as_it_was)


def catch_up_by_an_older_look_at_the_log(patch: pytest.MonkeyPatch) -> None:
    def as_it_was(self: LeftTables, table: Any, current: Any, by_change: Any) -> Any:
        async def same(_: Any) -> bool:
            return bool(await self._tables.current_files(table) == current)

        return same

    patch.setattr(LeftTables, "_as_it_was", as_it_was)


def leave_a_table_and_say_nothing_of_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Saga, "without_table", Saga.committed)


# --- what was deleted


def compact_what_was_deleted(patch: pytest.MonkeyPatch) -> None:
    """The file holds all of its inputs, also what lies below the start."""
    kept = Saga.create

    async def create(self: Saga, *plan: Any, start: int, **rest: Any) -> Any:
        return await kept(self, *plan, start=0, **rest)

    patch.setattr(Saga, "create", create)


def leave_deleted_rows_in_their_file(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(stream_planner.StreamPlanner, "_trims", lambda self, topic, stream: False)


def leave_deleted_files_to_the_collectors(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Upkeep, "remove_deleted", _nothing)


def entries_count_by_what_was_deleted(patch: pytest.MonkeyPatch) -> None:
    """The file that begins at the start does not cover what reached below it."""
    kept = StreamView.split

    def split(self: StreamView) -> tuple[list[Versioned[IndexEntry]], list[Versioned[IndexEntry]]]:
        live, dead = kept(self)
        covered_from = live[0].value.start if live else self.high_watermark.value.end
        back = [entry for entry in dead if entry.value.end > self.start and entry.value.start < covered_from]
        return [*back[-1:], *live], [entry for entry in dead if entry not in back[-1:]]

    patch.setattr(StreamView, "split", split)


def restore_what_was_deleted(patch: pytest.MonkeyPatch) -> None:
    """A file that reaches below the start is added to the table again."""

    async def settled(self: Any, stream: int) -> list[IndexEntry]:
        await self._store.barrier(stream)
        if (await self._store.job(stream)).value.state is not JobState.DONE:
            return []
        view = await self._store.view(stream)
        return [entry.value for entry in view.split()[0] if entry.value.is_parquet] if view else []

    patch.setattr(table_keeper.TableKeeper, "_settled_entries", settled)


# --- the collector of files


def collect_without_asking_the_job(patch: pytest.MonkeyPatch) -> None:
    async def all_settled(store: StreamStore, files: dict[str, FilePath], _: Any) -> dict[str, FilePath]:
        return files

    patch.setattr(file_collector, "settled_files", all_settled)


def collect_without_asking_the_table(patch: pytest.MonkeyPatch) -> None:
    kept = file_collector.FileCollector.__init__

    def without(
        self: Any, store: Any, objects: Any, runtime: Any, tables: Any, grace: float, **rest: Any
    ) -> None:
        kept(self, store, objects, runtime, None, grace, **rest)

    patch.setattr(file_collector.FileCollector, "__init__", without)


def collect_by_the_index_before_the_job(patch: pytest.MonkeyPatch) -> None:
    async def unknown(self: Any, topic: TopicTable, files: dict[str, FilePath]) -> list[str]:
        indexed = await file_collector.indexed_files(self._store, {each.stream for each in files.values()})
        in_table = await self._tables.live_files(topic) or set()
        settled = await file_collector.settled_files(self._store, files)
        return sorted(path for path in settled if path not in indexed and path not in in_table)

    patch.setattr(file_collector.FileCollector, "_unknown", unknown)


def no_collection(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, *_: object, dry_run: bool = False) -> file_collector.FileCollection:
        return file_collector.FileCollection()

    patch.setattr(file_collector.FileCollector, "run", nothing)


MUTATIONS: dict[str, Patch] = {
    "plan over a later job": plan_over_a_later_job,
    "start without compare-and-set": start_without_compare_and_set,
    "covered entries count": covered_entries_count,
    "abandon a written job": abandon_a_written_job,
    "swap without the snapshot": swap_without_the_snapshot,
    "swap unseen": swap_unseen,
    "finish by an older read": finish_by_an_older_read,
    "previous head filed over what is there": previous_head_filed_over_what_is_there,
    "done before the deletes are confirmed": done_before_the_deletes_are_confirmed,
    "references apart from the index": references_apart_from_the_index,
    "commit without asking whether the job is ours": commit_without_asking_whether_the_job_is_ours,
    "ask before the table is loaded": ask_before_the_table_is_loaded,
    "commit without looking for the job": commit_without_looking_for_the_job,
    "forget the commits of unfinished jobs": forget_the_commits_of_unfinished_jobs,
    "swap before the table": swap_before_the_table,
    "take out only what is there": take_out_only_what_is_there,
    "restore what a merge took out": restore_what_a_merge_took_out,
    "let go of files under way": let_go_of_files_under_way,
    "give up and keep the references": give_up_and_keep_the_references,
    "catch up without a commit where nothing differs": catch_up_without_a_commit,
    "collect what a late commit may name": collect_what_a_late_commit_may_name,
    "catch up whatever the table has become": catch_up_whatever_the_table_has_become,
    "catch up by an older look at the log": catch_up_by_an_older_look_at_the_log,
    "leave a table and say nothing of it": leave_a_table_and_say_nothing_of_it,
    "compact what was deleted": compact_what_was_deleted,
    "leave deleted rows in their file": leave_deleted_rows_in_their_file,
    "leave deleted files to the collectors": leave_deleted_files_to_the_collectors,
    "entries count by what was deleted": entries_count_by_what_was_deleted,
    "restore what was deleted": restore_what_was_deleted,
    "collect without asking the job": collect_without_asking_the_job,
    "collect without asking the table": collect_without_asking_the_table,
    "collect by the index before the job": collect_by_the_index_before_the_job,
    "no collection": no_collection,
}

# The seed that finds it at once, so that the suite need not search.
FOUND_BY_CHANCE: dict[str, int] = {
    "start without compare-and-set": 3,
    "covered entries count": 3,
    "abandon a written job": 7,
    "swap without the snapshot": 0,
    "previous head filed over what is there": 3,
    "swap before the table": 0,
    "compact what was deleted": 2,
    "leave deleted rows in their file": 13,
    "entries count by what was deleted": 133,
    "collect without asking the job": 17,
    "no collection": 0,
}
