"""The way to the records: leaders that move are followed, what passes is waited out, the rest is said."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.services.batches import batch, plain
from tests.unit.client.client_fakes import Clock, ScriptedBroker

from dray.client import ClientError
from dray.protocol import ErrorCode
from dray.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from dray.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.records import Record, filler, twin
from dray.spark_source.log import SourceError, TopicLog
from dray.spark_source.options import SourceOptions
from dray.spark_source.ranges import Range

TOPIC_ID = UUID(int=7)


def metadata(leader: int, code: int = 0, topic_id: UUID = TOPIC_ID) -> MetadataResponse:
    brokers = [MetadataResponseBroker(1, "one", 9), MetadataResponseBroker(2, "two", 9)]
    partitions = [MetadataResponsePartition(partition_index=0, leader_id=leader)]
    topic = MetadataResponseTopic(name="t", error_code=code, topic_id=topic_id, partitions=partitions)
    return MetadataResponse(brokers=brokers, topics=[topic])


def offsets(offset: int = 0, code: int = 0) -> ListOffsetsResponse:
    answer = ListOffsetsPartitionResponse(partition_index=0, offset=offset, error_code=code)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])


def fetched(records: bytes = b"", code: int = 0) -> FetchResponse:
    data = PartitionData(partition_index=0, records=records, error_code=code)
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def log_on(topic_id: UUID | None = None, **brokers: ScriptedBroker) -> TopicLog:
    async def dial(host: str, _port: int, /) -> Any:
        if host not in brokers:
            raise ClientError(f"cannot reach {host}")
        return brokers[host]

    given = {"bootstrap.servers": "one:9", "topic": "t", "timeout": "5"}
    return TopicLog(SourceOptions.parse(given, streaming=False), Clock(), topic_id, dial)


async def test_a_leader_that_moved_is_followed() -> None:
    one = ScriptedBroker(
        MetadataRequest=[metadata(1), metadata(-1), metadata(2)],
        ListOffsetsRequest=offsets(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    )
    two = ScriptedBroker(ListOffsetsRequest=offsets(5))
    assert await log_on(one=one, two=two).offsets(-1) == {0: 5}


async def test_a_broker_that_died_has_a_successor() -> None:
    one = ScriptedBroker(MetadataRequest=[metadata(2), metadata(1)], ListOffsetsRequest=offsets(5))
    assert await log_on(one=one).offsets(-1) == {0: 5}


async def test_records_are_read_where_they_are_led() -> None:
    one = ScriptedBroker(MetadataRequest=metadata(2))
    two = ScriptedBroker(
        FetchRequest=[
            fetched(code=ErrorCode.KAFKA_STORAGE_ERROR),
            fetched(bytes(batch(plain(b"a", b"b", b"c")))),
        ]
    )
    rows = [each async for each in log_on(TOPIC_ID, one=one, two=two).read(Range(0, 1, 3))]
    assert [row for each in rows for row in each.column("value").to_pylist()] == [b"b", b"c"]
    assert [request.topics[0].partitions[0].fetch_offset for request in two.seen] == [1, 1]


async def test_offsets_without_a_record_are_passed_over() -> None:
    """In a batch, between batches, and behind the last one, up to the end of the range."""
    sparse = twin.encode([Record(2, 1, b"k", b"a"), Record(5, 1, b"k", b"b")])
    later = twin.encode([Record(9, 1, b"k", b"c")])
    one = ScriptedBroker(
        MetadataRequest=metadata(1), FetchRequest=[fetched(bytes(sparse + later)), fetched(filler(19, 0))]
    )
    rows = [each async for each in log_on(TOPIC_ID, one=one).read(Range(0, 3, 20))]
    assert [row for each in rows for row in each.column("offset").to_pylist()] == [5, 9]


async def test_what_does_not_pass_is_said_at_once() -> None:
    one = ScriptedBroker(
        MetadataRequest=metadata(1), ListOffsetsRequest=offsets(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    )
    with pytest.raises(SourceError, match=r"^t-0: TOPIC_AUTHORIZATION_FAILED$"):
        await log_on(one=one).offsets(-1)
    assert len(one.seen) == 2


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ({"MetadataRequest": metadata(-1)}, "topic t: a partition has no leader"),
        ({"MetadataRequest": metadata(0, ErrorCode.LEADER_NOT_AVAILABLE)}, "topic t: LEADER_NOT_AVAILABLE"),
        (
            {
                "MetadataRequest": metadata(1),
                "ListOffsetsRequest": offsets(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            },
            "t-0: NOT_LEADER_OR_FOLLOWER",
        ),
    ],
)
async def test_what_never_passes_is_not_waited_for_forever(answers: dict[str, Any], line: str) -> None:
    with pytest.raises(SourceError, match=f"^topic t was not readable for 5 s: {line}$"):
        await log_on(one=ScriptedBroker(**answers)).offsets(-1)


async def test_another_topic_of_the_same_name_is_never_read() -> None:
    one = ScriptedBroker(MetadataRequest=metadata(1, topic_id=UUID(int=8)))
    with pytest.raises(SourceError, match="topic t was deleted and created again meanwhile"):
        await log_on(TOPIC_ID, one=one).offsets(-1)


async def test_a_topic_that_is_not_there() -> None:
    one = ScriptedBroker(MetadataRequest=metadata(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(SourceError, match="there is no topic t"):
        await log_on(one=one).state()
