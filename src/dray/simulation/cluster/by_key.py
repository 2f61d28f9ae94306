"""Runs about compaction by key: little else happens, and compactors are many, hasty, and often killed.

Every run has a topic that is compacted by key. In others it is compacted a few times, here dozens of times,
so that clean points grow old, tombstones go, and cleaning rounds come to their end.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from dray.simulation.cluster.conditions import ClusterConditions, Disaster, PlannedDisaster, Role

_ROLES = (
    Role.COMPACTED_PRODUCER,
    Role.COMPACTED_PRODUCER,
    Role.COMPACTED_READER,
    Role.COMPACTED_READER,
    Role.POLICY_SWITCHER,
)
_KINDS = (Disaster.COMPACTOR_CRASH, Disaster.COMPACTOR_CRASH, Disaster.COMPACTOR_PAUSE, Disaster.CRASH)


def by_key(seed: int) -> ClusterConditions:
    chosen = ClusterConditions.choose(seed)
    random = Random(seed ^ 0xB14E)
    seconds = 15.0
    disasters = tuple(
        PlannedDisaster(
            at=random.uniform(0.3, seconds),
            what=random.choice(_KINDS),
            place=random.randrange(chosen.brokers),
            seconds=random.choice((0.1, 0.5, 1.0)),
        )
        for _ in range(6)
    )
    return replace(
        chosen,
        roles=_ROLES,
        compactors=random.choice((1, 2, 3)),
        seconds=seconds,
        pace=random.choice((0.1, 0.2)),
        disasters=tuple(sorted(disasters, key=lambda planned: planned.at)),
        clocks=(),
        weather=replace(chosen.weather, slowest=0.004, slowest_upload=0.01),
        compaction_interval=random.choice((0.1, 0.2)),
        fills_up=False,
    )
