"""The log as a Spark data source: `spark.read.format("dray")` and `spark.readStream.format("dray")`.

    from dray.spark_source import register
    register(spark)
    spark.read.format("dray").option("bootstrap.servers", "127.0.0.1:9092").load("orders")

It reads by Kafka's protocol what a consumer would read, the newest records included, and works on Apache
Kafka too. `docs/spark-source.md` lists the options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make the format `dray` known to a session, and let filters reach it: without that setting Spark refuses
    sources that take filters."""
    from dray.tables.spark_source.source import DraySource

    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(DraySource)


__all__ = ["PUSHDOWN", "register"]
