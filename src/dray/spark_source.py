"""The name by which Spark's users import the source: `from dray.spark_source import register`."""

from dray.tables.spark_source import register

__all__ = ["register"]
