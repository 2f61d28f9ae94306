"""Spark beyond one process, from pyspark's own distribution: a standalone master with a worker, and a Spark
Connect server. All on loopback, each a process that is killed with its children."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.services.process import ServerProcess, free_port

SPARK_HOME = Path(pyspark.__file__).parent
HOST = "127.0.0.1"
START_SECONDS = 240.0


def spark_environment() -> dict[str, str]:
    """Without what a session in this process has set, and without a Python for workers: a process that
    has Spark run Python has to name one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "DRAY_"))}
    return kept | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": HOST}


class SparkProcess(ServerProcess):
    def __init__(self, name: str, directory: Path) -> None:
        super().__init__(name, directory)
        self.port = free_port()

    def environment(self) -> Mapping[str, str]:
        return spark_environment() | {
            "SPARK_LOG_DIR": str(self.directory),
            "SPARK_WORKER_DIR": str(self.directory),
        }

    def is_ready(self) -> bool:
        return answers(self.port)

    def start(self, timeout: float = START_SECONDS) -> None:
        super().start(timeout)


class SparkMaster(SparkProcess):
    def __init__(self, directory: Path) -> None:
        super().__init__("spark-master", directory)

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def command(self) -> Sequence[str]:
        where = ["--host", HOST, "--port", str(self.port), "--webui-port", str(free_port())]
        return [str(SPARK_HOME / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master", *where]


class SparkWorker(SparkProcess):
    """Starts its executors in a directory of its own, where no module of ours lies about."""

    def __init__(self, directory: Path, master: SparkMaster) -> None:
        super().__init__("spark-worker", directory)
        self.master = master

    def command(self) -> Sequence[str]:
        where = ["--host", HOST, "--port", str(self.port), "--webui-port", str(free_port())]
        size = ["--cores", "2", "--memory", "1g"]
        name = "org.apache.spark.deploy.worker.Worker"
        return [str(SPARK_HOME / "bin" / "spark-class"), name, *where, *size, self.master.url]

    def is_ready(self) -> bool:
        return "Successfully registered with master" in self.log_tail()


class SparkConnect(SparkProcess):
    """Its clients bring nothing but their plans: the Python of its workers is its own matter."""

    def __init__(self, directory: Path) -> None:
        super().__init__("spark-connect", directory)

    @property
    def url(self) -> str:
        return f"sc://{HOST}:{self.port}"

    def command(self) -> Sequence[str]:
        options = {
            "spark.master": "local[2]",
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": "false",
            "spark.connect.grpc.binding.address": HOST,
            "spark.connect.grpc.binding.port": str(self.port),
        }
        given = [part for name, value in options.items() for part in ("--conf", f"{name}={value}")]
        service = "org.apache.spark.sql.connect.service.SparkConnectServer"
        return [str(SPARK_HOME / "bin" / "spark-submit"), *given, "--class", service, "spark-internal"]

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), "PYSPARK_PYTHON": sys.executable}


def answers(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=2):
            return True
    except OSError:
        return False
