"""The keys of a stream, read and written: one method per step that the commit protocol names.

Nothing is decided here. The order of the reads is part of the protocol: the callers say why.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from dray.base.runtime import in_turns
from dray.log.entries import HighWatermark, IndexEntry, decode_start
from dray.log.jobs.cleaned import NOTHING_CLEANED, Cleaned
from dray.log.jobs.machine import Job, JobStep, put_job
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.log.types import Versioned
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Change,
    Limits,
    MetadataStore,
    Operation,
    Outcome,
    Put,
    StoredValue,
    domains_writer,
)

__all__ = ["ANY_END", "StreamStore", "StreamView", "Versioned", "split"]


ANY_END: Final = 1 << 63
"""Above every offset: for a part of the index, which the head does not cover."""


class StreamStore:
    def __init__(self, store: MetadataStore, domains: int, producer_expiry_ms: int) -> None:
        self._store = store
        self.domains = domains
        self.producer_expiry_ms = producer_expiry_ms
        self._barriers = Barriers(store.barrier)
        self.write_domains = domains_writer(store)

    def domain(self, stream: int) -> int:
        return keys.domain_of_stream(stream, self.domains)

    @property
    def limits(self) -> Limits:
        """The limits of one write."""
        return self._store.limits

    async def write(self, stream: int, operations: Sequence[Operation]) -> list[Outcome]:
        return await self._store.write(self.domain(stream), operations)

    async def barrier(self, stream: int) -> None:
        await self._barriers.wait(self.domain(stream))

    # --- over all streams of a domain

    async def write_in(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        return await self._store.write(domain, operations)

    async def barrier_in(self, domain: int) -> None:
        await self._store.barrier(domain)

    async def get_in(self, domain: int, key: str) -> StoredValue | None:
        return await self._store.get(domain, key)

    async def scan_in(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        return await self._store.scan(domain, start, end, limit)

    async def pages_in(self, domain: int, prefix: str, size: int) -> AsyncIterator[list[StoredValue]]:
        """All keys with a prefix, so many at a time, until one page is not full."""
        start, end = prefix, keys.prefix_end(prefix)
        while page := await self._store.scan(domain, start, end, size):
            yield page
            if len(page) < size:
                return
            start = page[-1].key + "\0"

    def watch_in(self, domain: int) -> AsyncIterator[Change]:
        return self._store.watch(domain)

    # --- reading

    async def high_watermark(self, stream: int) -> Versioned[HighWatermark] | None:
        record = await self._store.get(self.domain(stream), keys.high_watermark(stream))
        return None if record is None else Versioned(HighWatermark.decode(record.value), record.version)

    async def start(self, stream: int) -> Versioned[int]:
        record = await self._store.get(self.domain(stream), keys.start(stream))
        if record is None:
            return Versioned(0, 0)
        return Versioned(decode_start(record.value), record.version)

    async def snapshot_upto(self, stream: int) -> Versioned[int]:
        """How far the producer snapshot reaches."""
        record = await self._store.get(self.domain(stream), keys.producers(stream))
        if record is None:
            return Versioned(0, 0)
        return Versioned(ProducerSnapshot.upto_of(record.value), record.version)

    async def snapshot(self, stream: int) -> Versioned[ProducerSnapshot]:
        found = await self.snapshot_below(stream, ANY_END)
        assert found is not None
        return found

    async def snapshot_below(self, stream: int, need: int) -> Versioned[ProducerSnapshot] | None:
        """None where it reaches `need` already: its producers are not decoded then, since they may be
        many."""
        record = await self._store.get(self.domain(stream), keys.producers(stream))
        if (0 if record is None else ProducerSnapshot.upto_of(record.value)) >= need:
            return None
        if record is None:
            return Versioned(ProducerSnapshot(0, ProducerStates(self.producer_expiry_ms)), 0)
        decoding = ProducerSnapshot.decoding(record.value, self.producer_expiry_ms)
        return Versioned(await in_turns(decoding), record.version)

    async def cleaned(self, stream: int) -> Versioned[Cleaned]:
        record = await self._store.get(self.domain(stream), keys.cleaned(stream))
        if record is None:
            return Versioned(NOTHING_CLEANED, 0)
        return Versioned(Cleaned.decode(record.value), record.version)

    async def entry(self, stream: int, end: int, cumulative_size: int) -> Versioned[IndexEntry] | None:
        """The entry at exactly that key."""
        record = await self._store.get(self.domain(stream), keys.index_entry(stream, end, cumulative_size))
        return None if record is None else Versioned(IndexEntry.decode(record.value), record.version)

    async def entries_above(
        self, stream: int, offset: int, limit: int | None = None, *, upto: int | None = None
    ) -> list[Versioned[IndexEntry]]:
        """Entries that end above `offset`, and not above `upto`, by their end: the first holds `offset`,
        unless the head does."""
        every = keys.prefix_end(keys.offset_index(stream))
        until = every if upto is None else keys.index_from(stream, upto + 1)
        first = keys.index_from(stream, offset + 1)
        records = await self._store.scan(self.domain(stream), first, until, limit)
        return [Versioned(IndexEntry.decode(record.value), record.version) for record in records]

    async def last_end(self, stream: int, upto: int) -> int:
        """The end of the last filed entry that does not end above `upto`; 0 if there is none. One that is
        dead counts too: whatever covers it has moved the producer snapshot past it."""
        record = await self._store.floor(
            self.domain(stream), keys.index_from(stream, upto + 1), keys.offset_index(stream)
        )
        return 0 if record is None else IndexEntry.decode(record.value).end

    async def view(self, stream: int) -> StreamView | None:
        """Everything about a stream in one snapshot. Entries are compared with the head, so they must be read
        together: an entry that was filed between two reads would look covered by the head it once was."""
        return StreamView.of(stream, await self.records(stream))

    async def records(self, stream: int) -> list[StoredValue]:
        """All keys of a stream, in one snapshot: what a view is made of."""
        prefix = keys.stream(stream)
        return await self._store.scan(self.domain(stream), prefix, keys.prefix_end(prefix))

    # --- the job

    async def job(self, stream: int) -> Versioned[Job]:
        record = await self._store.get(self.domain(stream), keys.job(stream))
        return Versioned(Job(), 0) if record is None else Versioned(Job.decode(record.value), record.version)

    async def job_version(self, stream: int) -> int:
        """The version of the stream's job, 0 if there is none. The job's value need not be readable."""
        record = await self._store.get(self.domain(stream), keys.job(stream))
        return 0 if record is None else record.version

    async def perform(self, stream: int, job: Versioned[Job], step: JobStep) -> Versioned[Job] | None:
        """Take one step of a job. Gives back the job if this moved it, and None if the caller must read it
        again. Raises if a reply is unclear."""
        if step.write:
            await self.write(stream, step.write)
        return None if step.following is None else await self.move_job(stream, job, step.following)

    async def move_job(self, stream: int, job: Versioned[Job], to: Job) -> Versioned[Job] | None:
        """One compare-and-set on the job key. None if another process was first; raises if that is
        unclear."""
        [outcome] = await self.write(stream, [put_job(stream, to, job.version)])
        return Versioned(to, outcome.version) if outcome.applied else None

    # --- operations

    @staticmethod
    def put_snapshot(stream: int, snapshot: ProducerSnapshot | bytes, version: int) -> Put:
        """`snapshot`: encoded already where it may be large."""
        value = snapshot if isinstance(snapshot, bytes) else snapshot.encode()
        return Put(keys.producers(stream), value, version or ABSENT)

    @staticmethod
    def put_cleaned(stream: int, cleaned: Cleaned, version: int) -> Put:
        return Put(keys.cleaned(stream), cleaned.encode(), version or ABSENT)

    @staticmethod
    def advance(stream: int, previous: Versioned[HighWatermark], following: HighWatermark) -> list[Put]:
        """Move the high watermark, and file the previous head if that was not done yet."""
        moved = Put(keys.high_watermark(stream), following.encode(), previous.version)
        return [moved, *StreamStore.filing(stream, previous.value)]

    @staticmethod
    def filing(stream: int, value: HighWatermark) -> list[Put]:
        """File the head. Whatever moves the version must have no head then: an append that loses its
        compare-and-set files the head that it knew, and a head that is filed as well is swept, with the
        reference that it needs."""
        if (head := value.head) is None:
            return []
        return [Put(keys.index_entry(stream, head.end, head.cumulative_size), head.encode(), ABSENT)]


@dataclass(frozen=True, slots=True)
class StreamView:
    """One snapshot of a stream."""

    high_watermark: Versioned[HighWatermark]
    start: int
    entries: list[Versioned[IndexEntry]]  # as filed, by their end
    cleaned: Cleaned = NOTHING_CLEANED

    @classmethod
    def of(cls, stream: int, records: Sequence[StoredValue]) -> StreamView | None:
        high_watermark: Versioned[HighWatermark] | None = None
        start = 0
        cleaned = NOTHING_CLEANED
        entries: list[Versioned[IndexEntry]] = []
        for record in records:
            if record.key.startswith(keys.offset_index(stream)):
                entries.append(Versioned(IndexEntry.decode(record.value), record.version))
            elif record.key == keys.high_watermark(stream):
                high_watermark = Versioned(HighWatermark.decode(record.value), record.version)
            elif record.key == keys.start(stream):
                start = decode_start(record.value)
            elif record.key == keys.cleaned(stream):
                cleaned = Cleaned.decode(record.value)
        if high_watermark is None:
            return None
        return cls(high_watermark, start, entries, cleaned)

    def split(self) -> tuple[list[Versioned[IndexEntry]], list[Versioned[IndexEntry]]]:
        """The filed entries that count, and those that do not: covered by a later one, or wholly below the
        start. A late write can bring a deleted entry back, but only one whose records are covered or below
        the start.

        An entry that reaches below the start counts as covered when its part above the start is: the file
        that replaced it begins at the start."""
        return split(self.entries, self.start, self.high_watermark.value.filed_end)

    def holds(self, wal_id: UUID) -> bool:
        """Is the object the head, or one of the live entries?"""
        head = self.high_watermark.value.head
        if head is not None and head.object_id == wal_id:
            return True
        return any(entry.value.object_id == wal_id for entry in self.split()[0])


Entries: TypeAlias = list[Versioned[IndexEntry]]


def split(entries: Sequence[Versioned[IndexEntry]], start: int, filed_end: int) -> tuple[Entries, Entries]:
    """Entries that were read together, by their end: those that count, and those that do not (`StreamView`).
    Of a part of the index, what lies beyond it may cover more."""
    covered_from = filed_end
    live: Entries = []
    dead: Entries = []
    for entry in reversed(entries):
        if entry.value.end > start and max(entry.value.start, start) < covered_from:
            live.append(entry)
            covered_from = entry.value.start
        else:
            dead.append(entry)
    live.reverse()
    return live, dead


class Barriers:
    """One barrier per domain at a time, or one mark: it serves every caller that asked before it was sent."""

    def __init__(self, send: Callable[[int], Awaitable[None]]) -> None:
        self._send_to = send
        self._running: dict[int, asyncio.Task[None]] = {}
        self._next: dict[int, asyncio.Task[None]] = {}

    async def wait(self, domain: int) -> None:
        """Reads that start after this returns see every write acknowledged before it was called. A barrier
        that is already on its way may have been sent before such a write: then this call waits for the next
        one."""
        following = self._next.get(domain)
        if following is None:
            running = self._running.get(domain)
            loop = asyncio.get_running_loop()
            following = loop.create_task(self._send(domain, running))
            following.add_done_callback(_take_exception)
            self._next[domain] = following
        await asyncio.shield(following)

    async def _send(self, domain: int, running: asyncio.Task[None] | None) -> None:
        if running is not None:
            await asyncio.wait([running])
        this = self._next.pop(domain)
        self._running[domain] = this
        try:
            await self._send_to(domain)
        finally:
            if self._running.get(domain) is this:
                del self._running[domain]


def _take_exception(barrier: asyncio.Task[None]) -> None:
    """Callers that wait get the barrier's error. If all of them went away, asyncio would report an error that
    was never retrieved: so it is retrieved here."""
    if not barrier.cancelled():
        barrier.exception()
