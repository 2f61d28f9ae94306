"""What any client writes, in any codec, every client reads as it was written."""

from __future__ import annotations

import random
import time

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from tests.services.clients import BUILT_CLIENTS, CLIENTS, CODECS, Message
from tests.services.topics import create_topic

BASE_TIME = int(time.time()) * 1000 - 3 * 3_600_000
"""Some hours ago: older than retention allows, and Kafka would delete the records within the test."""

TEXT = (
    Message(b"key", b"value", timestamp=BASE_TIME),
    Message(b"key", b"one header", (("name", b"value"),), BASE_TIME + 1),
    Message(b"key", b"the same header twice", (("name", b"first"), ("name", b"second")), BASE_TIME + 2),
    Message("schlüssel".encode(), "größer als ASCII ✓".encode(), timestamp=BASE_TIME + 3),
    Message(None, b"no key", timestamp=BASE_TIME + 4),
    Message(b"no value", None, timestamp=BASE_TIME + 5),
    Message(b"long", b"0123456789" * 2000, timestamp=BASE_TIME + 6),
)

BINARY = (
    Message(None, None, timestamp=BASE_TIME + 7),
    Message(b"", b"", timestamp=BASE_TIME + 8),
    Message(bytes(range(256)), bytes(reversed(range(256))), timestamp=BASE_TIME + 9),
    Message(b"k", b"v", (("no", None), ("empty", b""), ("no", b"\x00\xff"), ("ключ", b"x")), BASE_TIME + 10),
    Message(b"earlier", b"out of order", timestamp=BASE_TIME - 86_400_000),
    Message(b"noise", random.Random(7).randbytes(30_000), timestamp=BASE_TIME + 11),
)

ALL_CLIENTS = CLIENTS | BUILT_CLIENTS


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.soak] if name in BUILT_CLIENTS else []


WRITES = [
    pytest.param(
        name,
        codec,
        idempotent,
        id=f"{name}-{codec}-{'idempotent' if idempotent else 'plain'}",
        marks=marks_of(name),
    )
    for name in ALL_CLIENTS
    for codec in CODECS
    for idempotent in ((False, True) if codec in ("none", "zstd") else (True,))
]
NAMES = [pytest.param(name, marks=marks_of(name)) for name in ALL_CLIENTS]


def messages_for(name: str) -> tuple[Message, ...]:
    client = ALL_CLIENTS[name]
    return tuple(filter(client.can_write, TEXT if client.text_only else TEXT + BINARY))


def without_timestamps(messages: list[Message]) -> list[Message]:
    return [Message(m.key, m.value, m.headers, -1, m.offset) for m in messages]


@pytest.mark.parametrize(("name", "codec", "idempotent"), WRITES)
def test_every_writer_and_codec(name, codec, idempotent, bootstrap, make_topic):
    topic = make_topic()
    messages = messages_for(name)
    offsets = ALL_CLIENTS[name](bootstrap).produce(topic, messages, codec=codec, idempotent=idempotent)
    assert offsets == list(range(len(messages)))
    expected = [message.at(offset) for offset, message in enumerate(messages)]
    seen = CLIENTS["confluent"](bootstrap).fetch(topic, len(messages))
    if ALL_CLIENTS[name].text_only:  # kcat cannot set a timestamp
        expected, seen = without_timestamps(expected), without_timestamps(seen)
    assert seen == expected


@pytest.fixture(scope="module")
def mixed_topic(bootstrap):
    """Every codec in one partition, written by librdkafka: idempotent and not, several batches of each."""
    topic = "mixed-codecs"
    create_topic(bootstrap, topic)
    written: list[Message] = []
    writer = CLIENTS["confluent"](bootstrap)
    for codec in CODECS:
        for idempotent in (False, True):
            offsets = writer.produce(topic, TEXT, codec=codec, idempotent=idempotent)
            written += [message.at(offset) for message, offset in zip(TEXT, offsets, strict=True)]
    assert [message.offset for message in written] == list(range(len(written)))
    return topic, written


@pytest.mark.parametrize("name", NAMES)
def test_every_reader_reads_every_codec(name, bootstrap, mixed_topic):
    topic, written = mixed_topic
    assert ALL_CLIENTS[name](bootstrap).fetch(topic, len(written)) == written


@pytest.mark.parametrize("name", NAMES)
def test_reading_starts_inside_a_batch(name, bootstrap, make_topic):
    """The broker answers with the whole batch; the client drops what was not asked for."""
    topic = make_topic()
    CLIENTS["confluent"](bootstrap).produce(topic, TEXT)
    middle = len(TEXT) // 2
    expected = [message.at(offset) for offset, message in enumerate(TEXT)][middle:]
    assert ALL_CLIENTS[name](bootstrap).fetch(topic, len(expected), start=middle) == expected


LARGEST = 1_048_516
"""The value of a lone record, without key and headers, whose batch has exactly Kafka's default limit of
1,048,588 bytes: 61 of the batch's header and 11 of the record's own fields come on top."""


@pytest.mark.parametrize("name", ["confluent", "aiokafka", "kafka-python", "java"])
def test_largest_message(name, bootstrap, make_topic):
    topic = make_topic()
    client = CLIENTS[name](bootstrap)
    message = Message(None, random.Random(1).randbytes(LARGEST), timestamp=BASE_TIME)
    assert client.produce(topic, [message]) == [0]
    assert client.fetch(topic, 1) == [message.at(0)]


def test_larger_than_the_largest_message_is_refused(bootstrap, make_topic):
    topic = make_topic()
    client = CLIENTS["confluent"](bootstrap)
    with pytest.raises(KafkaException) as refused:
        client.produce(topic, [Message(None, b"x" * (LARGEST + 1), timestamp=BASE_TIME)])
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert client.produce(topic, [Message(None, b"small", timestamp=BASE_TIME)]) == [0]


def test_a_topic_may_allow_larger_messages(bootstrap, make_topic):
    topic = make_topic(**{"max.message.bytes": "8000000"})
    client = CLIENTS["confluent"](bootstrap)
    message = Message(b"k", random.Random(2).randbytes(7_900_000), timestamp=BASE_TIME)
    assert client.produce(topic, [message], idempotent=True) == [0]
    assert client.fetch(topic, 1) == [message.at(0)]


def test_many_batches_over_many_partitions(bootstrap, make_topic):
    """More than one fetch answer can hold, read back complete and in order from every partition."""
    topic = make_topic(8)
    client = CLIENTS["confluent"](bootstrap)
    for partition in range(8):
        messages = [
            Message(None, b"%d-%d" % (partition, i) + b"." * 1000, timestamp=BASE_TIME) for i in range(3000)
        ]
        assert client.produce(topic, messages, partition=partition, idempotent=True) == list(range(3000))
        assert client.fetch(topic, 3000, partition=partition) == [m.at(i) for i, m in enumerate(messages)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks(acks, bootstrap, make_topic):
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    for number in range(100):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0
    seen = CLIENTS["confluent"](bootstrap).fetch(topic, 100)
    assert [message.value for message in seen] == [b"%d" % number for number in range(100)]
