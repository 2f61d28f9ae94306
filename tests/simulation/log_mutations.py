"""Rules of the commit protocol, each taken out of the code: the simulation must notice.

A mutation is a patch of one small method. Beside each stands the seed that found it first, so that the suite
need not search; `make soak` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import pytest

from dray.log import collector, commit, lifecycle, pipeline, retention, stream_state, stream_store, wal_keys
from dray.log.append import Chunk, StagedObject
from dray.log.commit import Aim, Committer, Settlement, Verdict
from dray.log.entries import HighWatermark
from dray.log.jobs import Job, JobState, put_job, read_job
from dray.log.stream_state import FoldGap, StreamState
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.log.types import Appended, LogUnavailable, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import ANY, Ambiguous, Delete, MetadataError, Operation, Put

Patch = Callable[[pytest.MonkeyPatch], None]


def _plain_puts(operations: Sequence[Operation]) -> list[Any]:
    """The same operations without what they expect."""
    return [Put(put.key, put.value) if isinstance(put, Put) else put for put in operations]


# --- the commit


def no_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.advance
    patch.setattr(StreamStore, "advance", staticmethod(lambda *given: _plain_puts(kept(*given))))


def acknowledge_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    kept = Committer._aim

    async def aim(self: Committer, staged: StagedObject, chunk: Chunk) -> Aim | None:
        aimed = await kept(self, staged, chunk)
        for offset, pending in aimed.selected if aimed is not None else ():
            pending.acknowledge(Appended(offset, -1, 0))
        return aimed

    patch.setattr(Committer, "_aim", aim)


def aim_again_after_an_unclear_reply(patch: pytest.MonkeyPatch) -> None:
    kept = Committer._find

    async def resolve(
        self: Committer, staged: StagedObject, aim: Aim, waiting: dict[int, Aim | None], failed: list[int]
    ) -> Verdict:
        verdict = await kept(self, staged, aim)
        if verdict is Verdict.COMMITTED:
            del waiting[aim.chunk.stream]
        else:
            self.forget(aim.chunk.stream)
            waiting[aim.chunk.stream] = None
        return verdict

    patch.setattr(Committer, "_resolve", resolve)


def look_at_the_index_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    async def look(self: Committer, staged: StagedObject, aim: Aim) -> Verdict:
        stream = aim.chunk.stream
        filed = await self._store.entry(stream, aim.entry.end, aim.entry.cumulative_size)
        found = await self._store.high_watermark(stream)
        assert found is not None
        head = found.value.head
        if filed is not None and filed.value.wal_id == staged.wal_id:
            self._committed(aim, 0)
            self.forget(stream)
            return Verdict.COMMITTED
        if head is not None and head.wal_id == staged.wal_id:
            self._committed(aim, found.version)
            return Verdict.COMMITTED
        return Verdict.UNMOVED if found.version == aim.over.version else Verdict.MOVED

    patch.setattr(Committer, "_look", look)


def look_at_the_high_watermark_only(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: StreamStore, stream: int, end: int, cumulative_size: int) -> None:
        return None

    patch.setattr(StreamStore, "entry", nothing)


def refuse_by_a_cached_state(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "_certain", staticmethod(lambda judgement: True))


def fold_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    async def load(store: StreamStore, stream: int) -> StreamState:
        first = await store.high_watermark(stream)
        entries = await store.entries_above(stream, -1)
        snapshot = (await store.snapshot(stream)).value
        high_watermark = await store.high_watermark(stream)
        if first is None or high_watermark is None or high_watermark.value.closed:
            raise StreamClosed("closed")
        producers, reached = snapshot.states, snapshot.upto
        for entry in [entry.value for entry in entries] + ([first.value.head] if first.value.head else []):
            if entry.start == reached:
                producers.fold(entry)
                reached = entry.end
        if reached < first.value.end:
            raise FoldGap
        return StreamState(high_watermark, producers)

    patch.setattr(stream_state, "_load", load)


# --- staging and references


def references_in_the_commit(patch: pytest.MonkeyPatch) -> None:
    kept_stage, kept_write = wal_keys.stage, Committer._write

    def stage(wal_id: UUID, staging: wal_keys.Staging) -> list[Operation]:
        return kept_stage(wal_id, wal_keys.Staging(staging.path, ()))[:0] + [
            Put(keys.staging(wal_id), staging.encode()),
            Put(keys.wal_object(wal_id), wal_keys.encode_object(staging.path)),
        ]

    async def write(self: Committer, staged: StagedObject, aims: dict[int, Aim]) -> Any:
        references: list[Operation] = [Put(keys.reference(staged.wal_id, stream), b"\1") for stream in aims]
        outcomes = await kept_write(self, staged, aims)
        try:
            await self._store.store.write(staged.domain, references)
        except MetadataError:
            pass
        return outcomes

    patch.setattr(wal_keys, "stage", stage)
    patch.setattr(Committer, "_write", write)


def upload_though_staging_is_unclear(patch: pytest.MonkeyPatch) -> None:
    async def write_stage(self: pipeline.DomainPipeline, wal_id: UUID, staging: wal_keys.Staging) -> int | None:
        try:
            outcomes = await self._store.write(self._domain, wal_keys.stage(wal_id, staging))
        except Ambiguous:
            return -1
        except MetadataError:
            return None
        return outcomes[0].version

    kept = Committer._still_ours

    async def still_ours(self: Committer, staged: StagedObject) -> bool:
        return staged.staging_version == -1 or await kept(self, staged)

    patch.setattr(pipeline.DomainPipeline, "_write_stage", write_stage)
    patch.setattr(Committer, "_still_ours", still_ours)


def settle_what_is_undecided(patch: pytest.MonkeyPatch) -> None:
    kept = Committer.commit

    async def commit_(self: Committer, staged: StagedObject) -> Settlement:
        settlement = await kept(self, staged)
        if not settlement.undecided:
            return settlement
        failed = [
            stream
            for stream, chunk in staged.chunks.items()
            if any(pending.future.cancelled() or pending.future.exception() for pending in chunk.pending)
        ]
        return Settlement(False, failed)

    patch.setattr(Committer, "commit", commit_)


def delete_the_staging_mark_without_its_version(patch: pytest.MonkeyPatch) -> None:
    kept = wal_keys.settle

    def settle(wal_id: UUID, staging_version: int, failed: Sequence[int]) -> list[Operation]:
        return [*kept(wal_id, staging_version, failed)[:-1], Delete(keys.staging(wal_id))]

    patch.setattr(wal_keys, "settle", settle)


def delete_the_staging_mark_in_the_commit(patch: pytest.MonkeyPatch) -> None:
    kept = Committer._write

    async def write(self: Committer, staged: StagedObject, aims: dict[int, Aim]) -> Any:
        operations: list[Operation] = [Delete(keys.staging(staged.wal_id))]
        try:
            await self._store.store.write(staged.domain, operations)
        except MetadataError:
            pass
        return await kept(self, staged, aims)

    async def still_ours(self: Committer, staged: StagedObject) -> bool:
        return True

    patch.setattr(Committer, "_write", write)
    patch.setattr(Committer, "_still_ours", still_ours)


def no_recheck(patch: pytest.MonkeyPatch) -> None:
    async def still_ours(self: Committer, staged: StagedObject) -> bool:
        return True

    patch.setattr(Committer, "_still_ours", still_ours)


def recheck_without_the_version(patch: pytest.MonkeyPatch) -> None:
    async def still_ours(self: Committer, staged: StagedObject) -> bool:
        try:
            return await self._store.store.get(staged.domain, keys.staging(staged.wal_id)) is not None
        except MetadataError:
            return False

    patch.setattr(Committer, "_still_ours", still_ours)


# --- the collector


def no_fence(patch: pytest.MonkeyPatch) -> None:
    async def fence(self: collector.Collector, stream: int) -> bool:
        return True

    patch.setattr(collector.Collector, "_fence", fence)


def count_dead_entries(patch: pytest.MonkeyPatch) -> None:
    def holds(self: StreamView, wal_id: UUID) -> bool:
        head = self.high_watermark.value.head
        found = [entry.value for entry in self.entries] + ([head] if head is not None else [])
        return any(entry.wal_id == wal_id for entry in found)

    patch.setattr(StreamView, "holds", holds)
    patch.setattr(retention.Retention, "_sweep", _no_sweep)


def no_audit(patch: pytest.MonkeyPatch) -> None:
    async def audit(self: collector.Collector, seen: collector.Collection) -> None:
        return

    patch.setattr(collector.Collector, "_audit", audit)


# --- retention


async def _no_sweep(self: retention.Retention, stream: int, dead: object) -> None:
    return


def no_sweep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention.Retention, "_sweep", _no_sweep)


def judge_entries_by_an_older_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """The bug that the first run of the simulation found: the view must be one snapshot."""

    async def view(self: StreamStore, stream: int) -> StreamView | None:
        high_watermark = await self.high_watermark(stream)
        if high_watermark is None:
            return None
        start = (await self.start(stream)).value
        return StreamView(high_watermark, start, await self.entries_above(stream, -1))

    patch.setattr(StreamStore, "view", view)


def retain_without_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    async def advance_snapshot(*_: object) -> bool:
        return True

    patch.setattr(retention, "advance_snapshot", advance_snapshot)


def snapshot_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.put_snapshot
    patch.setattr(StreamStore, "put_snapshot", staticmethod(lambda *given: _plain_puts([kept(*given)])[0]))


def start_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.put_start
    patch.setattr(StreamStore, "put_start", staticmethod(lambda *given: _plain_puts([kept(*given)])[0]))


def delete_before_the_start_is_seen(patch: pytest.MonkeyPatch) -> None:
    async def retain(self: retention.Retention, stream: int, job: Versioned[Job]) -> None:
        if not await retention.advance_snapshot(self._store, stream, job.value.need, self._runtime.wall_ms()):
            return
        start = await self._store.start(stream)
        try:
            put = self._store.put_start(stream, job.value.threshold, start.version)
            await self._store.write(stream, [put])
        except Ambiguous:
            pass
        await self._store.write(stream, [put_job(stream, job.value.moved(JobState.RAISED), job.version)])

    patch.setattr(retention.Retention, "_retain", retain)


def done_before_the_deletes_are_confirmed(patch: pytest.MonkeyPatch) -> None:
    kept = retention.Retention._delete_below

    async def delete_below(self: retention.Retention, stream: int, job: Versioned[Job]) -> None:
        try:
            await kept(self, stream, job)
        except Ambiguous:
            await self._store.write(stream, [put_job(stream, job.value.moved(JobState.DONE), job.version)])

    patch.setattr(retention.Retention, "_delete_below", delete_below)
    patch.setattr(retention.Retention, "_sweep", _no_sweep)


def references_apart_from_the_index(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.write

    async def write(self: StreamStore, stream: int, operations: Sequence[Operation]) -> Any:
        deletes = [operation for operation in operations if isinstance(operation, Delete)]
        if len(deletes) < len(operations):
            return await kept(self, stream, operations)
        entries = [delete for delete in deletes if not delete.key.startswith(keys.REFERENCES)]
        references = [delete for delete in deletes if delete.key.startswith(keys.REFERENCES)]
        await kept(self, stream, entries)
        return await kept(self, stream, references)

    patch.setattr(StreamStore, "write", write)


# --- streams


def create_streams_over_what_is_there(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lifecycle, "ABSENT", ANY)


MUTATIONS: dict[str, tuple[Patch, int]] = {
    name: (patch, seed)
    for name, patch, seed in (
        ("no compare-and-set", no_compare_and_set, 0),
        ("acknowledge before the commit", acknowledge_before_the_commit, 0),
        ("aim again after an unclear reply", aim_again_after_an_unclear_reply, 0),
        ("index before high watermark", look_at_the_index_before_the_high_watermark, 0),
        ("high watermark only", look_at_the_high_watermark_only, 0),
        ("refuse by a cached state", refuse_by_a_cached_state, 0),
        ("fold before the high watermark", fold_before_the_high_watermark, 0),
        ("references in the commit", references_in_the_commit, 0),
        ("upload though staging is unclear", upload_though_staging_is_unclear, 0),
        ("settle what is undecided", settle_what_is_undecided, 0),
        ("staging mark deleted without its version", delete_the_staging_mark_without_its_version, 0),
        ("staging mark deleted in the commit", delete_the_staging_mark_in_the_commit, 0),
        ("no recheck", no_recheck, 0),
        ("recheck without the version", recheck_without_the_version, 0),
        ("no fence", no_fence, 0),
        ("dead entries count", count_dead_entries, 0),
        ("no audit", no_audit, 0),
        ("no sweep", no_sweep, 0),
        ("view of two snapshots", judge_entries_by_an_older_high_watermark, 0),
        ("retain without the snapshot", retain_without_the_snapshot, 0),
        ("snapshot without compare-and-set", snapshot_without_compare_and_set, 0),
        ("start without compare-and-set", start_without_compare_and_set, 0),
        ("delete before the start is seen", delete_before_the_start_is_seen, 0),
        ("done before the deletes are confirmed", done_before_the_deletes_are_confirmed, 0),
        ("references apart from the index", references_apart_from_the_index, 0),
        ("streams created over what is there", create_streams_over_what_is_there, 0),
    )
}

__all__ = ["MUTATIONS", "HighWatermark", "LogUnavailable", "asyncio", "commit", "read_job", "stream_store"]
