"""Swapping a compacted or packed range in the index: what `machine.py` decides, performed.

The producer snapshot goes past the range first. A Parquet entry has no detail of the producers; a merged one
has, but covers several entries, and a snapshot that ends inside of it could not be folded further. Then the
new entry is put onto the key of the last input: the commit point. Lookups in the earlier inputs still find
the same records. Once it was *seen* there, by the put's own reply or by a look, what was replaced goes. When
the reply is lost, the next step looks at that key again: `machine.py` says what follows from what it finds.
"""

from __future__ import annotations

from collections.abc import Sequence

from dray.base.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.log.entries import IndexEntry
from dray.log.jobs.machine import (
    Compaction,
    IllegalEvent,
    Job,
    JobState,
    JobStep,
    LastInputSeen,
    Resumed,
    advance,
)
from dray.log.stream_state import advance_snapshot
from dray.log.stream_store import StreamStore, Versioned
from dray.metadata.contract import Operation, Put


class Swap:
    """Any process may take any step, at any time, more than once."""

    def __init__(self, store: StreamStore, runtime: Runtime, expiry: ExpiryClock | None = None) -> None:
        self._store = store
        self._expiry = expiry or UndoubtedClock(runtime)

    async def step(self, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        """The job one state further, where this moved it. None: read the job again, and go on from there."""
        if job.value.state in (JobState.ICEBERG_COMMITTED, JobState.PACKED):
            return await self._swap(stream, job)
        if job.value.state in (JobState.INDEX_SWAPPED, JobState.PACK_SWAPPED):
            return await self._delete_replaced(stream, job)
        raise IllegalEvent(job.value, Resumed())

    async def _swap(self, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        if not await self._snapshot_covers(stream, job.value.snapshot_end):
            return None
        step = advance(stream, job.value, LastInputSeen(await self._last_input(stream, job.value)))
        if step.unclear:
            await self._explain(stream, job)
        if step.write:
            step = await self._put(stream, job, step.write)
        return await self._store.perform(stream, job, step)

    async def _put(self, stream: int, job: Versioned[Job], write: Sequence[Operation]) -> JobStep:
        """The put over the last input, and what follows: its reply shows the new entry as well as a look at
        the key would, if it says that it was applied. If not, the next step looks."""
        [outcome] = await self._store.write(stream, write)
        if not outcome.applied:
            return JobStep()
        [put] = write
        assert isinstance(put, Put)
        seen = Versioned(IndexEntry.decode(put.value), outcome.version)
        return advance(stream, job.value, LastInputSeen(seen))

    async def _last_input(self, stream: int, job: Job) -> Versioned[IndexEntry] | None:
        last = job.last_input
        return await self._store.entry(stream, last.end, last.cumulative_size)

    async def _snapshot_covers(self, stream: int, end: int) -> bool:
        return await advance_snapshot(self._store, stream, end, self._expiry.now_ms())

    async def _note_cleaned(self, stream: int, compaction: Compaction) -> bool:
        """Only here, where the job says that the swap was seen: as long as an input is still the entry, a key
        may have two records, and a tombstone that goes would bring the older one back. True once it is
        stored; while the clock is doubted it is left out, and the next bottom merge makes up for it."""
        end, keys = compaction.cleaned_to, compaction.cleaned_with
        cleaning = compaction.cleaning
        if cleaning is None or (end is None and keys is None):
            return True
        now_ms = self._expiry.now_ms()
        stored = await self._store.cleaned(stream)
        moved = stored.value
        if end is not None and now_ms is not None:
            moved = moved.moved(end, now_ms, cleaning.retention_ms)
        if keys is not None and cleaning.after is not None:
            reached, emptied = (cleaning.after, compaction.end), compaction.is_emptied
            moved = moved.advanced(keys, *reached, now_ms, cleaning.retention_ms, emptied=emptied)
        if moved == stored.value:
            return True
        [outcome] = await self._store.write(stream, [self._store.put_cleaned(stream, moved, stored.version)])
        return outcome.applied

    async def _explain(self, stream: int, job: Versioned[Job]) -> None:
        """The last input is not as planned. Either the read was stale, or another process is further, or the
        stream is gone."""
        await self._store.barrier(stream)
        found = await self._last_input(stream, job.value)
        if not advance(stream, job.value, LastInputSeen(found)).unclear:
            return
        if await self._store.job_version(stream) == job.version:
            advance(stream, job.value, LastInputSeen(found, certain=True))

    async def _delete_replaced(self, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        compaction = job.value.compaction  # None for a pack, which drops nothing
        if compaction is not None and not await self._note_cleaned(stream, compaction):
            return None
        return await self._store.perform(stream, job, advance(stream, job.value, Resumed()))
