"""A log of Dray beside a real Kafka: streams that the source owns, its clients at work, what both serve."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from dray.base.runtime import SystemRuntime
from dray.kafka.client.cluster import Cluster
from dray.kafka.client.records import fetch, joined
from dray.kafka.records import HEADER_SIZE, read_header
from dray.log import Log
from dray.log.origins import CLASSIC
from dray.log.stream_store import StreamStore
from dray.log.types import ReadRequest
from dray.metadata.sqlite import SqliteStore
from dray.migration.entries.lay_down import AttachedStream, lay_down
from dray.migration.formats.batches import walk_batches
from dray.objects.local.store import LocalStore
from tests.services import room_settings
from tests.services.attached_log import AttachedLog
from tests.simulation.scripted import bucket_is_ours
from tests.unit.log.harness import DOMAINS
from tests.unit.migration.entries.foreign_harness import EPOCH
from tests.unit.migration.mirror.mirror_harness import committed_in


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(60)
    return producer


@asynccontextmanager
async def embedded_log(
    folder: Path, runtime: SystemRuntime, partitions: int, starts: Mapping[int, int] | None = None
) -> AsyncIterator[tuple[AttachedLog, dict[int, int]]]:
    """A log of Dray, with a stream for each partition that its source owns, from these offsets on."""
    store = SqliteStore(folder / "metadata.sqlite", runtime)
    await store.open()
    objects = await LocalStore.open(folder / "objects", runtime)
    log = AttachedLog(store, objects, runtime, DOMAINS, room_settings.log(), may_delete=bucket_is_ours)
    await log.start()
    try:
        streams = dict(enumerate(await log.take_stream_ids(partitions)))
        keys = StreamStore(store, DOMAINS, room_settings.log().producer_expiry_ms)
        for partition, stream in streams.items():
            start = (starts or {}).get(partition, 0)
            await lay_down(keys, stream, AttachedStream([], start, start, EPOCH, boundary=CLASSIC))
        yield log, streams
    finally:
        await log.stop()
        await store.close()


class Writers:
    """Clients of the source at work until they are fenced: an idempotent producer, and one with transactions
    of which it aborts every other one."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._partitions = partitions
        self._bootstrap = bootstrap
        self._topic = topic
        self._stop = Event()
        self._threads = [Thread(target=self._idempotent), Thread(target=self._transactional)]
        self.acknowledged: list[tuple[int, int]] = []
        self.transactions = 0
        self.failures: list[BaseException] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def are_alive(self) -> bool:
        return all(thread.is_alive() for thread in self._threads)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._stop.set()
            return
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        self.acknowledged.append((partition, offset))

    def _idempotent(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        number = 0
        while not self._stop.is_set():
            try:
                value = f"plain {number} " + "x" * 200
                producer.produce(
                    self._topic, value, partition=number % self._partitions, on_delivery=self._note
                )
            except KafkaException:
                break  # librdkafka has heard of the fence
            except BufferError:
                producer.poll(0.1)
                continue
            number += 1
            producer.poll(0.001)
        producer.flush(60)

    def _transactional(self) -> None:
        producer = transactional(self._bootstrap, self._topic)
        while not self._stop.is_set():
            try:
                producer.begin_transaction()
                for number in range(6):
                    value = f"transaction {self.transactions} record {number}"
                    producer.produce(self._topic, value, partition=number % self._partitions)
                    producer.flush(60)
                if self.transactions % 2:
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                self.transactions += 1
            except KafkaException:  # fenced in the middle of one
                producer.abort_transaction(60)
                return
            except BaseException as failure:
                self.failures.append(failure)
                raise


async def read_source(cluster: Cluster, topic: str, partition: int, end: int) -> bytes:
    """All that a partition holds, undecided or not, as the source serves it."""
    found, offset = b"", 0
    while offset < end:
        leader = cluster.view.leader(topic, partition)
        assert leader is not None
        async with cluster.broker(leader) as broker:
            [answer] = await fetch(
                broker, topic, cluster.view.topic_ids[topic], {partition: offset}, max_bytes=1 << 20
            )
        data = bytes(joined(answer.records))
        for batch in walk_batches(data[: whole_size(data)]):
            if batch.header.base_offset >= offset:
                found += data[batch.position : batch.end]
        offset = list(walk_batches(found))[-1].last_offset + 1
    return found


def whole_size(data: bytes) -> int:
    position = 0
    while position + HEADER_SIZE <= len(data) and position + read_header(data, position).size <= len(data):
        position += read_header(data, position).size
    return position


async def read_log(log: Log, stream: int, end: int, start: int = 0) -> tuple[bytes, list[tuple[int, bytes]]]:
    """What Dray serves: all batches, and the records that a reader of committed ones takes of them."""
    found, records, offset = b"", [], start
    while offset < end:
        [result] = await log.fetch(
            [ReadRequest(stream, offset, 300_000)], min_bytes=0, max_bytes=300_000, max_wait_ms=0
        )
        found += b"".join(bytes(buffer) for buffer in result.buffers)
        committed, offset = committed_in(result, offset)
        records += committed
    return found, records


def consumed(
    bootstrap: str, topic: str, partition: int, end: int, isolation: str, start: int = 0
) -> list[tuple[int, bytes]]:
    """What a consumer of the source is given below an offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}-{isolation}",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, start)])
    found: list[tuple[int, bytes]] = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return found
            offset, value = message.offset(), message.value()
            assert offset is not None
            assert offset < end
            found.append((offset, bytes(value or b"")))
    finally:
        consumer.close()
