"""Carried writes that wait for producers which always come back at once: the policy, and the lane."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from statistics import mean

import pytest
from tests.services.room_settings import EMBEDDED
from tests.unit.log.harness import QUICK, World, append, batch_bytes, start_append

from dray.log import Log, LogObserver
from dray.log.append.carry import (
    FEWEST_RETURNS,
    LEAST_SECONDS,
    MOST_RETURNS,
    MOST_SECONDS,
    CarryLimits,
    ReturningProducers,
)
from dray.metadata.contract import Operation, Outcome

WRITE_SECONDS = 0.0006


class Watched:
    """The producers, and the time."""

    def __init__(self) -> None:
        self.returning = ReturningProducers()
        self.now = 100.0

    def ended(self, answered: int, waiting: int = 0, taken: float = 0.0001) -> None:
        self.returning.ended(self.now, taken, answered, waiting)

    def came(self, batches: int, after: float = 0.0001) -> None:
        self.now += after
        for _ in range(batches):
            self.returning.came(self.now)

    def returns(self, times: int = FEWEST_RETURNS) -> None:
        for _ in range(times):
            self.ended(2)
            self.came(2)

    @property
    def waits(self) -> bool:
        return self.returning.are_waited_for(self.now)


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_wait_needs_producers_that_came_back_again_and_again(watched: Watched) -> None:
    watched.returns(FEWEST_RETURNS - 1)
    watched.ended(2)
    assert not watched.waits
    watched.came(2)
    watched.ended(2)
    assert watched.waits
    watched.came(1)
    assert watched.waits
    watched.came(1)
    assert not watched.waits
    assert watched.returning.is_complete


def test_as_many_are_expected_as_were_answered_beside_those_that_wait(watched: Watched) -> None:
    watched.returns()
    watched.ended(1, waiting=4)
    assert watched.waits
    watched.came(1)
    assert not watched.waits, "five are there again"


def test_a_lone_producer_is_not_waited_for(watched: Watched) -> None:
    watched.returns()
    watched.ended(1)
    assert not watched.waits
    watched.came(1)
    watched.ended(2)
    assert not watched.waits, "what was learned before says nothing of those that came since"


def test_producers_that_are_late_now_and_then_are_not_waited_for(watched: Watched) -> None:
    for _ in range(100):
        watched.returns(3)
        watched.ended(2)
        assert not watched.waits
        watched.came(1)
        watched.came(1, after=LEAST_SECONDS)
        watched.came(1)


def test_a_producer_that_is_seldom_late_does_not_end_the_waits(watched: Watched) -> None:
    watched.returns(100)
    for _ in range(100):
        watched.ended(2)
        watched.came(1)
        watched.came(1, after=LEAST_SECONDS)
        watched.ended(2)
        assert watched.waits
        watched.came(2)
        watched.returns(3)


def test_nothing_is_waited_for_once_it_is_late(watched: Watched) -> None:
    watched.returns()
    watched.ended(2)
    assert watched.waits
    watched.now += 2 * LEAST_SECONDS
    assert not watched.waits


def test_at_once_is_within_two_writes_and_bounded(watched: Watched) -> None:
    for taken, at_once in [(0.0, LEAST_SECONDS), (0.001, 0.002), (1.0, MOST_SECONDS)]:
        watched.ended(2, taken=taken)
        assert watched.returning.until - watched.now == pytest.approx(at_once)
        watched.came(2)


def test_producers_that_take_longer_than_a_write_are_not_waited_for(watched: Watched) -> None:
    for _ in range(50):
        watched.ended(2)
        assert not watched.waits
        watched.came(1)
        watched.ended(1, waiting=1)
        assert not watched.waits
        watched.came(1)


def test_a_wait_in_vain_makes_the_next_one_dearer_and_a_reward_cheaper(watched: Watched) -> None:
    watched.returns()
    watched.ended(2)
    assert watched.waits
    watched.returning.stayed_away()
    assert watched.returning.is_complete
    watched.returns(2 * FEWEST_RETURNS - 1)
    watched.ended(2)
    assert not watched.waits
    watched.came(2)
    for _ in range(100):
        watched.ended(2)
        assert watched.waits
        watched.came(2)
    for _ in range(2):
        watched.ended(2)
        assert watched.waits, "one in vain is forgiven where many were rewarded"
        watched.returning.stayed_away()
    watched.ended(2)
    assert not watched.waits
    watched.came(2)
    watched.returns(2 * FEWEST_RETURNS - 2)
    watched.ended(2)
    assert not watched.waits
    watched.came(2)
    watched.ended(2)
    assert watched.waits


def test_a_batch_that_comes_too_late_for_a_wait_is_no_reward(watched: Watched) -> None:
    watched.returns()
    watched.ended(2)
    assert watched.waits
    watched.came(1, after=2 * LEAST_SECONDS)
    watched.returns(2 * FEWEST_RETURNS - 1)
    watched.ended(2)
    assert not watched.waits


def test_after_any_number_of_waits_in_vain_there_is_another_one(watched: Watched) -> None:
    for _ in range(20):
        watched.returns(MOST_RETURNS)
        watched.ended(2)
        assert watched.waits
        for _ in range(3):
            if watched.waits:
                watched.returning.stayed_away()
                watched.ended(2)
        assert not watched.waits
        watched.came(2)
    watched.ended(1)
    watched.returns(MOST_RETURNS - 1)
    watched.ended(2)
    assert not watched.waits


# --- in the lane


class Writes(LogObserver):
    def __init__(self) -> None:
        self.batches: list[int] = []

    def carried(self, batches: int, size: int) -> None:
        self.batches.append(batches)


@pytest.fixture
async def world() -> World:
    return World(settings=replace(QUICK, carry=EMBEDDED, pack_look_seconds=1e9))


def started(world: World, observer: LogObserver, limits: CarryLimits = EMBEDDED) -> Log:
    """A log whose writes take as long as those of SQLite."""
    log = world.log(observer, carry=limits)
    write = world.store.write

    async def slow(domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        await asyncio.sleep(WRITE_SECONDS)
        return await write(domain, operations)

    world.store.write = slow  # type: ignore[method-assign]
    log.carry(True)
    return log


async def produce(log: Log, stream: int, times: int, think: Callable[[], float]) -> list[float]:
    """Appends of a producer that waits for each answer: how long each took."""
    taken: list[float] = []
    loop = asyncio.get_running_loop()
    for _ in range(times):
        await asyncio.sleep(think())
        began = loop.time()
        await append(log, stream, batch_bytes([b"x"]))
        taken.append(loop.time() - began)
    return taken


def back_after(seconds: float) -> Callable[[], float]:
    return lambda: seconds


async def test_a_window_of_requests_is_one_write(world: World) -> None:
    noticed = Writes()
    log = started(world, noticed)
    streams = await log.create_streams(5)
    # A client with five requests in flight sends them one after the other once it is answered.
    window = [produce(log, each, 100, back_after(0.0001 * (1 + each % 5))) for each in streams]
    taken = await asyncio.gather(*window)
    assert noticed.batches[:2] == [1, 4], "nothing is known yet"
    assert noticed.batches[30:-2] == [5] * (len(noticed.batches) - 32)
    assert max([each for of_one in taken for each in of_one[50:-2]]) < 2 * WRITE_SECONDS
    await log.stop()


async def test_other_engines_do_not_wait(world: World) -> None:
    noticed = Writes()
    log = started(world, noticed, replace(EMBEDDED, across_domains=False))
    streams = await log.create_streams(5)
    window = [produce(log, each, 40, back_after(0.0001 * (1 + each % 5))) for each in streams]
    await asyncio.gather(*window)
    assert 1 in noticed.batches[30:-8]
    await log.stop()


async def test_a_producer_that_stays_away_is_waited_for_once_and_not_for_long(world: World) -> None:
    noticed = Writes()
    log = started(world, noticed)
    [mine, other] = await log.create_streams(2)
    both = [produce(log, each, 20, back_after(0.0001)) for each in (mine, other)]
    await asyncio.gather(*both)
    assert noticed.batches[-2:] == [2, 2]
    taken = await produce(log, mine, 20, back_after(0.0001))
    assert WRITE_SECONDS < max(taken) <= MOST_SECONDS + 0.001 + WRITE_SECONDS
    assert [each for each in taken if each > 1.01 * WRITE_SECONDS] == [max(taken)]
    await log.stop()


async def test_a_write_that_is_half_full_waits_for_nothing(world: World) -> None:
    """What it waited for might not fit, and would go in an object."""
    noticed = Writes()
    size = len(batch_bytes([b"x"]))
    log = started(world, noticed, replace(EMBEDDED, write_bytes=2 * size))  # and twice that, with two domains
    streams = await log.create_streams(4)
    window = [produce(log, each, 60, back_after(0.0001 * (1 + each % 4))) for each in streams]
    await asyncio.gather(*window)
    assert 4 not in noticed.batches, "three are more than half"
    assert not world.bucket.objects
    await log.stop()


async def test_a_stop_does_not_wait_for_more(world: World) -> None:
    noticed = Writes()
    log = started(world, noticed)
    [mine, other] = await log.create_streams(2)
    await asyncio.gather(*[produce(log, each, 20, back_after(0.0001)) for each in (mine, other)])
    began = asyncio.get_running_loop().time()
    last = start_append(log, mine, batch_bytes([b"last"]))
    await log.stop()
    assert (await last).base_offset == 20
    assert asyncio.get_running_loop().time() - began < 2 * WRITE_SECONDS


@pytest.mark.parametrize("producers", [2, 8])
@pytest.mark.parametrize("think", [0.0003, 0.001, 0.002, 0.005])
async def test_producers_that_think_are_not_slowed_down(
    world: World, monkeypatch: pytest.MonkeyPatch, producers: int, think: float
) -> None:
    async def mean_of_all() -> float:
        log = started(world, LogObserver())
        random = Random(7)
        streams = await log.create_streams(producers)

        def thought() -> float:
            return 0.0001 + random.expovariate(1 / think)

        taken = await asyncio.gather(*[produce(log, each, 200, thought) for each in streams])
        await log.stop()
        return mean([each for of_one in taken for each in of_one])

    with_waits = await mean_of_all()
    with monkeypatch.context() as patch:
        patch.setattr(ReturningProducers, "are_waited_for", lambda *_: False)
        without = await mean_of_all()
    assert with_waits <= 1.02 * without
