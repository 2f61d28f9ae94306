"""One simulated run of the log, from one seed."""

from __future__ import annotations

import asyncio

from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.players import players
from tests.simulation.log.world import LogWorld, Report

from dray_simulation.kernel.loop import hear, run

SECONDS = 10.0


def simulate_log(seed: int, seconds: float = SECONDS, conditions: LogConditions | None = None) -> Report:
    """Raises what it found (`Violation`, or what a task of a broker died of); else says what it covered."""
    return run(_simulate(seed, seconds, conditions))


async def _simulate(seed: int, seconds: float, conditions: LogConditions | None) -> Report:
    world = LogWorld(seed, conditions)
    await world.start()
    tasks = [asyncio.ensure_future(player) for player in players(world)]
    try:
        await first_trouble(world, tasks, seconds)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await until_calm(world)
    finally:
        for broker in world.brokers:
            broker.crash()
        await asyncio.sleep(1)  # until the last of their tasks is gone
    return world.report()


async def first_trouble(world: LogWorld, tasks: list[asyncio.Task[None]], seconds: float) -> None:
    """Play until the time is over, or the world or a player complains."""
    playing: list[asyncio.Future[None]] = [world.violation, *tasks]
    for task in playing:
        task.add_done_callback(hear)
    deadline = asyncio.get_running_loop().time() + seconds
    while (left := deadline - asyncio.get_running_loop().time()) > 0:
        ended, _ = await asyncio.wait(playing, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        for task in playing:
            if task in ended:
                task.result()
        playing = [task for task in playing if task not in ended]


async def until_calm(world: LogWorld) -> None:
    calming = asyncio.ensure_future(world.calm_down())
    calming.add_done_callback(hear)
    await asyncio.wait([world.violation, calming], return_when=asyncio.FIRST_COMPLETED)
    if world.violation.done():
        calming.cancel()
        await asyncio.wait([calming])
        world.violation.result()
    await calming
