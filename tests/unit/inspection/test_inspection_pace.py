"""Much is read gently: in small pieces, off the event loop, and slower while brokers are busy with others."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.unit.inspection.inspection_fakes import FakeBrokers, FakeKafka, FakePartition

from dray.client import ClientError
from dray.inspection import reading
from dray.inspection.matching import matcher
from dray.inspection.pace import LISTEN_SECONDS, LONGEST_PAUSE, Pace, pause_after, step_of
from dray.inspection.ranges import count
from dray.inspection.reading import FetchedRecord, TopicReader
from dray.inspection.records import onwards
from dray.protocol.messages.api_versions import ApiVersionsRequest
from dray.protocol.messages.fetch import FetchRequest
from dray.records import Record

WAY_THERE = 0.030


def heard(*queued: float) -> Pace:
    pace = Pace()
    for number, seconds in enumerate(queued):
        pace.hear(WAY_THERE + seconds, float(number))
    return pace


def test_a_long_way_to_an_idle_broker_is_no_reason_to_pause() -> None:
    assert heard(0.001, 0.0, 0.0015, 0.0019).pause == 0


def test_a_queue_makes_for_pauses_that_grow_and_an_end() -> None:
    assert heard(0.0, 0.010).pause == pytest.approx(0.010)
    assert heard(0.0, 0.010, 0.010, 0.010).pause == pytest.approx(0.040)
    assert heard(0.0, *[0.010] * 20).pause == LONGEST_PAUSE


def test_a_short_queue_after_long_ones_ends_the_pauses() -> None:
    assert heard(0.0, 0.010, 0.010, 0.0).pause == pytest.approx(0.010)
    assert heard(0.0, *[0.010] * 20, *[0.0] * 10).pause == 0


def test_it_listens_now_and_then() -> None:
    pace = Pace()
    assert pace.wants_to_hear(0.0)
    pace.hear(0.001, 5.0)
    assert not pace.wants_to_hear(5.0 + LISTEN_SECONDS / 2)
    assert pace.wants_to_hear(5.0 + 1.01 * LISTEN_SECONDS)


class SlowClock:
    """Time passes while a broker answers a request without work, and in pauses."""

    def __init__(self, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch, brokers: FakeBrokers) -> None:
        self.now = 1000.0
        self.queued = [0.0]
        self.slept: list[float] = []
        answer = kafka.request

        async def request(message: Any, version: int | None = None) -> Any:
            if isinstance(message, ApiVersionsRequest):
                self.now += WAY_THERE + (self.queued.pop(0) if len(self.queued) > 1 else self.queued[0])
            else:
                self.now += LISTEN_SECONDS
            return await answer(message, version)

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)
            self.now += seconds

        monkeypatch.setattr(kafka, "request", request)
        monkeypatch.setattr(brokers.runtime, "monotonic", lambda: self.now)
        monkeypatch.setattr(brokers.runtime, "sleep", sleep)


def reader_of(monkeypatch: pytest.MonkeyPatch) -> tuple[TopicReader, FakeKafka, SlowClock]:
    partition = FakePartition()
    partition.produce(60)
    kafka = FakeKafka({"t": [partition]})
    kafka.fetch_bytes = 1
    brokers = FakeBrokers(kafka)
    return TopicReader(brokers, "t"), kafka, SlowClock(kafka, monkeypatch, brokers)


NEEDLE = matcher("any", "contains", "not there")


async def test_a_search_beside_busy_brokers_pauses_and_looks_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _, clock = reader_of(monkeypatch)
    clock.queued = [0.0, 0.010]
    view = await onwards(reader, {0: 0}, 50, NEEDLE, seconds=1e6)
    assert (view.scanned, view.continuation) == (60, None)
    assert clock.slept[:3] == pytest.approx([0.010, 0.020, 0.040])


async def test_a_search_of_an_idle_cluster_does_not_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _, clock = reader_of(monkeypatch)
    assert (await onwards(reader, {0: 0}, 50, NEEDLE, seconds=1e6)).scanned == 60
    assert clock.slept == []


async def test_a_count_of_a_range_and_with_it_an_export_pauses_too(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, _, clock = reader_of(monkeypatch)
    clock.queued = [0.0, 0.010]
    assert (await count(reader, {0: (0, 60)}, NEEDLE, seconds=1e6)).complete
    assert clock.slept


async def test_a_broker_that_cannot_be_heard_is_read_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, kafka, _ = reader_of(monkeypatch)
    answer = kafka.request

    async def request(message: Any, version: int | None = None) -> Any:
        if isinstance(message, ApiVersionsRequest):
            raise ClientError("the connection was closed")
        return await answer(message, version)

    monkeypatch.setattr(kafka, "request", request)
    assert (await onwards(reader, {0: 0}, 50, NEEDLE, seconds=1e6)).scanned == 60
    assert reader.pace == Pace(), "and says nothing about how busy it is"


async def test_a_search_asks_for_little_at_once_and_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, kafka, _ = reader_of(monkeypatch)
    pieces: list[None] = []
    reader.brokers.at_work = lambda: pieces.append(None)
    threads: set[threading.Thread] = set()

    def match(record: Record) -> bool:
        threads.add(threading.current_thread())
        return False

    await onwards(reader, {0: 0}, 50, match, seconds=1e6)
    assert threads
    assert threading.main_thread() not in threads
    asked = {message.max_bytes for message in kafka.asked if isinstance(message, FetchRequest)}
    assert asked == {reading.GENTLE_BYTES}
    assert len(pieces) == kafka.fetches, "and says so, piece by piece"


# --- while other processes of the machine need the processor


class CrowdedBrokers(FakeBrokers):
    """They need it, as long as `crowded` says."""

    def __init__(self, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(kafka)
        self.crowded = True
        self.is_crowded = lambda: self.crowded
        self.pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            self.pauses.append(seconds)

        monkeypatch.setattr(self.runtime, "sleep", sleep)


def long_batches(*lengths: int) -> FakePartition:
    partition = FakePartition()
    for length in lengths:
        base = partition.end
        partition.append(*(Record(base + n, 0, b"k", b"v%d" % (base + n)) for n in range(length)))
    return partition


async def test_much_is_taken_apart_in_steps_while_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = FakeKafka({"t": [long_batches(250, 30)]})
    brokers = CrowdedBrokers(kafka, monkeypatch)
    reader = TopicReader(brokers, "t")
    match = matcher("value", "contains", "7")
    slowly = await reader.fetch_gently(0, 20, match)
    assert len(brokers.pauses) == 4, "three steps of the first batch, one of the second"
    assert min(brokers.pauses) > 0
    brokers.crowded = False
    assert await reader.fetch_gently(0, 20, match) == slowly, "what is found is the same"
    assert len(brokers.pauses) == 4, "nobody waits: no pauses"
    assert [item.record.offset for item in slowly.items if isinstance(item, FetchedRecord)] == [
        number for number in range(20, 280) if "7" in str(number)
    ]


def test_a_batch_of_very_many_records_does_not_take_for_ever() -> None:
    assert step_of(3) == 100
    assert step_of(1_000_000) == 10_000
    assert step_of(-1) == 100


def test_steps_take_a_tenth_of_a_core() -> None:
    assert pause_after(0.001) == pytest.approx(0.009)
    assert pause_after(0.0) == pytest.approx(0.001)
    assert pause_after(10.0) == LONGEST_PAUSE
