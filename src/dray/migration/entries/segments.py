"""The bytes of segments that other systems wrote, from the stores where they lie.

A segment may be stored as it is, or in chunks that are compressed and encrypted: what is given back is the
segment as its broker wrote it. A chunk is read, decrypted and unpacked once, in a thread, and shared. Kept
chunks and manifests are bounded, and so are the reads under way of each store: one that does not answer holds
up no other. Nothing here writes to a foreign store.

Objects may be gone, or of another size. Those of other systems are asked for one by one: what lies around
them there is not ours to list. A mirror, though, leaves an object every few megabytes in our own store, so
that a long one has very many. There the folder is listed, a thousand objects in one request, once a stream
has enough of them in it. An object that a list lacks is asked for all the same: nothing counts as gone
because a list was short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from dray.base.runtime import Runtime, gather_some
from dray.kafka.records import uninitialised
from dray.log.entries import IndexEntry
from dray.log.life.lost_objects import WORTH_A_LIST
from dray.log.outside_table import OWN_STORE, OutsideTable
from dray.log.read.shared_reads import SharedReads
from dray.log.types import LogUnavailable, OutsideFault, OutsideStoreAway
from dray.migration.formats.aiven import (
    LARGEST_MANIFEST,
    AivenManifest,
    SegmentChunk,
    read_chunk,
    read_manifest,
    unwrap_key,
)
from dray.migration.formats.batches import ForeignFault
from dray.objects.contract import (
    WORTH_A_THREAD,
    Buffer,
    ObjectError,
    ObjectMissing,
    ObjectStore,
    OwnBuffer,
    RangeOutside,
)
from dray.objects.read_only import ReadOnlyStore, open_read_only

_MANIFEST_BYTES: Final = 1000
_CHUNK_BYTES: Final = 120
_MANIFESTS_KEPT: Final = 16 << 20

_LOADS_AT_ONCE: Final = 8
_CHUNKS_AT_ONCE: Final = 4
_LARGE_CHUNK: Final = 16 << 20
"""Larger ones are unpacked one at a time: their manifest says how much memory that takes."""

T = TypeVar("T")


class ForeignLayout(IntEnum):
    """How the bytes of a segment lie in its object."""

    KAFKA = 0  # as they are: Apache's LocalTieredStorage, a broker's log directory
    AIVEN = 1  # in chunks, as a manifest says, perhaps compressed and encrypted
    KAFSCALE = 2  # behind a header of 32 bytes, and in front of a footer

    @property
    def word(self) -> str:
        return _WORDS[self]


_WORDS: Final = {
    ForeignLayout.KAFKA: "kafka",
    ForeignLayout.AIVEN: "aiven-1",
    ForeignLayout.KAFSCALE: "kafscale-1",
}


@dataclass(frozen=True, slots=True)
class ForeignStore:
    """A store of the config: `keys` are the private keys that unwrap data keys, by their names."""

    objects: ObjectStore
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)


class _Lane:
    """A store, and the room for what is under way of it: reads of pieces, and chunks. A read that waits for
    its chunks takes no room."""

    __slots__ = ("chunks", "keys", "large", "loads", "objects")

    def __init__(self, store: ForeignStore) -> None:
        self.objects = store.objects
        self.keys = store.keys
        self.loads = asyncio.Semaphore(_LOADS_AT_ONCE)
        self.chunks = asyncio.Semaphore(_CHUNKS_AT_ONCE)
        self.large = asyncio.Semaphore(1)


@dataclass(frozen=True, slots=True)
class _OpenManifest:
    manifest: AivenManifest
    key: bytes | None = field(repr=False)  # the data key, unwrapped

    @property
    def size(self) -> int:
        return _MANIFEST_BYTES + _CHUNK_BYTES * len(self.manifest.chunks)


class ManifestCache(SharedReads[tuple[str, str], _OpenManifest]):
    """By store and path."""


class ChunkCache(SharedReads[tuple[str, str, int], Buffer]):
    """By store, path and position: as they were in the segment."""


class ForeignSegments:
    def __init__(
        self,
        own: ObjectStore,
        runtime: Runtime,
        stores: Mapping[str, ForeignStore] | None = None,
        chunk_cache_bytes: int = 32 << 20,
    ) -> None:
        self._runtime = runtime
        stores = stores or {}
        # A copied segment is as encrypted as it was: the keys of all stores open it.
        keys = {name: key for store in stores.values() for name, key in store.keys.items()}
        self._lanes = {
            name: _Lane(store) for name, store in {**stores, OWN_STORE: ForeignStore(own, keys)}.items()
        }
        self._manifests = ManifestCache(_MANIFESTS_KEPT, lambda opened: opened.size)
        self._chunks = ChunkCache(chunk_cache_bytes, len)

    @property
    def size(self) -> int:
        """Bytes kept."""
        return self._manifests.size + self._chunks.size

    def forget_idle(self) -> None:
        self._manifests.forget_idle()
        self._chunks.forget_idle()

    def objects_of(self, store: str) -> ObjectStore:
        """Raises `OutsideFault`."""
        return self._lane(store).objects

    def adopting(self, store: str) -> ReadOnlyStore | None:
        """A store of another system from which an adopted segment can be deleted. None where it is not known
        here."""
        lane = self._lanes.get(store)
        return lane.objects if lane is not None and isinstance(lane.objects, ReadOnlyStore) else None

    def chunk_bytes(self, table: OutsideTable) -> int | None:
        """The bytes that are unpacked at once, at least, for a read of any size: 0 if nothing is packed, None
        if that is not known yet."""
        if table.layout != ForeignLayout.AIVEN:
            return 0
        opened = self._manifests.ready((table.store, table.manifest))
        return None if opened is None else opened.manifest.chunk_bytes

    def holds_chunk(self, entry: IndexEntry, table: OutsideTable, position: int) -> bool:
        """Is this byte of the segment in memory, or about to be?"""
        opened = self._manifests.ready((table.store, table.manifest))
        if opened is None or not 0 <= position < opened.manifest.segment_size:
            return False
        chunk = opened.manifest.chunks[position // opened.manifest.chunk_bytes]
        return (table.store, entry.path, chunk.position) in self._chunks

    async def with_range(
        self,
        entry: IndexEntry,
        table: OutsideTable,
        position: int,
        length: int,
        work: Callable[[OwnBuffer], T],
    ) -> T:
        """Run `work` on bytes of the entry's segment, in a thread, and return its result. Raises
        `ObjectMissing` where the object is gone, `OutsideFault` where it is not what it should be or its
        store is not configured, and `OutsideStoreAway`."""
        lane = self._lane(table.store)
        if table.layout != ForeignLayout.AIVEN:
            async with lane.loads:
                return await self._answered(
                    entry.path,
                    lane.objects.with_ranges(entry.path, [(position, length)], lambda found: work(found[0])),
                )
        opened = await self._manifest(lane, table)
        if length < 1 or position + length > opened.manifest.segment_size:
            raise OutsideFault(
                f"{table.manifest}: the segment has {opened.manifest.segment_size} bytes, and its index "
                f"entry names byte {position + length}"
            )
        step = opened.manifest.chunk_bytes
        chunks = opened.manifest.chunks[position // step : (position + length - 1) // step + 1]
        found = await gather_some(
            self._chunks.get(
                (table.store, entry.path, chunk.position),
                partial(self._read_chunk, lane, entry.path, opened, chunk),
            )
            for chunk in chunks
        )
        parts = [
            memoryview(part)[max(0, position - chunk.original) : position + length - chunk.original]
            for part, chunk in zip(found, chunks, strict=True)
        ]
        async with lane.loads:
            return await self._runtime.in_thread(lambda: work(bytearray().join(parts)))

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            raise OutsideFault(
                f"this broker does not know the foreign store {name!r}: add it to foreign.stores"
            )
        return lane

    async def _manifest(self, lane: _Lane, table: OutsideTable) -> _OpenManifest:
        return await self._manifests.get(
            (table.store, table.manifest), lambda: self._read_manifest(lane, table)
        )

    async def _read_manifest(self, lane: _Lane, table: OutsideTable) -> _OpenManifest:
        path = table.manifest
        info = await self._answered(path, lane.objects.head(path))
        if info.size > LARGEST_MANIFEST:
            raise OutsideFault(f"{path}: a manifest of {info.size} bytes")
        data = await self._answered(path, lane.objects.get(path))
        try:
            return await self._runtime.in_thread(_open_manifest, path, data, lane.keys)
        except ForeignFault as fault:
            raise OutsideFault(f"{path}: {fault}") from fault

    async def _read_chunk(self, lane: _Lane, path: str, opened: _OpenManifest, chunk: SegmentChunk) -> Buffer:
        """In one hop to a thread, where that is sure to be one: few bytes may unfold to many."""

        def unpack(found: Sequence[Buffer]) -> Buffer:
            return read_chunk(opened.manifest, chunk, found[0], opened.key)

        place = [(chunk.position, chunk.size)]
        try:
            async with lane.large if chunk.original_size > _LARGE_CHUNK else lane.chunks:
                if chunk.size >= WORTH_A_THREAD:
                    return await self._answered(path, lane.objects.with_ranges(path, place, unpack))
                stored = await self._answered(path, lane.objects.get_ranges(path, place))
                return await self._runtime.in_thread(unpack, stored)
        except ForeignFault as fault:
            raise OutsideFault(f"{path}: {fault}") from fault

    async def _answered(self, path: str, reading: Coroutine[Any, Any, T]) -> T:
        try:
            return await reading
        except ObjectMissing:
            raise
        except RangeOutside as error:
            raise OutsideFault(f"{path} is shorter than its index entry says: {error}") from error
        except ObjectError as error:
            raise OutsideStoreAway(f"the foreign object store did not answer: {error}") from error


def _open_manifest(path: str, data: Buffer, keys: Mapping[str, bytes]) -> _OpenManifest:
    manifest = read_manifest(data)
    if manifest.key_id is None:
        return _OpenManifest(manifest, None)
    private_key = keys.get(manifest.key_id)
    if private_key is None:
        raise OutsideFault(
            f"{path}: its data key is wrapped with the key {manifest.key_id!r}: add that to foreign.keys"
        )
    return _OpenManifest(manifest, unwrap_key(manifest.wrapped_key, private_key))


# --- the stores of other systems: where they are, and how they are opened


@dataclass(frozen=True, slots=True)
class ForeignAddress:
    """A store as the config names it. It can travel to a worker, with its secrets in no setting and no
    line."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)


async def open_foreign_stores(
    addresses: Mapping[str, ForeignAddress], runtime: Runtime
) -> dict[str, ForeignStore]:
    """Raises `ValueError` with one line. A store is first asked when it is first read."""
    opened: dict[str, ForeignStore] = {}
    for name, address in addresses.items():
        try:
            objects = await open_read_only(
                address.url, address.options, runtime, address.secrets, allocate=uninitialised
            )
        except ValueError as error:
            raise ValueError(f"foreign.stores {name}: {error}") from error
        opened[name] = ForeignStore(objects, address.keys)
    return opened


# --- are the objects still in their stores, and of their size?

_AT_ONCE: Final = 16


class SegmentPresence(Enum):
    """The state in which a segment is found in its store."""

    THERE = "there"
    CHANGED = "changed"  # another size, or without its manifest
    GONE = "gone"


async def presences(
    segments: ForeignSegments, entries: Mapping[UUID, IndexEntry]
) -> dict[UUID, SegmentPresence]:
    """Of each segment, by an entry of it. Raises `LogUnavailable` where a store does not say."""
    try:
        listed = await _listed(segments, entries.values())
        found = await gather_some(
            (_presence(segments, entry, listed.get(entry.path)) for entry in entries.values()), _AT_ONCE
        )
        return dict(zip(entries, found, strict=True))
    except ObjectError as error:
        raise LogUnavailable(f"the foreign object store did not answer: {error}") from error


async def _listed(segments: ForeignSegments, entries: Iterable[IndexEntry]) -> dict[str, int]:
    """Sizes of those that were seen in a list."""
    wanted: dict[str, set[str]] = {}
    for entry in entries:
        if entry.outside().store == OWN_STORE:
            wanted.setdefault(entry.path.rpartition("/")[0] + "/", set()).add(entry.path)
    found: dict[str, int] = {}
    for folder, paths in wanted.items():
        if len(paths) < WORTH_A_LIST:
            continue
        async for info in segments.objects_of(OWN_STORE).list(folder):
            if info.path in paths:
                found[info.path] = info.size
    return found


async def _presence(segments: ForeignSegments, entry: IndexEntry, size: int | None) -> SegmentPresence:
    """`size`: as a list has it, None where it is in none."""
    table = entry.outside()
    objects = segments.objects_of(table.store)
    try:
        if size is None:
            size = (await objects.head(entry.path)).size
    except ObjectMissing:
        return SegmentPresence.GONE
    try:
        if table.manifest:
            await objects.head(table.manifest)
    except ObjectMissing:
        return SegmentPresence.CHANGED
    return SegmentPresence.THERE if size == table.object_size else SegmentPresence.CHANGED
