"""Turns of the event loop that take long are noticed, by processor time, with what ran in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from dray.base.runtime.turn_watch import TurnWatch


class Reports:
    def __init__(self) -> None:
        self.found: asyncio.Queue[tuple[float, list[str]]] = asyncio.Queue()

    def add(self, seconds: float, frames: list[str]) -> None:
        self.found.put_nowait((seconds, frames))


@pytest.fixture
async def reports() -> AsyncIterator[Reports]:
    reports = Reports()
    watch = TurnWatch(reports.add)
    watch.start()
    yield reports
    watch.stop()


def compute_for(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def stand_still_for(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_long_turn_is_reported_with_what_ran(reports: Reports) -> None:
    compute_for(0.3)
    seconds, frames = await asyncio.wait_for(reports.found.get(), 60)
    assert 0.1 < seconds < 0.6
    assert any("compute_for" in frame for frame in frames)
    assert all("/site-packages/" not in frame for frame in frames)


async def test_many_short_turns_are_not_reported(reports: Reports) -> None:
    """Only the long one that ends them is: by then those before it would have been."""
    for _ in range(100):
        compute_for(0.005)
        await asyncio.sleep(0)
    compute_for(0.35)
    seconds, _ = await asyncio.wait_for(reports.found.get(), 60)
    assert seconds > 0.3
    assert reports.found.empty()


async def test_a_turn_that_waits_takes_no_processor_time(reports: Reports) -> None:
    """As on a machine that is busy with others: the loop stands still, and it is no fault of ours."""
    stand_still_for(0.3)
    compute_for(0.35)
    seconds, _ = await asyncio.wait_for(reports.found.get(), 60)
    assert seconds < 0.6
    assert reports.found.empty()


async def test_a_watch_that_never_started_can_be_stopped() -> None:
    TurnWatch(lambda _seconds, _frames: None).stop()
