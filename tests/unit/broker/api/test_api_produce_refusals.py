"""A batch that was refused on one connection may come through another broker: then nothing waits for it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.broker.api.fakes import Harness, batch

from dray.broker.api.produce import handler as produce_api
from dray.broker.topics import NewTopic, Topic, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.log.types import ActiveProducer, LogError, LogUnavailable

NOW = 1_750_000_000_000
PRODUCER = 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
LAST = 2**31 - 1


class Connected:
    """A client's connection, on which the batch of a sequence was refused."""

    def __init__(self, broker: Harness, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
        self.broker = broker
        self.topic = topic
        self.known: list[ActiveProducer] | LogError = []
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(broker.log, "producers", self._producers)

    async def _producers(self, stream: int) -> list[ActiveProducer]:
        assert stream == self.topic.streams[0]
        if isinstance(self.known, LogError):
            raise self.known
        return self.known

    async def send(self, sequence: int, epoch: int = 0) -> int:
        records = batch(
            b"value", now_ms=NOW, producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence
        )
        data = TopicProduceData(self.topic.topic_id, self.topic.name, [PartitionProduceData(0, records)])
        answer: Any = await self.broker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), 9)
        return int(answer.responses[0].partition_responses[0].error_code)

    async def refuse(self, sequence: int) -> None:
        async def away(*_: object, **__: object) -> None:
            raise TopicsUnavailable("the store is away")

        with self._monkeypatch.context() as patch:
            patch.setattr(produce_api, "find_topic", away)
            patch.setattr(self.broker.topics, "cached", lambda _: None)
            assert await self.send(sequence) == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.fixture
async def connected(broker: Harness, monkeypatch: pytest.MonkeyPatch) -> Connected:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    topic = await broker.topics.create(NewTopic("orders", 1))
    return Connected(broker, topic, monkeypatch)


@pytest.mark.parametrize(("refused", "stored"), [(0, 0), (0, 3), (7, 8), (LAST, LAST), (LAST, 2)])
async def test_what_came_through_another_broker_is_waited_for_no_longer(
    connected: Connected, refused: int, stored: int
) -> None:
    await connected.refuse(refused)
    following = (stored + 1) % 2**31
    assert await connected.send(following) == OUT_OF_ORDER
    connected.known = [ActiveProducer(PRODUCER, 0, stored, NOW)]
    assert await connected.send(following) == 0
    assert not connected.broker.connection.state, "nothing is remembered any longer"


@pytest.mark.parametrize(
    "known",
    [
        [],
        [ActiveProducer(PRODUCER, 0, 4, NOW)],  # up to before it
        [ActiveProducer(PRODUCER, 1, 9, NOW)],  # of another epoch
        [ActiveProducer(PRODUCER + 1, 0, 9, NOW)],
        LogUnavailable("the store is away"),
    ],
    ids=["unknown", "before", "epoch", "another", "away"],
)
async def test_what_the_log_does_not_have_is_still_waited_for(
    connected: Connected, known: list[ActiveProducer] | LogError
) -> None:
    await connected.refuse(5)
    connected.known = known
    assert await connected.send(6) == OUT_OF_ORDER
    assert await connected.send(5) == 0
    assert await connected.send(6) == 0
