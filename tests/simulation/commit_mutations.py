"""Rules of appending, each taken out of the code: staging, aiming, the recheck, the commit, its replies."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest

from dray.log import stream_state, wal_keys
from dray.log.append import pipeline
from dray.log.append.chunks import AdmissionResult, OpenObject, PendingChunk, StagedObject
from dray.log.append.commit import CommitAttempt, CommitResult, Committer, CommitVerdict
from dray.log.append.failed_sequences import FailedSequences
from dray.log.append.stage_ahead import AheadMarks, StagedMark
from dray.log.stream_state import FoldGap, StreamState
from dray.log.stream_store import StreamStore
from dray.log.types import AppendResult, StreamClosed
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Ambiguous, Delete, MetadataError, Operation, Put
from dray.objects.contract import ObjectError
from dray_simulation.kernel.faults import FaultyObjects


def plain_puts(operations: Sequence[Operation]) -> list[Any]:
    """The same operations without what they expect."""
    return [Put(put.key, put.value) if isinstance(put, Put) else put for put in operations]


async def yes(*_: object) -> bool:
    return True


# --- the commit


def no_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.advance
    patch.setattr(StreamStore, "advance", staticmethod(lambda *given: plain_puts(kept(*given))))


def previous_head_not_filed(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.advance
    patch.setattr(StreamStore, "advance", staticmethod(lambda *given: kept(*given)[:1]))


def acknowledge_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    kept = Committer._aim

    async def aim(self: Committer, staged: StagedObject, chunk: PendingChunk) -> CommitAttempt | None:
        aimed = await kept(self, staged, chunk)
        for offset, pending in aimed.judgement.selected if aimed is not None else ():
            pending.acknowledge(AppendResult(offset, -1, 0))
        return aimed

    patch.setattr(Committer, "_aim", aim)


def answer_duplicates_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """What the simulation found: a batch and its copy in one chunk, and the copy answered first."""
    kept = Committer._judge

    def judge(
        self: Committer, state: Any, producers: Any, chunk: PendingChunk, now_ms: int
    ) -> AdmissionResult:
        judgement = kept(self, state, producers, chunk, now_ms)
        if self._certain(judgement):
            self._answer(chunk.stream, judgement)
        return judgement

    patch.setattr(Committer, "_judge", judge)


def commit_without_waiting_for_the_previous(patch: pytest.MonkeyPatch) -> None:
    kept = pipeline.DomainPipeline._bring_in

    async def bring_in(
        self: pipeline.DomainPipeline, opened: OpenObject, previous: object, done: asyncio.Future[None]
    ) -> None:
        await kept(self, opened, None, done)

    patch.setattr(pipeline.DomainPipeline, "_bring_in", bring_in)


def append_to_closed_streams(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.high_watermark

    async def high_watermark(self: StreamStore, stream: int) -> Any:
        found = await kept(self, stream)
        if found is not None and found.value.closed:
            opened = type(found.value)(found.value.end, found.value.cumulative_size)
            return type(found)(opened, found.version)
        return found

    patch.setattr(StreamStore, "high_watermark", high_watermark)


# --- after an unclear reply


def aim_again_after_an_unclear_reply(patch: pytest.MonkeyPatch) -> None:
    kept = Committer._find

    async def resolve(
        self: Committer,
        staged: StagedObject,
        aim: CommitAttempt,
        waiting: dict[int, CommitAttempt | None],
        failed: list[int],
    ) -> CommitVerdict:
        verdict = await kept(self, staged, aim)
        if verdict is CommitVerdict.COMMITTED:
            del waiting[aim.chunk.stream]
        else:
            self.forget(aim.chunk.stream)
            waiting[aim.chunk.stream] = None
        return verdict

    patch.setattr(Committer, "_resolve", resolve)


def look_at_the_index_before_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    async def look(self: Committer, staged: StagedObject, aim: CommitAttempt) -> CommitVerdict:
        stream = aim.chunk.stream
        await self._store.barrier(stream)
        filed = await self._store.entry(stream, aim.entry.end, aim.entry.cumulative_size)
        found = await self._store.high_watermark(stream)
        assert found is not None
        head = found.value.head
        if filed is not None and filed.value.object_id == staged.wal_id:
            self._committed(aim, 0)
            self.forget(stream)
            return CommitVerdict.COMMITTED
        if head is not None and head.object_id == staged.wal_id:
            self._committed(aim, found.version)
            return CommitVerdict.COMMITTED
        return CommitVerdict.UNMOVED if found.version == aim.over.version else CommitVerdict.MOVED

    patch.setattr(Committer, "_look", look)


def look_at_the_high_watermark_only(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: StreamStore, stream: int, end: int, cumulative_size: int) -> None:
        return None

    patch.setattr(StreamStore, "entry", nothing)


def look_without_a_barrier(patch: pytest.MonkeyPatch) -> None:
    """What the simulation found: an older version than the one aimed at was taken for "moved on"."""
    kept = Committer._look

    async def look(self: Committer, staged: StagedObject, aim: CommitAttempt) -> CommitVerdict:
        return await kept(WithoutBarrier(self), staged, aim)  # type: ignore[arg-type]

    patch.setattr(Committer, "_look", look)


class WithoutBarrier:
    """A committer or a collector whose store waits for no barrier; everything else as it is."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self._store = self
        self.barrier = yes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real if hasattr(self._real, name) else self._real._store, name)


def settle_what_is_undecided(patch: pytest.MonkeyPatch) -> None:
    kept = Committer.commit

    async def commit(self: Committer, staged: StagedObject) -> CommitResult:
        settlement = await kept(self, staged)
        if not settlement.undecided:
            return settlement
        failed = [
            stream
            for stream, chunk in staged.chunks.items()
            if any(pending.future.cancelled() or pending.future.exception() for pending in chunk.pending)
        ]
        return CommitResult(False, failed)

    patch.setattr(Committer, "commit", commit)


# --- producers


def refuse_by_a_state_that_may_lag(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "_certain", staticmethod(lambda judgement: True))


def forget_that_a_first_batch_failed(patch: pytest.MonkeyPatch) -> None:
    """What the simulation found: the second batch of an unknown producer taken for its first."""
    patch.setattr(FailedSequences, "note", lambda *_: None)


def take_a_gap_that_this_broker_made_for_the_producers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FailedSequences, "gap", lambda *_: None)


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


def fold_over_gaps(patch: pytest.MonkeyPatch) -> None:
    """Without the look whether the snapshot and the entries meet."""

    async def load(store: StreamStore, stream: int) -> StreamState:
        high_watermark = await store.high_watermark(stream)
        if high_watermark is None or high_watermark.value.closed:
            raise StreamClosed("closed")
        snapshot = (await store.snapshot(stream)).value
        producers = snapshot.states
        for entry in await store.entries_above(stream, snapshot.upto):
            if entry.value.end <= high_watermark.value.end:
                producers.fold(entry.value)
        if high_watermark.value.head is not None:
            producers.fold(high_watermark.value.head)
        return StreamState(high_watermark, producers)

    patch.setattr(stream_state, "_load", load)


# --- staging and references


def references_in_the_commit(patch: pytest.MonkeyPatch) -> None:
    kept = Committer._write

    def stage(wal_id: UUID, staging: wal_keys.Staging) -> list[Operation]:
        return [
            Put(keys.staging(wal_id), staging.encode()),
            Put(keys.wal_object(wal_id), wal_keys.encode_object(staging.path)),
        ]

    async def write(self: Committer, staged: StagedObject, aims: dict[int, CommitAttempt]) -> Any:
        references: list[Operation] = [Put(keys.reference(staged.wal_id, stream), b"\1") for stream in aims]
        outcomes = await kept(self, staged, aims)
        with suppress(MetadataError):
            await self._store.write_in(staged.domain, references)
        return outcomes

    patch.setattr(wal_keys, "stage", stage)
    patch.setattr(Committer, "_write", write)


def stage_only_if_absent(patch: pytest.MonkeyPatch) -> None:
    kept = wal_keys.stage

    def stage(wal_id: UUID, staging: wal_keys.Staging) -> list[Operation]:
        [mark, *rest] = kept(wal_id, staging)
        assert isinstance(mark, Put)
        return [Put(mark.key, mark.value, ABSENT), *rest]

    patch.setattr(wal_keys, "stage", stage)


def upload_though_staging_is_unclear(patch: pytest.MonkeyPatch) -> None:
    async def write_stage(
        self: pipeline.DomainPipeline, wal_id: UUID, staging: wal_keys.Staging
    ) -> int | None:
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


def marks_staged_ahead_serve_any_object(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StagedMark, "serves", lambda *_: True)


def marks_staged_ahead_serve_twice(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AheadMarks, "_forget", lambda _: None)


def marks_that_were_not_used_stay(patch: pytest.MonkeyPatch) -> None:
    """Only their references: the mark goes, so no collector would ever find them."""
    patch.setattr(
        pipeline.DomainPipeline,
        "_settle_unused",
        lambda self, mark: self._settle(wal_keys.settle(mark.wal_id, mark.version, ())),
    )


def commit_though_the_upload_failed(patch: pytest.MonkeyPatch) -> None:
    kept = FaultyObjects.put

    async def put(self: FaultyObjects, path: str, parts: Any) -> None:
        try:
            await kept(self, path, parts)
        except ObjectError:
            return

    patch.setattr(FaultyObjects, "put", put)


def keep_the_references_of_what_failed(patch: pytest.MonkeyPatch) -> None:
    kept = wal_keys.settle
    patch.setattr(
        wal_keys, "settle", lambda wal_id, version, failed, staging=None: kept(wal_id, version, [], staging)
    )


def delete_the_staging_mark_without_its_version(patch: pytest.MonkeyPatch) -> None:
    kept = wal_keys.settle

    def settle(
        wal_id: UUID, staging_version: int, failed: Sequence[int], staging: wal_keys.Staging | None = None
    ) -> list[Operation]:
        return [*kept(wal_id, staging_version, failed, staging)[:-1], Delete(keys.staging(wal_id))]

    patch.setattr(wal_keys, "settle", settle)


def delete_the_staging_mark_in_the_commit(patch: pytest.MonkeyPatch) -> None:
    kept = Committer._write

    async def write(self: Committer, staged: StagedObject, aims: dict[int, CommitAttempt]) -> Any:
        operations: list[Operation] = [Delete(keys.staging(staged.wal_id))]
        with suppress(MetadataError):
            await self._store.write_in(staged.domain, operations)
        return await kept(self, staged, aims)

    patch.setattr(Committer, "_write", write)
    patch.setattr(Committer, "_still_ours", yes)


# --- the recheck


def no_recheck(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Committer, "_still_ours", yes)


def recheck_without_the_version(patch: pytest.MonkeyPatch) -> None:
    async def still_ours(self: Committer, staged: StagedObject) -> bool:
        try:
            return await self._store.get_in(staged.domain, keys.staging(staged.wal_id)) is not None
        except MetadataError:
            return False

    patch.setattr(Committer, "_still_ours", still_ours)


def recheck_before_the_high_watermark_is_read(patch: pytest.MonkeyPatch) -> None:
    kept_aim, kept_check = Committer._aim_all, Committer._still_ours
    checked: dict[UUID, bool] = {}

    async def aim_all(self: Committer, staged: StagedObject, waiting: Any, failed: list[int]) -> Any:
        checked[staged.wal_id] = await kept_check(self, staged)
        return await kept_aim(self, staged, waiting, failed)

    async def still_ours(self: Committer, staged: StagedObject) -> bool:
        return checked[staged.wal_id]

    patch.setattr(Committer, "_aim_all", aim_all)
    patch.setattr(Committer, "_still_ours", still_ours)
