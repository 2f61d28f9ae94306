"""Produce for topics that their source owns: what is sent on, what is appended here, and in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import pytest
from tests.unit.broker.api.fakes import FakeConnection, Harness, batch, frame, running
from tests.unit.broker.topics.fakes import eventually, settle

from dray.broker.api import Dispatcher, RefuseConnection
from dray.broker.api.shared.other_owner import OwnedBatch, OwnersAnswer
from dray.broker.topics import NewTopic, Topic
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from dray.kafka.records import read_header
from dray.log.origins import SourceOwnsLog
from dray.log.types import ActiveProducer

NOW = 1_750_000_000_000
OLD_ID = UUID(int=77)


@dataclass
class FakeForwarder:
    """Answers with the place in what it was sent, unless `answers` says otherwise."""

    ours: set[int] = field(default_factory=set)
    sent: list[OwnedBatch] = field(default_factory=list)
    asked: list[tuple[int, float]] = field(default_factory=list)  # acks, seconds
    answers: Callable[[OwnedBatch], OwnersAnswer] | None = None
    held: asyncio.Event | None = None
    throttle_ms: int = 0

    def owns(self, stream: int) -> bool:
        return stream not in self.ours

    async def append(
        self, batches: Sequence[OwnedBatch], *, acks: int, seconds: float
    ) -> tuple[Sequence[OwnersAnswer], int]:
        self.asked.append((acks, seconds))
        if self.held is not None:
            await self.held.wait()
        answers: list[OwnersAnswer] = []
        for each in batches:
            self.sent.append(each)
            if self.answers is not None:
                answers.append(self.answers(each))
            else:
                answers.append(PartitionProduceResponse(each.partition, 0, 1000 + len(self.sent), 5, 3))
        return answers, self.throttle_ms


class Linked:
    """A broker with a topic of its own and one that another cluster owns."""

    def __init__(self, broker: Harness, own: Topic, old: Topic) -> None:
        self.broker = broker
        self.own = own
        self.old = old
        self.forwarder = FakeForwarder()
        self.connection = broker.connection
        broker.services = replace(broker.services, other_owner=self.forwarder)
        broker.dispatcher = Dispatcher(broker.services)
        for stream in old.streams:
            broker.log.fail[stream] = SourceOwnsLog("its source takes the appends")

    def switch(self, *partitions: int) -> None:
        for partition in partitions:
            self.broker.log.fail.pop(self.old.streams[partition], None)

    async def produce(
        self, *parts: tuple[Topic, int, bytes | None], acks: int = -1, version: int = 9
    ) -> list[PartitionProduceResponse]:
        answer = await self.broker.ask(produce(*parts, acks=acks), version, self.connection)
        return [part for topic in answer.responses for part in topic.partition_responses]

    async def answer(self, *parts: tuple[Topic, int, bytes | None], version: int = 9) -> ProduceResponse:
        return await self.broker.ask(produce(*parts), version, self.connection)


def produce(*parts: tuple[Topic, int, bytes | None], acks: int = -1) -> ProduceRequest:
    data = [
        TopicProduceData(topic.topic_id, topic.name, [PartitionProduceData(partition, records)])
        for topic, partition, records in parts
    ]
    return ProduceRequest(acks=acks, timeout_ms=2000, topic_data=data)


def good(*values: bytes, **fields: Any) -> bytes:
    return batch(*(values or (b"value",)), now_ms=NOW, **fields)


def sequenced(sequence: int) -> bytes:
    return good(b"%d" % sequence, producer_id=9, producer_epoch=0, base_sequence=sequence)


def sequences(sent: Sequence[OwnedBatch]) -> list[int]:
    return [read_header(each.records).base_sequence for each in sent]


@pytest.fixture
async def linked(broker: Harness) -> Linked:
    broker.runtime.wall_ms = lambda: NOW  # type: ignore[method-assign]
    own = await broker.topics.create(NewTopic("own", 2))
    streams = await broker.log.create_streams(2)
    config = {"message.timestamp.type": "LogAppendTime", "compression.type": "gzip"}
    old = await broker.topics.attach("old", OLD_ID, streams, config, leader_epoch=65_536)
    return Linked(broker, own, old)


@pytest.mark.parametrize("version", [3, 9, 12, 13])
async def test_a_batch_goes_to_the_source_as_it_came_and_its_answer_back(
    linked: Linked, version: int
) -> None:
    sent = good(b"a", b"b")
    [answer] = await linked.produce((linked.old, 1, sent), version=version)
    assert (answer.index, answer.error_code, answer.base_offset, answer.log_append_time_ms) == (1, 0, 1001, 5)
    [forwarded] = linked.forwarder.sent
    assert forwarded == OwnedBatch("old", OLD_ID, 1, linked.old.streams[1], sent)
    assert bytes(forwarded.records) == sent, "neither stamped nor compressed: its source does that"
    assert linked.broker.log.appended == [], "an append would upload an object for nothing"
    [(acks, seconds)] = linked.forwarder.asked
    assert acks == -1
    assert 1.9 < seconds <= 2.0


async def test_topics_of_our_own_are_not_asked_about(linked: Linked) -> None:
    class Untouched:
        def owns(self, _: int) -> bool:
            raise AssertionError("a batch for a topic that was born here asks nothing")

    linked.broker.services = replace(linked.broker.services, other_owner=Untouched())  # type: ignore[arg-type]
    linked.broker.dispatcher = Dispatcher(linked.broker.services)
    [answer] = await linked.produce((linked.own, 0, good()))
    assert (answer.error_code, answer.base_offset) == (0, 0)


async def test_without_a_configured_source_the_log_refuses(linked: Linked) -> None:
    linked.broker.services = replace(linked.broker.services, other_owner=None)
    linked.broker.dispatcher = Dispatcher(linked.broker.services)
    [answer] = await linked.produce((linked.old, 0, good()))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_request_for_both_kinds_of_topics(linked: Linked) -> None:
    parts = ((linked.own, 1, good()), (linked.old, 0, good()), (linked.own, 0, good(b"x", b"y")))
    answers = await linked.produce(*parts)
    assert [(each.index, each.error_code, each.base_offset) for each in answers] == [
        (1, 0, 0),
        (0, 0, 1001),
        (0, 0, 0),
    ]


async def test_a_batch_that_the_source_let_go_is_appended_here(linked: Linked) -> None:
    linked.forwarder.answers = lambda _: None
    linked.switch(0)
    [answer] = await linked.produce((linked.old, 0, good(b"a")))
    assert (answer.error_code, answer.base_offset, answer.log_append_time_ms) == (0, 0, NOW)
    [(_, stored, _)] = linked.broker.log.streams[linked.old.streams[0]].batches
    assert read_header(stored).attributes & 0x0F == 0x09, "judged as a batch of our own: stamped, and gzip"
    linked.forwarder.ours.add(linked.old.streams[0])
    [answer] = await linked.produce((linked.old, 0, good(b"b")))
    assert answer.base_offset == 1
    assert len(linked.forwarder.sent) == 1, "nothing is asked any more"


async def test_a_log_that_is_not_switched_after_all_refuses(linked: Linked) -> None:
    """The forwarder's view is never trusted alone: the log compares and sets."""
    linked.forwarder.answers = lambda _: None
    [answer] = await linked.produce((linked.old, 0, good()))
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_requests_of_a_connection_are_sent_on_one_after_the_other(linked: Linked) -> None:
    """Also a later one for a topic of our own, and one that is appended here once the first was held."""
    linked.forwarder.held = asyncio.Event()
    requests = [
        asyncio.ensure_future(linked.produce((linked.old, 0, sequenced(number)))) for number in range(3)
    ]
    own = asyncio.ensure_future(linked.produce((linked.own, 0, good())))
    await settle()
    assert len(linked.forwarder.asked) == 1
    assert not own.done()
    other = FakeConnection()
    answer = await linked.broker.ask(produce((linked.own, 1, good())), 9, other)
    assert answer.responses[0].partition_responses[0].error_code == 0, "other connections do not wait"
    linked.switch(0)
    linked.forwarder.answers = lambda _: None
    linked.forwarder.held.set()
    found = [(await request)[0] for request in requests]
    assert [(each.error_code, each.base_offset) for each in found] == [(0, 0), (0, 1), (0, 2)]
    assert sequences(linked.forwarder.sent) == [0, 1, 2]
    assert (await own)[0].error_code == 0


async def test_what_waited_for_its_turn_has_less_time(linked: Linked) -> None:
    linked.forwarder.held = asyncio.Event()
    clock = [100.0]
    linked.broker.runtime.monotonic = lambda: clock[0]  # type: ignore[method-assign]
    first = asyncio.ensure_future(linked.produce((linked.old, 0, sequenced(0))))
    second = asyncio.ensure_future(linked.produce((linked.old, 0, sequenced(1))))
    await eventually(lambda: linked.forwarder.asked)
    clock[0] = 101.5
    linked.forwarder.held.set()
    await asyncio.gather(first, second)
    assert [seconds for _, seconds in linked.forwarder.asked] == [2.0, 0.5]


async def test_behind_a_batch_without_an_answer_nothing_overtakes(linked: Linked) -> None:
    """The source may know nothing of the producer yet: it would take the next batch for its first."""
    linked.forwarder.held = asyncio.Event()
    lost = iter([True])
    timed_out = ErrorCode.REQUEST_TIMED_OUT, "The source did not answer: try again."
    linked.forwarder.answers = lambda each: (
        timed_out if next(lost, False) else PartitionProduceResponse(each.partition, 0, 50)
    )
    requests = [
        asyncio.ensure_future(linked.produce((linked.old, 0, sequenced(number)))) for number in range(3)
    ]
    await settle()  # all three are here before the first fails
    linked.forwarder.held.set()
    codes = [(await request)[0].error_code for request in requests]
    # Not as out of order: librdkafka would send the first again with another epoch, and it may be there.
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 3
    again = [(await linked.produce((linked.old, 0, sequenced(number))))[0].error_code for number in range(3)]
    assert again == [0, 0, 0]
    assert sequences(linked.forwarder.sent) == [0, 0, 1, 2]


async def test_a_batch_without_an_answer_that_is_mirrored_is_waited_for_no_longer(
    linked: Linked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stored at the source after all, or came there through another broker."""
    timed_out = ErrorCode.REQUEST_TIMED_OUT, "The source did not answer: try again."
    mirrored: list[ActiveProducer] = []

    async def producers(_: int) -> list[ActiveProducer]:
        return mirrored

    monkeypatch.setattr(linked.broker.log, "producers", producers)
    linked.forwarder.answers = lambda _: timed_out
    for sequence in (0, 1):
        found = (await linked.produce((linked.old, 0, sequenced(sequence))))[0].error_code
        assert found == ErrorCode.REQUEST_TIMED_OUT
    assert sequences(linked.forwarder.sent) == [0]
    mirrored.append(ActiveProducer(9, 0, 0, NOW))
    linked.forwarder.answers = None
    assert (await linked.produce((linked.old, 0, sequenced(1))))[0].error_code == 0
    assert sequences(linked.forwarder.sent) == [0, 1]
    assert not linked.connection.state


async def test_what_the_source_refuses_is_for_the_client_to_mend(linked: Linked) -> None:
    refused = PartitionProduceResponse(0, ErrorCode.MESSAGE_TOO_LARGE, -1)
    linked.forwarder.answers = lambda _: refused
    assert (await linked.produce((linked.old, 0, sequenced(0))))[0].error_code == ErrorCode.MESSAGE_TOO_LARGE
    linked.forwarder.answers = None
    assert (await linked.produce((linked.old, 0, sequenced(1))))[0].error_code == 0


async def test_a_client_that_leaves_takes_its_batch_with_it(linked: Linked) -> None:
    linked.forwarder.held = asyncio.Event()
    linked.forwarder.answers = lambda _: None
    linked.switch(0)
    first = asyncio.ensure_future(linked.produce((linked.old, 0, sequenced(0))))
    second = asyncio.ensure_future(linked.produce((linked.old, 0, sequenced(1))))
    await eventually(lambda: linked.forwarder.asked)
    linked.connection.end()
    async with asyncio.timeout(60):
        codes = [answer[0].error_code for answer in await asyncio.gather(first, second)]
    assert codes == [ErrorCode.REQUEST_TIMED_OUT] * 2
    linked.forwarder.held.set()
    await settle()
    assert len(linked.forwarder.asked) == 1, "the second is not even begun"
    assert linked.broker.log.appended == [], "it may be elsewhere by now, and would come twice"


async def test_without_acknowledgement_there_is_no_answer_and_an_error_ends_the_connection(
    linked: Linked,
) -> None:
    request = produce((linked.old, 0, good()), acks=0)
    assert await linked.broker.dispatcher.dispatch(frame(request, 9), linked.connection) is None
    assert linked.forwarder.asked[0][0] == 0
    linked.forwarder.answers = lambda _: (ErrorCode.REQUEST_TIMED_OUT, "Try again.")
    with pytest.raises(RefuseConnection, match="REQUEST_TIMED_OUT"):
        await linked.broker.dispatcher.dispatch(frame(request, 9), linked.connection)


async def test_the_source_s_throttle_is_passed_on(linked: Linked) -> None:
    linked.forwarder.throttle_ms = 340
    assert (await linked.answer((linked.old, 0, good()))).throttle_time_ms == 340
    assert (await linked.answer((linked.own, 0, good()))).throttle_time_ms == 0


@pytest.mark.parametrize("attributes", [0x10, 0x30])
async def test_transactions_are_refused_here(linked: Linked, attributes: int) -> None:
    sent = bytearray(sequenced(0))
    sent[22] |= attributes
    [answer] = await linked.produce((linked.old, 0, bytes(sent)))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert "does not support transactions" in (answer.error_message or "")
    assert linked.forwarder.sent == []


@pytest.mark.parametrize("records", [None, b""])
async def test_a_part_without_records_is_refused_here(linked: Linked, records: bytes | None) -> None:
    """At the source it would fail the whole request."""
    answers = await linked.produce((linked.old, 0, records), (linked.old, 1, good()))
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_RECORD, 0]


async def test_a_partition_that_is_named_twice_goes_nowhere(linked: Linked) -> None:
    answers = await linked.produce((linked.old, 0, good()), (linked.old, 0, good()))
    assert [each.error_code for each in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert linked.forwarder.sent == []


@pytest.mark.parametrize("version", [12, 13])
async def test_who_may_not_write_here_is_not_sent_on(version: int) -> None:
    async with running(authorizes=True) as broker:
        streams = await broker.log.create_streams(1)
        old = await broker.topics.attach("old", OLD_ID, streams, {}, leader_epoch=65_536)
        linked = Linked(broker, old, old)
        linked.connection = FakeConnection(principal="User:stranger")
        [answer] = await linked.produce((old, 0, good()), version=version)
        assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert linked.forwarder.sent == []
        linked.connection = FakeConnection()
        assert (await linked.produce((old, 0, good()), version=version))[0].error_code == 0
