"""Rules of background tasks and of limits of engines, each taken out: see
`simulation/dray_simulation/cluster/limits.py`.

Beside each stands the seed from which the search for it starts. That settling is kept whole is noticed by a
schedule of the log (`log_schedules`): chance comes by it too rarely.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any

import pytest

from dray.base.runtime.background import KeptTask
from dray.log.append.commit_writes import CommitWrites
from dray.log.append.pipeline import DomainPipeline
from dray.log.producer_state import ProducerStates
from dray.metadata.contract import MetadataError
from dray.tables.compaction.cycle import Compactor
from dray.tables.compaction.round import FORESEEN, Round
from dray.tables.compaction.writing.careful_writer import CarefulWriter

Patch = Callable[[pytest.MonkeyPatch], None]


# --- tasks


def tasks_die_of_what_they_raise(patch: pytest.MonkeyPatch) -> None:
    async def run(self: KeptTask) -> None:
        from dray.base.runtime import background

        background._name.set(self.name)
        await self._work()

    patch.setattr(KeptTask, "_run", run)


# --- one stream, one cycle


def what_one_stream_meets_ends_the_round(patch: pytest.MonkeyPatch) -> None:
    async def each(self: Round, items: Any, act: Any, progress: Any = None) -> None:
        del progress
        for stream, item in items:
            with suppress(*FORESEEN):
                await act(self, stream, item)

    patch.setattr(Round, "each", each)


def what_a_cycle_meets_ends_the_compactor(patch: pytest.MonkeyPatch) -> None:
    async def run_once(self: Compactor, stop: asyncio.Event) -> None:
        with suppress(*FORESEEN):
            await self.run_cycle(everything=False)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), self._settings.interval)

    patch.setattr(Compactor, "_run_once", run_once)
    patch.setattr(CarefulWriter, "write", lambda self, *given: self._inner.write(*given))


# --- limits


def snapshots_without_a_bound(patch: pytest.MonkeyPatch) -> None:
    def bounding(self: ProducerStates, *_: int) -> Generator[None, None, tuple[ProducerStates, int]]:
        yield
        return self, 0

    patch.setattr(ProducerStates, "bounding", bounding)


def commits_in_one_write(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CommitWrites, "is_full_for", lambda *_: False)


def settling_is_cut_anywhere_and_dropped(patch: pytest.MonkeyPatch) -> None:
    def take(self: DomainPipeline, room: int) -> list[list[Any]]:
        operations = [operation for part in self._settling for operation in part]
        self._settling = deque([operation] for operation in operations[room:])
        return [operations[:room]] if operations[:room] else []

    async def settle_now(self: DomainPipeline) -> None:
        while settling := self._take_settling(self._store.limits.operations):
            with suppress(MetadataError):
                await self._store.write(self._domain, settling[0])

    patch.setattr(DomainPipeline, "_take_settling", take)
    patch.setattr(DomainPipeline, "_settle_now", settle_now)


MUTATIONS: dict[str, tuple[Patch, int]] = {
    "tasks die of what they raise": (tasks_die_of_what_they_raise, 1),
    "what one stream meets ends the round": (what_one_stream_meets_ends_the_round, 1),
    "what a cycle meets ends the compactor": (what_a_cycle_meets_ends_the_compactor, 17),
    "snapshots without a bound": (snapshots_without_a_bound, 1),
    "commits in one write": (commits_in_one_write, 1),
}
