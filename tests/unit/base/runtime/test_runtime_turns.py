"""Work on the event loop is bounded per turn, and a steady load of small work never waits."""

from __future__ import annotations

import asyncio

from dray.base.runtime import SystemRuntime, Turns


async def test_each_turn_there_is_as_much_again() -> None:
    turns = Turns(100)
    for _ in range(10):
        turns.pay(60)
        assert turns.left > 0, "what earlier turns did is not counted"
        await asyncio.sleep(0)


async def test_within_one_turn_it_is_used_up_and_waited_for() -> None:
    turns, runtime = Turns(100), SystemRuntime()
    turns.pay(60)
    turns.pay(60)
    assert turns.left <= 0
    await turns.wait(runtime)
    assert turns.left == 100
    runtime.close()
