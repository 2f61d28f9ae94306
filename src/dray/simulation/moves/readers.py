"""Who reads a topic that moves at Dray: as Java's consumer reads what is committed, from the start, again and
again. Whatever the source has aborted is not seen, and all else is, as it was sent, at its offset."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from dray.client.records import joined
from dray.foreign.batches import walk_batches
from dray.log.foreign_pieces import as_data
from dray.protocol import ZERO_UUID, ErrorCode
from dray.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.records import decode
from dray.simulation.checks.log_truth import Violation, identity_of
from dray.simulation.cluster.client import SimulatedClient, Unanswered
from dray.simulation.moves.truth import HOLE

if TYPE_CHECKING:
    from dray.simulation.moves.run import Move

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
                plain = as_data(data[batch.position : batch.end], with_producer=False)
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
