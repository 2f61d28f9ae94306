"""Producers that do not stop, each a process of its own.

librdkafka and kafka-python are programs of this file, Java and franz-go those of `tests/java` and `tests/go`.
Each prints a line for every answer: the number of the record, its partition and offset, or the number and the
error; and `.` at its end, which a line on its input asks for.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from kafka import KafkaProducer

from tests.services.clients.go_client import require_franz
from tests.services.clients.java_client import java_command
from tests.services.clients.line_process import LineProcess

PAUSE_MS = 10
STEADY = ("librdkafka", "kafka-python", "java", "franz-go")


def steady_command(client: str) -> list[str]:
    """To be followed by bootstrap, topic, partitions, name and pause."""
    match client:
        case "java":
            return [*java_command(), "ProduceSteadily"]
        case "franz-go":
            return [str(require_franz()), "steadily"]
        case _:
            return [sys.executable, "-m", "tests.services.clients.steady", client]


class SteadyProducer:
    """One of them at work. What it was told is in `acknowledged` and `failed`."""

    def __init__(self, client: str, bootstrap: str, topic: str, partitions: int, name: str = "") -> None:
        self.name = name or client
        self.acknowledged: dict[int, tuple[int, int]] = {}
        self.failed: dict[int, str] = {}
        command = [*steady_command(client), bootstrap, topic, str(partitions), self.name, str(PAUSE_MS)]
        root = str(Path(__file__).parents[3])
        self._process = LineProcess(["env", f"PYTHONPATH={root}", *command])
        self._failure: BaseException | None = None
        self._reading = threading.Thread(target=self._read, name=f"answers of {self.name}")
        self._reading.start()

    def _read(self) -> None:
        try:
            while (line := self._process.readline(time.monotonic() + 600).decode()) != ".":
                number, *answer = line.split(" ", 2)
                if len(answer) == 2 and answer[0].isdigit() and answer[1].isdigit():
                    self.acknowledged[int(number)] = int(answer[0]), int(answer[1])
                else:
                    self.failed[int(number)] = " ".join(answer)
        except BaseException as failure:  # raised where it is stopped
            self._failure = failure

    def until_acknowledged(self, more: int, seconds: float = 120.0) -> None:
        """So many records from now on."""
        wanted, until = len(self.acknowledged) + more, time.monotonic() + seconds
        while len(self.acknowledged) < wanted:
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > until:
                raise TimeoutError(
                    f"{self.name}: {len(self.acknowledged)} acknowledged, not {wanted} in {seconds:.0f} s; "
                    f"last failures {list(self.failed.items())[-3:]}; {self._process.errors()}"
                )
            time.sleep(0.02)

    def stop(self) -> None:
        """It waits for what it has sent."""
        try:
            self._process.write("stop")
            self._reading.join(300)
            if self._reading.is_alive():
                raise TimeoutError(f"{self.name} did not end: {self._process.errors()}")
        finally:
            self._process.close()
        if self._failure is not None:
            raise self._failure


# --- the programs


def _asked_to_stop() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _say(number: int, *answer: object) -> None:
    os.write(1, (" ".join(map(str, (number, *answer))) + "\n").encode())


def _librdkafka(bootstrap: str, topic: str, partitions: int, name: str, pause: float) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 1})
    number = 0

    def answer(sent: int) -> Any:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is None:
                _say(sent, message.partition(), message.offset())
            else:
                _say(sent, error.name())

        return note

    while not _asked_to_stop():
        try:
            producer.produce(
                topic, f"{name} {number}", name, partition=number % partitions, on_delivery=answer(number)
            )
        except KafkaException as error:  # a fence ends an idempotent producer for good
            _say(number, error.args[0].name())
        number += 1
        producer.poll(0)
        time.sleep(pause)
    producer.flush(240)


def _kafka_python(bootstrap: str, topic: str, partitions: int, name: str, pause: float) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=1)
    number = 0
    while not _asked_to_stop():
        sent = producer.send(
            topic, f"{name} {number}".encode(), key=name.encode(), partition=number % partitions
        )
        sent.add_callback(lambda found, number=number: _say(number, found.partition, found.offset))
        sent.add_errback(lambda error, number=number: _say(number, type(error).__name__))
        number += 1
        time.sleep(pause)
    producer.flush(240)
    producer.close(timeout=5)


def main(arguments: Sequence[str]) -> None:
    client, bootstrap, topic, partitions, name, pause = arguments
    work = {"librdkafka": _librdkafka, "kafka-python": _kafka_python}[client]
    work(bootstrap, topic, int(partitions), name, int(pause) / 1000)
    os.write(1, b".\n")


if __name__ == "__main__":
    main(sys.argv[1:])
