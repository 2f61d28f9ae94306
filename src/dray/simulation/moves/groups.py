"""A consumer group of a topic that moves: at the source as long as it has members there, then at Dray.

What it has committed never goes back, on whichever side. Once it is Dray's, whatever is committed at the
source (by a consumer that was forgotten there) is not copied any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from dray.groups.followed import CopyState, decode_copy
from dray.log.origins import CLASSIC
from dray.metadata import keys
from dray.protocol import ZERO_UUID, ErrorCode
from dray.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from dray.simulation.checks.log_truth import Violation
from dray.simulation.cluster.client import SimulatedClient, Unanswered
from dray.simulation.moves.classic_groups import SourceMembers

if TYPE_CHECKING:
    from dray.simulation.moves.run import Move

_LATER: Final = (
    "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR REQUEST_TIMED_OUT "
    "UNKNOWN_TOPIC_OR_PARTITION UNKNOWN_TOPIC_ID UNKNOWN_SERVER_ERROR UNKNOWN_MEMBER_ID GROUP_ID_NOT_FOUND"
)


class MovingGroup(SimulatedClient):
    """Of one partition."""

    def __init__(self, move: Move, name: str, seed: int) -> None:
        super().__init__(move.world, name, seed)
        self._move = move
        self._partition = self.random.randrange(len(move.streams))
        self._there = move.source.groups.known.setdefault(name, SourceMembers(members=1))
        self._has_worked_here = False
        self._least = -1  # what was committed and acknowledged, on either side

    async def play(self) -> None:
        for _ in range(self.random.randint(3, 40)):
            await asyncio.sleep(self.random.uniform(0, 0.3))
            self._least = max(
                self._least, self._read_to(self._move.source.partitions[self._partition].last_stable)
            )
            self._there.committed[self._partition] = self._least
        while True:
            await asyncio.sleep(0.1)
            if self._is_known():
                break
        self._there.members = 0
        if self._move.conditions.forgets_consumers:
            await self._leave_one_behind()
        while True:
            await asyncio.sleep(self.random.uniform(0, 0.3))
            try:
                await self._work_here()
            except Unanswered:
                continue

    def _is_known(self) -> bool:
        """Whether a migrator has ever copied it: what begins at the source and comes here at once is taken
        for a group that the source never had."""
        return keys.followed_group(self.name) in self.world.keys(keys.FOLLOWED_GROUPS)

    def _forget_what_was_lost(self) -> None:
        """After an unclean election the source ends below what the group had read: it goes on there."""
        lost = self._move.source.partitions[self._partition].lost
        boundary = self._move.truth.boundaries[self._move.streams[self._partition]]
        if self._has_worked_here or boundary == CLASSIC:
            return
        if any(offset >= boundary for offset, _ in lost):
            self._least = min(self._least, boundary)

    async def _leave_one_behind(self) -> None:
        """A consumer without a group, forgotten at the source, goes back to the start as soon as the group is
        Dray's, and before any of its members has come here."""
        while True:
            await asyncio.sleep(0.02)
            if self._has_moved():
                break
        self._there.committed[self._partition] = 0
        self.world.counts["consumers left behind"] += 1
        await asyncio.sleep(self.random.uniform(0.5, 1.5))

    def _has_moved(self) -> bool:
        domain = keys.domain_of_group(self.name, self._move.conditions.domains)
        entries = self.world.state.domain(domain, self.world.now()).entries
        found = entries[keys.followed_group(self.name)].record.value
        return decode_copy(self.name, found).state is CopyState.MOVED

    def _read_to(self, end: int) -> int:
        return self.random.randint(max(self._least, 0), max(self._least, end, 0))

    async def _work_here(self) -> None:
        address = await self.find_coordinator(self.name)
        if address is None:
            return
        found = await self._fetch(address)
        if found is None:
            return
        self._forget_what_was_lost()
        if found < self._least:
            raise Violation(f"{self.name}: {self._least} was committed, and {found} is what Dray says")
        self._has_worked_here = True
        self.world.counts["groups at Dray"] += 1
        self._there.committed[self._partition] = 0  # by one that was forgotten there: nothing follows it
        wanted = self._read_to(len(self._move.truth.streams[self._move.streams[self._partition]].records))
        if await self._commit(address, wanted):
            self._least = wanted

    async def _fetch(self, address: tuple[str, int]) -> int | None:
        topic = self._move.source.topic
        if topic not in self.topic_ids and not await self.look_around(topic):
            return None
        topic_id = self.topic_ids.get(topic, ZERO_UUID)
        wanted = OffsetFetchRequestTopics(topic_id, topic, [self._partition])
        request = OffsetFetchRequest(
            group_id=self.name,
            topics=[OffsetFetchRequestTopic(topic, [self._partition])],
            groups=[OffsetFetchRequestGroup(self.name, topics=[wanted])],
        )
        answer = await self.ask(address, request)
        group = answer.groups[0] if self.version(request) >= 8 else answer
        if group.error_code:
            self.world.expect(self.name, "OffsetFetch", group.error_code, _LATER)
            return None
        [part] = group.topics[0].partitions
        if part.error_code:
            self.world.expect(self.name, "OffsetFetch", part.error_code, _LATER)
            return None
        return part.committed_offset

    async def _commit(self, address: tuple[str, int], offset: int) -> bool:
        topic = self._move.source.topic
        part = OffsetCommitRequestPartition(partition_index=self._partition, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self.name,
            topics=[
                OffsetCommitRequestTopic(
                    topic_id=self.topic_ids.get(topic, ZERO_UUID), name=topic, partitions=[part]
                )
            ],
        )
        answer = await self.ask(address, request)
        [found] = answer.topics[0].partitions
        if found.error_code != ErrorCode.NONE:
            self.world.expect(self.name, "OffsetCommit", found.error_code, _LATER)
            return False
        return True
