"""A segment as its broker wrote it, wherever and however it lies: to look at places where it may be cut."""

from __future__ import annotations

from typing import Protocol

from dray.foreign import ForeignFault, walk_batches
from dray.foreign.aiven import LARGEST_MANIFEST, AivenManifest, SegmentChunk, read_chunk, read_manifest
from dray.foreign.batches import SegmentBatch
from dray.foreign.faults import ForeignDamage
from dray.migration.aiven_tiered import KeyRing
from dray.migration.found import FoundSegment, MigrationRefused, naming
from dray.migration.reading import LARGEST_TAIL, SourceReader
from dray.objects.contract import Buffer, ObjectError
from dray.records import HEADER_SIZE, BatchHeader, read_header


class SegmentBytes(Protocol):
    """It raises `MigrationRefused`."""

    async def header(self, position: int) -> BatchHeader:
        """Of the batch that begins there."""

    async def batches(self, position: int, end: int) -> list[SegmentBatch]:
        """Those that lie between, each checked; their positions count from the segment's start."""


class PlainSegment:
    """As it was written."""

    def __init__(self, source: SourceReader, path: str) -> None:
        self._source = source
        self._path = path

    async def header(self, position: int) -> BatchHeader:
        return read_header(await self._source.range(self._path, position, HEADER_SIZE))

    async def batches(self, position: int, end: int) -> list[SegmentBatch]:
        return await self._source.batches(self._path, position, end, 0)


class UnpackedSegment:
    """In chunks of Aiven's plugin. The manifest is read with the first byte that is asked for, and the chunk
    that was unpacked last is kept: places that are looked at lie close to each other."""

    def __init__(self, source: SourceReader, found: FoundSegment, keys: KeyRing) -> None:
        self._source = source
        self._path = found.path
        self._manifest_path = found.state_path
        self._keys = keys
        self._opened: tuple[AivenManifest, bytes | None] | None = None
        self._last: tuple[SegmentChunk, Buffer] | None = None

    async def header(self, position: int) -> BatchHeader:
        return read_header(await self._range(position, HEADER_SIZE))

    async def batches(self, position: int, end: int) -> list[SegmentBatch]:
        with naming(self._path):
            if end - position > LARGEST_TAIL:
                raise ForeignDamage(f"{end - position} bytes without a row of an index", position)
            data = await self._range(position, end - position)
            try:
                found = list(walk_batches(data))
            except ForeignFault as fault:
                raise type(fault)(fault.reason, position + fault.position) from None
        return [each._replace(position=position + each.position) for each in found]

    async def _range(self, position: int, length: int) -> Buffer:
        manifest, key = self._opened or await self._open()
        if position + length > manifest.segment_size:
            raise MigrationRefused(
                f"{self._path}: it has {manifest.segment_size} bytes, and its index names byte {position}"
            )
        step = manifest.chunk_bytes
        parts = bytearray()
        for chunk in manifest.chunks[position // step : (position + length - 1) // step + 1]:
            data = await self._chunk(manifest, key, chunk)
            parts += memoryview(data)[max(0, position - chunk.original) : position + length - chunk.original]
        return parts

    async def _chunk(self, manifest: AivenManifest, key: bytes | None, chunk: SegmentChunk) -> Buffer:
        if self._last is None or self._last[0] != chunk:
            stored = await self._source.range(self._path, chunk.position, chunk.size)
            with naming(self._path):
                self._last = chunk, read_chunk(manifest, chunk, stored, key)
        return self._last[1]

    async def _open(self) -> tuple[AivenManifest, bytes | None]:
        try:
            info = await self._source.store.head(self._manifest_path)
        except ObjectError as error:
            raise MigrationRefused(f"the source cannot be read: {error}") from error
        data = await self._source.whole(info, LARGEST_MANIFEST)
        with naming(self._manifest_path):
            manifest = read_manifest(data)
            self._opened = manifest, self._keys.data_key(manifest)
        return self._opened
