"""`drayd compactor --once` on Spark as it is run elsewhere than in its own process: under `spark-submit`, on
a standalone cluster, and through Spark Connect. Each of them is real, from pyspark's own distribution."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog
from tests.services.dray import DrayProcess, drayd_path
from tests.services.spark_cluster import (
    SPARK_HOME,
    SparkConnect,
    SparkMaster,
    SparkWorker,
    spark_environment,
)
from tests.services.tools import require_tool

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

RECORDS = 2000
PARTITIONS = 4
PATIENCE_SECONDS = 600


@dataclass
class CompactorResult:
    code: int
    said: str


@pytest.fixture(autouse=True)
def java() -> None:
    require_tool("java")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The data directory of a broker that has ended: compactors need none."""
    settings = {"DRAY_TOPICS__PARTITIONS": str(PARTITIONS)}
    with DrayProcess(tmp_path, settings=settings) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(RECORDS):
            producer.produce("orders", f"value {number}", str(number), number % PARTITIONS)
        assert producer.flush(60) == 0
    return broker.data_directory


def compact(
    log: Path,
    *arguments: str,
    program: Sequence[str] = (str(drayd_path()),),
    settings: Mapping[str, str] | None = None,
) -> CompactorResult:
    done = subprocess.run(
        [*program, "compactor", "--once", "--data-dir", str(log), *arguments],
        env=spark_environment() | dict(settings or {}),
        cwd=log.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return CompactorResult(done.returncode, done.stdout + done.stderr)


def check(log: Path, done: CompactorResult) -> None:
    assert done.code == 0, done.said
    assert f"compacted {RECORDS:,} records into {PARTITIONS} files" in done.said
    catalog = load_catalog("dray", type="sql", uri=f"sqlite:///{log / 'catalog.sqlite'}")
    rows: list[dict[str, Any]] = catalog.load_table("dray.orders").scan().to_arrow().to_pylist()
    found = {(row["partition"], row["offset"]): row["value"] for row in rows}
    assert len(rows) == len(found) == RECORDS
    for number in range(RECORDS):
        at = (number % PARTITIONS, number // PARTITIONS)
        assert found[at] == f"value {number}".encode()


def test_a_standalone_cluster(log: Path, tmp_path: Path) -> None:
    with SparkMaster(tmp_path / "master") as master, SparkWorker(tmp_path / "worker", master) as worker:
        check(log, compact(log, "--spark-master", master.url))
        assert "Asked to launch executor" in worker.log_tail(1000), "the work was done there"


def test_under_spark_submit(log: Path, tmp_path: Path) -> None:
    """Its session is used, settings and all; the two lines are those of the docs."""
    program = tmp_path / "drayd.py"
    program.write_text("from dray.cli.main import main\n\nmain()\n")
    submit = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        "--master",
        "local[2]",
        "--name",
        "ours",
        str(program),
    ]
    done = compact(log, program=submit, settings={"PYSPARK_PYTHON": sys.executable})
    check(log, done)


def test_through_spark_connect(log: Path, tmp_path: Path) -> None:
    with SparkConnect(tmp_path / "connect") as server:
        check(log, compact(log, "--spark-master", server.url))
        assert server.alive, "its session ends, and not the server"


def test_workers_that_lack_dray(log: Path, tmp_path: Path) -> None:
    """As on a machine where nobody installed it: one line, and the log is as it was."""
    venv.create(tmp_path / "bare")
    bare = str(tmp_path / "bare" / "bin" / "python")
    for python in (bare, str(tmp_path / "nowhere")):
        settings = {"DRAY_SPARK__CONF": json.dumps({"spark.pyspark.python": python})}
        done = compact(log, "--spark-master", "local[1]", settings=settings)
        assert done.code == 1
        [line] = [line for line in done.said.splitlines() if line.startswith("drayd: ")]
        assert f"the Python of its workers, {python}, is not there or lacks dray: install it on every" in line
        assert "Traceback" not in done.said
    check(log, compact(log, "--spark-master", "local[1]"))
