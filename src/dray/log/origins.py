"""Where a stream began, if not here: the boundary behind which Dray assigns the offsets.

    boundary    who owns the log          append    mirror commit    switch
    --------    ----------------------    ------    -------------    --------------
    (none)      Dray: it was born here    yes       no               no
    CLASSIC     the source                no        yes              to its end
    B0 >= 0     Dray, from B0 on          yes       no               no: B0 never changes

It is part of the high watermark, so that every one of these is one compare-and-set on one key: a process that
has an older view loses it. A stream that was born here has none, and its value is stored as it always was.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from dray.log.types import LogError

CLASSIC: Final = -2
"""The source owns the log: Dray mirrors it, and appends nothing."""

EPOCHS_ABOVE_SOURCE: Final = 65_536
"""A client ignores metadata with a lower leader epoch than it has seen for the same topic: so that of an
attached topic is far above its source's."""


_ORIGIN: Final = Struct(">qqi")
ORIGIN_SIZE: Final = _ORIGIN.size


class SourceOwnsLog(LogError):
    """The stream is classic: its source takes the appends."""


class BoundaryStands(LogError):
    """The stream is not classic, so it cannot be switched or mirrored into: B0 never changes."""


@dataclass(frozen=True, slots=True)
class Origin:
    boundary: int  # `CLASSIC`, or B0: the first offset that Dray assigned
    tier_end: int  # where the source's tier ended when it was attached
    leader_epoch: int  # of its topic: what is served carries it

    @property
    def is_classic(self) -> bool:
        return self.boundary == CLASSIC

    def encode(self) -> bytes:
        return _ORIGIN.pack(self.boundary, self.tier_end, self.leader_epoch)

    @classmethod
    def decode(cls, value: bytes, position: int) -> Origin:
        return cls(*_ORIGIN.unpack_from(value, position))


def epoch_above(source_epoch: int) -> int:
    """The leader epoch of a topic whose source had come to this one."""
    return source_epoch + EPOCHS_ABOVE_SOURCE


def switched(origin: Origin | None, end: int) -> Origin:
    """The source gives the log up at its end, which becomes B0."""
    if origin is None or not origin.is_classic:
        raise BoundaryStands("only a stream that its source owns can be switched")
    return Origin(end, origin.tier_end, origin.leader_epoch)
