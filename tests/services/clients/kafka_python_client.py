"""kafka-python: idempotent by default, new versions of every API."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from tests.services.clients.contract import SECONDS, Client, Message


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
                messages += [
                    Message(
                        key=received.key,
                        value=received.value,
                        headers=tuple(received.headers),
                        timestamp=received.timestamp,
                        offset=received.offset,
                    )
                    for received in polled.get(assigned, [])
                ]
            return messages
        finally:
            consumer.close(autocommit=False)
