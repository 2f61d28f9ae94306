"""Moves in which one thing goes wrong at the worst moment: chance alone comes to these too rarely.

Each is a run like any other, with the weather of its seed; only what the trap needs is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final, TypeAlias

from dray.simulation.moves.run import MoveConditions, moving_topics

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
    """What is written just before the fence holds is acknowledged long before the mirror sees it."""
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
    """One partition and few crashes of migrators, so that most runs come to their end."""
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
