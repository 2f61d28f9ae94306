"""One consumer, as a program: see `consumers`. SIGTERM ends it gracefully."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

stopping = False


def tell(what: str, partition: int | None = -1, offset: int | None = -1) -> None:
    line = {"at": time.monotonic(), "what": what, "partition": partition, "offset": offset}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def tell_all(what: str, partitions: Iterable[Any]) -> None:
    for one in partitions:
        tell(what, one.partition)


def stop(*_: object) -> None:
    global stopping
    stopping = True


# --- confluent-kafka


def run_confluent(settings: dict[str, Any]) -> None:
    from confluent_kafka import Consumer, KafkaError, KafkaException

    config: dict[str, Any] = {
        "bootstrap.servers": settings["bootstrap"],
        "group.id": settings["group"],
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 200,
        "topic.metadata.refresh.interval.ms": 1000,
        "check.crcs": True,
    }
    if settings["instance"]:
        config["group.instance.id"] = settings["instance"]
    if settings["kind"] == "confluent-consumer":
        config["group.protocol"] = "consumer"
    else:
        cooperative = settings["kind"] == "confluent-cooperative"
        config["partition.assignment.strategy"] = "cooperative-sticky" if cooperative else "range"
        config["session.timeout.ms"] = settings["session_ms"]
        config["heartbeat.interval.ms"] = 300
    consumer = Consumer(config)
    consumer.subscribe(
        [settings["topic"]],
        on_assign=lambda _, partitions: tell_all("assigned", partitions),
        on_revoke=lambda _, partitions: tell_all("revoked", partitions),
        on_lost=lambda _, partitions: tell_all("revoked", partitions),
    )
    while not stopping:
        messages = consumer.consume(50, timeout=0.1)
        for message in messages:
            error = message.error()
            if error is not None:
                if error.fatal() or error.code() == KafkaError.OFFSET_OUT_OF_RANGE:
                    raise KafkaException(error)
                continue
            tell("record", message.partition(), message.offset())
        if messages:
            try:
                for done in consumer.commit(asynchronous=False) or []:
                    tell("committed" if done.error is None else "refused", done.partition, done.offset)
            except KafkaException:
                tell("refused")
    consumer.close()


# --- aiokafka


async def run_aiokafka(settings: dict[str, Any]) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            for one in revoked:
                tell("revoked", one.partition)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            for one in assigned:
                tell("assigned", one.partition)

    sticky = settings["kind"] == "aiokafka-sticky"
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings["bootstrap"],
        group_id=settings["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=settings["session_ms"],
        heartbeat_interval_ms=300,
        rebalance_timeout_ms=20_000,
        retry_backoff_ms=50,
        metadata_max_age_ms=1000,
        group_instance_id=settings["instance"] or None,
        partition_assignment_strategy=[StickyPartitionAssignor if sticky else RoundRobinPartitionAssignor],
    )
    consumer.subscribe([settings["topic"]], listener=Listener())
    await consumer.start()
    while not stopping:
        batches = await consumer.getmany(timeout_ms=100, max_records=50)
        for place, messages in batches.items():
            for message in messages:
                tell("record", place.partition, message.offset)
        if batches:
            offsets = {place: messages[-1].offset + 1 for place, messages in batches.items() if messages}
            try:
                await consumer.commit(offsets)
                for place, offset in offsets.items():
                    tell("committed", place.partition, offset)
            except KafkaError:
                tell("refused")
    await consumer.stop()


# --- kafka-python


def run_kafka_python(settings: dict[str, Any]) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            for one in revoked:
                tell("revoked", one.partition)

        def on_partitions_assigned(self, assigned: Any) -> None:
            for one in assigned:
                tell("assigned", one.partition)

        def on_partitions_lost(self, lost: Any) -> None:
            self.on_partitions_revoked(lost)

    cooperative = settings["kind"] == "kafka-python-cooperative"
    consumer = KafkaConsumer(
        bootstrap_servers=settings["bootstrap"].split(","),
        group_id=settings["group"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=settings["session_ms"],
        heartbeat_interval_ms=300,
        max_poll_interval_ms=20_000,
        metadata_max_age_ms=1000,
        retry_backoff_ms=50,
        group_instance_id=settings["instance"] or None,
        partition_assignment_strategy=[CooperativeStickyAssignor if cooperative else RangePartitionAssignor],
    )
    consumer.subscribe([settings["topic"]], listener=Listener())
    while not stopping:
        batches = consumer.poll(timeout_ms=100, max_records=50)
        for place, messages in batches.items():
            for message in messages:
                tell("record", place.partition, message.offset)
        if batches:
            ends = {place.partition: messages[-1].offset + 1 for place, messages in batches.items()}
            try:
                consumer.commit()
                for partition, offset in ends.items():
                    tell("committed", partition, offset)
            except KafkaError:
                tell("refused")
    consumer.close()


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, stop)
    kind: str = settings["kind"]
    if kind.startswith("confluent"):
        run_confluent(settings)
    elif kind.startswith("aiokafka"):
        asyncio.run(run_aiokafka(settings))
    else:
        run_kafka_python(settings)
    tell("ended")


if __name__ == "__main__":
    main()
