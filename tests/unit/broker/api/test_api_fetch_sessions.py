"""Fetch sessions (KIP-227): the answers are Apache Kafka's, as its own `FetchSessionTest` has them."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from tests.unit.broker.api.fakes import Harness, batch

from dray.broker.api.shared.fetch_sessions import (
    EVICTION_SECONDS,
    MOST_PARTITIONS,
    MOST_SESSIONS,
    FetchSessions,
    SessionRefused,
)
from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from dray.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSION = 12
PARTITIONS = 200
RANDOM = Random(1)


@pytest.fixture
async def topic(broker: Harness) -> Topic:
    return await broker.topics.create(NewTopic("orders", PARTITIONS))


def request(topic: Topic, *parts: tuple[int, int], session: tuple[int, int], **fields: Any) -> FetchRequest:
    partitions = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in parts
    ]
    topics = [FetchTopic(topic_id=topic.topic_id, topic=topic.name, partitions=partitions)] if parts else []
    return FetchRequest(topics=topics, session_id=session[0], session_epoch=session[1], **fields)


def told(response: FetchResponse) -> list[int]:
    assert response.error_code == 0
    return [part.partition_index for topic in response.responses for part in topic.partitions]


async def produce(broker: Harness, topic: Topic, partition: int) -> None:
    records = batch(b"v", now_ms=broker.runtime.wall_ms())
    data = [TopicProduceData(name=topic.name, partition_data=[PartitionProduceData(partition, records)])]
    await broker.ask(ProduceRequest(acks=-1, topic_data=data), 9)


async def begin(broker: Harness, topic: Topic, *parts: tuple[int, int], version: int = VERSION) -> int:
    response = await broker.ask(request(topic, *parts, session=(0, 0)), version)
    assert response.session_id > 0
    assert told(response) == [partition for partition, _ in parts]
    return response.session_id


@pytest.mark.parametrize("version", [7, 12, 13, 18])
async def test_a_session_of_many_partitions_is_sent_and_answered_what_changed(
    broker: Harness, topic: Topic, version: int
) -> None:
    session = await begin(broker, topic, *[(each, 0) for each in range(PARTITIONS)], version=version)
    response = await broker.ask(request(topic, session=(session, 1)), version)
    assert (told(response), response.session_id) == ([], session)
    await produce(broker, topic, 7)
    response = await broker.ask(request(topic, session=(session, 2)), version)
    assert told(response) == [7]
    response = await broker.ask(request(topic, (7, 1), session=(session, 3)), version)
    assert told(response) == [], "its high watermark was told with its records"
    assert len(broker.log.fetches[-1][0]) == PARTITIONS, "all are asked for, though one was named"


async def test_records_come_again_until_the_offset_has_moved(broker: Harness, topic: Topic) -> None:
    await produce(broker, topic, 0)
    session = await begin(broker, topic, (0, 0), (1, 0))
    for epoch in (1, 2):
        assert told(await broker.ask(request(topic, session=(session, epoch)), VERSION)) == [0]


@pytest.mark.parametrize("epoch", [2, 3, 2**31 - 1, -2])
async def test_another_epoch_is_refused_and_the_session_goes_on(
    broker: Harness, topic: Topic, epoch: int
) -> None:
    session = await begin(broker, topic, (0, 0))
    response = await broker.ask(request(topic, session=(session, epoch)), VERSION)
    assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert told(await broker.ask(request(topic, session=(session, 1)), VERSION)) == []


@pytest.mark.parametrize("session", [0, 5])
async def test_a_session_that_is_not_there(broker: Harness, topic: Topic, session: int) -> None:
    response = await broker.ask(request(topic, (0, 0), session=(session, 1)), VERSION)
    assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
    assert response.responses == []


async def test_a_session_of_names_does_not_go_on_by_ids(broker: Harness, topic: Topic) -> None:
    session = await begin(broker, topic, (0, 0), version=12)
    response = await broker.ask(request(topic, session=(session, 1)), 13)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


@pytest.mark.parametrize("epoch", [0, -1])
async def test_a_full_request_ends_the_session_that_it_names(
    broker: Harness, topic: Topic, epoch: int
) -> None:
    session = await begin(broker, topic, (0, 0))
    response = await broker.ask(request(topic, (1, 0), session=(session, epoch)), VERSION)
    assert told(response) == [1]
    assert (response.session_id == 0) == (epoch == -1)
    response = await broker.ask(request(topic, session=(session, 1)), VERSION)
    assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(broker.services.fetch_sessions) == (epoch == 0)


async def test_partitions_are_added_and_forgotten(broker: Harness, topic: Topic) -> None:
    session = await begin(broker, topic, (0, 0), (1, 0))
    added = request(topic, (2, 0), session=(session, 1))
    added.forgotten_topics_data = [ForgottenTopic(topic_id=topic.topic_id, topic="orders", partitions=[0])]
    assert told(await broker.ask(added, VERSION)) == [2]
    assert [read.stream for read in broker.log.fetches[-1][0]] == [topic.streams[1], topic.streams[2]]
    assert broker.services.fetch_sessions.partitions == 2


async def test_a_session_without_partitions_is_over(broker: Harness, topic: Topic) -> None:
    session = await begin(broker, topic, (0, 0))
    last = request(topic, session=(session, 1))
    last.forgotten_topics_data = [ForgottenTopic(topic_id=topic.topic_id, topic="orders", partitions=[0])]
    response = await broker.ask(last, VERSION)
    assert (told(response), response.session_id) == ([], 0)
    assert (len(broker.services.fetch_sessions), broker.services.fetch_sessions.partitions) == (0, 0)


async def test_an_error_is_told_every_time(broker: Harness, topic: Topic) -> None:
    session = await begin(broker, topic, (0, 0), (PARTITIONS, 0))
    for epoch in (1, 2):
        response = await broker.ask(request(topic, session=(session, epoch)), VERSION)
        assert told(response) == [PARTITIONS]


async def test_what_was_told_goes_to_the_end(broker: Harness, topic: Topic) -> None:
    """So that under a byte limit every partition has its turn."""
    await produce(broker, topic, 0)
    session = await begin(broker, topic, (0, 0), (1, 0), (2, 0))
    await broker.ask(request(topic, session=(session, 1)), VERSION)
    await broker.ask(request(topic, session=(session, 2)), VERSION)
    streams = [read.stream for read in broker.log.fetches[-1][0]]
    assert streams == [topic.streams[each] for each in (1, 2, 0)]


def open_at(sessions: FetchSessions, now: float, count: int = 1) -> int:
    """A session of so many partitions."""
    parts = [FetchPartition(partition=each) for each in range(count)]
    asked = FetchRequest(session_epoch=0, topics=[FetchTopic(topic="t", partitions=parts)])
    opened = sessions.open(asked, VERSION, now, 1 << 20)
    return opened.answered(answer(count), now, RANDOM).session_id


def answer_of(topic: Topic, *parts: tuple[int, int]) -> FetchResponse:
    """Partitions with their high watermarks."""
    found = [
        PartitionData(partition_index=index, high_watermark=end, log_start_offset=0) for index, end in parts
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic.topic_id, topic.name, found)])


def answer(count: int) -> FetchResponse:
    parts = [PartitionData(partition_index=each) for each in range(count)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=parts)])


def is_there(sessions: FetchSessions, session: int) -> bool:
    return session in sessions._sessions


def test_where_there_is_no_room_a_client_sends_all() -> None:
    sessions = FetchSessions()
    for _ in range(MOST_SESSIONS):
        assert open_at(sessions, 0.0)
    assert open_at(sessions, EVICTION_SECONDS) == 0
    assert (len(sessions), sessions.partitions) == (MOST_SESSIONS, MOST_SESSIONS)


def test_a_session_that_is_not_used_makes_room() -> None:
    sessions = FetchSessions()
    first, *_ = [open_at(sessions, float(number)) for number in range(MOST_SESSIONS)]
    assert open_at(sessions, EVICTION_SECONDS + 0.5)
    assert not is_there(sessions, first)
    assert len(sessions) == MOST_SESSIONS


def test_partitions_have_a_bound_over_all_sessions() -> None:
    sessions = FetchSessions()
    count = MOST_PARTITIONS // 10
    assert all(open_at(sessions, 0.0, count) for _ in range(10))
    assert open_at(sessions, 1.0, 1) == 0
    assert open_at(sessions, EVICTION_SECONDS + 1, MOST_PARTITIONS + 1) == 0
    assert open_at(sessions, EVICTION_SECONDS + 1, 1), "the first ones are not used"
    assert sessions.partitions == 9 * count + 1


def test_a_session_cannot_grow_beyond_a_request() -> None:
    sessions = FetchSessions()
    session = open_at(sessions, 0.0, 3)
    more = FetchRequest(session_id=session, session_epoch=1)
    more.topics = [FetchTopic(topic="t", partitions=[FetchPartition(partition=3)])]
    with pytest.raises(SessionRefused, match="FETCH_SESSION_ID_NOT_FOUND"):
        sessions.open(more, VERSION, 0.0, 3)
    assert (len(sessions), sessions.partitions) == (0, 0)


async def test_what_a_quota_withholds_is_told_later(broker: Harness, topic: Topic) -> None:
    sessions = broker.services.fetch_sessions
    await produce(broker, topic, 0)
    session = await begin(broker, topic, (0, 1), (1, 0))
    for epoch, expected in ((1, [2]), (2, [2])):
        asked = request(topic, (2, 0), session=(session, epoch))
        opened = sessions.open(asked, VERSION, 0.0, 100)
        response = opened.answered(answer_of(topic, (0, 1), (1, 0), (2, 0)), 0.0, RANDOM)
        assert told(response) == expected
        opened.withheld(response)
        assert response.session_id == session
    full = sessions.open(request(topic, (0, 0), session=(0, 0)), VERSION, 0.0, 100)
    response = full.answered(answer_of(topic, (0, 1)), 0.0, RANDOM)
    full.withheld(response)
    assert (response.session_id, len(sessions)) == (0, 1)


def test_an_old_session_makes_room_for_a_larger_one_only() -> None:
    sessions = FetchSessions()
    identities = [open_at(sessions, 0.0, 2) for _ in range(MOST_SESSIONS)]
    now = 0.0
    for epoch in (1, 2):
        now += EVICTION_SECONDS - 1
        for identity in identities:
            sessions.open(FetchRequest(session_id=identity, session_epoch=epoch), VERSION, now, 1 << 20)
    assert open_at(sessions, now, 2) == 0
    assert open_at(sessions, now, 3)
    assert len(sessions) == MOST_SESSIONS
    assert not is_there(sessions, min(identities))
