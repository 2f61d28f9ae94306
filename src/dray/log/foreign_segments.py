"""The bytes of segments that other systems wrote, from the stores where they lie.

A segment may be stored as it is, or in chunks that are compressed and encrypted: what is given back is the
segment as its broker wrote it. A chunk is read, decrypted and unpacked once, in a thread, and shared. What is
kept of chunks and manifests is bounded. Nothing here writes to a foreign store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
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

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ForeignStore:
    """A store of the config: `keys` are the private keys that unwrap data keys, by their names."""

    objects: ObjectStore
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)


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
        self._stores = {**stores, OWN_STORE: ForeignStore(own, keys)}
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
        return self._store(store).objects

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
        store = self._store(table.store)
        if table.layout is not ForeignLayout.AIVEN:
            return await self._answered(
                entry.path,
                store.objects.with_ranges(entry.path, [(position, length)], lambda found: work(found[0])),
            )
        opened = await self._manifest(store, table)
        chunks = [
            chunk
            for chunk in opened.manifest.chunks
            if chunk.original < position + length and chunk.original + chunk.original_size > position
        ]
        if position + length > opened.manifest.segment_size or not chunks:
            raise ForeignSegmentFault(
                f"{table.manifest}: the segment has {opened.manifest.segment_size} bytes, and its index "
                f"entry names byte {position + length}"
            )
        found = await asyncio.gather(
            *[
                self._chunks.get(
                    (table.store, entry.path, chunk.position),
                    partial(self._read_chunk, store, entry.path, opened, chunk),
                )
                for chunk in chunks
            ]
        )

        parts = [
            memoryview(part)[max(0, position - chunk.original) : position + length - chunk.original]
            for part, chunk in zip(found, chunks, strict=True)
        ]
        return await self._runtime.in_thread(lambda: work(bytearray().join(parts)))

    def _store(self, name: str) -> ForeignStore:
        store = self._stores.get(name)
        if store is None:
            raise ForeignSegmentFault(
                f"this broker does not know the foreign store {name!r}: add it to foreign.stores"
            )
        return store

    async def _manifest(self, store: ForeignStore, table: SegmentTable) -> _OpenManifest:
        return await self._manifests.get(
            (table.store, table.manifest), lambda: self._read_manifest(store, table)
        )

    async def _read_manifest(self, store: ForeignStore, table: SegmentTable) -> _OpenManifest:
        path = table.manifest
        info = await self._answered(path, store.objects.head(path))
        if info.size > LARGEST_MANIFEST:
            raise ForeignSegmentFault(f"{path}: a manifest of {info.size} bytes")
        data = await self._answered(path, store.objects.get(path))
        try:
            return await self._runtime.in_thread(_open_manifest, path, data, store.keys)
        except ForeignFault as fault:
            raise ForeignSegmentFault(f"{path}: {fault}") from fault

    async def _read_chunk(
        self, store: ForeignStore, path: str, opened: _OpenManifest, chunk: SegmentChunk
    ) -> Buffer:
        [stored] = await self._answered(path, store.objects.get_ranges(path, [(chunk.position, chunk.size)]))
        try:
            return await self._runtime.in_thread(read_chunk, opened.manifest, chunk, stored, opened.key)
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
