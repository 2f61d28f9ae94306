"""Clusters at the limits of their engine, with errors that no code expects.

Three things that the ordinary weather does not hold. *Unexpected errors*: any call of a background task,
and any call of a compactor, may raise one; every task must live on, and the cluster settle.
A *poisoned* stream: whatever retention and compaction touch of it fails so, all the time; the other streams
must not wait for it. And *narrow* engines: writes hold little, and streams begin with more producers than a
snapshot can hold; no writer may ever ask for more than fits.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Final

from dray.log.producer_state import ProducerEntry, ProducerSnapshot, ProducerStates, RememberedBatch
from dray.metadata import keys
from dray.metadata.contract import Limits, Put
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.conditions import MAIN, SPARE, SPARE_PARTITIONS, ClusterConditions, Role
from dray_simulation.kernel.runtime import true_wall_ms

if TYPE_CHECKING:
    from dray_simulation.cluster.world import ClusterWorld

ETCD: Final = Limits(operations=1_100, value_bytes=1 << 20)
OXIA: Final = Limits(operations=5_000, value_bytes=8 << 20)
# As few streams as there are in a run fill it: what etcd is to a cluster of hundreds.
NARROW: Final = Limits(operations=48, value_bytes=2_816)


def at_limits(seed: int) -> ClusterConditions:
    """A run as ever, at one of the limits, and with unexpected errors in most runs."""
    chosen = ClusterConditions.choose(seed)
    random = Random(f"harsh {seed}")  # as it always was: seeds of mutations rest on it
    limits = random.choice((NARROW, NARROW, NARROW, ETCD, OXIA))
    if limits is NARROW:  # commits over many streams, which do not fit
        chosen = replace(
            chosen, domains=1, partitions=6, breadth=9, roles=(*chosen.roles, Role.PLAIN_PRODUCER)
        )
    return replace(
        chosen,
        limits=limits,
        retention_interval=1.0,
        silent_producers=limits.value_bytes // 40 if limits is NARROW else 0,
        unexpected_errors=random.choice((0.0, 0.002, 0.01)),
        poisons_a_stream=random.random() < 0.5,
    )


def crowd(world: ClusterWorld) -> None:
    """Give a stream more silent producers than a snapshot may hold, as no build should."""
    count = world.conditions.silent_producers
    if not count:
        return
    states = ProducerStates(24 * 3_600_000)
    last_seen = true_wall_ms() - 3_600_000
    states._own = {
        (1 << 50) + number: ProducerEntry(0, last_seen + number % 1000, (RememberedBatch(0, 0, 0, -1),))
        for number in range(count)
    }
    value = ProducerSnapshot(0, states).encode()
    for stream in world.truth.streams_of(MAIN, 0):  # of one: they take their time in every other stream too
        domain = keys.domain_of_stream(stream, world.conditions.domains)
        world.state.apply(domain, [Put(keys.producers(stream), value)], None, world.now())


def poison(world: ClusterWorld) -> None:
    if world.conditions.poisons_a_stream:
        [stream, *_] = world.truth.streams_of(SPARE, SPARE_PARTITIONS - 1)
        world.conditions.weather.poisoned = f"/{keys.number(stream)}/"


def check_contained(world: ClusterWorld) -> None:
    """One stream that fails all the time kept the others from nothing."""
    if world.conditions.poisons_a_stream and world.compactors and not world.counts["index swaps"]:
        raise Violation("one stream that fails keeps all others from being compacted")
