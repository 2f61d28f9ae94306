"""What members of groups of either protocol do between their rebalances: read from where the group is, and
commit how far they got."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from dray.protocol import ErrorCode
from dray.simulation.cluster.client import Unanswered
from dray.simulation.cluster.readers import EARLIEST, Consumer
from dray.simulation.cluster.topics import MAIN, Place

if TYPE_CHECKING:
    from dray.simulation.cluster.world import ClusterWorld

_LATER = "NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS"
OUTDATED = "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH REBALANCE_IN_PROGRESS"
UNKNOWN = "UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PARTITION"


class GroupMember(Consumer):
    """Subclasses say how one joins, stays and leaves."""

    group = ""

    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self.member_id = ""
        self.epoch = -1  # or generation
        self.positions: dict[Place, int] = {}
        self.owned: set[int] = set()

    @property
    def is_member(self) -> bool:
        raise NotImplementedError

    async def stay(self) -> None:
        """Join, or give a sign of life, and do what the answer says."""
        raise NotImplementedError

    async def leave(self, member_id: str) -> None:
        raise NotImplementedError

    def give_up_partitions(self) -> None:
        """Own nothing any more."""
        self.world.owners(self.group).give_up(self.name)
        self.owned = set()
        self.positions = {}

    async def play(self) -> None:
        conditions = self.world.conditions
        while not await self._is_known():
            continue
        beat_every = conditions.session_timeout / 6
        beat_at = 0.0
        while True:
            await asyncio.sleep(self.random.random() * conditions.pace)
            try:
                restless = self.is_member and not self.world.calm
                if restless and self.random.random() < conditions.restless * conditions.pace:
                    await self._go_away()
                if self.world.now() >= beat_at or not self.is_member:
                    beat_at = self.world.now() + beat_every
                    await self.stay()
                if self.owned:
                    await self.work()
            except Unanswered:
                self.forget_coordinator(self.group)

    async def _is_known(self) -> bool:
        await asyncio.sleep(0.01)
        try:
            return await self.look_around(MAIN)
        except Unanswered:
            return False

    async def _go_away(self) -> None:
        """Leave, or die and come back as another member."""
        self.give_up_partitions()
        member_id, self.member_id, self.epoch = self.member_id, "", -1
        if self.random.random() < 0.5:
            self.world.counts["members left"] += 1
            self.world.trace(self.name, "leaves")
            await self.leave(member_id)
        else:
            self.world.counts["! member crashed"] += 1
            self.world.trace(self.name, "dies")
            self.disconnect()
        await asyncio.sleep(self.random.random() * 0.3)

    def took(self, partitions: set[int], heard_since: float) -> None:
        """These are ours, by an answer to what was sent at that time, and no others."""
        owners = self.world.owners(self.group)
        owners.give_up(self.name, self.owned - partitions)
        until = heard_since + self.world.conditions.session_timeout
        owners.take(self.name, partitions, self.world.now(), until)
        if partitions != self.owned:
            self.world.counts["assignments"] += 1
            self.world.trace(self.name, "owns", sorted(partitions))
        self.owned = partitions
        self.positions = {place: at for place, at in self.positions.items() if place[1] in partitions}

    def still_there(self, heard_since: float) -> None:
        until = heard_since + self.world.conditions.session_timeout
        self.world.owners(self.group).confirm(self.name, until)

    # --- reading and committing

    async def work(self) -> None:
        missing = [partition for partition in sorted(self.owned) if (MAIN, partition) not in self.positions]
        if missing:
            await self._find_places(missing)
        if not self.positions:
            return
        following = await self.poll(self.positions)
        owned = self.owned
        for place, position in following.items():
            if place[1] not in owned:
                continue
            if position is None:
                del self.positions[place]
            else:
                self.positions[place] = position
        if self.positions and self.random.random() < 0.4:
            await self._commit()

    async def _find_places(self, partitions: list[int]) -> None:
        found = await self.committed(self.group, partitions, self.member_id or None, self.epoch)
        for partition, offset in (found or {}).items():
            place = (MAIN, partition)
            position = offset
            if offset < self.world.truth.bounds(*place).start:
                earliest = await self.list_offset(place, EARLIEST)
                if earliest is None:
                    continue
                position = earliest[0]
            if partition in self.owned:
                self.sought.add(place)
                self.positions[place] = position

    async def _commit(self) -> None:
        error = await self.commit(self.group, self.positions, self.member_id, self.epoch)
        if error:
            self.world.expect(self.name, "OffsetCommit", error, f"{_LATER} {OUTDATED} {UNKNOWN}")
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.give_up_partitions()
                self.member_id, self.epoch = "", -1
