"""Up to where a stream was compacted by key, and since when: its clean points.

A clean point (end, since) says: since that time every key has at most one record below that offset. Once true
it stays true, since records below it only become fewer. So any process may store it, at any time after the
swap of the merge was *seen*, again and late; a time that is too late only makes tombstones stay longer.

By clean points tombstones go. One that lies below a clean point is the only record of its key there: nothing
that it deletes is left. Consumers that read the older value before the point's time have until
`delete.retention.ms` after it to read the tombstone. So it may go once a point above it is that old. Dropped
by any other rule, a value further down would come back to life.

A stream that is too large for one merge is cleaned by a *round*: file after file is written against an object
with its keys (`tables/compaction/writing/cleaning.py`), each by a job of its own, from the start on. How
far it is, is kept here too. Only when the last of them was seen in the index there is a clean point: up to
then a file may hold what a later one supersedes. A round that is forgotten costs work, and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Final, NamedTuple

from dray.metadata.values import NOT_IF_NONE, JsonCodec

FORMAT: Final = 1
_PARTS: Final = 32  # of the time for which tombstones stay: about as many points are kept


class CleanPoint(NamedTuple):
    end: int
    since_ms: int


@dataclass(frozen=True, slots=True)
class CleaningRound:
    keys: str  # the path of the object with the last offset of each key from the last clean point to `end`
    end: int
    reached: int = 0  # what lies below was written against the keys
    # All rows of the next file are superseded, and one of them was kept, since no file is empty. It goes when
    # the file is written together with the one behind it.
    emptied: bool = False


@dataclass(frozen=True, slots=True)
class Cleaned:
    points: tuple[CleanPoint, ...] = ()  # both ends and times rise
    # No new format: a build from before there were any reads past it, and forgets it with the next point.
    round: Annotated[CleaningRound | None, NOT_IF_NONE] = None

    @property
    def end(self) -> int:
        """Below it no key has two records."""
        return self.points[-1].end if self.points else 0

    def tombstones_below(self, now_ms: int, retention_ms: int) -> int:
        """The offset below which tombstones have been seen for long enough. A time ahead of the clock is not
        old."""
        return max((point.end for point in self.points if _is_old(point, now_ms, retention_ms)), default=0)

    def moved(self, end: int, now_ms: int, retention_ms: int) -> Cleaned:
        """With another point. Of those that are old enough only the last is still needed. A point that came
        soon after the one before it is left out: tombstones stay a little longer, and the list is short."""
        if end <= self.end:
            return self
        points = [point for point in self.points if not _is_old(point, now_ms, retention_ms)]
        points = [*self.points[: len(self.points) - len(points)][-1:], *points]
        if len(points) > 1 and points[-1].since_ms - points[-2].since_ms < retention_ms // _PARTS:
            points.pop()
        since_ms = max([now_ms, *(point.since_ms for point in points)])
        left = self.round if self.round is not None and self.round.end > end else None
        return Cleaned((*points, CleanPoint(end, since_ms)), left)

    def advanced(
        self, keys: str, after: int, end: int, now_ms: int | None, retention_ms: int, *, emptied: bool
    ) -> Cleaned:
        """After a file up to `end`, written against those keys, was seen in the index. `after`: how far the
        round was when it was planned; where a file does not follow those before it, it says nothing of what
        lies between, and a file of other keys says nothing at all. `emptied`: it holds one row, and that is
        superseded. The last file of a round makes a clean point, if the clock is not doubted; else it is
        written once more."""
        found = self._round_of(keys, after, end)
        if found is None:
            return self
        if emptied:
            return replace(self, round=replace(found, emptied=True))
        if end < found.end:
            return replace(self, round=replace(found, reached=end, emptied=False))
        return self if now_ms is None else replace(self.moved(found.end, now_ms, retention_ms), round=None)

    def completed_to(self, keys: str, after: int, end: int, *, emptied: bool) -> int | None:
        """The clean point that `advanced` will make of such a file; None where it is not the last one of the
        round. It is true of the files already, before their index says so, whatever the clock shows."""
        found = self._round_of(keys, after, end)
        return None if found is None or emptied or end < found.end else found.end

    def _round_of(self, keys: str, after: int, end: int) -> CleaningRound | None:
        """The round that a file up to `end` brings further."""
        found = self.round
        if found is None or found.keys != keys or after > found.reached or end <= found.reached:
            return None
        return found

    def encode(self) -> bytes:
        return _CODEC.encode(self)

    @classmethod
    def decode(cls, value: bytes) -> Cleaned:
        return _CODEC.decode("the clean points of a stream", value)


def _is_old(point: CleanPoint, now_ms: int, retention_ms: int) -> bool:
    return point.since_ms + retention_ms <= now_ms


NOTHING_CLEANED: Final = Cleaned()
_CODEC: Final = JsonCodec(Cleaned, FORMAT)
