"""Index entries that this broker has seen, so that most lookups ask nobody.

An entry never changes, so a cached one is right as long as its object is there; when a read finds
the object gone (compacted, expired), it drops what is cached of the stream and asks the store. The cache
holds, per stream, its newest entries and a few windows that lagging consumers read from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict

from dray.log.entries import HighWatermark, IndexEntry
from dray.log.stream_store import Versioned

_WINDOWS = 4


class _Known:
    """What is known of one stream. `tail` ends at the high watermark's end, or is empty."""

    __slots__ = ("high_watermark", "start", "tail", "windows")

    def __init__(self, high_watermark: Versioned[HighWatermark], start: int) -> None:
        self.high_watermark = high_watermark
        self.start = start
        self.tail: list[IndexEntry] = []
        self.windows: list[list[IndexEntry]] = []


class IndexCache:
    def __init__(self, entries_per_stream: int, streams: int = 10_000) -> None:
        self._entries = entries_per_stream
        self._streams = streams
        self._known: OrderedDict[int, _Known] = OrderedDict()

    def high_watermark(self, stream: int) -> HighWatermark | None:
        known = self._known.get(stream)
        return None if known is None else known.high_watermark.value

    def start(self, stream: int) -> int:
        known = self._known.get(stream)
        return 0 if known is None else known.start

    def observe(self, stream: int, found: Versioned[HighWatermark], start: int | None = None) -> None:
        """Take in a high watermark that was read or committed. An older one changes nothing: what
        is known of a stream only moves forward."""
        known = self._known.get(stream)
        if known is None:
            known = self._known[stream] = _Known(found, start or 0)
            while len(self._known) > self._streams:
                self._known.popitem(last=False)
        else:
            current = known.high_watermark.value
            if found.value.end >= current.end and found.version >= known.high_watermark.version:
                known.high_watermark = found
            if start is not None and start > known.start:
                known.start = start
        head = found.value.head
        if head is not None:
            self._extend(known, head)

    def _extend(self, known: _Known, head: IndexEntry) -> None:
        tail = known.tail
        if tail and tail[-1].end != head.start:
            if head.end <= tail[-1].end:
                return
            tail.clear()  # others appended in between: those entries are asked for when needed
        tail.append(head)
        if len(tail) > self._entries:
            del tail[: len(tail) - self._entries]

    def find(self, stream: int, offset: int) -> IndexEntry | None:
        known = self._known.get(stream)
        if known is None:
            return None
        self._known.move_to_end(stream)
        for run in (known.tail, *known.windows):
            if run and run[0].start <= offset < run[-1].end:
                return run[bisect_right(run, offset, key=_start_of) - 1]
        return None

    def remember(self, stream: int, window: list[IndexEntry]) -> None:
        """Entries that a lookup read from the store; kept if they adjoin one another."""
        known = self._known.get(stream)
        if known is None or not window:
            return
        upto = 1
        while upto < len(window) and window[upto].start == window[upto - 1].end:
            upto += 1
        known.windows.insert(0, window[:upto])
        del known.windows[_WINDOWS:]

    def forget_entries(self, stream: int) -> None:
        known = self._known.get(stream)
        if known is not None:
            known.tail.clear()
            known.windows.clear()

    def forget(self, stream: int) -> None:
        self._known.pop(stream, None)


def _start_of(entry: IndexEntry) -> int:
    return entry.start
