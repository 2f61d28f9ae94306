"""A log of every kind of record, and the truth about it as the broker acknowledged it, without reading it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka import Message as Received
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType

from tests.services.clients.aiokafka_client import AioKafka
from tests.services.clients.confluent_client import known
from tests.services.clients.contract import CODECS, CREATE_TIME, LOG_APPEND_TIME, SECONDS, Message
from tests.services.clients.reader import Place
from tests.services.topics import client_of, create_topic

HOUR = 3_600_000
BATCH = 40
"""Records that are sent together: a batch or a few."""

FARTHEST_TIME = 253_402_300_799_999
"""The last millisecond of the year 9999: what tables can show. Of clients and brokers it is no limit."""

KEPT = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
"""Whatever time a record has, it is taken, and it stays."""

CREATED, APPENDED, BOTH = "created", "appended", "both"
TOPICS = (CREATED, APPENDED, BOTH)
"""The last one is switched from the one type of timestamp to the other in the middle."""

PLACES: tuple[Place, ...] = ((CREATED, 0), (CREATED, 1), (CREATED, 2), (APPENDED, 0), (BOTH, 0))


class WrittenLog:
    def __init__(self, bootstrap: str, largest_value: int = 1500) -> None:
        self.bootstrap = bootstrap
        self.largest_value = largest_value
        self.starts: dict[Place, int] = dict.fromkeys(PLACES, 0)
        self._written: dict[Place, list[Message]] = {place: [] for place in PLACES}
        self._lock = threading.Lock()
        self._random = random.Random(11)
        self._now = int(time.time() * 1000)
        self._producers = {
            (codec, idempotent): Producer(
                {
                    "bootstrap.servers": bootstrap,
                    "compression.type": codec,
                    "enable.idempotence": idempotent,
                    "message.timeout.ms": int(SECONDS * 1000),
                    "log_level": 0,
                }
            )
            for codec in CODECS
            for idempotent in (False, True)
        }
        self._admin = client_of(bootstrap)

    # --- the truth

    def ends(self) -> dict[Place, int]:
        """Behind what is acknowledged so far."""
        with self._lock:
            return {place: len(written) for place, written in self._written.items()}

    def between(self, place: Place, first: int, end: int) -> list[Message]:
        with self._lock:
            return self._written[place][max(first, self.starts[place]) : end]

    def first_at(self, place: Place, timestamp: int) -> tuple[int, int] | None:
        """Of what is in the log, the first record whose time is not before `timestamp`."""
        for message in self.between(place, 0, self.ends()[place]):
            if message.timestamp >= timestamp:
                return message.offset, message.timestamp
        return None

    # --- writing

    def create(self) -> None:
        create_topic(self.bootstrap, CREATED, 3, KEPT)
        create_topic(self.bootstrap, APPENDED, 1, KEPT | {"message.timestamp.type": LOG_APPEND_TIME})
        create_topic(self.bootstrap, BOTH, 1, KEPT)

    def fill(self, rounds: int) -> None:
        """Of every place, `rounds` times a batch in each codec, of idempotent producers and of others."""
        for number in range(rounds):
            self.write_times_at_the_borders()
            for codec, idempotent in self._producers:
                self.write(codec, idempotent)
            if number == 0:
                self.switch_to_log_append_time(BOTH)

    def write(self, codec: str, idempotent: bool, count: int = BATCH) -> None:
        """`count` records to every place."""
        producer = self._producers[codec, idempotent]
        sent: list[tuple[Place, Message]] = []
        errors: list[KafkaError] = []

        for place in PLACES:
            for message in self.messages(count):

                def acknowledged(
                    error: KafkaError | None,
                    report: Received,
                    place: Place = place,
                    message: Message = message,
                ) -> None:
                    if error is not None:
                        errors.append(error)
                    else:
                        sent.append((place, as_acknowledged(message, report)))

                producer.produce(
                    place[0],
                    message.value,
                    message.key,
                    place[1],
                    on_delivery=acknowledged,
                    timestamp=message.timestamp,
                    headers=list(message.headers),
                )
        if producer.flush(SECONDS):
            raise TimeoutError("not every record was acknowledged")
        if errors:
            raise KafkaException(errors[0])
        self._note(sent)

    def write_times_at_the_borders(self) -> None:
        times = (0, 1, 999, FARTHEST_TIME, self._now, 86_399_999, 86_400_000)
        messages = [Message(b"%d" % at, b"at the border", (), at) for at in times]
        place = PLACES[2]
        offsets = AioKafka(self.bootstrap).produce(place[0], messages, partition=place[1], codec="gzip")
        written = zip(messages, offsets, strict=True)
        self._note([(place, message.at(offset)) for message, offset in written])

    def _note(self, sent: Sequence[tuple[Place, Message]]) -> None:
        with self._lock:
            for place, message in sorted(sent, key=lambda one: one[1].offset):
                expected = len(self._written[place])
                assert message.offset == expected, f"{place}: {message.offset} instead of {expected}"
                self._written[place].append(message)

    def messages(self, count: int) -> list[Message]:
        """Keys, values and headers of every kind, at times that go back and forth."""
        chance = self._random
        header_sets: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
            (),
            (("one", b"value"),),
            (("twice", b"first"), ("twice", b"second"), ("twice", b"first")),
            (("none", None), ("empty", b""), ("none", b"\x00\xff"), ("ключ", chance.randbytes(9))),
        )
        messages = []
        for number in range(count):
            large = chance.randbytes(chance.randrange(1, self.largest_value))
            messages.append(
                Message(
                    key=chance.choice((None, b"", b"key", b"\x00\xfe\xff", b"%d" % number)),
                    value=chance.choice((None, b"", large, large, large, large, large, large)),
                    headers=chance.choice(header_sets),
                    timestamp=self._now - chance.randrange(10 * HOUR),
                )
            )
        return messages

    # --- changing

    def switch_to_log_append_time(self, topic: str) -> None:
        entry = ConfigEntry(
            "message.timestamp.type", LOG_APPEND_TIME, incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(SECONDS)

    def delete_before(self, place: Place, offset: int) -> None:
        """A broker that has to wait for a compaction says after a while that it was too long: then again."""
        deadline = time.monotonic() + 4 * SECONDS
        while True:
            [deleted] = self._admin.delete_records([TopicPartition(*place, offset)]).values()
            try:
                assert deleted.result(2 * SECONDS).low_watermark == offset
                break
            except KafkaException as error:
                if error.args[0].code() != KafkaError.REQUEST_TIMED_OUT or time.monotonic() > deadline:
                    raise
        with self._lock:
            self.starts[place] = offset


def as_acknowledged(message: Message, report: Received) -> Message:
    """With the offset that the broker gave it, and with its time where that is the broker's."""
    kind, timestamp = report.timestamp()
    appended = kind == TIMESTAMP_LOG_APPEND_TIME
    return replace(
        message,
        offset=known(report.offset()),
        timestamp=timestamp if appended else message.timestamp,
        timestamp_type=LOG_APPEND_TIME if appended else CREATE_TIME,
    )


class BackgroundProducer:
    """A producer that does not stop while something else happens."""

    def __init__(self, log: WrittenLog, pause_seconds: float) -> None:
        self._log = log
        self._pause = pause_seconds
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="going on")
        self._thread.start()

    def _run(self) -> None:
        kinds = [(codec, idempotent) for codec in CODECS for idempotent in (False, True)]
        number = 0
        try:
            while not self._stopping.wait(self._pause):
                self._log.write(*kinds[number % len(kinds)], count=5)
                number += 1
        except BaseException as failure:  # raised where it is stopped
            self._failure = failure

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(2 * SECONDS)
        if self._failure is not None:
            raise self._failure
