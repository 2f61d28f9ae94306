"""The job key of a stream: one piece of work at a time, named by a number that only grows.

The key is deleted only after its stream was closed. A new job is put over the version that was read before
the plan was made, so a stale plan can never start; whoever finds an unfinished job carries it on.

Two kinds of work go through the key, and one machine moves both (`docs/design/0050` draws it):

    compaction   CREATED -> PARQUET_WRITTEN -> ICEBERG_COMMITTED -> INDEX_SWAPPED -> DONE
    retention    RETAIN -> RAISED -> DONE

Only CREATED may be abandoned: nothing but a file that nobody knows has come of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final
from uuid import UUID

from dray.log.entries import EntryKind, IndexEntry
from dray.log.stream_store import StreamStore, Versioned
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Put
from dray.metadata.values import ValueCorrupt, seal_json, unseal_json

FORMAT: Final = 1
# Of jobs that compact, so that a build from before there were any refuses them by name.
COMPACTION_FORMAT: Final = 2


class JobState(Enum):
    DONE = "DONE"
    # Retention
    RETAIN = "RETAIN"  # raising the start to `threshold` has been decided
    RAISED = "RAISED"  # the start is there: what lies below may go
    # Compaction
    CREATED = "CREATED"  # somebody writes, or wrote, a file; it may be abandoned
    PARQUET_WRITTEN = "PARQUET_WRITTEN"  # this very file: from here on there is no way back
    ICEBERG_COMMITTED = "ICEBERG_COMMITTED"  # it is in the topic's table, if that has one
    INDEX_SWAPPED = "INDEX_SWAPPED"  # its entry covers the inputs: what it replaces may go


@dataclass(frozen=True, slots=True)
class Input:
    """An index entry that a job replaces: its key, the version planned with, and its object."""

    end: int
    cumulative_size: int
    version: int
    object_id: UUID
    kind: EntryKind
    path: str  # of a Parquet file, which the table must let go of; empty for a WAL object

    @classmethod
    def of(cls, entry: Versioned[IndexEntry]) -> Input:
        value = entry.value
        path = value.path if value.is_parquet else ""
        return cls(value.end, value.cumulative_size, entry.version, value.object_id, value.kind, path)


@dataclass(frozen=True, slots=True)
class Compaction:
    """What a job compacts. It says all that is needed to carry on where its topic is gone."""

    topic: str
    topic_id: UUID
    partition: int
    start: int
    end: int
    inputs: tuple[Input, ...]  # adjoining, in order
    table: bool  # whether the file goes into the topic's table
    by_day: bool = False  # whether that is partitioned by day
    owner: str = ""  # who works on it: others keep off for a while, to save work and for nothing else
    # The file as its writer described it, once it is written. The log does not look inside.
    written: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Job:
    number: int = 0
    state: JobState = JobState.DONE
    threshold: int = 0  # the new start
    need: int = 0  # the end of the last entry that goes: the producer snapshot must cover it
    compaction: Compaction | None = None

    def moved(self, state: JobState) -> Job:
        return replace(self, state=state, compaction=None if state is JobState.DONE else self.compaction)

    def written(self, file: Mapping[str, Any]) -> Job:
        """The file that counts from here on."""
        compaction = replace(self.compacted, written=file)
        return replace(self, state=JobState.PARQUET_WRITTEN, compaction=compaction)

    @property
    def compacted(self) -> Compaction:
        """Of a job that compacts: what."""
        if self.compaction is None:
            raise ValueError(f"job {self.number} ({self.state.value}) compacts nothing")
        return self.compaction

    def encode(self) -> bytes:
        fields: dict[str, Any] = {
            "number": self.number,
            "state": self.state.value,
            "threshold": self.threshold,
            "need": self.need,
        }
        if self.compaction is None:
            return seal_json(FORMAT, fields)
        return seal_json(COMPACTION_FORMAT, {**fields, "compaction": _compaction_fields(self.compaction)})

    @classmethod
    def decode(cls, value: bytes) -> Job:
        format_version, fields = unseal_json("a stream's job", value, COMPACTION_FORMAT)
        try:
            state = JobState(fields["state"])
            compaction = None
            if format_version == COMPACTION_FORMAT:
                compaction = _compaction(fields["compaction"])
            elif state not in _WITHOUT_COMPACTION:
                raise ValueError(f"{state.value}, and nothing to compact")
            number, threshold, need = int(fields["number"]), int(fields["threshold"]), int(fields["need"])
            return cls(number, state, threshold, need, compaction)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise ValueCorrupt("a stream's job", str(error)) from error


_WITHOUT_COMPACTION: Final = frozenset({JobState.DONE, JobState.RETAIN, JobState.RAISED})


def _compaction_fields(compaction: Compaction) -> dict[str, Any]:
    return {
        "topic": compaction.topic,
        "topic_id": compaction.topic_id.hex,
        "partition": compaction.partition,
        "start": compaction.start,
        "end": compaction.end,
        "inputs": [
            [each.end, each.cumulative_size, each.version, each.object_id.hex, int(each.kind), each.path]
            for each in compaction.inputs
        ],
        "table": compaction.table,
        "by_day": compaction.by_day,
        "owner": compaction.owner,
        "written": None if compaction.written is None else dict(compaction.written),
    }


def _compaction(fields: Mapping[str, Any]) -> Compaction:
    written = fields["written"]
    if not (written is None or isinstance(written, dict)):
        raise ValueError("what was written is not a JSON object")
    inputs = tuple(
        Input(int(end), int(size), int(version), UUID(hex=object_id), EntryKind(kind), str(path))
        for end, size, version, object_id, kind, path in fields["inputs"]
    )
    if not inputs:
        raise ValueError("a compaction of nothing")
    return Compaction(
        topic=str(fields["topic"]),
        topic_id=UUID(hex=fields["topic_id"]),
        partition=int(fields["partition"]),
        start=int(fields["start"]),
        end=int(fields["end"]),
        inputs=inputs,
        table=bool(fields["table"]),
        by_day=bool(fields["by_day"]),
        owner=str(fields["owner"]),
        written=written,
    )


async def read_job(store: StreamStore, stream: int) -> Versioned[Job]:
    record = await store.store.get(store.domain(stream), keys.job(stream))
    return Versioned(Job(), 0) if record is None else Versioned(Job.decode(record.value), record.version)


def put_job(stream: int, job: Job, version: int) -> Put:
    return Put(keys.job(stream), job.encode(), version or ABSENT)


async def move_job(store: StreamStore, stream: int, job: Versioned[Job], to: Job) -> Versioned[Job] | None:
    """One compare-and-set on the job key. None if somebody else was first; raises where that is unclear."""
    [outcome] = await store.write(stream, [put_job(stream, to, job.version)])
    return Versioned(to, outcome.version) if outcome.applied else None
