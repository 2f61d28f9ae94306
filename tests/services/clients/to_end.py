"""Real clients that read a partition from an offset up to its end, and no further, in small pieces or large
ones."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonTopicPartition

from tests.services.clients.aiokafka_client import run
from tests.services.clients.go_client import require_franz
from tests.services.clients.java_client import Java
from tests.services.clients.kcat_client import Kcat
from tests.services.clients.line_process import LineProcess
from tests.services.fetch_tap import SeenFetches

SECONDS = 120.0
LEAST_OF_LIBRDKAFKA = 1000
"""Bytes of a whole answer: it does not ask for fewer, and of a partition for a single one."""

Offsets = dict[int, list[int]]
"""By the offset that was begun at: those of the records that came, up to the end."""


class ReadToEnd:
    """How to read partition 0 of `topic`. `most_bytes` holds for a partition, and for an answer as a whole.
    `epoch`: that of the last record that a consumer has read, where it can be given one."""

    def __init__(
        self, bootstrap: str, topic: str, end: int, most_bytes: int, epoch: int, seen: SeenFetches
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.end = end
        self.most_bytes = most_bytes
        self.epoch = epoch
        self.seen = seen
        self._deadline = time.monotonic() + SECONDS

    def in_time(self) -> bool:
        assert time.monotonic() < self._deadline, "the end did not come"
        return True


def confluent(how: ReadToEnd, starts: Sequence[int]) -> Offsets:
    found: Offsets = {}
    for start in starts:
        consumer = Consumer(
            {
                "bootstrap.servers": how.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "check.crcs": True,
                **_of_librdkafka(how),
            }
        )
        consumer.assign([TopicPartition(how.topic, 0, start, leader_epoch=how.epoch)])
        found[start] = []
        while how.in_time():
            message = consumer.poll(0.2)
            if message is None:
                continue
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                assert message.offset() == how.end
                break
            offset = message.offset()
            assert offset is not None
            found[start].append(offset)
        consumer.close()
    return found


def kcat(how: ReadToEnd, starts: Sequence[int]) -> Offsets:
    """It ends where librdkafka says that the partition does."""
    settings = {"check.crcs": "true", "auto.offset.reset": "error", **_of_librdkafka(how)}
    options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    found: Offsets = {}
    for start in starts:
        mode = ["-C", "-e", "-q", "-J", "-t", how.topic, "-p", "0", "-o", str(start)]
        lines = Kcat(how.bootstrap).run(*mode, *options).splitlines()
        found[start] = [json.loads(line)["offset"] for line in lines]
    return found


def _of_librdkafka(how: ReadToEnd) -> dict[str, str]:
    whole = str(max(how.most_bytes, LEAST_OF_LIBRDKAFKA))
    return {
        "fetch.message.max.bytes": str(how.most_bytes),
        "fetch.max.bytes": whole,
        "message.max.bytes": whole,
    }


def kafka_python(how: ReadToEnd, starts: Sequence[int]) -> Offsets:
    place = PythonTopicPartition(how.topic, 0)
    consumer = KafkaConsumer(
        bootstrap_servers=how.bootstrap,
        enable_auto_commit=False,
        max_partition_fetch_bytes=how.most_bytes,
        fetch_max_bytes=how.most_bytes,
    )
    found: Offsets = {}
    try:
        consumer.assign([place])
        for start in starts:
            consumer.seek(place, start)
            found[start] = []
            while how.in_time() and consumer.position(place) < how.end:
                found[start] += [each.offset for batch in consumer.poll(200).values() for each in batch]
            assert consumer.position(place) == how.end
    finally:
        consumer.close()
    return found


def aiokafka(how: ReadToEnd, starts: Sequence[int]) -> Offsets:
    place = AioTopicPartition(how.topic, 0)
    found: Offsets = {}

    async def read() -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=how.bootstrap,
            enable_auto_commit=False,
            max_partition_fetch_bytes=how.most_bytes,
            fetch_max_bytes=how.most_bytes,
        )
        await consumer.start()
        try:
            consumer.assign([place])
            for start in starts:
                consumer.seek(place, start)
                found[start] = []
                while await consumer.position(place) < how.end:
                    batches = await consumer.getmany(place, timeout_ms=200)
                    found[start] += [each.offset for batch in batches.values() for each in batch]
                assert await consumer.position(place) == how.end
        finally:
            await consumer.stop()

    run(asyncio.wait_for(read(), SECONDS))
    return found


def java(how: ReadToEnd, starts: Sequence[int]) -> Offsets:
    """As Connect reads its topics: up to where `position` is the end."""
    words = [how.topic, str(how.most_bytes), str(how.epoch), *map(str, starts)]
    lines = [line.split() for line in Java(how.bootstrap).run("ReadToEnd", *words)]
    return {int(start): [int(offset) for offset in offsets] for start, *offsets in lines}


def franz_go(how: ReadToEnd, starts: Sequence[int]) -> Offsets:
    """It says nothing of where it is: that is seen when it asks for what comes at the end."""
    found: Offsets = {}
    for start in starts:
        how.seen.forget()
        words = [how.bootstrap, how.topic, str(start), str(how.most_bytes)]
        process = LineProcess([str(require_franz()), "follow", *words])
        try:
            while how.in_time() and how.seen.last_offset != how.end:
                time.sleep(0.02)
            process.write("stop")  # then it writes down what it has
            found[start] = []
            deadline = time.monotonic() + SECONDS
            while (line := process.readline(deadline)) != b".":
                found[start].append(int(line))
        finally:
            process.close()
    return found


TO_END: dict[str, Callable[[ReadToEnd, Sequence[int]], Offsets]] = {
    "confluent": confluent,
    "kcat": kcat,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "java": java,
}

BUILT_TO_END: dict[str, Callable[[ReadToEnd, Sequence[int]], Offsets]] = {"franz-go": franz_go}
"""They are built first: for long runs."""
