"""Simulated producers. Plain ones send a batch once; idempotent ones pipeline, and try until it is in."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from dray.kafka.client.cluster import Address
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from dray_simulation.checks.history import Write, WriteOutcome
from dray_simulation.checks.log_truth import Violation
from dray_simulation.checks.payload import batch_of, values_of
from dray_simulation.cluster.client import SimulatedClient, SimulatedConnection, Unanswered
from dray_simulation.cluster.conditions import MAIN, Place

_ALL = -1
# Errors that say that nothing was stored, and never will be.
_NOTHING_STORED = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}
_MAY_BE_STORED = {ErrorCode.REQUEST_TIMED_OUT}


@dataclass(slots=True)
class Batch:
    """The values that are to be written to a partition, and their bytes."""

    place: Place
    values: list[bytes]
    data: bytearray
    acknowledged: bool = False


class SimulatedProducer(SimulatedClient):
    """The common part of both kinds: sending, and judging what is answered."""

    def request_for(self, batches: Sequence[Batch]) -> ProduceRequest:
        topics: dict[str, TopicProduceData] = {}
        for batch in batches:
            name, partition = batch.place
            data = topics.setdefault(
                name, TopicProduceData(topic_id=self.topic_ids.get(name, ZERO_UUID), name=name)
            )
            data.partition_data.append(PartitionProduceData(index=partition, records=batch.data))
        return ProduceRequest(acks=_ALL, timeout_ms=1000, topic_data=list(topics.values()))

    def sending(self, batch: Batch) -> float:
        """Write down that it is under way: it may be read before its sender hears of it, if ever."""
        self.world.under_way[self.name, batch.values[0]] = (batch.place, batch.values, self.world.now())
        return self.world.now()

    def heard(self, batch: Batch, sent: float, answer: PartitionProduceResponse | None) -> ErrorCode | None:
        """Write down what became of a batch. None where that is not known."""
        name, partition = batch.place
        self.world.under_way.pop((self.name, batch.values[0]), None)
        error = None if answer is None else ErrorCode(answer.error_code)
        outcome, offset = WriteOutcome.UNKNOWN, -1
        stream: int | None = None
        if answer is not None and error is ErrorCode.NONE:
            outcome, offset = WriteOutcome.DONE, answer.base_offset
            stream = self.world.truth.acknowledged(name, partition, offset, batch.values)
            batch.acknowledged = True
            self.world.counts["acknowledged"] += 1
            self.world.trace(self.name, "wrote", batch.values[0], "at", f"{name}-{partition}:{offset}")
        elif error in _NOTHING_STORED:
            outcome = WriteOutcome.FAILED
        elif error is not None and error not in _MAY_BE_STORED:
            raise Violation(f"{self.name}: a good batch was refused with {error.name}")
        if error:
            self.world.errors[f"ProduceRequest: {error.name}"] += 1
        for where in self.world.truth.streams_of(name, partition) if stream is None else [stream]:
            write = Write(self.name, where, tuple(batch.values), sent, self.world.now(), outcome, offset)
            self.world.history.writes.append(write)
        return error


class PlainProducer(SimulatedProducer):
    """Sends to several partitions at once, each batch once: what is not acknowledged may be there or not."""

    async def play(self) -> None:
        number = 0
        while True:
            await asyncio.sleep(self.random.random() * self.world.conditions.pace)
            places = self.random.sample(
                self.world.places, k=min(self.world.conditions.breadth, len(self.world.places))
            )
            try:
                if not await self._knows(places):
                    continue
                batches = []
                for place in places:
                    number += 1
                    count = self.random.randint(1, 3)
                    producer = f"plain{self.name}"
                    batches.append(
                        Batch(place, values_of(producer, number, count), batch_of(producer, number, count))
                    )
                await self._write(batches)
            except Unanswered:
                continue

    async def _knows(self, places: Sequence[Place]) -> bool:
        names = sorted({name for name, _ in places})
        if all(name in self.topic_ids for name in names) and self.random.random() < 0.95:
            return True
        return await self.look_around(*names)

    async def _write(self, batches: list[Batch]) -> None:
        sent = min(self.sending(batch) for batch in batches)
        request = self.request_for(batches)
        answers: dict[Place, PartitionProduceResponse] = {}
        try:
            response = await self.ask(self.address_for(*batches[0].place), request)
            names = {topic.topic_id: topic.name for topic in request.topic_data}
            for topic in response.responses:
                name = topic.name or names[topic.topic_id]
                answers.update({(name, one.index): one for one in topic.partition_responses})
        finally:
            for batch in batches:
                error = self.heard(batch, sent, answers.get(batch.place))
                if error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                    self.topic_ids.pop(batch.place[0], None)


class IdempotentProducer(SimulatedProducer):
    """Several batches in flight to each of its partitions, in order; what failed is sent again, to any
    broker, also while the first attempt is still under way. Now and then it takes a new id and forgets what
    it had."""

    async def play(self) -> None:
        while not await self._is_known():
            continue
        places = [place for place in self.world.places if place[0] == MAIN]
        self.random.shuffle(places)
        async with asyncio.TaskGroup() as group:
            for place in places[:2]:
                group.create_task(self._play_partition(place))

    async def _is_known(self) -> bool:
        await asyncio.sleep(0.01)
        try:
            return await self.look_around(MAIN)
        except Unanswered:
            return False

    async def _play_partition(self, place: Place) -> None:
        conditions = self.world.conditions
        while True:
            producer_id = await self._new_id()
            name = f"p{producer_id}.0"
            window: deque[Batch] = deque()
            number = sequence = 0
            while self.random.random() > 0.02:
                await asyncio.sleep(self.random.random() * conditions.pace)
                while len(window) < self.random.randint(1, conditions.window):
                    count = self.random.randint(1, 3)
                    data = batch_of(name, number, count, producer_id, 0, sequence)
                    window.append(Batch(place, values_of(name, number, count), data))
                    number, sequence = number + 1, sequence + count
                await self._send(list(window))
                while window and window[0].acknowledged:
                    window.popleft()

    async def _new_id(self) -> int:
        while True:
            try:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
                answer = await self.ask(self.any_address(), request)
            except Unanswered:
                await asyncio.sleep(0.05)
                continue
            if not answer.error_code:
                self.world.truth.producer_id(answer.producer_id)
                self.world.counts["producer ids"] += 1
                return answer.producer_id
            self.world.expect(self.name, "InitProducerId", answer.error_code, "COORDINATOR_LOAD_IN_PROGRESS")

    async def _send(self, batches: list[Batch]) -> None:
        address: Address = self.address_for(*batches[0].place)
        try:
            connection = await self.connect(address)
        except Unanswered:
            await self._look_again()
            return
        sending = [(batch, self.sending(batch), self._begin(connection, batch)) for batch in batches]
        in_order = True
        for batch, sent, (request, frame) in sending:
            try:
                response = await self.answer(connection, frame, request)
            except Unanswered:
                self.heard(batch, sent, None)
                in_order = False
                continue
            error = self.heard(batch, sent, response.responses[0].partition_responses[0])
            if error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and in_order:
                raise Violation(f"{self.name}: {batch.values[0]!r} was refused, though in order")
            in_order = in_order and not error

    def _begin(
        self, connection: SimulatedConnection, batch: Batch
    ) -> tuple[ProduceRequest, asyncio.Future[memoryview]]:
        request = self.request_for([batch])
        return request, self.send(connection, request)

    async def _look_again(self) -> None:
        try:
            await self.look_around(MAIN)
        except Unanswered:
            await asyncio.sleep(0.05)
