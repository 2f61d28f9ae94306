"""Places that are few, and turns at what is scarce: who takes many takes them from himself."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from itertools import pairwise

import pytest

from dray.base.runtime import FairTurns, FairWork, Places, owner_of


def test_one_who_takes_many_takes_them_from_himself() -> None:
    places: Places[str] = Places(4)
    assert [places.take("honest", "h", 0.0), places.take("flood", "f0", 1.0)] == [None, None]
    assert [places.take("flood", f"f{at}", 2.0) for at in range(1, 6)] == [None, None, "f0", "f1", "f2"]
    assert list(places) == ["h", "f3", "f4", "f5"]


def test_a_newcomer_takes_the_place_of_who_has_most_and_of_what_is_idle_longest() -> None:
    places: Places[str] = Places(4)
    for at, (owner, member) in enumerate([("few", "a"), ("many", "b"), ("many", "c"), ("many", "d")]):
        assert places.take(owner, member, float(at)) is None
    places.use("b", 9.0)
    assert places.take("new", "e", 10.0) == "c"


def test_where_nobody_has_more_than_one_the_idlest_goes() -> None:
    places: Places[str] = Places(3)
    for at, member in enumerate("abc"):
        places.take(member, member, float(at))
    places.use("a", 5.0)
    assert places.take("d", "d", 6.0) == "b"
    assert places.take("e", "e", 7.0) == "c"


def test_an_owner_has_a_bound_of_its_own() -> None:
    places: Places[int] = Places(100, most_each=2)
    assert [places.take("one", at, float(at)) for at in range(4)] == [None, None, 0, 1]
    assert places.count_of("one") == len(places) == 2


def test_what_is_new_is_safe_from_its_own_crowd_and_from_nobody_else() -> None:
    places: Places[str] = Places(3, safe_seconds=1.0)
    for member in "abc":
        assert places.take("crowd", member, 0.0) is None
    assert places.take("crowd", "d", 0.5) == "d", "a crowd gets done with what it began"
    assert places.take("other", "e", 0.5) == "c"
    assert places.take("crowd", "f", 1.5) == "a"


def test_who_left_has_no_place() -> None:
    places: Places[str] = Places(1)
    places.take("one", "a", 0.0)
    places.leave("a")
    places.leave("a")
    places.use("a", 1.0)
    assert (len(places), places.count_of("one"), "a" in places) == (0, 0, False)
    assert places.take("two", "b", 2.0) is None


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:db8:0:1::5", "2001:db8:0:1:ffff::9"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80::2"),
    ],
)
def test_one_owner_is_an_address_or_a_network(address: str, same: str) -> None:
    assert owner_of(address) == owner_of(same)
    assert owner_of(address) != owner_of("2001:db8:0:2::5")


async def test_turns_go_round_by_owner() -> None:
    """However many of one wait, another's is the next turn but one."""
    turns, order = FairTurns(1), []

    async def work(owner: str) -> None:
        async with turns.turn(owner):
            order.append(owner)
            await asyncio.sleep(0)

    flood = [asyncio.create_task(work("flood")) for _ in range(50)]
    await asyncio.sleep(0)
    assert turns.waiting_of("flood") == 49
    await asyncio.wait_for(asyncio.gather(work("honest"), work("honest"), *flood), 60)
    assert order[:6].count("honest") == 2
    assert (turns.running, turns.waiting) == (0, 0)


async def test_an_owner_has_as_many_turns_as_it_may() -> None:
    most, running = {"failing": 1}, Counter[str]()
    turns, seen = FairTurns(3, lambda owner: most.get(owner, 3)), []

    async def work(owner: str) -> None:
        async with turns.turn(owner):
            running[owner] += 1
            seen.append(dict(running))
            await asyncio.sleep(0.001)
            running[owner] -= 1

    await asyncio.wait_for(asyncio.gather(*(work(owner) for owner in ["failing", "good"] * 20)), 60)
    assert max(each.get("failing", 0) for each in seen) == 1
    assert max(each.get("good", 0) for each in seen) >= 2
    assert max(sum(each.values()) for each in seen) == 3


async def test_who_gives_up_waiting_takes_no_turn() -> None:
    turns = FairTurns(1)
    async with turns.turn("a"):
        waiting = [asyncio.create_task(_have(turns)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.sleep(0)
    # The second was granted a turn, and goes before it has it.
    waiting[1].cancel()
    await asyncio.wait_for(asyncio.wait(waiting), 60)
    assert [task.cancelled() for task in waiting] == [True, True, False]
    assert (turns.running, turns.waiting) == (0, 0)


async def _have(turns: FairTurns) -> None:
    async with turns.turn("b"):
        pass


async def test_work_of_a_turn_is_bounded_and_goes_round() -> None:
    work = FairWork(4)
    done: list[str] = []

    def do(what: str) -> None:
        work.pay(1)
        done.append(what)

    for number in range(100):
        work.put("flood", partial(do, f"flood {number}"))
    assert done == [f"flood {number}" for number in range(4)]
    work.put("probe", lambda: do("probe"))
    await asyncio.sleep(0)
    assert "probe" in done
    assert len(done) == 8
    for _ in range(30):
        await asyncio.sleep(0)
    assert len(done) == 101
    assert work.has_room


async def test_work_is_paid_for_by_what_it_costs_and_its_outcome_comes_when_there_is_room() -> None:
    work = FairWork(10)
    turns: list[int] = []

    async def dear(number: int) -> int:
        await work.go_on("a", 10)
        turns.append(number)
        return number

    def fails() -> None:
        raise ValueError("of no use")

    waiting = [asyncio.ensure_future(dear(number)) for number in range(5)]
    failing = asyncio.ensure_future(work.do("b", fails))
    seen = []
    for _ in range(20):
        await asyncio.sleep(0)
        seen.append(len(turns))
    assert all(after - before <= 1 for before, after in pairwise(seen)), "one in each turn"
    assert [task.result() for task in waiting] == turns == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="of no use"):
        await failing


async def test_who_no_longer_waits_for_work_has_none_done() -> None:
    work = FairWork(1)
    done: list[str] = []

    async def asks() -> None:
        work.pay(2)
        await work.do("a", lambda: done.append("a"))

    waiting = asyncio.ensure_future(asks())
    asyncio.get_running_loop().call_soon(waiting.cancel)
    await asyncio.wait([waiting])
    for _ in range(3):
        await asyncio.sleep(0)
    assert (done, work.has_room) == ([], True)


async def test_what_was_begun_goes_before_what_is_new() -> None:
    """Else all requests of a flood are begun, and in memory, before one is done."""
    work, begun, ended, most = FairWork(10), 0, 0, 0

    def begin() -> None:
        nonlocal begun, most
        work.pay(10)
        begun += 1
        most = max(most, begun - ended)

    async def request() -> None:
        nonlocal ended
        await work.do("a", begin)
        for _ in range(5):
            await work.go_on("a", 10)
        ended += 1

    await asyncio.wait_for(asyncio.gather(*(request() for _ in range(100))), 60)
    assert most <= 3
