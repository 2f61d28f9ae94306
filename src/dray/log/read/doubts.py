"""A bad answer is not a bad record.

One answer of an object store that is damaged, short or "there is no such object" may be true of the answer
alone. So it is read again, past everything that was kept of it, with pauses that grow; meanwhile the reader
is told `InDoubt`, on which clients wait. Only what was bad in `_READS` reads, over as many seconds as the
settings say, and never good in between, is called `ObjectCorrupt`.

The pauses hold for reads that fail without an answer, too: a store that refuses is not asked without end.

Bad answers about two objects or more, without a good one since, say something of the store: the observer
hears of each. One object that is bad says nothing of it, however often it is asked for. Damage is counted in
any case: the store knows of no failure, and consumers stop at such an object in the end.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from dray.base.runtime import Runtime
from dray.log.observer import LogObserver
from dray.log.types import LogError, LogUnavailable, ObjectCorrupt

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0
_AT_ONCE: Final = 2
"""So often a read is repeated before its client hears of it: one bad answer is nobody's problem."""
_READS: Final = 5
_MOST: Final = 10_000

WHOLE: Final = -1
"""The place of an object that is missing."""


class InDoubt(LogUnavailable):
    """The last answer about an object was bad. It is read again: the client may try again."""


@dataclass(slots=True)
class _Doubt:
    due: float = 0.0  # when it may be read again
    pause: float = 0.0
    reads: int = 0  # that were bad; there may be others, without an answer
    since: float = 0.0  # the first of them


class Doubts:
    """Places in objects whose last read failed: by path, and the byte at which the read began."""

    def __init__(
        self, runtime: Runtime, patience_seconds: float, observer: LogObserver | None = None
    ) -> None:
        self._runtime = runtime
        self._patience = patience_seconds
        self._observer = observer or LogObserver()
        self._bad: set[str] = set()  # objects with bad answers since the last good one; two are enough
        self._known: OrderedDict[tuple[str, int], _Doubt] = OrderedDict()

    def __contains__(self, place: tuple[str, int]) -> bool:
        return place in self._known

    async def turn(self, path: str, place: int) -> None:
        """Wait until the place may be read (again)."""
        for key in ((path, place), (path, WHOLE)) if self._known else ():
            doubt = self._known.get(key)
            if doubt is not None and (left := doubt.due - self._runtime.monotonic()) > 0:
                await self._runtime.sleep(left)

    def sound(self, path: str, place: int) -> None:
        """It was read, and is what was stored."""
        if self._bad:
            self._bad.clear()
            self._observer.read_well()
        if self._known:
            self._known.pop((path, place), None)
            self._known.pop((path, WHOLE), None)

    def suspect(self, path: str) -> None:
        """It is said to be missing. Whether the index still names it nobody knows yet, so this alone is told
        to nobody."""
        if len(self._bad) < 2:
            self._bad.add(path)

    def failed(self, path: str, place: int, error: LogError) -> LogError | None:
        """The error that answers a failed read. None: it is to be repeated, in its `turn`."""
        doubt = self._doubt(path, place)
        now = self._runtime.monotonic()
        doubt.pause = min(max(_FIRST_PAUSE, 2 * doubt.pause), _LONGEST_PAUSE)
        doubt.due = now + doubt.pause
        if not isinstance(error, ObjectCorrupt):
            return error
        self.suspect(path)
        if not error.missing:
            self._observer.read_damaged()
        if len(self._bad) == 2:
            self._observer.read_badly(error)
        if not doubt.reads:
            doubt.since = now
        doubt.reads += 1
        if doubt.reads <= _AT_ONCE:
            return None
        if doubt.reads >= _READS and now - doubt.since >= self._patience:
            return error
        doubted = InDoubt(f"{error}: it is read again")
        doubted.__cause__ = error
        return doubted

    def _doubt(self, path: str, place: int) -> _Doubt:
        key = path, place
        doubt = self._known.pop(key, None) or _Doubt()
        self._known[key] = doubt  # the one that failed last
        if len(self._known) > _MOST:
            self._known.popitem(last=False)
        return doubt
