"""A writer to a topic that moves: at the source, at Dray, and back, until an answer comes.

A producer keeps its id and its numbers on both sides, as one behind a forwarder does: what one side has
acknowledged is known at the other, or it is there twice.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Final

from dray.kafka.client.cluster import Address
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from dray.kafka.records import twin
from dray.kafka.records.header import TRANSACTIONAL
from dray.log.origins import CLASSIC
from dray_simulation.checks.log_truth import Violation
from dray_simulation.checks.payload import batch_of, record_of, values_of
from dray_simulation.cluster.client import SimulatedClient, Unanswered
from dray_simulation.kernel.runtime import true_wall_ms
from dray_simulation.moves.classic_cluster import ADDRESSES

if TYPE_CHECKING:
    from dray_simulation.moves.run import Move

_FIRST_ID: Final = 100
_TRANSACTIONAL_ID: Final = 90
_LATE_ID: Final = 80
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


class SourceClient(SimulatedClient):
    """Speaks to the source's brokers."""

    def __init__(self, move: Move, name: str, seed: int) -> None:
        super().__init__(move.world, name, seed)

    def any_address(self) -> Address:
        return self.random.choice(ADDRESSES)

    def address_for(self, topic: str, partition: int) -> Address:
        return self.view.leader(topic, partition) or self.any_address()


class MovingProducer:
    """One partition's. `number` also makes its id."""

    def __init__(self, move: Move, number: int, partition: int, seed: int) -> None:
        self._move = move
        self._partition = partition
        self._id = _FIRST_ID + number
        self._sides: dict[bool, SimulatedClient] = {  # whether it is the source's
            True: SourceClient(move, f"producer {number} at the source", seed),
            False: SimulatedClient(move.world, f"producer {number}", seed + 1),
        }
        self._random = self._sides[True].random
        self._at_source = True
        self._epoch = 0
        self._number = 0
        self._sequence = 0
        self._last = b""

    async def play(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(self._move.conditions.records_a_second))
            data, values = self._next()
            offset = await self._until_acknowledged(data)
            if offset is None:  # the source has lost what it had acknowledged: it begins anew
                self._epoch, self._number, self._sequence = self._epoch + 1, 0, 0
                continue
            self._move.acknowledged(self._partition, offset, values, by_source=self._at_source)
            self._number += 1
            self._sequence += len(values)

    def _next(self) -> tuple[bytes, list[bytes]]:
        name, count = f"p{self._id}.{self._epoch}", self._random.randint(1, 3)
        data = batch_of(name, self._number, count, self._id, self._epoch, self._sequence)
        return bytes(data), values_of(name, self._number, count)

    async def _until_acknowledged(self, data: bytes) -> int | None:
        is_fresh = False  # whether it is the first request of its connection
        while True:
            answer = await self._ask(data)
            error = None if answer is None else ErrorCode(answer.error_code)
            if answer is not None and error is ErrorCode.NONE:
                return answer.base_offset
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._move.conditions.is_unclean:
                return None
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not (is_fresh or self._at_source):
                # A connection remembers a batch that timed out, and not that it came by another one since.
                self._sides[False].disconnect()
                is_fresh = True
                continue
            is_fresh = False
            if error is not None:
                self._move.world.errors[f"ProduceRequest: {error.name}"] += 1
                if error not in _PASSING:
                    raise Violation(f"a good batch of producer {self._id} was refused with {error.name}")
            self._choose_side(error)
            await asyncio.sleep(self._random.uniform(0, 0.05))

    def _choose_side(self, error: ErrorCode | None) -> None:
        if self._at_source:
            fenced = error is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            self._at_source = self._random.random() < (0.2 if fenced else 0.9)
        else:
            self._at_source = self._random.random() < 0.6

    async def _ask(self, data: bytes) -> PartitionProduceResponse | None:
        client, topic = self._sides[self._at_source], self._move.source.topic
        try:
            if topic not in client.topic_ids or self._random.random() < 0.3:
                await client.look_around(topic)
            wanted = TopicProduceData(
                topic_id=client.topic_ids.get(topic, ZERO_UUID),
                name=topic,
                partition_data=[PartitionProduceData(index=self._partition, records=data)],
            )
            request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[wanted])
            response = await client.ask(client.address_for(topic, self._partition), request)
        except Unanswered:
            return None
        return response.responses[0].partition_responses[0]


class SilentProducer(MovingProducer):
    """It wrote before the topic was linked, and its records are gone since. It comes back, to Dray, when that
    owns the partition: it sends its last batch again, as it never heard of it, and goes on."""

    def write_past(self) -> None:
        found = self._move.source.partitions[self._partition]
        for _ in range(self._random.randint(1, 7)):
            self._last, values = self._next()
            found.append(self._last)
            found.replicated(found.end)
            self._number += 1
            self._sequence += len(values)

    async def play(self) -> None:
        truth = self._move.truth
        stream = truth.stream_of(self._partition)
        truth.is_gone(self._partition, f"p{self._id}.{self._epoch}", self._number - 1)
        while True:
            await asyncio.sleep(0.1)
            if truth.boundaries[stream] != CLASSIC:
                break
        self._at_source = False
        offset = await self._until_acknowledged(self._last)
        if offset != -1:
            raise Violation(f"a retry of producer {self._id}, whose records are gone, was put at {offset}")
        self._move.world.counts["retries of what is gone"] += 1
        await super().play()

    def _choose_side(self, error: ErrorCode | None) -> None:
        """It was restarted with Dray's address."""


class LateWriter:
    """At the source only, and once for each time that a switch has looked at the producers: what it writes
    then is behind the end that the switch has measured."""

    def __init__(self, move: Move, partition: int, seed: int) -> None:
        self._move = move
        self._partition = partition
        self._random = Random(seed)
        self._id = _LATE_ID + partition
        self._sequence = 0

    async def play(self) -> None:
        source = self._move.source
        while True:
            await source.compared.wait()
            await asyncio.sleep(self._random.uniform(0, 0.3))
            source.compared.clear()
            name = f"p{self._id}.0"
            data = bytes(batch_of(name, self._sequence, 1, self._id, 0, self._sequence))
            leader = source.partitions[self._partition].leadership.leader
            error, offset = await source.write(leader, self._partition, data)
            if error is ErrorCode.NONE:
                values = values_of(name, self._sequence, 1)
                self._move.acknowledged(self._partition, offset, values, by_source=True)
                self._sequence += 1


class TransactionalWriter:
    """At the source only: transactions cannot move. It writes, and commits or aborts, until it is fenced;
    what it has begun then is ended by its coordinator."""

    def __init__(self, move: Move, partition: int, seed: int) -> None:
        self._move = move
        self._partition = partition
        self._client = SourceClient(move, f"transactions of {partition}", seed)
        self._random = self._client.random
        self._id = _TRANSACTIONAL_ID + partition
        self._sequence = 0

    async def play(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(self._random.expovariate(self._move.conditions.records_a_second / 3))
            written: list[bytes] = []
            for _ in range(self._random.randint(1, 3)):
                number += 1
                values = await self._write(number)
                if values is None:
                    break
                written += values
                await asyncio.sleep(self._random.uniform(0, 0.1))
            aborts = self._random.random() < 0.5
            if aborts:
                self._move.truth.ledger.aborted(written)
            await self._move.source.end_transaction(
                self._partition, self._id, 0, true_wall_ms(), aborts=aborts
            )
            self._move.world.counts["transactions aborted" if aborts else "transactions committed"] += 1

    async def _write(self, number: int) -> list[bytes] | None:
        """None once it is fenced."""
        name = f"plaintx{self._id}"
        values = values_of(name, number, self._random.randint(1, 2))
        records = [record_of((name, number, place), place) for place in range(len(values))]
        data = bytes(
            twin.encode(
                records,
                attributes=TRANSACTIONAL,
                producer_id=self._id,
                producer_epoch=0,
                base_sequence=self._sequence,
            )
        )
        source = self._move.source
        while True:
            leader = source.partitions[self._partition].leadership.leader
            error, offset = await source.write(leader, self._partition, data)
            if error is ErrorCode.NONE:
                break
            if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return None
            await asyncio.sleep(0.01)
        self._sequence += len(values)
        self._move.acknowledged(self._partition, offset, values, by_source=True)
        return values
