"""The tally: a number that the metadata store and the bucket both keep, so that neither is taken for more
than it is.

A copy of the metadata has the cluster's id, and is not the cluster: a restore drill, started beside
production on its bucket, or a backup that was put in its place. Both stores therefore keep a number with a
token, as the two halves of a tally stick have the same notches. It is raised every `interval` in four steps:

    1  metadata   {n, token}            -> {n, token, next}   compare-and-set: a token that nobody else knows
    2  bucket     dray-tally/<n + 1>       {next}             put if absent: of several who try, one succeeds
    3  metadata   {n, token, next}      -> {n + 1, next}      compare-and-set
    4  bucket     dray-tally/<n - KEPT>    deleted, after those before it; the first stays

Where the halves do not fit, another metadata store has raised the bucket's: ours is a copy of it, or older.
After a crash in between, any process of the cluster goes on where the record says.

Everything here is pure. `TallyWatch` is what one process has seen; `tally_keeper.py` asks the stores, and
acts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Final

from dray.metadata.keys import number as padded
from dray.metadata.values import NOT_IF_NONE, JsonCodec, ValueCorrupt

TALLY_FORMAT: Final = 1
MARK_FORMAT: Final = 1

MARKS: Final = "dray-tally/"
KEPT: Final = 16
"""So many marks stay in the bucket behind the newest. A process that slept for longer finds the mark that it
starts from gone, which says as much as another's mark in its place. The first one stays for good."""

QUIET_INTERVALS: Final = 3.0
"""The cluster raises its tally every interval. In so many without one, nobody else does."""


def mark_path(number: int) -> str:
    return f"{MARKS}{padded(number)}"


def number_of_mark(path: str) -> int | None:
    digits = path.removeprefix(MARKS)
    return int(digits) if digits.isdecimal() and path == mark_path(int(digits)) else None


@dataclass(frozen=True, slots=True)
class Tally:
    """The half in the metadata store."""

    number: int
    token: str
    next: Annotated[str | None, NOT_IF_NONE] = None  # of the mark that is about to be put
    asked: Annotated[bool | None, NOT_IF_NONE] = None  # a process waits for proof: raise it now


@dataclass(frozen=True, slots=True)
class Mark:
    """The half in the bucket."""

    cluster_id: str
    number: int
    token: str
    interval_ms: int  # of the process that put it: whoever is less patient waits as long all the same


_TALLY: Final = JsonCodec(Tally, TALLY_FORMAT)
_MARK: Final = JsonCodec(Mark, MARK_FORMAT)
NOTHING: Final = Tally(0, "")
"""Before the first mark."""


def encode_tally(tally: Tally) -> bytes:
    return _TALLY.encode(tally)


def decode_tally(value: bytes) -> Tally:
    tally = _TALLY.decode("the cluster's tally", value)
    if tally.number < 0:
        raise ValueCorrupt("the cluster's tally", str(tally.number))
    return tally


def encode_mark(mark: Mark) -> bytes:
    return _MARK.encode(mark)


def decode_mark(path: str, value: bytes) -> Mark:
    mark = _MARK.decode(path, value)
    if mark_path(mark.number) != path:
        raise ValueCorrupt(path, f"it is mark {mark.number}")
    return mark


class Fit(Enum):
    """How the two halves are to each other."""

    FITS = "fits"
    BEHIND_ITSELF = "the mark that the metadata was about to put is there"
    OTHERS = "the bucket has a mark that this metadata store did not put"
    GONE = "the bucket does not have the mark that this metadata store put"


def fit(tally: Tally, here: Mark | None, above: Mark | None) -> Fit:
    """`here` and `above` are the marks of the tally's number and of the next one."""
    if tally.number and here is None:
        return Fit.GONE
    if tally.number and here is not None and here.token != tally.token:
        return Fit.OTHERS
    if above is None:
        return Fit.FITS
    return Fit.BEHIND_ITSELF if above.token == tally.next else Fit.OTHERS


class TallyStep(Enum):
    NOTHING = "nothing"
    DRAW = "write a new token into the metadata"
    PUT = "put the mark that the metadata announces"
    CONFIRM = "write into the metadata that the mark is there"


@dataclass(slots=True)
class TallyWatch:
    """One process's view of the tally, and what follows from it.

    It is *proven*, and may delete, once it has seen the tally raised with a token that was drawn after its
    start, by itself or by others of its cluster. A copy of the metadata was made before the processes that
    use it started: so such a token is in no other copy. A process without proof may draw only after it has
    watched the bucket for several intervals in which nobody raised the tally: so a copy beside the living
    cluster never comes to it, and the cluster always does. Where all of the cluster started after the copy
    was made, nothing tells the two apart: `docs/design/0150-disaster-recovery.md`, "What this cannot know".
    """

    interval: float
    is_new: bool = False
    """This process made the cluster, in an empty bucket: there is no copy."""
    fit: Fit | None = None
    is_proven: bool = False
    _shared: int | None = None  # the highest number that a copy from before this process may have too
    _number: int = -1
    _raised_at: float = 0.0
    _quiet: float = 0.0  # in which this process saw that nobody raised it
    _seen_at: float | None = None  # by the last look, if that succeeded

    def missed(self) -> None:
        """A store did not answer: the cluster could not raise its tally either, so this time does not count.
        The time before it does: a store that fails now and then keeps nobody from its proof."""
        self._seen_at = None

    def saw(self, now: float, tally: Tally, here: Mark | None, above: Mark | None) -> TallyStep:
        self.fit = fit(tally, here, above)
        if self.fit in (Fit.OTHERS, Fit.GONE):
            self.is_proven = self.is_new = False
            self._shared, self._number = None, -1
            return TallyStep.NOTHING
        if self._shared is None:
            self._shared = max(1, tally.number + (tally.next is not None))
        if tally.number > self._shared or (self.is_new and tally.number):
            self.is_proven = True
        if tally.number != self._number:
            self._number, self._raised_at, self._quiet = tally.number, now, 0.0
        elif self._seen_at is not None:
            self._quiet += now - self._seen_at
        self._seen_at = now
        if self.fit is Fit.BEHIND_ITSELF:
            return TallyStep.CONFIRM
        if not self._may_raise(now, tally, here):
            return TallyStep.NOTHING
        return TallyStep.DRAW if tally.next is None else TallyStep.PUT

    def _may_raise(self, now: float, tally: Tally, here: Mark | None) -> bool:
        if not tally.number:
            return True
        if self.is_proven:
            return tally.next is not None or bool(tally.asked) or now - self._raised_at >= self.interval
        patience = max(self.interval, 0.0 if here is None else here.interval_ms / 1000)
        return self._quiet >= QUIET_INTERVALS * patience

    def held(self) -> str | None:
        """Why nothing may be written; None while the halves fit, or nobody has looked yet."""
        return self.fit.value if self.fit in (Fit.OTHERS, Fit.GONE) else None
