"""The worker thread: batches, order, withdrawal, and nobody left waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dray.base.runtime.workers import PollingThread, Worker, WorkItem


class Number(WorkItem[int]):
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        super().__init__()
        self.value = value


class Gate:
    """A guard that opens when the test says so."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.entering = threading.Event()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.entering.set()
        self.opened.wait(10.0)
        yield


def double(batch: list[Number]) -> None:
    for job in batch:
        job.result = job.value * 2


async def test_what_queues_up_is_one_batch_in_order() -> None:
    batches: list[list[int]] = []

    def process(batch: list[Number]) -> None:
        batches.append([job.value for job in batch])
        double(batch)

    gate = Gate()
    worker = Worker("test", time.monotonic, process, guard=gate)
    first = worker.submit(Number(0))
    await asyncio.to_thread(gate.entering.wait)
    rest = [worker.submit(Number(number)) for number in range(1, 100)]
    gate.opened.set()
    assert await asyncio.gather(first, *rest) == [number * 2 for number in range(100)]
    assert batches == [list(range(100))]
    assert await worker.close(5.0)


async def test_batches_are_bounded() -> None:
    sizes: list[int] = []

    def process(batch: list[Number]) -> None:
        sizes.append(len(batch))
        double(batch)

    gate = Gate()
    worker = Worker("test", time.monotonic, process, guard=gate, batch_limit=10)
    futures = [worker.submit(Number(number)) for number in range(35)]
    gate.opened.set()
    await asyncio.gather(*futures)
    assert sizes == [10, 10, 10, 5]
    assert await worker.close(5.0)


async def test_an_unexpected_error_reaches_every_caller_and_the_worker_goes_on() -> None:
    def process(batch: list[Number]) -> None:
        if any(job.value < 0 for job in batch):
            raise ZeroDivisionError
        double(batch)

    worker = Worker("test", time.monotonic, process)
    with pytest.raises(ZeroDivisionError):
        await worker.submit(Number(-1))
    assert await worker.submit(Number(2)) == 4
    assert await worker.close(5.0)


async def test_a_guard_that_cannot_be_entered_fails_what_waits() -> None:
    @contextmanager
    def guard() -> Iterator[None]:
        raise PermissionError
        yield

    worker = Worker("test", time.monotonic, double, guard=guard)
    with pytest.raises(PermissionError):
        await worker.submit(Number(1))
    assert await worker.close(5.0)


async def test_a_guard_that_fails_on_the_way_out_changes_no_answer() -> None:
    @contextmanager
    def guard() -> Iterator[None]:
        yield
        raise PermissionError

    worker = Worker("test", time.monotonic, double, guard=guard)
    assert await worker.submit(Number(1)) == 2
    assert await worker.close(5.0)


async def test_withdrawn_jobs_never_run() -> None:
    ran: list[int] = []

    def process(batch: list[Number]) -> None:
        ran.extend(job.value for job in batch)
        double(batch)

    clock = [1.0]
    gate = Gate()
    worker = Worker("test", lambda: clock[0], process, guard=gate)
    old = worker.submit(Number(1))
    clock[0] = 2.0
    young = worker.submit(Number(2))
    assert worker.withdraw(2.0, TimeoutError) == 1
    with pytest.raises(TimeoutError):
        await old
    gate.opened.set()
    assert await young == 4
    assert ran == [2]
    assert await worker.close(5.0)


async def test_close_finishes_what_is_queued_and_ends_the_thread() -> None:
    finished = threading.Event()
    worker = Worker("test", time.monotonic, double, finish=finished.set)
    futures = [worker.submit(Number(number)) for number in range(10)]
    assert await worker.close(5.0)
    assert [future.result() for future in futures] == [number * 2 for number in range(10)]
    assert finished.is_set()
    with pytest.raises(RuntimeError, match="closed"):
        worker.submit(Number(1))


async def test_close_gives_up_on_a_thread_that_hangs() -> None:
    gate = Gate()
    worker = Worker("test", time.monotonic, double, guard=gate)
    future = worker.submit(Number(1))
    assert not await worker.close(0.01)
    worker.withdraw(float("inf"), TimeoutError)
    with pytest.raises(TimeoutError):
        await future
    gate.opened.set()


async def test_a_cancelled_caller_harms_nobody() -> None:
    gate = Gate()
    worker = Worker("test", time.monotonic, double, guard=gate)
    cancelled, kept = worker.submit(Number(1)), worker.submit(Number(2))
    cancelled.cancel()
    gate.opened.set()
    assert await kept == 4
    assert await worker.close(5.0)


async def test_afterwards_comes_before_the_answers_and_on_the_loop() -> None:
    seen: list[tuple[bool, bool]] = []
    future: asyncio.Future[int]
    main = threading.current_thread()

    def process(batch: list[Number]) -> object:
        double(batch)
        return lambda: seen.append((threading.current_thread() is main, future.done()))

    worker: Worker[Number] = Worker("test", time.monotonic, process)  # type: ignore[arg-type]
    future = worker.submit(Number(1))
    await future
    assert seen == [(True, False)]
    assert await worker.close(5.0)


async def test_a_poller_polls_until_stopped() -> None:
    polls = 0
    enough, finished = threading.Event(), threading.Event()

    def poll() -> bool:
        nonlocal polls
        polls += 1
        if polls >= 3:
            enough.set()
        return False

    poller = PollingThread("test", 0.001, 0.001, poll, finished.set)
    assert await asyncio.to_thread(enough.wait, 5.0)
    poller.stop()
    assert await asyncio.to_thread(finished.wait, 5.0)
    after = polls
    await asyncio.sleep(0.01)
    assert polls == after


async def test_a_poller_that_finds_nothing_polls_less_often() -> None:
    """Here the pause is longer than the test: it ends because the poller is stopped."""
    polls = 0
    last = 10 + PollingThread.QUIET_AFTER
    reached, finished = threading.Event(), threading.Event()

    def poll() -> bool:
        nonlocal polls
        polls += 1
        if polls == last:
            reached.set()
        return polls == 10  # which begins the count anew

    poller = PollingThread("test", 0.0001, 1000.0, poll, finished.set)
    assert await asyncio.to_thread(reached.wait, 5.0)
    assert not await asyncio.to_thread(finished.wait, 0.05)
    poller.stop()
    assert await asyncio.to_thread(finished.wait, 5.0)
    assert polls == last
