"""A topic that this build cannot read: clients try again or hear why, and none takes it for gone."""

from __future__ import annotations

import pytest
from tests.unit.broker.api.fakes import Harness

from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from dray.kafka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from dray.metadata import keys
from dray.metadata.contract import Put


@pytest.fixture
async def topic(broker: Harness) -> Topic:
    topic = await broker.topics.create(NewTopic("orders", 1))
    await broker.topics.create(NewTopic("other", 1))
    record = await broker.store.get(keys.CLUSTER_DOMAIN, keys.topic("orders"))
    assert record is not None
    await broker.store.write(keys.CLUSTER_DOMAIN, [Put(record.key, b"\x03" + record.value[1:])])
    await broker.topics.read_all()
    return topic


async def test_metadata_names_it_without_a_leader_and_creates_nothing(broker: Harness, topic: Topic) -> None:
    named = MetadataRequest(topics=[MetadataRequestTopic(name="orders")], allow_auto_topic_creation=True)
    by_id = MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic.topic_id)])
    for request in (named, by_id):
        [found] = (await broker.ask(request, 13)).topics
        assert ErrorCode(found.error_code) is ErrorCode.LEADER_NOT_AVAILABLE
    everything = (await broker.ask(MetadataRequest(topics=None), 13)).topics
    assert {found.name: ErrorCode(found.error_code) for found in everything} == {
        "orders": ErrorCode.LEADER_NOT_AVAILABLE,
        "other": ErrorCode.NONE,
    }
    described = (await broker.ask(DescribeTopicPartitionsRequest(response_partition_limit=100), 0)).topics
    assert {found.name: ErrorCode(found.error_code) for found in described} == {
        "orders": ErrorCode.LEADER_NOT_AVAILABLE,
        "other": ErrorCode.NONE,
    }


async def test_who_reads_and_writes_tries_again(broker: Harness, topic: Topic) -> None:
    part = PartitionProduceData(index=0, records=b"whatever it is")
    for version in (12, 13):
        data = TopicProduceData(name="orders", topic_id=topic.topic_id, partition_data=[part])
        answer = await broker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data]), version)
        code = answer.responses[0].partition_responses[0].error_code
        assert ErrorCode(code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    for version in (12, 13):
        wanted = FetchTopic(
            topic="orders", topic_id=topic.topic_id, partitions=[FetchPartition(partition_max_bytes=100)]
        )
        fetched = await broker.ask(FetchRequest(topics=[wanted]), version)
        code = fetched.responses[0].partitions[0].error_code
        assert ErrorCode(code) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    place = OffsetCommitRequestTopic(name="orders", partitions=[OffsetCommitRequestPartition()])
    committed = await broker.ask(OffsetCommitRequest(group_id="g", topics=[place]), 8)
    code = committed.topics[0].partitions[0].error_code
    assert ErrorCode(code) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_administrators_hear_why(broker: Harness, topic: Topic) -> None:
    by_name = DeleteTopicsRequest(topics=[DeleteTopicState(name="orders")], timeout_ms=1000)
    by_id = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=topic.topic_id)], timeout_ms=1000)
    for request in (by_name, by_id):
        [refused] = (await broker.ask(request, 6)).responses
        assert ErrorCode(refused.error_code) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert "this build reads formats up to 2: upgrade it" in (refused.error_message or "")
    new = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    [there] = (await broker.ask(CreateTopicsRequest(topics=[new], timeout_ms=1000), 7)).topics
    assert ErrorCode(there.error_code) is ErrorCode.TOPIC_ALREADY_EXISTS
