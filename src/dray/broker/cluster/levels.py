"""The level of a cluster: which formats its processes may store, as a number in its record.

It is raised when every process that is there reads the next one, and never by a guess: one that has not said
so does not. A build that is older than the level does not start (`docs/design/0170`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Final, NamedTuple

from dray.metadata.values import NOT_IF_NONE

BASE: Final = 1
"""The level of a cluster whose record has no number, and what a process reads that has not said anything."""

CARRYING: Final = 2
"""From this level on small appends are carried."""


class Level(NamedTuple):
    number: int
    formats: str
    """The formats that it allows beyond the level below."""


LEVELS: Final = (
    Level(BASE, "all that no other level names"),
    Level(CARRYING, "index entries that carry their batches; jobs and marks of packs"),
)

NEWEST: Final = LEVELS[-1].number
"""The highest level that this build reads."""


class LevelTooNew(Exception):
    """A cluster is at a level that this build does not read; the text is one line for the operator."""


@dataclass(frozen=True, slots=True)
class ClusterLevel:
    number: int = BASE
    """The highest level whose formats may be stored anywhere."""

    ceiling: Annotated[int | None, NOT_IF_NONE] = None
    """An operator goes back to it, or did: nothing above it is written, and nothing raised by itself."""

    next: Annotated[int | None, NOT_IF_NONE] = None
    """The level that all processes read, since `since_ms`."""

    since_ms: Annotated[int | None, NOT_IF_NONE] = None

    @property
    def writes(self) -> int:
        """The highest level whose formats may be written now."""
        return self.number if self.ceiling is None else min(self.number, self.ceiling)


class Reader(NamedTuple):
    """A process that is there."""

    name: str
    reads: int | None
    """The highest level that it reads; None: it has not said so."""

    writes: int | None = None
    """The highest level whose formats it writes now; None: it writes none that a level gates."""

    is_registered: bool = False
    """A broker, by its registration: its beat is a reader too, and says what it writes."""

    def can_read(self, level: int) -> bool:
        return level <= (BASE if self.reads is None else self.reads)


def check_level(level: ClusterLevel, reads: int = NEWEST) -> None:
    """Raises `LevelTooNew`."""
    if level.number > reads:
        raise LevelTooNew(
            f"the cluster is at level {level.number}, and this build reads levels up to {reads}: start a "
            f"newer build, or lower the level with one: drayd admin level lower --to {reads}"
        )


def read_by_all(readers: Iterable[Reader]) -> int:
    """The highest level that all of them read."""
    return min((BASE if each.reads is None else each.reads for each in readers), default=BASE)


def looked_at(level: ClusterLevel, readable: int, now_ms: int | None, wait_ms: int) -> ClusterLevel:
    """The level as a look leaves it: raised when all have read the next one for so long. `now_ms`: None where
    the clock is doubted."""
    if level.ceiling is not None or readable <= level.number:
        return replace(level, next=None, since_ms=None)
    if now_ms is None:
        return level
    if level.next != readable or level.since_ms is None:
        return replace(level, next=readable, since_ms=now_ms)
    return ClusterLevel(readable) if now_ms - level.since_ms >= wait_ms else level


def stops_writing(level: ClusterLevel, to: int) -> ClusterLevel:
    """The first step of going back: nothing above `to` is written any more."""
    return ClusterLevel(level.number, ceiling=to)


def lowered(level: ClusterLevel) -> ClusterLevel:
    """The second, when nothing above the ceiling is stored any more."""
    return ClusterLevel(level.writes, ceiling=level.ceiling)


def writes_above(readers: Iterable[Reader], level: int) -> list[Reader]:
    """Those that write, or may yet write, formats above a level."""
    return [each for each in readers if each.writes is not None and each.writes > level]
