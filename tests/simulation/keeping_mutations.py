"""Rules of keeping and letting go, each taken out of the code: collectors, retention, streams, readers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import pytest
from tests.simulation.commit_mutations import WithoutBarrier, plain_puts, yes

from dray.log import wal_keys
from dray.log.entries import IndexEntry
from dray.log.jobs import machine as jobs
from dray.log.jobs.machine import Job, JobState, put_job
from dray.log.life import collector, lifecycle, retention
from dray.log.life.lost_objects import LostObjects
from dray.log.read.doubts import WHOLE, Doubts
from dray.log.read.hearing import Hearing
from dray.log.read.index_cache import IndexCache
from dray.log.read.poll import Poller
from dray.log.read.reader import StreamReader
from dray.log.stream_state import advance_snapshot
from dray.log.stream_store import StreamStore, StreamView, Versioned, split
from dray.log.types import (
    Bounds,
    LogError,
    LogUnavailable,
    ObjectCorrupt,
    OffsetOutOfRange,
    ReadRequest,
    StreamClosed,
)
from dray.log.wal import PREFIX, parse_object_path
from dray.metadata import keys
from dray.metadata.contract import ANY, Ambiguous, Delete, MetadataError, Operation, StoredValue

# --- the collector


def no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(collector.Collector, "_fence", yes)


def fence_without_a_barrier(patch: pytest.MonkeyPatch) -> None:
    """What the simulation found: a version that was past when it was read has always moved."""
    kept = collector.Collector._fence

    async def fence(self: collector.Collector, stream: int) -> bool:
        return await kept(WithoutBarrier(self), stream)  # type: ignore[arg-type]

    patch.setattr(collector.Collector, "_fence", fence)


def fence_unseen(patch: pytest.MonkeyPatch) -> None:
    """Sealed, but never looked whether it moved."""

    async def fence(self: collector.Collector, stream: int) -> bool:
        found = await self._store.high_watermark(stream)
        if found is not None:
            try:
                sealed = found.value.sealed()
                await self._store.write(stream, self._store.advance(stream, found, sealed))
            except MetadataError:
                return True
        return True

    patch.setattr(collector.Collector, "_fence", fence)


def judge_without_taking_the_mark(patch: pytest.MonkeyPatch) -> None:
    async def resolve_orphan(
        self: collector.Collector, domain: int, wal_id: UUID, record: StoredValue
    ) -> bool:
        try:
            dropped = []
            for stream in wal_keys.Staging.decode(record.value).streams:
                if not await self._fence(stream):
                    return False
                if not await self._in_log(stream, wal_id):
                    dropped.append(stream)
            settled = wal_keys.settle(wal_id, record.version, dropped)
            outcomes = await self._store.write_in(domain, settled)
        except MetadataError:
            return False
        return outcomes[-1].applied

    patch.setattr(collector.Collector, "_resolve_orphan", resolve_orphan)


def count_dead_entries(patch: pytest.MonkeyPatch) -> None:
    def holds(self: StreamView, wal_id: UUID) -> bool:
        head = self.high_watermark.value.head
        found = [entry.value for entry in self.entries] + ([head] if head is not None else [])
        return any(entry.object_id == wal_id for entry in found)

    patch.setattr(StreamView, "holds", holds)
    patch.setattr(retention.Retention, "_sweep", _no_sweep)


def forget_the_object_before_it_is_gone(patch: pytest.MonkeyPatch) -> None:
    kept = collector.Collector._delete_object

    async def delete_object(self: collector.Collector, path: str) -> bool:
        await kept(self, path)
        return True

    patch.setattr(collector.Collector, "_delete_object", delete_object)
    no_audit(patch)


def no_audit(patch: pytest.MonkeyPatch) -> None:
    async def audit(self: collector.Collector, seen: collector.Collection) -> None:
        return

    patch.setattr(collector.Collector, "_audit", audit)


def audit_references_before_the_list(patch: pytest.MonkeyPatch) -> None:
    """Read what is referenced first, then list: what was staged in between looks as if nothing needed it."""

    async def audit(self: collector.Collector, seen: collector.Collection) -> None:
        referenced = set()
        for domain in range(self._store.domains):
            end = keys.prefix_end(keys.REFERENCES)
            for record in await self._store.scan_in(domain, keys.REFERENCES, end):
                referenced.add(keys.wal_id_of(record.key))
        async for info in self._objects.list(PREFIX):
            parsed = parse_object_path(info.path)
            if parsed is not None and parsed.wal_id not in referenced:
                await self._delete_object(info.path)

    patch.setattr(collector.Collector, "_audit", audit)


# --- retention


async def _no_sweep(self: retention.Retention, stream: int, dead: object) -> None:
    return


def no_sweep(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention.Retention, "_sweep", _no_sweep)


def judge_entries_by_an_older_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """The bug that the first run of the simulation found: what the head was at another time covers nothing
    now."""

    async def sweep_oldest(self: retention.Retention, stream: int, start: int) -> None:
        high_watermark = await self._store.high_watermark(stream)
        entries = await self._store.entries_above(stream, -1)
        if high_watermark is not None:
            await self._sweep(stream, split(entries, start, high_watermark.value.filed_end)[1])

    patch.setattr(retention.Retention, "_sweep_oldest", sweep_oldest)


def retain_without_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(retention, "advance_snapshot", yes)


def snapshot_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    kept = StreamStore.put_snapshot
    patch.setattr(StreamStore, "put_snapshot", staticmethod(lambda *given: plain_puts([kept(*given)])[0]))


def start_without_compare_and_set(patch: pytest.MonkeyPatch) -> None:
    kept = jobs.put_start
    patch.setattr(jobs, "put_start", lambda *given: plain_puts([kept(*given)])[0])


def delete_before_the_start_is_seen(patch: pytest.MonkeyPatch) -> None:
    async def retain(self: retention.Retention, stream: int, job: Versioned[Job]) -> None:
        if not await advance_snapshot(self._store, stream, job.value.need, self._runtime.wall_ms()):
            return
        start = await self._store.start(stream)
        try:
            put = jobs.put_start(stream, job.value.threshold, start.version)
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


def close_unseen(patch: pytest.MonkeyPatch) -> None:
    """One try to close, taken for done whatever came back."""

    async def close(self: lifecycle.Lifecycle, stream: int) -> None:
        try:
            found = await self._store.high_watermark(stream)
            if found is not None:
                closed = found.value.sealed(closed=True)
                await self._store.write(stream, self._store.advance(stream, found, closed))
        except MetadataError:
            return

    patch.setattr(lifecycle.Lifecycle, "_close", close)


def sweep_the_high_watermark_too(patch: pytest.MonkeyPatch) -> None:
    kept = lifecycle.Lifecycle._sweep

    async def sweep(self: lifecycle.Lifecycle, stream: int) -> None:
        await kept(self, stream)
        try:
            await self._store.write(stream, [Delete(keys.high_watermark(stream))])
        except MetadataError as error:
            raise LogUnavailable(str(error)) from error

    patch.setattr(lifecycle.Lifecycle, "_sweep", sweep)


# --- readers


def absent_by_a_stale_read(patch: pytest.MonkeyPatch) -> None:
    """What the simulation found: a stream that a broker could not see yet was taken for a closed one."""
    kept = StreamStore.high_watermark

    async def high_watermark(self: StreamStore, stream: int) -> Any:
        found = await kept(self, stream)
        if found is None:
            raise StreamClosed(f"stream {stream} is closed")
        return found

    patch.setattr(StreamStore, "high_watermark", high_watermark)


def bounds_without_a_barrier(patch: pytest.MonkeyPatch) -> None:
    kept = StreamReader.refresh

    async def refresh(self: StreamReader, stream: int, barrier: bool = False) -> Bounds:
        return await kept(self, stream)

    patch.setattr(StreamReader, "refresh", refresh)


def nothing_without_asking(patch: pytest.MonkeyPatch) -> None:
    """A poll that says "nothing" because it was not woken."""

    async def ask(self: Poller, requests: Sequence[ReadRequest], *_: float) -> dict[int, Any]:
        for request in requests:
            if self._reader.known_bounds(request.stream) is None:
                try:
                    await self._reader.refresh(request.stream)
                except LogError as error:
                    return {request.stream: error}
        return {}

    patch.setattr(Poller, "_ask", ask)


def nothing_told_is_nothing_done(patch: pytest.MonkeyPatch) -> None:
    """A poll goes by what was told so far, and asks for no mark."""

    async def hear(self: Hearing, domain: int, since: float) -> None:
        del since
        if (followed := self._followed.get(domain)) is not None:
            followed.upto = self.now()

    patch.setattr(Hearing, "hear", hear)


def followed_though_the_watch_broke(patch: pytest.MonkeyPatch) -> None:
    """A watch that stands anew goes on where it was, as if nothing could have happened meanwhile."""
    kept = Hearing._told
    stood: dict[Any, float] = {}

    def told(self: Hearing, domain: int, followed: Any, key: str | None) -> None:
        if key is None and followed in stood:
            followed.since = stood[followed]
            followed.release()
            return
        kept(self, domain, followed, key)
        if key is None:
            stood[followed] = followed.since

    patch.setattr(Hearing, "_told", told)


def moved_and_not_looked_into(patch: pytest.MonkeyPatch) -> None:
    """A mark counts for streams that were told to have moved."""
    patch.setattr(IndexCache, "has_moved", lambda *_: False)


def out_of_range_by_what_is_known(patch: pytest.MonkeyPatch) -> None:
    kept = StreamReader.plan

    async def plan(self: StreamReader, request: ReadRequest, max_bytes: int, at_least_one: bool) -> Any:
        bounds = self.known_bounds(request.stream)
        if bounds is not None and not bounds.start <= request.offset <= bounds.end:
            raise OffsetOutOfRange(request.offset, bounds.start, bounds.end)
        return await kept(self, request, max_bytes, at_least_one)

    patch.setattr(StreamReader, "plan", plan)


def take_a_missing_object_for_a_corrupt_one(patch: pytest.MonkeyPatch) -> None:
    """Without looking what became of it, when an object is gone."""

    async def read_elsewhere(self: StreamReader, request: ReadRequest, gone: Any) -> Any:
        raise ObjectCorrupt("it is gone")

    patch.setattr(StreamReader, "read_elsewhere", read_elsewhere)


def believe_one_bad_answer(patch: pytest.MonkeyPatch) -> None:
    def failed(_: Doubts, path: str, place: int, error: LogError) -> LogError:
        return error

    patch.setattr(Doubts, "failed", failed)


def believe_the_store_that_an_object_is_gone(patch: pytest.MonkeyPatch) -> None:
    true = Doubts.failed

    def failed(self: Doubts, path: str, place: int, error: LogError) -> LogError | None:
        return error if place == WHOLE else true(self, path, place, error)

    patch.setattr(Doubts, "failed", failed)


def take_for_lost_what_is_hidden_for_a_moment(patch: pytest.MonkeyPatch) -> None:
    true = LostObjects.proven

    def proven(self: LostObjects, stream: int, suspects: Iterable[IndexEntry], _: float = 0.0) -> object:
        return true(self, stream, suspects, 0.0)

    patch.setattr(LostObjects, "proven", proven)
