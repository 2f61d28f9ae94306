"""What a topic's table has, read from its files: history without the brokers.

The log takes over where the table's snapshot ends, so each record is read once. The files are the log's
own: a table that somebody else changed is passed over, and the log read in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from dray.kafka.client.cluster import Place
from dray.kafka.records.arrow import schema
from dray.tables.contract import TablesError
from dray.tables.iceberg.locations import Locations, locations
from dray.tables.iceberg.settings import CatalogSettings, SettingsRefused
from dray.tables.spark_source.ranges import Range, SourceError

if TYPE_CHECKING:
    import pyarrow

    from dray.tables.iceberg.reading import SnapshotFile, SnapshotFiles
    from dray.tables.spark_source.log import TopicLog

PREFIXES: Final = ("iceberg.", "objects.")
_KNOWN: Final = (
    "iceberg.catalog",
    "iceberg.uri",
    "iceberg.namespace",
    "iceberg.warehouse",
    "iceberg.sigv4_region",
    "objects.url",
)
_MAPPINGS: Final = ("iceberg.options.", "iceberg.secrets.", "objects.options.", "objects.secrets.")
_ROWS: Final = 65536


@dataclass(frozen=True)
class TableAccess:
    """How tables and their files are found and opened: by the words of the configuration. It goes to the
    tasks with its secrets."""

    catalog: CatalogSettings = field(repr=False)
    locations: Locations = field(repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> TableAccess | None:
        """None where no option is of tables. Raises `SettingsRefused`, which names the option."""
        given = {name: text for name, text in options.items() if name.startswith(PREFIXES)}
        if not given:
            return None
        for name in given:
            if name not in _KNOWN and not name.startswith(_MAPPINGS):
                known = ", ".join([*_KNOWN, *(f"{prefix}NAME" for prefix in _MAPPINGS)])
                raise SettingsRefused(f"{name}: there is no such option; known: {known}")
        if "objects.url" not in given:
            raise SettingsRefused("objects.url: it is needed: the files of tables are in the object store")
        iceberg_options, iceberg_secrets, store_options, store_secrets = [
            {name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)}
            for prefix in _MAPPINGS
        ]
        kind = given.get("iceberg.catalog", "sql")
        if kind not in ("sql", "rest", "glue"):
            raise SettingsRefused(f"iceberg.catalog: {kind!r} is none of sql, rest, glue")
        catalog = CatalogSettings(
            kind=kind,  # type: ignore[arg-type]  # one of the three
            uri=given.get("iceberg.uri"),
            namespace=given.get("iceberg.namespace", "dray"),
            options=iceberg_options,
            secrets=iceberg_secrets,
            warehouse=given.get("iceberg.warehouse"),
            sigv4_region=given.get("iceberg.sigv4_region"),
        )
        return cls(catalog, locations(given["objects.url"], store_options, store_secrets))

    async def files(self, log: TopicLog) -> dict[str, SnapshotFiles]:
        """Of each topic that has a table."""
        from dray.tables.iceberg.tables import IcebergTables

        topics, cluster_id = await log.topics()
        try:
            tables = IcebergTables(self.catalog, self.locations, cluster_id, log.runtime)
            try:
                found = {topic: await tables.snapshot_files(topic) for topic in sorted(topics)}
            finally:
                await tables.close()
        except SettingsRefused as error:
            raise SourceError(f"option {error}") from error
        except TablesError as error:
            raise SourceError(f"{error}; without the options of tables, all is read from the log") from error
        return {topic: files for topic, files in found.items() if files is not None}

    def rows(self, part: FilePart, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """Its rows with these columns of the log's files, a piece at a time."""
        import pyarrow
        from pyarrow import dataset as ds

        kinds = pyarrow.schema([schema().field(name) for name in columns])
        offset = ds.field("offset")
        try:
            rows = self._dataset(part.location).scanner(
                columns=list(columns),
                filter=(offset >= part.wanted.start) & (offset < part.wanted.end),
                batch_size=_ROWS,
                batch_readahead=2,
                fragment_readahead=1,
            )
            for batch in rows.to_batches():
                if batch.num_rows:
                    yield batch.cast(kinds)
        except OSError as error:
            raise SourceError(
                f"{part.location} cannot be read: {str(error).partition(chr(10))[0]}; ask again: the table "
                "may have let it go meanwhile"
            ) from error

    def _dataset(self, location: str) -> Any:
        if not self.locations.is_local:
            from dray.tables.iceberg.cloud_files import CloudFiles

            return CloudFiles(dict(self.locations.properties)).dataset([location])
        from pyarrow import dataset as ds

        return ds.dataset(location.removeprefix("file://"), format="parquet", partitioning=None)


@dataclass(frozen=True)
class FilePart:
    """The rows of a range that are in one file."""

    location: str
    wanted: Range


def divided(
    ranges: Iterable[Range], starts: Mapping[Place, int], tables: Mapping[str, SnapshotFiles]
) -> tuple[list[FilePart], list[Range]]:
    """What is read from files of tables, and what from the log, which takes over where a table ends. What
    lies below the log's start was deleted, whatever the table still has: the log says what becomes of it."""
    parts: list[FilePart] = []
    rest: list[Range] = []
    for each in ranges:
        table = tables.get(each.topic)
        if table is None:
            rest.append(each)
            continue
        first = max(each.start, min(each.end, starts.get(each.place, 0)))
        border = max(first, min(each.end, table.ends.get(each.partition, 0)))
        parts += _parts(Range(*each.place, first, border), table.files)
        rest += [Range(*each.place, each.start, first), Range(*each.place, border, each.end)]
    return parts, [each for each in rest if not each.is_empty]


def _parts(wanted: Range, files: Sequence[SnapshotFile]) -> list[FilePart]:
    inside = [
        (file, Range(*wanted.place, max(wanted.start, file.start), min(wanted.end, file.end)))
        for file in files
        if file.partition == wanted.partition
    ]
    return [FilePart(file.location, rows) for file, rows in inside if not rows.is_empty]
