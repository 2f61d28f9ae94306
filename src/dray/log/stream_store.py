"""The keys of a stream, read and written: one method per step that the commit protocol names.

Nothing is decided here. The order of the reads is part of the protocol: the callers say why.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from dray.log.barriers import Barriers
from dray.log.cleaned import NOTHING_CLEANED, Cleaned
from dray.log.entries import HighWatermark, IndexEntry, decode_start
from dray.log.jobs import Job, JobStep, put_job
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
)
from dray.metadata.domains import domains_writer

__all__ = ["StreamStore", "StreamView", "Versioned"]


class StreamStore:
    def __init__(self, store: MetadataStore, domains: int, producer_expiry_ms: int) -> None:
        self._store = store
        self.domains = domains
        self.producer_expiry_ms = producer_expiry_ms
        self._barriers = Barriers(store)
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

    async def snapshot(self, stream: int) -> Versioned[ProducerSnapshot]:
        record = await self._store.get(self.domain(stream), keys.producers(stream))
        if record is None:
            return Versioned(ProducerSnapshot(0, ProducerStates(self.producer_expiry_ms)), 0)
        return Versioned(ProducerSnapshot.decode(record.value, self.producer_expiry_ms), record.version)

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
        self, stream: int, offset: int, limit: int | None = None
    ) -> list[Versioned[IndexEntry]]:
        """Entries that end above `offset`, by their end: the first holds `offset`, unless the head does."""
        records = await self._store.scan(
            self.domain(stream),
            keys.index_from(stream, offset + 1),
            keys.prefix_end(keys.offset_index(stream)),
            limit,
        )
        return [Versioned(IndexEntry.decode(record.value), record.version) for record in records]

    async def view(self, stream: int) -> StreamView | None:
        """Everything about a stream in one snapshot. Entries are compared with the head, so they must be read
        together: an entry that was filed between two reads would look covered by the head it once was."""
        prefix = keys.stream(stream)
        records = await self._store.scan(self.domain(stream), prefix, keys.prefix_end(prefix))
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
        return StreamView(high_watermark, start, entries, cleaned)

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
    def put_snapshot(stream: int, snapshot: ProducerSnapshot, version: int) -> Put:
        return Put(keys.producers(stream), snapshot.encode(), version or ABSENT)

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

    def split(self) -> tuple[list[Versioned[IndexEntry]], list[Versioned[IndexEntry]]]:
        """The filed entries that count, and those that do not: covered by a later one, or wholly below the
        start. A late write can bring a deleted entry back, but only one whose records are covered or below
        the start.

        An entry that reaches below the start counts as covered when its part above the start is: the file
        that replaced it begins at the start."""
        value = self.high_watermark.value
        covered_from = value.head.start if value.head is not None else value.end
        live: list[Versioned[IndexEntry]] = []
        dead: list[Versioned[IndexEntry]] = []
        for entry in reversed(self.entries):
            if entry.value.end > self.start and max(entry.value.start, self.start) < covered_from:
                live.append(entry)
                covered_from = entry.value.start
            else:
                dead.append(entry)
        live.reverse()
        return live, dead

    def holds(self, wal_id: UUID) -> bool:
        """Is the object the head, or one of the live entries?"""
        head = self.high_watermark.value.head
        if head is not None and head.object_id == wal_id:
            return True
        return any(entry.value.object_id == wal_id for entry in self.split()[0])
