"""Tasks in the background: they live through whatever they meet, and are missed when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from dray.base.runtime import keep_running, run_once
from dray.base.runtime.background import QUIET_SECONDS, background_name
from dray_simulation.kernel.runtime import SimulatedRuntime


@pytest.fixture
async def runtime() -> SimulatedRuntime:
    return SimulatedRuntime(1)


async def for_ever() -> None:
    await asyncio.get_running_loop().create_future()


def failing(times: int, error: BaseException, begun: list[float]) -> Callable[[], Awaitable[None]]:
    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) <= times:
            raise error
        await for_ever()

    return work


async def test_a_task_lives_through_whatever_it_raises(runtime: SimulatedRuntime) -> None:
    begun: list[float] = []
    task = keep_running(runtime, "look around", failing(3, ValueError("not foreseen"), begun))
    await asyncio.sleep(60)
    assert len(begun) == 4
    assert not task.is_over
    assert runtime.background.failures == {"look around": 3}
    assert runtime.background.ended() == {}
    await task.stop()
    assert task.is_over
    assert runtime.background.ended() == {}, "it was told to"


async def test_pauses_grow_up_to_a_bound(runtime: SimulatedRuntime) -> None:
    begun: list[float] = []
    work = failing(100, ValueError(), begun)
    task = keep_running(runtime, "look around", work, pause=1.0, longest_pause=8.0)
    await asyncio.sleep(60)
    pauses = [after - before for before, after in pairwise(begun)]
    assert pauses[:6] == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]
    await task.stop()


async def test_what_went_well_for_long_is_tried_again_soon(runtime: SimulatedRuntime) -> None:
    begun: list[float] = []

    async def work() -> None:
        begun.append(runtime.monotonic())
        await asyncio.sleep(100.0)
        raise ValueError

    task = keep_running(runtime, "look around", work, pause=1.0, longest_pause=8.0)
    await asyncio.sleep(600)
    assert {after - before for before, after in pairwise(begun)} == {101.0}
    await task.stop()


async def test_a_call_that_was_cancelled_does_not_cancel_the_task(runtime: SimulatedRuntime) -> None:
    """As the stream of a client library is: it was not the task that was meant."""
    begun: list[float] = []
    task = keep_running(runtime, "look around", failing(1, asyncio.CancelledError(), begun))
    await asyncio.sleep(60)
    assert len(begun) == 2
    await task.stop()


@pytest.mark.parametrize("way", ["returned", "cancelled", "ended"])
async def test_a_task_that_ended_is_missed(runtime: SimulatedRuntime, way: str) -> None:
    class Ending(BaseException):
        pass

    async def work() -> None:
        if way == "cancelled":
            current = asyncio.current_task()
            assert current is not None
            current.cancel()
            await for_ever()
        if way == "ended":
            raise Ending("the end")

    with capture_logs() as lines:
        keep_running(runtime, "look around", work)
        await asyncio.sleep(1)
    [(name, why)] = runtime.background.ended().items()
    assert name == "look around"
    assert way in why or "the end" in why
    assert [line["task"] for line in lines] == ["look around"]
    again = keep_running(runtime, "look around", for_ever)
    assert runtime.background.ended() == {}, "another took its place"
    await again.stop()


async def test_lines_are_bounded_and_failures_are_counted(runtime: SimulatedRuntime) -> None:
    heard: list[str] = []
    runtime.background.subscribe(lambda name, _: heard.append(name))
    with capture_logs() as lines:
        for _ in range(100):
            runtime.background.report("an errand", ValueError("again"))
        runtime.background.report("another", ValueError("once"))
        await asyncio.sleep(QUIET_SECONDS)
        runtime.background.report("an errand", ValueError("later"))
    told = [(line["task"], line["failures"]) for line in lines]
    assert told == [("an errand", 1), ("another", 1), ("an errand", 100)]
    assert all(line["exc_info"] for line in lines)
    assert runtime.background.failures == {"an errand": 101, "another": 1}
    assert len(heard) == 102


async def test_what_an_errand_raises_is_reported(runtime: SimulatedRuntime) -> None:
    async def fail(what: str) -> None:
        assert background_name() == "an errand"
        raise RuntimeError(what)

    await run_once(runtime, "an errand", fail, "so")
    assert [str(error) for error in runtime.failures] == ["so"]
    assert background_name() is None, "what is left of it stays in its task"


async def test_an_errand_can_be_cancelled(runtime: SimulatedRuntime) -> None:
    errand = run_once(runtime, "an errand", for_ever)
    await asyncio.sleep(0)
    errand.cancel()
    await asyncio.wait([errand])
    assert errand.cancelled()
    assert runtime.background.failures == {}
