"""How far the files, and with them the tables, are behind the log."""

from __future__ import annotations

from dataclasses import dataclass

from dray.compaction.planner import size_of
from dray.log.stream_store import StreamView


@dataclass(frozen=True, slots=True)
class Backlog:
    """What of a stream or a topic is not compacted yet, as it was last seen."""

    records: int = 0
    size: int = 0  # bytes
    entries: int = 0
    oldest_ms: int | None = None  # when the oldest of it came

    @classmethod
    def of(cls, view: StreamView) -> Backlog:
        waiting = [entry.value for entry in view.split()[0] if not entry.value.is_parquet]
        if view.high_watermark.value.head is not None:
            waiting.append(view.high_watermark.value.head)
        if not waiting:
            return cls()
        return cls(
            records=sum(entry.end - max(entry.start, view.start) for entry in waiting),
            size=sum(map(size_of, waiting)),
            entries=len(waiting),
            oldest_ms=min(entry.created_ms for entry in waiting),
        )

    def __add__(self, other: Backlog) -> Backlog:
        oldest = [each.oldest_ms for each in (self, other) if each.oldest_ms is not None]
        return Backlog(
            self.records + other.records,
            self.size + other.size,
            self.entries + other.entries,
            min(oldest, default=None),
        )
