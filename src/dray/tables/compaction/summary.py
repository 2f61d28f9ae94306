"""The summary of a cycle, and the events that it reports while it works."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from dray.log.jobs.clean_shares import CleanShares
from dray.log.stream_store import StreamView
from dray.tables.compaction.planning.plan import size_of
from dray.tables.compaction.upkeep.lost_files import LostPart


class Phase(Enum):
    PLAN = "plan"
    WRITE = "write"
    COMMIT = "commit"
    SWAP = "swap"
    RETAIN = "retain"
    COLLECT = "collect"


class Cause(Enum):
    """The kind of trouble, for metrics."""

    UNIT = "unit"  # its file could not be written
    STORE = "store"  # the metadata store, or a rule of the log, was in the way
    TABLE = "table"  # the catalog, or the table itself


@dataclass(frozen=True, slots=True)
class StalledStream:
    """A stream, or a table (partition -1), that stands still, and why."""

    topic: str
    partition: int
    reason: str
    cause: Cause


@dataclass(frozen=True, slots=True)
class Backlog:
    """The records of a stream or a topic that are not compacted yet, as they were last seen: how far the
    files, and with them the tables, are behind the log."""

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


@dataclass(slots=True)
class CycleSummary:
    streams: int = 0  # of all topics
    looked: int = 0  # how often the index of one was read
    units: int = 0  # given to the writer
    files: int = 0  # that came back
    records: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    commits: int = 0  # of tables
    finished: int = 0  # jobs that came to their end
    abandoned: int = 0  # jobs that were given up before a file counted
    left_to_others: int = 0  # unfinished jobs that another compactor works on
    waiting: int = 0  # jobs that wait for the catalog
    without_table: int = 0  # jobs that went on without their table
    left_tables: int = 0  # partitions whose table is not what their log is, since some did
    sealed: int = 0
    key_rounds: int = 0  # cleaning rounds that began: large streams, compacted by key
    swept: int = 0  # index entries that late writes had brought back
    raised: int = 0  # streams whose start was raised by retention
    files_deleted: int = 0
    files_pending: int = 0  # garbage, in its grace time
    table_files_removed: int = 0
    table_files_restored: int = 0
    snapshots_expired: int = 0
    metadata_deleted: int = 0  # files of tables
    tables_dropped: int = 0
    tables_kept: int = 0  # that were held against the log: those that changed since the last time
    collected: bool = False  # whether the collectors had their turn
    collection_seconds: float = 0.0
    held: str | None = None  # why they deleted nothing
    braked: str | None = None  # why they deleted only what is proven to be garbage
    lost: list[LostPart] = field(default_factory=list)  # what the index names and no store has
    seconds: float = 0.0
    more: bool = False  # there is more to do already
    removed_by_key: int = 0  # records of units that were compacted by key and are not in their files
    backlog: dict[str, Backlog] = field(default_factory=dict)  # by topic, as it was before this cycle's work
    clean_shares: dict[str, CleanShares] = field(default_factory=dict)  # of compacted topics, as above
    troubles: list[StalledStream] = field(default_factory=list)

    def add_collection(self, other: CycleSummary) -> None:
        """Add the work of collectors beside this cycle."""
        for name in _COLLECTED:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.troubles += other.troubles
        self.held, self.braked = other.held or self.held, other.braked or self.braked
        if other.collected:
            self.collected, self.lost, self.files_pending = True, other.lost, other.files_pending


_COLLECTED: Final = (
    "files_deleted",
    "table_files_removed",
    "table_files_restored",
    "snapshots_expired",
    "metadata_deleted",
    "tables_dropped",
    "tables_kept",
    "collection_seconds",
)


class CompactionObserver:
    """Events of a compactor. The default ignores them."""

    def progress(self, phase: Phase, done: int, total: int) -> None:
        """For a progress bar: of one phase of the cycle at a time."""

    def took(self, phase: Phase, seconds: float) -> None:
        """A phase of a round, or of a cycle, is over."""

    def committed(self, seconds: float, outcome: str) -> None:
        """A commit of a table was tried: `done`, `raced` (another came first), or `refused`."""

    def compacted(self, done: int, total: int) -> None:
        """Bytes that this cycle has read into files, of those that it found and what came on top."""

    def stands_still(self, reason: str | None) -> None:
        """Told again and again while files are written elsewhere: why nothing gets on there; None: it
        does."""

    def overdue(self, tasks: int) -> None:
        """Tasks that got no further were ended, to be tried elsewhere."""

    def interrupted(self) -> None:
        """A cycle did not come to its end."""

    def records_deleted(self, why: str, records: int) -> None:
        """The start of a partition was raised."""

    def finished(self, summary: CycleSummary) -> None:
        """A cycle came to its end."""


class Observers(CompactionObserver):
    """Passes every event to several observers."""

    def __init__(self, *observers: CompactionObserver) -> None:
        self._observers = observers

    def progress(self, phase: Phase, done: int, total: int) -> None:
        for observer in self._observers:
            observer.progress(phase, done, total)

    def took(self, phase: Phase, seconds: float) -> None:
        for observer in self._observers:
            observer.took(phase, seconds)

    def committed(self, seconds: float, outcome: str) -> None:
        for observer in self._observers:
            observer.committed(seconds, outcome)

    def compacted(self, done: int, total: int) -> None:
        for observer in self._observers:
            observer.compacted(done, total)

    def stands_still(self, reason: str | None) -> None:
        for observer in self._observers:
            observer.stands_still(reason)

    def overdue(self, tasks: int) -> None:
        for observer in self._observers:
            observer.overdue(tasks)

    def interrupted(self) -> None:
        for observer in self._observers:
            observer.interrupted()

    def records_deleted(self, why: str, records: int) -> None:
        for observer in self._observers:
            observer.records_deleted(why, records)

    def finished(self, summary: CycleSummary) -> None:
        for observer in self._observers:
            observer.finished(summary)
