"""The tables port: what the saga asks of Iceberg. `tables.iceberg` answers it, and the simulation in memory.

Paths are those of the object store, relative to its root; the implementation makes locations of them.

A table's snapshots each have their *ends*: per partition, the offset up to which the table held the log. A
commit writes the ends into its snapshot's properties, so that a reader learns them without a manifest: the
table "as of that time" is a snapshot, or a filter by its ends. Each commit writes all snapshots again, so the
text is bounded; a topic of more partitions has its ends read from the manifests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol
from uuid import UUID

from dray.log.jobs.values import WrittenFile


class TablesError(Exception):
    """The tables did not do what was asked; the message is one line that says what to do."""


class TablesUnavailable(TablesError):
    """The catalog does not answer, or an outcome could not be looked up: the jobs wait."""


class TableUnreadable(TablesUnavailable):
    """The catalog's table of that name cannot be read: a metadata file of it is gone, damaged, or of a kind
    that is not known here. The jobs wait as for a catalog that is away: another may be right."""


class TableMissing(TablesError):
    """There is no table of this topic (id): never made, or dropped."""


class TableRefused(TablesError):
    """There is something under the table's name that is not ours to write into."""


class TableChanged(TableRefused):
    """Another writer changed the table's files: they can be put back (`Tables.put_back`)."""

    def __init__(self, text: str, *, rows_changed: bool) -> None:
        super().__init__(text)
        self.rows_changed = rows_changed
        """False where the rows are the same, in other files: then nothing is lost by that."""


@dataclass(frozen=True, slots=True)
class TopicTable:
    """Which table. `topic_id` counts: a table of another topic of the same name is not it."""

    topic: str
    topic_id: UUID
    day_partitioned: bool = False


@dataclass(frozen=True, slots=True)
class TableState:
    table_uuid: UUID
    location: str
    created: bool = False  # just now: files that the log has already are not in it


@dataclass(frozen=True, slots=True)
class TableFile:
    """One data file: as its writer described it, and the partition of the topic that it is of."""

    partition: int
    written: WrittenFile

    @property
    def path(self) -> str:
        return self.written.path

    @property
    def first_offset(self) -> int:
        return self.written.start

    @property
    def last_offset(self) -> int:
        return self.written.end - 1


@dataclass(frozen=True, slots=True)
class CleanRange:
    """Below `end` no key has two rows in these files of a partition, taken together. So the table may say so
    once they are all that it has there."""

    partition: int
    end: int
    files: frozenset[str]  # paths


@dataclass(frozen=True, slots=True)
class TableChange:
    """One job's change of its table. `removed` are paths; one that the table does not hold is no error."""

    job: str  # "<stream>-<number>", or with a suffix where a job changes the table again
    added: tuple[TableFile, ...] = ()
    removed: tuple[str, ...] = ()
    clean: CleanRange | None = None


class CommitOutcome(Enum):
    COMMITTED = "it is in the table, by this commit or an earlier one"
    NOT_OURS = "the job has moved on without us"
    LOST_RACE = "another commit came first: try in the next cycle"


StillOurs = Callable[[TableChange], Awaitable[bool]]
LogFiles = Callable[[], Awaitable[Sequence[TableFile] | None]]
"""All files that the log has of a topic now. None: a job is about to change that."""


@dataclass(frozen=True, slots=True)
class MaintenanceResult:
    snapshots_expired: int = 0
    metadata_deleted: int = 0
    oldest_ms: int | None = None
    """When the oldest snapshot was made that goes some day; None where none does."""


class Tables(Protocol):
    async def ensure(self, topic: TopicTable) -> TableState:
        """The topic's table, created if there is none. Raises `TableRefused` for one that is not the topic's,
        or that was changed so that it can no longer hold its records."""

    async def version(self, topic: TopicTable) -> str | None:
        """It changes with every change of the table; None if there is no table of this topic (id)."""

    async def guard(self, topic: TopicTable) -> bool:
        """Set back the properties that keep other programs from deleting the log's files, and those that say
        whose table it is, where somebody changed them. True if that was needed."""

    async def commit(
        self, topic: TopicTable, changes: Sequence[TableChange], still_ours: StillOurs
    ) -> dict[str, CommitOutcome]:
        """Load the table, *then* ask `still_ours` for each change, look for the job ids in the snapshots,
        and commit what is left in one commit that asserts that very snapshot, the table's UUID and its
        topic id. An outcome per job id; one that is unclear is looked up, never guessed.

        A change with nothing (more) to do is committed all the same: the snapshot it makes is what stops a
        slower commit that asked before it. The table is never created here: `TableMissing`.
        """

    async def put_back(self, topic: TopicTable, change: str, files: LogFiles) -> bool:
        """Make the table hold exactly the log's files again, in one commit on top of the snapshot that was
        loaded before `files` was asked. `change`: its name. False where the table needs nothing of that, or
        not now."""

    async def committed(self, topic: TopicTable, jobs: Sequence[str]) -> set[str]:
        """Which of the jobs a live snapshot of the table names; none if there is no table."""

    async def live_files(self, topic: TopicTable) -> set[str] | None:
        """The paths in *any* live snapshot; None if there is no table of this topic (id)."""

    async def current_files(self, topic: TopicTable) -> set[str] | None:
        """The paths in the newest snapshot only: what a query reads now. None as above."""

    async def live_metadata(self, topic: TopicTable) -> set[str] | None:
        """The paths of the metadata files that the table needs. None as above."""

    async def maintain(
        self, topic: TopicTable, unfinished_jobs: Sequence[str], older_than_ms: int
    ) -> MaintenanceResult:
        """Expire snapshots made before that time (never the newest, never one that names an unfinished job)
        and delete metadata files that no snapshot left needs."""

    async def topics(self) -> list[TopicTable]:
        """Every table of this cluster, whether or not its topic still exists."""

    async def drop(self, topic: TopicTable) -> bool:
        """Take the table of a deleted topic out of the catalog; its data files are the collector's. False
        if there was none of this topic id."""


# --- snapshots

LARGEST_TEXT: Final = 4096
"""About 250 partitions."""
TOO_MANY: Final = "too many"


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    snapshot_id: int
    parent_id: int | None
    made_ms: int
    operation: str
    """In Iceberg's words: append, replace, delete, overwrite."""
    rows_added: int
    rows_removed: int
    files_added: int
    files_removed: int
    rows: int
    files: int
    size: int
    """Rows, files and bytes of the table with this snapshot."""
    ends: Mapping[int, int] | None
    """None where the snapshot does not say: then its manifests do (`ends_of`)."""
    is_ours: bool
    """Made by a compactor of this cluster."""


def ends_text(ends: Mapping[int, int]) -> str:
    text = ",".join(f"{partition}:{end}" for partition, end in sorted(ends.items()))
    return text if len(text) <= LARGEST_TEXT else TOO_MANY


def parse_ends(text: str | None) -> dict[int, int] | None:
    """None for a text that says nothing, or that this build cannot read."""
    if text is None or text == TOO_MANY:
        return None
    ends: dict[int, int] = {}
    for pair in text.split(",") if text else ():
        partition, colon, end = pair.partition(":")
        if not (colon and partition.isdecimal() and end.isdecimal()):
            return None
        ends[int(partition)] = int(end)
    return ends
