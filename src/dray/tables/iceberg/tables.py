"""The tables of topics: the port of `dray.tables.contract`, answered with pyiceberg.

Library calls block, so they run in threads; what is decided between them is decided here. The order inside
of `commit` is the whole of its safety, see `docs/design/0052-iceberg-commits.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from pydantic import ValidationError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchIcebergTableError,
    NoSuchNamespaceError,
    NoSuchPropertyException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.table.update import AssertTableUUID, SetPropertiesUpdate, TableRequirement, TableUpdate

from dray.base.runtime import Runtime, gather_some, side_by_side
from dray.tables.contract import (
    CommitOutcome,
    LogFiles,
    MaintenanceResult,
    StillOurs,
    TableChange,
    TableChanged,
    TableMissing,
    TableRefused,
    TableSnapshot,
    TableState,
    TablesUnavailable,
    TableUnreadable,
    TopicTable,
)
from dray.tables.iceberg import identity
from dray.tables.iceberg.aws import require_boto3
from dray.tables.iceberg.catalogs import answering, open_catalog, readable, set_columns
from dray.tables.iceberg.identity import TOPIC_HERE, divergence, jobs_in
from dray.tables.iceberg.locations import Locations, table_path
from dray.tables.iceberg.maintenance import delete_files, forgotten_versions, metadata_of, plan_expiry
from dray.tables.iceberg.manifests import KnownManifests
from dray.tables.iceberg.patient_calls import PatientCalls
from dray.tables.iceberg.reading import SnapshotFiles, ends_of, rows_in, snapshot_files, snapshots, view
from dray.tables.iceberg.schema import COLUMNS, find_spec, partition_spec, properties
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.snapshots import CommitIds, CommitPreparation, PreparedCommit
from dray.tables.iceberg.view import TableView

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
Prepare = Callable[[CommitPreparation], PreparedCommit]

ROUNDS: Final = 3
"""How often a commit starts anew, from loading the table, when another one came first."""
METADATA_VERSIONS: Final = 20

_log = structlog.get_logger(__name__)


class IcebergTables:
    def __init__(
        self, settings: CatalogSettings, locations: Locations, cluster_id: str, runtime: Runtime
    ) -> None:
        require_boto3(settings)
        self._settings = settings
        self._locations = locations
        self._cluster_id = cluster_id
        self._runtime = runtime
        self._known = KnownManifests()
        self._opened: Catalog | None = None
        self._opened_with = 0
        self._opening = asyncio.Lock()
        self._what = f"the {settings.kind} catalog or the store of its tables"
        self._calls = PatientCalls(self._what, settings.timeout_seconds, runtime)

    # --- the port

    async def ensure(self, topic: TopicTable) -> TableState:
        table = await self._call(self._find, topic)
        created = table is None
        if table is None:
            table = await self._call(self._create, topic)
        numbered = identity.numbered_otherwise(table.metadata, topic, self._cluster_id)
        if numbered and await self._call(set_columns, table, COLUMNS):
            table = await self._load(topic)
        if await self._mend(topic, table):
            table = await self._load(topic)
        self._check(topic, table)
        return TableState(table.metadata.table_uuid, table.location(), created)

    async def version(self, topic: TopicTable) -> str | None:
        table = await self._call(self._find, topic)
        if table is None or not identity.is_of(table.metadata, topic, self._cluster_id):
            return None
        return table.metadata_location

    async def guard(self, topic: TopicTable) -> bool:
        table = await self._call(self._find, topic)
        return table is not None and await self._mend(topic, table)

    async def _mend(self, topic: TopicTable, table: Table) -> bool:
        place = self._locations.location_of(table_path(topic.topic, topic.topic_id))
        mended = identity.mended_properties(table.metadata, topic, self._cluster_id, place)
        if not mended:
            return False
        _log.warning("table properties set back", table=".".join(table.name()), properties=sorted(mended))
        await self._call(self._set_properties, table, mended)
        return True

    async def commit(
        self, topic: TopicTable, changes: Sequence[TableChange], still_ours: StillOurs
    ) -> dict[str, CommitOutcome]:
        outcomes: dict[str, CommitOutcome] = {}
        for _ in range(ROUNDS):
            table = await self._load(topic)
            if await self._mend(topic, table):
                table = await self._load(topic)
            self._check(topic, table)
            # After the table was loaded: a job that another finishes from here on moves the table's snapshot.
            asked = [change for change in changes if change.job not in outcomes]
            ours = await side_by_side(_ask(still_ours, change) for change in asked)
            outcomes |= {
                change.job: CommitOutcome.NOT_OURS
                for change, is_ours in zip(asked, ours, strict=True)
                if not is_ours
            }
            there = jobs_in(table.metadata)
            for change in changes:
                if change.job not in outcomes and change.job in there:
                    outcomes[change.job] = CommitOutcome.COMMITTED
            left = [change for change in changes if change.job not in outcomes]
            if not left:
                return outcomes
            if await self._commit_once(topic, table, lambda made, left=left: made.prepare(left)):  # type: ignore[misc]
                return outcomes | dict.fromkeys((change.job for change in left), CommitOutcome.COMMITTED)
        there = jobs_in((await self._load(topic)).metadata)
        for change in changes:
            if change.job not in outcomes:
                landed = change.job in there
                outcomes[change.job] = CommitOutcome.COMMITTED if landed else CommitOutcome.LOST_RACE
        return outcomes

    async def put_back(self, topic: TopicTable, change: str, files: LogFiles) -> bool:
        for _ in range(ROUNDS):
            table = await self._call(self._find, topic)
            if table is None:
                return False
            self._check_usable(topic, table)
            if divergence(table.metadata, self._cluster_id) is None:
                return False
            wanted = await files()  # after the table was loaded: a job that commits meanwhile replaces it
            if wanted is None:
                return False
            if await self._commit_once(topic, table, lambda made: made.put_back(change, wanted)):  # noqa: B023
                return True
        return False

    async def committed(self, topic: TopicTable, jobs: Sequence[str]) -> set[str]:
        table = await self._call(self._find, topic)
        if table is None or not identity.is_of(table.metadata, topic, self._cluster_id):
            return set()
        return jobs_in(table.metadata) & set(jobs)

    async def live_files(self, topic: TopicTable) -> set[str] | None:
        return await self._call(self._files, topic, True)

    async def current_files(self, topic: TopicTable) -> set[str] | None:
        return await self._call(self._files, topic, False)

    async def live_metadata(self, topic: TopicTable) -> set[str] | None:
        """The paths of all metadata files that the topic's table needs; None if there is no table of this
        topic (id). Any other file that has been below the table's folder for long is garbage."""
        return await self._call(self._live_metadata, topic)

    async def maintain(
        self, topic: TopicTable, unfinished_jobs: Sequence[str], older_than_ms: int
    ) -> MaintenanceResult:
        table = await self._call(self._find, topic)
        if table is None or not identity.is_of(table.metadata, topic, self._cluster_id):
            return MaintenanceResult()
        # A table that another program changed keeps its history: that is needed to set it back.
        self._check(topic, table)
        return await self._call(self._expire, table, set(unfinished_jobs), older_than_ms)

    async def topics(self) -> list[TopicTable]:
        names = await self._call(self._names)
        found = await gather_some(self._named(name) for name in names)
        return [topic for topic in found if topic is not None]

    async def _named(self, name: str) -> TopicTable | None:
        """One that cannot be read is no reason to pass over all others."""
        try:
            return await self._call(self._topic_of, name)
        except TableUnreadable as error:
            _log.warning("a table is passed over", reason=str(error))
            return None

    async def drop(self, topic: TopicTable) -> bool:
        return await self._call(self._drop, topic)

    async def drop_unreadable(self, topic: str) -> bool:
        """Take what is under the topic's name out of the catalog, if it cannot be read: whose it is is not
        known then. No file is deleted."""
        try:
            await self._call(self._load_named, topic)
        except TableUnreadable:
            await self._call(lambda catalog: catalog.drop_table(self._settings.identifier(topic)))
            return True
        return False

    # --- for readers

    async def load(self, topic: str) -> Table | None:
        """The table under the topic's name, if it is of a topic of this cluster with that very name."""
        return await self._call(self._find_named, topic)

    async def view(self, topic: str) -> TableView | None:
        """The same as its readers see it."""
        return await self._call(self._view, topic)

    async def snapshot_files(self, topic: str) -> SnapshotFiles | None:
        """The log's files that it has, with their offsets."""

        def read(catalog: Catalog) -> SnapshotFiles | None:
            table = self._find_named(catalog, topic)
            return None if table is None else snapshot_files(table, self._cluster_id)

        return await self._call(read)

    async def trouble_of(self, topic: TopicTable) -> str | None:
        """Why what lies under the topic's name is not written; None where it is, or where nothing is. Reads
        the newest snapshot: a commit does, too."""
        try:
            table = await self._call(self._find, topic)
            if table is None:
                return None
            refused = identity.why_refused(table.metadata, topic, self._cluster_id)
            if refused is None:
                await self._call(self._files, topic, False)
            return refused
        except (TableRefused, TableUnreadable) as error:
            return str(error)

    async def rows(self, topic: str, partition: int, start: int, end: int) -> pyarrow.Table | None:
        """The rows that the table still has of a range of offsets; None if there is no table."""

        def read(catalog: Catalog) -> pyarrow.Table | None:
            table = self._find_named(catalog, topic)
            return None if table is None else rows_in(table, partition, start, end)

        return await self._call(read)

    async def snapshots(self, topic: str) -> list[TableSnapshot] | None:
        """Its history, newest first; None where there is no table of this cluster."""
        return await self._call(self._snapshots, topic)

    async def ends_of(self, topic: str, snapshot_id: int) -> Mapping[int, int] | None:
        """Per partition, the offset up to which that snapshot holds the log; None where there is no such
        snapshot any more."""
        return await self._call(self._ends_of, topic, snapshot_id)

    async def close(self) -> None:
        if self._opened is not None:
            await self._runtime.in_thread(self._opened.close)
            self._opened = None

    # --- in the event loop

    async def _catalog(self) -> Catalog:
        """Opened anew when the credentials of the store have changed: what a table's files are read with is
        made with its catalog."""
        async with self._opening:
            access = await self._runtime.in_thread(self._read_access)
            if self._opened is None or access != self._opened_with:
                self._opened = await self._calls.run(open_catalog, self._settings, self._locations)
                self._opened_with = access
            return self._opened

    def _read_access(self) -> int:
        """A number that changes with the credentials. Unreadable ones change nothing."""
        try:
            return hash(frozenset(self._locations.properties.items()))
        except ValueError as error:
            if self._opened is None:
                raise TablesUnavailable(str(error)) from error
            return self._opened_with

    async def _call(self, function: Callable[..., T], *arguments: object) -> T:
        catalog = await self._catalog()

        def guarded() -> T:
            with answering(f"{self._what} failed"), readable(*self._words_of(arguments)):
                return function(catalog, *arguments)

        return await self._calls.run(guarded)

    def _words_of(self, arguments: Sequence[object]) -> tuple[str, str]:
        """The subject of a call, and the advice to give if that stays unreadable."""
        name = next((name for each in arguments if (name := _name_in(each)) is not None), None)
        if name is None:
            return "a table", "drayd admin table says which"
        rebuild = identity.REBUILD.replace(TOPIC_HERE, name)
        return f"table {self._name(name)}", f"the log is as it was; if this stays so, {rebuild}"

    async def _load(self, topic: TopicTable) -> Table:
        table = await self._call(self._find, topic)
        if table is None:
            raise TableMissing(
                f"table {self._name(topic.topic)}: there is none; it was dropped, or never made"
            )
        return table

    def _check(self, topic: TopicTable, table: Table) -> None:
        self._check_usable(topic, table)
        changed = identity.why_changed(table.metadata, topic, self._cluster_id)
        if changed is not None:
            line = f"table {self._name(topic.topic)}: {changed.line}"
            raise TableChanged(line, rows_changed=changed.rows_changed)

    def _check_usable(self, topic: TopicTable, table: Table) -> None:
        reason = identity.why_unusable(table.metadata, topic, self._cluster_id)
        if reason is not None:
            raise TableRefused(f"table {self._name(topic.topic)}: {reason}")

    async def _commit_once(self, topic: TopicTable, table: Table, prepare: Prepare) -> bool:
        """True if the commit is known to be in the table. If not, it may still arrive. But it asserts a
        snapshot, and the next round either competes for the same snapshot or finds it replaced."""
        prepared = await self._call(self._prepare, topic, table, prepare)
        try:
            await self._call(self._send, table, prepared.requirements, prepared.updates)
        except CommitFailedException:
            # A clear no. But it may answer a copy of our own request: then our files are in use.
            after = await self._load(topic)
            if after.metadata.snapshot_by_id(prepared.snapshot_id) is None:
                await self._call(self._discard, table, prepared)
                return False
            return True
        except TablesUnavailable as failure:
            _log.warning(
                "the outcome of a table commit is looked up",
                table=self._name(topic.topic),
                reason=str(failure),
            )
            after = await self._load(topic)
            return after.metadata.snapshot_by_id(prepared.snapshot_id) is not None
        return True

    def _name(self, topic: str) -> str:
        return ".".join(self._settings.identifier(topic))

    # --- in a thread

    def _find(self, catalog: Catalog, topic: TopicTable) -> Table | None:
        return self._load_named(catalog, topic.topic)

    def _load_named(self, catalog: Catalog, topic: str) -> Table | None:
        try:
            return catalog.load_table(self._settings.identifier(topic))
        except (NoSuchIcebergTableError, NoSuchPropertyException) as error:
            # Glue keeps tables of all kinds under the same names.
            raise TableRefused(
                f"table {self._name(topic)}: it is no Iceberg table; "
                "rename or drop it, or choose another iceberg.namespace"
            ) from error
        except (NoSuchTableError, NoSuchNamespaceError):
            return None

    def _find_named(self, catalog: Catalog, topic: str) -> Table | None:
        """A catalog may take names for one that differ in case alone, as Glue does."""
        table = self._load_named(catalog, topic)
        if table is None:
            return None
        found = identity.topic_of(table.metadata, self._cluster_id)
        return table if found is not None and found.topic == topic else None

    def _view(self, catalog: Catalog, topic: str) -> TableView | None:
        table = self._find_named(catalog, topic)
        return None if table is None else view(table, self._cluster_id)

    def _snapshots(self, catalog: Catalog, topic: str) -> list[TableSnapshot] | None:
        table = self._find_named(catalog, topic)
        return None if table is None else snapshots(table, self._cluster_id)

    def _ends_of(self, catalog: Catalog, topic: str, snapshot_id: int) -> Mapping[int, int] | None:
        table = self._find_named(catalog, topic)
        return None if table is None else ends_of(table, snapshot_id)

    def _create(self, catalog: Catalog, topic: TopicTable) -> Table:
        identifier = self._settings.identifier(topic.topic)
        if not catalog.namespace_exists(identifier[:-1]):
            try:
                catalog.create_namespace(identifier[:-1])
            except Exception:  # another process made it just now; each catalog has its own error for that
                if not catalog.namespace_exists(identifier[:-1]):
                    raise
        try:
            return catalog.create_table(
                identifier,
                COLUMNS,
                location=self._locations.location_of(table_path(topic.topic, topic.topic_id)),
                partition_spec=partition_spec(topic.day_partitioned),
                properties=properties(topic.topic, topic.topic_id, self._cluster_id, METADATA_VERSIONS),
            )
        except TableAlreadyExistsError:
            return catalog.load_table(identifier)
        except ValidationError:
            raise  # an answer that is not valid
        except ValueError as error:
            raise TableRefused(
                f"table {self._name(topic.topic)}: the catalog does not make it: {error}"
            ) from error

    def _set_properties(self, catalog: Catalog, table: Table, mended: dict[str, str]) -> None:
        requirements = (AssertTableUUID(uuid=table.metadata.table_uuid),)
        try:
            self._send(catalog, table, requirements, (SetPropertiesUpdate(updates=mended),))
        except CommitFailedException as error:
            raise TablesUnavailable(
                f"table {'.'.join(table.name())}: its properties were not set back: {error}"
            ) from error

    def _prepare(self, _: Catalog, topic: TopicTable, table: Table, prepare: Prepare) -> PreparedCommit:
        spec = find_spec(table.metadata, topic.day_partitioned)
        assert spec is not None  # `why_refused` has seen it
        random = self._runtime.random
        preparation = CommitPreparation(
            table,
            spec,
            topic.day_partitioned,
            self._locations,
            self._cluster_id,
            self._known,
            CommitIds(
                str(self._runtime.uuid()),
                (random.getrandbits(62) + 1, random.getrandbits(62) + 1, random.getrandbits(62) + 1),
                self._runtime.wall_ms(),
            ),
        )
        try:
            return prepare(preparation)
        except Exception:
            delete_files(table.io, preparation.written)
            raise

    def _send(
        self,
        catalog: Catalog,
        table: Table,
        requirements: tuple[TableRequirement, ...],
        updates: tuple[TableUpdate, ...],
    ) -> None:
        response = catalog.commit_table(table, requirements, updates)
        delete_files(table.io, forgotten_versions(table.metadata, response.metadata))

    def _discard(self, _: Catalog, table: Table, prepared: PreparedCommit) -> None:
        delete_files(table.io, prepared.written)

    def _files(self, catalog: Catalog, topic: TopicTable, of_all_snapshots: bool) -> set[str] | None:
        table = self._find(catalog, topic)
        if table is None or not identity.is_of(table.metadata, topic, self._cluster_id):
            return None
        current = table.current_snapshot()
        snapshots = table.metadata.snapshots if of_all_snapshots else [current] if current else []
        found = self._known.files(table.io, [snapshot.manifest_list for snapshot in snapshots])
        paths = (self._locations.path_of(location) for location in found)
        return {path for path in paths if path is not None}

    def _live_metadata(self, catalog: Catalog, topic: TopicTable) -> set[str] | None:
        table = self._find(catalog, topic)
        if table is None or not identity.is_of(table.metadata, topic, self._cluster_id):
            return None
        metadata = table.metadata
        locations = metadata_of(metadata.snapshots, table.io, self._known) | {table.metadata_location}
        locations |= {entry.metadata_file for entry in metadata.metadata_log}
        locations |= {statistics.statistics_path for statistics in metadata.statistics}
        locations |= {statistics.statistics_path for statistics in metadata.partition_statistics}
        paths = (self._locations.path_of(location) for location in locations)
        return {path for path in paths if path is not None}

    def _expire(
        self, catalog: Catalog, table: Table, unfinished: set[str], older_than_ms: int
    ) -> MaintenanceResult:
        expiry = plan_expiry(table, unfinished, older_than_ms, self._known)
        if not expiry.snapshot_ids:
            return MaintenanceResult(oldest_ms=expiry.oldest_ms)
        try:
            self._send(catalog, table, expiry.requirements, expiry.updates)
        except CommitFailedException:
            return MaintenanceResult()  # a commit came in between: next time
        deleted = delete_files(table.io, expiry.files)
        return MaintenanceResult(len(expiry.snapshot_ids), deleted, expiry.oldest_ms)

    def _names(self, catalog: Catalog) -> list[str]:
        try:
            return [identifier[-1] for identifier in catalog.list_tables(self._settings.namespace_parts)]
        except NoSuchNamespaceError:
            return []

    def _topic_of(self, catalog: Catalog, name: str) -> TopicTable | None:
        table = self._find_named(catalog, name)
        return None if table is None else identity.topic_of(table.metadata, self._cluster_id)

    def _drop(self, catalog: Catalog, topic: TopicTable) -> bool:
        table = self._find(catalog, topic)
        if table is None or not identity.is_of(table.metadata, topic, self._cluster_id):
            return False
        try:
            catalog.drop_table(self._settings.identifier(topic.topic))
        except NoSuchTableError:
            return False
        return True


def _name_in(argument: object) -> str | None:
    """The topic that an argument of a call is of."""
    if isinstance(argument, TopicTable):
        return argument.topic
    if isinstance(argument, Table):
        return argument.name()[-1]
    return argument if isinstance(argument, str) else None


async def _ask(still_ours: StillOurs, change: TableChange) -> bool:
    return await still_ours(change)
