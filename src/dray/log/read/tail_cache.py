"""The newest batches, as they were received: what a consumer at the tail reads.

Each stream has one run of adjoining batches. They are patched in place once they are committed, and
from then on never touched again, so that one buffer serves every consumer without a copy. The cache
forgets the oldest first, whatever the stream. None is kept for more than `2 * HALF_AGE` rounds: it may have
been cleaned away by key (`index_cache.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple

BESIDE: Final = 512
"""Bytes of memory that a batch costs beside its own: most of the cost of a small one."""

MOST_BATCHES: Final = 1 << 17
"""A limit for small batches: the garbage collector looks at each, and the whole broker waits while it
does."""


class TailBatch(NamedTuple):
    base_offset: int
    end_offset: int
    view: memoryview


HALF_AGE: Final = 12
"""In rounds: how often idle streams are looked for."""

_GONE: Final = TailBatch(-1, -1, memoryview(b""))
_GONE_AT_LEAST: Final = 64


class _CachedRun:
    """Adjoining batches of one stream, and their base offsets beside them for the search. Those before
    `first` are gone, and are cleared away when they are as many as the others."""

    __slots__ = ("batches", "first", "old_below", "size", "starts", "used")

    def __init__(self) -> None:
        self.old_below = 0  # what was there when the age was looked at last ends here
        self.starts: list[int] = []
        self.batches: list[TailBatch] = []
        self.first = 0
        self.size = 0
        self.used = 0

    def holds(self, offset: int) -> bool:
        return self.starts[self.first] <= offset < self.batches[-1].end_offset

    def drop_first(self) -> bool:
        """Drop the first batch. True if nothing is left."""
        self.size -= len(self.batches[self.first].view) + BESIDE
        self.batches[self.first] = _GONE
        self.first += 1
        if self.first == len(self.starts):
            return True
        if self.first >= _GONE_AT_LEAST and 2 * self.first >= len(self.starts):
            del self.starts[: self.first], self.batches[: self.first]
            self.first = 0
        return False


class TailCache:
    """Holds `limit` bytes at most, including the cost of each batch beside its bytes."""

    def __init__(self, limit: int, most_batches: int = MOST_BATCHES) -> None:
        self._limit = limit
        self._most = most_batches
        self._runs: dict[int, _CachedRun] = {}
        # Stream and base offset of every batch, the oldest first; `_gone` of them went before their turn.
        self._order: deque[tuple[int, int]] = deque()
        self._gone = 0
        self._round = 0
        self.size = 0

    def add(self, stream: int, batches: list[TailBatch]) -> None:
        run = self._runs.get(stream)
        if run is None or run.batches[-1].end_offset != batches[0].base_offset:
            self.forget(stream)  # another broker appended in between, perhaps
            run = self._runs[stream] = _CachedRun()
        added = 0
        for batch in batches:
            run.starts.append(batch.base_offset)
            run.batches.append(batch)
            self._order.append((stream, batch.base_offset))
            added += len(batch.view) + BESIDE
        run.size += added
        self.size += added
        run.used = self._round
        while self.size > self._limit or len(self._order) > self._most:
            self._drop_oldest()

    def read(self, stream: int, offset: int, max_bytes: int, at_least_one: bool) -> list[TailBatch]:
        """Batches from the one that holds `offset`, as many as fit; empty if that one is not here."""
        run = self._runs.get(stream)
        if run is None or not run.holds(offset):
            return []
        run.used = self._round
        first = bisect_right(run.starts, offset, lo=run.first) - 1
        found: list[TailBatch] = []
        for place in range(first, len(run.batches)):  # `islice` would walk there
            batch = run.batches[place]
            max_bytes -= len(batch.view)
            if max_bytes < 0 and (found or not at_least_one):
                break
            found.append(batch)
        return found

    def holds(self, stream: int, offset: int) -> bool:
        run = self._runs.get(stream)
        return run is not None and run.holds(offset)

    def forget(self, stream: int) -> None:
        run = self._runs.pop(stream, None)
        if run is not None:
            self.size -= run.size
            self._went(len(run.starts) - run.first)

    def drop_below(self, stream: int, start: int) -> None:
        """Batches that lie wholly below the stream's start."""
        run = self._runs.get(stream)
        while run is not None and run.batches[run.first].end_offset <= start:
            if self._drop_first(stream, run):
                run = None
            self._went(1)

    def forget_idle(self) -> None:
        """Streams that were neither written nor read between the last three calls."""
        for stream, run in list(self._runs.items()):
            if run.used < self._round - 1:
                self.forget(stream)
            elif self._round % HALF_AGE == 0:
                self.drop_below(stream, run.old_below)
                run.old_below = run.batches[-1].end_offset
        self._round += 1

    def _went(self, count: int) -> None:
        """Batches were dropped before their turn. Their places are cleared away once they are the
        majority."""
        self._gone += count
        if self._gone >= _GONE_AT_LEAST and 2 * self._gone > len(self._order):
            self._order = deque([place for place in self._order if self._is_held(*place)])
            self._gone = 0

    def _is_held(self, stream: int, base_offset: int) -> bool:
        run = self._runs.get(stream)
        return run is not None and run.starts[run.first] <= base_offset

    def _drop_first(self, stream: int, run: _CachedRun) -> bool:
        before = run.size
        empty = run.drop_first()
        self.size -= before - run.size
        if empty:
            del self._runs[stream]
        return empty

    def _drop_oldest(self) -> None:
        stream, base_offset = self._order.popleft()
        run = self._runs.get(stream)
        if run is not None and run.starts[run.first] == base_offset:
            self._drop_first(stream, run)
        else:
            self._gone -= 1
