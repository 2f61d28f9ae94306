"""Producers that count upwards and note what was acknowledged, consumers that note what they saw.

Each runs in a thread of its own and goes on until `finish`, whatever happens to the brokers.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Self

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka import Message as Report

IMPATIENT = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "topic.metadata.refresh.interval.ms": 1000,
    "socket.timeout.ms": 3000,
    "log_level": 0,
}
"""A broker that is frozen keeps its connections: clients find out by their own timeouts."""


class CountingProducer:
    """Number n goes to partition n % partitions, as `NAME:n:padding`. After every 20 it waits for `pause`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        name: str,
        idempotent: bool,
        pause: float = 0.005,
        **settings: object,
    ) -> None:
        self.name = name
        self.sent = 0
        self.acknowledged: dict[int, int] = {}
        self.failed: dict[int, KafkaError] = {}
        self._topic = topic
        self._idempotent = idempotent
        self._partitions = partitions
        self._pause = pause
        self._stop = threading.Event()
        config: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 2,
            "batch.num.messages": 50,
            "queue.buffering.max.messages": 2000,
            "message.timeout.ms": 120_000,
            "request.timeout.ms": 3000,
        }
        self._producer = Producer(config | IMPATIENT | settings)
        self._thread = threading.Thread(target=self._run, name=name)

    def _run(self) -> None:
        for number in itertools.count():
            if self._stop.is_set():
                break
            value = b"%s:%d:" % (self.name.encode(), number) + b"." * 200
            while not self._try_produce(number, value):
                self._producer.poll(0.05)
            self.sent = number + 1
            self._producer.poll(0)
            if number % 20 == 0:
                self._stop.wait(self._pause)  # enough to keep every broker busy, and no more to read back
        self._producer.flush(90)

    def _try_produce(self, number: int, value: bytes) -> bool:
        partition = number % self._partitions
        try:
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._noting(number))
        except BufferError:
            return False
        return True

    def _noting(self, number: int) -> Callable[[KafkaError | None, Report], None]:
        def delivered(error: KafkaError | None, report: Report) -> None:
            if error is None:
                offset = report.offset()
                self.acknowledged[number] = -1 if offset is None else offset
            else:
                self.failed[number] = error

        return delivered

    def wait_for_progress(self, more: int, timeout: float = 60.0) -> None:
        """So many records that are sent from now on are acknowledged, in each partition."""
        begin = self.sent
        wanted = range(begin, begin + more * self._partitions)
        deadline = time.monotonic() + timeout
        while True:
            known = self.acknowledged if not self.failed else self.acknowledged.keys() | self.failed.keys()
            if all(number in known for number in wanted) and any(n in self.acknowledged for n in wanted):
                return
            assert time.monotonic() < deadline, f"{self.name}: nothing is acknowledged any more"
            assert self._thread.is_alive()
            time.sleep(0.01)

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(100)
        assert not self._thread.is_alive()
        assert len(self.acknowledged) + len(self.failed) == self.sent

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever became of the test: no thread outlives it."""
        self._stop.set()
        self._producer.purge()
        self._thread.join(100)

    def check(self, partition: int, values: list[bytes]) -> None:
        """`values` are what a partition holds, by offset. Acknowledged records are where they were said to
        be. What an idempotent producer sent is all there, once and in order."""
        mine = range(partition, self.sent, self._partitions)
        acknowledged = {number: self.acknowledged[number] for number in mine if number in self.acknowledged}
        assert acknowledged
        numbers = [self._number_of(value) for value in values]
        present = set(numbers)
        for number, offset in acknowledged.items():
            # Where an earlier attempt had succeeded, a client does not learn the offset.
            there = number in present if offset == -1 else numbers[offset] == number
            assert there, f"{self.name}: record {number} was acknowledged at {offset} and is not there"
        if self._idempotent:
            assert self.failed == {}
            assert [number for number in numbers if number is not None] == list(mine)

    def _number_of(self, value: bytes) -> int | None:
        """None for other producers' records."""
        name, number, _ = value.split(b":", 2)
        return int(number) if name == self.name.encode() else None


class FollowingConsumer:
    """Reads all partitions of a topic from their start and notes what comes, for ever. No group."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: object) -> None:
        self.seen: list[list[tuple[int, bytes]]] = [[] for _ in range(partitions)]
        self.errors: list[KafkaError] = []
        config: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 500,
        }
        self._consumer = Consumer(config | IMPATIENT | settings)
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="following consumer")

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(1000, timeout=0.05):
                error = message.error()
                if error is None:
                    offset, partition, value = message.offset(), message.partition(), message.value()
                    assert offset is not None
                    assert partition is not None
                    assert value is not None
                    self.seen[partition].append((offset, value))
                elif not error.retriable():
                    self.errors.append(error)
        self._consumer.close()

    def wait_until_seen(self, ends: list[int], timeout: float = 60.0) -> None:
        deadline = time.monotonic() + timeout
        while any(len(seen) < end for seen, end in zip(self.seen, ends, strict=True)):
            assert time.monotonic() < deadline, f"saw {[len(seen) for seen in self.seen]} of {ends}"
            time.sleep(0.01)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
