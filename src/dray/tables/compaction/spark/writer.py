"""Units handed out as the tasks of one Spark job, and the statistics of their files brought back.

The units travel as data. A task that fails, or gets no further, is tried again by Spark, as another attempt,
with other file names: only the paths that come back count, and what else was written is found by the
collector. Answers come back as each task ends, by an accumulator (Spark takes the first attempt of a task
for it, as for the result); Spark Connect has none, and streams them in the order of the tasks.

A task costs a few hundredths of a second whatever it does, so tiny units share one; but no core should wait
while another has several of them to do. Large tasks come first, so that none starts when all others end.
"""

from __future__ import annotations

import asyncio
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from dray.base.runtime import Runtime
from dray.tables.compaction.model import Deliver, Progress, Unit, UnitAnswer, WriterGone
from dray.tables.compaction.spark.job_watch import AnswerWatch, JobWatch, Verdict
from dray.tables.compaction.spark.session import SparkDied, SparkProcess, named_calls, reason_of
from dray.tables.compaction.spark.worker import EarlyAnswers, StoreAddress, from_row, weight_of
from dray.tables.compaction.summary import CompactionObserver

if TYPE_CHECKING:
    import pyarrow

_log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 180.0
_POLL_SECONDS: Final = 0.25
_LOOKS: Final = 20  # at the tasks of a job, in the patience that they have
_FRUITLESS: Final = 2  # so many jobs in a row without one answer: the session is of no use
_NO_WORKER: Final = ("No module named dray", "No module named 'dray'", "Cannot run program")
_NO_SESSION: Final = ("NO_ACTIVE_SESSION", "INVALID_HANDLE.SESSION", "SESSION_CLOSED", "SESSION_CHANGED")


class SparkJobFailed(Exception):
    """Spark gave up on a task, for a reason that is none of a unit's own."""


class NoWorkers(WriterGone):
    """Spark's workers cannot even begin, or none takes a task: no unit is to blame."""


@dataclass(slots=True)
class _Call:
    """One job."""

    group: str
    tasks: list[list[Unit]]
    deliver: Deliver | None
    progress: Progress | None
    answers: dict[tuple[int, int], UnitAnswer] = field(default_factory=dict)

    @property
    def units(self) -> int:
        return sum(map(len, self.tasks))

    def take(self, row: str) -> None:
        """The first answer of a unit counts: it came twice, or from two attempts."""
        answer = from_row(row)
        key = answer.stream, answer.job
        if key in self.answers:
            return
        self.answers[key] = answer
        if self.deliver is not None:
            self.deliver(answer)


class SparkUnitWriter:
    """A `UnitWriter` on a warm session."""

    def __init__(
        self,
        session: SparkProcess,
        store: StoreAddress,
        runtime: Runtime,
        patience_seconds: float = PATIENCE_SECONDS,
        observer: CompactionObserver | None = None,
    ) -> None:
        """`patience_seconds`: how long a cluster may be without an executor that takes a task, and a worker
        without an answer (longer for large units)."""
        self._session = session
        self._store = store
        self._runtime = runtime
        self._patience = patience_seconds
        self._observer = observer or CompactionObserver()
        self._stands: str | None = None
        self._jobs = 0
        self._fruitless = 0
        self._arrived: deque[tuple[str, str]] = (
            deque()
        )  # rows, with the group of their job: from other threads
        self._early: Any = None  # the accumulator, which lives as long as the session

    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None, deliver: Deliver | None = None
    ) -> list[UnitAnswer]:
        """Raises `WriterGone`, and `SparkJobFailed` for what failed all that were not delivered."""
        if not units:
            return []
        try:
            tasks = await self._bounded(self._deal, units)
        except WriterGone:
            self._session.abandon()
            raise
        self._jobs += 1
        call = _Call(f"dray-compaction-{self._jobs}", tasks, deliver, progress)
        running = self._runtime.spawn(self._runtime.in_thread(self._run, call), f"spark-job-{self._jobs}")
        try:
            await self._watch(running, call)
        except asyncio.CancelledError:
            await asyncio.shield(self._runtime.in_thread(self._session.cancel, call.group))
            raise
        except (SparkJobFailed, WriterGone) as error:
            await self._end(running, call, error)
            raise
        finally:
            self._say(None)
        for row in running.result():
            call.take(row)
        self._fruitless = 0
        if progress is not None:
            progress(call.units, call.units)
        return list(call.answers.values()) if deliver is None else []

    async def _watch(self, running: asyncio.Task[list[str]], call: _Call) -> None:
        """Hand out answers as they come, and end what gets no further, until the job is done."""
        now = self._runtime.monotonic()
        weights = [sum(map(weight_of, task)) for task in call.tasks]
        tasks = JobWatch([of_task(task) for task in call.tasks], weights, self._patience, now)
        answers = AnswerWatch(weights, self._patience, now)
        look_at = now + self._patience / _LOOKS
        while True:
            done, _ = await asyncio.wait([running], timeout=_POLL_SECONDS)
            self._hand_out(call)
            if done:
                return
            now = self._runtime.monotonic()
            if now < look_at:
                continue
            look_at = now + self._patience / _LOOKS
            if self._session.is_classic:
                seen = await self._bounded(self._session.look, call.group)
                await self._obey(tasks.see(now, seen), call)
            else:
                await self._bounded(self._session.check)
                await self._obey(answers.see(now, len(call.answers)), call)

    async def _obey(self, verdict: Verdict, call: _Call) -> None:
        self._say(verdict.stands)
        if verdict.overdue:
            self._observer.overdue(len(verdict.overdue))
        for attempt in verdict.overdue:
            await self._bounded(self._session.end_attempt, attempt, verdict.stands or "")
        if verdict.gone is not None:
            raise NoWorkers(verdict.gone)
        if verdict.failed is not None:
            self._fruitless = 0 if call.answers else self._fruitless + 1
            if self._fruitless >= _FRUITLESS and not self._session.is_classic:
                raise NoWorkers(f"{verdict.failed}, in {self._fruitless} jobs one after the other")
            raise SparkJobFailed(verdict.failed)

    def _say(self, reason: str | None) -> None:
        if reason is not None and self._stands is None:
            _log.warning("Spark stands still", reason=reason)
        self._observer.stands_still(reason)
        self._stands = reason

    def _hand_out(self, call: _Call) -> None:
        before = len(call.answers)
        while self._arrived:
            group, row = self._arrived.popleft()
            if group == call.group:
                call.take(row)
        if call.progress is not None and len(call.answers) > before:
            call.progress(len(call.answers), call.units)

    async def _end(self, running: asyncio.Task[list[str]], call: _Call, error: Exception) -> None:
        """No thread may go on waiting: neither the next job nor the end of the process would come."""
        gone = error if isinstance(error, WriterGone) else await self._cancelled(running, call, error)
        if gone is not None:
            self._session.abandon()
        if running.done():
            running.exception()
        else:
            running.cancel()
        if gone is not None:
            raise gone

    async def _cancelled(
        self, running: asyncio.Task[list[str]], call: _Call, error: Exception
    ) -> WriterGone | None:
        """Cancel a job. Not None: that was too much for the session."""
        try:
            await self._bounded(self._session.cancel, call.group)
        except WriterGone as gone:
            return gone
        done, _ = await asyncio.wait([running], timeout=self._patience)
        return None if done else SparkDied(f"Spark does not end a job: {error}")

    async def _bounded(self, ask: Callable[..., Any], *arguments: object) -> Any:
        """Ask the session. Raises `SparkDied` where it does not answer."""
        asked = self._runtime.spawn(self._runtime.in_thread(ask, *arguments), "ask-spark")
        done, _ = await asyncio.wait([asked], timeout=self._patience)
        if not done:
            raise SparkDied(f"Spark's JVM has not answered for {self._patience:.0f} s")
        try:
            return asked.result()
        except WriterGone:
            raise
        except Exception as error:
            await self._runtime.in_thread(self._session.check)
            raise SparkJobFailed(f"Spark does not say how its job goes: {reason_of(error)}") from error

    # The methods that follow run in threads.

    def _deal(self, units: Sequence[Unit]) -> list[list[Unit]]:
        return tasks_of(units, self._session.parallelism())

    def _run(self, call: _Call) -> list[str]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        packed = [pickle.dumps(task) for task in call.tasks]
        try:
            return self._collect(call, packed) if self._session.is_classic else self._stream(call, packed)
        except (Py4JError, PySparkException, OSError) as error:
            self._session.check()
            if isinstance(error, OSError) or type(error).__name__ == "Py4JNetworkError":
                raise SparkDied(f"Spark's JVM does not answer: {error}") from error
            if any(sign in str(error) for sign in _NO_SESSION):
                raise SparkDied(f"Spark Connect no longer knows this session: {reason_of(error)}") from error
            reason = f"the Spark job failed: {_explained(error)}"
            if any(sign in str(error) for sign in _NO_WORKER):
                raise NoWorkers(reason) from error
            raise SparkJobFailed(reason) from error

    def _collect(self, call: _Call, packed: list[bytes]) -> list[str]:
        context = self._session.spark.sparkContext
        if self._early is None:
            passed_on: Any = EarlyAnswers(self._arrived.append)
            self._early = context.accumulator([], passed_on)
        context.setJobGroup(call.group, of_job(call.tasks), True)
        # Not in the function: Spark would give all of them to every task.
        shared = context.broadcast(packed)
        try:
            work = _in_worker(lambda number: shared.value[number], self._store, call.group, self._early)
            numbers = self._session.spark.range(0, len(packed), 1, len(packed))
            with named_calls(context, of_job(call.tasks)):
                return [row.answer for row in numbers.mapInArrow(work, "answer string").collect()]
        finally:
            shared.destroy()

    def _stream(self, call: _Call, packed: list[bytes]) -> list[str]:
        spark = self._session.spark
        work = _in_worker(packed.__getitem__, self._store, call.group, None)
        spark.addTag(call.group)
        try:
            numbers = spark.range(0, len(packed), 1, len(packed))
            for row in numbers.mapInArrow(work, "answer string").toLocalIterator():
                self._arrived.append((call.group, row.answer))
        finally:
            spark.removeTag(call.group)
        return []


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
    task_of: Callable[[int], bytes], store: StoreAddress, group: str, early: Any
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterable[pyarrow.RecordBatch]]:
    """The function that Spark ships: it must hold nothing that cannot be pickled."""

    def write(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        import pickle

        import pyarrow as pa

        from dray.tables.compaction.spark.worker import to_row, write_units

        for batch in batches:
            rows = []
            for number in batch.column("id").to_pylist():
                rows += [to_row(answer) for answer in write_units(pickle.loads(task_of(number)), store)]
            if early is not None:
                early.add([(group, row) for row in rows])
            yield pa.RecordBatch.from_pydict({"answer": pa.array(rows, pa.string())})

    return write


# --- the names of a job and its tasks, on Spark's pages and in its log lines

_MOST_NAMES: Final = 3
_MOST_LETTERS: Final = 60  # of a topic's name: there are longer ones than fit on a page


def of_job(tasks: Sequence[Sequence[Unit]]) -> str:
    units = [unit for task in tasks for unit in task]
    topics = list(dict.fromkeys(unit.topic for unit in units))
    return f"compaction of {_listed(topics)}: {_amount(units)}"


def of_task(units: Sequence[Unit]) -> str:
    partitions = list(dict.fromkeys(f"{unit.topic[:_MOST_LETTERS]}-{unit.partition}" for unit in units))
    return f"{_listed(partitions)} ({_amount(units)})"


def _listed(names: list[str]) -> str:
    shown = ", ".join(name[: _MOST_LETTERS + 12] for name in names[:_MOST_NAMES])
    return shown if len(names) <= _MOST_NAMES else f"{shown} and {len(names) - _MOST_NAMES} more"


def _amount(units: Sequence[Unit]) -> str:
    megabytes = sum(map(weight_of, units)) / 1e6
    return f"{len(units)} unit{'s' * (len(units) != 1)}, {megabytes:,.1f} MB"


# --- which units share a task

TASK_BYTES: Final = 32 << 20
UNITS_PER_TASK: Final = 256


def tasks_of(units: Sequence[Unit], parallelism: int) -> list[list[Unit]]:
    weights = {id(unit): weight_of(unit) for unit in units}
    total = sum(weights.values())
    most = max(1, min(TASK_BYTES, -(-total // max(1, parallelism))))
    tasks: list[tuple[int, list[Unit]]] = []
    shared: list[Unit] = []
    size = 0
    for unit in sorted(units, key=lambda unit: weights[id(unit)], reverse=True):
        weight = weights[id(unit)]
        if shared and (size + weight > most or len(shared) >= UNITS_PER_TASK):
            tasks.append((size, shared))
            shared, size = [], 0
        shared.append(unit)
        size += weight
    if shared:
        tasks.append((size, shared))
    return [task for _, task in sorted(tasks, key=lambda task: task[0], reverse=True)]
