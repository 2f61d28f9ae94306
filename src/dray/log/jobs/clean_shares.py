"""The parts of a stream that are clean, dirty and gone, if it is compacted by key: from its index alone.

*Clean* is what lies below the last clean point: one record of each key, so what is live as far as cleaning
has come. *Dirty* are files above it; *waiting* is what is in no file yet, and can be cleaned only as one.
Which dirty records are superseded is known only by reading their keys, so it is not said here. Removed
records are known by their offsets, and have no size any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from dray.log.entries import IndexEntry
from dray.log.stream_store import StreamView


class Share(NamedTuple):
    records: int = 0
    size: int = 0  # bytes, as they are stored

    @classmethod
    def of(cls, entries: Iterable[IndexEntry], start: int) -> Share:
        listed = list(entries)
        return cls(sum(_records(entry, start) for entry in listed), sum(map(_size, listed)))

    def plus(self, other: Share) -> Share:
        return Share(self.records + other.records, self.size + other.size)


_NOTHING: Final = Share()


@dataclass(frozen=True, slots=True)
class CleanShares:
    offsets: int = 0  # from the start to the end, with or without a record
    clean: Share = _NOTHING
    dirty: Share = _NOTHING
    waiting: Share = _NOTHING
    clean_end: int | None = None  # the clean point; of several streams there is none
    cleaned_ms: int | None = None  # since when it holds; of several streams, the last time of any

    @classmethod
    def of(cls, view: StreamView) -> CleanShares:
        mark = view.high_watermark.value
        entries = [entry.value for entry in view.split()[0]]
        if mark.head is not None:
            entries.append(mark.head)
        files = [entry for entry in entries if entry.is_parquet]
        last = view.cleaned.points[-1] if view.cleaned.points else None
        reached = 0 if last is None else last.end
        return cls(
            offsets=mark.end - view.start,
            clean=Share.of((entry for entry in files if entry.end <= reached), view.start),
            dirty=Share.of((entry for entry in files if entry.end > reached), view.start),
            waiting=Share.of((entry for entry in entries if not entry.is_parquet), view.start),
            clean_end=None if last is None else last.end,
            cleaned_ms=None if last is None else last.since_ms,
        )

    @property
    def records(self) -> int:
        return self.clean.records + self.dirty.records + self.waiting.records

    @property
    def removed(self) -> int:
        """Offsets whose record is gone: dead, and no longer there."""
        return self.offsets - self.records

    @property
    def dirty_ratio(self) -> float:
        """The share that is compared with `min.cleanable.dirty.ratio`."""
        size = self.clean.size + self.dirty.size
        return self.dirty.size / size if size else 0.0

    @property
    def live_share(self) -> float | None:
        """The share of the records in files that is known to be one of each key; None where no file is."""
        records = self.clean.records + self.dirty.records
        return self.clean.records / records if records else None

    def __add__(self, other: CleanShares) -> CleanShares:
        times = [each.cleaned_ms for each in (self, other) if each.cleaned_ms is not None]
        return CleanShares(
            self.offsets + other.offsets,
            self.clean.plus(other.clean),
            self.dirty.plus(other.dirty),
            self.waiting.plus(other.waiting),
            None,
            max(times, default=None),
        )


def _records(entry: IndexEntry, start: int) -> int:
    """Those at or above the start. Of a file with holes that the start lies in, all are counted: only a look
    into it would say how many lie below."""
    return entry.record_count if entry.sparse else entry.end - max(entry.start, start)


def _size(entry: IndexEntry) -> int:
    return entry.file_size if entry.is_parquet else sum(entry.places()[2])
