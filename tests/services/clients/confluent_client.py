"""confluent-kafka: librdkafka, the client of most languages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Received

from tests.services.clients.contract import CREATE_TIME, LOG_APPEND_TIME, SECONDS, Client, Message
from tests.services.clients.reader import Found, Place, PollingReader, Reading


class Confluent(Client):
    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        offsets = [-1] * len(messages)
        errors: list[KafkaError] = []
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "message.timeout.ms": int(SECONDS * 1000),
                "message.max.bytes": 20_000_000,
            }
        )
        for position, message in enumerate(messages):

            def delivered(error: KafkaError | None, report: Received, position: int = position) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    offsets[position] = known(report.offset())

            producer.produce(
                topic,
                message.value,
                message.key,
                partition,
                on_delivery=delivered,
                timestamp=max(message.timestamp, 0),  # 0 stands for now
                headers=list(message.headers),
            )
        if producer.flush(SECONDS):
            raise TimeoutError("confluent-kafka: not every message was answered")
        if errors:
            raise KafkaException(errors[0])
        return offsets

    def fetch(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Message]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
            }
        )
        try:
            consumer.assign([TopicPartition(topic, partition, start)])
            messages: list[Message] = []
            deadline = time.monotonic() + SECONDS
            while len(messages) < count:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"confluent-kafka: {len(messages)} of {count} messages came")
                for received in consumer.consume(count - len(messages), timeout=0.5):
                    if received.error():
                        raise KafkaException(received.error())
                    messages.append(message_from(received))
            return messages
        finally:
            consumer.close()


class ConfluentReader(PollingReader):
    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        config: dict[str, Any] = {
            "bootstrap.servers": reading.bootstrap,
            "group.id": reading.group,
            "group.protocol": reading.protocol,
            "isolation.level": reading.isolation,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            "queued.min.messages": 1 if reading.little else 100_000,
            "fetch.queue.backoff.ms": 1,
            "max.partition.fetch.bytes": reading.fetch_bytes,
        }
        self._consumer = Consumer(config)
        self._consumer.subscribe(list(reading.topics))

    def poll(self) -> tuple[Place, Message] | None:
        received = self._consumer.poll(0.1)
        if received is None:
            return None
        if received.error():
            raise KafkaException(received.error())
        topic, partition = received.topic(), received.partition()
        assert topic is not None
        assert partition is not None
        return (topic, partition), message_from(received)

    def pause(self, place: Place) -> None:
        self._consumer.pause([TopicPartition(*place)])

    def resume(self, places: Iterable[Place]) -> None:
        self._consumer.resume([TopicPartition(*place) for place in places])

    def move(self, place: Place, offset: int) -> None:
        self._consumer.seek(TopicPartition(*place, offset))

    def first_at(self, times: Mapping[Place, int]) -> dict[Place, Found]:
        asked = [TopicPartition(*place, timestamp) for place, timestamp in times.items()]
        answers = self._consumer.offsets_for_times(asked, timeout=SECONDS)
        # The end (-1) stands for none.
        return {(one.topic, one.partition): None if one.offset < 0 else (one.offset, None) for one in answers}

    def close(self) -> None:
        self._consumer.close()


def known(offset: int | None) -> int:
    """Of a message that came or was delivered there is always an offset."""
    assert offset is not None
    return offset


def message_from(received: Received) -> Message:
    kind, timestamp = received.timestamp()
    return Message(
        key=received.key(),
        value=received.value(),
        headers=tuple(cast(list[tuple[str, bytes | None]], received.headers() or [])),
        timestamp=-1 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
        offset=known(received.offset()),
        timestamp_type=LOG_APPEND_TIME if kind == TIMESTAMP_LOG_APPEND_TIME else CREATE_TIME,
    )
