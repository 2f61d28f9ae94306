"""Where produced batches are judged, and how much is judged at once, in threads, in a turn, in a request."""

from __future__ import annotations

import asyncio
import gzip
import struct
from collections.abc import Callable
from typing import Any

import cramjam
import pytest
from tests.services import room_settings
from tests.unit.broker.api.fakes import FakeConnection, Harness, batch, running

from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dray.kafka.records import Codec, crc32c, unfolds_to

NOW = 1_750_000_000_000
CODECS = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])


@pytest.fixture
async def topic(broker: Harness) -> Topic:
    return await new_topic(broker)


async def new_topic(broker: Harness, **config: str) -> Topic:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    configs = {name.replace("_", "."): value for name, value in config.items()}
    return await broker.topics.create(NewTopic("orders", 30, config=configs))


def good(*values: bytes, **fields: Any) -> bytes:
    return batch(*(values or (b"value",)), now_ms=NOW, **fields)


def with_frames(codec: Codec, *values: bytes, compress: Callable[[bytes], bytes]) -> bytes:
    """Records in frames that no client of ours makes."""
    plain = bytearray(good(*values))
    made = plain[:61] + compress(bytes(plain[61:]))
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">h", made, 21, codec)
    struct.pack_into(">I", made, 17, crc32c(made[21:]))
    return bytes(made)


def lying(*values: bytes) -> bytes:
    """It says that it unfolds to nothing."""
    return with_frames(
        Codec.GZIP, *values, compress=lambda section: gzip.compress(section) + gzip.compress(b"")
    )


def streamed(section: bytes) -> bytes:
    """As the Java client does it: the frame does not say how long it is."""
    compressor = cramjam.zstd.Compressor(level=3)
    compressor.compress(section)
    return bytes(compressor.finish())


def request(topic: Topic, *parts: bytes) -> ProduceRequest:
    data = [PartitionProduceData(index=index, records=records) for index, records in enumerate(parts)]
    return ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic.name, partition_data=data)]
    )


def codes(response: ProduceResponse) -> list[int]:
    return [part.error_code for part in response.responses[0].partition_responses]


class Calls:
    """What a runtime was asked for."""

    def __init__(self, broker: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads = 0
        self.waits = 0
        in_thread, sleep = broker.runtime.in_thread, broker.runtime.sleep

        async def counted_thread(function: Callable[..., Any], *arguments: Any) -> Any:
            self.threads += 1
            return await in_thread(function, *arguments)

        async def counted_sleep(seconds: float) -> None:
            self.waits += seconds == 0
            await sleep(seconds)

        monkeypatch.setattr(broker.runtime, "in_thread", counted_thread)
        monkeypatch.setattr(broker.runtime, "sleep", counted_sleep)


@pytest.fixture
def calls(broker: Harness, monkeypatch: pytest.MonkeyPatch) -> Calls:
    return Calls(broker, monkeypatch)


# --- at once, or in a thread


@CODECS
async def test_what_it_unfolds_to_decides(codec: Codec, broker: Harness, topic: Topic, calls: Calls) -> None:
    small, far = good(bytes(100_000), codec=codec), good(bytes(400_000), codec=codec)
    assert len(far) < 32 * 1024
    assert codes(await broker.ask(request(topic, small), 9)) == [0]
    assert calls.threads == 0
    assert codes(await broker.ask(request(topic, far), 9)) == [0]
    assert calls.threads == 1, "once: it is taken at its word"


@pytest.mark.parametrize(("size", "threads"), [(10_000, 0), (400_000, 1)])
async def test_a_frame_from_a_stream_is_known_by_its_blocks(
    size: int, threads: int, broker: Harness, topic: Topic, calls: Calls
) -> None:
    sent = with_frames(Codec.ZSTD, bytes(size), compress=streamed)
    assert sent[61 + 4] & 0xE0 == 0, "it names no length"
    assert size <= unfolds_to(sent) <= size + 128 * 1024
    assert codes(await broker.ask(request(topic, sent), 9)) == [0]
    assert calls.threads == threads


async def test_a_frame_that_lies_goes_to_a_thread(broker: Harness, topic: Topic, calls: Calls) -> None:
    sent = lying(bytes(1000))
    assert unfolds_to(sent) == 1
    assert codes(await broker.ask(request(topic, sent), 9)) == [0]
    assert calls.threads == 2, "once by its word, and then as far as allowed"
    async with running(room_settings.api(decompressed_bytes=500)) as strict:
        other = await new_topic(strict)
        assert codes(await strict.ask(request(other, sent), 9)) == [ErrorCode.MESSAGE_TOO_LARGE]


async def test_a_large_batch_without_compression_goes_to_a_thread(
    broker: Harness, topic: Topic, calls: Calls
) -> None:
    wide = await broker.topics.create(NewTopic("wide", config={"max.message.bytes": "10000000"}))
    assert codes(await broker.ask(request(wide, good(bytes(4_000_000))), 9)) == [0]
    assert calls.threads == 0
    assert codes(await broker.ask(request(wide, good(bytes(5_000_000))), 9)) == [0]
    assert calls.threads == 1


async def test_what_was_judged_at_once_is_not_judged_again(broker: Harness, calls: Calls) -> None:
    """It was given its time, and a batch that has one is refused."""
    topic = await new_topic(broker, message_timestamp_type="LogAppendTime")
    answer = await broker.ask(request(topic, good(b"first"), lying(bytes(1000)), good(b"last")), 9)
    assert codes(answer) == [0, 0, 0]
    assert calls.threads == 2


@pytest.mark.parametrize(("count", "threads"), [(200, 0), (8000, 1)])
async def test_many_records_are_looked_at_in_a_thread(
    count: int, threads: int, broker: Harness, topic: Topic, calls: Calls
) -> None:
    late = batch(*[b""] * count, timestamps=[NOW, *[NOW + 10**9] * (count - 1)])
    answer = await broker.ask(request(topic, late), 9)
    [part] = answer.responses[0].partition_responses
    assert part.error_code == ErrorCode.INVALID_TIMESTAMP
    assert f"{count - 1} record errors in total" in (part.error_message or "")
    assert [error.batch_index for error in part.record_errors] == list(range(1, 101))
    assert calls.threads == threads


@pytest.mark.parametrize("codec", list(Codec))
async def test_what_is_compressed_anew_is_judged_once(codec: Codec, broker: Harness, calls: Calls) -> None:
    topic = await new_topic(broker, compression_type="lz4")
    assert codes(await broker.ask(request(topic, good(bytes(100_000), codec=codec)), 9)) == [0]
    assert calls.threads == 1


# --- in a turn


async def test_work_on_the_loop_is_spread_over_turns(broker: Harness, topic: Topic, calls: Calls) -> None:
    broker.services.turns.left = broker.services.turns.limit = 30_000
    answer = await broker.ask(request(topic, *[good(bytes(60_000))] * 9), 9)
    assert codes(answer) == [0] * 9
    assert (calls.threads, calls.waits) == (0, 4), "two in a turn"
    assert [stream for stream, _ in broker.log.appended] == list(topic.streams[:9])


@CODECS
async def test_compressed_batches_cost_more(codec: Codec, broker: Harness, topic: Topic) -> None:
    turns = broker.services.turns
    await broker.ask(request(topic, good(bytes(10))), 9)
    least = turns.limit - turns.left
    turns.left = turns.limit
    sent = good(bytes(50_000), codec=codec)
    await broker.ask(request(topic, sent), 9)
    assert turns.limit - turns.left == pytest.approx(least + 50_000 + (64 + 1 / 8) * len(sent), abs=100)
    turns.left = turns.limit
    await broker.ask(request(topic, sent[:-10] + bytes(10)), 9)
    assert turns.left <= turns.limit - 64 * len(sent), "one that is refused was looked at as well"


async def test_many_small_records_cost_more_than_a_large_one(broker: Harness, topic: Topic) -> None:
    turns = broker.services.turns
    large, small = good(bytes(7_000)), good(*[b""] * 1_000)
    costs = []
    for sent in (large, small, small + large):
        turns.left = turns.limit
        await broker.ask(request(topic, sent), 9)
        costs.append(turns.limit - turns.left)
    assert costs[1] > costs[0] + 20_000
    assert costs[2] > costs[1] + 20_000, "what follows the first batch of a buffer may be anything"


async def test_a_request_that_waits_for_its_turn_is_not_overtaken(broker: Harness, topic: Topic) -> None:
    turns = broker.services.turns
    connection = FakeConnection()
    turns.left = 0
    asked = [
        asyncio.ensure_future(broker.ask(request(topic, numbered(number)), 9, connection))
        for number in range(3)
    ]
    await asyncio.sleep(0)
    turns.left = turns.limit  # another request renewed it before the first one woke up
    asked.append(asyncio.ensure_future(broker.ask(request(topic, numbered(3)), 9, connection)))
    await asyncio.gather(*asked)
    assert [sequence for _, sequence in broker.log.appended] == [0, 1, 2, 3]


def numbered(sequence: int) -> bytes:
    return good(producer_id=5, producer_epoch=0, base_sequence=sequence)


# --- in a request


async def test_a_request_unfolds_to_so_much_and_no_more() -> None:
    async with running(room_settings.api(decompressed_bytes=250_000)) as broker:
        topic = await new_topic(broker)
        far = good(bytes(245_000), codec=Codec.ZSTD)
        small = good(bytes(1000), codec=Codec.ZSTD)
        answer = await broker.ask(request(topic, *[far] * 6, good(), small), 9)
        # What is small is judged first; what comes after the first that is too much is not tried.
        too_large = ErrorCode.MESSAGE_TOO_LARGE
        assert codes(answer) == [0, 0, 0, 0, too_large, too_large, 0, 0]
        [*_, refused, _, _] = answer.responses[0].partition_responses
        assert "may decompress to 1000000 bytes together" in (refused.error_message or "")
        assert len(broker.log.appended) == 6
        assert codes(await broker.ask(request(topic, far, far), 9)) == [0, 0], "the next request has its own"


async def test_small_batches_count_towards_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(room_settings.api(decompressed_bytes=250_000)) as broker:
        topic = await new_topic(broker)
        calls = Calls(broker, monkeypatch)
        sent = good(bytes(200_000), codec=Codec.LZ4)
        answer = await broker.ask(request(topic, *[sent] * 12), 9)
        assert codes(answer) == [0] * 4 + [ErrorCode.MESSAGE_TOO_LARGE] * 8
        assert calls.threads == 1, "the first that is too much is tried, and no other"


async def test_what_threads_unfold_at_once_is_bounded(broker: Harness, topic: Topic) -> None:
    """Requests of several connections; each holds one batch at a time."""
    unfolding = broker.services.unfolding
    unfolding.limit = 1_000_000
    most = 0
    in_thread = broker.runtime.in_thread

    async def watched(function: Callable[..., Any], *arguments: Any) -> Any:
        nonlocal most
        most = max(most, unfolding.used)
        return await in_thread(function, *arguments)

    broker.runtime.in_thread = watched  # type: ignore[method-assign]
    far = good(bytes(400_000), codec=Codec.ZSTD)
    answers = await asyncio.gather(
        *[broker.ask(request(topic, far, far, far), 9, FakeConnection()) for _ in range(8)]
    )
    assert [codes(answer) for answer in answers] == [[0, 0, 0]] * 8
    assert 800_000 < most <= 1_000_000
    assert unfolding.used == 0
