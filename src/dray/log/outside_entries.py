"""Entries of a kind that the log does not read itself: what it asks of the object that does.

Whoever puts a process together gives its log such an object. The log keeps these entries in its index, finds
them, counts them and replaces them as it does all others. How their objects are read, whether these are still
there and whose they are is for the kind to say.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from dray.log.entries import IndexEntry
from dray.log.life.retention import Raised, Retention
from dray.log.outside_table import OWN_STORE
from dray.log.stream_store import StreamStore
from dray.log.types import OutsideFault, TimestampedOffset
from dray.objects.contract import ObjectStore

T = TypeVar("T")


class TakenBatches(NamedTuple):
    views: list[memoryview]
    size: int
    finished: bool  # the whole rest of the entry
    last_offset: int  # of what was taken; -1 for nothing
    aborted: list[tuple[int, int]]  # producer id, first offset: of the transactions among them


class LookInto(Protocol):
    """Calls `look` in a thread, with a batch, the bytes that this may unfold to, and the arguments."""

    def __call__(self, batch: memoryview, look: Callable[..., T], /, *arguments: int) -> Awaitable[T]: ...


class OutsideEntries(Protocol):
    """Methods that read raise `LogError`, and `ObjectMissing` where an object is gone: the log looks further
    in its index."""

    cache_bytes: int
    """The most bytes that are kept in memory."""

    def join(self, streams: StreamStore, retention: Retention, start_raised: Raised) -> None:
        """These are the entries of this log. It is told with `start_raised` of every start that is raised
        here."""

    # --- memory

    @property
    def size(self) -> int:
        """Bytes kept."""

    @property
    def is_empty(self) -> bool:
        """Nothing is in memory."""

    def forget_idle(self) -> None: ...

    # --- planning

    def estimate(self, entry: IndexEntry, offset: int) -> int:
        """About what the batches from `offset` to the end of the entry take. Never nothing."""

    def stands_alone(self, entry: IndexEntry) -> bool:
        """May no answer reach from this entry into its neighbours, nor from them into it?"""

    def store_of(self, entry: IndexEntry) -> str:
        """The name of the store where its object lies."""

    def held_bytes(self, entry: IndexEntry, offset: int) -> int:
        """About the memory that a read from there takes."""

    def is_midway(self, entry: IndexEntry, offset: int, leader_epoch: int) -> bool:
        """Does a read from there go on in what is in memory?"""

    # --- reading

    async def read(
        self, entry: IndexEntry, leader_epoch: int, offset: int, limit: int, at_least_one: bool
    ) -> TakenBatches:
        """Batches from the one that holds `offset`, or the first behind it, as many as fit."""

    def read_ahead(self, entry: IndexEntry, leader_epoch: int) -> None:
        """The first batches of an entry that a consumer will come to."""

    async def first_at_or_after(
        self, entry: IndexEntry, leader_epoch: int, start: int, timestamp: int, look_into: LookInto
    ) -> TimestampedOffset | None:
        """The first record of the entry from `start` on whose time is at least `timestamp`."""

    async def greatest(
        self, entry: IndexEntry, leader_epoch: int, start: int, above: int, look_into: LookInto
    ) -> TimestampedOffset | None:
        """The first record from `start` on that has the entry's greatest time, if that is above `above`."""

    # --- objects

    def objects_of(self, store: str) -> ObjectStore:
        """An object store by its name. Raises `OutsideFault` for one that is not known."""

    async def look_after(self, stream: int) -> None:
        """An object of the stream is gone from its store: its owner may have taken it away."""

    async def delete(
        self, store: str, paths: Sequence[str], deleted: Callable[[str], None], *, dry_run: bool
    ) -> bool:
        """Delete objects of another store that are ours by now; True once all are known to be gone. `deleted`
        is called with each path. A dry run deletes nothing."""


def known_kind(outside: OutsideEntries | None) -> OutsideEntries:
    """Raises `OutsideFault` where nobody gave the log an object for these entries."""
    if outside is None:
        raise OutsideFault("this process reads no entries but those that the log wrote")
    return outside


def store_named(own: ObjectStore, outside: OutsideEntries | None, name: str) -> ObjectStore:
    """Raises `OutsideFault` for a store that is not known."""
    return own if name == OWN_STORE else known_kind(outside).objects_of(name)
