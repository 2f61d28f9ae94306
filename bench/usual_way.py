"""The usual way from Kafka to Iceberg: Spark Structured Streaming, from the Kafka API, appending to a table.

Run by `bench.compaction` as a process of its own, with a JVM of its own: a warm-up topic first, then the one
that is measured. Prints what it took as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

import psutil
from tests.services.iceberg_rest import require_spark_jars
from tests.services.maven import JarsMissing

from bench.kafka_connector import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = "partition", "offset", "timestamp", "key", "value", "headers"


def open_spark(warehouse: str, cores: int) -> SparkSession:
    from pyspark.sql import SparkSession

    catalog = "spark.sql.catalog.usual"
    builder = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.jars", ",".join(map(str, [*require_spark_jars(), *connector_jars()])))
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config(catalog, "org.apache.iceberg.spark.SparkCatalog")
        .config(f"{catalog}.type", "hadoop")
        .config(f"{catalog}.warehouse", warehouse)
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def copy(spark: SparkSession, bootstrap: str, topic: str, folder: str) -> float:
    """All that the topic holds, into a table partitioned as ours is. Answers seconds."""
    spark.sql(
        f"CREATE TABLE usual.db.{topic} (partition int, offset bigint, timestamp timestamp, key binary, "
        "value binary, headers array<struct<key: string, value: binary>>) USING iceberg "
        "PARTITIONED BY (partition) TBLPROPERTIES ('write.distribution-mode'='none', "
        "'write.parquet.compression-codec'='zstd', 'write.spark.fanout.enabled'='true')"
    )
    began = time.monotonic()
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("kafka.fetch.max.bytes", str(50 << 20))
        .option("kafka.max.partition.fetch.bytes", str(16 << 20))
        .load()
        .select(*COLUMNS)
    )
    query = (
        stream.writeStream.format("iceberg")
        .outputMode("append")
        .trigger(availableNow=True)
        .option("checkpointLocation", f"{folder}/checkpoint-{topic}")
        .toTable(f"usual.db.{topic}")
    )
    query.awaitTermination()
    return time.monotonic() - began


def cpu_seconds() -> float:
    process = psutil.Process()
    return sum(
        times.user + times.system + times.children_user + times.children_system
        for times in (one.cpu_times() for one in [process, *process.children(recursive=True)])
    )


def main() -> None:
    bootstrap, warm_up, topic, folder, cores = sys.argv[1:]
    try:
        spark = open_spark(f"{folder}/warehouse", int(cores))
    except JarsMissing as reason:
        sys.exit(str(reason))
    copy(spark, bootstrap, warm_up, folder)
    before = cpu_seconds()
    seconds = copy(spark, bootstrap, topic, folder)
    used = cpu_seconds() - before
    rows = spark.sql(f"SELECT count(*) AS rows FROM usual.db.{topic}").collect()[0].rows
    print(json.dumps({"seconds": seconds, "cpu_seconds": used, "rows": rows}))
    spark.stop()


if __name__ == "__main__":
    main()
