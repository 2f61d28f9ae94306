"""The kinds of runs: what a seed may lead to.

Each kind is a way to choose the conditions of a run, and each has tests of its own, which take a rule away
and see that it is noticed. A campaign takes them in turn, by the seed alone, so that a seed is one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from dray.simulation.cluster.builds import two_builds
from dray.simulation.cluster.by_key import by_key
from dray.simulation.cluster.conditions import ClusterConditions
from dray.simulation.cluster.identities import automatic_ids
from dray.simulation.cluster.limits import at_limits
from dray.simulation.cluster.revocations import taken_rights
from dray.simulation.moves.traps import any_move


@dataclass(frozen=True, slots=True)
class RunKind:
    name: str
    what: str
    choose: Callable[[int], ClusterConditions]


def _wrong_clocks(seed: int) -> ClusterConditions:
    return ClusterConditions.choose(seed).with_clocks()


KINDS: Final = {
    kind.name: kind
    for kind in (
        RunKind("weather", "stores, network and processes that fail", ClusterConditions.choose),
        RunKind("clocks", "a machine whose clock is wrong, or jumps", _wrong_clocks),
        RunKind("builds", "two builds, one of which cannot read what the other stores", two_builds),
        RunKind("ids", "brokers that take the lowest id that is free", automatic_ids),
        RunKind("keys", "a topic that is compacted by key all the time, by several compactors", by_key),
        RunKind("limits", "narrow engines, and mistakes that no code foresees", at_limits),
        RunKind("moves", "a live Kafka topic that moves here while clients write to it", any_move),
        RunKind("revocations", "users and ACLs that come and go, and who is served until when", taken_rights),
    )
}
EVERY_KIND: Final = tuple(KINDS)


def kind_of(seed: int, among: Sequence[str] = EVERY_KIND) -> RunKind:
    """One after the other as seeds count up."""
    return KINDS[among[seed % len(among)]]
