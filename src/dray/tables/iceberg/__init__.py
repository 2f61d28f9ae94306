"""Tables for topics: every topic is an Iceberg table of the very files that consumers read.

`IcebergTables` answers the port of `dray.tables.contract`. `docs/design/0052-iceberg-commits.md` says why a
commit is made the way it is, `docs/tables.md` what a reader of the tables needs to know.
"""

from dray.tables.iceberg.settings import CatalogSettings

__all__ = ["CatalogSettings"]
