"""How old the first unread record of each of some groups is, by Kafka's protocol alone: for a list of groups.

Of a group, the partitions that lag most are looked at, and a record is fetched once: as long as the group has
not moved, its time stands.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from dray.client import ClientError, RequestFailed
from dray.client.cluster import Place
from dray.client.records import LATEST
from dray.inspection.brokers import Brokers
from dray.inspection.groups import RecordTimes, group_calls

PARTITIONS: Final = 4
"""So many partitions of a group are looked at."""
_AT_ONCE: Final = 8


class GroupAges:
    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._times: dict[tuple[Place, int], int | None] = {}

    async def look(self, names: Sequence[str]) -> Mapping[str, int]:
        """Milliseconds by group; 0 where it has read everything. A group whose time is not known is left
        out."""
        try:
            committed = await group_calls(self._brokers).committed_of(names)
            topics = sorted({place[0] for found in committed.values() for place in found or ()})
            if not topics:
                return {}
            metadata = await self._brokers.metadata(topics)
            ends = await self._brokers.offsets(metadata, LATEST)
        except (ClientError, RequestFailed):
            return {}
        behind = {name: _furthest(found, ends) for name, found in committed.items() if found}
        await self._read({each for places in behind.values() for each in places})
        now = self._brokers.runtime.wall_ms()
        ages: dict[str, int] = {}
        for name, places in behind.items():
            times = [time for each in places if (time := self._times.get(each)) is not None]
            if not places:
                ages[name] = 0
            elif times:
                ages[name] = max(0, now - min(times))
        return ages

    async def _read(self, wanted: set[tuple[Place, int]]) -> None:
        self._times = {each: time for each, time in self._times.items() if each in wanted}
        records = RecordTimes(self._brokers)
        gate = asyncio.Semaphore(_AT_ONCE)

        async def one(each: tuple[Place, int]) -> None:
            (topic, partition), offset = each
            async with gate:
                self._times[each] = await records.time_of(topic, partition, offset)

        await asyncio.gather(*(one(each) for each in sorted(wanted - self._times.keys())))


def _furthest(committed: Mapping[Place, int], ends: Mapping[Place, int]) -> list[tuple[Place, int]]:
    """The places that lag most, with what is committed."""
    lags = {place: ends[place] - offset for place, offset in committed.items() if place in ends}
    lagging = sorted((place for place, lag in lags.items() if lag > 0), key=lambda place: -lags[place])
    return [(place, committed[place]) for place in lagging[:PARTITIONS]]
