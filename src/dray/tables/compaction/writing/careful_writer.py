"""Finds the unit that takes its writer down, so that only that unit is set aside.

Units are written together, and what ends a worker (memory that it does not get, a crash in a library) ends
the call for all of them. Tried again as they are, they would fail again, and all of their streams would stand
still because of one. So what failed together is tried in halves, down to single units. A unit that failed
with others and again alone has failed twice: its answer is that another try is not worth it, and its stream
is left alone for a while.

If every one of several units fails alone, the fault is not theirs: the failure is raised as it came.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from dray.base.runtime import Runtime
from dray.tables.compaction.model import (
    Deliver,
    Progress,
    Unit,
    UnitAnswer,
    UnitFailed,
    UnitWriter,
    WriterGone,
)

_log = structlog.get_logger(__name__)

_ONCE_MORE: Final = 1  # a unit that was alone from the start has one more try, in the next cycle


class CarefulWriter:
    """A `UnitWriter` around another. `WriterGone` passes: then there is nothing to try with."""

    def __init__(self, inner: UnitWriter, runtime: Runtime) -> None:
        self._inner = inner
        self._runtime = runtime
        self._failed_alone: dict[tuple[int, int], int] = {}  # by stream and job, while they go on failing

    async def write(
        self, units: Sequence[Unit], progress: Progress | None = None, deliver: Deliver | None = None
    ) -> list[UnitAnswer]:
        answered: set[tuple[int, int]] = set()

        def delivered(answer: UnitAnswer) -> None:
            answered.add((answer.stream, answer.job))
            if deliver is not None:
                deliver(answer)

        early = None if deliver is None else delivered
        try:
            answers = list(await self._inner.write(units, progress, early))
        except WriterGone:
            raise
        except Exception as error:
            left = [unit for unit in units if (unit.stream, unit.job) not in answered]
            if len(units) == 1 and left:
                return [self._alone(units[0], error, tries=_ONCE_MORE)]
            reason = str(error) or type(error).__name__
            _log.warning("units failed together; they are tried in halves", units=len(left), error=reason)
            answers, broken = await self._halves(left, early, answered)
            if len(broken) == len(left) > 1:
                raise
            answers += [self._alone(unit, why, tries=0) for unit, why in broken]
        self._forget(units)
        return answers

    async def _halves(
        self, units: Sequence[Unit], deliver: Deliver | None, answered: set[tuple[int, int]]
    ) -> tuple[list[UnitAnswer], list[tuple[Unit, Exception]]]:
        """The written files, and the units that failed alone too."""
        answers: list[UnitAnswer] = []
        broken: list[tuple[Unit, Exception]] = []
        middle = len(units) // 2
        for half in (units[:middle], units[middle:]):
            try:
                answers += await self._inner.write(half, None, deliver) if half else ()
            except WriterGone:
                raise
            except Exception as error:
                if len(half) == 1:
                    broken.append((half[0], error))
                    continue
                left = [unit for unit in half if (unit.stream, unit.job) not in answered]
                more, further = await self._halves(left, deliver, answered)
                answers += more
                broken += further
        return answers, broken

    def _alone(self, unit: Unit, error: Exception, tries: int) -> UnitFailed:
        key = unit.stream, unit.job
        failed = self._failed_alone[key] = self._failed_alone.get(key, 0) + 1
        self._runtime.background.report("write units", error)
        reason = f"its unit ended the worker: {str(error) or type(error).__name__}"
        return UnitFailed(unit.stream, unit.job, reason, retriable=failed <= tries)

    def _forget(self, units: Sequence[Unit]) -> None:
        if self._failed_alone:
            for unit in units:
                self._failed_alone.pop((unit.stream, unit.job), None)
