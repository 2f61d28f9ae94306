"""The things that the append pipeline hands on: batches, chunks of them, WAL objects in the making, and which
batches of a chunk may be appended.
"""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import Final
from uuid import UUID

from dray.base.runtime.lean_dataclasses import dataclass
from dray.kafka.records import Batch
from dray.log.entries import NO_TIMESTAMP, BatchReference
from dray.log.producer_state import RememberedBatch
from dray.log.types import AppendResult, LogError

ANY_DOMAIN: Final = -1
"""Of a carried append: it may hold streams of several domains, and has nothing in any of them but their
commits."""


class PendingBatch:
    """One batch on its way into the log, and the future that gets its offset."""

    __slots__ = ("answered", "append_time_ms", "batch", "future", "view")

    def __init__(
        self, batch: Batch, view: memoryview, append_time_ms: int, future: asyncio.Future[AppendResult]
    ) -> None:
        self.batch = batch
        self.view = view  # of this batch alone
        self.append_time_ms = append_time_ms
        self.future = future
        self.answered = False  # a client that went away cancels the future, not the append

    def acknowledge(self, appended: AppendResult) -> None:
        self.answered = True
        if not self.future.done():
            self.future.set_result(appended)

    def refuse(self, error: LogError) -> None:
        self.answered = True
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True)
class PendingChunk:
    """The batches of one stream in one object, in the order in which they came."""

    stream: int
    pending: list[PendingBatch] = field(default_factory=list)
    # The place of each batch in the object. Known once the object is encoded.
    references: list[BatchReference] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class OpenObject:
    """Batches gathered for the next WAL object, or the next carried write, of a domain."""

    chunks: dict[int, PendingChunk] = field(default_factory=dict)
    size: int = 0
    batch_count: int = 0

    def add(self, stream: int, pending: PendingBatch) -> None:
        chunk = self.chunks.get(stream)
        if chunk is None:
            chunk = self.chunks[stream] = PendingChunk(stream)
        chunk.pending.append(pending)
        self.size += pending.batch.length
        self.batch_count += 1


@dataclass(frozen=True, slots=True)
class StagedObject:
    """An object whose references are in the store, at the version of its staging mark."""

    wal_id: UUID
    path: str
    domain: int
    created_ms: int
    staging_version: int
    chunks: dict[int, PendingChunk]

    @property
    def is_carried(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class CarriedAppend(StagedObject):
    """An append without an object: its batches go into its entries. Nothing is staged, so there is nothing to
    settle, whatever comes of it."""

    @property
    def is_carried(self) -> bool:
        return True

    @classmethod
    def of(cls, opened: OpenObject, append_id: UUID, created_ms: int) -> CarriedAppend:
        for chunk in opened.chunks.values():
            chunk.references = [reference_of(pending, 0) for pending in chunk.pending]
        return cls(append_id, "", ANY_DOMAIN, created_ms, 0, opened.chunks)


def reference_of(pending: PendingBatch, position: int) -> BatchReference:
    batch = pending.batch
    return BatchReference(
        position,
        batch.length,
        batch.record_count,
        batch.attributes,
        batch.min_timestamp,
        batch.max_timestamp,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
    )


@dataclass(slots=True)
class AdmissionResult:
    """A chunk held against a stream's state, batch by batch."""

    references: list[BatchReference] = field(default_factory=list)
    selected: list[tuple[int, PendingBatch]] = field(default_factory=list)  # with their base offsets
    end: int = 0  # one past the last offset selected
    size: int = 0
    min_timestamp: int = 0
    max_timestamp: int = NO_TIMESTAMP
    running_max_timestamp: int = NO_TIMESTAMP
    running_max_offset: int = -1
    duplicates: list[tuple[RememberedBatch, PendingBatch]] = field(default_factory=list)
    refused: list[tuple[LogError, PendingBatch]] = field(default_factory=list)

    def take(self, offset: int, pending: PendingBatch, reference: BatchReference) -> None:
        minimum, maximum = reference.min_timestamp, reference.max_timestamp
        if not self.selected:
            self.min_timestamp, self.max_timestamp = minimum, maximum
        else:
            self.min_timestamp = min(self.min_timestamp, minimum)
            self.max_timestamp = max(self.max_timestamp, maximum)
        if maximum > self.running_max_timestamp:
            self.running_max_timestamp = maximum
            self.running_max_offset = offset + pending.batch.max_timestamp_delta
        self.selected.append((offset, pending))
        self.references.append(reference)
        self.size += reference.length
        self.end = offset + reference.record_count
