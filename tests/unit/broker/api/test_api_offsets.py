"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords and InitProducerId."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs
from tests.unit.broker.api.fakes import FakeStream, Harness, running

from dray.broker.topics import NewTopic, Topic
from dray.broker.topics.model import encode_topic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from dray.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from dray.log.origins import CLASSIC, Origin, SourceOwnsLog
from dray.log.types import LogError, LogUnavailable, ObjectCorrupt
from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.values import ValueCorrupt


@pytest.fixture
async def topic(broker: Harness) -> Topic:
    topic = await broker.topics.create(NewTopic("orders", 2))
    broker.log.streams[topic.streams[0]] = FakeStream(start=4, end=10)
    return topic


# --- ListOffsets


async def offset(
    broker: Harness,
    timestamp: int,
    version: int = 7,
    partition: int = 0,
    name: str = "orders",
    epoch: int = -1,
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=[asked])])
    response = await broker.ask(request, version)
    [found] = response.topics
    assert found.name == name
    [result] = found.partitions
    assert result.partition_index == partition
    return result


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(
    ("timestamp", "since", "expected"),
    [
        (-1, 1, (10, -1)),
        (-2, 1, (4, -1)),
        (-3, 7, (3, 4242)),
        (-4, 8, (4, -1)),
        (-5, 9, (-1, -1)),
        (-6, 11, (-1, -1)),
        (-7, 99, (-1, -1)),
        (-(2**63), 99, (-1, -1)),
        (0, 1, (7, 1)),
        (4000, 1, (7, 4001)),
        (6000, 1, (-1, -1)),  # after the last
    ],
)
async def test_times_and_names_for_times(
    broker: Harness, topic: Topic, version: int, timestamp: int, since: int, expected: tuple[int, int]
) -> None:
    result = await offset(broker, timestamp, version)
    if version < since:
        assert result.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (result.offset, result.timestamp) == (-1, -1)
        return
    assert result.error_code == 0
    assert (result.offset, result.timestamp) == expected
    assert result.leader_epoch == (0 if version >= 4 and expected[0] >= 0 else -1)


async def test_the_largest_timestamp_of_nothing(broker: Harness, topic: Topic) -> None:
    result = await offset(broker, -3, partition=1)
    assert (result.error_code, result.offset, result.timestamp) == (0, -1, -1)


async def test_unknown_partitions_and_epochs(broker: Harness, topic: Topic) -> None:
    assert (await offset(broker, -1, name="x")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for partition in (2, -1):
        result = await offset(broker, -1, partition=partition)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await offset(broker, -1, epoch=0)).error_code == 0
    assert (await offset(broker, -1, epoch=3)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_partition_named_twice(broker: Harness, topic: Topic) -> None:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1, 0)]
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name="orders", partitions=partitions)]
    )
    response = await broker.ask(request, 5)
    codes = [part.error_code for part in response.topics[0].partitions]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.NOT_LEADER_OR_FOLLOWER), (7, ErrorCode.KAFKA_STORAGE_ERROR)]
)
async def test_a_log_that_is_away(broker: Harness, topic: Topic, version: int, code: ErrorCode) -> None:
    broker.log.fail[topic.streams[0]] = LogUnavailable("x")
    for timestamp in (-1, -2, 0):
        assert (await offset(broker, timestamp, version)).error_code == code


@pytest.mark.parametrize("version", [3, 7, 11])
async def test_damage_is_told_from_a_log_that_is_away(broker: Harness, topic: Topic, version: int) -> None:
    """A client asks again for what is away; what is damaged the application must hear of."""
    unreadable = LogUnavailable("the metadata store did not answer: ...")
    unreadable.__cause__ = ValueCorrupt("a high watermark", "3 bytes")
    for damage, told in ((ObjectCorrupt("x"), ["x"] * 3), (unreadable, [str(unreadable.__cause__)])):
        broker.log.fail[topic.streams[0]] = damage
        with capture_logs() as logs:
            for timestamp in (-1, -2, 0):
                assert (await offset(broker, timestamp, version)).error_code == ErrorCode.CORRUPT_MESSAGE
        assert [line["error"] for line in logs if line["log_level"] != "debug"] == told


async def test_a_deleted_topic_is_read_again(broker: Harness, topic: Topic) -> None:
    async with running(beside=broker, broker_id=1) as stale:
        await stale.topics.get("orders")
        await broker.topics.delete("orders")
        assert (await offset(stale, -1)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stale.topics.cached("orders") is None


# --- OffsetForLeaderEpoch


async def epoch_end(
    broker: Harness, leader_epoch: int, version: int = 3, partition: int = 0, current: int = -1
) -> EpochEndOffset:
    asked = OffsetForLeaderPartition(
        partition=partition, current_leader_epoch=current, leader_epoch=leader_epoch
    )
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="orders", partitions=[asked])])
    response = await broker.ask(request, version)
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(("leader_epoch", "answer"), [(0, (0, 10)), (-1, (-1, -1)), (5, (-1, -1))])
async def test_the_one_epoch_never_ends_and_others_never_were(
    broker: Harness, topic: Topic, version: int, leader_epoch: int, answer: tuple[int, int]
) -> None:
    result = await epoch_end(broker, leader_epoch, version)
    assert (result.error_code, result.partition) == (0, 0)
    assert (result.leader_epoch, result.end_offset) == answer


async def test_epochs_of_what_is_not_there(broker: Harness, topic: Topic) -> None:
    assert (await epoch_end(broker, 0, partition=5)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for current, code in ((-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert (await epoch_end(broker, 0, current=current)).error_code == code
    broker.log.fail[topic.streams[0]] = LogUnavailable("x")
    assert (await epoch_end(broker, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize(
    ("leader_epoch", "answer"),
    [(0, (0, 10)), (3, (3, 10)), (70_000, (70_000, 10)), (70_001, (-1, -1)), (-1, (-1, -1))],
)
async def test_no_epoch_up_to_the_topics_ends_before_the_log_does(
    broker: Harness, topic: Topic, leader_epoch: int, answer: tuple[int, int]
) -> None:
    """A log that began elsewhere: with any lower end its consumers would reset."""
    raised = encode_topic(replace(topic, leader_epoch=70_000))
    await broker.store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic("orders"), raised)])
    await broker.topics.refresh("orders")
    result = await epoch_end(broker, leader_epoch)
    assert (result.leader_epoch, result.end_offset) == answer
    assert (await offset(broker, -1)).leader_epoch == 70_000
    for current, code in ((69_999, 0), (70_000, 0), (70_001, ErrorCode.UNKNOWN_LEADER_EPOCH)):
        assert (await epoch_end(broker, 0, current=current)).error_code == code
        assert (await offset(broker, -1, epoch=current)).error_code == code


async def test_a_log_that_its_source_owns_ends_behind_every_position(broker: Harness, topic: Topic) -> None:
    """A consumer that comes from the source may be ahead of the mirror: its position is not truncated."""
    broker.log.origins[topic.streams[0]] = Origin(CLASSIC, 0, 0)
    assert (await epoch_end(broker, 0)).end_offset == (1 << 63) - 1
    assert (await epoch_end(broker, 5)).end_offset == -1
    broker.log.origins[topic.streams[0]] = Origin(10, 0, 0)
    assert (await epoch_end(broker, 0)).end_offset == 10


# --- DeleteRecords


async def delete(
    broker: Harness, before: int, version: int = 2, partition: int = 0, name: str = "orders"
) -> DeleteRecordsPartitionResult:
    asked = DeleteRecordsPartition(partition_index=partition, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=name, partitions=[asked])], timeout_ms=30_000
    )
    response = await broker.ask(request, version)
    assert response.topics[0].name == name
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize(("before", "start"), [(6, 6), (10, 10), (-1, 10), (2, 4), (0, 4)])
async def test_records_are_deleted(
    broker: Harness, topic: Topic, version: int, before: int, start: int
) -> None:
    result = await delete(broker, before, version)
    assert (result.error_code, result.low_watermark) == (0, start)
    assert broker.log.streams[topic.streams[0]].start == start


async def test_what_a_source_owns_is_not_deleted_here(broker: Harness, topic: Topic) -> None:
    broker.log.fail[topic.streams[0]] = SourceOwnsLog("it is deleted there")
    assert (await delete(broker, 0)).error_code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("before", [11, -2, -(2**63), 2**62])
async def test_what_cannot_be_deleted(broker: Harness, topic: Topic, before: int) -> None:
    result = await delete(broker, before)
    assert (result.error_code, result.low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


async def test_a_compacted_topic_keeps_its_records(broker: Harness) -> None:
    await broker.topics.create(NewTopic("compacted", config={"cleanup.policy": "compact"}))
    assert (await delete(broker, 0, name="compacted")).error_code == ErrorCode.POLICY_VIOLATION
    for name, policy in (("both", "compact,delete"), ("neither", "")):
        await broker.topics.create(NewTopic(name, config={"cleanup.policy": policy}))
        assert (await delete(broker, 0, name=name)).error_code == 0


async def test_deleting_from_what_is_not_there(broker: Harness, topic: Topic) -> None:
    for name, partition in (("x", 0), ("orders", 2), ("orders", -1)):
        result = await delete(broker, 0, partition=partition, name=name)
        assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.log.fail[topic.streams[0]] = LogUnavailable("x")
    assert (await delete(broker, 0)).error_code == ErrorCode.REQUEST_TIMED_OUT


# --- InitProducerId


@pytest.mark.parametrize("version", range(6))
async def test_producer_ids_are_given_once(broker: Harness, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=-1, producer_epoch=-1)
    first, second = await broker.ask(request, version), await broker.ask(request, version)
    assert (first.error_code, first.producer_epoch) == (0, 0)
    assert first.producer_id >= 0
    assert second.producer_id != first.producer_id


@pytest.mark.parametrize("version", [3, 5])
async def test_a_new_epoch_is_a_new_id(broker: Harness, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=2)
    response = await broker.ask(request, version)
    assert (response.error_code, response.producer_epoch) == (0, 0)
    assert response.producer_id != 5


@pytest.mark.parametrize("version", range(6))
async def test_transactions_are_refused(broker: Harness, version: int) -> None:
    for transactional_id, code in (
        ("t", ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("", ErrorCode.INVALID_REQUEST),
    ):
        response = await broker.ask(InitProducerIdRequest(transactional_id=transactional_id), version)
        assert (response.error_code, response.producer_id) == (code, -1)


async def test_kafkas_admin_finds_no_transactional_id_to_end(broker: Harness) -> None:
    asked = InitProducerIdRequest(transactional_id="t")
    response = await broker.ask(asked, 4, client_id="adminclient-7")
    assert (response.error_code, response.producer_id) == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, -1)


async def test_no_producer_id_without_the_store(broker: Harness) -> None:
    error: LogError = LogUnavailable("x")
    broker.log.fail[-1] = error
    response = await broker.ask(InitProducerIdRequest(transactional_id=None), 4)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert ErrorCode(response.error_code).retriable
