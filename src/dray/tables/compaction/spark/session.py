"""One warm Spark session for as long as the process lives.

`local[*,3]` runs Spark within this process's own JVM: as many tasks at once as there are cores, three tries
each. Any other master is a cluster; `sc://...` is a Spark Connect server; under `spark-submit` the session
is the one that was submitted, and its settings win.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from dray.tables.compaction.model import WriterGone
from dray.tables.compaction.packages import SparkUnavailable, find_java, needs
from dray.tables.compaction.spark.job_watch import JobSeen

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[*,3]"

_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # in the environment of a program that spark-submit started
_CONNECT_PORT: Final = 15002  # unless the address names another
_CONNECT_SECONDS: Final = 30.0
_TRACEBACK: Final = "Traceback (most recent call last):"
_DAEMON: Final = "dray.tables.compaction.spark.daemon"
_UNKNOWN_PARALLELISM: Final = (
    16  # Spark Connect does not say, nor does a cluster before its executors are there
)
_NOT_TO_BE_ENDED: Final = 60  # seconds after which an executor ends with a task that does not


@dataclass(frozen=True, slots=True)
class SparkSettings:
    master: str = DEFAULT_MASTER
    conf: Mapping[str, str] = field(default_factory=dict)
    log_path: str = os.devnull  # what the JVM prints


class SparkDied(WriterGone):
    """The JVM is gone, and with it the session: the process had better end and be started again."""


class SparkProcess:
    """A Spark session and the JVM behind it. Its calls block: they belong in threads."""

    def __init__(
        self, spark: SparkSession, process: Any, least: int, is_classic: bool = True, server: str = ""
    ) -> None:
        """`least`: how many tasks it may run at once, whatever it says. `server`: that of Spark Connect."""
        self.spark = spark
        self.is_classic = is_classic  # not through Spark Connect: there is a JVM to talk to
        self._least = least
        self._process = process
        self._server = server
        self._abandoned = False

    def parallelism(self) -> int:
        """How many tasks run at once. Executors come and go, and some come only when there are tasks: so it
        is asked for each job, and is never less than what the session may come to have."""
        return max(self._least, int(self.spark.sparkContext.defaultParallelism) if self.is_classic else 0)

    def look(self, group: str) -> JobSeen:
        """The running tasks of a job group, and how many of its tasks are done."""
        context: Any = self.spark.sparkContext
        tracker = context.statusTracker()
        running: dict[int, int] = {}
        done = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                seen: Any = tracker.getStageInfo(stage)
                if seen is not None:
                    done += seen.numCompletedTasks
                    running |= _attempts(context, stage, seen.currentAttemptId, seen.numActiveTasks)
        return JobSeen(running, done)

    def end_attempt(self, attempt: int, reason: str) -> None:
        """End an attempt of a task, with its Python worker; Spark begins another."""
        self.spark.sparkContext._jsc.sc().killTaskAttempt(attempt, True, reason)

    def cancel(self, group: str) -> None:
        """End all jobs of a group."""
        if self.is_classic:
            self.spark.sparkContext.cancelJobGroup(group)
        else:
            self.spark.interruptTag(group)

    def abandon(self) -> None:
        """End what may hang, so that no thread waits for it any more: the session is of no use."""
        self._abandoned = True
        if self._process is not None:
            self._process.kill()

    def check(self) -> None:
        """Raises `SparkDied`. A JVM that was there before this process is asked for a sign of life, a server
        of Spark Connect for a connection."""
        if self._server:
            try:
                _require_server(self._server)
            except SparkUnavailable as error:
                raise SparkDied(str(error)) from error
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

        if self._abandoned:
            _forget_jvm()
            raise SparkDied("the Spark session was given up")
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
    return SparkProcess(SparkSession(context), gateway.proc, _least_parallelism(dict(conf.getAll())))


def _least_parallelism(conf: Mapping[str, str]) -> int:
    """The cores that a cluster may come to have: executors register after the session was opened, and with
    dynamic allocation they come only for tasks that wait. This machine has what it has."""
    if conf.get("spark.master", "").startswith("local"):
        return 1
    cores = _number(conf, "spark.executor.cores", 1)
    named = [
        _number(conf, "spark.executor.instances", 0) * cores,
        _number(conf, "spark.dynamicAllocation.maxExecutors", 0) * cores,
        _number(conf, "spark.cores.max", 0),
    ]
    return max(named) or _UNKNOWN_PARALLELISM


def _number(conf: Mapping[str, str], name: str, otherwise: int) -> int:
    value = conf.get(name, "")
    return int(value) if value.isdecimal() else otherwise


def _attempts(context: Any, stage: int, stage_attempt: int, count: int) -> dict[int, int]:
    """The running attempts of a stage's tasks: the task's place by the attempt's id."""
    if not count:
        return {}
    status = context._jvm.org.apache.spark.status.api.v1
    wanted = context._jvm.java.util.ArrayList()
    wanted.add(status.TaskStatus.RUNNING)
    store = context._jsc.sc().statusStore()
    found = store.taskList(stage, stage_attempt, 0, count, status.TaskSorting.ID, wanted)
    tasks = [found.apply(place) for place in range(found.size())]
    return {int(task.taskId()): int(task.index()) for task in tasks}


def _connect(settings: SparkSettings) -> SparkProcess:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    _require_server(settings.master)
    try:
        builder = SparkSession.builder.remote(settings.master)
        for name, value in settings.conf.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        return SparkProcess(spark, None, _UNKNOWN_PARALLELISM, is_classic=False, server=settings.master)
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


@contextmanager
def named_calls(context: Any, name: str) -> Iterator[None]:
    """Jobs and stages that begin in it bear this name, and not the line of code that asked for them."""
    from pyspark.traceback_utils import SCCallSiteSync

    site = SCCallSiteSync(context)  # type: ignore[no-untyped-call]
    site._call_site = name
    with site:
        yield


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
        "spark.driver.memory": "512m",  # records never pass through it
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        "spark.python.daemon.module": _DAEMON,
        "spark.python.worker.reuse": "true",
        # A task that takes three times as long as most and a minute is begun once more elsewhere; of two
        # files of one unit the one whose answer comes first counts.
        "spark.speculation": "true",
        "spark.speculation.quantile": "0.75",
        "spark.speculation.multiplier": "3",
        "spark.speculation.minTaskRuntime": "60s",
        "spark.task.reaper.enabled": "true",
        "spark.task.reaper.killTimeout": f"{_NOT_TO_BE_ENDED}s",
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
