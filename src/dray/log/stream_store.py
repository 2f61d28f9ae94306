"""The keys of a stream, read and written: one method per step that the commit protocol names.

Nothing is decided here. The order of the reads is part of the protocol: whoever calls says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, Generic, TypeVar

from dray.log.barriers import Barriers
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.metadata import keys
from dray.metadata.contract import ABSENT, MetadataStore, Operation, Outcome, Put
from dray.metadata.values import unseal

FORMAT: Final = 1

_START = Struct(">Bq")
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Versioned(Generic[_Value]):
    value: _Value
    version: int  # 0 for a key that is not there


class StreamStore:
    def __init__(self, store: MetadataStore, domains: int, producer_expiry_ms: int) -> None:
        self.store = store
        self.domains = domains
        self.producer_expiry_ms = producer_expiry_ms
        self._barriers = Barriers(store)

    def domain(self, stream: int) -> int:
        return keys.domain_of_stream(stream, self.domains)

    async def write(self, stream: int, operations: Sequence[Operation]) -> list[Outcome]:
        return await self.store.write(self.domain(stream), operations)

    async def barrier(self, stream: int) -> None:
        await self._barriers.wait(self.domain(stream))

    # --- reading

    async def high_watermark(self, stream: int) -> Versioned[HighWatermark] | None:
        record = await self.store.get(self.domain(stream), keys.high_watermark(stream))
        return None if record is None else Versioned(HighWatermark.decode(record.value), record.version)

    async def start(self, stream: int) -> Versioned[int]:
        record = await self.store.get(self.domain(stream), keys.start(stream))
        if record is None:
            return Versioned(0, 0)
        unseal("a stream's start", record.value, FORMAT)
        return Versioned(_START.unpack(record.value)[1], record.version)

    async def snapshot(self, stream: int) -> Versioned[ProducerSnapshot]:
        record = await self.store.get(self.domain(stream), keys.producers(stream))
        if record is None:
            return Versioned(ProducerSnapshot(0, ProducerStates(self.producer_expiry_ms)), 0)
        return Versioned(ProducerSnapshot.decode(record.value, self.producer_expiry_ms), record.version)

    async def entry(self, stream: int, end: int, cumulative_size: int) -> Versioned[IndexEntry] | None:
        """The entry at exactly that key."""
        record = await self.store.get(self.domain(stream), keys.index_entry(stream, end, cumulative_size))
        return None if record is None else Versioned(IndexEntry.decode(record.value), record.version)

    async def entries_above(
        self, stream: int, offset: int, limit: int | None = None
    ) -> list[Versioned[IndexEntry]]:
        """Entries that end above `offset`, by their end: the first holds `offset`, unless the head does."""
        records = await self.store.scan(
            self.domain(stream),
            keys.index_from(stream, offset + 1),
            keys.prefix_end(keys.offset_index(stream)),
            limit,
        )
        return [Versioned(IndexEntry.decode(record.value), record.version) for record in records]

    async def entries(self, stream: int) -> list[Versioned[IndexEntry]]:
        return await self.entries_above(stream, -1)

    # --- operations

    @staticmethod
    def put_start(stream: int, offset: int, version: int) -> Put:
        return Put(keys.start(stream), _START.pack(FORMAT, offset), version or ABSENT)

    @staticmethod
    def put_snapshot(stream: int, snapshot: ProducerSnapshot, version: int) -> Put:
        return Put(keys.producers(stream), snapshot.encode(), version or ABSENT)

    @staticmethod
    def advance(stream: int, previous: Versioned[HighWatermark], following: HighWatermark) -> list[Put]:
        """Move the high watermark, and file the previous head where nobody has yet."""
        operations = [Put(keys.high_watermark(stream), following.encode(), previous.version)]
        if (head := previous.value.head) is not None:
            operations.append(
                Put(keys.index_entry(stream, head.end, head.cumulative_size), head.encode(), ABSENT)
            )
        return operations


def live_entries(
    high_watermark: HighWatermark, start: int, entries: Sequence[Versioned[IndexEntry]]
) -> list[Versioned[IndexEntry]]:
    """The filed entries that count: neither covered by a later one nor wholly below the start.

    A late write can bring an entry back to the index, but only one that a newer entry covers or
    that ends below the start: those are nobody's data.
    """
    covered_from = high_watermark.head.start if high_watermark.head is not None else high_watermark.end
    live: list[Versioned[IndexEntry]] = []
    for entry in reversed(entries):
        if entry.value.end <= start:
            break
        if entry.value.start < covered_from:
            live.append(entry)
            covered_from = entry.value.start
    live.reverse()
    return live
