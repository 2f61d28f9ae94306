"""What clients are answered in place of what they asked for is counted, by API and error, per partition."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs
from tests.unit.broker.api.fakes import Harness, batch, running

from dray.base.telemetry.answered import (
    FORGOTTEN_AFTER_SECONDS,
    TOLD_EVERY_SECONDS,
    AnsweredErrors,
    UnreadableValues,
)
from dray.base.telemetry.instruments import Instruments
from dray.broker.api.shared import errors_in
from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.log.types import LogUnavailable, ObjectCorrupt
from dray.metadata.values import FormatTooNew, ValueCorrupt


class Counted:
    def __init__(self, broker: Harness) -> None:
        self.broker = broker
        self.now = 0.0
        self.registry = CollectorRegistry()
        self.errors = AnsweredErrors(Instruments(self.registry), lambda: self.now)
        object.__setattr__(broker.services, "errors", self.errors)

    def found(self, name: str) -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels.values()): sample.value
            for family in self.registry.collect()
            for sample in family.samples
            if sample.name == name and sample.value
        }

    async def produce(self, topic: Topic, *partitions: int) -> list[int]:
        data = [PartitionProduceData(index=index, records=batch(b"v")) for index in partitions]
        named = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=data)
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named])
        answer = await self.broker.ask(request, 13)
        return [part.error_code for part in answer.responses[0].partition_responses]

    async def fetch(self, topic: Topic, *partitions: int) -> list[int]:
        wanted = [FetchPartition(partition=index, partition_max_bytes=1000) for index in partitions]
        request = FetchRequest(topics=[FetchTopic(topic_id=topic.topic_id, partitions=wanted)])
        answer = await self.broker.ask(request, 13)
        return [part.error_code for part in answer.responses[0].partitions]


@pytest.fixture
async def counted() -> AsyncIterator[Counted]:
    async with running() as broker:
        yield Counted(broker)


@pytest.fixture
async def topic(counted: Counted) -> Topic:
    return await counted.broker.topics.create(NewTopic("orders", 4))


def too_new() -> LogUnavailable:
    error = LogUnavailable("the metadata store did not answer: too new")
    error.__cause__ = FormatTooNew("a high watermark", 9, 3)
    return error


async def test_a_partition_that_fails_is_counted_and_the_request_is_not_ok(
    counted: Counted, topic: Topic
) -> None:
    log = counted.broker.log
    assert await counted.produce(topic, 0, 1, 2) == [0, 0, 0]
    assert await counted.fetch(topic, 0, 1) == [0, 0]
    assert counted.found("dray_errors_total") == {}
    assert [outcome for _, outcome in counted.broker.observed] == ["ok", "ok"]
    log.fail[topic.streams[1]] = LogUnavailable("the store is away")
    assert await counted.produce(topic, 0, 1, 2, 9) == [
        0,
        ErrorCode.REQUEST_TIMED_OUT,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    log.fail[topic.streams[1]] = ObjectCorrupt("damaged")
    assert await counted.fetch(topic, 0, 1) == [0, ErrorCode.CORRUPT_MESSAGE]
    assert [outcome for _, outcome in counted.broker.observed[2:]] == ["error", "error"]
    assert counted.found("dray_errors_total") == {
        ("Produce", "REQUEST_TIMED_OUT"): 1,
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        ("Fetch", "CORRUPT_MESSAGE"): 1,
    }
    assert counted.found("dray_partitions_asked_total") == {("Produce",): 7, ("Fetch",): 4}
    assert counted.found("dray_partitions_acknowledged_total") == {(): 5}


async def test_a_request_that_is_refused_whole_counts_for_all_its_partitions(
    counted: Counted, topic: Topic
) -> None:
    data = [PartitionProduceData(index=index, records=batch(b"v")) for index in range(3)]
    named = TopicProduceData(name="orders", topic_id=topic.topic_id, partition_data=data)
    await counted.broker.ask(ProduceRequest(acks=7, timeout_ms=1000, topic_data=[named]), 13)
    assert counted.found("dray_errors_total") == {("Produce", "INVALID_REQUIRED_ACKS"): 3}
    assert counted.found("dray_partitions_acknowledged_total") == {}


async def test_errors_of_other_requests_are_counted_wherever_they_stand(
    counted: Counted, topic: Topic
) -> None:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 7, 8)]
    asked = ListOffsetsTopic(name="orders", partitions=wanted)
    await counted.broker.ask(ListOffsetsRequest(topics=[asked]), 7)
    await counted.broker.ask(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4)
    await counted.broker.ask(MetadataRequest(topics=[MetadataRequestTopic(name="?")]), 9)
    assert counted.found("dray_errors_total") == {
        ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("Heartbeat", "UNKNOWN_MEMBER_ID"): 1,
        ("Metadata", "INVALID_TOPIC_EXCEPTION"): 1,
    }
    assert {outcome for _, outcome in counted.broker.observed} == {"error"}


async def test_errors_of_committed_offsets_are_counted_by_partition(counted: Counted, topic: Topic) -> None:
    partitions = [OffsetCommitRequestPartition(index, 1) for index in (0, 8, 9)]
    commit = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)]
    )
    await counted.broker.ask(commit, 8)
    unknown = OffsetFetchRequestTopics(UUID(int=7), partition_indexes=[0, 1])
    await counted.broker.ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=[unknown])]), 10)
    assert counted.found("dray_errors_total") == {
        ("OffsetCommit", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("OffsetFetch", "UNKNOWN_TOPIC_ID"): 2,
    }
    assert [outcome for _, outcome in counted.broker.observed] == ["error", "error"]


def test_a_large_answer_is_looked_through_in_part() -> None:
    many = [MetadataResponsePartition(error_code=5) for _ in range(9000)]
    found = errors_in(MetadataResponse(topics=[MetadataResponseTopic(partitions=many)]))
    assert 1000 < len(found) < 3000


async def test_a_value_that_cannot_be_read_is_told_once_for_each_partition_and_minute(
    counted: Counted, topic: Topic
) -> None:
    for index in (0, 1):
        counted.broker.log.fail[topic.streams[index]] = too_new()

    async def ask() -> list[str]:
        with capture_logs() as lines:
            assert await counted.produce(topic, 0, 1) == [ErrorCode.REQUEST_TIMED_OUT] * 2
            assert await counted.fetch(topic, 0, 1) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
            wanted = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in (0, 1)]
            asked = ListOffsetsTopic(name="orders", partitions=wanted)
            await counted.broker.ask(ListOffsetsRequest(topics=[asked]), 7)
        loud = [line for line in lines if line["log_level"] != "debug"]
        assert all("stored in format 9" in line["error"] for line in loud)
        return [line["place"] for line in loud]

    assert await ask() == ["orders-0", "orders-1"]
    assert await ask() == []
    counted.now = TOLD_EVERY_SECONDS - 1
    assert await ask() == []
    counted.now += 1
    assert await ask() == ["orders-0", "orders-1"]
    assert counted.found("dray_unreadable_values") == {("high watermark",): 2}
    note = counted.errors.unreadable.note()
    assert note is not None
    assert note.startswith(
        "orders-0: a high watermark is stored in format 9, and this build reads formats up to 3"
    )
    counted.now += FORGOTTEN_AFTER_SECONDS + 1
    assert counted.found("dray_unreadable_values") == {}
    assert counted.errors.unreadable.note() is None


def test_places_and_kinds_are_bounded_and_name_nobody() -> None:
    registry = CollectorRegistry()
    values = UnreadableValues(Instruments(registry), lambda: 0.0)
    for number in range(5000):
        error = ValueCorrupt(f"group 'of {number}'", "why")
        values.met(error.kind, f"group of {number}", str(error))
    [family] = registry.collect()
    assert [(sample.labels["kind"], sample.value) for sample in family.samples] == [("group", 1000)]
    values.follow("topic", lambda: {"a": "too new"})
    note = values.note()
    assert note is not None
    assert note.endswith("and 998 more")
    assert ValueCorrupt("a stream's job", "why").kind == "stream's job"
