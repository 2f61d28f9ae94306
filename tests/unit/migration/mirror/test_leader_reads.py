"""Which reads of a leader are under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import cast

import pytest
from tests.unit.migration.mirror.mirror_harness import MirrorWorld

from dray.kafka.client.cluster import Address
from dray.migration.live.leader_reads import Answers, LeaderReads, MirrorLimits, MirrorMemory
from dray.migration.source.mirror import MirrorPlace, MirrorReader

LEADER: Address = ("a", 9092)
LIMITS = MirrorLimits()


class HeldReader:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[int, MirrorPlace], asyncio.Future[Answers]]] = []
        self.sizes: list[int] = []
        self.waits: list[bool] = []

    def by_leader(self, partitions: Mapping[int, MirrorPlace]) -> dict[Address, dict[int, MirrorPlace]]:
        return {LEADER: dict(partitions)}

    async def read_each(
        self, leader: Address, places: Mapping[int, MirrorPlace], most_bytes: int, *, waits: bool = False
    ) -> Answers:
        assert leader == LEADER
        self.waits.append(waits)
        self.sizes.append(most_bytes)
        answer: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self.asked.append((dict(places), answer))
        return await answer


class Reads(LeaderReads):
    def __init__(self) -> None:
        self.reader = HeldReader()
        self.ends: dict[int, int] = {}
        self.memory = MirrorMemory(1)
        super().__init__(
            cast(MirrorReader, self.reader),
            MirrorWorld().runtime,
            LEADER,
            lambda each, offset: offset < self.ends.get(each, 0),
            LIMITS,
            self.memory,
        )

    async def partitions_asked(self) -> list[list[int]]:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return [sorted(places) for places, answer in self.reader.asked if not answer.done()]


@pytest.fixture
async def reads() -> AsyncIterator[Reads]:
    made = Reads()
    yield made
    await made.stop()


def places(*offsets: int) -> dict[int, MirrorPlace]:
    return {partition: MirrorPlace(offset) for partition, offset in enumerate(offsets)}


@pytest.mark.parametrize("turns", range(4))
async def test_a_read_that_is_stopped_gives_its_room_back(reads: Reads, turns: int) -> None:
    """Also one that has not begun."""
    reads.ends = {0: 9, 1: 9}
    reads.read_ahead(places(5, 5))
    assert reads.memory.reserved == 2 * LIMITS.small_answer_bytes
    for _ in range(turns):
        await asyncio.sleep(0)
    await reads.stop()
    assert reads.memory.reserved == 0


async def test_one_read_of_all_where_nothing_is_known_to_come(reads: Reads) -> None:
    reads.read_ahead(places(5, 5, 5))
    assert await reads.partitions_asked() == []
    waiting = asyncio.ensure_future(reads.next(places(5, 5, 5)))
    assert await reads.partitions_asked() == [[0, 1, 2]]
    assert reads.reader.waits == [True], "with those of other topics"
    reads.reader.asked[0][1].set_result({})
    assert await waiting == (places(5, 5, 5), {})


async def test_two_reads_of_different_partitions_while_both_have_more(reads: Reads) -> None:
    reads.ends = {0: 100, 1: 100, 3: 100}
    at = places(5, 5, 100, 5)
    waiting = asyncio.ensure_future(reads.next(at))
    assert await reads.partitions_asked() == [[0, 2, 3], [1]]
    assert reads.reader.waits == [False, False], "what is there waits for no other topic"
    reads.reader.asked[0][1].set_result({})
    await waiting
    assert await reads.partitions_asked() == [[1]]
    at.update({0: MirrorPlace(50), 3: MirrorPlace(60)})
    reads.read_ahead(at)
    reads.read_ahead(at)
    assert await reads.partitions_asked() == [[1], [0, 2, 3]]
    assert reads.reader.asked[-1][0] == {0: MirrorPlace(50), 2: MirrorPlace(100), 3: MirrorPlace(60)}


async def test_no_second_read_that_would_wait_for_records(reads: Reads) -> None:
    """The leader would answer it first, and only then what there is."""
    reads.ends = {0: 100, 1: 10}
    waiting = asyncio.ensure_future(reads.next(places(5, 5)))
    assert await reads.partitions_asked() == [[0], [1]]
    reads.reader.asked[1][1].set_result({})
    await waiting
    reads.read_ahead(places(5, 10))
    waiting = asyncio.ensure_future(reads.next(places(5, 10)))
    assert await reads.partitions_asked() == [[0]]
    reads.reader.asked[0][1].set_result({})
    await waiting
    reads.read_ahead(places(50, 10))
    assert await reads.partitions_asked() == [[0, 1]]


async def test_a_failure_is_raised_and_what_is_under_way_is_ended(reads: Reads) -> None:
    reads.ends = {0: 100, 1: 100}
    waiting = asyncio.ensure_future(reads.next(places(5, 5)))
    assert await reads.partitions_asked() == [[0], [1]]
    reads.reader.asked[0][1].set_exception(ValueError("gone"))
    with pytest.raises(ValueError, match="gone"):
        await waiting
    await reads.stop()
    assert reads.reader.asked[1][1].cancelled()


async def test_a_place_for_large_answers_is_kept_until_the_last_of_them_is_taken(reads: Reads) -> None:
    reads.ends = {0: 9}
    reads.read_ahead(places(1, 1))
    await reads.partitions_asked()
    assert reads.reader.sizes == [LIMITS.small_answer_bytes], "what came in a moment is mostly little"
    reads.reader.asked.pop(0)[1].set_result({})
    await reads.next({})
    reads.reader.sizes.clear()
    reads.read_ahead(places(5, 5))
    await reads.partitions_asked()
    assert reads.reader.sizes == [LIMITS.answer_bytes]
    reads.ends = {}
    reads.rest(places(9, 9))
    assert not reads.memory.take(), "it is under way"
    reads.reader.asked[0][1].set_result({})
    await reads.next(places(9, 9))
    reads.rest(places(9, 9))
    assert reads.memory.take()
    reads.ends = {0: 20}
    reads.read_ahead(places(9, 9))
    await reads.partitions_asked()
    assert reads.reader.sizes[1:] == [LIMITS.small_answer_bytes], "another leader has the place"


def test_what_a_leader_may_hold_is_what_the_setting_says() -> None:
    assert LIMITS.held_bytes == 144 << 20
    memory = MirrorMemory.of(300 << 20, LIMITS)
    assert [memory.take() for _ in range(2)] == [True, False]
    assert memory.small_bytes == 156 << 20
    assert MirrorMemory.of(0, LIMITS).small_bytes == 64 << 20


async def test_room_for_small_answers_is_had_in_turn() -> None:
    memory = MirrorMemory(0, 100)
    assert memory.reserve_now(60)
    assert not memory.reserve_now(50)
    order: list[int] = []

    async def reserve(size: int) -> None:
        await memory.reserve(size)
        order.append(size)

    waiting = [asyncio.ensure_future(reserve(size)) for size in (50, 10, 20)]
    await asyncio.sleep(0)
    assert not memory.reserve_now(10), "others come first"
    waiting[1].cancel()
    await asyncio.sleep(0)
    memory.resize(60, 5)
    await asyncio.gather(waiting[0], waiting[2])
    assert order == [50, 20]
    assert memory.reserved == 75
    memory.release(75)
    assert memory.reserved == 0


async def test_an_answer_larger_than_all_the_room_comes_alone() -> None:
    memory = MirrorMemory(0, 100)
    assert memory.reserve_now(30)
    waiting = asyncio.ensure_future(memory.reserve(500))
    await asyncio.sleep(0)
    assert not waiting.done()
    memory.release(30)
    await waiting
    assert not memory.reserve_now(1)
    memory.release(500)
    assert memory.reserve_now(100)


async def test_room_that_came_too_late_is_not_lost() -> None:
    memory = MirrorMemory(0, 100)
    assert memory.reserve_now(100)
    waiting = asyncio.ensure_future(memory.reserve(40))
    await asyncio.sleep(0)
    memory.release(100)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert memory.reserved == 0
