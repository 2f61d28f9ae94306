"""Swapping a compacted range in the index, the part of a compaction that only the log knows.

The producer snapshot goes past the range first, since the new entry has no detail of the producers. Then
the Parquet entry is put onto the key of the last input, expecting the version planned with: the commit
point. Lookups in the earlier inputs still find the same records. Once it was *seen* there, one write
deletes the keys inside the range together with the references of what was replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from dray.log.entries import EntryKind, IndexEntry, RowGroup
from dray.log.jobs import Compaction, Job, JobState, move_job
from dray.log.snapshots import advance_snapshot
from dray.log.stream_store import StreamStore, Versioned
from dray.log.types import LogError
from dray.metadata import keys
from dray.metadata.contract import Delete, DeleteRange, Operation, Put
from dray.metadata.values import ValueCorrupt
from dray.runtime import ExpiryClock, Runtime, UndoubtedClock


class SwapImpossible(LogError):
    """The last input is neither as it was planned with nor replaced: its stream was deleted and swept."""


class Swap:
    """Every step may be taken by anyone, at any time, again."""

    def __init__(self, store: StreamStore, runtime: Runtime, expiry: ExpiryClock | None = None) -> None:
        self._store = store
        self._expiry = expiry or UndoubtedClock(runtime)

    async def step(self, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        """The job one state further, where this moved it. None: read the job again, and go on from there."""
        if job.value.state is JobState.ICEBERG_COMMITTED:
            return await self._swap(stream, job)
        if job.value.state is JobState.INDEX_SWAPPED:
            return await self._delete_replaced(stream, job)
        raise ValueError(f"a job in {job.value.state.value} has nothing to swap")

    async def _swap(self, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        compaction = job.value.compacted
        if not await self._snapshot_covers(stream, compaction.end):
            return None
        last = compaction.inputs[-1]
        found = await self._store.entry(stream, last.end, last.cumulative_size)
        if found is not None and found.value.object_id == _written_id(compaction):
            return await move_job(self._store, stream, job, job.value.moved(JobState.INDEX_SWAPPED))
        if found is None or found.version != last.version:
            await self._explain(stream, job)
            return None
        key = keys.index_entry(stream, last.end, last.cumulative_size)
        await self._store.write(stream, [Put(key, _entry(compaction, found.value).encode(), last.version)])
        return None  # the next step must see it there

    async def _snapshot_covers(self, stream: int, end: int) -> bool:
        return await advance_snapshot(self._store, stream, end, self._expiry.now_ms())

    async def _explain(self, stream: int, job: Versioned[Job]) -> None:
        """Not as planned: we read from behind, somebody else is further than we, or there is no stream."""
        await self._store.barrier(stream)
        last = job.value.compacted.inputs[-1]
        found = await self._store.entry(stream, last.end, last.cumulative_size)
        if found is not None and (
            found.version == last.version or found.value.object_id == _written_id(job.value.compacted)
        ):
            return
        record = await self._store.store.get(self._store.domain(stream), keys.job(stream))
        if record is not None and record.version == job.version:
            path = _written_path(job.value.compacted)
            raise SwapImpossible(f"stream {stream}: job {job.value.number} has no place for {path}")

    async def _delete_replaced(self, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        await self._store.write(stream, replaced(stream, job.value.compacted))
        return await move_job(self._store, stream, job, job.value.moved(JobState.DONE))


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


def _written(compaction: Compaction) -> Mapping[str, Any]:
    if compaction.written is None:
        raise ValueCorrupt("a stream's job", "it has no file to swap in")
    return compaction.written


def _written_id(compaction: Compaction) -> UUID:
    return UUID(hex=_written(compaction)["parquet_id"])


def _written_path(compaction: Compaction) -> str:
    return str(_written(compaction)["path"])


def _entry(compaction: Compaction, last: IndexEntry) -> IndexEntry:
    """The entry of the written file. What it says of the whole stream up to here is what the last input
    said; its timestamps are those of the file, since the other inputs are not read again."""
    written = _written(compaction)
    try:
        groups = [RowGroup(*map(int, group)) for group in written["row_groups"]]
        entry = IndexEntry.parquet(
            [last],
            _written_id(compaction),
            _written_path(compaction),
            int(written["file_size"]),
            int(written["footer_length"]),
            groups,
        )
        minimum, maximum = int(written["min_timestamp"]), int(written["max_timestamp"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueCorrupt("a stream's job", str(error)) from error
    return replace(entry, start=compaction.start, min_timestamp=minimum, max_timestamp=maximum)
