"""What threads may hold at once: bytes, first come, first served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dray.base.runtime import Allowance, SystemRuntime


class HeldRuntime(SystemRuntime):
    """Threads that end when they are told to."""

    def __init__(self) -> None:
        super().__init__(threads=1)
        self.running: dict[str, asyncio.Future[None]] = {}

    async def in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        name = arguments[0]
        self.running[name] = asyncio.get_running_loop().create_future()
        await asyncio.shield(self.running[name])
        del self.running[name]
        return function(*arguments)

    def end(self, name: str) -> None:
        self.running[name].set_result(None)


@pytest.fixture
async def runtime() -> AsyncIterator[HeldRuntime]:
    runtime = HeldRuntime()
    yield runtime
    runtime.close()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def begin(allowance: Allowance, runtime: HeldRuntime, name: str, size: int) -> asyncio.Future[str]:
    return asyncio.ensure_future(allowance.in_thread(runtime, size, str.upper, name))


async def test_who_does_not_fit_waits_and_is_not_overtaken(runtime: HeldRuntime) -> None:
    allowance = Allowance(100)
    first, large, small = (
        begin(allowance, runtime, name, size) for name, size in (("first", 60), ("large", 70), ("small", 10))
    )
    await settle()
    assert list(runtime.running) == ["first"], "the small one would fit, and came later"
    runtime.end("first")
    await settle()
    assert await first == "FIRST"
    assert (list(runtime.running), allowance.used) == (["large", "small"], 80)
    runtime.end("large")
    runtime.end("small")
    assert [await large, await small] == ["LARGE", "SMALL"]
    await settle()
    assert allowance.used == 0


async def test_more_than_there_is_gets_all_of_it(runtime: HeldRuntime) -> None:
    allowance = Allowance(100)
    huge, small = begin(allowance, runtime, "huge", 1 << 40), begin(allowance, runtime, "small", 1)
    await settle()
    assert (list(runtime.running), allowance.used) == (["huge"], 100)
    runtime.end("huge")
    await huge
    await settle()
    runtime.end("small")
    await small


async def test_a_thread_whose_caller_left_still_counts(runtime: HeldRuntime) -> None:
    allowance = Allowance(100)
    left, next_one = begin(allowance, runtime, "left", 100), begin(allowance, runtime, "next", 100)
    await settle()
    left.cancel()
    await settle()
    assert list(runtime.running) == ["left"]
    runtime.end("left")
    await settle()
    assert list(runtime.running) == ["next"]
    runtime.end("next")
    assert await next_one == "NEXT"


async def test_who_leaves_while_it_waits_makes_room(runtime: HeldRuntime) -> None:
    allowance = Allowance(100)
    first = begin(allowance, runtime, "first", 90)
    waiting, small = begin(allowance, runtime, "waiting", 50), begin(allowance, runtime, "small", 10)
    await settle()
    waiting.cancel()
    await settle()
    assert list(runtime.running) == ["first", "small"]
    runtime.end("first")
    runtime.end("small")
    await asyncio.gather(first, small)
    await settle()
    assert allowance.used == 0


async def test_who_leaves_as_its_turn_comes_gives_it_back(runtime: HeldRuntime) -> None:
    allowance = Allowance(100)
    allowance.used = 100
    second = begin(allowance, runtime, "second", 70)
    await settle()
    allowance._give_back(100)
    assert allowance.used == 70, "granted, and not begun"
    second.cancel()
    await settle()
    assert not runtime.running
    assert allowance.used == 0


async def test_an_error_is_the_callers(runtime: HeldRuntime) -> None:
    allowance = Allowance(100)
    failing = asyncio.ensure_future(allowance.in_thread(runtime, 1, int, "none"))
    await settle()
    runtime.end("none")
    with pytest.raises(ValueError, match="invalid literal"):
        await failing
    await settle()
    assert allowance.used == 0
