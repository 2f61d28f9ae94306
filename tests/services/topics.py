"""Topics that are there: Kafka answers a creation a moment before its partitions are served."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.cimpl import NewTopic

LATEST: OffsetSpec = OffsetSpec.latest()
SECONDS = 60.0

KEPT = {"retention.ms": "-1"}
"""Tests write records of any time, and a server's retention comes by when it likes. A test that is about
retention sets its own."""

TopicMaker = Callable[..., str]
"""The type of the fixture `make_topic`."""


def client_of(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def create_topic(
    bootstrap: str,
    name: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    replicas: int = 1,
    seconds: float = SECONDS,
) -> None:
    """Returns when every partition answers; raises when some do not within the time."""
    admin = client_of(bootstrap)
    new = NewTopic(name, partitions, replicas, config=KEPT | dict(config or {}))
    for future in admin.create_topics([new], operation_timeout=10).values():
        future.result(seconds)
    asked = {TopicPartition(name, number): LATEST for number in range(partitions)}
    deadline = time.monotonic() + seconds
    while True:
        try:
            for answer in admin.list_offsets(asked).values():
                answer.result(60)
            return
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            admin = client_of(bootstrap)  # librdkafka remembers for long that there was no leader
