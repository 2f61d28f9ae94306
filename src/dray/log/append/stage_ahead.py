"""Staging marks put before their objects are there.

A producer that waits for each answer before it sends on meets a pipeline that is idle: stage, upload and
commit follow one another, and the staging write is a quarter of what it waits. So while an object is being
uploaded, the mark of the next one is staged beside it, when a next one is likely: a second object of the same
one stream came soon after the first.

Only the time between staging and upload is longer; every rule of the commit protocol holds as for any mark.
The references must be those of the object: a mark serves an object of exactly its stream, and only one. One
whose reply was lost is burnt. One that is not used is settled like an object whose upload failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from uuid import UUID

from dray.base.runtime import DAY_MS, Runtime, run_once
from dray.log.wal_keys import Staging

SOON_SECONDS = 0.25
"""Objects that follow one another within this time are of a producer that waits for its answers. A mark that
was not used for as long is dropped."""


@dataclass(frozen=True, slots=True)
class StagedMark:
    """A mark in the store, at this version. Nothing was uploaded under its id."""

    wal_id: UUID
    staging: Staging
    created_ms: int
    version: int

    def serves(self, streams: Collection[int], created_ms: int) -> bool:
        """Its references must be those of the object, and its path has the object's date."""
        return (
            len(streams) == 1
            and self.staging.streams == tuple(streams)
            and self.created_ms // DAY_MS == created_ms // DAY_MS
        )


class AheadPolicy:
    """When the next mark is worth a write before its time. Of one domain, and pure."""

    def __init__(self, least_bytes: int) -> None:
        self._least_bytes = least_bytes
        self._stream: int | None = None
        self._closed = float("-inf")

    def expects_another(self, now: float, streams: Collection[int], size: int) -> bool:
        """An object of these streams is on its way: is another of the same likely to follow?"""
        stream = next(iter(streams)) if len(streams) == 1 else None
        before, self._stream = self._stream, stream
        closed, self._closed = self._closed, now
        return (
            stream is not None
            and stream == before
            and size >= self._least_bytes
            and now - closed <= SOON_SECONDS
        )


class AheadMarks:
    """The mark of a domain's next object, at most one at a time.

    `write` stages one and gives its version, None if that is not known to have come through. `drop` settles
    one that was not used."""

    def __init__(
        self,
        runtime: Runtime,
        least_bytes: int,
        path_of: Callable[[int, UUID], str],
        write: Callable[[UUID, Staging], Awaitable[int | None]],
        drop: Callable[[StagedMark], None],
    ) -> None:
        self._runtime = runtime
        self._policy = AheadPolicy(least_bytes)
        self._path_of = path_of
        self._write = write
        self._drop = drop
        self._ready: StagedMark | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._staging: asyncio.Task[None] | None = None
        self._stopping = False

    def take(self, streams: Collection[int], created_ms: int) -> StagedMark | None:
        """The mark that was staged for an object of these streams. No other object gets it from now on."""
        mark = self._ready
        if mark is None or not mark.serves(streams, created_ms):
            return None
        self._forget()
        return mark

    def uploading(self, streams: Collection[int], size: int) -> None:
        """An object is on its way: stage the next one's mark meanwhile, if one is expected."""
        expected = self._policy.expects_another(self._runtime.monotonic(), streams, size)
        if expected and self._ready is None and self._staging is None and not self._stopping:
            self._staging = run_once(self._runtime, "stage ahead", self._stage, tuple(streams))

    async def stop(self) -> None:
        """Drop what was staged, or is being staged."""
        self._stopping = True
        if self._staging is not None:
            await asyncio.wait([self._staging])
        self._give_up()

    async def _stage(self, streams: tuple[int, ...]) -> None:
        try:
            wal_id, created_ms = self._runtime.uuid(), self._runtime.wall_ms()
            staging = Staging(self._path_of(created_ms, wal_id), streams)
            version = await self._write(wal_id, staging)
            if version is not None:
                self._ready = StagedMark(wal_id, staging, created_ms, version)
                self._timer = asyncio.get_running_loop().call_later(SOON_SECONDS, self._give_up)
        finally:
            self._staging = None

    def _give_up(self) -> None:
        """No object came for it. Nothing was uploaded under its id."""
        mark = self._ready
        if mark is not None:
            self._forget()
            self._drop(mark)

    def _forget(self) -> None:
        self._ready = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
