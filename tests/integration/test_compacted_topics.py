"""Compacted topics as clients and people see them: the promises of Kafka's own cleaner, held by both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.services.cleaner import clean
from tests.services.commands import drayd
from tests.services.dray import DrayProcess
from tests.services.kafka import KafkaProcess
from tests.services.marks import longer
from tests.services.topics import create_topic

KEYS = [b"", *(b"key-%d" % number for number in range(30))]
BATCHES = 12
SECONDS = 60.0
LONG = str(24 * 3_600_000)

Row = tuple[int, bytes | None, bytes | None]  # offset, key, value


def script(seed: int) -> Iterator[list[tuple[bytes, bytes | None]]]:
    """What producers send, batch after batch, without end."""
    random = Random(seed)
    while True:
        yield [
            (random.choice(KEYS), None if random.random() < 0.25 else b"%d" % random.getrandbits(60))
            for _ in range(random.randint(20, 60))
        ]


def send(bootstrap: str, topic: str, batch: list[tuple[bytes, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for key, value in batch:
        producer.produce(topic, value, key)
    assert producer.flush(SECONDS) == 0


def read(bootstrap: str, topic: str) -> list[Row]:
    """What a fresh consumer finds, from offset 0 to the end."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True}
    consumer = Consumer(settings | {"enable.auto.commit": False, "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    deadline = time.monotonic() + SECONDS
    while True:
        assert time.monotonic() < deadline, "the end did not come"
        message = consumer.poll(0.2)
        if message is None:
            continue
        if (error := message.error()) is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            consumer.close()
            return found
        offset = message.offset()
        assert offset is not None
        found.append((offset, message.key(), message.value()))


def replayed(rows: list[Row]) -> dict[bytes | None, bytes]:
    state: dict[bytes | None, bytes] = {}
    for _, key, value in rows:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


def check_promises(rows: list[Row], sent: list[Row], *, keeps_tombstones: bool) -> None:
    offsets = [row[0] for row in rows]
    assert offsets == sorted(set(offsets)), "offsets are out of order"
    assert all(sent[row[0]] == row for row in rows), "a record is not as it was produced"
    assert replayed(rows) == replayed(sent), "a reader from the start ends with another state"
    if keeps_tombstones:
        last = {key: (offset, value) for offset, key, value in sent}
        deleted = {offset for offset, value in last.values() if value is None}
        assert deleted <= set(offsets), "a tombstone went before its time"


class CleanedDray:
    """Cleaned once while records come, and at the end."""

    def __init__(self, directory: Path) -> None:
        self.broker = DrayProcess(directory)

    def __enter__(self) -> CleanedDray:
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.kill()

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def pause(self, batch: int) -> None:
        if batch == BATCHES // 2:
            clean(self.broker)

    def settle(self, _: Callable[[], bool]) -> None:
        clean(self.broker)


class CleanedKafka:
    """Its cleaner looks all the time; it takes whole segments, which end as soon as they are a moment old."""

    def __init__(self, directory: Path) -> None:
        self.server = KafkaProcess(directory, {"log.cleaner.backoff.ms": "100"})

    def __enter__(self) -> CleanedKafka:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()

    @property
    def bootstrap(self) -> str:
        return self.server.bootstrap

    def pause(self, _: int) -> None:
        time.sleep(0.15)  # longer than segment.ms: the next batch begins a segment

    def settle(self, is_cleaned: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SECONDS
        while not is_cleaned():
            assert time.monotonic() < deadline, "Kafka's cleaner did not come"
            time.sleep(0.2)


def run_script(place: CleanedDray | CleanedKafka, retention_ms: str) -> tuple[list[Row], list[Row]]:
    """What a consumer finds in the end, and what was sent."""
    config = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": retention_ms,
        "segment.ms": "100",
    }
    create_topic(place.bootstrap, "updates", 1, config)
    sent: list[Row] = []
    for number, batch in enumerate(islice(script(11), BATCHES)):
        send(place.bootstrap, "updates", batch)
        sent += [(len(sent) + at, key, value) for at, (key, value) in enumerate(batch)]
        place.pause(number)
    place.settle(lambda: len(read(place.bootstrap, "updates")) < len(sent) // 3)
    return read(place.bootstrap, "updates"), sent


@pytest.mark.parametrize("retention_ms", [LONG, longer("0")])
def test_what_is_left_of_a_compacted_topic(tmp_path: Path, retention_ms: str) -> None:
    """And what `drayd admin` says of it."""
    with CleanedDray(tmp_path) as place:
        rows, sent = run_script(place, retention_ms)
        check_promises(rows, sent, keeps_tombstones=retention_ms == LONG)
        assert len(rows) <= len(KEYS)
        send(place.bootstrap, "updates", [(b"late", b"1")])
        data = ("--data-dir", place.broker.data_directory)
        describe = ("admin", "topics", "describe", "updates", "-b", place.bootstrap)
        [told] = json.loads(drayd(*describe, "--json", *data))
        assert told["compaction"]["delete.retention.ms"] == retention_ms
        assert told["compaction"]["min.compaction.lag.ms"] == "0", "what it does not set itself is told too"
        [clean_part] = told["clean"]
        assert (clean_part["clean_point"], clean_part["removed"]) == (len(sent), len(sent) - len(rows))
        records = [clean_part[part]["records"] for part in ("clean", "dirty", "waiting")]
        assert records == [len(rows), 0, 1]
        text = drayd(*describe, *data)
        assert "max.compaction.lag.ms = 9223372036854775807 (default)" in text
        assert text.splitlines()[-1].split()[:2] == ["0", str(len(sent))]
        elsewhere = drayd(*describe, "--data-dir", tmp_path / "nothing")
        assert "give the cluster's own --config or --data-dir" in elsewhere
        table = json.loads(drayd("admin", "table", "updates", "--json", *data))
        [partition] = table["partitions"]
        assert (partition["clean_point"], partition["live_share"]) == (len(sent), 1.0)


@pytest.mark.soak
@pytest.mark.parametrize("retention_ms", [LONG, "0"])
def test_kafkas_own_cleaner_leaves_the_same_state(tmp_path: Path, retention_ms: str) -> None:
    """The same script into both. Which records go, and when, may differ; the promises may not."""
    states = []
    for name, kind in (("dray", CleanedDray), ("kafka", CleanedKafka)):
        with kind(tmp_path / name) as place:
            rows, sent = run_script(place, retention_ms)
            check_promises(rows, sent, keeps_tombstones=retention_ms == LONG)
            states.append(replayed(rows))
            print(f"{name}: {len(rows)} of {len(sent)} records are left")
    assert states[0] == states[1]
