"""Raising a stream's start: DeleteRecords, and retention by age and size.

A job of `jobs/machine.py`, performed here: RETAIN, then the producer snapshot past what goes, then the start
by compare-and-set and *seen* there (the commit point: readers go by it), then RAISED, then one write that
deletes the entries below it together with their references, then DONE. It is never abandoned. What it costs
goes by what is deleted: the index is read from its oldest end, a page at a time.

A compaction that is in the way is carried on as far as the log alone can. One that is only CREATED is
abandoned; one that is written waits for its table; in later states only the index is left to change, which is
done here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from dray.base.runtime import ExpiryClock, Runtime, UndoubtedClock
from dray.log.entries import NO_TIMESTAMP, HighWatermark, IndexEntry
from dray.log.jobs.machine import (
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
from dray.log.jobs.swap import Swap
from dray.log.origins import SourceOwnsLog
from dray.log.settings import LogSettings
from dray.log.stream_state import advance_snapshot
from dray.log.stream_store import ANY_END, StreamStore, Versioned, split
from dray.log.types import LogUnavailable, OffsetOutOfRange, StreamClosed
from dray.metadata.contract import Ambiguous, MetadataError, Operation

_log = structlog.get_logger(__name__)

_STEPS = 64
_PAGE: Final = 512  # entries of the index: some milliseconds, and at most a few MiB

Raised = Callable[[int], Awaitable[None]]  # updates the caches of the process that raises the start
DeletionCallback = Callable[[str, int], None]
"""Called with why records were deleted (`retention` or `delete_records`), and how many."""


class WaitsForTable(LogUnavailable):
    """A compaction of the stream is written and not yet in its table: only a compactor can go on."""


class RetentionMemory:
    """By stream, what its oldest entry said: so that a stream in which nothing changed is not asked again. It
    is told what moves, by a watch: what it learns from a read holds unless that stream moved since the read
    began."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int] | None] = {}  # when it was newest, and the bytes behind it
        self._asked: set[int] = set()

    def may_expire(self, stream: int, retention_ms: int, retention_bytes: int, now_ms: int | None) -> bool:
        """May anything have expired? Retention itself decides, by its own read."""
        if stream not in self._known or now_ms is None:
            return True
        if (oldest := self._known[stream]) is None:
            return False
        too_old = 0 <= retention_ms < now_ms - oldest[0]
        return too_old or 0 <= retention_bytes <= oldest[1]

    def asking(self, stream: int) -> None:
        self._known.pop(stream, None)
        self._asked.add(stream)

    def learn(self, stream: int, oldest: IndexEntry | None, appended: int) -> None:
        if stream in self._asked:
            self._asked.discard(stream)
            self._known[stream] = (
                None if oldest is None else (newest_ms(oldest), appended - oldest.cumulative_size)
            )

    def moved(self, stream: int) -> None:
        self._known.pop(stream, None)
        self._asked.discard(stream)

    def keep_only(self, is_kept: Callable[[int], bool]) -> None:
        self._known = {stream: known for stream, known in self._known.items() if is_kept(stream)}
        self._asked = {stream for stream in self._asked if is_kept(stream)}


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
        memory: RetentionMemory | None = None,
    ) -> None:
        self._memory = memory or RetentionMemory()
        self._on_raised = on_raised
        self._store = store
        self._runtime = runtime
        self._settings = settings
        self._on_deleted = on_deleted
        self._begun: dict[int, int] = {}  # by stream: the start from which this process began to raise it
        self._expiry = expiry or UndoubtedClock(runtime)
        self._swap = Swap(store, runtime, self._expiry)
        self._created_since: dict[int, tuple[int, float]] = {}  # jobs seen CREATED: their version, and when

    async def raise_start(
        self, stream: int, before: int, *, only_ours: bool = False, deletes: bool = True
    ) -> int:
        """Drop the records below `before` (-1: all there are); the stream's start afterwards. With
        `only_ours`, raises `SourceOwnsLog` where a source owns the stream: its start is the source's. Without
        `deletes`, the caller has `delete_behind` run: nobody need wait for that."""
        start = await self._raise(stream, before, "delete_records", only_ours)
        if deletes:
            await self.delete_behind(stream)
        return start

    async def delete_behind(self, stream: int) -> None:
        """Delete what lies below a start that was raised. Where it fails, the next retention does it."""
        try:
            job = await self._store.job(stream)
            if job.value.state is JobState.RAISED:
                await self.finish(stream, job)
        except MetadataError as error:
            _log.debug("what is below the start is deleted later", stream=stream, error=str(error))

    async def _raise(self, stream: int, before: int, why: str, only_ours: bool = False) -> int:
        try:
            start = await self._raise_start(stream, before, only_ours)
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

    async def _raise_start(self, stream: int, before: int, only_ours: bool) -> int:
        for _ in range(_STEPS):
            try:
                start = await self._step(stream, before, only_ours)
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
            threshold = await self._expired_below(stream, retention_ms, retention_bytes)
        except MetadataError as error:
            raise LogUnavailable(f"the metadata store did not answer: {error}") from error
        if threshold is None:
            return False
        await self._raise(stream, threshold, "retention")
        if self._on_raised is not None:
            await self._on_raised(stream)
        await self.delete_behind(stream)
        return True

    async def _expired_below(self, stream: int, retention_ms: int, retention_bytes: int) -> int | None:
        """The new start, or None if nothing has expired. As a rule, the oldest entry shows that."""
        self._memory.asking(stream)
        high_watermark = await self._store.high_watermark(stream)
        if high_watermark is None or high_watermark.value.closed:
            return None
        value, start = high_watermark.value, (await self._store.start(stream)).value
        oldest = await self._store.entries_above(stream, -1, 1)
        if oldest and oldest[0].value.end <= start:
            await self._clear_below(stream, start)
            oldest = await self._store.entries_above(stream, start, 1)
        now_ms = self._expiry.now_ms()
        if now_ms is None:
            now_ms, retention_ms = 0, -1  # while the clock is doubted, only size counts
        rule = Expiring(now_ms, retention_ms, retention_bytes, value.cumulative_size)
        first = oldest[0].value if oldest else value.head
        if first is None or not rule.takes(first):
            self._memory.learn(stream, first, value.cumulative_size)
            return None
        if await self._being_compacted(stream):
            return None  # its file comes first, or else a busy stream would never get one
        rule.stored = await self._stored_bytes(stream, start, value) if retention_bytes >= 0 else None
        threshold = start
        async for page in self._pages(stream, start, value.filed_end):
            for entry in page:
                if not rule.takes(entry):
                    return threshold if threshold > start else None
                threshold = max(threshold, entry.end)
        if value.head is not None and rule.takes(value.head):
            threshold = max(threshold, value.head.end)
        return threshold if threshold > start else None

    async def _stored_bytes(self, stream: int, start: int, value: HighWatermark) -> int | None:
        """The bytes that are there, where records were removed by key. They are removed from the oldest on:
        where neither the oldest entries say so nor a round is known, not all entries are asked."""
        oldest = await self._store.entries_above(stream, start, _PAGE)
        is_cleaned = (await self._store.cleaned(stream)).version > 0
        if not is_cleaned and not any(entry.value.sparse for entry in oldest):
            return None
        stored, is_sparse = 0 if value.head is None else value.head.stored_bytes, False
        async for page in self._pages(stream, start, value.filed_end):
            stored += sum([entry.stored_bytes for entry in page])
            is_sparse = is_sparse or any(entry.sparse for entry in page)
        return stored if is_sparse else None

    async def _pages(self, stream: int, start: int, filed_end: int) -> AsyncIterator[list[IndexEntry]]:
        """The entries that count above the start and below the head, the oldest first."""
        above = start
        while page := await self._store.entries_above(stream, above, _PAGE):
            yield [entry.value for entry in split(page, start, filed_end)[0]]
            if len(page) < _PAGE:
                return
            above = page[-1].value.end

    async def _clear_below(self, stream: int, start: int) -> None:
        """A job was left after it had raised the start, or late writes brought entries back."""
        job = await self._store.job(stream)
        if job.value.state is JobState.RAISED:
            await self.finish(stream, job)
        elif job.value.state is JobState.DONE:
            await self._sweep_oldest(stream, start)

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

    async def _step(self, stream: int, before: int, only_ours: bool) -> int | None:
        """One step towards the goal; the start, once it is reached."""
        job = await self._store.job(stream)  # before the plan: a stale plan must not start
        if job.value.state not in (JobState.DONE, JobState.RAISED):
            await self.carry_on(stream, job)
            return None
        await self._store.barrier(stream)
        high_watermark = await self._store.high_watermark(stream)
        if high_watermark is None or high_watermark.value.closed:
            raise StreamClosed(f"stream {stream} is closed")
        value = high_watermark.value
        if only_ours and value.is_classic:
            raise SourceOwnsLog(f"stream {stream}: records of its source are deleted there, not here")
        start = (await self._store.start(stream)).value
        threshold = value.end if before == -1 else before
        if threshold > value.end or threshold < 0:
            raise OffsetOutOfRange(before, start, value.end)
        if job.value.state is JobState.RAISED and (
            threshold <= start or (before == -1 and stream in self._begun)
        ):
            return start  # seen: what lies below is deleted behind the answer
        if job.value.state is JobState.RAISED:
            await self.carry_on(stream, job)
            return None
        await self._sweep_oldest(stream, start)
        if threshold <= start:
            return start
        if value.head is not None and threshold > value.head.start:
            # Jobs work below the head: file it, so that there is none.
            await self._store.write(stream, self._store.advance(stream, high_watermark, value.sealed()))
            return None
        need = await self._store.last_end(stream, threshold)
        self._begun.setdefault(stream, start)
        await self._store.perform(stream, job, advance(stream, job.value, StartPlanned(threshold, need)))
        return None

    async def _sweep_oldest(self, stream: int, start: int) -> None:
        """Entries that a late write brought back after they were done with, among the oldest: those below the
        start, and those that a later one of the same read covers."""
        page = await self._store.entries_above(stream, -1, _PAGE)
        await self._sweep(stream, split(page, start, ANY_END)[1])

    async def _sweep(self, stream: int, dead: list[Versioned[IndexEntry]]) -> None:
        await sweep(self._store, stream, dead)

    async def carry_on(self, stream: int, job: Versioned[Job]) -> Versioned[Job] | None:
        """Take the next step of an unfinished job. Any process may have begun it. The job as it is then, or
        None: it has to be read."""
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
                    return await self._swap.step(stream, job)
                except SwapImpossible as error:
                    raise StreamClosed(f"stream {stream} is closed") from error
        return None

    async def finish(self, stream: int, job: Versioned[Job]) -> Versioned[Job]:
        """Carry a job on to its end, if nothing is in the way; the stream's job as it is then."""
        number = job.value.number
        for _ in range(_STEPS):
            if job.value.state is JobState.DONE or job.value.number != number:
                break
            moved: Versioned[Job] | None = None
            try:
                moved = await self.carry_on(stream, job)
            except Ambiguous:
                await self._store.barrier(stream)
            job = moved or await self._store.job(stream)
        return job

    async def _retain(self, stream: int, job: Versioned[Job]) -> None:
        if not await advance_snapshot(self._store, stream, job.value.snapshot_end, self._expiry.now_ms()):
            return
        seen = StartSeen(await self._store.start(stream))
        await self._store.perform(stream, job, advance(stream, job.value, seen))

    async def _delete_below(self, stream: int, job: Versioned[Job]) -> None:
        """As many writes as it takes. Each deletes what was read before it, so this ends."""
        limit = min(self._store.limits.operations // 2, _PAGE)
        while True:
            oldest = await self._store.entries_above(stream, -1, limit, upto=job.value.threshold)
            step = advance(stream, job.value, EntriesSeen(oldest, limit))
            await self._store.perform(stream, job, step)
            if step.following is not None:
                return
            await self._store.barrier(stream)  # or what a stale read shows would be deleted again


async def sweep(store: StreamStore, stream: int, dead: list[Versioned[IndexEntry]]) -> None:
    """Remove index entries that a late write brought back after they were done with."""
    operations: list[Operation] = []
    for entry in dead[: store.limits.operations // 2]:
        operations += removal(stream, entry.value, entry.version)
    if operations:
        await store.write(stream, operations)


@dataclass(slots=True)
class Expiring:
    """The rule of one stream, which is asked for its entries from the oldest on: one expires that is old, or
    not needed for the size. -1 turns a part of it off.

    The size of a stream is what was appended to it. But where records were removed by key, that would count
    them too, and what is left would expire for what is gone: then the size is that of what is there."""

    now_ms: int
    retention_ms: int
    retention_bytes: int
    appended: int
    stored: int | None = None  # the bytes of the entries that were not asked for yet

    def takes(self, entry: IndexEntry) -> bool:
        left = self.appended - entry.cumulative_size
        if self.stored is not None:
            self.stored -= entry.stored_bytes
            left = self.stored
        too_old = 0 <= self.retention_ms < self.now_ms - newest_ms(entry)
        return too_old or 0 <= self.retention_bytes <= left


def newest_ms(entry: IndexEntry) -> int:
    """Records without a time are as old as their entry."""
    return entry.max_timestamp if entry.max_timestamp != NO_TIMESTAMP else entry.created_ms
