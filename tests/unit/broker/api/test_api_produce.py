"""Produce, byte for byte through the dispatcher: what is stored, what is refused, and in which order."""

from __future__ import annotations

import asyncio
import struct
from typing import Any
from uuid import UUID

import pytest
from tests.services import room_settings
from tests.unit.broker.api.fakes import FakeConnection, Harness, batch, frame, running

from dray.broker.api import RefuseConnection
from dray.broker.api.produce import handler as produce_api
from dray.broker.api.produce.batches import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from dray.broker.api.produce.refusals import Refusals
from dray.broker.topics import NewTopic, Topic, TopicsUnavailable
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dray.kafka.records import Codec, Record, decode, twin
from dray.log.types import (
    LogError,
    LogUnavailable,
    OutOfOrderSequence,
    ProducerFenced,
)

NOW = 1_750_000_000_000
HOUR = 3_600_000


@pytest.fixture
async def topic(broker: Harness) -> Topic:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    return await broker.topics.create(NewTopic("orders", 3))


def request(topic: Topic, *parts: tuple[int, bytes | None], acks: int = -1, **fields: Any) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in parts]
    topics = [TopicProduceData(topic_id=topic.topic_id, name=topic.name, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics, **fields)


def only(response: ProduceResponse) -> PartitionProduceResponse:
    [topic] = response.responses
    [partition] = topic.partition_responses
    return partition


async def produce(
    broker: Harness, topic: Topic, records: bytes | None, version: int = 9, partition: int = 0
) -> PartitionProduceResponse:
    return only(await broker.ask(request(topic, (partition, records)), version))


def good(*values: bytes, **fields: Any) -> bytes:
    return batch(*(values or (b"value",)), now_ms=NOW, **fields)


# --- what is stored


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [-1, 1])
async def test_every_version_stores_and_answers(
    broker: Harness, topic: Topic, version: int, acks: int
) -> None:
    for base in (0, 2):
        response = await broker.ask(request(topic, (1, good(b"a", b"b")), acks=acks), version)
        partition = only(response)
        assert (partition.index, partition.error_code, partition.base_offset) == (1, 0, base)
        assert partition.log_append_time_ms == -1
        assert partition.log_start_offset == (0 if version >= 5 else -1)
        if version < 13:
            assert response.responses[0].name == "orders"
        else:
            assert response.responses[0].topic_id == topic.topic_id
    stored = broker.log.streams[topic.streams[1]].batches
    assert [base for base, _, _ in stored] == [0, 2]
    assert [record.value for record in decode(stored[0][1]).records()] == [b"a", b"b"]


async def test_several_topics_and_partitions_are_answered_in_their_order(
    broker: Harness, topic: Topic
) -> None:
    other = await broker.topics.create(NewTopic("other", 2))
    both = request(topic, (2, good()), (0, good()))
    both.topic_data += request(other, (1, b"junk"), (0, good()), (7, good())).topic_data
    response = await broker.ask(both, 9)
    assert [
        (one.name, [(part.index, part.error_code) for part in one.partition_responses])
        for one in response.responses
    ] == [
        ("orders", [(2, 0), (0, 0)]),
        ("other", [(1, ErrorCode.INVALID_RECORD), (0, 0), (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    assert len(broker.log.appended) == 3


async def test_an_empty_request_is_answered_with_nothing(broker: Harness) -> None:
    assert (await broker.ask(ProduceRequest(acks=-1), 9)).responses == []


async def test_log_append_time_is_stamped_and_told(broker: Harness) -> None:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    topic = await broker.topics.create(NewTopic("t", config={"message.timestamp.type": "LogAppendTime"}))
    partition = await produce(broker, topic, batch(b"a", b"b", timestamps=[5, 2**62]))
    assert (partition.error_code, partition.log_append_time_ms) == (0, NOW)
    [(_, stored, time)] = broker.log.streams[topic.streams[0]].batches
    assert time == NOW
    assert [record.timestamp for record in decode(stored).records()] == [NOW, NOW], "the checksum holds too"


@pytest.mark.parametrize("target", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
async def test_a_topic_with_a_codec_stores_in_it(broker: Harness, target: str) -> None:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    topic = await broker.topics.create(NewTopic("t", config={"compression.type": target}))
    codec = Codec.NONE if target == "uncompressed" else Codec[target.upper()]
    for sent in Codec:
        assert (await produce(broker, topic, good(b"x" * 500, codec=sent))).error_code == 0
    for _, stored, _ in broker.log.streams[topic.streams[0]].batches:
        assert stored[22] & 7 == codec
        assert [record.value for record in decode(stored).records()] == [b"x" * 500]


async def test_a_codec_and_append_time_together(broker: Harness) -> None:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    config: dict[str, str | None] = {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"}
    topic = await broker.topics.create(NewTopic("t", config=config))
    assert (await produce(broker, topic, good(b"x" * 500))).log_append_time_ms == NOW
    [(_, stored, _)] = broker.log.streams[topic.streams[0]].batches
    assert stored[22] & 15 == Codec.ZSTD | 8
    assert [record.timestamp for record in decode(stored).records()] == [NOW]


async def test_what_compressing_anew_makes_too_large_is_refused(broker: Harness) -> None:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    config: dict[str, str | None] = {"compression.type": "uncompressed", "max.message.bytes": "1000"}
    topic = await broker.topics.create(NewTopic("t", config=config))
    partition = await produce(broker, topic, good(b"x" * 5000, codec=Codec.ZSTD))
    assert partition.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert not broker.log.appended


async def test_a_large_compressed_batch_is_checked_in_a_thread(broker: Harness, topic: Topic) -> None:
    threads: list[Any] = []
    in_thread = broker.runtime.in_thread

    async def counting(function: Any, *arguments: Any) -> Any:
        threads.append(function)
        return await in_thread(function, *arguments)

    broker.runtime.in_thread = counting  # type: ignore[method-assign]
    large = good(*(bytes([number % 251]) * 3000 for number in range(300)), codec=Codec.LZ4)
    noise = good(bytes(range(256)) * 300, codec=Codec.GZIP)
    for records in (large, noise, good()):
        assert (await produce(broker, topic, records)).error_code == 0
    assert len(threads) <= 2
    random = broker.runtime.random.randbytes(900_000)
    assert (await produce(broker, topic, good(random, codec=Codec.LZ4))).error_code == 0
    assert threads


# --- what is refused


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [2, -2, 32767])
async def test_other_acks_are_refused(broker: Harness, topic: Topic, version: int, acks: int) -> None:
    response = await broker.ask(request(topic, (0, good()), (1, good()), acks=acks), version)
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes == [ErrorCode.INVALID_REQUIRED_ACKS] * 2
    assert not broker.log.appended


@pytest.mark.parametrize("version", [3, 9, 13])
async def test_a_transactional_id_is_refused(broker: Harness, topic: Topic, version: int) -> None:
    response = await broker.ask(request(topic, (0, good()), transactional_id="t"), version)
    assert only(response).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert not broker.log.appended


@pytest.mark.parametrize("version", [3, 8, 12])
@pytest.mark.parametrize("name", ["nothing", "a b", "x" * 300, ""])
async def test_an_unknown_topic_is_not_created(
    broker: Harness, topic: Topic, version: int, name: str
) -> None:
    unknown = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name=name, partition_data=[PartitionProduceData(0, good())])]
    )
    assert only(await broker.ask(unknown, version)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [one.name for one in await broker.topics.read_all()] == ["orders"]


async def test_an_unknown_id_and_an_unknown_partition(broker: Harness, topic: Topic) -> None:
    for partition in (3, -1, 2**31 - 1, -(2**31)):
        for version in (9, 13):
            result = await produce(broker, topic, good(), version, partition)
            assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    unknown = ProduceRequest(
        acks=-1,
        topic_data=[TopicProduceData(topic_id=UUID(int=9), partition_data=[PartitionProduceData(0, good())])],
    )
    assert only(await broker.ask(unknown, 13)).error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", [8, 13])
async def test_a_partition_named_twice_is_refused_and_nothing_of_it_stored(
    broker: Harness, topic: Topic, version: int
) -> None:
    twice = request(topic, (0, good()), (1, good()))
    twice.topic_data += request(topic, (0, good())).topic_data
    response = await broker.ask(twice, version)
    codes = [part.error_code for one in response.responses for part in one.partition_responses]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert broker.log.appended == [(topic.streams[1], -1)]


def damaged(position: int, value: bytes) -> bytes:
    records = bytearray(good())
    records[position : position + len(value)] = value
    return bytes(records)


def resealed(position: int, value: bytes) -> bytes:
    """Damaged where the checksum covers it, and the checksum made right again."""
    records = bytearray(damaged(position, value))
    records[17:21] = struct.pack(">I", twin.crc32c(records[21:]))
    return bytes(records)


@pytest.mark.parametrize("version", [3, 8, 13])
@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (b"x", ErrorCode.INVALID_RECORD),  # cut short: not to be sent again, it would not get longer
        (good()[:-1], ErrorCode.INVALID_RECORD),
        (good()[:40], ErrorCode.INVALID_RECORD),
        (good() + b"behind", ErrorCode.INVALID_RECORD),
        (damaged(30, b"\x01"), ErrorCode.CORRUPT_MESSAGE),
        (damaged(16, b"\x00"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (damaged(16, b"\x01"), ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (damaged(16, b"\x07"), ErrorCode.CORRUPT_MESSAGE),
        (damaged(8, b"\x7f\xff\xff\xff"), ErrorCode.INVALID_RECORD),
        (damaged(8, b"\x00\x00\x00\x20"), ErrorCode.CORRUPT_MESSAGE),
        (damaged(0, struct.pack(">q", 77)), ErrorCode.INVALID_RECORD),  # an offset of its own choice
        (damaged(0, struct.pack(">q", -1)), ErrorCode.INVALID_RECORD),
        (resealed(57, struct.pack(">i", 2)), ErrorCode.INVALID_RECORD),  # a count that lies
        (resealed(57, struct.pack(">i", 2**31 - 1)), ErrorCode.INVALID_RECORD),
        (resealed(57, struct.pack(">i", 0)), ErrorCode.INVALID_RECORD),
        (resealed(21, b"\x00\x07"), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (resealed(21, b"\x00\x01"), ErrorCode.INVALID_RECORD),  # said to be gzip, and is not
        (resealed(21, b"\x00\x10"), ErrorCode.INVALID_RECORD),  # transactional
        (resealed(21, b"\x00\x20"), ErrorCode.INVALID_RECORD),  # control
        (resealed(21, b"\x00\x08"), ErrorCode.INVALID_TIMESTAMP),  # the time is not its to stamp
        (good() + good(), ErrorCode.INVALID_RECORD),
        (good(producer_id=7, producer_epoch=0, base_sequence=-1), ErrorCode.INVALID_RECORD),
    ],
)
async def test_bad_batches_get_their_code_and_are_not_stored(
    broker: Harness, topic: Topic, records: bytes | None, code: ErrorCode, version: int
) -> None:
    partition = await produce(broker, topic, records, version)
    assert ErrorCode(partition.error_code) is code
    assert (partition.base_offset, partition.log_append_time_ms) == (-1, -1)
    if version >= 8:
        assert partition.error_message
    assert not broker.log.appended


async def test_a_header_key_that_is_not_utf8_is_refused(broker: Harness, topic: Topic) -> None:
    records = bytearray(twin.encode([Record(0, NOW, None, b"v", [("kk", b"x")])]))
    at = records.index(b"kk")
    records[at : at + 2] = b"\xff\xfe"
    records[17:21] = struct.pack(">I", twin.crc32c(records[21:]))
    assert (await produce(broker, topic, bytes(records))).error_code == ErrorCode.INVALID_RECORD


async def test_zstd_needs_version_7(broker: Harness, topic: Topic) -> None:
    zstd = good(b"x" * 100, codec=Codec.ZSTD)
    assert (await produce(broker, topic, zstd, 6)).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert (await produce(broker, topic, zstd, 7)).error_code == 0


async def test_a_batch_larger_than_the_topic_takes(broker: Harness) -> None:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    size = len(good(b"x" * 100))
    for limit, code in ((size - 1, ErrorCode.MESSAGE_TOO_LARGE), (size, ErrorCode.NONE)):
        topic = await broker.topics.create(NewTopic(f"t{limit}", config={"max.message.bytes": str(limit)}))
        assert (await produce(broker, topic, good(b"x" * 100))).error_code == code


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
async def test_a_decompression_bomb_is_refused(codec: Codec) -> None:
    async with running(room_settings.api(decompressed_bytes=100_000)) as broker:
        topic = await broker.topics.create(NewTopic("t"))
        bomb = batch(bytes(200_000), now_ms=broker.runtime.wall_ms(), codec=codec)
        assert (await produce(broker, topic, bomb)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert not broker.log.appended


# --- timestamps


@pytest.mark.parametrize("version", [7, 8, 13])
async def test_timestamps_out_of_range_are_refused_one_by_one(
    broker: Harness, topic: Topic, version: int
) -> None:
    times = [NOW, NOW + HOUR + 1, NOW + HOUR, -1, LATEST_TIMESTAMP + 1]
    partition = await produce(broker, topic, batch(*[b"v"] * 5, timestamps=times), version)
    assert partition.error_code == ErrorCode.INVALID_TIMESTAMP
    if version >= 8:
        assert [error.batch_index for error in partition.record_errors] == [1, 4]
        assert f"Timestamp {NOW + HOUR + 1}" in (partition.record_errors[0].batch_index_error_message or "")
    assert not broker.log.appended


@pytest.mark.parametrize("times", [[NOW + HOUR], [0], [-1], [-1, NOW], [-5], [EARLIEST_TIMESTAMP]])
async def test_timestamps_in_range_are_stored(broker: Harness, topic: Topic, times: list[int]) -> None:
    partition = await produce(broker, topic, batch(*[b"v"] * len(times), timestamps=times))
    assert partition.error_code == 0


async def test_what_no_table_can_hold_is_refused_whatever_the_topic_says(broker: Harness) -> None:
    topic = await broker.topics.create(
        NewTopic("t", config={"message.timestamp.after.max.ms": str(2**63 - 1)})
    )
    for time, code in (
        (LATEST_TIMESTAMP, ErrorCode.NONE),
        (LATEST_TIMESTAMP + 1, ErrorCode.INVALID_TIMESTAMP),
        (EARLIEST_TIMESTAMP, ErrorCode.NONE),
        (EARLIEST_TIMESTAMP - 1, ErrorCode.INVALID_TIMESTAMP),
    ):
        assert (await produce(broker, topic, batch(b"v", timestamps=[time]))).error_code == code


async def test_a_topic_may_bound_the_past(broker: Harness) -> None:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    topic = await broker.topics.create(NewTopic("t", config={"message.timestamp.before.max.ms": "1000"}))
    assert (await produce(broker, topic, batch(b"v", timestamps=[NOW - 1000]))).error_code == 0
    refused = await produce(broker, topic, batch(b"v", b"w", timestamps=[-1, NOW - 1001]))
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [1], "no timestamp is not an old one"
    assert (await produce(broker, topic, batch(b"v", b"w", timestamps=[-1, NOW]))).error_code == 0


async def test_record_errors_are_bounded(broker: Harness, topic: Topic) -> None:
    partition = await produce(broker, topic, batch(*[b""] * 5000, timestamps=[2**60] * 5000))
    assert len(partition.record_errors) == 100
    assert "5000 record errors" in (partition.error_message or "")


# --- keys


def keyed(*keys: bytes | None, time: int = NOW, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(offset, time, key, b"value") for offset, key in enumerate(keys)]
    return bytes(twin.encode(records, codec=codec))


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
@pytest.mark.parametrize("codec", Codec)
async def test_a_compacted_topic_takes_no_record_without_a_key(
    broker: Harness, policy: str, codec: Codec
) -> None:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    topic = await broker.topics.create(NewTopic("t", config={"cleanup.policy": policy}))
    refused = await produce(broker, topic, keyed(b"k", None, b"", None, codec=codec))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in refused.record_errors] == [1, 3], "an empty key is a key"
    assert "without key" in (refused.error_message or "")
    assert not broker.log.appended
    assert (await produce(broker, topic, keyed(b"k", b"", codec=codec))).error_code == 0


async def test_a_topic_with_append_time_looks_at_keys_and_not_at_times(broker: Harness) -> None:
    config: dict[str, str | None] = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    topic = await broker.topics.create(NewTopic("t", config=config))
    assert (await produce(broker, topic, keyed(None))).error_code == ErrorCode.INVALID_RECORD
    assert (await produce(broker, topic, keyed(b"k", time=2**60))).error_code == 0


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        ([None, None], ErrorCode.INVALID_RECORD),
        ([None, b"k"], ErrorCode.INVALID_TIMESTAMP),
        ([b"k", b"k"], ErrorCode.INVALID_TIMESTAMP),
    ],
)
async def test_keys_and_timestamps_are_judged_together(
    broker: Harness, keys: list[bytes | None], code: ErrorCode
) -> None:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    topic = await broker.topics.create(NewTopic("t", config={"cleanup.policy": "compact"}))
    refused = await produce(broker, topic, keyed(*keys, time=2**60))
    assert ErrorCode(refused.error_code) is code
    assert [error.batch_index for error in refused.record_errors] == [0, 1]


# --- what the log says


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OutOfOrderSequence("x"), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (ProducerFenced("x"), ErrorCode.INVALID_PRODUCER_EPOCH),
        (LogUnavailable("x"), ErrorCode.REQUEST_TIMED_OUT),
    ],
)
async def test_errors_of_the_log(broker: Harness, topic: Topic, error: LogError, code: ErrorCode) -> None:
    broker.log.fail[topic.streams[0]] = error
    response = await broker.ask(request(topic, (0, good()), (1, good())), 9)
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes == [code, 0], "the other partition is none the worse"


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_a_stale_broker_cannot_append_to_a_topic_deleted_and_made_anew(
    broker: Harness, topic: Topic, version: int, code: ErrorCode
) -> None:
    async with running(beside=broker, broker_id=1) as stale:
        stale.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
        assert await stale.topics.get("orders") == topic
        await broker.topics.delete("orders")
        fresh = await broker.topics.create(NewTopic("orders", 3))
        assert (await produce(stale, topic, good(), version)).error_code == code
        assert not broker.log.streams
        # It has read the topic again, and the client's next attempt gets there.
        assert stale.topics.cached("orders") == fresh
        assert (await produce(stale, fresh, good(), version)).error_code == 0
        assert list(broker.log.streams) == [fresh.streams[0]]


async def test_partitions_added_elsewhere_are_found(broker: Harness, topic: Topic) -> None:
    async with running(beside=broker, broker_id=1) as other:
        await other.topics.add_partitions("orders", 5)
        for version in (9, 13):
            assert (await produce(broker, topic, good(), version, 4)).error_code == 0


async def test_a_store_that_is_away_is_told_apart_from_an_unknown_topic(
    broker: Harness, topic: Topic
) -> None:
    broker.store.down = True
    assert (await produce(broker, topic, good())).error_code == 0, "what is known needs no store"
    unknown = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="x", partition_data=[PartitionProduceData(0, good())])]
    )
    assert only(await broker.ask(unknown, 9)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- acks 0


async def test_acks_0_gets_no_answer(broker: Harness, topic: Topic) -> None:
    answer = await broker.dispatcher.dispatch(
        frame(request(topic, (0, good()), acks=0), 9), broker.connection
    )
    assert answer is None
    assert len(broker.log.appended) == 1


async def test_acks_0_and_an_error_closes_the_connection(broker: Harness, topic: Topic) -> None:
    broker.log.fail[topic.streams[1]] = LogUnavailable("gone")
    for part, name in ((0, "INVALID_RECORD"), (1, "REQUEST_TIMED_OUT"), (9, "UNKNOWN_TOPIC")):
        records = b"junk" if part == 0 else good()
        with pytest.raises(RefuseConnection, match=name) as refused:
            await broker.dispatcher.dispatch(
                frame(request(topic, (part, records), acks=0), 9), broker.connection
            )
        assert "\n" not in refused.value.reason


# --- order


async def test_requests_of_one_connection_reach_the_log_in_order(broker: Harness, topic: Topic) -> None:
    """One waits for a thread, one for the store, one for nothing: none overtakes another."""
    release = asyncio.Event()
    in_thread = broker.runtime.in_thread

    async def slow(function: Any, *arguments: Any) -> Any:
        await release.wait()
        return await in_thread(function, *arguments)

    broker.runtime.in_thread = slow  # type: ignore[method-assign]
    noise = broker.runtime.random.randbytes(900_000)

    def numbered(sequence: int, value: bytes = b"v", codec: Codec = Codec.NONE) -> ProduceRequest:
        records = good(value, codec=codec, producer_id=1, producer_epoch=0, base_sequence=sequence)
        return request(topic, (0, records))

    requests = [
        numbered(0),
        numbered(1, noise, Codec.LZ4),
        numbered(2),
        numbered(3, noise, Codec.LZ4),
        numbered(4),
    ]
    unknown = ProduceRequest(
        acks=-1, topic_data=[TopicProduceData(name="x", partition_data=[PartitionProduceData(0, good())])]
    )
    requests.insert(3, unknown)
    tasks = [
        asyncio.ensure_future(broker.dispatcher.dispatch(frame(one, 9), broker.connection))
        for one in requests
    ]
    await asyncio.sleep(0)
    elsewhere = FakeConnection()
    other = await broker.dispatcher.dispatch(frame(numbered(9), 9), elsewhere)
    assert other is not None, "another connection is not held up"
    assert [sequence for _, sequence in broker.log.appended] == [0, 9]
    release.set()
    await asyncio.gather(*tasks)
    assert [sequence for _, sequence in broker.log.appended] == [0, 9, 1, 2, 3, 4]
    assert not broker.connection.state, "the gate is gone"


@pytest.mark.parametrize("version", [9, 13])
async def test_what_follows_a_batch_refused_on_the_way_waits_for_it(
    broker: Harness, topic: Topic, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """The store does not answer for a moment: a producer's first batch is refused, and its second, which was
    sent at the same time, must not be taken for the first."""

    def numbered(sequence: int, producer: int = 1, epoch: int = 0) -> bytes:
        return good(producer_id=producer, producer_epoch=epoch, base_sequence=sequence)

    async def send(records: bytes) -> int:
        return (await produce(broker, topic, records, version)).error_code

    async def away(*_: object, **__: object) -> None:
        raise TopicsUnavailable("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(produce_api, "find_topic", away)
        patch.setattr(broker.topics, "cached", lambda _: None)
        patch.setattr(broker.topics, "cached_by_id", lambda _: None)
        assert await send(numbered(0)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert await send(numbered(1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await send(numbered(0, producer=2)) == 0, "another producer has nothing to wait for"
    assert await send(good()) == 0, "and one without sequences neither"
    assert await send(numbered(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await send(numbered(0)) == 0
    assert await send(numbered(1)) == 0
    assert not broker.connection.state, "nothing is remembered any longer"


def test_the_earliest_refused_batch_counts_and_a_newer_epoch_ends_the_wait() -> None:
    place = ("orders", 0)

    def numbered(sequence: int, epoch: int = 0) -> bytes:
        return good(producer_id=1, producer_epoch=epoch, base_sequence=sequence)

    refusals = Refusals()
    refusals.note(place, numbered(5))
    refusals.note(place, numbered(3))
    refusals.note(place, numbered(4))
    assert not refusals.overtakes(("orders", 1), numbered(4))
    assert not refusals.overtakes(place, numbered(2))
    assert refusals.overtakes(place, numbered(4))
    assert refusals.overtakes(place, numbered(5))
    assert not refusals.overtakes(place, numbered(3))
    assert not refusals
    refusals.note(place, numbered(3))
    assert not refusals.overtakes(place, numbered(0, epoch=1))
    assert not refusals
    last = 2**31 - 1
    refusals.note(place, numbered(last))
    assert refusals.overtakes(place, numbered(0)), "sequences wrap"
    for strange in (None, b"", b"x" * 60, good()):
        refusals.note(place, strange)
        assert not refusals.overtakes(place, strange)


async def test_a_request_cancelled_at_the_gate_opens_it(broker: Harness, topic: Topic) -> None:
    release = asyncio.Event()

    async def slow(function: Any, *arguments: Any) -> Any:
        await release.wait()
        return function(*arguments)

    broker.runtime.in_thread = slow  # type: ignore[method-assign]
    noise = good(broker.runtime.random.randbytes(900_000), codec=Codec.LZ4)
    task = asyncio.ensure_future(
        broker.dispatcher.dispatch(frame(request(topic, (0, noise)), 9), broker.connection)
    )
    await asyncio.sleep(0)
    assert broker.connection.state
    task.cancel()
    await asyncio.wait([task])
    assert not broker.connection.state
    assert (await produce(broker, topic, good())).error_code == 0
