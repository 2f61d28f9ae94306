"""Objects in a dictionary: the engine of the simulation and of unit tests.

Every operation is done before it first awaits, so it is atomic and runs the same way every time.
Faults and delays are for the simulation to wrap around it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from dray.base.runtime import Runtime
from dray.objects.contract import (
    Buffer,
    ObjectExists,
    ObjectInfo,
    ObjectMissing,
    OwnBuffer,
    check_inside,
    check_path,
    check_prefix,
    check_ranges,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Stored:
    data: bytes
    modified_ms: int


@dataclass(slots=True)
class MemoryBucket:
    """It outlives a store: brokers of one simulation each open a `MemoryObjects` on the same one."""

    objects: dict[str, _Stored] = field(default_factory=dict)

    def put(self, path: str, data: bytes, modified_ms: int) -> None:
        """At once, as the server does it: a simulation decides when that is."""
        self.objects[check_path(path)] = _Stored(data, modified_ms)

    def delete(self, path: str) -> None:
        self.objects.pop(check_path(path), None)


class MemoryObjects:
    def __init__(self, runtime: Runtime, bucket: MemoryBucket | None = None) -> None:
        self._runtime = runtime
        self._objects = (bucket or MemoryBucket()).objects

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        self._objects[check_path(path)] = _Stored(b"".join(parts), self._runtime.wall_ms())

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        if check_path(path) in self._objects:
            raise ObjectExists(f"{path}: there is an object already")
        await self.put(path, parts)

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        await self.put(path, [bytes(part) async for parts in pieces for part in parts])

    async def get(self, path: str) -> Buffer:
        return self._find(path).data

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytearray]:
        wanted = check_ranges(path, ranges)
        data = memoryview(self._find(path).data)
        check_inside(path, len(data), wanted)
        return [bytearray(data[start : start + length]) for start, length in wanted]

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        return work(await self.get_ranges(path, ranges))

    async def head(self, path: str) -> ObjectInfo:
        stored = self._find(path)
        return ObjectInfo(path, len(stored.data), stored.modified_ms)

    async def delete(self, path: str) -> None:
        self._objects.pop(check_path(path), None)

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        folder = check_prefix(prefix)
        start = f"{folder}/" if folder else ""
        for path, stored in sorted(self._objects.items()):
            if path.startswith(start):
                yield ObjectInfo(path, len(stored.data), stored.modified_ms)

    async def close(self) -> None:
        return

    def _find(self, path: str) -> _Stored:
        stored = self._objects.get(check_path(path))
        if stored is None:
            raise ObjectMissing(f"{path}: no such object")
        return stored
