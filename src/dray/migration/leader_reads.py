"""The reads of one leader that are under way.

While the mirror catches up there are two, of different partitions, so that the leader has the next request
when it has sent an answer. A leader answers a connection's requests one after the other. So a second read is
sent only if some partition is known to have more: one that had to wait for records would hold up the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from dray.client.cluster import Address
from dray.client.errors import RequestFailed
from dray.runtime import Runtime
from dray.upstream.mirror import MirrorPiece, MirrorPlace, MirrorStopped

Answers = Mapping[int, MirrorPiece | MirrorStopped | RequestFailed]

MOST_READS: Final = 2


class PieceReader(Protocol):
    """`upstream.mirror.MirrorReader`."""

    def by_leader(self, partitions: Mapping[int, MirrorPlace]) -> dict[Address, dict[int, MirrorPlace]]: ...

    async def read_each(self, leader: Address, places: Mapping[int, MirrorPlace]) -> Answers: ...


class LeaderReads:
    def __init__(
        self, reader: PieceReader, runtime: Runtime, leader: Address, has_more: Callable[[int, int], bool]
    ) -> None:
        """`has_more`: is the source known to have something of a partition from an offset on?"""
        self._reader = reader
        self._runtime = runtime
        self._leader = leader
        self._has_more = has_more
        self._under_way: dict[asyncio.Task[Answers], dict[int, MirrorPlace]] = {}

    def read_ahead(self, places: Mapping[int, MirrorPlace]) -> None:
        """Ask for what the source is known to have."""
        asked = {partition for each in self._under_way.values() for partition in each}
        free = {partition: place for partition, place in places.items() if partition not in asked}
        ready = sorted([each for each, place in free.items() if self._has_more(each, place.offset)])
        if not ready or len(self._under_way) == MOST_READS:
            return
        if not self._under_way and len(ready) > 1:
            second = {partition: free.pop(partition) for partition in ready[1::2]}
            self._begin(free)
            free = second
        self._begin(free)

    async def next(self, places: Mapping[int, MirrorPlace]) -> tuple[dict[int, MirrorPlace], Answers]:
        """The next answer, and what it was asked for. Raises what keeps the leader from answering."""
        self.read_ahead(places)
        if not self._under_way:
            self._begin(dict(places))
        await asyncio.wait(self._under_way, return_when=asyncio.FIRST_COMPLETED)
        task = next(task for task in self._under_way if task.done())
        return self._under_way.pop(task), task.result()

    def _begin(self, places: dict[int, MirrorPlace]) -> None:
        read = self._reader.read_each(self._leader, dict(places))
        self._under_way[self._runtime.spawn(read, f"mirror read of {self._leader}")] = places

    async def stop(self) -> None:
        for task in self._under_way:
            task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        for task in self._under_way:
            if not task.cancelled():
                task.exception()  # seen
        self._under_way.clear()
