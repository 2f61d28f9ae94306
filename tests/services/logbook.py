"""What a partition holds, read back to its end, and what that must look like."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaException, TopicPartition

SECONDS = 60.0


def read_partition(bootstrap: str, topic: str, partition: int) -> list[bytes]:
    """Every value from the first offset to the high watermark. Offsets are dense, or this fails."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=60)
        assert low == 0
        consumer.assign([TopicPartition(topic, partition, 0)])
        values: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while len(values) < high:
            assert time.monotonic() < deadline, f"{len(values)} of {high} records were read"
            for message in consumer.consume(10_000, timeout=0.5):
                if message.error():
                    raise KafkaException(message.error())
                assert message.offset() == len(values), "an offset was skipped or repeated"
                value = message.value()
                assert value is not None
                values.append(value)
        return values
    finally:
        consumer.close()
