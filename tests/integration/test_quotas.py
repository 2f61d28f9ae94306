"""Quotas as people use them: set by `drayd admin`, felt by librdkafka, on two brokers of one cluster."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.services.brokers import Brokers
from tests.services.marks import longer
from tests.services.target import ON_KAFKA

from dray.kafka.client import KafkaConnection
from dray.kafka.client.access import alter_quotas, list_quotas

LIMIT = 200_000
BURST = 10
"""Seconds' worth that a client may send at once, if it was quiet."""
LEAST = 0.9 * LIMIT * 0.8 * BURST
"""What a short run has to get through: most of that."""
PATIENCE = 60.0
RECORD = b"x" * 1000

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="it is about Dray's own quotas")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("quotas"), 2) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for future in admin.create_topics([NewTopic("measured", 1)]).values():
            future.result(60)
        yield running


def set_quota(brokers: Brokers, entity: dict[str, str | None], **quotas: float) -> None:
    """Through one broker; returns when the other knows it too."""
    asyncio.run(_set_quota(brokers, entity, quotas))


async def _set_quota(brokers: Brokers, entity: dict[str, str | None], quotas: dict[str, float]) -> None:
    first, second = [
        await KafkaConnection.connect("127.0.0.1", process.port, client_id="quotas")
        for process in brokers.processes
    ]
    try:
        for connection in (first, second):
            await connection.negotiate()
        await alter_quotas(first, [(entity, quotas)])
        async with asyncio.timeout(60):
            while not await list_quotas(second, entity):  # noqa: ASYNC110 - another process learns of it
                await asyncio.sleep(0.1)
    finally:
        await first.close()
        await second.close()


class Sender:
    """A producer that sends as much as it can; `throttled` is the longest throttle time it was told."""

    def __init__(self, brokers: Brokers, client_id: str) -> None:
        self.sent = 0
        self.throttled = 0
        self.producer = Producer(
            {
                "bootstrap.servers": brokers.bootstrap,
                "client.id": client_id,
                "linger.ms": 5,
                "batch.size": 20_000,
                "max.in.flight": 5,
                "queue.buffering.max.messages": 500,
                "statistics.interval.ms": 100,
                "stats_cb": self._stats,
            }
        )

    def _stats(self, text: str) -> None:
        found = [broker["throttle"]["max"] for broker in json.loads(text)["brokers"].values()]
        self.throttled = max(self.throttled, *found)

    def send(self, topic: str = "measured") -> None:
        try:
            self.producer.produce(topic, RECORD, on_delivery=self._delivered)
            self.producer.poll(0)
        except BufferError:
            self.producer.poll(0.01)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is None or error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            assert error is None, error
            self.sent += len(RECORD)


@pytest.mark.parametrize("seconds", [5, longer(33)])
def test_a_producer_gets_its_rate_and_others_theirs(brokers: Brokers, seconds: int) -> None:
    set_quota(brokers, {"client-id": f"greedy-{seconds}"}, producer_byte_rate=LIMIT)
    greedy, other = Sender(brokers, f"greedy-{seconds}"), Sender(brokers, "modest")
    begun = time.monotonic()
    before_the_last = 0
    while (took := time.monotonic() - begun) < seconds or (
        took < PATIENCE and (greedy.sent < LEAST or other.sent < 200 * len(RECORD))
    ):
        greedy.send()
        if greedy.throttled and other.sent < 200 * len(RECORD):
            other.send()
            before_the_last = greedy.sent
    sent = greedy.sent
    assert greedy.throttled > 0, "librdkafka was told"
    assert sent <= LIMIT * (1.05 * took + BURST)
    assert sent >= (0.9 * LIMIT * took if seconds > 2 * BURST else LEAST)
    other.producer.flush(60)
    assert other.sent >= 200 * len(RECORD), f"not held up by a client that had sent {before_the_last}"
    assert other.throttled == 0
    greedy.producer.purge()
    assert greedy.producer.flush(60) == 0


@pytest.mark.parametrize("seconds", [5, longer(33)])
def test_a_consumer_gets_its_rate(brokers: Brokers, seconds: int) -> None:
    source = Sender(brokers, "source")
    while source.sent < LIMIT * (1.1 * seconds + BURST):
        source.send()
    source.producer.flush(60)
    client_id = f"reader-{seconds}"
    set_quota(brokers, {"client-id": client_id}, consumer_byte_rate=LIMIT)
    throttled = [0]

    def stats(text: str) -> None:
        found = [broker["throttle"]["max"] for broker in json.loads(text)["brokers"].values()]
        throttled[0] = max(throttled[0], *found)

    consumer = Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "client.id": client_id,
            "group.id": client_id,
            "statistics.interval.ms": 100,
            "stats_cb": stats,
        }
    )
    consumer.assign([TopicPartition("measured", 0, 0)])
    read, begun, last = 0, time.monotonic(), -1
    while (took := time.monotonic() - begun) < seconds or (took < PATIENCE and read < LEAST):
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            assert message.offset() == last + 1, "nothing is left out"
            last += 1
            read += len(message.value() or b"")
    consumer.close()
    assert throttled[0] > 0
    assert read <= LIMIT * (1.05 * took + BURST)
    assert read >= (0.9 * LIMIT * took if seconds > 2 * BURST else LEAST)


def test_an_address_makes_no_more_connections_than_it_may(brokers: Brokers) -> None:
    fast = "127.0.0.77"
    set_quota(brokers, {"ip": fast}, connection_creation_rate=2)
    host, port = brokers.processes[0].bootstrap.split(":")
    asked = bytes.fromhex("0000000e" + "00120000" + "00000001" + "0004") + b"test"
    answered, begun = 0, time.monotonic()
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection((host, int(port)), 30, source_address=(fast, 0)))
            for _ in range(40)
        ]
        for connection in connections:
            with suppress(ConnectionError):
                connection.sendall(asked)
                answered += bool(connection.recv(4))
    most = 20 + 2 * (time.monotonic() - begun) + 1
    assert 20 <= answered <= most, "ten seconds' worth at once, then two a second"
    AdminClient({"bootstrap.servers": brokers.processes[0].bootstrap}).list_topics(timeout=60)
