"""The durability contract of DriftQ (v1.3), sentence by sentence, on embedded Dray.

One difference, on purpose: in Kafka a group may commit an offset below the one it committed before, and what
it said last counts. DriftQ keeps the greatest.

"If the append fails, produce fails and the message is not committed" is in `unit/log/test_log_pipeline.py`
(`test_a_failed_upload_is_retriable_and_leaves_nothing`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.services.dray import DrayProcess
from tests.services.logbook import read_partition
from tests.services.target import ON_KAFKA
from tests.services.topics import create_topic

pytestmark = pytest.mark.skipif(ON_KAFKA, reason="the contract is tried on embedded Dray")

TOPIC = "jobs"
GROUP = "workers"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DrayProcess]:
    with DrayProcess(tmp_path) as started:
        create_topic(started.bootstrap, TOPIC, 2)
        yield started


def produce(broker: DrayProcess, *values: bytes, partition: int = 0) -> list[KafkaError | None]:
    errors: list[KafkaError | None] = []
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "message.timeout.ms": 5_000, "acks": "all", "log_level": 0}
    )

    def note(error: KafkaError | None, _: Message) -> None:
        errors.append(error)

    for value in values:
        producer.produce(TOPIC, value, key=b"k", partition=partition, on_delivery=note)
    producer.flush(60)
    return errors


def consumer(broker: DrayProcess) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )


def commit(broker: DrayProcess, offset: int) -> None:
    member = consumer(broker)
    member.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    member.close()


def committed(broker: DrayProcess) -> int:
    member = consumer(broker)
    (place,) = member.committed([TopicPartition(TOPIC, 0)], timeout=60)
    member.close()
    return int(place.offset)


def values(broker: DrayProcess, partition: int = 0) -> list[bytes]:
    return read_partition(broker.bootstrap, TOPIC, partition)  # which wants every offset once


def test_a_restart_rebuilds_topics_messages_and_progress(broker: DrayProcess) -> None:
    """Produced messages are in the log before they can be read; on startup topics, partitions, messages and
    offsets are rebuilt."""
    assert produce(broker, b"one", b"two", b"three") == [None] * 3
    assert produce(broker, b"other", partition=1) == [None]
    commit(broker, 2)
    broker.kill()
    broker.start()
    assert values(broker) == [b"one", b"two", b"three"]
    assert values(broker, 1) == [b"other"]
    assert committed(broker) == 2
    assert produce(broker, b"four") == [None]  # the next offset is the one after the last
    assert values(broker) == [b"one", b"two", b"three", b"four"]


def test_progress_is_stored_when_it_is_told_and_may_go_back(broker: DrayProcess) -> None:
    produce(broker, *itertools.repeat(b"x", 5))
    commit(broker, 4)
    broker.kill()
    broker.start()
    assert committed(broker) == 4
    commit(broker, 1)  # the difference: Kafka's groups may seek back
    broker.kill()
    broker.start()
    assert committed(broker) == 1


def test_partitions_without_messages_are_there_after_a_restart(broker: DrayProcess) -> None:
    """DriftQ knows only partitions that had messages; here the topic itself is stored."""
    produce(broker, b"one")
    broker.kill()
    broker.start()
    assert values(broker, 1) == []
    assert produce(broker, b"late", partition=1) == [None]
