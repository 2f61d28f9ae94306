"""One warm Spark session for as long as the process lives.

`local[*,3]` runs Spark within this process's own JVM: as many tasks at once as there are cores, three tries
each. Any other master is a cluster; `sc://...` is a Spark Connect server; under `spark-submit` the session
is the one that was submitted, and its settings win.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from dray.compaction.model import WriterGone
from dray.compaction.packages import needs
from dray.compaction.spark.java import SparkUnavailable, find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*,3]"

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # in the environment of a program that spark-submit started
_CONNECT_PORT: Final = 15002  # unless the address names another
_CONNECT_SECONDS: Final = 30.0
_TRACEBACK: Final = "Traceback (most recent call last):"
_DAEMON: Final = "dray.compaction.spark.daemon"
_UNKNOWN_PARALLELISM: Final = 16  # Spark Connect does not say


@dataclass(frozen=True, slots=True)
class SparkSettings:
    master: str = DEFAULT_MASTER
    memory: str = "512m"  # of the JVM; records never pass through it
    conf: Mapping[str, str] = field(default_factory=dict)
    log_path: str = os.devnull  # what the JVM prints


class SparkDied(WriterGone):
    """The JVM is gone, and with it the session: the process had better end and be started again."""


class SparkProcess:
    """A Spark session and the JVM behind it. Its calls block: they belong in threads."""

    def __init__(self, spark: SparkSession, process: Any, parallelism: int, is_classic: bool = True) -> None:
        self.spark = spark
        self.parallelism = parallelism
        self.is_classic = is_classic  # not through Spark Connect: there is a JVM to talk to
        self._process = process

    def check(self) -> None:
        """Raises `SparkDied`. A JVM that was there before this process is asked for a sign of life."""
        if self._process is not None:
            if (code := self._process.poll()) is not None:
                raise SparkDied(f"Spark's JVM has ended, with exit code {code}")
            return
        from py4j.protocol import Py4JError

        try:
            stopped = self.is_classic and self.spark.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError) as error:
            raise SparkDied(f"Spark's JVM does not answer: {type(error).__name__}") from error
        if stopped:
            raise SparkDied("the Spark session was stopped")

    def stop(self) -> None:
        """Raises `SparkDied` where there was nothing left to stop."""
        from py4j.protocol import Py4JError

        try:
            self.check()
            self.spark.stop()
        except (Py4JError, OSError) as error:
            raise SparkDied(f"Spark's JVM does not answer: {type(error).__name__}") from error
        finally:
            if self._process is not None:
                self._process.stdin.close()  # at which it ends
                self._process.wait()
                _forget_jvm()


def _forget_jvm() -> None:
    """PySpark keeps the JVM of a process for ever, even one that is gone: then no other could follow."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def open_session(settings: SparkSettings) -> SparkProcess:
    """Takes seconds. Raises `SparkUnavailable` with one line."""
    try:
        import pandas  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise SparkUnavailable(needs("Spark", error)) from error
    os.environ["PYSPARK_PYTHON"] = worker_python(settings, os.environ)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if settings.master.startswith("sc://"):
        return _connect(settings)
    if _SUBMITTED not in os.environ:
        find_java()
    return _launch(settings)


def worker_python(settings: SparkSettings, environment: Mapping[str, str]) -> str:
    """Workers run the same Python as this process, whatever else is on the path, unless the settings name
    another for their machines. `spark-submit` names it by the environment: it may be a path that exists only
    on the executors."""
    named = settings.conf.get("spark.pyspark.python")
    if named is None and _SUBMITTED in environment:
        named = environment.get("PYSPARK_PYTHON")
    return named or sys.executable


def _launch(settings: SparkSettings) -> SparkProcess:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    submitted = _SUBMITTED in os.environ
    conf = SparkConf(loadDefaults=False)
    conf.setAll(list((_submitted_conf() if submitted else _conf(settings)).items()))
    try:
        with open(settings.log_path, "ab") as log:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        if submitted:
            merged = SparkConf(_jvm=gateway.jvm)
            merged.setAll(conf.getAll())
            conf = merged
        context = SparkContext(gateway=gateway, conf=conf)
    except (PySparkException, Py4JError, OSError) as error:
        _forget_jvm()
        where = "" if settings.log_path == os.devnull else f" (its log: {settings.log_path})"
        raise SparkUnavailable(
            f"Spark does not start with master {settings.master}{where}: {reason_of(error)}"
        ) from error
    return SparkProcess(SparkSession(context), gateway.proc, int(context.defaultParallelism))


def _connect(settings: SparkSettings) -> SparkProcess:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    _require_server(settings.master)
    try:
        builder = SparkSession.builder.remote(settings.master)
        for name, value in settings.conf.items():
            builder = builder.config(name, value)
        return SparkProcess(builder.getOrCreate(), None, _UNKNOWN_PARALLELISM, is_classic=False)
    except (PySparkException, ImportError) as error:
        raise SparkUnavailable(f"no session from {_plain(settings.master)}: {reason_of(error)}") from error


def _require_server(master: str) -> None:
    """Opening a session asks nothing of the server; the first job would try for ten minutes, in silence."""
    try:
        address = urlsplit(master)
        place = (address.hostname or "", address.port or _CONNECT_PORT)
        with socket.create_connection(place, timeout=_CONNECT_SECONDS):
            return
    except (OSError, ValueError) as error:
        raise SparkUnavailable(f"no Spark Connect server at {_plain(master)}: {error}") from error


def _plain(master: str) -> str:
    """The address without what follows a semicolon: that may be a token."""
    return master.partition(";")[0]


def reason_of(error: Exception) -> str:
    """One line. Of an error that came from Java, what Java says: its first line only names the call. Of one
    that came from a Python worker, the end of its traceback."""
    java = getattr(error, "java_exception", None)
    text = str(error if java is None else java.toString())
    _, failed, traceback = text.rpartition(_TRACEBACK)
    lines = [line for line in (traceback if failed else text).splitlines() if line.strip()]
    if failed:  # lines of the traceback are indented, the error itself is not
        lines = [line for line in lines if not line.startswith(" ")]
    return lines[0].strip() if lines else type(error).__name__


def _submitted_conf() -> dict[str, str]:
    return {"spark.python.daemon.module": _DAEMON}


def _conf(settings: SparkSettings) -> dict[str, str]:
    conf = {
        "spark.app.name": "dray compaction",
        "spark.master": settings.master,
        "spark.driver.memory": settings.memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.python.daemon.module": _DAEMON,
        "spark.python.worker.reuse": "true",
        "spark.speculation": "false",
        # A handful of rows pass through here: to compile code for them takes longer than to go without.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }
    if settings.master.startswith("local"):
        # Embedded: no other machine has to find this driver. The JVM only hands out work: with one garbage
        # collecting thread and no optimising compiler it starts, and warms up, in half the processor time.
        conf |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData",
        }
    return conf | dict(settings.conf)
