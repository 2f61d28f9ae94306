"""The plain data that the planner, the executors and the saga hand each other. It can be pickled.

A job of a stream is one unit of work, becomes one Parquet file, and ends as one index entry. An executor
gets units and gives back written files; there is no store in either, so it can run anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from dray.log.entries import IndexEntry
from dray.log.jobs.machine import Cleaning
from dray.log.jobs.values import WrittenFile


@dataclass(frozen=True, slots=True)
class Unit:
    """The input of an executor, with nothing that it could misuse."""

    topic: str
    topic_id: UUID
    partition: int
    stream: int
    job: int  # the job's number
    # Encoded index entries, adjoining, in order: WAL batches to decode, or Parquet files to merge.
    entries: tuple[bytes, ...]
    start: int
    end: int
    prefix: str  # of the path of its file, without a slash at the end
    cleaning: Cleaning | None = None  # compaction by key; None: every row is written
    # Not 0: no file is written, but an object with the keys of a cleaning round, so many at most. Such a unit
    # has no job: what it says of the log stays true, whatever becomes of the entries.
    most_keys: int = 0

    def decoded(self) -> list[IndexEntry]:
        return [IndexEntry.decode(entry) for entry in self.entries]


@dataclass(frozen=True, slots=True)
class UnitFailed:
    """A unit that did not become a file. If another try is not worth it, the stream is left alone for a
    while: `reason` names the object and the place in it, for the operator."""

    stream: int
    job: int
    reason: str
    retriable: bool
    # Bytes were not what was stored: what is read the next time may be. Only the same twice is believed.
    may_pass: bool = False
    # It is of outside objects, sound, and has no record that is committed: see `planning/plan.py`.
    empty: bool = False


@dataclass(frozen=True, slots=True)
class WrittenKeys:
    """The answer for a unit that collects keys: an object with those of the offsets up to `end`."""

    stream: int
    job: int
    path: str
    end: int
    count: int


UnitAnswer = WrittenFile | WrittenKeys | UnitFailed
Progress = Callable[[int, int], None]  # units done, units in all
Deliver = Callable[[UnitAnswer], None]


class WriterGone(Exception):
    """No unit can be written any more: the process had better end and be started again."""


class UnitWriter(Protocol):
    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None, deliver: Deliver | None = None
    ) -> Sequence[UnitAnswer]:
        """One answer per unit, in any order: given to `deliver` as soon as it is there, or answered in the
        end. An error that it raises means that all that were not delivered failed, `WriterGone` that no
        later call can succeed. Some may have left files behind, which the collector finds."""
