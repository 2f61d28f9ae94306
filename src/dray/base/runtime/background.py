"""The work in the background of a process: tasks that must not end, and errands that are not awaited.

Retention, watches, collectors and keep-alives answer no request, so no caller hears of their exceptions.
Left to itself, such a task would be gone, and the process would go on without it, for weeks perhaps. So each
is started with `keep_running`: whatever it raises is logged and counted, and it is begun again after a pause.
One that ended all the same is named by `/healthz`. `tests/unit/test_house.py` keeps that none is started in
another way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from dray.base.runtime.logger import get_logger

if TYPE_CHECKING:
    from dray.base.runtime.contract import Runtime

_log = get_logger(__name__)

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
# Of one name, so many seconds lie between two lines with a traceback; what comes meanwhile is counted.
QUIET_SECONDS: Final = 60.0

FailureListener = Callable[[str, BaseException], None]

_name: ContextVar[str | None] = ContextVar("dray_background", default=None)


def background_name() -> str | None:
    """The task in the background that the code at hand is part of, or was started by."""
    return _name.get()


class BackgroundTasks:
    """Of one process: what failed how often, and what ended though it should not have. Names are labels of a
    metric, so there must be few: ids of groups and sessions do not belong into them."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.failures: dict[str, int] = {}
        self._clock = clock
        self._ended: dict[str, str] = {}
        self._running: dict[KeptTask, None] = {}
        self._logged: dict[str, tuple[float, int]] = {}  # when, and how many failures were logged by then
        self._listeners: list[FailureListener] = []

    def subscribe(self, listener: FailureListener) -> None:
        """Call it with every failure. The metrics and the oracle of a simulation use this."""
        self._listeners.append(listener)

    def report(self, name: str, error: BaseException) -> None:
        """Count and log a failure that no other code handles."""
        count = self.failures[name] = self.failures.get(name, 0) + 1
        for listener in self._listeners:
            listener(name, error)
        now = self._clock()
        at, logged = self._logged.get(name, (-QUIET_SECONDS, 0))
        if now - at >= QUIET_SECONDS:
            self._logged[name] = now, count
            _log.error(
                "something failed in the background; it is tried again",
                task=name,
                failures=count - logged,
                error=f"{type(error).__name__}: {error}",
                exc_info=error,
            )

    def names(self) -> list[str]:
        """The tasks that run."""
        return sorted({task.name for task in self._running})

    def ended(self) -> dict[str, str]:
        """The tasks that should run and do not, each with what it ended with. One of the same name that
        runs again takes its place."""
        return dict(self._ended)

    def _begun(self, task: KeptTask) -> None:
        self._running[task] = None
        self._ended.pop(task.name, None)

    def _over(self, task: KeptTask, why: str | None) -> None:
        self._running.pop(task, None)
        if why is not None:
            self._ended[task.name] = why
            _log.error("a task in the background has ended", task=task.name, reason=why)


class KeptTask:
    """A task that goes on until it is stopped."""

    def __init__(
        self,
        runtime: Runtime,
        name: str,
        work: Callable[[], Awaitable[None]],
        pause: float,
        longest_pause: float,
    ) -> None:
        self.name = name
        self._runtime = runtime
        self._work = work
        self._pause = pause
        self._longest_pause = longest_pause
        self._wanted = True
        runtime.background._begun(self)
        self._task = runtime.spawn(self._run(), name)
        self._task.add_done_callback(self._done)

    def cancel(self) -> None:
        """It is not needed any more; it may end itself with this."""
        self._wanted = False
        self._task.cancel()

    async def stop(self) -> None:
        """Over when this returns."""
        self.cancel()
        await asyncio.wait([self._task])

    @property
    def is_over(self) -> bool:
        return self._task.done()

    async def _run(self) -> None:
        _name.set(self.name)
        failed = 0
        while True:
            began = self._runtime.monotonic()
            try:
                await self._work()
                return
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if not self._wanted or task is None or task.cancelling():
                    raise
                failure: BaseException = error  # of a call that was ended elsewhere, not of this task
            except Exception as error:
                failure = error
            self._runtime.background.report(self.name, failure)
            if self._runtime.monotonic() - began >= self._longest_pause:
                failed = 0  # it went well for long
            await self._runtime.sleep(min(self._pause * 2.0 ** min(failed, 30), self._longest_pause))
            failed += 1

    def _done(self, task: asyncio.Task[None]) -> None:
        why: str | None = None
        if self._wanted:
            if task.cancelled():
                why = "it was cancelled"
            elif (error := task.exception()) is not None:
                why = f"{type(error).__name__}: {error}"
            else:
                why = "it returned"
        self._runtime.background._over(self, why)


def keep_running(
    runtime: Runtime,
    name: str,
    work: Callable[[], Awaitable[None]],
    *,
    pause: float = FIRST_PAUSE,
    longest_pause: float = LONGEST_PAUSE,
) -> KeptTask:
    """Start `work`, which is not meant to return, and begin it again whenever it raises: after `pause`
    seconds, after twice as many each time that it fails again soon, and after `longest_pause` at most."""
    return KeptTask(runtime, name, work, pause, longest_pause)


def run_once(
    runtime: Runtime, name: str, work: Callable[..., Awaitable[None]], *arguments: Any
) -> asyncio.Task[None]:
    """An errand that is not awaited: what it raises is logged and counted."""
    return runtime.spawn(_once(runtime, name, work, arguments), name)


async def _once(
    runtime: Runtime, name: str, work: Callable[..., Awaitable[None]], arguments: tuple[Any, ...]
) -> None:
    _name.set(name)
    try:
        await work(*arguments)
    except Exception as error:
        runtime.background.report(name, error)
