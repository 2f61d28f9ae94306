"""One barrier in flight per domain serves all who asked before it was sent."""

from __future__ import annotations

import asyncio
import gc

import pytest
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.log.harness import World, soon

from dray.log.stream_store import Barriers
from dray.metadata.contract import Unavailable


@pytest.fixture
def store(world: World) -> ScriptedStore:
    return ScriptedStore(world.runtime, world.state)


async def test_who_asks_together_is_served_together(store: ScriptedStore) -> None:
    barriers = Barriers(store.barrier)
    await asyncio.gather(*[barriers.wait(0) for _ in range(10)])
    assert len(store.barriers) == 1


async def test_one_that_is_on_its_way_is_too_early_for_who_comes_later(store: ScriptedStore) -> None:
    barriers = Barriers(store.barrier)
    held = store.hold("barrier", "0")
    first = await soon(barriers.wait(0))
    await held.reached()
    later = [await soon(barriers.wait(0)) for _ in range(5)]
    assert len(store.barriers) == 1, "one in flight"
    held.release()
    await first
    assert not any(waiting.done() for waiting in later)
    await asyncio.gather(*later)
    assert len(store.barriers) == 2, "and one for all who came while it was"


async def test_domains_do_not_wait_for_each_other(store: ScriptedStore) -> None:
    barriers = Barriers(store.barrier)
    held = store.hold("barrier", "0")
    slow = await soon(barriers.wait(0))
    await barriers.wait(1)
    held.release()
    await slow


async def test_a_failure_is_for_those_it_was_sent_for(store: ScriptedStore) -> None:
    barriers = Barriers(store.barrier)
    store.trap(Fate.REFUSE, "barrier")
    failed = await asyncio.gather(*[barriers.wait(0) for _ in range(3)], return_exceptions=True)
    assert [type(error) for error in failed] == [Unavailable] * 3
    await barriers.wait(0)


async def test_who_goes_away_takes_nothing_from_the_others(store: ScriptedStore) -> None:
    barriers = Barriers(store.barrier)
    held = store.hold("barrier")
    first, second = await soon(barriers.wait(0)), await soon(barriers.wait(0))
    third = await soon(barriers.wait(0))
    first.cancel()
    third.cancel()
    await asyncio.wait([first, third])
    held.release()
    await second


class SlowToFail(ScriptedStore):
    async def barrier(self, domain: int) -> None:
        await asyncio.sleep(1)
        raise Unavailable("after a while")


async def test_an_error_that_nobody_waits_for_is_no_news(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    barriers = Barriers(SlowToFail(world.runtime, world.state).barrier)
    alone = await soon(barriers.wait(0))
    alone.cancel()
    await asyncio.sleep(2)
    del alone
    gc.collect()  # when asyncio would complain
    assert not caplog.records
