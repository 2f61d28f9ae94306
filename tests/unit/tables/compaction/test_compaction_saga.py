"""The saga under every fault: a crash, an error, or a lost reply at every single call it makes.

Whatever happens at whichever call, afterwards another compactor finishes, the log reads the same, the table
is equal to it without duplicates, and nothing is left over.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from tests.services import compaction_cluster
from tests.services.compaction_cluster import ALL, Cluster, Worker
from tests.simulation.scripted import Fate
from tests.unit.tables.compaction.faults import Fault, calls_of, count_calls

from dray.broker.topics.model import Topic
from dray.log.life.retention import WaitsForTable
from dray.metadata.contract import MetadataError
from dray.objects.contract import ObjectError
from dray.tables.contract import TablesUnavailable
from dray_simulation.kernel.loop import run

assert compaction_cluster  # its tests run on virtual time: see conftest

MERGING = replace(ALL, parquet_max_files=1)


async def _work(worker: Worker) -> None:
    """A cycle that meets trouble must not hide it, but the next one is another's."""
    try:
        await worker.once()
    except (MetadataError, ObjectError, TablesUnavailable):
        return


@cache
def prepared(deletes: bool) -> Cluster:
    return run(prepare(deletes))


@pytest.fixture(autouse=True)
def once_for_all() -> None:
    """Made once, outside of any test's own loop, and copied for every run."""
    for deletes in (False, True):
        prepared(deletes)


def small_topic(deletes: bool = False) -> tuple[Cluster, Topic]:
    """Two partitions with WAL entries; in the first also two files that are to be merged. `deletes`: the
    first records of both were deleted, in the middle of a file and of an entry."""
    kept = prepared(deletes)
    copied = (
        copy.deepcopy(part) for part in (kept.state, kept.bucket, kept.catalog, kept.topics, kept.written)
    )
    parts: tuple[Any, ...] = tuple(copied)
    state, bucket, catalog, topics, written = parts
    cluster = Cluster(state=state, bucket=bucket, catalog=catalog, topics=topics, written=written, seed=2)
    return cluster, topics.topics[0]


async def prepare(deletes: bool) -> Cluster:
    cluster = Cluster()
    topic = await cluster.topic("orders", 2)
    first, second = topic.streams
    for turn in range(2):
        await cluster.fill(first, 1, first=turn)
        await cluster.worker().once()
    if deletes:
        await cluster.append(second, b"w", b"x", producer=(7, 0, 0))
        await cluster.append(second, b"y", producer=(7, 0, 2))
        for stream in topic.streams:
            assert await cluster.log.delete_records(stream, 1) == 1
    else:
        await cluster.append(second, b"x", producer=(7, 0, 0))
        await cluster.append(second, b"y", producer=(7, 0, 1))
    await asyncio.sleep(1)  # until everything is settled
    return cluster


async def faulty_run(
    number: int,
    how: str,
    after: Callable[[Cluster, Topic], Awaitable[None]] | None = None,
    *,
    deletes: bool = False,
) -> bool:
    """False once the fault lies beyond the last call."""
    cluster, topic = small_topic(deletes)
    worker = cluster.worker(MERGING)
    fault = Fault(number, how)
    task = worker.runtime.spawn(_work(worker), "compactor")
    count_calls(worker, fault, worker.runtime.kill)
    await asyncio.wait([task], timeout=3600)
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
    if not fault.hit:
        return False
    try:
        await cluster.check_log()
        if after is not None:
            await after(cluster, topic)
        await cluster.check_settled()
        last = 2 if deletes else 1
        again = await cluster.append(topic.streams[1], b"y", producer=(7, 0, last)) if after is None else None
        assert again is None or again.base_offset == last, "the producers are still known"
    except AssertionError as error:
        raise AssertionError(f"{how} call {number}, {fault.hit}: {error}") from error
    return True


@pytest.mark.parametrize(("how", "calls"), [("crash", 100), ("error", 100), ("lost reply", 30)])
def test_a_fault_at_every_call(how: str, calls: int) -> None:
    number = 0
    while run(faulty_run(number, how)):
        number += 1
    assert number > calls, "it did less than it should"


@pytest.mark.parametrize("how", ["crash", "lost reply"])
def test_a_fault_at_every_call_while_deleted_records_leave_the_table(how: str) -> None:
    number = 0
    while run(faulty_run(number, how, deletes=True)):
        number += 1
    assert number > 30, "it did less than it should"


def test_more_is_deleted_after_a_crash_at_every_call() -> None:
    """Of a file that is half trimmed: the table catches up with the second deletion too."""

    async def delete(cluster: Cluster, topic: Topic) -> None:
        [first, _] = topic.streams
        try:
            assert await cluster.log.delete_records(first, 2) == 2
        except WaitsForTable:
            await cluster.worker(MERGING).once()
            assert await cluster.log.delete_records(first, 2) == 2

    number = 0
    while run(faulty_run(number, "crash", delete, deletes=True)):
        number += 1
    assert number > 100, "it did less than it should"


def test_the_topic_is_deleted_after_a_crash_at_every_call() -> None:
    async def delete(cluster: Cluster, topic: Topic) -> None:
        await cluster.delete(topic)

    number = 0
    while run(faulty_run(number, "crash", delete)):
        number += 1
    assert number > 100, "it did less than it should"


def test_a_compactor_that_sleeps_at_every_call_wakes_when_others_are_done() -> None:
    async def one(number: int) -> bool:
        cluster, _ = small_topic()
        worker = cluster.worker(MERGING)
        slept = asyncio.Event()

        async def others() -> None:
            await cluster.worker(MERGING).once()
            await asyncio.sleep(1)
            await cluster.worker(MERGING).once()

        fault = Fault(number, "sleep")

        def wrap(target: object, name: str) -> None:
            kept = getattr(target, name)

            async def called(*arguments, **options):
                fault.seen += 1
                if fault.seen == number + 1:
                    fault.hit = f"{type(target).__name__}.{name}{arguments[:2]}"
                    await others()
                    slept.set()
                return await kept(*arguments, **options)

            setattr(target, name, called)

        for target, name in calls_of(worker):
            wrap(target, name)
        await _work(worker)
        if not slept.is_set():
            return False
        try:
            await cluster.check_settled()
        except AssertionError as error:
            raise AssertionError(f"asleep at call {number}, {fault.hit}: {error}") from error
        return True

    number = 0
    while run(one(number)):
        number += 1
    assert number > 100, "it did less than it should"


@pytest.mark.parametrize("deletes", [False, True])
@pytest.mark.parametrize("part", ["/hwm", "/offset-index/", "/job", "/producers", "/wal/refs/"])
def test_late_copies_of_every_write(part: str, deletes: bool) -> None:
    """Every write of a kind arrives once more after all is done."""

    async def one() -> None:
        cluster, topic = small_topic(deletes)
        worker = cluster.worker(MERGING)
        copies = [worker.store.trap(Fate.COPY, "write", part) for _ in range(12)]
        await worker.once()
        await cluster.fill(topic.streams[0], 1, first=2)
        await cluster.worker(MERGING).once()
        landed = 0
        for trap in copies:
            if trap.sprung.is_set():
                trap.land()
                landed += 1
        assert landed
        await cluster.check_settled()

    run(one())


def test_a_compactor_that_reads_from_behind_finishes_all_the_same() -> None:
    """Its own job, seen as it was before it moved it on, is not where it goes on from."""

    async def one() -> None:
        cluster, topic = small_topic()
        worker = cluster.worker(MERGING)
        committing = worker.tables.hold("commit")
        running = asyncio.ensure_future(worker.once())
        await committing.reached()
        worker.store.fall_behind(topic.streams[0] % 2)
        committing.release()
        await running
        await cluster.worker(MERGING).once()
        await cluster.check_settled()

    run(one())
