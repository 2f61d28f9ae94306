"""The Kafka code of an error below: that of its class, or of what it is a case of."""

from __future__ import annotations

import pytest

from dray.broker.api.shared import append_error, is_told_elsewhere, read_error, topic_error
from dray.broker.topics import TopicsUnavailable, UnknownTopic
from dray.broker.topics.records import Undecided
from dray.kafka.protocol import ErrorCode
from dray.log.life.retention import WaitsForTable
from dray.log.read.doubts import InDoubt
from dray.log.types import (
    LogError,
    LogUnavailable,
    ObjectCorrupt,
    OutsideFault,
    OutsideStoreAway,
    StreamClosed,
)
from dray.metadata.values import ValueCorrupt


class Unheard(LogError):
    """No table of codes has it."""


class UnreadableObject(ObjectCorrupt):
    pass


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LogUnavailable("away"), ErrorCode.REQUEST_TIMED_OUT),
        (WaitsForTable("later"), ErrorCode.REQUEST_TIMED_OUT),
        (StreamClosed("gone"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (Unheard("?"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_append_errors(error: LogError, code: ErrorCode) -> None:
    assert append_error(error) is code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LogUnavailable("away"), ErrorCode.KAFKA_STORAGE_ERROR),
        (WaitsForTable("later"), ErrorCode.KAFKA_STORAGE_ERROR),
        (UnreadableObject("damaged"), ErrorCode.CORRUPT_MESSAGE),
        (Unheard("?"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_read_errors(error: LogError, code: ErrorCode) -> None:
    assert read_error(error) is code


def test_a_read_of_an_old_version_does_not_know_every_code() -> None:
    assert read_error(WaitsForTable("later"), knows_storage_error=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert read_error(ObjectCorrupt("damaged"), knows_storage_error=False) is ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_value_is_damage_and_not_a_store_that_is_away() -> None:
    error = LogUnavailable("the store has a damaged value")
    error.__cause__ = ValueCorrupt("a counter", "9 bytes")
    assert read_error(error) is ErrorCode.CORRUPT_MESSAGE
    assert not is_told_elsewhere(error)


def test_only_what_stores_of_the_cluster_tell_of_themselves_is_not_told_for_each_request() -> None:
    assert is_told_elsewhere(LogUnavailable("away"))
    assert is_told_elsewhere(InDoubt("read again"))
    for error in (OutsideStoreAway("elsewhere"), ObjectCorrupt("damaged"), OutsideFault("gone")):
        assert not is_told_elsewhere(error)


def test_topic_errors() -> None:
    assert topic_error(UnknownTopic("t")) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert issubclass(Undecided, TopicsUnavailable)
    assert topic_error(Undecided("?")) is ErrorCode.REQUEST_TIMED_OUT
