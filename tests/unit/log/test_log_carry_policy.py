"""When appends are carried, and when carried entries are packed: the policy alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.services.room_settings import BY_ENGINE, ETCD

from dray.log.append.carry import (
    LULL_SECONDS,
    CarriedBacklog,
    CarryLimits,
    CarryPolicy,
    LaneSwitch,
    SmallBatchRate,
)

LIMITS = CarryLimits(
    chunk_bytes=100,
    write_bytes=300,
    rate=1000,
    backlog=5000,
    stream_backlog=800,
    entry_bytes=0,
    pack_bytes=2000,
    pack_entries=5,
    pack_seconds=60.0,
    few_entries=0,
)


FEW = replace(LIMITS, pack_entries=500, few_entries=3, few_seconds=300.0)


class Lane:
    def __init__(self) -> None:
        self.backlog = CarriedBacklog(LIMITS)
        self.policy = CarryPolicy(LIMITS, self.backlog)
        self.now = 100.0

    def refusal(self, size: int, stream: int = 1, chunk: int = 0, write: int = 0) -> LaneSwitch | None:
        return self.policy.refusal(self.now, stream, chunk, write, size)


@pytest.fixture
def lane() -> Lane:
    return Lane()


def test_a_chunk_that_is_too_large_comes_back_at_half(lane: Lane) -> None:
    assert lane.refusal(100) is None
    assert lane.refusal(50, chunk=51) is LaneSwitch.LARGE
    assert lane.refusal(51) is LaneSwitch.LARGE
    assert lane.refusal(51, stream=2) is None, "the bound is the stream's own"
    assert lane.refusal(50) is None
    assert lane.refusal(100) is None


def test_a_write_holds_so_much(lane: Lane) -> None:
    assert lane.refusal(100, write=200) is None
    assert lane.refusal(100, write=201) is LaneSwitch.FULL


# --- the rate


class Arrivals:
    """Batches on a clock of their own, and how many bytes of each stream were carried."""

    def __init__(self, rate: int, seconds: float = 0.25) -> None:
        self.rate = SmallBatchRate(rate, seconds)
        self.now = 100.0
        self.sent: dict[int, int] = {}
        self.carried: dict[int, int] = {}

    def send(self, stream: int, size: int) -> None:
        self.sent[stream] = self.sent.get(stream, 0) + size
        self.carried[stream] = self.carried.get(stream, 0) + size * self.rate.takes(self.now, stream, size)

    def play(self, seconds: float, loads: dict[int, tuple[int, float]]) -> None:
        """By stream: the size of its batches, and how many come in a second."""
        began = self.now
        arrivals = [
            (number / often, stream, size)
            for stream, (size, often) in loads.items()
            for number in range(round(seconds * often))
        ]
        for after, stream, size in sorted(arrivals):
            self.now = began + after
            self.send(stream, size)
        self.now = began + seconds


BULK_BATCH = 16_000  # what a client with batches of 16 KiB makes of records of a kilobyte


@pytest.mark.parametrize("engine", BY_ENGINE)
@pytest.mark.parametrize("times", [1.2, 5.0])
def test_bulk_in_small_batches_is_not_carried(engine: str, times: float) -> None:
    """Four streams that bring more than the rate, for a minute: what is carried of it is what came before it
    was recognised, and none of it later."""
    limits = BY_ENGINE[engine]
    arrivals = Arrivals(limits.rate, limits.rate_seconds)
    size = min(BULK_BATCH, limits.chunk_bytes)
    often = times * limits.rate / 4 / size
    arrivals.play(60.0, dict.fromkeys(range(4), (size, often)))
    assert sum(arrivals.sent.values()) > 59 * limits.rate
    assert sum(arrivals.carried.values()) <= limits.rate_seconds * limits.rate
    before = sum(arrivals.carried.values())
    arrivals.play(30.0, dict.fromkeys(range(4), (size, often * 0.6 / times)))
    assert sum(arrivals.carried.values()) == before, "at 0.6 of the rate it is still not carried"


@pytest.mark.parametrize("engine", BY_ENGINE)
def test_a_trickle_beside_bulk_is_carried(engine: str) -> None:
    limits = BY_ENGINE[engine]
    arrivals = Arrivals(limits.rate, limits.rate_seconds)
    size = min(BULK_BATCH, limits.chunk_bytes)
    trickle, records = 9, limits.rate / 100 / 500
    arrivals.play(20.0, {0: (size, 3 * limits.rate / size), trickle: (500, records)})
    assert arrivals.carried[trickle] == arrivals.sent[trickle] > 0
    assert arrivals.carried[0] < arrivals.sent[0] / 50


def test_after_bulk_its_streams_are_carried_again() -> None:
    arrivals = Arrivals(1_000_000)
    arrivals.play(5.0, {1: (10_000, 300)})
    arrivals.carried.clear()
    arrivals.play(2.0, {1: (1_000, 300)})
    assert arrivals.sent[1] == 15_600_000
    assert arrivals.carried[1] >= 1_000 * 300 * (2.0 - 2 * 0.25) - 1_000
    arrivals.play(5.0, {1: (10_000, 300)})
    arrivals.now += 0.25 + LULL_SECONDS
    arrivals.carried.clear()
    arrivals.send(1, 10_000)
    assert arrivals.carried[1] == 10_000


def test_many_light_streams_are_bounded_together() -> None:
    arrivals = Arrivals(100_000)
    arrivals.play(10.0, dict.fromkeys(range(300), (100, 10.0)))
    assert sum(arrivals.sent.values()) == 3_000_000
    assert sum(arrivals.carried.values()) <= 100_000 * 0.25
    arrivals.carried.clear()
    arrivals.play(5.0, dict.fromkeys(range(40), (100, 10.0)))
    assert sum(arrivals.carried.values()) > 0.8 * 200_000, "back at less than half"


def test_below_the_rate_a_heavy_stream_is_carried() -> None:
    arrivals = Arrivals(1_000_000)
    arrivals.play(10.0, {1: (10_000, 90.0)})
    assert arrivals.carried == arrivals.sent


def test_at_the_bound_of_the_domain_until_half_of_it_is_gone(lane: Lane) -> None:
    for stream in range(10, 17):
        lane.backlog.add(stream, 700, lane.now)
    assert lane.refusal(100) is None
    assert lane.refusal(100, write=1) is LaneSwitch.BACKLOG
    lane.backlog.recount(10, 0, 0, lane.now)
    assert lane.refusal(1) is LaneSwitch.BACKLOG
    for stream in range(11, 15):
        lane.backlog.recount(stream, 0, 0, lane.now)
    assert lane.backlog.size == 1400
    assert lane.refusal(100) is None


def test_at_the_bound_of_a_stream_until_half_of_it_is_gone(lane: Lane) -> None:
    lane.backlog.add(1, 750, lane.now)
    assert lane.refusal(50) is None
    assert lane.refusal(51) is LaneSwitch.STREAM_BACKLOG
    assert lane.refusal(51, stream=2) is None
    lane.backlog.recount(1, 400, 3, lane.now)
    assert lane.refusal(1) is LaneSwitch.STREAM_BACKLOG
    lane.backlog.recount(1, 300, 3, lane.now)
    assert lane.refusal(100) is None


def test_two_lost_races_in_a_second_send_a_stream_to_the_objects(lane: Lane) -> None:
    lane.policy.lost_race(lane.now, 1)
    assert lane.refusal(1) is None
    lane.policy.lost_race(lane.now + 0.9, 1)
    lane.now += 1.0
    assert lane.refusal(1) is LaneSwitch.RACES
    assert lane.refusal(1, stream=2) is None
    lane.now += 1.8
    assert lane.refusal(1) is LaneSwitch.RACES
    lane.now += 0.2
    assert lane.refusal(1) is None
    lane.policy.lost_race(lane.now, 1)
    lane.policy.lost_race(lane.now + 1.1, 1)
    lane.now += 1.2
    assert lane.refusal(1) is None, "one in a second is no race"


def test_what_is_idle_is_forgotten(lane: Lane) -> None:
    lane.refusal(101)
    lane.policy.lost_race(lane.now, 1)
    lane.backlog.add(1, 900, lane.now)
    lane.refusal(1)
    lane.backlog.recount(1, 0, 0, lane.now)
    lane.policy.forget_idle(lane.now + 3)
    assert (lane.policy._races, lane.policy._full, lane.policy._large) == ({}, set(), set())


def test_streams_are_packed_by_size_entries_and_age() -> None:
    backlog = CarriedBacklog(LIMITS)
    backlog.add(1, 10, 0.0)
    assert backlog.due(59.0) == []
    assert backlog.due(60.0) == [1]
    assert backlog.is_old(1, 60.0)
    for _ in range(5):
        backlog.add(2, 10, 50.0)
    assert backlog.due(51.0) == [2]
    assert not backlog.is_old(2, 51.0)
    backlog.add(3, 400, 52.0)
    assert backlog.due(53.0) == [2], "a head is not packed"
    backlog.add(3, 1, 52.0)
    assert backlog.due(53.0) == [2, 3], "half of what a stream may carry"
    for stream in range(4, 9):
        backlog.add(stream, 399, 53.0)
    assert backlog.size >= LIMITS.pack_bytes
    assert backlog.due(53.0) == [2, 3], "heads count for nothing"
    for stream in range(4, 9):
        backlog.add(stream, 1, 53.0)
    assert backlog.due(53.0) == [2, 3, 4, 5, 6, 7, 8], "the oldest first; one that has but a head waits"


def test_a_stream_with_few_entries_is_packed_later() -> None:
    backlog = CarriedBacklog(FEW)
    for stream, entries in ((1, 2), (2, 3)):
        for _ in range(entries):
            backlog.add(stream, 10, 0.0)
    assert backlog.due(60.0) == [2], "a pack costs much more than two appends"
    assert (backlog.is_old(1, 299.0), backlog.is_old(1, 300.0)) == (False, True)


def test_a_trickle_into_many_streams_is_packed_at_a_third_of_the_bound() -> None:
    backlog = CarriedBacklog(replace(FEW, backlog=9000))
    for stream in range(6):
        for _ in range(2):
            backlog.add(stream, 200, 0.0)
    for _ in range(7):
        backlog.add(6, 200, 0.0)
    assert FEW.pack_bytes <= backlog.filed < 3000
    assert backlog.due(1.0) == [6], "it alone is worth a pack"
    for stream in range(7, 12):
        for _ in range(2):
            backlog.add(stream, 200, 0.0)
    assert backlog.filed >= 3000
    assert len(backlog.due(1.0)) == 12


def test_what_is_much_does_not_wait_for_a_look() -> None:
    backlog = CarriedBacklog(LIMITS)
    assert not backlog.is_much(1)
    for _ in range(4):
        backlog.add(1, 10, 0.0)
    assert not backlog.is_much(1)
    backlog.add(1, 10, 0.0)
    assert backlog.is_much(1), "by entries"
    backlog.add(2, 399, 0.0)
    backlog.add(2, 10, 0.0)
    assert not backlog.is_much(2)
    backlog.add(2, 1, 0.0)
    assert backlog.is_much(2), "half of what a stream may carry"
    for stream in range(3, 7):
        backlog.add(stream, 399, 0.0)
    assert not backlog.is_much(6), "what cannot be packed yet"
    for stream in range(3, 7):
        backlog.add(stream, 399, 0.0)
    assert backlog.is_much(6), "what the domain carries"


def test_a_look_says_what_of_it_can_be_packed() -> None:
    backlog = CarriedBacklog(LIMITS)
    backlog.recount(1, 150, 2, 0.0, 100)
    assert (backlog.size, backlog.filed) == (150, 50)
    backlog.looking_at(1, 1.0)
    backlog.add(1, 10, 1.0)
    assert (backlog.size, backlog.filed) == (160, 150), "an append files the head"
    backlog.recount(1, 150, 2, 2.0, 100)
    assert (backlog.size, backlog.filed) == (160, 150), "the look has missed it"
    backlog.recount(1, 160, 3, 3.0)
    assert (backlog.size, backlog.filed) == (160, 160), "it was sealed"
    backlog.recount(1, 0, 0, 4.0)
    assert (backlog.size, backlog.filed) == (0, 0)


def test_a_look_at_a_stream_sets_the_backlog_right() -> None:
    backlog = CarriedBacklog(LIMITS)
    backlog.add(1, 100, 5.0)
    backlog.add(1, 100, 6.0)
    backlog.recount(1, 150, 2, 50.0)
    assert (backlog.size, backlog.of(1), backlog.oldest()) == (150, 150, 5.0)
    backlog.recount(1, 50, 1, 50.0)
    assert (backlog.size, backlog.oldest()) == (50, 50.0), "what is left came after what has gone"
    backlog.recount(2, 30, 1, 51.0)
    assert (backlog.size, sorted(backlog)) == (80, [1, 2])
    backlog.recount(1, 0, 0, 52.0)
    backlog.recount(2, 0, 0, 52.0)
    assert (backlog.size, backlog.oldest(), list(backlog)) == (0, None, [])


def test_an_operator_may_ask_for_less_or_more() -> None:
    small = ETCD.within(2048, 100_000)
    assert (small.write_bytes, small.chunk_bytes) == (2048, 2048)
    assert (small.backlog, small.stream_backlog, small.pack_bytes) == (100_000, 100_000, 50_000)
    assert ETCD.within(None, None) == ETCD
    large = ETCD.within(256 << 10, None)
    assert (large.write_bytes, large.chunk_bytes) == (256 << 10, ETCD.chunk_bytes)


@pytest.mark.parametrize("engine", BY_ENGINE)
def test_what_is_packed_leaves_room_below_the_bound(engine: str) -> None:
    limits = BY_ENGINE[engine]
    assert limits.pack_bytes <= limits.backlog // 2
    assert limits.chunk_bytes <= limits.write_bytes <= limits.stream_backlog // 8


def test_an_entry_costs_more_than_its_batches() -> None:
    """A record of ten bytes is a batch of 78, and its entry takes four times as much beside it."""
    limits = replace(LIMITS, entry_bytes=300)
    backlog = CarriedBacklog(limits)
    policy = CarryPolicy(limits, backlog)
    backlog.add(1, 78, 0.0)
    assert (backlog.of(1), backlog.size) == (378, 378)
    assert policy.refusal(0.0, 1, 0, 0, 78) is None
    backlog.add(1, 78, 0.0)
    assert policy.refusal(0.0, 1, 0, 0, 78) is LaneSwitch.STREAM_BACKLOG
    backlog.recount(1, 78, 1, 0.0)
    assert (backlog.of(1), backlog.size) == (378, 378)
    backlog.recount(1, 0, 0, 0.0)
    assert backlog.size == 0


def test_a_stream_has_so_many_entries_however_small_they_are() -> None:
    limits = replace(LIMITS, stream_entries=3)
    backlog = CarriedBacklog(limits)
    policy = CarryPolicy(limits, backlog)
    for _ in range(3):
        assert policy.refusal(0.0, 1, 0, 0, 1) is None
        backlog.add(1, 1, 0.0)
    assert policy.refusal(0.0, 1, 0, 0, 1) is LaneSwitch.STREAM_BACKLOG
    assert policy.refusal(0.0, 2, 0, 0, 1) is None
