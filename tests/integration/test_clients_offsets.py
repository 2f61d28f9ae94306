"""Offsets as clients ask for them: earliest, latest, by time; long polls; deleted records; LogAppendTime."""

from __future__ import annotations

import time

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from tests.services.clients import CLIENTS, Message
from tests.services.clients.aiokafka_client import run

BASE_TIME = int(time.time()) * 1000 - 3 * 3_600_000
"""Some hours ago: older than retention allows, and Kafka would delete the records within the test."""
MINUTE = 60_000

TIMES = [0, 1, 2, 9, 3, 4, 5, 6, 7, 8]
"""Minutes after BASE_TIME of the records at offsets 0, 1, 2...: CreateTime need not be in order."""

ASKED = {
    # minutes after BASE_TIME -> the first offset whose time is not before it
    -5: 0,
    0: 0,
    2: 2,
    3: 3,
    8: 3,
    9: 3,
    10: None,
}


@pytest.fixture
def timed_topic(bootstrap, make_topic):
    """One record per batch, so that no answer comes from a batch's bounds alone."""
    topic = make_topic()
    for number, minutes in enumerate(TIMES):
        message = Message(None, b"%d" % number, timestamp=BASE_TIME + minutes * MINUTE)
        assert CLIENTS["confluent"](bootstrap).produce(topic, [message]) == [number]
    return topic


@pytest.fixture
def one_batch_topic(bootstrap, make_topic):
    topic = make_topic()
    messages = [Message(None, b"%d" % n, timestamp=BASE_TIME + m * MINUTE) for n, m in enumerate(TIMES)]
    CLIENTS["confluent"](bootstrap).produce(topic, messages, codec="lz4")
    return topic


@pytest.fixture(params=["timed_topic", "one_batch_topic"])
def any_timed_topic(request):
    return request.getfixturevalue(request.param)


def consumer_of(bootstrap: str, **settings: object) -> Consumer:
    return Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False} | settings
    )


def test_offsets_for_times_confluent(bootstrap, any_timed_topic):
    consumer = consumer_of(bootstrap)
    for minutes, offset in ASKED.items():
        asked = TopicPartition(any_timed_topic, 0, BASE_TIME + minutes * MINUTE)
        (answer,) = consumer.offsets_for_times([asked], timeout=60)
        # librdkafka gives the end (-1) where there is no such record
        assert (minutes, answer.offset) == (minutes, -1 if offset is None else offset)
    consumer.close()


def test_offsets_for_times_kafka_python(bootstrap, any_timed_topic):
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    partition = PythonPartition(any_timed_topic, 0)
    for minutes, offset in ASKED.items():
        answer = consumer.offsets_for_times({partition: BASE_TIME + minutes * MINUTE})[partition]
        assert (minutes, answer and answer.offset) == (minutes, offset)
        if answer:
            assert offset is not None
            assert answer.timestamp == BASE_TIME + TIMES[offset] * MINUTE
    consumer.close()


def test_offsets_for_times_aiokafka(bootstrap, any_timed_topic):
    async def ask() -> dict[int, int | None]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(any_timed_topic, 0)
            answers = {}
            for minutes in ASKED:
                answer = await consumer.offsets_for_times({partition: max(0, BASE_TIME + minutes * MINUTE)})
                answers[minutes] = answer[partition] and answer[partition].offset
            return answers
        finally:
            await consumer.stop()

    assert run(ask()) == ASKED


def test_earliest_latest_and_max_timestamp(admin, bootstrap, any_timed_topic):
    def ask(spec: OffsetSpec) -> int:
        partition = TopicPartition(any_timed_topic, 0)
        found: int = admin.list_offsets({partition: spec})[partition].result(60).offset
        return found

    assert ask(OffsetSpec.earliest()) == 0
    assert ask(OffsetSpec.latest()) == len(TIMES)
    assert ask(OffsetSpec.max_timestamp()) == TIMES.index(max(TIMES))
    consumer = consumer_of(bootstrap)
    assert consumer.get_watermark_offsets(TopicPartition(any_timed_topic, 0), timeout=60) == (0, len(TIMES))
    consumer.close()


def test_an_empty_partition(admin, bootstrap, make_topic):
    partition = TopicPartition(make_topic(), 0)
    for spec, offset in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 0),
        (OffsetSpec.max_timestamp(), -1),
    ):
        assert admin.list_offsets({partition: spec})[partition].result(60).offset == offset


def test_a_long_poll_wakes_for_a_record(bootstrap, make_topic):
    """The consumer's poll lies at the broker for up to five minutes; the record must not wait for its end."""
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    consumer = consumer_of(
        bootstrap, **{"fetch.wait.max.ms": 300_000, "fetch.min.bytes": 1, "socket.timeout.ms": 300_000}
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer.produce(topic, b"first")
    assert producer.flush(60) == 0
    first = consumer.poll(10)
    assert first is not None
    assert first.value() == b"first"
    for number in range(5):
        # Nothing comes while nothing is written: when this returns, the next fetch lies at the broker.
        assert consumer.poll(0.3) is None
        producer.produce(topic, b"%d" % number)
        received = consumer.poll(60)
        assert received is not None
        assert received.value() == b"%d" % number
    consumer.close()


def test_deleted_records_are_gone(admin, bootstrap, timed_topic):
    partition = TopicPartition(timed_topic, 0, 4)
    (deleted,) = admin.delete_records([partition]).values()
    assert deleted.result(60).low_watermark == 4
    asked = TopicPartition(timed_topic, 0)
    assert admin.list_offsets({asked: OffsetSpec.earliest()})[asked].result(60).offset == 4
    seen = CLIENTS["confluent"](bootstrap).fetch(timed_topic, len(TIMES) - 4, start=4)
    assert [message.offset for message in seen] == list(range(4, len(TIMES)))

    consumer = consumer_of(bootstrap, **{"auto.offset.reset": "error"})
    consumer.assign([TopicPartition(timed_topic, 0, 0)])
    with pytest.raises(KafkaException) as refused:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error():
                raise KafkaException(message.error())
    consumer.close()
    assert refused.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET

    # past the end: refused, and nothing more is deleted
    (beyond,) = admin.delete_records([TopicPartition(timed_topic, 0, 100)]).values()
    with pytest.raises(KafkaException) as out_of_range:
        beyond.result(10)
    assert out_of_range.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    # -1: everything
    (everything,) = admin.delete_records([TopicPartition(timed_topic, 0, -1)]).values()
    assert everything.result(60).low_watermark == len(TIMES)
    # and the partition goes on where it was
    assert CLIENTS["confluent"](bootstrap).produce(timed_topic, [Message(None, b"next")]) == [len(TIMES)]


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_log_append_time(codec, bootstrap, make_topic):
    """The broker's time replaces the client's, also within a compressed batch, and the CRC still holds."""
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    messages = [Message(b"k", b"%d" % number, timestamp=BASE_TIME) for number in range(10)]
    CLIENTS["confluent"](bootstrap).produce(topic, messages, codec=codec, idempotent=True)
    after = int(time.time() * 1000)
    seen = CLIENTS["confluent"](bootstrap).fetch(topic, 10)  # it checks the CRC
    assert [message.value for message in seen] == [message.value for message in messages]
    times = {message.timestamp for message in seen}
    assert len(times) == 1
    assert before <= times.pop() <= after
    assert CLIENTS["aiokafka"](bootstrap).fetch(topic, 10) == seen


def test_timestamps_too_far_ahead_are_refused(bootstrap, make_topic):
    topic = make_topic()
    tomorrow = int(time.time() * 1000) + 86_400_000
    with pytest.raises(KafkaException) as refused:
        CLIENTS["confluent"](bootstrap).produce(topic, [Message(None, b"x", timestamp=tomorrow)])
    assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP
