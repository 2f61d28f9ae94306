"""Readers, at Dray, of a topic that moves, and a consumer group of it.

A reader reads committed records as Java's consumer does, from the start, again and again. Whatever the source
has aborted is not seen, and all else is, as it was sent, at its offset.

A group is at the source as long as it has members there, then at Dray. Its committed offsets never go back,
on whichever side. Once it is Dray's, whatever is committed at the source (by a consumer that was forgotten
there) is not copied any more.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from dray.kafka.client.records import joined
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from dray.kafka.records import decode
from dray.log.origins import CLASSIC
from dray.metadata import keys
from dray.migration.entries.pieces import as_data
from dray.migration.formats.batches import walk_batches
from dray.migration.groups.copy import CopyState, decode_copy
from dray_simulation.checks.log_truth import Violation, identity_of
from dray_simulation.cluster.client import SimulatedClient, Unanswered
from dray_simulation.moves.classic_groups import SourceMembers
from dray_simulation.moves.truth import HOLE

if TYPE_CHECKING:
    from dray_simulation.moves.run import Move

_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
_READ_COMMITTED: Final = 1
_ATTEMPTS: Final = 60


class CommittedReader(SimulatedClient):
    def __init__(self, move: Move, partition: int, seed: int) -> None:
        super().__init__(move.world, f"reader of {partition}", seed)
        self._move = move
        self._partition = partition

    async def play(self) -> None:
        while True:
            await self.read_all()
            await asyncio.sleep(self.random.uniform(0, 0.5))

    async def read_all(self, attempts: int | None = None) -> None:
        """From the start to the end as it is now. Raises `Violation` where that takes more than so many
        attempts."""
        stream = self._move.streams[self._partition]
        truth = self._move.truth.streams[stream]
        end, position, failed = len(truth.records), truth.start, 0
        while position < end:
            following = await self._poll(position)
            if following is not None:
                position = following
                continue
            failed += 1
            if attempts is not None and failed > attempts:
                raise Violation(
                    f"partition {self._partition}: nothing comes at {position}, and {end} is the end"
                )
            position = max(position, truth.start)
            await asyncio.sleep(0.1)

    async def _poll(self, position: int) -> int | None:
        """The next position; None where no answer came that says it."""
        topic = self._move.source.topic
        try:
            if topic not in self.topic_ids:
                await self.look_around(topic)
            asked = FetchPartition(
                partition=self._partition,
                fetch_offset=position,
                partition_max_bytes=self.random.choice((1, 1 << 20)),
            )
            wanted = FetchTopic(
                topic_id=self.topic_ids.get(topic, ZERO_UUID), topic=topic, partitions=[asked]
            )
            request = FetchRequest(
                max_wait_ms=100,
                min_bytes=1,
                max_bytes=1 << 20,
                isolation_level=_READ_COMMITTED,
                topics=[wanted],
            )
            answer = await self.ask(self.address_for(topic, self._partition), request)
        except Unanswered:
            return None
        found = answer.responses[0].partitions[0] if answer.responses else None
        if found is None or found.error_code in _PASSING:
            self.topic_ids.pop(topic, None)
            return None
        stream = self._move.streams[self._partition]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if position >= self._move.truth.streams[stream].start:
                raise Violation(f"partition {self._partition}: {position} was out of range")
            return None
        if found.error_code:
            raise Violation(
                f"partition {self._partition}: {ErrorCode.name_of(found.error_code)} at {position}"
            )
        return self._take(position, found)

    def _take(self, position: int, found: Any) -> int | None:
        data = joined(found.records)
        ahead = sorted((each.first_offset, each.producer_id) for each in found.aborted_transactions or ())
        aborted: set[int] = set()
        before = position
        for batch in walk_batches(data):
            while ahead and ahead[0][0] <= batch.last_offset:
                aborted.add(ahead.pop(0)[1])
            producer = batch.header.producer_id
            if batch.is_control:
                aborted.discard(producer)
            elif not (batch.is_transactional and producer in aborted):
                plain = as_data(data[batch.position : batch.end])
                for record in decode(plain, sparse=True).records():
                    if record.offset >= position:
                        self._skip(position, record.offset)
                        self._see(record.offset, record.value or b"")
                        position = record.offset + 1
            self._skip(position, batch.last_offset + 1)
            position = max(position, batch.last_offset + 1)
        return position if position > before else None

    def _see(self, offset: int, value: bytes) -> None:
        self._move.world.counts["consumed"] += 1
        if self._move.truth.ledger.is_aborted(value):
            raise Violation(f"partition {self._partition}: {value!r} was aborted, and was read at {offset}")
        records = self._move.truth.streams[self._move.streams[self._partition]].records
        if offset >= len(records) or records[offset] != identity_of(value):
            raise Violation(f"partition {self._partition}: {value!r} was read at {offset}")

    def _skip(self, position: int, offset: int) -> None:
        truth = self._move.truth.streams[self._move.streams[self._partition]]
        missed = [each for each in truth.records[max(position, truth.start) : offset] if each != HOLE]
        if missed:
            raise Violation(f"partition {self._partition}: a reader at {position} was not given {missed[0]}")


async def read_everything(move: Move) -> None:
    """All is calm: a reader that comes anew gets all there is."""
    for partition in range(len(move.streams)):
        await CommittedReader(move, partition, move.conditions.seed + partition).read_all(_ATTEMPTS)


# --- a consumer group

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
