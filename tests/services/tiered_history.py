"""A topic's history on a Kafka that tiers it: idempotent producers, transactions, aborts, a change of
leader; and what that Kafka says of it, for comparison."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.services.tiered_kafka import TieredKafka

TOPIC = "orders"
COMPACTED = "latest"
PARTITIONS = 2
PATIENCE = 60.0
FILLER = b"x" * 900
BATCH = 20
"""Records in a batch, at most: a busy machine would make a mebibyte of each."""


class SeenRecord(NamedTuple):
    offset: int
    timestamp: tuple[int, int]
    key: object
    value: object
    headers: str


def wait_for(what: str, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{what}: not within {seconds} s"
        time.sleep(0.1)


def write_history(kafka: TieredKafka, topic: str = TOPIC) -> None:
    """About five segments of a mebibyte in each partition; the last is never tiered."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    configs = {
        "remote.storage.enable": "true",
        "segment.bytes": str(1 << 20),
        "retention.ms": "-1",
        "local.retention.bytes": "1",
        "file.delete.delay.ms": "100",
    }
    created = admin.create_topics([NewTopic(topic, PARTITIONS, 1, config=configs)])
    created[topic].result(PATIENCE)
    produce(kafka.bootstrap, topic, "a", 3_500)
    transactions(kafka.bootstrap, topic)
    kafka.terminate()
    kafka.start()  # leads in another epoch
    produce(kafka.bootstrap, topic, "b", 3_500)
    transactions(kafka.bootstrap, topic)
    produce(kafka.bootstrap, topic, "c", 3_500)


def write_compacted(kafka: TieredKafka, topic: str = COMPACTED) -> None:
    """A topic that its broker has compacted by key, but for its newest records."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    admin.create_topics([NewTopic(topic, 1, 1, config=configs)])[topic].result(PATIENCE)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    count = 2_500
    for number in range(count):
        producer.produce(
            topic, key=f"k{number % 40}".encode(), value=f"{number}-".encode() + FILLER, partition=0
        )
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    checkpoint = kafka.directory / "logs" / "cleaner-offset-checkpoint"
    wait_for("a cleaned log", lambda: checkpoint.exists() and f"{topic} 0 " in checkpoint.read_text())


def produce(bootstrap: str, topic: str, word: str, count: int) -> None:
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
    producer = Producer(settings | {"batch.num.messages": BATCH})
    for number in range(count):
        producer.produce(
            topic,
            key=f"k{number % 50}".encode(),
            value=f"{word}{number}-".encode() + FILLER,
            partition=number % PARTITIONS,
            headers=[("n", str(number).encode())],
        )
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0


def transactions(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t1", "linger.ms": 5})
    producer.init_transactions(PATIENCE)
    for number in range(4):
        producer.begin_transaction()
        for record in range(30):
            producer.produce(topic, value=f"t{number}-{record}".encode(), partition=record % PARTITIONS)
        if number % 2:
            assert producer.flush(PATIENCE) == 0  # else nothing of it is in the log
            producer.abort_transaction(PATIENCE)
        else:
            producer.commit_transaction(PATIENCE)


def commit(bootstrap: str, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.commit(
        offsets=[TopicPartition(topic, partition, offset) for partition, offset in offsets.items()],
        asynchronous=False,
    )
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], PATIENCE)
    consumer.close()
    return {each.partition: each.offset for each in found}


def tiered_segments(kafka: TieredKafka, topic: str = TOPIC) -> dict[int, int]:
    """How many segments of each partition lie in the tier, with all their files."""
    found: dict[int, int] = {}
    for directory in kafka.tier.rglob(f"{topic}-*"):
        if directory.is_dir():
            partition = int(directory.name.removeprefix(f"{topic}-").partition("-")[0])
            stems = [path.stem for path in directory.glob("*.leader_epoch_checkpoint")]
            found[partition] = len(stems)
    return found


def offsets_at(bootstrap: str, topic: str, time_ms: int, partitions: int = PARTITIONS) -> dict[int, int]:
    """ListOffsets of every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "times", "enable.auto.commit": False})
    try:
        if time_ms in (-1, -2):
            found = {}
            for number in range(partitions):
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), PATIENCE)
                found[number] = high if time_ms == -1 else low
            return found
        asked = [TopicPartition(topic, number, time_ms) for number in range(partitions)]
        return {each.partition: each.offset for each in consumer.offsets_for_times(asked, PATIENCE)}
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str, ends: dict[int, int], isolation: str) -> dict[int, list[SeenRecord]]:
    """Every record below `ends` that a consumer of this isolation is given."""
    found: dict[int, list[SeenRecord]] = {number: [] for number in ends}
    for number, end in ends.items():
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers",
                "enable.auto.commit": False,
                "isolation.level": isolation,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING)])
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if (error := message.error()) is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                break
            offset = message.offset()
            assert offset is not None
            if offset >= end:
                break
            headers = repr(message.headers())
            found[number].append(
                SeenRecord(offset, message.timestamp(), message.key(), message.value(), headers)
            )
        else:
            raise AssertionError(f"partition {number} was not read to {end} within {PATIENCE} s")
        consumer.close()
    return found


def checksums(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Size, time of change and content of every file."""
    return {
        str(path.relative_to(root)): (path.stat().st_size, path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }
