"""A compactor that runs on, on a real standalone cluster of two workers and on Spark Connect, in bad
weather: what hangs, what is not there, and what has forgotten it. Each ends within the patience that the
settings give."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Producer
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from tests.services.dray import OPENER, DrayProcess, drayd_path
from tests.services.process import ServerProcess, free_port
from tests.services.spark_cluster import SparkConnect, SparkMaster, SparkWorker, spark_environment
from tests.services.tools import require_tool

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

PARTITIONS = 4
PATIENCE = 20
BOUND_SECONDS = 300.0
DAEMON = "dray.tables.compaction.spark.daemon"


class ClusterCompactor(ServerProcess):
    """`drayd compactor` with its driver here and its work on a cluster."""

    def __init__(self, directory: Path, data: Path, master: str) -> None:
        super().__init__("compactor", directory)
        self._data = data
        self._master = master
        self.port = free_port()

    def command(self) -> Sequence[str]:
        return [str(drayd_path()), "compactor", "--data-dir", str(self._data), "--spark-master", self._master]

    def environment(self) -> Mapping[str, str]:
        return spark_environment() | {
            "DRAY_COMPACTION__HTTP": f"127.0.0.1:{self.port}",
            "DRAY_COMPACTION__INTERVAL": "1s",
            "DRAY_COMPACTION__WAL_MAX_AGE": "0s",
            "DRAY_TEST_KNOB__COMPACTION__TAKEOVER_SECONDS": "1",
            "DRAY_SPARK__PATIENCE": f"{PATIENCE}s",
            "DRAY_SPARK__CONF": json.dumps({"spark.cores.max": "4"}),
        }

    def is_ready(self) -> bool:
        return self.said("/readyz")[0] == 200

    def said(self, path: str) -> tuple[int, str]:
        try:
            with OPENER.open(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except OSError as error:
            read = getattr(error, "read", bytes)
            return getattr(error, "code", 0), read().decode()


@pytest.fixture(autouse=True)
def java() -> None:
    require_tool("java")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DrayProcess]:
    with DrayProcess(tmp_path / "broker", settings={"DRAY_TOPICS__PARTITIONS": str(PARTITIONS)}) as process:
        yield process


def produce(broker: DrayProcess, topic: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(records):
        producer.produce(topic, f"value {number}", str(number), number % PARTITIONS)
    assert producer.flush(60) == 0


def rows(broker: DrayProcess, topic: str) -> int:
    """Of its table; a record that is there twice fails."""
    catalog = load_catalog("dray", type="sql", uri=f"sqlite:///{broker.data_directory / 'catalog.sqlite'}")
    try:
        table = catalog.load_table(f"dray.{topic}").scan().to_arrow()
    except NoSuchTableError:
        return 0
    found = {(row["partition"], row["offset"]) for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return len(found)


def wait_for(what: Callable[[], bool], why: str) -> None:
    until = time.monotonic() + BOUND_SECONDS
    while not what():
        assert time.monotonic() < until, why
        time.sleep(0.5)


def python_workers(cluster: Sequence[SparkWorker]) -> list[psutil.Process]:
    """The forked ones, and not the daemons that fork them."""
    found = []
    for worker in cluster:
        for process in psutil.Process(worker.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                parent = process.parent()
                if parent is not None and DAEMON in process.cmdline() and DAEMON in parent.cmdline():
                    found.append(process)
    return found


def lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_workers_that_hang(broker: DrayProcess, tmp_path: Path) -> None:
    """All Python workers stand still: their tasks are ended and done by others, with nothing there twice."""
    with (
        SparkMaster(tmp_path / "master") as master,
        SparkWorker(tmp_path / "one", master) as one,
        SparkWorker(tmp_path / "two", master) as two,
        ClusterCompactor(tmp_path, broker.data_directory, master.url) as compactor,
    ):
        produce(broker, "orders", 400)
        wait_for(lambda: rows(broker, "orders") == 400, "compacted once")
        hung = python_workers([one, two])
        assert hung
        for process in hung:
            os.kill(process.pid, signal.SIGSTOP)
        produce(broker, "orders", 400)
        produce(broker, "clicks", 400)
        wait_for(lambda: "a worker got no further with" in compactor.said("/readyz")[1], "it is said")
        wait_for(lambda: rows(broker, "orders") == 800 and rows(broker, "clicks") == 400, "all is compacted")
        wait_for(compactor.is_ready, "ready again")
        assert compactor.alive, "one process, all the time"
        assert "dray_compaction_tasks_overdue_total 0" not in compactor.said("/metrics")[1]
        wait_for(lambda: not any(map(lives, hung)), "those that hung have ended")


def test_a_cluster_without_workers(broker: DrayProcess, tmp_path: Path) -> None:
    with (
        SparkMaster(tmp_path / "master") as master,
        ClusterCompactor(tmp_path, broker.data_directory, master.url) as compactor,
    ):
        produce(broker, "orders", 400)
        wait_for(lambda: "no executor has taken a task for" in compactor.said("/readyz")[1], "it is said")
        assert compactor.said("/readyz")[0] == 503
        assert compactor.wait(BOUND_SECONDS) == 1
        assert "drayd: no executor has taken a task for" in compactor.log_tail(3)
        assert "Traceback" not in compactor.log_tail(1000)
        with SparkWorker(tmp_path / "one", master):
            compactor.start(BOUND_SECONDS)
            wait_for(lambda: rows(broker, "orders") == 400, "compacted by the next one")


def test_a_master_that_was_started_again(broker: DrayProcess, tmp_path: Path) -> None:
    with (
        SparkMaster(tmp_path / "master") as master,
        SparkWorker(tmp_path / "one", master),
        ClusterCompactor(tmp_path, broker.data_directory, master.url) as compactor,
    ):
        produce(broker, "orders", 400)
        wait_for(lambda: rows(broker, "orders") == 400, "compacted once")
        master.kill()
        master.start()
        wait_for(lambda: "Registering worker" in master.log_tail(1000), "the worker has found it")
        wait_for(lambda: not python_workers_of(tmp_path), "the executors of the master before have ended")
        produce(broker, "orders", 400)
        assert compactor.wait(BOUND_SECONDS) == 1
        assert "no executor has taken a task for" in compactor.log_tail(3)
        compactor.start(BOUND_SECONDS)
        wait_for(lambda: rows(broker, "orders") == 800, "compacted by the next one")


def python_workers_of(directory: Path) -> list[psutil.Process]:
    """Those of executors that run in a worker's directory."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd"]):
        inside = (process.info["cwd"] or "").startswith(str(directory))
        if inside and "CoarseGrainedExecutorBackend" in " ".join(process.info["cmdline"] or ()):
            found.append(process)
    return found


def test_a_connect_server_that_was_started_again(broker: DrayProcess, tmp_path: Path) -> None:
    with (
        SparkConnect(tmp_path / "connect") as server,
        ClusterCompactor(tmp_path, broker.data_directory, server.url) as compactor,
    ):
        produce(broker, "orders", 400)
        wait_for(lambda: rows(broker, "orders") == 400, "compacted once")
        server.kill()
        server.start()
        produce(broker, "orders", 400)
        assert compactor.wait(BOUND_SECONDS) == 1
        assert "Spark Connect no longer knows this session" in compactor.log_tail(3)
        compactor.start(BOUND_SECONDS)
        wait_for(lambda: rows(broker, "orders") == 800, "compacted by the next one")
        server.kill()
        produce(broker, "orders", 400)
        assert compactor.wait(BOUND_SECONDS) == 1
        assert "no Spark Connect server at" in compactor.log_tail(3)
