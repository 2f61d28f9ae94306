"""Brokers that take the lowest id that is free: in the end each has one of its own, and all agree which.

A broker whose signs of life do not get through loses its id to one that starts then. It must take another,
or two brokers serve under one id for as long as both live, and clients that look for the one find the other.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dray.broker.cluster import Membership
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.conditions import ClusterConditions, Disaster, PlannedDisaster

if TYPE_CHECKING:
    from dray_simulation.cluster.broker import ClusterBroker
    from dray_simulation.cluster.world import ClusterWorld

_AGREED_WITHIN: Final = 30.0
_SILENCE: Final = 3.5  # longer than a session lives


def automatic_ids(seed: int) -> ClusterConditions:
    """The first broker is silenced, and while its id is free, the second one starts anew."""
    chosen = ClusterConditions.choose(seed)
    disasters = (
        PlannedDisaster(0.6, Disaster.SILENCE, 0, _SILENCE),
        *(PlannedDisaster(at, Disaster.CRASH, 1) for at in (2.5, 2.8, 3.1, 3.4)),
    )
    return replace(chosen, automatic_ids=True, disasters=disasters, seconds=6.0)


async def check_ids(world: ClusterWorld) -> None:
    """Once nothing goes wrong any more."""
    deadline = world.now() + _AGREED_WITHIN
    while (found := _disagreement(world)) is not None:
        if world.now() > deadline:
            raise Violation(found)
        await asyncio.sleep(0.5)


def _known_to(broker: ClusterBroker) -> dict[int, tuple[str, int]]:
    membership = None if broker.node is None else broker.node.parts.of(Membership)
    if membership is None:
        return {}
    return {each.broker_id: (each.host, each.port) for each in membership.brokers()}


def _disagreement(world: ClusterWorld) -> str | None:
    known = [_known_to(broker) for broker in world.brokers]
    addresses = {(broker.host, broker.port) for broker in world.brokers}
    for listed in known:
        if set(listed.values()) != addresses or listed != known[0]:
            return f"brokers do not agree who has which id: {known}"
    return None
