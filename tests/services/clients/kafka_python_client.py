"""kafka-python: idempotent by default, new versions of every API."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.services.clients.contract import SECONDS, TIMESTAMP_TYPES, Client, Message
from tests.services.clients.reader import Found, Place, PollingReader, Reading


class KafkaPython(Client):
    @classmethod
    def can_write(cls, message: Message) -> bool:
        headers_have_values = all(value is not None for _, value in message.headers)
        return headers_have_values and not (message.key is None and message.value is None)

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            max_request_size=20_000_000,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=None if message.timestamp < 0 else message.timestamp,
                )
                for message in messages
            ]
            return [future.get(timeout=SECONDS).offset for future in futures]
        finally:
            producer.close(timeout=5)

    def fetch(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Message]:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            enable_auto_commit=False,
            group_id=None,
            max_partition_fetch_bytes=20_000_000,
        )
        try:
            assigned = TopicPartition(topic, partition)
            consumer.assign([assigned])
            consumer.seek(assigned, start)
            messages: list[Message] = []
            deadline = time.monotonic() + SECONDS
            while len(messages) < count:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"kafka-python: {len(messages)} of {count} messages came")
                polled = consumer.poll(timeout_ms=500, max_records=count - len(messages))
                messages += [message_from(received) for received in polled.get(assigned, [])]
            return messages
        finally:
            consumer.close(autocommit=False)


class KafkaPythonReader(PollingReader):
    """Without a group: on a machine with far too much to do it was once seen to ask for one in vain."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._consumer = KafkaConsumer(
            bootstrap_servers=reading.bootstrap,
            group_id=None,
            isolation_level=reading.isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=reading.fetch_bytes,
        )
        self._consumer.assign(
            [
                TopicPartition(topic, partition)
                for topic in reading.topics
                for partition in sorted(self._consumer.partitions_for_topic(topic))
            ]
        )

    def poll(self) -> tuple[Place, Message] | None:
        for place, [received] in self._consumer.poll(timeout_ms=100, max_records=1).items():
            return (place.topic, place.partition), message_from(received)
        return None

    def pause(self, place: Place) -> None:
        self._consumer.pause(TopicPartition(*place))

    def resume(self, places: Iterable[Place]) -> None:
        self._consumer.resume(*(TopicPartition(*place) for place in places))

    def move(self, place: Place, offset: int) -> None:
        self._consumer.seek(TopicPartition(*place), offset)

    def first_at(self, times: Mapping[Place, int]) -> dict[Place, Found]:
        answers = self._consumer.offsets_for_times(
            {TopicPartition(*place): at for place, at in times.items()}
        )
        return {
            (place.topic, place.partition): found and (found.offset, found.timestamp)
            for place, found in answers.items()
        }

    def close(self) -> None:
        self._consumer.close(autocommit=False)


def message_from(received: Any) -> Message:
    return Message(
        key=received.key,
        value=received.value,
        headers=tuple(received.headers),
        timestamp=received.timestamp,
        offset=received.offset,
        timestamp_type=TIMESTAMP_TYPES[received.timestamp_type],
    )
