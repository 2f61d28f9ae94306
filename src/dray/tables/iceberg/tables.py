"""The tables of topics: the port of `dray.tables.contract`, answered with pyiceberg.

Library calls block, so they run in threads; what is decided between them is decided here. The order inside
of `commit` is the whole of its safety, see `docs/design/0052-iceberg-commits.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

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

from dray.runtime import Runtime
from dray.tables.contract import (
    CommitOutcome,
    MaintenanceResult,
    StillOurs,
    TableChange,
    TableMissing,
    TableRefused,
    TableState,
    TablesUnavailable,
    TopicTable,
)
from dray.tables.iceberg import identity
from dray.tables.iceberg.aws import require_boto3
from dray.tables.iceberg.catalogs import answering, open_catalog
from dray.tables.iceberg.history import jobs_in
from dray.tables.iceberg.locations import Locations, table_path
from dray.tables.iceberg.maintenance import delete_files, forgotten_versions, metadata_of, plan_expiry
from dray.tables.iceberg.manifests import KnownPaths, read_list
from dray.tables.iceberg.reading import TableView, ends_of, snapshots, view
from dray.tables.iceberg.schema import COLUMNS, find_spec, partition_spec, properties
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.snapshots import CommitIds, CommitPreparation, PreparedCommit
from dray.tables.snapshots import TableSnapshot

T = TypeVar("T")

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
        self._known = KnownPaths()
        self._opened: Catalog | None = None
        self._opening = asyncio.Lock()

    # --- the port

    async def ensure(self, topic: TopicTable) -> TableState:
        table = await self._call(self._find, topic)
        created = table is None
        if table is None:
            table = await self._call(self._create, topic)
        self._check(topic, table)
        mended = identity.mended_properties(table.metadata)
        if mended:
            _log.warning("table properties set back", table=".".join(table.name()), properties=sorted(mended))
            await self._call(self._set_properties, table, mended)
        return TableState(table.metadata.table_uuid, table.location(), created)

    async def commit(
        self, topic: TopicTable, changes: Sequence[TableChange], still_ours: StillOurs
    ) -> dict[str, CommitOutcome]:
        outcomes: dict[str, CommitOutcome] = {}
        for _ in range(ROUNDS):
            table = await self._load(topic)
            self._check(topic, table)
            # After the table was loaded: a job that another finishes from here on moves the table's snapshot.
            for change in changes:
                if change.job not in outcomes and not await still_ours(change):
                    outcomes[change.job] = CommitOutcome.NOT_OURS
            there = jobs_in(table.metadata)
            for change in changes:
                if change.job not in outcomes and change.job in there:
                    outcomes[change.job] = CommitOutcome.COMMITTED
            left = [change for change in changes if change.job not in outcomes]
            if not left:
                return outcomes
            if await self._commit_once(topic, table, left):
                return outcomes | dict.fromkeys((change.job for change in left), CommitOutcome.COMMITTED)
        there = jobs_in((await self._load(topic)).metadata)
        for change in changes:
            if change.job not in outcomes:
                landed = change.job in there
                outcomes[change.job] = CommitOutcome.COMMITTED if landed else CommitOutcome.LOST_RACE
        return outcomes

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
        return await self._call(self._topics)

    async def drop(self, topic: TopicTable) -> bool:
        return await self._call(self._drop, topic)

    # --- for readers

    async def load(self, topic: str) -> Table | None:
        """The table under the topic's name, if it is one of this cluster."""
        return await self._call(self._find_named, topic)

    async def view(self, topic: str) -> TableView | None:
        """The same as its readers see it."""
        return await self._call(self._view, topic)

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
        async with self._opening:
            if self._opened is None:
                self._opened = await self._runtime.in_thread(open_catalog, self._settings, self._locations)
            return self._opened

    async def _call(self, function: Callable[..., T], *arguments: object) -> T:
        catalog = await self._catalog()

        def guarded() -> T:
            with answering(f"the {self._settings.kind} catalog or the store of its tables failed"):
                return function(catalog, *arguments)

        return await self._runtime.in_thread(guarded)

    async def _load(self, topic: TopicTable) -> Table:
        table = await self._call(self._find, topic)
        if table is None:
            raise TableMissing(
                f"table {self._name(topic.topic)}: there is none; it was dropped, or never made"
            )
        return table

    def _check(self, topic: TopicTable, table: Table) -> None:
        reason = identity.why_refused(table.metadata, topic, self._cluster_id)
        if reason is not None:
            raise TableRefused(f"table {self._name(topic.topic)}: {reason}")

    async def _commit_once(self, topic: TopicTable, table: Table, changes: Sequence[TableChange]) -> bool:
        """True if the commit is known to be in the table. If not, it may still arrive. But it asserts a
        snapshot, and the next round either competes for the same snapshot or finds it replaced."""
        prepared = await self._call(self._prepare, topic, table, changes)
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
        table = self._load_named(catalog, topic)
        if table is None or identity.topic_of(table.metadata, self._cluster_id) is None:
            return None
        return table

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

    def _prepare(
        self, _: Catalog, topic: TopicTable, table: Table, changes: Sequence[TableChange]
    ) -> PreparedCommit:
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
            return preparation.prepare(changes)
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
        found: set[str] = set()
        seen: set[str] = set()
        current = table.current_snapshot()
        for snapshot in table.metadata.snapshots if of_all_snapshots else [current] if current else []:
            for manifest in read_list(table.io, snapshot.manifest_list):
                if manifest.manifest_path not in seen:
                    seen.add(manifest.manifest_path)
                    found |= self._known.of(manifest, table.io)
        paths = (self._locations.path_of(location) for location in found)
        return {path for path in paths if path is not None}

    def _live_metadata(self, catalog: Catalog, topic: TopicTable) -> set[str] | None:
        table = self._find(catalog, topic)
        if table is None or not identity.is_of(table.metadata, topic, self._cluster_id):
            return None
        metadata = table.metadata
        locations = metadata_of(metadata.snapshots, table.io) | {table.metadata_location}
        locations |= {entry.metadata_file for entry in metadata.metadata_log}
        locations |= {statistics.statistics_path for statistics in metadata.statistics}
        locations |= {statistics.statistics_path for statistics in metadata.partition_statistics}
        paths = (self._locations.path_of(location) for location in locations)
        return {path for path in paths if path is not None}

    def _expire(
        self, catalog: Catalog, table: Table, unfinished: set[str], older_than_ms: int
    ) -> MaintenanceResult:
        expiry = plan_expiry(table, unfinished, older_than_ms)
        if expiry is None:
            return MaintenanceResult()
        try:
            self._send(catalog, table, expiry.requirements, expiry.updates)
        except CommitFailedException:
            return MaintenanceResult()  # a commit came in between: next time
        return MaintenanceResult(len(expiry.snapshot_ids), delete_files(table.io, expiry.files))

    def _topics(self, catalog: Catalog) -> list[TopicTable]:
        try:
            identifiers = catalog.list_tables(self._settings.namespace_parts)
        except NoSuchNamespaceError:
            return []
        found = []
        for identifier in identifiers:
            table = self._find_named(catalog, identifier[-1])
            topic = identity.topic_of(table.metadata, self._cluster_id) if table else None
            if topic is not None:
                found.append(topic)
        return found

    def _drop(self, catalog: Catalog, topic: TopicTable) -> bool:
        table = self._find(catalog, topic)
        if table is None or not identity.is_of(table.metadata, topic, self._cluster_id):
            return False
        try:
            catalog.drop_table(self._settings.identifier(topic.topic))
        except NoSuchTableError:
            return False
        return True
