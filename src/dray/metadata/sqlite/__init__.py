"""The embedded engine: one SQLite file, shared by every process of one machine. See `store`."""

from dray.metadata.sqlite.schema import UnusableFile
from dray.metadata.sqlite.store import SqliteSettings, SqliteStore

__all__ = ["SqliteSettings", "SqliteStore", "UnusableFile"]
