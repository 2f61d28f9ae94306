"""Threads that live as long as what they serve: one that works through a queue, one that polls.

`Runtime.in_thread` suits work that stands alone. A `Worker` suits work that gains from company: it
takes everything that queued up while it was busy as one batch (a group commit), at the price of one
hop to the thread and one back for the whole batch. It never waits behind other work of the pool.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from dray.base.runtime.logger import get_logger

Result = TypeVar("Result")
AnyJob = TypeVar("AnyJob", bound="WorkItem[Any]")

Afterwards: TypeAlias = Callable[[], None] | None

_log = get_logger(__name__)


class WorkItem(Generic[Result]):
    """One piece of a worker's batch: processing leaves either a `result` or an `error` in it."""

    __slots__ = ("error", "future", "result", "submitted")

    future: asyncio.Future[Result]
    submitted: float

    def __init__(self) -> None:
        self.result: Result | None = None
        self.error: Exception | None = None


class Worker(Generic[AnyJob]):
    """One dedicated thread that works through batches of jobs.

    `process` gets the batch and may return something to be called on the event loop just before the
    callers get their answers. `guard` makes the context to hold around each batch: jobs that arrive
    while it is being entered join the batch. `finish` runs in the thread at the end.

    A job is taken from the queue by the thread or by `withdraw`, each an atomic `popleft`: what was
    withdrawn was never begun.
    """

    def __init__(
        self,
        name: str,
        clock: Callable[[], float],
        process: Callable[[list[AnyJob]], Afterwards],
        *,
        guard: Callable[[], AbstractContextManager[None]] = nullcontext,
        finish: Callable[[], None] | None = None,
        batch_limit: int = 512,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._process = process
        self._guard = guard
        self._finish = finish
        self._batch_limit = batch_limit
        self._queue: deque[AnyJob] = deque()
        # A bare lock as a one-place signal: only the loop's thread releases, only the worker acquires.
        self._signal = threading.Lock()
        self._signal.acquire()
        self._closing = False
        self._closed: asyncio.Future[None] = self._loop.create_future()
        threading.Thread(target=self._run, name=f"dray-{name}", daemon=True).start()

    def submit(self, job: AnyJob) -> asyncio.Future[Any]:
        """Queue a job; call it on the event loop's thread only."""
        self.submit_all((job,))
        return job.future

    def submit_all(self, jobs: Sequence[AnyJob]) -> None:
        """Queue jobs at once: the thread takes them as one batch, unless it is in the middle of taking one.
        Each has its own future."""
        if self._closing:
            raise RuntimeError("the worker is closed")
        now = self._clock()
        for job in jobs:
            job.future = self._loop.create_future()
            job.submitted = now
        self._queue.extend(jobs)
        self._wake()

    def withdraw(self, before: float, error: Callable[[], Exception]) -> int:
        """Fail the jobs queued before that time which nobody has begun. (When the thread comes in
        between, a younger one may go as well: it was not begun either.)"""
        withdrawn = 0
        while (oldest := next(iter(self._queue), None)) is not None and oldest.submitted < before:
            try:
                job = self._queue.popleft()
            except IndexError:  # the thread was quicker
                break
            withdrawn += 1
            if not job.future.done():
                job.future.set_exception(error())
        return withdrawn

    async def close(self, patience: float) -> bool:
        """Finish what is queued, then end the thread. False when it hangs (in its guard, say) and is
        left behind after `patience` seconds."""
        self._closing = True
        self._wake()
        await asyncio.wait([self._closed], timeout=patience)
        return self._closed.done()

    def _wake(self) -> None:
        if self._signal.locked():
            self._signal.release()

    def _run(self) -> None:
        while True:
            self._signal.acquire()
            while self._queue:
                self._run_batch()
            if self._closing:
                break
        try:
            if self._finish is not None:
                self._finish()
        finally:
            self._on_loop(self._end)

    def _run_batch(self) -> None:
        batch: list[AnyJob] = []
        afterwards: Afterwards = None
        processed = False
        try:
            with self._guard():
                self._claim(batch)
                if batch:
                    afterwards = self._process(batch)
                processed = True
        except Exception as error:  # handed to every caller: none is left waiting
            if not batch:  # the guard could not be entered: nothing began
                self._claim(batch)
            if processed:  # what was done stays done, whatever the guard says on the way out
                _log.error("could not leave the guard of a batch", exc_info=error)
            else:
                for job in batch:
                    job.error = error
        if batch:
            self._on_loop(self._deliver, batch, afterwards)

    def _claim(self, batch: list[AnyJob]) -> None:
        while len(batch) < self._batch_limit:
            try:
                batch.append(self._queue.popleft())
            except IndexError:  # empty, or withdrawn meanwhile
                return

    def _deliver(self, batch: list[AnyJob], afterwards: Afterwards) -> None:
        if afterwards is not None:
            afterwards()
        for job in batch:
            if job.future.done():  # the caller was cancelled
                continue
            if job.error is not None:
                job.future.set_exception(job.error)
            else:
                job.future.set_result(job.result)

    def _end(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)

    def _on_loop(self, function: Callable[..., None], *arguments: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            if not self._loop.is_closed():
                raise  # with the loop gone, no task waits for an answer


class Bell(Protocol):
    """A bell wakes a polling thread before its time. All but `interrupt` is called in that thread."""

    def open(self) -> bool:
        """False where there is none: then the thread wakes by time alone."""

    def wait(self, seconds: float) -> bool:
        """Did it ring within that time?"""

    def interrupt(self) -> None:
        """End the wait that is under way. Called from any thread."""

    def close(self) -> None: ...


class PollingThread:
    """One thread that calls `poll` at once and then every `interval` seconds, until stopped. When `poll` has
    found nothing for a while it is called every `quiet_interval` seconds: waking up is what costs an idle
    process most. With a `bell`, it is also called whenever that rings, though not more often than every
    `REST_SECONDS`: a neighbour that rings a thousand times a second must not take a core."""

    QUIET_AFTER: Final = 25
    REST_SECONDS: Final = 0.004

    def __init__(
        self,
        name: str,
        interval: float,
        quiet_interval: float,
        poll: Callable[[], bool],
        finish: Callable[[], None],
        bell: Bell | None = None,
    ) -> None:
        self._interval = interval
        self._quiet_interval = quiet_interval
        self._poll = poll
        self._failing = False
        self._finish = finish
        self._bell = bell
        # A bare lock: waiting on a `threading.Event` takes four times the processor time, and this
        # wait is all that an idle process does.
        self._running = threading.Lock()
        self._running.acquire()
        threading.Thread(target=self._run, name=f"dray-{name}", daemon=True).start()

    def stop(self) -> None:
        if self._running.locked():
            self._running.release()
            if self._bell is not None:
                self._bell.interrupt()

    def _look(self) -> bool:
        """The end of this thread would not be noticed: whatever one look raises, there is a next one."""
        try:
            moved = self._poll()
        except Exception as error:
            if not self._failing:
                _log.error("a thread that polls failed; it goes on", exc_info=error)
            self._failing = True
            return False
        self._failing = False
        return moved

    def _run(self) -> None:
        in_vain, rang = 0, False
        try:
            bell = self._bell if self._bell is not None and self._bell.open() else None
            while True:
                in_vain = 0 if self._look() else in_vain + 1
                seconds = self._quiet_interval if in_vain >= self.QUIET_AFTER else self._interval
                if bell is None:
                    if self._running.acquire(timeout=seconds):
                        break
                    continue
                if rang and self._running.acquire(timeout=self.REST_SECONDS):
                    break
                rang = bell.wait(seconds)
                if self._running.acquire(blocking=False):
                    break
        finally:
            self._finish()
            if self._bell is not None:
                self._bell.close()
