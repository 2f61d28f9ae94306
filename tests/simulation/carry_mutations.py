"""Rules of carried appends, packs and lanes, each taken out of the code."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.commit_mutations import plain_puts

from dray.log import wal_keys
from dray.log.append.carried_lane import CarriedLane
from dray.log.append.chunks import PendingChunk, StagedObject
from dray.log.append.commit import CommitAttempt, Committer, CommitVerdict
from dray.log.append.pipeline import DomainPipeline
from dray.log.entries import IndexEntry
from dray.log.jobs import machine as jobs
from dray.log.jobs import packing
from dray.log.jobs.machine import Awaits, Job, JobState
from dray.log.jobs.packing import PackAim, Packer, PackResult
from dray.log.jobs.packing_rounds import PackingRounds
from dray.log.jobs.swap import Swap
from dray.log.life.collector import Collector
from dray.log.producer_state import ProducerStates
from dray.log.read import segments
from dray.log.stream_state import StreamState
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.metadata import keys
from dray.metadata.contract import Delete, MetadataError, Operation, Outcome, Put, StoredValue

# --- carrying


def _bare(operations: list[Put]) -> list[Put]:
    """A head that is filed without what it carries."""
    moved, *filed = operations
    found = [IndexEntry.decode(put.value) for put in filed]
    return [
        moved,
        *[
            Put(put.key, replace(entry, data=b"").encode(), put.expect)
            for put, entry in zip(filed, found, strict=True)
        ],
    ]


def file_the_head_bare(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.advance

    def advance(stream: int, previous: Any, following: Any) -> list[Put]:
        operations = kept(stream, previous, following)
        return operations if following.head is None else _bare(operations)

    patch.setattr(StreamStore, "advance", staticmethod(advance))


def seal_the_head_bare(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.advance

    def advance(stream: int, previous: Any, following: Any) -> list[Put]:
        operations = kept(stream, previous, following)
        return operations if following.head is not None else _bare(operations)

    patch.setattr(StreamStore, "advance", staticmethod(advance))


def put_the_head_bare(patch: pytest.MonkeyPatch) -> None:
    """What it carries is put after it, in a write of its own."""
    kept = Committer._committed

    def advance(stream: int, previous: Any, following: Any) -> list[Put]:
        operations = advanced(stream, previous, following)
        if following.head is not None and following.head.is_carried:
            bare = replace(following, head=replace(following.head, data=b""))
            operations[0] = replace(operations[0], value=bare.encode())
        return operations

    def committed(self: Committer, aim: CommitAttempt, version: int) -> None:
        if aim.entry.is_carried:
            whole = Put(keys.high_watermark(aim.chunk.stream), aim.following.encode(), version)
            self._runtime.spawn(self._store.write(aim.chunk.stream, [whole]), "what it carries")
        kept(self, aim, version)

    advanced = StreamStore.advance
    patch.setattr(StreamStore, "advance", staticmethod(advance))
    patch.setattr(Committer, "_committed", committed)


def unclear_carried_appends_go_as_objects(patch: pytest.MonkeyPatch) -> None:
    carry_by, resolve = DomainPipeline.carry_by, Committer._resolve

    def known(self: DomainPipeline, lane: CarriedLane) -> None:
        carry_by(self, lane)
        lane._committer.__dict__.setdefault("objects", {})[self._domain] = self

    async def fall_back(
        self: Committer,
        staged: StagedObject,
        aim: CommitAttempt,
        waiting: dict[int, CommitAttempt | None],
        failed: list[int],
    ) -> CommitVerdict:
        if not staged.is_carried:
            return await resolve(self, staged, aim, waiting, failed)
        verdict = await self._find(staged, aim)
        stream = aim.chunk.stream
        del waiting[stream]
        if verdict is not CommitVerdict.COMMITTED:
            self.forget(stream)
            pending, aim.chunk.pending = aim.chunk.pending, []
            for each in pending:
                self.objects[self._store.domain(stream)]._add(stream, each)  # type: ignore[attr-defined]
        return verdict

    patch.setattr(DomainPipeline, "carry_by", known)
    patch.setattr(Committer, "_resolve", fall_back)


def carried_appends_are_known_by_their_range(patch: pytest.MonkeyPatch) -> None:
    kept = Committer._look

    async def look(self: Committer, staged: StagedObject, aim: CommitAttempt) -> CommitVerdict:
        stream = aim.chunk.stream
        if staged.is_carried:
            await self._store.barrier(stream)
            found = await self._store.high_watermark(stream)
            head = None if found is None else found.value.head
            filed = await self._store.entry(stream, aim.entry.end, aim.entry.cumulative_size)
            for entry in (head, None if filed is None else filed.value):
                if entry is not None and (entry.start, entry.end) == (aim.entry.start, aim.entry.end):
                    self._committed(aim, 0)
                    self.forget(stream)
                    return CommitVerdict.COMMITTED
        return await kept(self, staged, aim)

    patch.setattr(Committer, "_look", look)


def carried_entries_are_not_folded(patch: pytest.MonkeyPatch) -> None:
    kept = ProducerStates.fold
    patch.setattr(ProducerStates, "fold", lambda self, entry: None if entry.is_carried else kept(self, entry))


# --- lanes


def objects_do_not_wait_for_what_is_carried(patch: pytest.MonkeyPatch) -> None:
    async def passed(self: CarriedLane, streams: object) -> None:
        return

    patch.setattr(CarriedLane, "passed", passed)


def carry_beside_objects_of_the_stream(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DomainPipeline, "_is_on_its_way", lambda *_: False)


def leave_waiting_batches_in_their_lane(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CarriedLane, "take_back", lambda *_: [])


def carried_layouts_are_kept_by_stream(patch: pytest.MonkeyPatch) -> None:
    """As a prototype did, which knew them by their paths: carried entries have none."""
    kept = segments.SegmentReader.layout
    known: dict[tuple[segments.SegmentReader, int], segments.EntryLayout] = {}

    def layout(
        self: segments.SegmentReader, entry: IndexEntry, stream: int, *more: Any
    ) -> segments.EntryLayout:
        found = kept(self, entry, stream, *more)
        return known.setdefault((self, stream), found) if entry.is_carried else found

    patch.setattr(segments.SegmentReader, "layout", layout)


# --- hints


def hints_are_known_by_stream(patch: pytest.MonkeyPatch) -> None:
    """Whoever has committed meanwhile."""
    put: dict[tuple[Committer, int], float | None] = {}
    committed, load = Committer._committed, Committer._remember

    def note(self: Committer, aim: CommitAttempt, version: int) -> None:
        put[self, aim.chunk.stream] = aim.hinted_at
        committed(self, aim, version)

    def remember(self: Committer, stream: int, state: StreamState) -> None:
        state.hinted_at = put.get((self, stream), state.hinted_at)
        load(self, stream, state)

    patch.setattr(Committer, "_committed", note)
    patch.setattr(Committer, "_remember", remember)


def hints_are_known_before_they_are_put(patch: pytest.MonkeyPatch) -> None:
    """By the first try, whatever came of it."""
    kept = Committer._aim

    async def aim_at(self: Committer, staged: StagedObject, chunk: PendingChunk) -> CommitAttempt | None:
        aim = await kept(self, staged, chunk)
        if (state := self._states.get(chunk.stream)) is not None and staged.is_carried:
            state.hinted_at = self._runtime.monotonic()
        return aim

    patch.setattr(Committer, "_aim", aim_at)


def hints_go_without_a_seal(patch: pytest.MonkeyPatch) -> None:
    async def seal(self: PackingRounds, stream: int) -> bool:
        return True

    patch.setattr(PackingRounds, "_seal", seal)


def hints_go_though_another_moved_the_version(patch: pytest.MonkeyPatch) -> None:
    """As a collector may judge: but an object of the broker that knows the hint moves it, too."""
    kept = PackingRounds._seal

    async def seal(self: PackingRounds, stream: int) -> bool:
        await kept(self, stream)
        return True

    patch.setattr(PackingRounds, "_seal", seal)


def hints_go_without_a_look_behind_the_seal(patch: pytest.MonkeyPatch) -> None:
    async def forget(self: PackingRounds, stream: int, hint: StoredValue) -> None:
        if await self._seal(stream):
            await self._store.write_in(self._domain, [Delete(hint.key, hint.version)])

    patch.setattr(PackingRounds, "_forget", forget)


def hints_go_at_any_version(patch: pytest.MonkeyPatch) -> None:
    async def forget(self: PackingRounds, stream: int, hint: StoredValue) -> None:
        if await self._seal(stream) and await self._packer.look(stream) == 0:
            await self._store.write_in(self._domain, [Delete(hint.key)])

    patch.setattr(PackingRounds, "_forget", forget)


# --- packing


def pack_though_staging_is_unclear(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.write_in

    async def write_in(self: StreamStore, domain: int, operations: Any) -> Any:
        first = operations[0]
        is_pack = isinstance(first, Put) and first.key.startswith(keys.STAGING) and first.value[0] == 2
        try:
            return await kept(self, domain, operations)
        except MetadataError:
            if not is_pack:
                raise
            return [Outcome(True, 1)] * len(operations)

    patch.setattr(StreamStore, "write_in", write_in)


def pack_without_staging(patch: pytest.MonkeyPatch) -> None:
    """The references ride with the job, and there is no mark."""
    staged = wal_keys.stage

    def stage(wal_id: UUID, staging: wal_keys.Staging) -> list[Operation]:
        operations = staged(wal_id, staging)
        return operations[1:2] if staging.kind is wal_keys.StagingKind.PACK else operations

    kept = Packer._write_part

    async def write_part(self: Packer, part: dict[int, Operation]) -> Any:
        found = await kept(self, part)
        references: list[Operation] = []
        for stream, operation in part.items():
            assert isinstance(operation, Put)
            packed = Job.decode(operation.value).packed
            references.append(Put(keys.reference(packed.object_id, stream), b"\1"))
        await self._store.write_in(self._domain, references)
        return found

    patch.setattr(wal_keys, "stage", stage)
    patch.setattr(Packer, "_write_part", write_part)


def pack_aims_after_staging(patch: pytest.MonkeyPatch) -> None:
    kept = Packer._decide

    async def decide(self: Packer, aims: dict[int, PackAim], wal_id: UUID, path: str) -> PackResult:
        for stream, aim in aims.items():
            job = await self._store.job(stream)
            if job.value.state is JobState.DONE:
                aim.job = job
        return await kept(self, aims, wal_id, path)

    patch.setattr(Packer, "_decide", decide)


def pack_aims_again_after_a_clear_no(patch: pytest.MonkeyPatch) -> None:
    kept = Packer._decide

    async def decide(self: Packer, aims: dict[int, PackAim], wal_id: UUID, path: str) -> PackResult:
        result = await kept(self, aims, wal_id, path)
        again: dict[int, PackAim] = {}
        for stream in list(result.failed):
            job = await self._store.job(stream)
            if job.value.state is JobState.DONE:
                again[stream] = replace(aims[stream], job=job)
        if again:
            more = await kept(self, again, wal_id, path)
            result.failed = [stream for stream in result.failed if stream not in again] + more.failed
            result.taken |= more.taken
            result.undecided = result.undecided or more.undecided
        return result

    patch.setattr(Packer, "_decide", decide)


def pack_without_a_job(patch: pytest.MonkeyPatch) -> None:
    async def decide(self: Packer, aims: dict[int, PackAim], wal_id: UUID, path: str) -> PackResult:
        result = PackResult({}, [])
        for stream, aim in aims.items():
            merged = IndexEntry.packed([each.value for each in aim.inputs], wal_id, path, aim.references)
            last = aim.inputs[-1]
            key = keys.index_entry(stream, merged.end, merged.cumulative_size)
            try:
                [outcome] = await self._store.write(stream, [Put(key, merged.encode(), last.version)])
            except MetadataError:
                result.undecided = True
                continue
            if outcome.applied:
                inside = jobs.inside(stream, jobs.Packing.of(aim.inputs, merged))
                await self._store.write(stream, [inside])
            else:
                result.failed.append(stream)
        return result

    patch.setattr(Packer, "_decide", decide)


def pack_over_a_later_job(patch: pytest.MonkeyPatch) -> None:
    """The job is read after the view, not before."""
    kept = Packer._plan

    async def plan(self: Packer, stream: int, room: int, *, seal: bool) -> PackAim | None:
        aim = await kept(self, stream, room, seal=seal)
        if aim is not None:
            job = await self._store.job(stream)
            aim.job = job if job.value.state is JobState.DONE else aim.job
        return aim

    patch.setattr(Packer, "_plan", plan)


def settle_an_undecided_pack(patch: pytest.MonkeyPatch) -> None:
    kept = Packer._decide

    async def decide(self: Packer, aims: dict[int, PackAim], wal_id: UUID, path: str) -> PackResult:
        result = await kept(self, aims, wal_id, path)
        if result.undecided:
            result.failed = [stream for stream in aims if stream not in result.taken]
        result.undecided = False
        return result

    patch.setattr(Packer, "_decide", decide)


def a_job_that_moved_is_not_ours(patch: pytest.MonkeyPatch) -> None:
    kept = Packer._is_again

    async def is_again(self: Packer, stream: int, aim: PackAim, wal_id: UUID, result: PackResult) -> bool:
        before = result.undecided
        again = await kept(self, stream, aim, wal_id, result)
        try:
            moved = await self._store.job_version(stream) != aim.job.version
        except MetadataError:
            return again
        if not again and moved and stream not in result.taken:
            result.undecided = before
            result.failed.append(stream)
        return again

    patch.setattr(Packer, "_is_again", is_again)


def pack_covered_entries(patch: pytest.MonkeyPatch) -> None:
    def carried(view: StreamView | None) -> list[Versioned[IndexEntry]]:
        if view is None or view.high_watermark.value.closed:
            return []
        return [entry for entry in view.entries if entry.value.is_carried]

    patch.setattr(packing, "_carried", carried)


def abandon_a_pack(patch: pytest.MonkeyPatch) -> None:
    kept = Packer.finish

    async def finish(self: Packer, stream: int, job: Versioned[Job] | None) -> None:
        if job is not None and job.value.awaits is Awaits.PACK and self._runtime.random.random() < 0.3:
            await self._store.move_job(stream, job, Job(job.value.number))
            return
        await kept(self, stream, job)

    patch.setattr(Packer, "finish", finish)


def abandon_a_pack_with_its_reference(patch: pytest.MonkeyPatch) -> None:
    kept = Packer.finish

    async def finish(self: Packer, stream: int, job: Versioned[Job] | None) -> None:
        if job is not None and job.value.awaits is Awaits.PACK and self._runtime.random.random() < 0.3:
            moved = await self._store.move_job(stream, job, Job(job.value.number))
            if moved is not None:
                await self._store.write(stream, [jobs.dereference(stream, job.value.packed)])
            return
        await kept(self, stream, job)

    patch.setattr(Packer, "finish", finish)


def pack_over_a_job_that_is_absent(patch: pytest.MonkeyPatch) -> None:
    kept = Packer._plan

    async def plan(self: Packer, stream: int, room: int, *, seal: bool) -> PackAim | None:
        job = await self._store.job(stream)
        inputs = self._cut(packing._carried(await self._store.view(stream)), room)
        if job.version == 0 and inputs:
            return PackAim(job, inputs, packing._references(inputs))
        return await kept(self, stream, room, seal=seal)

    patch.setattr(Packer, "_plan", plan)


def swap_merged_entries_without_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    kept = Swap._swap

    async def swap(self: Swap, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        if job.value.packing is None:
            return await kept(self, stream, job)
        step = jobs.advance(stream, job.value, jobs.LastInputSeen(await self._last_input(stream, job.value)))
        return await self._store.perform(stream, job, step)

    patch.setattr(Swap, "_swap", swap)


def swap_merged_entries_over_any_version(patch: pytest.MonkeyPatch) -> None:
    def swap(stream: int, job: Job, event: jobs.LastInputSeen) -> jobs.JobStep:
        packed, last = job.packed, job.last_input
        if event.found is not None and event.found.value.object_id == packed.object_id:
            return jobs.JobStep(following=job.moved(JobState.PACK_SWAPPED))
        key = keys.index_entry(stream, last.end, last.cumulative_size)
        return jobs.JobStep(write=plain_puts([Put(key, packed.merged.encode(), last.version)]))

    patch.setitem(jobs._TABLE, (JobState.PACKED, jobs.LastInputSeen), swap)


def go_on_without_seeing_the_merged_entry(patch: pytest.MonkeyPatch) -> None:
    kept = Swap._swap

    async def swap(self: Swap, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        if job.value.packing is None:
            return await kept(self, stream, job)
        with suppress(MetadataError):
            await kept(self, stream, job)
        return await self._store.move_job(stream, job, job.value.moved(JobState.PACK_SWAPPED))

    patch.setattr(Swap, "_swap", swap)


# --- the collector


def seal_for_a_pack(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Collector, "_holds_pack", Collector._holds_append)


def no_fence_for_a_pack(patch: pytest.MonkeyPatch) -> None:
    async def fence_job(self: Collector, stream: int) -> Job:
        return (await self._store.job(stream)).value

    patch.setattr(Collector, "_fence_job", fence_job)


def a_fenced_job_is_not_read_again(patch: pytest.MonkeyPatch) -> None:
    async def fence_job(self: Collector, stream: int) -> Job:
        found = await self._store.job(stream)
        if found.value.state is JobState.DONE:
            await self._store.write(stream, [jobs.put_job(stream, found.value, found.version)])
        return found.value

    patch.setattr(Collector, "_fence_job", fence_job)


def a_fenced_job_is_not_seen_moved(patch: pytest.MonkeyPatch) -> None:
    async def fence_job(self: Collector, stream: int) -> Job:
        found = await self._store.job(stream)
        if found.value.state is JobState.DONE:
            await self._store.write(stream, [jobs.put_job(stream, found.value, found.version)])
        return (await self._store.job(stream)).value

    patch.setattr(Collector, "_fence_job", fence_job)


def ask_the_index_only(patch: pytest.MonkeyPatch) -> None:
    async def holds_pack(self: Collector, stream: int, wal_id: UUID) -> bool | None:
        if await self._fence_job(stream) is None:
            return None
        return await self._in_log(stream, wal_id)

    patch.setattr(Collector, "_holds_pack", holds_pack)


def ask_the_index_before_the_job(patch: pytest.MonkeyPatch) -> None:
    async def holds_pack(self: Collector, stream: int, wal_id: UUID) -> bool | None:
        held = await self._in_log(stream, wal_id)
        job = await self._fence_job(stream)
        return None if job is None else job.packs_into(wal_id) or held

    patch.setattr(Collector, "_holds_pack", holds_pack)


MUTATIONS = {
    "the previous head is filed bare": file_the_head_bare,
    "a head is sealed bare": seal_the_head_bare,
    "a head is put bare": put_the_head_bare,
    "unclear carried appends go as objects": unclear_carried_appends_go_as_objects,
    "carried appends are known by their range": carried_appends_are_known_by_their_range,
    "carried entries are not folded": carried_entries_are_not_folded,
    "objects do not wait for what is carried": objects_do_not_wait_for_what_is_carried,
    "carry beside objects of the stream": carry_beside_objects_of_the_stream,
    "waiting batches stay in their lane": leave_waiting_batches_in_their_lane,
    "carried layouts are kept by stream": carried_layouts_are_kept_by_stream,
    "hints are known by stream": hints_are_known_by_stream,
    "hints are known before they are put": hints_are_known_before_they_are_put,
    "hints go without a seal": hints_go_without_a_seal,
    "hints go though another moved the version": hints_go_though_another_moved_the_version,
    "hints go without a look behind the seal": hints_go_without_a_look_behind_the_seal,
    "hints go at any version": hints_go_at_any_version,
    "pack though staging is unclear": pack_though_staging_is_unclear,
    "pack without staging": pack_without_staging,
    "a pack aims after staging": pack_aims_after_staging,
    "a pack aims again after a clear no": pack_aims_again_after_a_clear_no,
    "pack without a job": pack_without_a_job,
    "pack over a later job": pack_over_a_later_job,
    "settle an undecided pack": settle_an_undecided_pack,
    "a job that moved is not ours": a_job_that_moved_is_not_ours,
    "pack covered entries": pack_covered_entries,
    "abandon a pack": abandon_a_pack,
    "abandon a pack with its reference": abandon_a_pack_with_its_reference,
    "pack over a job that is absent": pack_over_a_job_that_is_absent,
    "merged entries without the snapshot": swap_merged_entries_without_the_snapshot,
    "merged entries over any version": swap_merged_entries_over_any_version,
    "merged entries unseen": go_on_without_seeing_the_merged_entry,
    "seal for a pack": seal_for_a_pack,
    "no fence for a pack": no_fence_for_a_pack,
    "a fenced job is not read again": a_fenced_job_is_not_read_again,
    "a fenced job is not seen moved": a_fenced_job_is_not_seen_moved,
    "ask the index only": ask_the_index_only,
    "ask the index before the job": ask_the_index_before_the_job,
}
