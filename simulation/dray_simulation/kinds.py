"""The kinds of runs: what a seed may lead to.

Each kind is a way to choose the conditions of a run, and each has tests of its own, which take a rule away
and see that it is noticed. A campaign takes them in turn, by the seed alone, so that a seed is one run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeAlias

from dray_simulation.cluster.builds import two_builds
from dray_simulation.cluster.conditions import ClusterConditions, Disaster, PlannedDisaster, Role
from dray_simulation.cluster.identities import automatic_ids
from dray_simulation.cluster.limits import at_limits
from dray_simulation.cluster.revocations import taken_rights
from dray_simulation.moves.run import MoveConditions, moving_topics

# --- moves in which one thing goes wrong at the worst moment: chance alone comes to these too rarely

Trap: TypeAlias = Callable[[int], MoveConditions]

_QUIET: Final = 0.5
"""Records a second of each producer: the end of the log stands still for long, and then moves once more."""


def late_fence(seed: int) -> MoveConditions:
    """The source says that it is fenced, and its brokers learn of it seconds later. Meanwhile its log stands
    still for long enough to be taken for a fenced one, and then a record comes."""
    return replace(
        _trap(seed),
        records_a_second=_QUIET,
        elections_a_second=0.0,  # a new leader knows of every ACL
        has_transactions=False,
        acl_is_late=(1.0, 3.0),
        writes_late=True,
    )


def slow_mirror(seed: int) -> MoveConditions:
    """Records from just before the fence holds are acknowledged long before the mirror sees it."""
    slow = (1.5, 2.5)
    return replace(late_fence(seed), acl_is_late=(1.0, 1.5), slow_fetches=slow, give_up_seconds=6.0)


def late_lift(seed: int) -> MoveConditions:
    """A first switch is taken back, and a second one decides, while a migrator is about to lift the fence of
    the first."""
    return replace(_trap(seed), lifts_late=True)


def lost_answers(seed: int) -> MoveConditions:
    """Producers do not hear of half of what the source has stored, and send it again: to Dray, once it is
    switched."""
    return replace(_trap(seed), lost_answers=0.5)


def forgotten_consumers(seed: int) -> MoveConditions:
    """A consumer that was left behind at the source goes back there once its group is Dray's."""
    return replace(_trap(seed), groups=2, forgets_consumers=True)


def overtaken(seed: int) -> MoveConditions:
    """The source's retention, and DeleteRecords, take what was not mirrored yet."""
    return replace(
        _trap(seed),
        partitions=2,
        has_transactions=True,
        expires=True,
        overtakes=True,
        trouble_every=(0.5, 3.0),
    )


def slow_fence(seed: int) -> MoveConditions:
    """The source carries out a call that puts a fence up when its switch was taken back long ago, and its
    fence was lifted; and its migrator may be dead by then."""
    return replace(
        _trap(seed), seconds=20.0, slow_fences=(0.5, 3.0), acl_is_late=(0.0, 0.3), trouble_every=(1.0, 4.0)
    )


def silent_producers(seed: int) -> MoveConditions:
    """Of some producers the source has no record any more. They come back to Dray."""
    return replace(_trap(seed), silent=2, groups=0)


def _trap(seed: int) -> MoveConditions:
    """The weather of the seed, one partition, and few crashes of migrators: most runs come to their end."""
    return replace(
        moving_topics(seed), seconds=12.0, partitions=1, is_unclean=False, trouble_every=(2.0, 6.0)
    )


TRAPS: Final[dict[str, Trap]] = {
    trap.__name__: trap
    for trap in (
        late_fence,
        slow_mirror,
        late_lift,
        lost_answers,
        forgotten_consumers,
        overtaken,
        slow_fence,
        silent_producers,
    )
}


def any_move(seed: int) -> MoveConditions:
    """Half of the seeds lead into a trap."""
    choose = Random(seed ^ 0x7A9).choice((*TRAPS.values(), *[moving_topics] * len(TRAPS)))
    return choose(seed)


# --- compaction by key

_ROLES = (
    Role.COMPACTED_PRODUCER,
    Role.COMPACTED_PRODUCER,
    Role.COMPACTED_READER,
    Role.COMPACTED_READER,
    Role.POLICY_SWITCHER,
)
_KINDS = (Disaster.COMPACTOR_CRASH, Disaster.COMPACTOR_CRASH, Disaster.COMPACTOR_PAUSE, Disaster.CRASH)


def by_key(seed: int) -> ClusterConditions:
    """Little else happens, and compactors are many, hasty, and often killed.

    Every run has a topic that is compacted by key. In others it is compacted a few times, here dozens of
    times, so that clean points grow old, tombstones go, and cleaning rounds come to their end."""
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


# --- an object store whose answers are wrong

_LYING: Final = 0.1


def over_lies(seed: int) -> ClusterConditions:
    """One answer in ten about an object is damaged, short, or says that it is not there; lists leave some
    out. What is stored is sound: no client may be told of damage, and nothing that is needed goes."""
    chosen = ClusterConditions.choose(seed)
    return replace(chosen, weather=replace(chosen.weather, lying=_LYING))


# --- all of them


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
        RunKind("lies", "an object store whose answers are wrong: damaged, short, missing", over_lies),
    )
}
EVERY_KIND: Final = tuple(KINDS)


def kind_of(seed: int, among: Sequence[str] = EVERY_KIND) -> RunKind:
    """One after the other as seeds count up."""
    return KINDS[among[seed % len(among)]]
