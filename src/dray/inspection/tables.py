"""A topic's table beside its log: columns, snapshots, how far each partition reaches; its files, for SQL."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from dray.inspection.groups import TimeOf
from dray.inspection.snapshots import SnapshotSource, table_as_of, table_history
from dray.inspection.sql_queries import QuerySource, SqlQueries, SqlRefused
from dray.inspection.topics import InspectedTopic
from dray.tables.contract import TablesError
from dray.tables.iceberg.locations import Locations
from dray.tables.snapshots import TableSnapshot

if TYPE_CHECKING:
    from dray.tables.iceberg.reading import TableView

SHOWN_SNAPSHOTS: Final = 50
_TIMED: Final = 32

MayRead: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Why a topic's rows may not be read here; None where they may."""


class TableSource(SnapshotSource, Protocol):
    """Where tables are read: `IcebergTables`."""

    async def view(self, topic: str) -> TableView | None: ...


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
    """What the log holds now,"""
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


class TableQueries:
    """The tables that a query names, as what DuckDB reads."""

    def __init__(
        self, source: TableSource, locations: Locations, may_read: MayRead, as_of_ms: int | None = None
    ) -> None:
        """`as_of_ms`: the tables as they were then, but for rows that were deleted since."""
        self._as_of_ms = as_of_ms
        self._source = source
        self._locations = locations
        self._may_read = may_read
        self.needs_network = not locations.is_local

    async def sources(self, names: Sequence[str]) -> list[QuerySource]:
        # pyiceberg comes with it: a console loads that only for the first query.
        from dray.tables.iceberg import duckdb_views

        found = []
        for number, name in enumerate(names):
            try:
                view = await self._source.view(name)
            except TablesError as error:
                raise SqlRefused(str(error)) from error
            if view is None:
                continue  # a name that the query makes itself, or a mistake: DuckDB says so
            refused = await self._may_read(name)
            if refused is not None:
                raise SqlRefused(refused)
            ends = await self._ends(name)
            try:
                found.append(self._source_of(duckdb_views, view, number, ends))
            except duckdb_views.QueryRefused as error:
                raise SqlRefused(str(error)) from error
        return found

    async def _ends(self, name: str) -> Mapping[int, int] | None:
        if self._as_of_ms is None:
            return None
        try:
            found = await table_as_of(self._source, name, self._as_of_ms)
        except TablesError as error:
            raise SqlRefused(str(error)) from error
        if found is None:
            raise SqlRefused(
                f"{name} has no snapshot from then: it was made later, or its snapshot has expired "
                "(iceberg.keep_snapshots)"
            )
        return found.ends

    def _source_of(
        self, views: object, view: TableView, number: int, ends: Mapping[int, int] | None
    ) -> QuerySource:
        make = views.view_statement  # type: ignore[attr-defined]
        if self._locations.is_local or not view.files:
            paths = [location.removeprefix("file://") for location in view.files]
            return QuerySource(make(view, self._locations, None, ends), paths)
        name = f"dray_files_{number}"
        return QuerySource(
            make(view, self._locations, name, ends), (), name, view.files, dict(self._locations.properties)
        )


@dataclass(frozen=True)
class ClusterTables:
    """The tables of a cluster, for who looks at it."""

    source: TableSource
    locations: Locations
    queries: SqlQueries
    why_not: Callable[[str], Awaitable[str | None]]
    """Why a topic has no table, by what the config and the topic say; None where nothing is against it."""
