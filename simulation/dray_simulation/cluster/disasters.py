"""The disasters of brokers: each one of the plan, at its time."""

from __future__ import annotations

import asyncio

from dray_simulation.cluster.conditions import Disaster, PlannedDisaster
from dray_simulation.cluster.world import ClusterWorld


async def play_disasters(world: ClusterWorld) -> None:
    begun = world.now()
    async with asyncio.TaskGroup() as group:
        for planned in world.conditions.disasters:
            await asyncio.sleep(begun + planned.at - world.now())
            group.create_task(_befall(world, planned))


async def _befall(world: ClusterWorld, planned: PlannedDisaster) -> None:
    broker = world.brokers[planned.place % len(world.brokers)]
    if planned.what in (Disaster.COMPACTOR_CRASH, Disaster.COMPACTOR_PAUSE):
        await _befall_compactor(world, planned)
        return
    if planned.what is Disaster.CUT:
        if not world.network.cut_some(world.random):
            return
    elif not broker.serving:
        return
    world.counts[f"! {planned.what.value}"] += 1
    world.trace(broker.name, planned.what.value, f"({planned.seconds} s)")
    match planned.what:
        case Disaster.CRASH:
            broker.kill()
            await asyncio.sleep(planned.seconds / 4)
            await broker.up()
        case Disaster.STOP:
            await broker.stop()
            await broker.up()
        case Disaster.PAUSE:
            broker.clock.suspend(world.now(), planned.seconds)
            broker.runtime.pause(planned.seconds)
        case Disaster.CLOCK_JUMP:
            broker.clock.jump(planned.seconds)
        case Disaster.HOST_PAUSE:
            broker.clock.stand_still(world.now(), planned.seconds, wall_too=False)
            broker.runtime.pause(planned.seconds)
        case Disaster.SILENCE:
            assert broker.store is not None
            broker.store.silence(planned.seconds)


async def _befall_compactor(world: ClusterWorld, planned: PlannedDisaster) -> None:
    if not world.compactors:
        return
    compactor = world.compactors[planned.place % len(world.compactors)]
    world.counts[f"! {planned.what.value}"] += 1
    world.trace(compactor.name, planned.what.value, f"({planned.seconds} s)")
    if planned.what is Disaster.COMPACTOR_PAUSE:
        compactor.runtime.pause(planned.seconds)
    else:
        compactor.kill()
        await asyncio.sleep(planned.seconds / 4)
        compactor.start()
