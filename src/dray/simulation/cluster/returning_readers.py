"""A simulated consumer that stops, comes back where it was, and finds that its records were deleted.

Readers that go on are at the end within moments; deletions hardly ever meet them. This one remembers where it
was before, waits, and asks the same broker for it, which leads the partition or not. What it is given is held
against the history: records below an acknowledged start are stale once the bound has passed.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dray.client.cluster import Address
from dray.simulation.cluster.client import Unanswered
from dray.simulation.cluster.readers import EARLIEST, Consumer
from dray.simulation.cluster.topics import MAIN

if TYPE_CHECKING:
    from dray.simulation.cluster.world import ClusterWorld


class ReturningReader(Consumer):
    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self._bound = world.conditions.deleted_within
        self._address = self.any_address()

    def address_for(self, topic: str, partition: int) -> Address:
        """The broker that led when it was here last: any serves any partition."""
        del topic, partition
        return self._address

    async def play(self) -> None:
        while True:
            try:
                await asyncio.sleep(self.random.random() * self.world.conditions.pace)
                await self.look_around(MAIN)
                await self._stay()
            except Unanswered:
                continue

    async def _stay(self) -> None:
        """Read a little of a partition, and come back to the same place a few times."""
        self._address = self.any_address()
        place = self.random.choice([place for place in self.world.places if place[0] == MAIN])
        found = await self.list_offset(place, EARLIEST)
        if found is None:
            return
        position: int | None = found[0]
        for _ in range(8):
            self.sought.add(place)
            try:
                position = (await self.poll({place: found[0]}))[place]
            except Unanswered:
                continue
            if position is None:
                self.world.counts["came back too late"] += 1
                return
            await asyncio.sleep(self.random.random() * self._bound)
