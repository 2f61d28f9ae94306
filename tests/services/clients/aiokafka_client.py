"""aiokafka: asyncio, and old versions of every API."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.services.clients.contract import SECONDS, Client, Message

Answer = TypeVar("Answer")


def run(work: Coroutine[object, object, Answer]) -> Answer:
    """Run to the end on a loop of its own, whether or not the caller has a loop."""

    async def bounded() -> Answer:
        return await asyncio.wait_for(work, SECONDS)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, bounded()).result()


class AioKafka(Client):
    @classmethod
    def can_write(cls, message: Message) -> bool:
        return not (message.key is None and message.value is None)

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        partition: int = 0,
        codec: str = "none",
        idempotent: bool = False,
    ) -> list[int]:
        return run(self._produce(topic, messages, partition, codec, idempotent))

    async def _produce(
        self, topic: str, messages: Sequence[Message], partition: int, codec: str, idempotent: bool
    ) -> list[int]:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap,
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            acks="all",
            max_request_size=20_000_000,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    message.value,
                    message.key,
                    partition,
                    None if message.timestamp < 0 else message.timestamp,
                    list(message.headers),
                )
                for message in messages
            ]
            return [report.offset for report in await asyncio.gather(*futures)]
        finally:
            await producer.stop()

    def fetch(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Message]:
        return run(self._fetch(topic, count, partition, start))

    async def _fetch(self, topic: str, count: int, partition: int, start: int) -> list[Message]:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, enable_auto_commit=False, max_partition_fetch_bytes=20_000_000
        )
        await consumer.start()
        try:
            assigned = TopicPartition(topic, partition)
            consumer.assign([assigned])
            consumer.seek(assigned, start)
            messages: list[Message] = []
            while len(messages) < count:
                received = await consumer.getone(assigned)
                messages.append(
                    Message(
                        key=received.key,
                        value=received.value,
                        headers=tuple(received.headers),
                        timestamp=received.timestamp,
                        offset=received.offset,
                    )
                )
            return messages
        finally:
            await consumer.stop()
