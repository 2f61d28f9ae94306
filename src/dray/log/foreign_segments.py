"""The bytes of segments that other systems wrote, from the stores where they lie.

A segment may be stored as it is, or in chunks that are compressed and encrypted: what is given back is the
segment as its broker wrote it. A chunk is read, decrypted and unpacked once, in a thread, and shared. What is
kept of chunks and manifests is bounded, and so is what is under way of each store: one that does not answer
holds up no other. Nothing here writes to a foreign store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from dray.foreign.aiven import (
    LARGEST_MANIFEST,
    AivenManifest,
    SegmentChunk,
    read_chunk,
    read_manifest,
    unwrap_key,
)
from dray.foreign.faults import ForeignFault
from dray.log.entries import IndexEntry
from dray.log.foreign_tables import ForeignLayout, SegmentTable
from dray.log.shared_reads import SharedReads
from dray.log.types import ForeignSegmentFault, LogUnavailable
from dray.objects.contract import (
    WORTH_A_THREAD,
    Buffer,
    ObjectError,
    ObjectMissing,
    ObjectStore,
    OwnBuffer,
    RangeOutside,
)
from dray.runtime import Runtime

OWN_STORE: Final = ""
"""The name of the cluster's own object store: segments that were copied lie there."""

_MANIFEST_BYTES: Final = 1000
_CHUNK_BYTES: Final = 120
_MANIFESTS_KEPT: Final = 16 << 20

_LOADS_AT_ONCE: Final = 8
_CHUNKS_AT_ONCE: Final = 4
_LARGE_CHUNK: Final = 16 << 20
"""Larger ones are unpacked one at a time: their manifest says how much memory that takes."""

T = TypeVar("T")


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
        # What was copied is as encrypted as it was: the keys of all stores open it.
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
        """Raises `ForeignSegmentFault`."""
        return self._lane(store).objects

    def chunk_bytes(self, table: SegmentTable) -> int | None:
        """What is unpacked at once, at least, for a read of any size: 0 where nothing is packed, None where
        that is not known yet."""
        if table.layout is not ForeignLayout.AIVEN:
            return 0
        opened = self._manifests.ready((table.store, table.manifest))
        return None if opened is None else opened.manifest.chunk_bytes

    def holds_chunk(self, entry: IndexEntry, table: SegmentTable, position: int) -> bool:
        """Is this byte of the segment in memory, or about to be?"""
        opened = self._manifests.ready((table.store, table.manifest))
        if opened is None or not 0 <= position < opened.manifest.segment_size:
            return False
        chunk = opened.manifest.chunks[position // opened.manifest.chunk_bytes]
        return (table.store, entry.path, chunk.position) in self._chunks

    async def with_range(
        self,
        entry: IndexEntry,
        table: SegmentTable,
        position: int,
        length: int,
        work: Callable[[OwnBuffer], T],
    ) -> T:
        """What `work` makes of bytes of the entry's segment, in a thread. Raises `ObjectMissing` where the
        object is gone, `ForeignSegmentFault` where it is not what it should be or its store is not
        configured, and `LogUnavailable`."""
        lane = self._lane(table.store)
        if table.layout is not ForeignLayout.AIVEN:
            async with lane.loads:
                return await self._answered(
                    entry.path,
                    lane.objects.with_ranges(entry.path, [(position, length)], lambda found: work(found[0])),
                )
        opened = await self._manifest(lane, table)
        if length < 1 or position + length > opened.manifest.segment_size:
            raise ForeignSegmentFault(
                f"{table.manifest}: the segment has {opened.manifest.segment_size} bytes, and its index "
                f"entry names byte {position + length}"
            )
        step = opened.manifest.chunk_bytes
        chunks = opened.manifest.chunks[position // step : (position + length - 1) // step + 1]
        found = await asyncio.gather(
            *[
                self._chunks.get(
                    (table.store, entry.path, chunk.position),
                    partial(self._read_chunk, lane, entry.path, opened, chunk),
                )
                for chunk in chunks
            ]
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
            raise ForeignSegmentFault(
                f"this broker does not know the foreign store {name!r}: add it to foreign.stores"
            )
        return lane

    async def _manifest(self, lane: _Lane, table: SegmentTable) -> _OpenManifest:
        return await self._manifests.get(
            (table.store, table.manifest), lambda: self._read_manifest(lane, table)
        )

    async def _read_manifest(self, lane: _Lane, table: SegmentTable) -> _OpenManifest:
        path = table.manifest
        info = await self._answered(path, lane.objects.head(path))
        if info.size > LARGEST_MANIFEST:
            raise ForeignSegmentFault(f"{path}: a manifest of {info.size} bytes")
        data = await self._answered(path, lane.objects.get(path))
        try:
            return await self._runtime.in_thread(_open_manifest, path, data, lane.keys)
        except ForeignFault as fault:
            raise ForeignSegmentFault(f"{path}: {fault}") from fault

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
            raise ForeignSegmentFault(f"{path}: {fault}") from fault

    async def _answered(self, path: str, reading: Coroutine[Any, Any, T]) -> T:
        try:
            return await reading
        except ObjectMissing:
            raise
        except RangeOutside as error:
            raise ForeignSegmentFault(f"{path} is shorter than its index entry says: {error}") from error
        except ObjectError as error:
            raise LogUnavailable(f"the foreign object store did not answer: {error}") from error


def _open_manifest(path: str, data: Buffer, keys: Mapping[str, bytes]) -> _OpenManifest:
    manifest = read_manifest(data)
    if manifest.key_id is None:
        return _OpenManifest(manifest, None)
    private_key = keys.get(manifest.key_id)
    if private_key is None:
        raise ForeignSegmentFault(
            f"{path}: its data key is wrapped with the key {manifest.key_id!r}: add that to foreign.keys"
        )
    return _OpenManifest(manifest, unwrap_key(manifest.wrapped_key, private_key))
