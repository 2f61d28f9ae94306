"""The ledger between clients and brokers counts whole batches, and knows what is stored too often."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.services.batches import batch, plain
from tests.services.ledger import ConnectionTap, ProduceLedger, SentBatch, split

from dray.kafka.protocol.frames import (
    RequestHeader,
    encode_request_header,
    encode_response_header,
    frame_message,
)
from dray.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from dray.kafka.protocol.messages.schemas import ApiKey

VERSION = 9


def request(correlation: int, data: bytes, acks: int = -1) -> bytes:
    partition = PartitionProduceData(index=3, records=data)
    message = ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )
    header = encode_request_header(RequestHeader(ApiKey.PRODUCE, VERSION, correlation))
    return b"".join(frame_message(header, message.encode(VERSION)))


def response(correlation: int, error: int = 0) -> bytes:
    partition = PartitionProduceResponse(index=3, error_code=error, base_offset=0)
    message = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    header = encode_response_header(ApiKey.PRODUCE, VERSION, correlation)
    return b"".join(frame_message(header, message.encode(VERSION)))


@pytest.fixture
def ledger() -> ProduceLedger:
    return ProduceLedger()


@pytest.fixture
def tap(ledger: ProduceLedger) -> ConnectionTap:
    return ledger.tap()


ONE = batch(plain(b"one", b"more"))
OTHER = batch(plain(b"other"))


def sent(data: bytes) -> SentBatch:
    [found] = split("t", 3, memoryview(data))
    return found


def test_a_batch_counts_when_its_last_byte_has_gone(ledger: ProduceLedger, tap: ConnectionTap) -> None:
    frame = request(1, ONE)
    tap.towards_target(frame[:-1])
    assert not ledger.sent
    tap.towards_target(frame[-1:] + request(2, ONE) + request(3, OTHER)[:10])
    assert ledger.sent == {sent(ONE): 2}
    assert ledger.times_sent() == {b"one": 2, b"more": 2}


def test_another_connection_does_not_end_what_one_began(ledger: ProduceLedger, tap: ConnectionTap) -> None:
    frame = request(1, ONE)
    tap.towards_target(frame[:-5])
    ledger.tap().towards_target(request(1, OTHER))
    assert ledger.sent == {sent(OTHER): 1}


def test_a_batch_is_the_same_wherever_it_is_stored() -> None:
    moved = batch(plain(b"one", b"more"), base_offset=77, leader_epoch=0)
    assert sent(moved) == sent(ONE)
    assert sent(moved).values() == [b"one", b"more"]


def test_acknowledged_is_what_was_answered_without_an_error(
    ledger: ProduceLedger, tap: ConnectionTap
) -> None:
    tap.towards_target(request(1, ONE) + request(2, OTHER))
    tap.back(response(1) + response(2, error=7))
    assert ledger.acknowledged == {sent(ONE): 1}


def test_who_wants_no_answer_is_not_given_another_ones(ledger: ProduceLedger, tap: ConnectionTap) -> None:
    tap.towards_target(request(1, ONE, acks=0))
    tap.back(response(1))
    assert ledger.sent == {sent(ONE): 1}
    assert not ledger.acknowledged


def test_stored_more_often_than_sent_is_noticed(ledger: ProduceLedger, tap: ConnectionTap) -> None:
    tap.towards_target(request(1, ONE))
    ledger.check(Counter({sent(ONE): 1}))
    with pytest.raises(AssertionError, match="stored more often"):
        ledger.check(Counter({sent(ONE): 2}))
    with pytest.raises(AssertionError, match="stored more often"):
        ledger.check(Counter({sent(OTHER): 1}))


def test_stored_less_often_than_acknowledged_is_noticed(ledger: ProduceLedger, tap: ConnectionTap) -> None:
    tap.towards_target(request(1, ONE) + request(2, ONE))
    tap.back(response(1))
    ledger.check(Counter({sent(ONE): 1}))
    tap.back(response(2))
    with pytest.raises(AssertionError, match="acknowledged more often"):
        ledger.check(Counter({sent(ONE): 1}))
