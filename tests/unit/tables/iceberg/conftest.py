"""Every test of this room has tables in a SQLite catalog of its own."""

from tests.unit.tables.iceberg.harness import files, places, runtime, settings, tables

__all__ = ["files", "places", "runtime", "settings", "tables"]
