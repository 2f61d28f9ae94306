"""The way to the records: leaders that move are followed, what passes is waited out, the rest is said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from tests.services.batches import CONTROL, TRANSACTIONAL, batch, plain
from tests.unit.kafka.client.client_fakes import Clock, ScriptedBroker

from dray.kafka.client import ClientError
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from dray.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from dray.kafka.records import Record, filler, twin
from dray.tables.spark_source.log import TopicLog
from dray.tables.spark_source.options import SourceOptions
from dray.tables.spark_source.ranges import Range, RecordsGone, SourceError

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


class ClusterOfTopics(ScriptedBroker):
    """A broker with topics of one partition, which ends at 5, and those that a list of all leaves out."""

    def __init__(self, *names: str, **unseen: int) -> None:
        super().__init__(
            MetadataRequest=self.metadata,
            ListOffsetsRequest=self.ends,
            FetchRequest=fetched(bytes(batch(plain(b"a")))),
        )
        self.names = list(names)
        self.unseen = unseen

    def metadata(self, asked: Any) -> MetadataResponse:
        names = self.names if asked.topics is None else [each.name for each in asked.topics]
        topics = [
            MetadataResponseTopic(
                name=name,
                topic_id=UUID(int=ord(name[0])),
                is_internal=name.startswith("_"),
                error_code=0 if name in self.names else self.unseen.get(name, 3),
                partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)],
            )
            for name in names
        ]
        return MetadataResponse(brokers=[MetadataResponseBroker(1, "one", 9)], topics=topics)

    @staticmethod
    def ends(asked: Any) -> ListOffsetsResponse:
        answer = [ListOffsetsPartitionResponse(partition_index=0, offset=5)]
        return ListOffsetsResponse(
            topics=[ListOffsetsTopicResponse(name=each.name, partitions=answer) for each in asked.topics]
        )

    def log(self, known: str = "", **options: str) -> TopicLog:
        async def dial(_host: str, _port: int, /) -> Any:
            return self

        given = {"bootstrap.servers": "one:9", "timeout": "5", **options}
        topic_ids = {name: UUID(int=ord(name[0])) for name in known.split()}
        return TopicLog(SourceOptions.parse(given, streaming=True), Clock(), topic_ids, dial)


def log_on(
    topic_id: UUID | None = None, options: Mapping[str, str] = {}, /, **brokers: ScriptedBroker
) -> TopicLog:
    async def dial(host: str, _port: int, /) -> Any:
        if host not in brokers:
            raise ClientError(f"cannot reach {host}")
        return brokers[host]

    given = {"bootstrap.servers": "one:9", "topic": "t", "timeout": "5", **options}
    return TopicLog(
        SourceOptions.parse(given, streaming=False), Clock(), {"t": topic_id} if topic_id else None, dial
    )


async def test_a_leader_that_moved_is_followed() -> None:
    one = ScriptedBroker(
        MetadataRequest=[metadata(1), metadata(-1), metadata(2)],
        ListOffsetsRequest=offsets(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
    )
    two = ScriptedBroker(ListOffsetsRequest=offsets(5))
    assert await log_on(one=one, two=two).offsets(-1) == {("t", 0): 5}


async def test_a_broker_that_died_has_a_successor() -> None:
    one = ScriptedBroker(MetadataRequest=[metadata(2), metadata(1)], ListOffsetsRequest=offsets(5))
    assert await log_on(one=one).offsets(-1) == {("t", 0): 5}


async def test_records_are_read_where_they_are_led() -> None:
    one = ScriptedBroker(MetadataRequest=metadata(2))
    two = ScriptedBroker(
        FetchRequest=[
            fetched(code=ErrorCode.KAFKA_STORAGE_ERROR),
            fetched(bytes(batch(plain(b"a", b"b", b"c")))),
        ]
    )
    rows = [each async for each in log_on(TOPIC_ID, one=one, two=two).read(Range("t", 0, 1, 3))]
    assert [row for each in rows for row in each.column("value").to_pylist()] == [b"b", b"c"]
    assert [request.topics[0].partitions[0].fetch_offset for request in two.seen] == [1, 1]


@pytest.mark.parametrize(("level", "asked"), [("read_committed", 1), ("read_uncommitted", 0)])
async def test_transactions_are_read_as_the_level_says(level: str, asked: int) -> None:
    """A broker that is asked for what is committed says where that ends, and names what was aborted."""
    of_two: dict[str, Any] = {"producer": 2, "epoch": 0, "sequence": 0}
    records = batch(plain(b"a"), attributes=TRANSACTIONAL, **of_two)
    records += batch(plain(b""), base_offset=1, attributes=TRANSACTIONAL | CONTROL, **of_two)
    records += batch(plain(b"b"), base_offset=2, attributes=TRANSACTIONAL, **of_two)
    aborted = [AbortedTransaction(producer_id=2, first_offset=0)] if asked else None
    data = PartitionData(partition_index=0, records=records, aborted_transactions=aborted)
    one = ScriptedBroker(
        MetadataRequest=metadata(1),
        ListOffsetsRequest=offsets(3),
        FetchRequest=FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])]),
    )
    log = log_on(TOPIC_ID, {"isolation.level": level}, one=one)
    assert (await log.state()).ends == {("t", 0): 3}
    rows = [each async for each in log.read(Range("t", 0, 0, 3))]
    values = [row for each in rows for row in each.column("value").to_pylist()]
    assert values == ([b"b"] if asked else [b"a", b"b"])
    levels = {request.isolation_level for request in one.seen if hasattr(request, "isolation_level")}
    assert levels == {asked}


async def test_offsets_without_a_record_are_passed_over() -> None:
    """In a batch, between batches, and behind the last one, up to the end of the range."""
    sparse = twin.encode([Record(2, 1, b"k", b"a"), Record(5, 1, b"k", b"b")])
    later = twin.encode([Record(9, 1, b"k", b"c")])
    one = ScriptedBroker(
        MetadataRequest=metadata(1), FetchRequest=[fetched(bytes(sparse + later)), fetched(filler(19, 0))]
    )
    rows = [each async for each in log_on(TOPIC_ID, one=one).read(Range("t", 0, 3, 20))]
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
    with pytest.raises(SourceError, match=f"^topic t could not be read for 5 s: {line}$"):
        await log_on(one=ScriptedBroker(**answers)).offsets(-1)


async def test_another_topic_of_the_same_name_is_never_read() -> None:
    one = ScriptedBroker(MetadataRequest=metadata(1, topic_id=UUID(int=8)))
    with pytest.raises(SourceError, match="topic t was deleted and created again since"):
        await log_on(TOPIC_ID, one=one).offsets(-1)


async def test_a_topic_that_is_not_there() -> None:
    one = ScriptedBroker(MetadataRequest=metadata(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    with pytest.raises(SourceError, match="there is no topic t"):
        await log_on(one=one).state()


async def test_a_pattern_is_asked_of_all_topics_but_internal_ones() -> None:
    found = await ClusterOfTopics("a1", "a2", "b1", "_a").log(subscribePattern="_?a.*").state()
    assert found.ends == {("a1", 0): 5, ("a2", 0): 5}
    nothing = await ClusterOfTopics("b").log(subscribePattern="a.*").state()
    assert (nothing.topic_ids, nothing.ends) == ({}, {})


async def test_a_topic_that_is_read_and_not_in_the_list_is_asked_for_by_name() -> None:
    """Rights that were taken away are no deletion."""
    refused = ClusterOfTopics("a1", a2=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    for tolerant in ("false", "true"):
        with pytest.raises(SourceError, match=r"^topic a2: TOPIC_AUTHORIZATION_FAILED$"):
            await refused.log("a1 a2", subscribePattern="a.*", failOnDataLoss=tolerant).state()
    no_longer_chosen = refused.log("a1 a2", subscribePattern="a1")
    assert (await no_longer_chosen.state()).ends == {("a1", 0): 5}


@pytest.mark.parametrize(
    "way", [{"subscribe": "a,b"}, {"subscribePattern": "."}, {"assign": '{"a":[0],"b":[0]}'}]
)
async def test_a_topic_that_was_deleted_is_one_error_or_passed_over(way: dict[str, str]) -> None:
    cluster = ClusterOfTopics("a")
    with pytest.raises(
        RecordsGone, match=r"^topic b was deleted since this read began; set failOnDataLoss to"
    ):
        await cluster.log("a b", **way).state()
    found = await cluster.log("a b", **way, failOnDataLoss="false").state()
    assert found.ends == {("a", 0): 5}
    assert found.topic_ids.keys() == {"a"}


async def test_a_name_that_was_never_there_is_no_loss_but_a_mistake() -> None:
    with pytest.raises(SourceError, match=r"^there is no topic b$"):
        await ClusterOfTopics("a").log(subscribe="a,b", failOnDataLoss="false").state()


async def test_only_partitions_that_were_assigned() -> None:
    with pytest.raises(SourceError, match=r"^topic a has no partition 1$"):
        await ClusterOfTopics("a").log(assign='{"a": [0, 1]}').state()


async def test_a_task_passes_over_a_topic_that_is_gone_or_another() -> None:
    for cluster in (ClusterOfTopics(), ClusterOfTopics("t")):
        log = cluster.log(subscribe="t", failOnDataLoss="false")
        log._known = {"t": UUID(int=1)}
        assert [each async for each in log.read(Range("t", 0, 0, 1))] == []
    [rows] = [each async for each in ClusterOfTopics("t").log("t", subscribe="t").read(Range("t", 0, 0, 1))]
    assert rows.column("topic").to_pylist() == ["t"]


async def test_a_topic_that_is_deleted_between_two_questions() -> None:
    cluster = ClusterOfTopics("t")

    def deleted(_: Any) -> ListOffsetsResponse:
        cluster.names.remove("t")
        return offsets(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    cluster.answers["ListOffsetsRequest"] = [deleted]
    assert (await cluster.log("t", subscribe="t", failOnDataLoss="false").state()).ends == {}
