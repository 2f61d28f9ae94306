from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest
from tests.services.batches import joined
from tests.unit.broker.api.fakes import FakeConnection, Harness, batch, running

from dray.broker.api.shared.context import LongPolls
from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.kafka.records import decode
from dray.log.types import LogError, LogUnavailable, ObjectCorrupt, ReadRequest


@pytest.fixture
async def topic(broker: Harness) -> Topic:
    topic = await broker.topics.create(NewTopic("orders", 3))
    for value in (b"first", b"second"):
        records = batch(value, now_ms=broker.runtime.wall_ms())
        data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(0, records)])]
        await broker.ask(ProduceRequest(acks=-1, topic_data=data), 9)
    return topic


def request(topic: Topic, *parts: tuple[int, int], **fields: Any) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in parts
    ]
    return FetchRequest(
        topics=[FetchTopic(topic_id=topic.topic_id, topic=topic.name, partitions=partitions)],
        **{"min_bytes": 1, **fields},
    )


def only(response: FetchResponse) -> PartitionData:
    assert response.error_code == 0
    [topic] = response.responses
    [partition] = topic.partitions
    return partition


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_reads_what_is_there(broker: Harness, topic: Topic, version: int) -> None:
    response = await broker.ask(request(topic, (0, 0)), version)
    assert response.session_id == 0
    partition = only(response)
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (0, 2, 2)
    assert partition.log_start_offset == (0 if version >= 5 else -1)
    assert partition.preferred_read_replica == -1
    records = decode(joined(partition.records)).records()
    assert [(record.offset, record.value) for record in records] == [(0, b"first"), (1, b"second")]
    if version < 13:
        assert response.responses[0].topic == "orders"
    else:
        assert response.responses[0].topic_id == topic.topic_id


async def test_nothing_to_read_is_empty_and_not_null(broker: Harness, topic: Topic) -> None:
    response = await broker.ask(request(topic, (0, 2), (1, 0)), 12)
    assert [joined(part.records) or b"?" for part in response.responses[0].partitions] == [b"?", b"?"]
    assert [part.records is None for part in response.responses[0].partitions] == [False, False]


@pytest.mark.parametrize(("isolation", "aborted"), [(0, None), (1, [])])
async def test_isolation_changes_nothing_but_the_empty_list(
    broker: Harness, topic: Topic, isolation: int, aborted: list[Any] | None
) -> None:
    partition = only(await broker.ask(request(topic, (0, 0), isolation_level=isolation), 12))
    assert partition.aborted_transactions == aborted
    assert partition.last_stable_offset == partition.high_watermark == 2


async def test_the_limits_are_handed_to_the_log_and_bounded(broker: Harness, topic: Topic) -> None:
    limit = broker.services.settings.fetch_bytes
    await broker.ask(request(topic, (0, 0), max_bytes=1000, min_bytes=5, max_wait_ms=7), 12)
    await broker.ask(request(topic, (0, 0), max_bytes=2**31 - 1, min_bytes=2**31 - 1, max_wait_ms=7), 12)
    await broker.ask(request(topic, (0, 0), max_bytes=-5, min_bytes=0, max_wait_ms=7), 12)
    await broker.ask(request(topic, (0, 0), max_wait_ms=-7), 12)
    assert [fetch[1:] for fetch in broker.log.fetches] == [
        (5, 1000, 7),
        (limit, limit, 7),
        (0, 0, 0),
        (0, limit, 0),
    ]
    assert broker.log.fetches[0][0] == [ReadRequest(topic.streams[0], 0, 1 << 20)]
    odd = request(topic, (0, 0))
    odd.topics[0].partitions[0].partition_max_bytes = -1
    await broker.ask(odd, 12)
    assert broker.log.fetches[-1][0][0].max_bytes == 0


@pytest.mark.parametrize("version", [4, 12, 13, 18])
async def test_unknown_topics_and_partitions(broker: Harness, topic: Topic, version: int) -> None:
    for partition in (3, -1, 2**31 - 1):
        found = only(await broker.ask(request(topic, (partition, 0)), version))
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert found.records is not None
    partitions = [FetchPartition(partition=0)]
    unknown = FetchRequest(topics=[FetchTopic(topic_id=UUID(int=3), topic="nothing", partitions=partitions)])
    code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert only(await broker.ask(unknown, version)).error_code == code
    assert not broker.log.fetches, "nothing to wait for: answered at once"


async def test_the_leader_epoch_is_0_and_no_later_one(broker: Harness, topic: Topic) -> None:
    for epoch, code in ((-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        asked = request(topic, (0, 0))
        asked.topics[0].partitions[0].current_leader_epoch = epoch
        assert only(await broker.ask(asked, 12)).error_code == code


@pytest.mark.parametrize(
    ("error", "version", "code"),
    [
        (LogUnavailable("x"), 4, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (LogUnavailable("x"), 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (LogUnavailable("x"), 6, ErrorCode.KAFKA_STORAGE_ERROR),
        (LogUnavailable("x"), 18, ErrorCode.KAFKA_STORAGE_ERROR),
        (ObjectCorrupt("wal/x"), 12, ErrorCode.CORRUPT_MESSAGE),
    ],
)
async def test_errors_of_the_log(
    broker: Harness, topic: Topic, error: LogError, version: int, code: ErrorCode
) -> None:
    broker.log.fail[topic.streams[0]] = error
    response = await broker.ask(request(topic, (0, 0), (1, 0)), version)
    assert [part.error_code for part in response.responses[0].partitions] == [code, 0]


@pytest.mark.parametrize("offset", [3, -1, 2**62])
async def test_an_offset_out_of_range(broker: Harness, topic: Topic, offset: int) -> None:
    partition = only(await broker.ask(request(topic, (0, offset)), 12))
    assert partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", [12, 13])
async def test_partitions_added_elsewhere_are_found(broker: Harness, topic: Topic, version: int) -> None:
    async with running(beside=broker, broker_id=1) as other:
        await other.topics.add_partitions("orders", 5)
        assert only(await broker.ask(request(topic, (4, 0)), version)).error_code == 0


@pytest.mark.parametrize(
    ("version", "code"), [(12, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (13, ErrorCode.UNKNOWN_TOPIC_ID)]
)
async def test_a_deleted_topic_is_read_again(
    broker: Harness, topic: Topic, version: int, code: ErrorCode
) -> None:
    async with running(beside=broker, broker_id=1) as stale:
        assert await stale.topics.get("orders") == topic
        await broker.topics.delete("orders")
        fresh = await broker.topics.create(NewTopic("orders"))
        assert only(await stale.ask(request(topic, (0, 0)), version)).error_code == code
        assert only(await stale.ask(request(fresh, (0, 0)), version)).error_code == 0


async def test_a_poll_ends_with_its_connection_and_is_still_answered(broker: Harness, topic: Topic) -> None:
    broker.log.held = asyncio.Event()
    asked = asyncio.ensure_future(broker.ask(request(topic, (0, 2), max_wait_ms=60_000), 12))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not asked.done()
    broker.connection.end()
    assert only(await asked).error_code == 0
    assert broker.log.fetches[-1][3] == 0
    assert not broker.connection.callbacks
    again = await broker.ask(request(topic, (0, 2), max_wait_ms=60_000), 12)
    assert only(again).error_code == 0, "and nothing waits on a connection that is ending"


async def test_a_fetch_reads_nothing_before_its_turn(broker: Harness, topic: Topic) -> None:
    turn = asyncio.Event()

    async def wait() -> None:
        await turn.wait()

    broker.connection.turn = wait  # type: ignore[method-assign]
    asked = asyncio.ensure_future(broker.ask(request(topic, (0, 0)), 12))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not broker.log.fetches
    turn.set()
    assert only(await asked).error_code == 0


async def test_a_poll_that_ends_by_itself_leaves_nothing_behind(broker: Harness, topic: Topic) -> None:
    await broker.ask(request(topic, (0, 0), max_wait_ms=500), 12)
    assert not broker.connection.callbacks


async def test_a_poll_that_is_cancelled_stays_cancelled(broker: Harness, topic: Topic) -> None:
    broker.log.held = asyncio.Event()
    asked = asyncio.ensure_future(broker.ask(request(topic, (0, 2), max_wait_ms=60_000), 12))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert not broker.connection.callbacks


async def test_a_store_that_is_away(broker: Harness, topic: Topic) -> None:
    broker.store.down = True
    assert only(await broker.ask(request(topic, (0, 0)), 12)).error_code == 0
    unknown = FetchRequest(topics=[FetchTopic(topic="x", partitions=[FetchPartition()])])
    assert only(await broker.ask(unknown, 12)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- fetches that name much


async def test_a_partition_that_is_named_again_and_again_is_answered_once(
    broker: Harness, topic: Topic
) -> None:
    """As Kafka: what is named last counts."""
    asked = request(topic, *((number % 3, 7) for number in range(100)), (0, 0))
    asked.topics.append(FetchTopic(topic_id=topic.topic_id, topic=topic.name, partitions=[FetchPartition(1)]))
    answer = await broker.ask(asked, 12)
    [found] = answer.responses
    assert [part.partition_index for part in found.partitions] == [0, 1, 2]
    assert found.partitions[0].error_code == 0
    assert found.partitions[2].error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_what_waiting_fetches_name_is_bounded(
    broker: Harness, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They stay in memory as long as a client likes: 60 of 19,000 partitions each took 380 MiB."""
    many = await broker.topics.create(NewTopic("many", 100))
    asked = request(many, *((number, 0) for number in range(100)), max_wait_ms=60_000)
    monkeypatch.setattr(LongPolls, "MOST", 150)
    broker.log.held = asyncio.Event()
    connections = [FakeConnection(), FakeConnection()]
    first = asyncio.ensure_future(broker.ask(asked, 12, connections[0]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not first.done()
    async with asyncio.timeout(60):
        assert (await broker.ask(asked, 12, connections[1])).error_code == 0, "one more does not wait"
    small = asyncio.ensure_future(broker.ask(request(topic, (0, 2), max_wait_ms=60_000), 12))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not small.done(), "but one that names little does"
    connections[0].end()
    assert (await first).error_code == 0
    third = asyncio.ensure_future(broker.ask(asked, 12, connections[1]))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not third.done()
    broker.log.held.set()
    await asyncio.gather(small, third)
