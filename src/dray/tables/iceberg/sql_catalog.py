"""A SQL catalog that does not read the same metadata file twice within a commit.

A database has no more than the location of a table's metadata. pyiceberg reads that file when it loads a
table, and loads it again to commit. A metadata file never changes, so what was read a moment ago holds.
"""

from __future__ import annotations

from threading import local

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from dray.tables.iceberg.settings import CATALOG_NAME


class OnceReadingSqlCatalog(SqlCatalog):
    def __init__(self, properties: dict[str, str]) -> None:
        self._committing = local()
        super().__init__(CATALOG_NAME, **properties)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        self._committing.table = table
        try:
            return super().commit_table(table, requirements, updates)
        finally:
            self._committing.table = None

    def _convert_orm_to_iceberg(self, orm_table: IcebergTables) -> Table:
        """Called with the row of a table, to read the rest of it."""
        known: Table | None = getattr(self._committing, "table", None)
        if known is not None and known.metadata_location == orm_table.metadata_location:
            return known
        return super()._convert_orm_to_iceberg(orm_table)
