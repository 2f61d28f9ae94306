"""When a job of Spark is helped, given up, or the end of its compactor: by what is seen of it, and when."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dray.tables.compaction.spark.job_watch import SLOWEST_BYTES, AnswerWatch, JobSeen, JobWatch, Verdict
from dray.tables.compaction.spark.session import SparkProcess, _least_parallelism

PATIENCE = 90.0
SMALL, LARGE = 0, 100 * SLOWEST_BYTES  # a hundred seconds more


def watch() -> JobWatch:
    return JobWatch(["orders-0", "orders-1"], [SMALL, LARGE], PATIENCE, 0.0)


def test_without_a_running_task_it_says_so_and_then_ends() -> None:
    job = watch()
    assert job.see(29.0, JobSeen()) == Verdict()
    assert job.see(30.0, JobSeen()) == Verdict(stands="no executor has taken a task for 30 s")
    assert job.see(80.0, JobSeen({7: 0})) == Verdict(), "one came"
    assert job.see(169.0, JobSeen()).gone is None
    gone = job.see(170.0, JobSeen()).gone
    assert gone is not None
    assert gone.startswith("no executor has taken a task for 90 s: look whether")


def test_a_task_that_ended_unseen_counts_as_movement() -> None:
    job = watch()
    assert job.see(89.0, JobSeen(done=1)) == Verdict()
    assert job.see(178.0, JobSeen(done=1)).gone is None
    assert job.see(179.0, JobSeen(done=1)).gone is not None


def test_a_task_has_a_deadline_by_its_bytes_and_the_next_attempt_twice_that() -> None:
    job = watch()
    assert job.see(10.0, JobSeen({1: 0, 2: 1})) == Verdict()
    assert job.see(99.0, JobSeen({1: 0, 2: 1})) == Verdict()
    overdue = job.see(100.0, JobSeen({1: 0, 2: 1}))
    assert overdue == Verdict((1,), "a worker got no further with orders-0 in 90 s")
    assert job.see(101.0, JobSeen({1: 0, 2: 1})).overdue == (), "once is enough"
    assert job.see(110.0, JobSeen({3: 0, 2: 1})).stands == overdue.stands, "until something ends"
    assert job.see(199.0, JobSeen({3: 0, 2: 1})).overdue == ()
    assert job.see(200.0, JobSeen({3: 0, 2: 1})).overdue == (2,)
    assert job.see(250.0, JobSeen({3: 0}, done=1)) == Verdict(), "the large one ended"
    given_up = job.see(290.0, JobSeen({3: 0}, done=1))
    assert given_up.overdue == (3,)
    assert given_up.failed == "a worker got no further with orders-0 in 180 s, and so did the one before it"


def test_a_task_that_cannot_be_ended_is_the_end_of_the_session() -> None:
    job = watch()
    job.see(0.0, JobSeen({1: 0}))
    assert job.see(90.0, JobSeen({1: 0})).overdue == (1,)
    assert job.see(179.0, JobSeen({1: 0})).gone is None
    assert job.see(180.0, JobSeen({1: 0})).gone == "Spark has not ended the task of orders-0 in 90 s"


def test_answers_that_stop_coming() -> None:
    job = AnswerWatch([SMALL, LARGE], PATIENCE, 0.0)
    assert job.see(189.0, 0) == Verdict()
    assert job.see(189.5, 1) == Verdict()
    assert job.see(379.0, 1) == Verdict()
    assert job.see(379.5, 1).failed == "no unit was answered for 190 s"


def test_parallelism_is_asked_for_each_job() -> None:
    """The first executor registers after the session is there."""
    context = SimpleNamespace(defaultParallelism=2)
    session = SparkProcess(SimpleNamespace(sparkContext=context), None, 8)  # type: ignore[arg-type]
    assert session.parallelism() == 8
    context.defaultParallelism = 64
    assert session.parallelism() == 64


@pytest.mark.parametrize(
    ("conf", "tasks"),
    [
        ({"spark.master": "local[2,3]"}, 1),
        ({"spark.master": "spark://a:1"}, 16),
        ({"spark.master": "yarn", "spark.executor.instances": "5", "spark.executor.cores": "4"}, 20),
        ({"spark.master": "k8s://a", "spark.dynamicAllocation.maxExecutors": "30"}, 30),
        ({"spark.master": "spark://a:1", "spark.cores.max": "4"}, 4),
    ],
)
def test_what_a_cluster_may_come_to_have(conf: dict[str, str], tasks: int) -> None:
    assert _least_parallelism(conf) == tasks
