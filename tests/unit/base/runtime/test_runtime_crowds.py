"""Crowds: some at a time, in their order, whatever becomes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from dray.base.runtime import (
    AT_A_TIME,
    FEW,
    FairWork,
    TurnShare,
    current_share,
    gather_some,
    map_some,
    side_by_side,
)


async def test_some_at_a_time_and_in_their_order() -> None:
    running = most = 0

    async def one(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    count = 3 * AT_A_TIME + 7
    assert await gather_some(one(number) for number in range(count)) == list(range(count))
    assert most == AT_A_TIME
    assert await gather_some(one(number) for number in range(0)) == []
    most = 0
    assert await gather_some((one(number) for number in range(7)), 3) == list(range(7))
    assert most == 3


async def test_what_does_not_wait_is_done_some_in_a_turn() -> None:
    done: list[int] = []
    in_a_turn = []

    def one(number: int) -> int:
        done.append(number)
        return -number

    count = 3 * AT_A_TIME + 7
    work = asyncio.ensure_future(map_some(one, range(count)))
    while not work.done():
        before = len(done)
        await asyncio.sleep(0)
        in_a_turn.append(len(done) - before)
    assert work.result() == [-number for number in range(count)]
    assert max(in_a_turn) == AT_A_TIME
    assert await map_some(one, ()) == []


async def _fails_at(number: int, bad: int) -> int:
    if number == bad:
        raise ValueError(number)
    return number


async def test_the_first_failure_ends_it() -> None:
    begun = 0

    def work() -> Iterator[Coroutine[Any, Any, int]]:
        nonlocal begun
        for number in range(9):
            begun += 1
            yield _fails_at(number, bad=2)

    with pytest.raises(ValueError, match="2"):
        await gather_some(work(), 3)
    assert begun == 3


async def test_failures_are_results_where_that_is_asked() -> None:
    found = await gather_some((_fails_at(number, bad=2) for number in range(6)), 2, return_exceptions=True)
    assert [each for each in found if not isinstance(each, ValueError)] == [0, 1, 3, 4, 5]
    assert isinstance(found[2], ValueError)


async def test_what_goes_on_side_by_side_comes_to_its_end_before_a_failure_is_told() -> None:
    ended: list[int] = []

    async def one(number: int) -> int:
        if number == 1:
            raise ValueError(number)
        await asyncio.sleep(0)
        ended.append(number)
        return number

    with pytest.raises(ValueError, match="1"):
        await side_by_side(one(number) for number in range(4))
    assert ended == [0, 2, 3]
    assert await side_by_side(one(number) for number in (5, 4)) == [5, 4]


async def test_crowds_of_many_requests_share_the_pieces_of_a_turn() -> None:
    """A hundred requests of thousands of names each had 256 of them looked up in every turn: together they
    held the loop for a quarter of a second at a time."""
    work, begun = FairWork(2 * AT_A_TIME), 0

    async def one() -> None:
        nonlocal begun
        begun += 1

    async def request(owner: str, size: int) -> None:
        current_share.set(TurnShare(work, owner))
        await gather_some(one() for _ in range(size))

    flood = [asyncio.ensure_future(request("flood", 4 * AT_A_TIME)) for _ in range(20)]
    other = asyncio.ensure_future(request("other", AT_A_TIME))
    few = asyncio.ensure_future(request("few", FEW))
    a_turn = []
    at: dict[asyncio.Future[Any], int] = {}
    while not all(each.done() for each in flood):
        before = begun
        await asyncio.sleep(0)
        a_turn.append(begun - before)
        for task in (other, few):
            if task.done():
                at.setdefault(task, len(a_turn))
    assert begun == 81 * AT_A_TIME + FEW
    # A turn of the test is one of the loop, in which pieces of two turns of work may begin.
    assert max(a_turn) <= 4 * AT_A_TIME + FEW
    assert at[few] <= 4, "few pieces wait for nobody"
    assert at[other] <= 6, "addresses take turns"
