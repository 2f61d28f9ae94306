"""What the writer on Spark does with a session that hangs, forgets or dies: on virtual time, with a fake of
the session. Real clusters are in `tests/integration/test_spark_weather.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar
from uuid import UUID

import pytest
from tests.services import compaction_cluster

from dray.tables.compaction.model import Unit, UnitAnswer, UnitFailed
from dray.tables.compaction.spark.job_watch import JobSeen
from dray.tables.compaction.spark.session import SparkDied
from dray.tables.compaction.spark.worker import EarlyAnswers, StoreAddress, to_row
from dray.tables.compaction.spark.writer import NoWorkers, SparkJobFailed, SparkUnitWriter, of_job, of_task
from dray.tables.compaction.summary import CompactionObserver
from dray_simulation.kernel.runtime import SimulatedRuntime

assert compaction_cluster  # its tests run on virtual time: see conftest

T = TypeVar("T")
PATIENCE = 60.0
ALL_OF_THEM = "orders-0, orders-1, orders-2 (3 units, 0.0 MB)"


class Job:
    """A job of Spark that runs until it is let go."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.answers: list[str] = []
        self.error: Exception | None = None


class Threads(SimulatedRuntime):
    """What Spark's job does is up to the test; all else happens at once, unless it hangs."""

    def __init__(self, job: Job) -> None:
        super().__init__(1)
        self.job = job
        self.hung: set[str] = set()

    async def in_thread(self, function: Callable[..., T], *arguments: Any) -> Any:
        name = getattr(function, "__name__", "")
        if name in self.hung:
            await asyncio.Event().wait()
        if name != "_run":
            return await super().in_thread(function, *arguments)
        await self.job.ended.wait()
        if self.job.error is not None:
            raise self.job.error
        return list(self.job.answers)


class Session:
    def __init__(self, job: Job, *, is_classic: bool = True) -> None:
        self.is_classic = is_classic
        self.job = job
        self.seen = JobSeen()
        self.ended: list[int] = []
        self.cancelled: list[str] = []
        self.abandoned = False
        self.ends_when_asked = True
        self.gone: Exception | None = None

    def parallelism(self) -> int:
        return 4

    def look(self, _group: str) -> JobSeen:
        return self.seen

    def end_attempt(self, attempt: int, _reason: str) -> None:
        self.ended.append(attempt)

    def cancel(self, group: str) -> None:
        self.cancelled.append(group)
        if self.ends_when_asked:
            self.job.error = SparkJobFailed("cancelled")
            self.job.ended.set()

    def abandon(self) -> None:
        self.abandoned = True

    def check(self) -> None:
        if self.gone is not None:
            raise self.gone


class Heard(CompactionObserver):
    def __init__(self) -> None:
        self.stands: list[str | None] = []
        self.tasks = 0

    def stands_still(self, reason: str | None) -> None:
        if not self.stands or self.stands[-1] != reason:
            self.stands.append(reason)

    def overdue(self, tasks: int) -> None:
        self.tasks += tasks


class Bench:
    def __init__(self, *, is_classic: bool = True) -> None:
        self.job = Job()
        self.runtime = Threads(self.job)
        self.session = Session(self.job, is_classic=is_classic)
        self.heard = Heard()
        session: Any = self.session
        self.writer = SparkUnitWriter(session, StoreAddress("memory:"), self.runtime, PATIENCE, self.heard)
        self.delivered: list[UnitAnswer] = []
        self.writing: asyncio.Task[list[UnitAnswer]] | None = None

    def start(self, count: int = 3) -> asyncio.Task[list[UnitAnswer]]:
        self.job.ended.clear()
        units = [unit(stream) for stream in range(count)]
        task = asyncio.ensure_future(self.writer.write(units, None, self.delivered.append))
        self.writing = task
        return task

    def arrives(self, stream: int, group: int = 1) -> None:
        self.writer._arrived.append((f"dray-compaction-{group}", to_row(answer(stream))))


def unit(stream: int) -> Unit:
    return Unit("orders", UUID(int=1), stream, stream, 7, (), 0, 1, "x")


def answer(stream: int) -> UnitFailed:
    return UnitFailed(stream, 7, "why", retriable=True)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    if made.writing is not None and not made.writing.done():
        made.writing.cancel()


async def test_answers_are_handed_out_as_they_come_and_once(bench: Bench) -> None:
    writing = bench.start()
    await asyncio.sleep(1)
    bench.arrives(1)
    bench.arrives(1, group=9)
    bench.arrives(1)
    await asyncio.sleep(1)
    assert bench.delivered == [answer(1)], "of this job, and of two attempts the first"
    bench.job.answers = [to_row(answer(stream)) for stream in range(3)]
    bench.job.ended.set()
    assert await writing == []
    assert [each.stream for each in bench.delivered] == [1, 0, 2]


async def test_a_task_that_hangs_is_ended_and_the_job_goes_on(bench: Bench) -> None:
    bench.session.seen = JobSeen({5: 0})
    writing = bench.start()
    await asyncio.sleep(PATIENCE * 1.2)
    assert (bench.session.ended, bench.heard.tasks) == ([5], 1)
    assert bench.heard.stands[-1] == f"a worker got no further with {ALL_OF_THEM} in 60 s"
    assert not writing.done()
    bench.session.seen = JobSeen({}, done=3)
    bench.job.answers = [to_row(answer(stream)) for stream in range(3)]
    bench.job.ended.set()
    await writing
    assert bench.heard.stands[-1] is None
    assert (bench.session.cancelled, bench.session.abandoned) == ([], False)


async def test_the_second_attempt_that_hangs_fails_the_job(bench: Bench) -> None:
    bench.session.seen = JobSeen({5: 0})
    writing = bench.start()
    await asyncio.sleep(PATIENCE * 1.2)
    bench.session.seen = JobSeen({8: 0})
    with pytest.raises(SparkJobFailed, match="and so did the one before it"):
        await writing
    assert bench.session.cancelled == ["dray-compaction-1"]
    assert not bench.session.abandoned, "the session is as good as before"


async def test_a_job_that_does_not_end_ends_the_session(bench: Bench) -> None:
    bench.session.seen = JobSeen({5: 0})
    bench.session.ends_when_asked = False
    writing = bench.start()
    await asyncio.sleep(PATIENCE * 1.2)
    bench.session.seen = JobSeen({8: 0})
    with pytest.raises(SparkDied, match="Spark does not end a job"):
        await writing
    assert bench.session.abandoned


async def test_a_session_that_hangs_when_a_job_is_cancelled_ends_it(bench: Bench) -> None:
    bench.session.seen = JobSeen({5: 0})
    bench.runtime.hung = {"cancel"}
    writing = bench.start()
    await asyncio.sleep(PATIENCE * 1.2)
    bench.session.seen = JobSeen({8: 0})
    with pytest.raises(SparkDied, match="Spark's JVM has not answered"):
        await writing
    assert bench.session.abandoned


async def test_no_executor_is_said_and_then_ends_it(bench: Bench) -> None:
    writing = bench.start()
    await asyncio.sleep(PATIENCE / 2)
    said = bench.heard.stands[-1]
    assert said is not None
    assert said.startswith("no executor has taken a task for ")
    with pytest.raises(NoWorkers, match=r"no executor has taken a task for 6\d s: look whether"):
        await writing
    assert bench.session.abandoned, "or a thread would wait for it for ever"


@pytest.mark.parametrize("hangs", ["look", "_deal"])
async def test_a_session_that_does_not_answer_ends_it(bench: Bench, hangs: str) -> None:
    bench.runtime.hung = {hangs}
    with pytest.raises(SparkDied, match="Spark's JVM has not answered for 60 s"):
        await bench.start()
    assert bench.session.abandoned


async def test_a_connect_server_that_is_gone_ends_it() -> None:
    bench = Bench(is_classic=False)
    writing = bench.start()
    await asyncio.sleep(1)
    bench.session.gone = SparkDied("no Spark Connect server at sc://there")
    with pytest.raises(SparkDied, match="no Spark Connect server"):
        await writing
    assert bench.session.abandoned


async def test_a_connect_server_that_answers_nothing_twice_ends_it() -> None:
    bench = Bench(is_classic=False)
    with pytest.raises(SparkJobFailed, match=r"no unit was answered for 6\d s"):
        await bench.start()
    assert bench.session.cancelled == ["dray-compaction-1"]
    with pytest.raises(NoWorkers, match="in 2 jobs one after the other"):
        await bench.start()


async def test_one_answer_makes_a_connect_server_worth_another_try() -> None:
    bench = Bench(is_classic=False)
    for group in (1, 2, 3):
        writing = bench.start()
        await asyncio.sleep(1)
        bench.arrives(0, group)
        with pytest.raises(SparkJobFailed):
            await writing


def test_a_job_says_what_it_is_for() -> None:
    units = [unit(stream) for stream in range(5)]
    assert of_job([units[:2], units[2:]]) == "compaction of orders: 5 units, 0.0 MB"
    assert of_task(units) == "orders-0, orders-1, orders-2 and 2 more (5 units, 0.0 MB)"


def test_an_accumulator_gathers_in_workers_and_passes_on_in_the_driver() -> None:
    import pickle

    passed: list[tuple[str, str]] = []
    driver = EarlyAnswers(passed.append)
    worker = pickle.loads(pickle.dumps(driver))
    gathered = worker.addInPlace(worker.zero([]), [("job", "row")])
    assert gathered == [("job", "row")]
    assert driver.addInPlace([], gathered) == []
    assert passed == [("job", "row")]
