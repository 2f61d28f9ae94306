"""What a cycle did, and what it tells while it is at it."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Phase(Enum):
    PLAN = "plan"
    WRITE = "write"
    COMMIT = "commit"
    SWAP = "swap"
    RETAIN = "retain"
    COLLECT = "collect"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A stream, or a table (partition -1), that stands still, and why."""

    topic: str
    partition: int
    reason: str


@dataclass(slots=True)
class CycleSummary:
    streams: int = 0  # looked at
    units: int = 0  # given to the writer
    files: int = 0  # that came back
    records: int = 0
    input_bytes: int = 0
    output_bytes: int = 0
    commits: int = 0  # of tables
    finished: int = 0  # jobs that came to their end
    abandoned: int = 0  # jobs that were given up before a file counted
    left_to_others: int = 0  # unfinished jobs that somebody else works on
    waiting: int = 0  # jobs that wait for the catalog
    sealed: int = 0
    swept: int = 0  # index entries that late writes had brought back
    raised: int = 0  # streams whose start was raised by retention
    files_deleted: int = 0
    files_pending: int = 0  # that nobody needs, in their grace time
    table_files_removed: int = 0
    table_files_restored: int = 0
    snapshots_expired: int = 0
    metadata_deleted: int = 0  # files of tables
    tables_dropped: int = 0
    seconds: float = 0.0
    more: bool = False  # there is more to do already
    troubles: list[Trouble] = field(default_factory=list)


class CompactionObserver:
    """The default hears nothing."""

    def progress(self, phase: Phase, done: int, total: int) -> None:
        """For a progress bar: of one phase of the cycle at a time."""

    def finished(self, summary: CycleSummary) -> None:
        """A cycle came to its end."""
