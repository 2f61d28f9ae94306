"""One simulated run of the log with compactors, from one seed."""

from __future__ import annotations

import asyncio

from tests.simulation.log.compactors import CompactedWorld, play_compactors, play_others
from tests.simulation.log.conditions import LogConditions
from tests.simulation.log.players import players
from tests.simulation.log.run import first_trouble, until_calm
from tests.simulation.log.world import Report

from dray_simulation.kernel.loop import run

SECONDS = 6.0


def simulate_compaction(
    seed: int, seconds: float = SECONDS, conditions: LogConditions | None = None
) -> Report:
    """Raises what it found; else says what it covered."""
    return run(_simulate(seed, seconds, conditions))


async def _simulate(seed: int, seconds: float, conditions: LogConditions | None) -> Report:
    world = CompactedWorld(seed, conditions)
    await world.start()
    cast = [*players(world), play_compactors(world), play_others(world)]
    tasks = [asyncio.ensure_future(player) for player in cast]
    try:
        await first_trouble(world, tasks, seconds)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await until_calm(world)
    finally:
        world.crash_all()
        await asyncio.sleep(1)  # until the last of their tasks is gone
    return world.report()
