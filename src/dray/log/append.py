"""What the append pipeline carries: batches, chunks of them, and WAL objects in the making."""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import Final
from uuid import UUID

from dray.log.entries import BatchReference
from dray.log.types import AppendResult, LogError
from dray.records import Batch
from dray.runtime.lean_dataclasses import dataclass

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
    # Where each batch lies in the object. Known once the object is encoded.
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
