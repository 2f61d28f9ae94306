"""Spark SQL in a process of its own, asked line by line: a real reader of the tables, with Iceberg's runtime.

Its own process, since one has but one JVM with one set of jars, and the pipeline's tests start another. As a
program it reads one JSON request per line, and answers with one line each: `{"sql": ...}` gives rows, and
`{"stream": table, "checkpoint": directory}` reads what a stream over the table has not seen yet. With
`"format": "dray"` and `"options"` the log itself is read, by our data source.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from ast import literal_eval
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.services.iceberg_rest import require_spark_jars

START_SECONDS = 120
PLACE = ("partition", "offset")


class SparkError(Exception):
    """What Spark said, on one line."""


class SparkSql:
    """`catalogs` are Spark's properties of each catalog, by its name."""

    def __init__(self, directory: Path, catalogs: Mapping[str, Mapping[str, str]]) -> None:
        self.directory = directory
        self.catalogs = catalogs
        self.jars = require_spark_jars() if catalogs else []
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        settings = {"jars": [str(jar) for jar in self.jars], "catalogs": self.catalogs}
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "spark.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.services.spark_sql", json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
        watch = threading.Timer(START_SECONDS, self._process.kill)
        watch.start()
        try:
            self._answer()
        finally:
            watch.cancel()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()  # it ends when there is nothing more to read
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def rows(self, sql: str) -> list[list[Any]]:
        found: list[list[Any]] = self._ask({"sql": sql})
        return found

    def stream(self, table: str, checkpoint: Path, options: Mapping[str, str] = {}) -> list[list[Any]]:
        """Partition and offset of what the stream reads now."""
        asked = {"stream": table, "checkpoint": str(checkpoint), "with": dict(options)}
        found: list[list[Any]] = self._ask(asked)
        return found

    def log(
        self, options: Mapping[str, str], where: str = "true", schema: str | None = None
    ) -> list[list[Any]]:
        """Rows that our data source reads, in order."""
        request = {"format": "dray", "options": options, "where": where, "schema": schema}
        found: list[list[Any]] = self._ask(request)
        return found

    def log_stream(
        self,
        options: Mapping[str, str],
        checkpoint: Path,
        fail: bool = False,
        columns: Sequence[str] = PLACE,
    ) -> list[list[Any]]:
        """Partition and offset of all that a stream over the log has written so far. To `fail` is to lose
        the end of its last batch, as a crash does."""
        request = {"format": "dray", "options": options, "checkpoint": str(checkpoint), "fail": fail}
        request["columns"] = list(columns)
        found: list[list[Any]] = self._ask(request)
        return found

    def log_batches(self, options: Mapping[str, str], checkpoint: Path) -> list[list[Any]]:
        """Of each batch of a run over all there is: its rows, whether it has a speed, how many were left."""
        request = {"format": "dray", "options": options, "checkpoint": str(checkpoint), "batches": True}
        found: list[list[Any]] = self._ask(request)
        return found

    def tasks(self, options: Mapping[str, str], where: str = "true") -> int:
        """How many pieces such a read has."""
        [[count]] = self._ask({"format": "dray", "options": options, "where": where, "count": True})
        return int(count)

    def _ask(self, request: Mapping[str, Any]) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            tail = (self.directory / "spark.log").read_text()[-4000:]
            raise RuntimeError(f"Spark ended:\n{tail}")
        answer = json.loads(line)
        if "error" in answer:
            raise SparkError(answer["error"])
        return answer["rows"]


def _session(jars: list[str], catalogs: Mapping[str, Mapping[str, str]]) -> Any:
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.driver.memory", "512m")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if jars:
        extensions = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        builder = (
            builder.config("spark.jars", ",".join(jars))
            .config("spark.driver.extraClassPath", ":".join(jars))
            .config("spark.sql.extensions", extensions)
        )
    for name, properties in catalogs.items():
        builder = builder.config(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
        for key, value in properties.items():
            builder = builder.config(f"spark.sql.catalog.{name}.{key}", value)
    return builder.getOrCreate()


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {"hex": bytes(value).hex()}
    if hasattr(value, "timestamp"):
        return round(value.timestamp() * 1_000_000)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _written(spark: Any, source: Any, checkpoint: str, columns: Sequence[str] = PLACE) -> list[Any]:
    """Run a stream over what there is now, and give what it and earlier ones wrote."""
    query = (
        source.select(*columns)
        .writeStream.format("parquet")
        .option("checkpointLocation", f"{checkpoint}/checkpoint")
        .option("path", f"{checkpoint}/out")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)
    rows = spark.read.schema(source.select(*columns).schema).parquet(f"{checkpoint}/out").collect()
    return sorted(list(row) for row in rows)


def _batches(source: Any, checkpoint: str) -> list[Any]:
    query = source.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        query.processAllAvailable()
        progress = query.recentProgress
    finally:
        query.stop()
    found = [(each, literal_eval(each["sources"][0]["endOffset"])) for each in progress]
    return [
        [each["numInputRows"], each["processedRowsPerSecond"] > 0, end.get("behind", 0)]
        for each, end in found
        if each["numInputRows"]
    ]


def _lose_last_commit(checkpoint: str) -> None:
    """What is left when the driver dies between the end of a batch and the note that it ended. The file
    sink's own log goes too, or it would know the batch already."""
    for directory in ("checkpoint/commits", "out/_spark_metadata"):
        last = max(int(path.name) for path in Path(checkpoint, directory).iterdir() if path.name.isdigit())
        for path in Path(checkpoint, directory).iterdir():
            if path.name.strip(".").removesuffix(".crc") == str(last):
                path.unlink()


def _of_log(spark: Any, request: Mapping[str, Any]) -> list[Any]:
    if "checkpoint" in request:
        if request.get("batches"):
            source = spark.readStream.format("dray").options(**request["options"]).load()
            return _batches(source, request["checkpoint"])
        if request["fail"]:
            _lose_last_commit(request["checkpoint"])
        source = spark.readStream.format("dray").options(**request["options"]).load()
        return _written(spark, source, request["checkpoint"], request["columns"])
    reader = spark.read.format("dray").options(**request["options"])
    if request.get("schema"):
        reader = reader.schema(request["schema"])
    found = reader.load().where(request["where"])
    if request.get("count"):
        return [[found.rdd.getNumPartitions()]]
    return [_plain(tuple(row)) for row in found.orderBy("partition", "offset").collect()]


def main() -> None:
    from dray.spark_source import register

    settings = json.loads(sys.argv[1])
    spark = _session(settings["jars"], settings["catalogs"])
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    print(json.dumps({"rows": []}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "format" in request:
                rows = _of_log(spark, request)
            elif "stream" in request:
                source = spark.readStream.options(**request["with"]).table(request["stream"])
                rows = _written(spark, source, request["checkpoint"])
            else:
                rows = [_plain(tuple(row)) for row in spark.sql(request["sql"]).collect()]
            print(json.dumps({"rows": rows}), flush=True)
        except Exception as error:  # whatever it is, the test is to hear of it
            print(json.dumps({"error": " ".join(str(error).split())[:4000]}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
