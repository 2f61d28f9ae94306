"""Raising a stream's start: DeleteRecords, and retention by age and size.

A job of `jobs.py`, performed here: RETAIN, then the producer snapshot past what goes, then the start by
compare-and-set and *seen* there (the commit point: readers go by it), then RAISED, then one write that
deletes the entries below it together with their references, then DONE. It is never abandoned.

A compaction that is in the way is carried on as far as the log alone can. One that is only CREATED is
abandoned; one that is written waits for its table; in later states only the index is left to change, which is
done here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from dray.log.entries import NO_TIMESTAMP, IndexEntry
from dray.log.jobs import (
    Abandoned,
    Awaits,
    EntriesSeen,
    InTable,
    Job,
    JobState,
    StartPlanned,
    StartSeen,
    SwapImpossible,
    advance,
    removal,
)
from dray.log.settings import LogSettings
from dray.log.snapshots import advance_snapshot
from dray.log.stream_store import StreamStore, StreamView, Versioned
from dray.log.swap import Swap
from dray.log.types import LogUnavailable, OffsetOutOfRange, StreamClosed
from dray.metadata.contract import Ambiguous, MetadataError, Operation
from dray.runtime import ExpiryClock, Runtime, UndoubtedClock

_log = structlog.get_logger(__name__)

_STEPS = 64

Raised = Callable[[int], Awaitable[None]]  # updates the caches of the process that raises the start
DeletionCallback = Callable[[str, int], None]
"""Called with why records were deleted (`retention` or `delete_records`), and how many."""


class WaitsForTable(LogUnavailable):
    """A compaction of the stream is written and not yet in its table: only a compactor can go on."""


class Retention:
    def __init__(
        self,
        store: StreamStore,
        runtime: Runtime,
        settings: LogSettings,
        on_raised: Raised | None = None,
        *,
        on_deleted: DeletionCallback | None = None,
        expiry: ExpiryClock | None = None,
    ) -> None:
        self._on_raised = on_raised
        self._store = store
        self._runtime = runtime
        self._settings = settings
        self._on_deleted = on_deleted
        self._begun: dict[int, int] = {}  # by stream: the start from which this process began to raise it
        self._expiry = expiry or UndoubtedClock(runtime)
        self._swap = Swap(store, runtime, self._expiry)
        self._created_since: dict[int, tuple[int, float]] = {}  # jobs seen CREATED: their version, and when

    async def raise_start(self, stream: int, before: int) -> int:
        """Drop the records below `before` (-1: all there are); the stream's start afterwards."""
        return await self._raise(stream, before, "delete_records")

    async def _raise(self, stream: int, before: int, why: str) -> int:
        try:
            start = await self._raise_start(stream, before)
            self._say(stream, start, why)
            return start
        finally:
            self._begun.pop(stream, None)

    def _say(self, stream: int, start: int, why: str) -> None:
        """Log one line, in the process that began the job. Retention by time and size is summed up per round
        elsewhere."""
        first = self._begun.get(stream, start)
        if start > first:
            say = _log.debug if why == "retention" else _log.info
            say("records deleted", why=why, stream=stream, first=first, below=start, records=start - first)
            if self._on_deleted is not None:
                self._on_deleted(why, start - first)

    async def _raise_start(self, stream: int, before: int) -> int:
        for _ in range(_STEPS):
            try:
                start = await self._step(stream, before)
            except Ambiguous:
                start = None  # the next step reads what became of it
            except MetadataError as error:
                raise LogUnavailable(f"the metadata store did not answer: {error}") from error
            if start is not None:
                return start
        raise LogUnavailable(f"stream {stream}: its start could not be raised, too much else happens")

    async def keep(self, stream: int, retention_ms: int, retention_bytes: int) -> bool:
        """Drop what is older, or more, than the topic keeps; True where something went. Both may be -1."""
        if retention_ms < 0 and retention_bytes < 0:
            return False
        try:
            view = await self._oldest(stream)
            if view is None or not self._expired(view, retention_ms, retention_bytes, whole=False):
                return False  # as a rule: the whole index need not be read for that
            view = await self._store.view(stream)
            if await self._being_compacted(stream):
                return False  # its file comes first, or else a busy stream would never get one
        except MetadataError as error:
            raise LogUnavailable(f"the metadata store did not answer: {error}") from error
        threshold = None if view is None else self._expired(view, retention_ms, retention_bytes)
        if threshold is None:
            return False
        await self._raise(stream, threshold, "retention")
        if self._on_raised is not None:
            await self._on_raised(stream)
        return True

    async def _being_compacted(self, stream: int) -> bool:
        """Is a compactor writing a file of the stream? A job that stands still for long, on our own clock,
        has been left."""
        job = await self._store.job(stream)
        if job.value.state is not JobState.CREATED:
            self._created_since.pop(stream, None)
            return False
        now = self._runtime.monotonic()
        version, since = self._created_since.get(stream, (job.version, now))
        if version != job.version:
            version, since = job.version, now
        self._created_since[stream] = version, since
        return now - since < self._settings.job_seconds

    def _expired(
        self, view: StreamView, retention_ms: int, retention_bytes: int, *, whole: bool = True
    ) -> int | None:
        """The new start, or None if nothing has expired."""
        if view.high_watermark.value.closed:
            return None
        now_ms = self._expiry.now_ms()
        if now_ms is None:
            now_ms, retention_ms = 0, -1  # while the clock is doubted, only size counts
        threshold = expired_below(view, now_ms, retention_ms, retention_bytes, whole=whole)
        return threshold if threshold > view.start else None

    async def _oldest(self, stream: int) -> StreamView | None:
        """As much of the stream as shows whether anything has expired."""
        high_watermark = await self._store.high_watermark(stream)
        if high_watermark is None:
            return None
        start = (await self._store.start(stream)).value
        return StreamView(high_watermark, start, await self._store.entries_above(stream, start, 1))

    async def _step(self, stream: int, before: int) -> int | None:
        """One step towards the goal; the start, once it is reached."""
        job = await self._store.job(stream)  # before the plan: a stale plan must not start
        if job.value.state is not JobState.DONE:
            await self.carry_on(stream, job)
            return None
        await self._store.barrier(stream)
        view = await self._store.view(stream)
        if view is None or view.high_watermark.value.closed:
            raise StreamClosed(f"stream {stream} is closed")
        live, dead = view.split()
        await self._sweep(stream, dead)
        end = view.high_watermark.value.end
        threshold = end if before == -1 else before
        if threshold > end or threshold < 0:
            raise OffsetOutOfRange(before, view.start, end)
        if threshold <= view.start:
            return view.start
        head = view.high_watermark.value.head
        if head is not None and threshold > head.start:
            # Jobs work below the head: file it, so that there is none.
            sealed = view.high_watermark.value.sealed()
            await self._store.write(stream, self._store.advance(stream, view.high_watermark, sealed))
            return None
        need = max([entry.value.end for entry in live if entry.value.end <= threshold], default=0)
        self._begun.setdefault(stream, view.start)
        await self._store.perform(stream, job, advance(stream, job.value, StartPlanned(threshold, need)))
        return None

    async def _sweep(self, stream: int, dead: list[Versioned[IndexEntry]]) -> None:
        await sweep(self._store, stream, dead)

    async def carry_on(self, stream: int, job: Versioned[Job]) -> None:
        """Take the next step of an unfinished job. Any process may have begun it."""
        match job.value.awaits:
            case Awaits.START if job.value.state is JobState.RETAIN:
                await self._retain(stream, job)
            case Awaits.START:
                await self._delete_below(stream, job)
            case Awaits.FILE:
                await self._store.perform(stream, job, advance(stream, job.value, Abandoned()))
            case Awaits.TABLE:
                if job.value.compacted.table:
                    raise WaitsForTable(
                        f"stream {stream}: its compaction waits for the table, try again later"
                    )
                await self._store.perform(stream, job, advance(stream, job.value, InTable()))
            case _:
                try:
                    await self._swap.step(stream, job)
                except SwapImpossible as error:
                    raise StreamClosed(f"stream {stream} is closed") from error

    async def finish(self, stream: int, job: Versioned[Job]) -> Versioned[Job]:
        """Carry a job on to its end, if nothing is in the way; the stream's job as it is then."""
        number = job.value.number
        for _ in range(_STEPS):
            if job.value.state is JobState.DONE or job.value.number != number:
                break
            try:
                await self.carry_on(stream, job)
            except Ambiguous:
                await self._store.barrier(stream)
            job = await self._store.job(stream)
        return job

    async def _retain(self, stream: int, job: Versioned[Job]) -> None:
        if not await advance_snapshot(self._store, stream, job.value.snapshot_end, self._expiry.now_ms()):
            return
        seen = StartSeen(await self._store.start(stream))
        await self._store.perform(stream, job, advance(stream, job.value, seen))

    async def _delete_below(self, stream: int, job: Versioned[Job]) -> None:
        limit = self._store.limits.operations // 2
        seen = EntriesSeen(await self._store.entries_above(stream, -1), limit)
        await self._store.perform(stream, job, advance(stream, job.value, seen))


async def sweep(store: StreamStore, stream: int, dead: list[Versioned[IndexEntry]]) -> None:
    """Remove index entries that a late write brought back after they were done with."""
    operations: list[Operation] = []
    for entry in dead[: store.limits.operations // 2]:
        operations += removal(stream, entry.value, entry.version)
    if operations:
        await store.write(stream, operations)


def expired_below(
    view: StreamView, now_ms: int, retention_ms: int, retention_bytes: int, *, whole: bool = True
) -> int:
    """The offset below which everything has expired: whole entries from the oldest on, up to the first that
    is young enough and needed for the size. Anything below 0 turns a rule off.

    The size of a stream is what was appended to it. But where records were compacted away by key, that would
    count them too, and what is left would expire for what is gone: then the size is that of the objects that
    are there. `whole`: the view has all of the stream; of a part, the size is at most what was appended."""
    value = view.high_watermark.value
    entries = [entry.value for entry in view.split()[0]]
    if value.head is not None:
        entries.append(value.head)
    threshold = view.start
    sizes = None
    if whole and any(entry.sparse for entry in entries):
        sizes = [entry.stored_bytes for entry in entries]
    for place, entry in enumerate(entries):
        newest_ms = entry.max_timestamp if entry.max_timestamp != NO_TIMESTAMP else entry.created_ms
        too_old = retention_ms >= 0 and newest_ms < now_ms - retention_ms
        left = value.cumulative_size - entry.cumulative_size
        if sizes is not None:
            left = sum(sizes[place + 1 :])
        too_much = 0 <= retention_bytes <= left
        if not (too_old or too_much):
            break
        threshold = max(threshold, entry.end)
    return threshold
