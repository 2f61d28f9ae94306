"""Much is read gently: in small pieces, off the event loop, and with a rest after each piece."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.inspection.records import reading
from dray.inspection.records.matching import matcher
from dray.inspection.records.ranges import count
from dray.inspection.records.reading import LONGEST_REST, TopicReader
from dray.inspection.records.search import onwards
from dray.kafka.protocol.messages.fetch import FetchRequest
from dray.kafka.records import Record

NEEDLE = matcher("any", "contains", "not there")


class Clock:
    """Time passes while a broker answers a fetch, and in rests."""

    def __init__(self, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch, brokers: FakeBrokers) -> None:
        self.now = 1000.0
        self.answer_seconds = 0.010
        self.rests: list[float] = []
        answer = kafka.request

        async def request(message: Any, version: int | None = None) -> Any:
            if isinstance(message, FetchRequest):
                self.now += self.answer_seconds
            return await answer(message, version)

        async def sleep(seconds: float) -> None:
            self.rests.append(seconds)
            self.now += seconds

        monkeypatch.setattr(kafka, "request", request)
        monkeypatch.setattr(brokers.runtime, "monotonic", lambda: self.now)
        monkeypatch.setattr(brokers.runtime, "sleep", sleep)


def reader_of(monkeypatch: pytest.MonkeyPatch) -> tuple[TopicReader, FakeKafka, Clock]:
    partition = FakePartition()
    partition.produce(60)
    kafka = FakeKafka({"t": [partition]})
    kafka.fetch_bytes = 1
    brokers = FakeBrokers(kafka)
    return TopicReader(brokers, "t"), kafka, Clock(kafka, monkeypatch, brokers)


async def test_a_search_rests_as_long_as_it_works_and_looks_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, kafka, clock = reader_of(monkeypatch)
    view = await onwards(reader, {0: 0}, 50, NEEDLE, seconds=1e6)
    assert (view.scanned, view.continuation) == (60, None)
    assert clock.rests == pytest.approx([clock.answer_seconds] * kafka.fetches)


async def test_a_count_of_a_range_and_with_it_an_export_rests_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, kafka, clock = reader_of(monkeypatch)
    assert (await count(reader, {0: (0, 60)}, NEEDLE, seconds=1e6)).complete
    assert len(clock.rests) == kafka.fetches


async def test_a_slow_broker_makes_for_no_long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _, clock = reader_of(monkeypatch)
    clock.answer_seconds = 3.0
    assert (await onwards(reader, {0: 0}, 50, NEEDLE, seconds=1e6)).scanned == 60
    assert set(clock.rests) == {LONGEST_REST}


async def test_a_page_that_is_looked_at_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _, clock = reader_of(monkeypatch)
    assert len((await onwards(reader, {0: 0}, 50)).rows) == 50
    assert clock.rests == []


async def test_a_search_asks_for_little_at_once_and_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, kafka, _ = reader_of(monkeypatch)
    threads: set[threading.Thread] = set()

    def match(record: Record) -> bool:
        threads.add(threading.current_thread())
        return False

    await onwards(reader, {0: 0}, 50, match, seconds=1e6)
    assert threads
    assert threading.main_thread() not in threads
    asked = {message.max_bytes for message in kafka.asked if isinstance(message, FetchRequest)}
    assert asked == {reading.GENTLE_BYTES}
