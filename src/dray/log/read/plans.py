"""The plan of a read, made before a byte is read: from memory, from WAL objects, from files, or from objects
that the log did not write.

There are five kinds of plans, since a read is from one kind of place. Sizes are known from the index. For
compacted files and outside objects they are guessed, and the read itself keeps to its limit.

- `ready`: the batches, if they are in memory. A read that is needed is begun here, before anything waits for
  one of them.
- `is_coming`: will what was not ready be so when it is asked for again?
- `read`: the batches, waited for. Raises `LogError`.
- `read_ahead`: a consumer that took so many bytes will take about as many again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from dray.kafka.records import LEADER_EPOCH, filler
from dray.log.entries import IndexEntry
from dray.log.outside_entries import OutsideEntries
from dray.log.read.parquet_reader import ParquetReader
from dray.log.read.segments import EntryLayout, SegmentReader
from dray.log.read.tail_cache import TailBatch
from dray.log.types import Bounds, LogError, ReadRequest
from dray.objects.contract import ObjectMissing

Views: TypeAlias = list[memoryview]


class PlanSource(Protocol):
    """The parts of the reader that its plans need."""

    @property
    def segments(self) -> SegmentReader: ...

    @property
    def parquet(self) -> ParquetReader: ...

    @property
    def outside(self) -> OutsideEntries: ...

    def read_ahead_from(self, stream: int, offset: int, size: int) -> None:
        """Read the next `size` bytes into memory, as far as their entries are known."""

    async def read_elsewhere(self, request: ReadRequest, gone: IndexEntry) -> Views:
        """The batches from where the index says now, since the object of an entry is gone."""


@dataclass(slots=True)
class EmptyPlan:
    """Nothing: the end of the stream, or no room for more."""

    request: ReadRequest
    bounds: Bounds
    size: int = 0

    @property
    def most(self) -> int:
        return 0

    def ready(self) -> Views | None:
        return []

    def is_coming(self) -> bool:
        return False

    async def read(self) -> Views:
        return []

    def read_ahead(self) -> None:
        pass


@dataclass(slots=True)
class TailPlan:
    request: ReadRequest
    bounds: Bounds
    size: int
    batches: list[TailBatch]

    @property
    def most(self) -> int:
        return self.size

    def ready(self) -> Views | None:
        return [batch.view for batch in self.batches]

    def is_coming(self) -> bool:
        return False

    async def read(self) -> Views:
        return [batch.view for batch in self.batches]

    def read_ahead(self) -> None:
        pass


@dataclass(slots=True)
class Slice:
    """Some adjoining batches of one entry."""

    entry: IndexEntry
    layout: EntryLayout
    first: int
    end: int


@dataclass(slots=True)
class WalPlan:
    """Batches of adjoining entries."""

    request: ReadRequest
    bounds: Bounds
    size: int
    slices: list[Slice]
    source: PlanSource

    @property
    def most(self) -> int:
        return self.size

    def ready(self) -> Views | None:
        views: Views | None = []
        for part in self.slices:
            found = self.source.segments.ready(part.layout, part.first, part.end)
            views = None if found is None or views is None else views + found
        return views

    def is_coming(self) -> bool:
        segments = self.source.segments
        return all(segments.is_coming(part.layout, part.first, part.end) for part in self.slices)

    async def read(self) -> Views:
        views: Views = []
        for part in self.slices:
            try:
                views += await self.source.segments.batches(part.layout, part.first, part.end)
            except ObjectMissing:
                if views:
                    break  # the batches read so far adjoin; the next fetch starts at the missing one
                return await self.source.read_elsewhere(self.request, part.entry)
        return views

    def read_ahead(self) -> None:
        """Two answers of this size, so that the second is read while the client takes the first apart; one,
        where the second would push out what nobody was served yet."""
        last, segments = self.slices[-1], self.source.segments
        size = 2 * self.size
        if not segments.has_room(size):
            size = self.size
        if last.end < len(last.layout.starts):
            number = last.layout.segment_of(last.end)
            if last.layout.segments[number].first < last.end:
                number += 1  # some of it was taken: it is in memory
            size -= segments.read_ahead(last.layout, size, number)
        self.source.read_ahead_from(self.request.stream, last.entry.end, size)


@dataclass(slots=True)
class ParquetPlan:
    """Files that follow each other. Never ready: only the read itself sees whether a row group is in
    memory."""

    request: ReadRequest
    bounds: Bounds
    size: int
    limit: int
    at_least_one: bool
    entries: list[IndexEntry]
    source: PlanSource
    leader_epoch: int = LEADER_EPOCH

    @property
    def most(self) -> int:
        """The most bytes that the read may give: `size` is a guess."""
        return max(self.size, self.limit)

    @property
    def decoded_where(self) -> str | None:
        """Which reads share the room in memory: those of files do."""
        return None

    @property
    def decoded_room(self) -> int:
        """The memory that all such reads may take."""
        return self.source.parquet.cache_bytes

    @property
    def decoded_bytes(self) -> int:
        """About the memory that the read takes: a whole row group is decoded, even for a part of it."""
        return self.source.parquet.group_bytes(self.entries[0], self.request.offset)

    def ready(self) -> Views | None:
        return None

    def is_coming(self) -> bool:
        return False

    async def read(self) -> Views:
        stream, offset = self.request.stream, self.request.offset
        views: Views = []
        size = 0
        for entry in self.entries:
            at_least_one = self.at_least_one and not views
            try:
                taken = await self.source.parquet.read(
                    entry, offset, self.limit - size, at_least_one, self.leader_epoch
                )
            except ObjectMissing:
                if views:
                    break
                return await self.source.read_elsewhere(self.request, entry)
            views += taken.views
            size += taken.size
            if taken.near_end:
                self.source.read_ahead_from(stream, entry.end, 1)
            if not taken.finished:
                break
            offset = entry.end
        return views

    def read_ahead(self) -> None:
        pass  # `read` does that, since only it knows how far it came


@dataclass(slots=True)
class OutsidePlan:
    """Outside objects that follow each other. Never ready, as files. It ends where they do: an answer never
    reaches from what the log did not write into what was appended to it."""

    request: ReadRequest
    bounds: Bounds
    size: int
    limit: int
    at_least_one: bool
    entries: list[IndexEntry]
    leader_epoch: int
    source: PlanSource
    aborted: list[tuple[int, int]] = field(default_factory=list)  # known once it was read

    @property
    def most(self) -> int:
        return max(self.size, self.limit)

    @property
    def decoded_where(self) -> str | None:
        """Those of one store: where it does not answer, the room of others is not taken."""
        return self.source.outside.store_of(self.entries[0])

    @property
    def decoded_room(self) -> int:
        return self.source.outside.cache_bytes

    @property
    def decoded_bytes(self) -> int:
        return self.source.outside.held_bytes(self.entries[0], self.request.offset)

    def ready(self) -> Views | None:
        return None

    def is_coming(self) -> bool:
        return False

    async def read(self) -> Views:
        offset = self.request.offset
        views: Views = []
        size = 0
        for entry in self.entries:
            at_least_one = self.at_least_one and not views
            try:
                taken = await self.source.outside.read(
                    entry, self.leader_epoch, offset, self.limit - size, at_least_one
                )
            except ObjectMissing:
                if views:
                    break
                return await self.source.read_elsewhere(self.request, entry)
            except LogError:
                if views:
                    break  # the next fetch starts there, and meets the error
                raise
            views += taken.views
            size += taken.size
            self.aborted += [one for one in taken.aborted if one not in self.aborted]
            if not taken.finished:
                break
            offset = entry.end
            self.source.read_ahead_from(self.request.stream, offset, 1)
        if not views and offset == self.entries[-1].end:
            # Nothing but a hole: a batch without records leads the consumer over it.
            views.append(memoryview(filler(offset - 1, self.leader_epoch)))
        return views

    def read_ahead(self) -> None:
        pass  # `read` does that, since only it knows how far it came


ReadPlan: TypeAlias = EmptyPlan | TailPlan | WalPlan | ParquetPlan | OutsidePlan
