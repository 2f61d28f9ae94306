"""aiokafka: asyncio, and old versions of every API."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.services.clients.contract import SECONDS, TIMESTAMP_TYPES, Client, Message
from tests.services.clients.reader import Found, Place, PollingReader, Reading

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
                messages.append(message_from(await consumer.getone(assigned)))
            return messages
        finally:
            await consumer.stop()


class AioKafkaReader(PollingReader):
    """On a loop of its own, which goes on while its user does something else: heartbeats are sent there."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(reading)
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()
        self._consumer: Any = self._call(self._started())

    def _call(self, work: Coroutine[object, object, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    async def _started(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            *self.reading.topics,
            bootstrap_servers=self.reading.bootstrap,
            group_id=self.reading.group,
            isolation_level=self.reading.isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_partition_fetch_bytes=self.reading.fetch_bytes,
        )
        await consumer.start()
        return consumer

    def poll(self) -> tuple[Place, Message] | None:
        batches = self._call(self._consumer.getmany(timeout_ms=100, max_records=1))
        for place, [received] in batches.items():
            return (place.topic, place.partition), message_from(received)
        return None

    def pause(self, place: Place) -> None:
        self._call(self._do("pause", TopicPartition(*place)))

    def resume(self, places: Iterable[Place]) -> None:
        self._call(self._do("resume", *(TopicPartition(*place) for place in places)))

    def move(self, place: Place, offset: int) -> None:
        self._call(self._do("seek", TopicPartition(*place), offset))

    async def _do(self, name: str, *arguments: object) -> None:
        """What is no coroutine, but belongs onto the loop."""
        getattr(self._consumer, name)(*arguments)

    def first_at(self, times: Mapping[Place, int]) -> dict[Place, Found]:
        asked = {TopicPartition(*place): timestamp for place, timestamp in times.items()}
        answers = self._call(self._consumer.offsets_for_times(asked))
        return {
            (place.topic, place.partition): found and (found.offset, found.timestamp)
            for place, found in answers.items()
        }

    def close(self) -> None:
        self._call(self._consumer.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


def message_from(received: Any) -> Message:
    return Message(
        key=received.key,
        value=received.value,
        headers=tuple(received.headers),
        timestamp=received.timestamp,
        offset=received.offset,
        timestamp_type=TIMESTAMP_TYPES[received.timestamp_type],
    )
