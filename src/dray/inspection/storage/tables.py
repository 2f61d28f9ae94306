"""A topic's table beside its log: columns, snapshots, how far each partition reaches; its files, for SQL."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias
from uuid import UUID

from dray.inspection.groups.views import TimeOf
from dray.inspection.sql.queries import QuerySource, SqlQueries, SqlRefused
from dray.inspection.sql.tail import Tail, TailReader, TailRefused
from dray.inspection.storage.stored import StoredCluster
from dray.inspection.topics.views import InspectedTopic
from dray.tables.contract import TablesError, TableSnapshot
from dray.tables.iceberg.locations import Locations

if TYPE_CHECKING:
    from dray.tables.iceberg.view import TableView


LISTED_SNAPSHOTS: Final = 100


class SnapshotSource(Protocol):
    """The source of snapshots: `IcebergTables`, which is not loaded before it is needed."""

    async def snapshots(self, topic: str) -> list[TableSnapshot] | None:
        """Newest first; None where there is no table."""

    async def ends_of(self, topic: str, snapshot_id: int) -> Mapping[int, int] | None:
        """None where there is no such snapshot any more."""


@dataclass(frozen=True)
class TableHistory:
    topic: str
    snapshots: Sequence[TableSnapshot]
    """Newest first."""
    total: int
    """How many there are; more than are listed, perhaps."""


@dataclass(frozen=True)
class TableAsOf:
    """The table at a time."""

    snapshot_id: int
    made_ms: int
    ends: Mapping[int, int]


async def table_history(
    source: SnapshotSource, topic: str, most: int = LISTED_SNAPSHOTS
) -> TableHistory | None:
    """None where the topic has no table."""
    found = await source.snapshots(topic)
    return None if found is None else TableHistory(topic, found[:most], len(found))


async def table_as_of(source: SnapshotSource, topic: str, at_ms: int) -> TableAsOf | None:
    """The newest snapshot that was made by then, with its ends; None where no snapshot is that old, or the
    one that is has expired meanwhile."""
    for snapshot in await source.snapshots(topic) or ():
        if snapshot.made_ms <= at_ms:
            ends = snapshot.ends
            if ends is None:
                ends = await source.ends_of(topic, snapshot.snapshot_id)
            return None if ends is None else TableAsOf(snapshot.snapshot_id, snapshot.made_ms, ends)
    return None


def no_snapshot_then(topic: str) -> str:
    return (
        f"{topic} has no snapshot from then: it was made later, or its snapshot has expired "
        "(iceberg.keep_snapshots)"
    )


# --- one table


SHOWN_SNAPSHOTS: Final = 50
_OF_AN_EARLIER: Final = (
    "the table of that name is still of an earlier topic; a compactor drops it, and makes one for this topic"
)
_TIMED: Final = 32
_TRIES: Final = 3
LATEST: Final = "$latest"
"""As `tables.iceberg.duckdb_views`, which is loaded with the first query."""

MayRead: TypeAlias = Callable[[str], Awaitable[UUID]]
"""The id of the topic of that name whose rows may be read here. Raises `SqlRefused` where none may be."""


class TableSource(SnapshotSource, Protocol):
    """The source of tables: `IcebergTables`."""

    async def view(self, topic: str) -> TableView | None: ...

    async def rows_view(self, topic: str) -> TableView | None:
        """The same for who reads its rows, sooner: without a word on what others changed."""


@dataclass(frozen=True)
class TableColumn:
    name: str
    kind: str
    """In Iceberg's words."""
    source: str | None
    """Its name in the log's files; None for one that the owner of the table added."""


@dataclass(frozen=True)
class TablePartition:
    partition: int
    start: int | None
    end: int | None
    """The offsets that the log holds now,"""
    table_end: int
    """and the offset after the last one in the table."""
    behind: int | None
    behind_ms: int | None
    """The age of the first record that is not in the table."""


@dataclass(frozen=True)
class TopicTableView:
    topic: str
    name: str | None
    """None where there is no table:"""
    why_not: str | None
    """then this says why. With a table: why it is not written any more."""
    location: str = ""
    snapshot_id: int | None = None
    updated_ms: int | None = None
    rows: int = 0
    size: int = 0
    files: int = 0
    behind: int = 0
    behind_ms: int | None = None
    partitions: Sequence[TablePartition] = ()
    columns: Sequence[TableColumn] = ()
    snapshots: Sequence[TableSnapshot] = ()
    total_snapshots: int = 0
    trouble: str | None = None


async def topic_table(
    source: TableSource, topic: InspectedTopic, why_not: str | None, now_ms: int, time_of: TimeOf
) -> TopicTableView:
    """`why_not`: what the config says against a table of this topic."""
    try:
        found = await source.view(topic.name)
        history = None if found is None else await table_history(source, topic.name, SHOWN_SNAPSHOTS)
    except TablesError as error:
        return TopicTableView(topic.name, None, str(error))
    if found is not None and str(found.topic_id) != topic.topic_id:
        return TopicTableView(topic.name, None, _OF_AN_EARLIER)
    if found is None:
        return TopicTableView(
            topic.name, None, why_not or "there is none yet: it is made when the topic is first compacted"
        )
    partitions = await _partitions(topic, found.ends, now_ms, time_of)
    ages = [row.behind_ms for row in partitions if row.behind_ms is not None]
    return TopicTableView(
        topic.name,
        found.name,
        why_not,
        found.location,
        found.snapshot_id,
        found.updated_ms,
        found.rows,
        found.size,
        len(found.files),
        sum(row.behind or 0 for row in partitions),
        max(ages, default=None),
        partitions,
        [TableColumn(column.name, column.kind, column.source) for column in found.columns],
        history.snapshots if history is not None else (),
        history.total if history is not None else 0,
        found.trouble,
    )


async def _partitions(
    topic: InspectedTopic, ends: Mapping[int, int], now_ms: int, time_of: TimeOf
) -> list[TablePartition]:
    rows = []
    for number, row in enumerate(topic.partitions):
        reached = ends.get(row.partition, 0)
        behind = age = None
        if row.start is not None and row.end is not None:
            behind = max(0, row.end - max(reached, row.start))
            age = 0
            if behind:
                written = None
                if number < _TIMED:
                    written = await time_of(topic.name, row.partition, max(reached, row.start))
                age = None if written is None or written < 0 else max(0, now_ms - written)
        rows.append(TablePartition(row.partition, row.start, row.end, reached, behind, age))
    return rows


class TopicTails:
    """The records behind the tables of a cluster's topics."""

    def __init__(
        self, stored: StoredCluster, reader: TailReader, why_not: Callable[[str], Awaitable[str | None]]
    ) -> None:
        self._stored = stored
        self._reader = reader
        self._why_not = why_not

    async def no_table(self, name: str) -> TableView | None:
        """The view of a topic without a table. None where there is no such topic."""
        from dray.tables.iceberg.view import no_table_yet

        topic = await self._stored.topic(name)
        if topic is None:
            return None
        why_not = await self._why_not(name)
        if why_not is not None:
            raise SqlRefused(f"{name} has no table: {why_not}")
        return no_table_yet(name, topic.topic_id)

    async def read(self, view: TableView, as_of_ms: int | None, then: Mapping[int, int] | None) -> Tail:
        topic = await self._stored.topic(view.topic)
        if topic is None or topic.topic_id != view.topic_id:
            raise SqlRefused(f"{view.topic}: the topic was deleted")
        try:
            return await self._reader.read(view.topic, topic.streams, view.ends, as_of_ms, then)
        except TailRefused as error:
            raise SqlRefused(str(error)) from error


class TableQueries:
    """The topics that a query names, as what DuckDB reads."""

    def __init__(
        self,
        source: TableSource,
        locations: Locations,
        may_read: MayRead,
        as_of_ms: int | None = None,
        tails: TopicTails | None = None,
    ) -> None:
        """`as_of_ms`: the topics as they were then, but for rows that were deleted since. `tails`: None for
        what was compacted alone."""
        self._tails = tails
        self._as_of_ms = as_of_ms
        self._source = source
        self._locations = locations
        self._may_read = may_read
        self.needs_network = not locations.is_local

    async def sources(self, names: Sequence[str]) -> list[QuerySource]:
        # pyiceberg comes with it: a console loads that only for the first query.
        from dray.tables.iceberg import duckdb_views

        found = []
        latest = {name.removesuffix(LATEST) for name in names if name.endswith(LATEST)}
        for number, name in enumerate(sorted({name.removesuffix(LATEST) for name in names})):
            view, tail, ends = await self._relation(name)
            if view is None:
                continue  # a name that the query makes itself, or a mistake: DuckDB says so
            try:
                found.append(self._source_of(duckdb_views, view, number, ends, tail))
                if name in latest:
                    found.append(QuerySource(duckdb_views.latest_statement(view)))
            except duckdb_views.QueryRefused as error:
                raise SqlRefused(str(error)) from error
        return found

    async def _relation(self, name: str) -> tuple[TableView | None, Tail | None, Mapping[int, int] | None]:
        """A table that changed while the records behind it were read is read again: a job may have taken away
        by key what this snapshot still has."""
        view, tail, ends = await self._view(name), None, None
        for _ in range(_TRIES):
            if view is None:
                return None, None, None
            if view.topic_id != await self._may_read(name):
                raise SqlRefused(f"{name}: {_OF_AN_EARLIER}")
            ends = await self._ends(name)
            if self._tails is None:
                return view, None, ends
            tail = await self._tails.read(view, self._as_of_ms, ends)
            ends = None if self._as_of_ms is None else tail.ends
            again = await self._view(name) if tail.batches else view
            if again is None or again.metadata_location == view.metadata_location:
                break
            view = again
        return view, tail, ends

    async def _view(self, name: str) -> TableView | None:
        try:
            found = await self._source.rows_view(name)
        except TablesError as error:
            raise SqlRefused(str(error)) from error
        return await self._tails.no_table(name) if found is None and self._tails is not None else found

    async def _ends(self, name: str) -> Mapping[int, int] | None:
        if self._as_of_ms is None:
            return None
        try:
            found = await table_as_of(self._source, name, self._as_of_ms)
        except TablesError as error:
            raise SqlRefused(str(error)) from error
        if found is None and self._tails is not None:
            return None  # the times of the records say it
        if found is None:
            raise SqlRefused(no_snapshot_then(name))
        return found.ends

    def _source_of(
        self,
        views: object,
        view: TableView,
        number: int,
        ends: Mapping[int, int] | None,
        tail: Tail | None,
    ) -> QuerySource:
        rows = as_arrow(tail)
        rest = f"dray_tail_{number}" if rows else None
        is_plain = self._locations.is_local or not view.files
        name = None if is_plain else f"dray_files_{number}"
        starts = None if tail is None else tail.starts
        made: str = views.view_statement(  # type: ignore[attr-defined]
            view, self._locations, name, ends, starts, rest
        )
        if name is None:
            paths = [location.removeprefix("file://") for location in view.files]
            return QuerySource(made, paths, tail_name=rest or "", tail=rows)
        return QuerySource(
            made, (), name, view.files, dict(self._locations.properties), tail_name=rest or "", tail=rows
        )


def as_arrow(tail: Tail | None) -> str:
    """The rows as a stream of Arrow, in base64; empty where there are none."""
    if tail is None or not tail.batches:
        return ""
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, tail.batches[0].schema) as stream:
        for batch in tail.batches:
            stream.write_batch(batch)
    return b64encode(sink.getvalue()).decode()


@dataclass(frozen=True)
class ClusterTables:
    """The tables of a cluster, for who looks at it."""

    source: TableSource
    locations: Locations
    queries: SqlQueries
    why_not: Callable[[str], Awaitable[str | None]]
    """Why a topic has no table, by what the config and the topic say; None where nothing is against it."""
    tails: TopicTails | None = None
