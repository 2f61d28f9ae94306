"""Units handed out as the tasks of one Spark job, and the statistics of their files brought back.

The units travel as data. A task that fails is tried again by Spark, as another attempt, with other file
names: only the paths that come back count, and what else was written is found by the collector.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from dray.compaction.model import Progress, Unit, UnitAnswer, WriterGone
from dray.compaction.spark.packing import pack
from dray.compaction.spark.session import SparkDied, SparkProcess, reason_of
from dray.compaction.spark.worker import StoreAddress, from_row
from dray.runtime import Runtime

if TYPE_CHECKING:
    import pyarrow

_POLL_SECONDS: Final = 0.25
_NO_WORKER: Final = ("No module named dray", "No module named 'dray'", "Cannot run program")


class SparkJobFailed(Exception):
    """Spark gave up on a task, for a reason that is none of a unit's own."""


class NoWorkers(WriterGone):
    """Spark's workers cannot even begin: no unit is to blame."""


class SparkUnitWriter:
    """A `UnitWriter` on a warm session."""

    def __init__(self, session: SparkProcess, store: StoreAddress, runtime: Runtime) -> None:
        self._session = session
        self._store = store
        self._runtime = runtime
        self._jobs = 0

    async def write(self, units: Sequence[Unit], progress: Progress | None = None) -> list[UnitAnswer]:
        """Raises `WriterGone`, and `SparkJobFailed` for what failed all of them."""
        if not units:
            return []
        tasks = await self._runtime.in_thread(pack, units, self._session.parallelism)
        self._jobs += 1
        group = f"dray-compaction-{self._jobs}"
        running = self._runtime.spawn(
            self._runtime.in_thread(self._run, tasks, group), f"spark-job-{self._jobs}"
        )
        try:
            await self._watch(running, group, len(units), len(tasks), progress)
        except asyncio.CancelledError:
            await asyncio.shield(self._runtime.in_thread(self._cancel, group))
            raise
        rows = running.result()
        if progress is not None:
            progress(len(units), len(units))
        return [from_row(row) for row in rows]

    async def _watch(
        self, running: asyncio.Task[list[str]], group: str, units: int, tasks: int, progress: Progress | None
    ) -> None:
        """Report how far the job is, until it is done. Spark counts tasks."""
        reported = -1
        while True:
            done, _ = await asyncio.wait([running], timeout=_POLL_SECONDS)
            if done:
                return
            if progress is None or not self._session.is_classic:
                continue
            finished = await self._runtime.in_thread(self._finished, group)
            if finished > reported:
                reported = finished
                progress(units * min(finished, tasks) // tasks, units)

    # What follows runs in threads.

    def _run(self, tasks: list[list[Unit]], group: str) -> list[str]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        spark = self._session.spark
        packed = [pickle.dumps(task) for task in tasks]
        try:
            if self._session.is_classic:
                context = spark.sparkContext
                context.setJobGroup(group, f"{sum(map(len, tasks))} units of compaction", True)
                # Not in the function: Spark would give all of them to every task.
                shared = context.broadcast(packed)
                try:
                    return self._collect(len(tasks), lambda number: shared.value[number])
                finally:
                    shared.destroy()
            return self._collect(len(tasks), packed.__getitem__)
        except (Py4JError, PySparkException, OSError) as error:
            self._session.check()
            if isinstance(error, OSError) or type(error).__name__ == "Py4JNetworkError":
                raise SparkDied(f"Spark's JVM does not answer: {error}") from error
            reason = f"the Spark job failed: {_explained(error)}"
            if any(sign in str(error) for sign in _NO_WORKER):
                raise NoWorkers(reason) from error
            raise SparkJobFailed(reason) from error

    def _collect(self, count: int, task_of: Callable[[int], bytes]) -> list[str]:
        numbers = self._session.spark.range(0, count, 1, count)
        rows = numbers.mapInArrow(_in_worker(task_of, self._store), "answer string").collect()
        return [row.answer for row in rows]

    def _finished(self, group: str) -> int:
        """Tasks that are done."""
        tracker = self._session.spark.sparkContext.statusTracker()
        finished = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in info.stageIds if info is not None else ():
                stage_info: Any = tracker.getStageInfo(stage)
                finished += stage_info.numCompletedTasks if stage_info is not None else 0
        return finished

    def _cancel(self, group: str) -> None:
        if self._session.is_classic:
            self._session.spark.sparkContext.cancelJobGroup(group)


def _explained(error: Exception) -> str:
    """A worker that cannot even begin says why far down in a long text."""
    text, python = str(error), os.environ["PYSPARK_PYTHON"]
    if any(sign in text for sign in _NO_WORKER):
        return (
            f"the Python of its workers, {python}, is not there or lacks dray: install "
            "it on every machine of the cluster, or name another in spark.conf: spark.pyspark.python"
        )
    return reason_of(error)


def _in_worker(
    task_of: Callable[[int], bytes], store: StoreAddress
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterable[pyarrow.RecordBatch]]:
    """The function that Spark ships: it must hold nothing that cannot be pickled."""

    def write(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pickle

        import pyarrow as pa

        from dray.compaction.spark.worker import to_row, write_units

        for batch in batches:
            rows = []
            for number in batch.column("id").to_pylist():
                rows += [to_row(answer) for answer in write_units(pickle.loads(task_of(number)), store)]
            yield pa.RecordBatch.from_pydict({"answer": pa.array(rows, pa.string())})

    return write
