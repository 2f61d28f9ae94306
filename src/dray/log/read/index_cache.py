"""Index entries that this broker has seen, so that most lookups need not ask the store.

An entry never changes, so a cached one can be read as long as its object is there. A read that finds the
object gone (compacted, expired) drops what is cached of the stream and asks the store. A carried entry has no
object: it could be read for ever, though it was cleaned away by key long ago. So what is cached of a stream
is dropped when the stream is cleaned, which a watch says (`poll.py`), and it has an age, since a watch may be
silent: after `LONGEST_ROUNDS` the store is asked again (`docs/design/0111`).

The cache holds, per stream, its newest entries and a few windows that lagging consumers read from, and no
more than so many bytes in all, of which what entries carry may be half: the streams that were not asked about
for longest are dropped first.

A stream's start does change: any broker may raise it at any time. So the cache knows how old its bounds of a
stream are: `confirmed` is when the store was last asked for them, behind a barrier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import KeysView
from typing import Final

from dray.log.entries import HighWatermark, IndexEntry
from dray.log.stream_store import Versioned
from dray.log.types import Bounds

NEVER: Final = float("-inf")

LONGEST_ROUNDS: Final = 24
"""How often idle streams are looked for before the entries of one are read anew: an hour, by default."""

_WINDOWS = 4
_ENTRY_BYTES = 400  # what an entry takes beside its table
_STREAM_BYTES = 1000

MOST_CARRIED: Final = 32 << 20
"""Bytes that the entries may carry, all together."""


class _Known:
    """The cached entries and bounds of one stream. `tail` ends at the high watermark's end, or is empty."""

    __slots__ = (
        "asked",
        "carried",
        "confirmed",
        "doubted",
        "failing",
        "high_watermark",
        "loose",
        "moved",
        "read",
        "size",
        "start",
        "tail",
        "unanswered",
        "used",
        "windows",
    )

    def __init__(self, high_watermark: Versioned[HighWatermark], start: int | None, round: int) -> None:
        self.high_watermark = high_watermark
        self.asked = round  # the round since which its entries are kept
        self.start = start
        self.confirmed = NEVER
        self.doubted = NEVER
        self.moved = 0  # the number of the last hint that it moved
        self.read = 0  # the number of hints when its last read began
        self.unanswered = False
        self.failing = False  # its last read was
        self.loose: IndexEntry | None = None  # the head, where it is not in the tail
        self.used = 0
        self.tail: list[IndexEntry] = []
        self.windows: list[list[IndexEntry]] = []
        self.size = _STREAM_BYTES
        self.carried = 0  # of these bytes: what entries carry


class IndexCache:
    def __init__(
        self, entries_per_stream: int, limit: int = 64 << 20, most_carried: int = MOST_CARRIED
    ) -> None:
        self._entries = entries_per_stream
        self._limit = limit
        self._most_carried = most_carried
        self._known: OrderedDict[int, _Known] = OrderedDict()
        self._round = 0
        self.hints = 0
        """So many hints were told, of all streams."""
        self._strangers = 0  # the number of the last hint of a stream that was not known then
        self.times_forgotten = 0
        """A read of the index from before this counted up may be older than the cause of that."""
        self.size = 0
        self.carried = 0

    # --- bounds

    def bounds(self, stream: int) -> Bounds | None:
        """The stream's bounds, if they are known."""
        known = self._known.get(stream)
        if known is None or known.start is None:
            return None
        return Bounds(known.start, known.high_watermark.value.end)

    def confirmed(self, stream: int) -> float:
        """When the stream's bounds were last confirmed: they may have changed since."""
        known = self._known.get(stream)
        return NEVER if known is None else known.confirmed

    def confirm(self, stream: int, asked: float) -> None:
        """The store has answered a question that was asked at that time, behind a barrier. If the start was
        doubted after that, the answer confirms nothing."""
        known = self._known.get(stream)
        if known is not None:
            known.unanswered = False
            if asked >= known.doubted:
                known.confirmed = max(known.confirmed, asked)

    def moved(self, stream: int) -> None:
        """A watch told that something of the stream changed."""
        self.hints += 1
        known = self._known.get(stream)
        if known is None:
            self._strangers = self.hints
        else:
            known.moved = self.hints

    def has_moved(self, stream: int) -> bool:
        """Has a watch told of a change that no read has looked into since?"""
        known = self._known.get(stream)
        return known is not None and known.moved > known.read

    def was_read(self, stream: int, hints: int) -> None:
        """A read that began when so many hints were told has seen what they told of."""
        known = self._known.get(stream)
        if known is not None:
            known.read = max(known.read, hints)

    def streams(self) -> KeysView[int]:
        return self._known.keys()

    def unanswered(self, stream: int) -> bool:
        """Was the store last asked without an answer?"""
        known = self._known.get(stream)
        return known is None or known.unanswered

    def not_answered(self, stream: int) -> None:
        known = self._known.get(stream)
        if known is not None:
            known.unanswered = True

    def failing(self, stream: int) -> bool:
        """Did the stream's last read fail?"""
        known = self._known.get(stream)
        return known is not None and known.failing

    def set_failing(self, stream: int, failing: bool) -> None:
        known = self._known.get(stream)
        if known is not None:
            known.failing = failing

    def doubt(self, stream: int, now: float) -> None:
        """The stream's start may have been raised: the store is asked before the next answer about the
        stream."""
        known = self._known.get(stream)
        if known is not None:
            known.doubted, known.confirmed = now, NEVER

    def high_watermark(self, stream: int) -> HighWatermark | None:
        known = self._known.get(stream)
        return None if known is None else known.high_watermark.value

    def start(self, stream: int) -> int | None:
        """None when the store has not been asked yet."""
        known = self._known.get(stream)
        return None if known is None else known.start

    def observe(self, stream: int, found: Versioned[HighWatermark], start: int | None = None) -> None:
        """Take in a high watermark that was read or committed. An older one changes nothing: what
        is known of a stream only moves forward."""
        known = self._known.get(stream)
        if known is None:
            known = self._known[stream] = _Known(found, start, self._round)
            known.moved = self._strangers  # it may have been told of while it was being read
            self.size += known.size
        else:
            self._known.move_to_end(stream)
            current = known.high_watermark
            if found.value.end >= current.value.end and found.version >= current.version:
                known.high_watermark = found
            if start is not None and (known.start is None or start > known.start):
                known.start = start
                self._drop_below(known, start)
        known.used = self._round
        if found.value.head is not None:
            self._extend(known, found.value.head)
        self._count_head(known)
        self._make_room()

    def find(self, stream: int, offset: int) -> IndexEntry | None:
        known = self._known.get(stream)
        if known is None:
            return None
        self._known.move_to_end(stream)
        known.used = self._round
        for run in (known.tail, *known.windows):
            if run and run[0].start <= offset < run[-1].end:
                return run[bisect_right(run, offset, key=_start_of) - 1]
        return None

    def remember(self, stream: int, window: list[IndexEntry], forgotten: int | None = None) -> None:
        """Entries that a lookup read from the store; kept as far as they adjoin one another. `forgotten`:
        `times_forgotten` before the lookup."""
        known = self._known.get(stream)
        if known is None or not window or forgotten not in (None, self.times_forgotten):
            return
        upto = 1
        while upto < len(window) and window[upto].start == window[upto - 1].end:
            upto += 1
        known.used = self._round
        known.windows.insert(0, window[:upto])
        self._grow(known, window[:upto])
        while len(known.windows) > _WINDOWS:
            self._shrink(known, known.windows.pop())
        self._make_room()

    def forget_entries(self, stream: int) -> None:
        self.times_forgotten += 1
        known = self._known.get(stream)
        if known is not None:
            known.asked = self._round
            known.tail.clear()
            known.windows.clear()
            known.loose = None
            self._count(known, _STREAM_BYTES - known.size, -known.carried)
            self._count_head(known)

    def forget(self, stream: int) -> None:
        known = self._known.pop(stream, None)
        if known is not None:
            self._strangers = max(self._strangers, known.moved)
            self.size -= known.size
            self.carried -= known.carried

    def forget_idle(self) -> None:
        """Streams that were not asked about between the last three calls; of the others, entries that were
        kept for long."""
        while self._known:
            stream, known = next(iter(self._known.items()))
            if known.used >= self._round - 1:
                break
            self.forget(stream)
        self._round += 1
        for stream, known in self._known.items():
            if self._round - known.asked >= LONGEST_ROUNDS:
                self.forget_entries(stream)

    def _drop_below(self, known: _Known, start: int) -> None:
        for run in (known.tail, *known.windows):
            gone = bisect_right(run, start, key=_end_of)
            self._shrink(known, run[:gone])
            del run[:gone]
        known.windows = [window for window in known.windows if window]

    def _count_head(self, known: _Known) -> None:
        head, tail = known.high_watermark.value.head, known.tail
        loose = None if head is None or (tail and tail[-1] is head) else head
        if loose is not known.loose:
            self._shrink(known, [] if known.loose is None else [known.loose])
            self._grow(known, [] if loose is None else [loose])
            known.loose = loose

    def _extend(self, known: _Known, head: IndexEntry) -> None:
        tail = known.tail
        if tail and tail[-1].end != head.start:
            if head.end <= tail[-1].end:
                return
            # Others appended in between: those entries are read when they are needed.
            self._shrink(known, tail)
            tail.clear()
        tail.append(head)
        self._grow(known, [head])
        if (surplus := len(tail) - self._entries) > 0:
            self._shrink(known, tail[:surplus])
            del tail[:surplus]

    def _grow(self, known: _Known, entries: list[IndexEntry]) -> None:
        self._count(known, _size_of(entries), _carried_by(entries))

    def _shrink(self, known: _Known, entries: list[IndexEntry]) -> None:
        self._count(known, -_size_of(entries), -_carried_by(entries))

    def _count(self, known: _Known, size: int, carried: int) -> None:
        known.size += size
        known.carried += carried
        self.size += size
        self.carried += carried

    def _make_room(self) -> None:
        """Drop streams until the rest fits. Never the one at hand: it was moved to the end, and one is always
        kept."""
        while len(self._known) > 1 and (self.size > self._limit or self.carried > self._most_carried):
            self.forget(next(iter(self._known)))


def _start_of(entry: IndexEntry) -> int:
    return entry.start


def _end_of(entry: IndexEntry) -> int:
    return entry.end


def _size_of(entries: list[IndexEntry]) -> int:
    return sum([len(entry.table) + len(entry.data) for entry in entries]) + _ENTRY_BYTES * len(entries)


def _carried_by(entries: list[IndexEntry]) -> int:
    return sum([len(entry.data) for entry in entries])
