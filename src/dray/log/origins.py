"""The origin of a stream that began elsewhere: the boundary from which on Dray assigns the offsets.

    boundary    who owns the log          append    mirror commit    switch
    --------    ----------------------    ------    -------------    --------------
    (none)      Dray: it was born here    yes       no               no
    CLASSIC     the source                no        yes              to its end
    B0 >= 0     Dray, from B0 on          yes       no               no: B0 never changes

It is part of the high watermark, so that every one of these is one compare-and-set on one key: a process that
has an older view loses it. A stream that was born here has none, and its value is stored as it always was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from struct import Struct
from typing import Final

from dray.log.types import LogError

CLASSIC: Final = -2
"""The source owns the log: Dray mirrors it, and appends nothing."""

EPOCHS_ABOVE_SOURCE: Final = 65_536
"""A client ignores metadata with a lower leader epoch than it has seen for the same topic: so that of an
attached topic is far above its source's."""


NO_EPOCH: Final = -1

# Formats of high watermarks. Streams that were born here keep the first.
BORN_HERE_FORMAT: Final = 1
ORIGIN_FORMAT: Final = 2
MIRRORED_FORMAT: Final = 3  # once batches of the source were mirrored

_ORIGIN: Final = Struct(">qqi")
_MIRRORED: Final = Struct(">qqii")
ORIGIN_SIZES: Final = {BORN_HERE_FORMAT: 0, ORIGIN_FORMAT: _ORIGIN.size, MIRRORED_FORMAT: _MIRRORED.size}


class SourceOwnsLog(LogError):
    """The stream is classic: its source takes the appends."""


class BoundaryStands(LogError):
    """The stream is not classic, so it cannot be switched or mirrored into: B0 never changes."""


@dataclass(frozen=True, slots=True)
class Origin:
    boundary: int  # `CLASSIC`, or B0: the first offset that Dray assigned
    tier_end: int  # where the source's tier ended when it was attached
    leader_epoch: int  # of its topic: what is served carries it
    # Of the last batch that was mirrored, as the source gave it: with it the source says when its history is
    # another one. It is kept here, as batches lose it when they are compacted.
    source_epoch: int = NO_EPOCH

    @property
    def is_classic(self) -> bool:
        return self.boundary == CLASSIC

    def encode(self) -> bytes:
        if format_of(self) == ORIGIN_FORMAT:
            return _ORIGIN.pack(self.boundary, self.tier_end, self.leader_epoch)
        return _MIRRORED.pack(self.boundary, self.tier_end, self.leader_epoch, self.source_epoch)

    @classmethod
    def decode(cls, value: bytes, position: int, format_version: int = ORIGIN_FORMAT) -> Origin:
        layout = _ORIGIN if format_version == ORIGIN_FORMAT else _MIRRORED
        return cls(*layout.unpack_from(value, position))


def format_of(origin: Origin | None) -> int:
    """In which a high watermark with this origin is stored."""
    if origin is None:
        return BORN_HERE_FORMAT
    return ORIGIN_FORMAT if origin.source_epoch == NO_EPOCH else MIRRORED_FORMAT


def epoch_above(source_epoch: int) -> int:
    """The leader epoch of a topic whose source had come to this one."""
    return source_epoch + EPOCHS_ABOVE_SOURCE


def switched(origin: Origin | None, end: int) -> Origin:
    """The source gives the log up at its end, which becomes B0."""
    if origin is None or not origin.is_classic:
        raise BoundaryStands("only a stream that its source owns can be switched")
    return replace(origin, boundary=end)
