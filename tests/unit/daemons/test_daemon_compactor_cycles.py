"""A compactor is ready while its cycles come through, and again when they do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from dray.base.runtime import SystemRuntime
from dray.daemons.compactor import process as compacting
from dray.daemons.compactor.health import FAILED_CYCLES, STILL_SECONDS, CompactorHttp, CycleHealth
from dray.daemons.config import load
from dray.tables.compaction.summary import Cause, CompactionObserver, CycleSummary, Phase, StalledStream

INTERVAL = 60.0
STANDS_STILL = StalledStream("orders", -1, "the catalog is away", Cause.TABLE)


class CycleHarness:
    def __init__(self) -> None:
        self.now = 1000.0
        self.health = CycleHealth(lambda: self.now, INTERVAL)

    @property
    def ready(self) -> bool:
        return self.health.fault() is None

    def fail(self) -> None:
        for _ in range(FAILED_CYCLES):
            assert self.ready, "one or two are passing trouble"
            self.health.interrupted()
        assert not self.ready


@pytest.fixture
def watched() -> CycleHarness:
    return CycleHarness()


def test_cycles_that_are_interrupted_one_after_the_other(watched: CycleHarness) -> None:
    assert watched.ready, "its first cycle is under way"
    watched.fail()
    assert watched.health.fault() == (
        "the last 3 cycles failed: interrupted; the log of the compactor says by what"
    )
    watched.health.finished(CycleSummary())
    assert watched.ready
    watched.fail()


def test_spark_that_stands_still_is_said_at_once(watched: CycleHarness) -> None:
    watched.health.stands_still("no executor has taken a task for 70 s")
    assert watched.health.fault() == "Spark stands still: no executor has taken a task for 70 s"
    watched.health.stands_still(None)
    assert watched.ready
    watched.health.stands_still("again")
    watched.health.interrupted()
    assert watched.ready, "the failed cycle counts, as any other"


def test_only_writing_that_nobody_looks_after_is_dead(watched: CycleHarness) -> None:
    """What looks after it ends the process by itself."""
    assert watched.health.dead() is None
    watched.health.stands_still(None)
    watched.now += STILL_SECONDS - 1
    watched.health.stands_still("no executor has taken a task for 70 s")
    watched.now += STILL_SECONDS - 1
    assert watched.health.dead() is None
    watched.now += 1
    assert watched.health.dead() == "the writing of files has not been looked after for 1800 s"
    watched.health.took(Phase.WRITE, 4000.0)
    assert watched.health.dead() is None


def test_a_cycle_that_comes_through_begins_the_count_anew(watched: CycleHarness) -> None:
    for _ in range(FAILED_CYCLES):
        for _ in range(FAILED_CYCLES - 1):
            watched.health.interrupted()
        watched.health.finished(CycleSummary())
        assert watched.ready


def test_cycles_in_which_nothing_comes_through(watched: CycleHarness) -> None:
    for _ in range(FAILED_CYCLES):
        assert watched.ready
        watched.health.finished(CycleSummary(files=1, troubles=[STANDS_STILL]))
    assert watched.health.fault() == (
        "the last 3 cycles failed: 1 stood still and none moved, such as orders: the catalog is away"
    )


def test_a_table_that_stands_still_while_others_go_on_is_no_failed_cycle(watched: CycleHarness) -> None:
    for _ in range(2 * FAILED_CYCLES):
        watched.health.finished(CycleSummary(finished=1, troubles=[STANDS_STILL]))
        assert watched.ready


@pytest.mark.parametrize(
    "move",
    [
        lambda health: health.progress(Phase.WRITE, 1, 2),
        lambda health: health.took(Phase.PLAN, 1.0),
        lambda health: health.committed(1.0, "done"),
        lambda health: health.finished(CycleSummary()),
        lambda health: health.interrupted(),
    ],
)
def test_a_cycle_in_which_nothing_moves_any_more(
    watched: CycleHarness, move: Callable[[CycleHealth], None]
) -> None:
    watched.now += INTERVAL + STILL_SECONDS
    assert watched.ready, "pauses between cycles are no standstill"
    watched.now += 1
    assert watched.health.fault() == "nothing has moved for 1861 s in a cycle that has not ended"
    move(watched.health)
    assert watched.ready
    watched.now += INTERVAL + STILL_SECONDS + 1
    assert not watched.ready


async def test_the_garbage_collector_is_settled_once_spark_is_warm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes over all that a compactor has loaded are a part of what a cycle costs it."""
    seen: list[str] = []
    monkeypatch.setattr(compacting, "open_session", lambda _: seen.append("warm"))
    monkeypatch.setattr(compacting, "settle_garbage_collector", lambda: seen.append("settled"))
    monkeypatch.setattr(compacting, "_stop", lambda _: None)
    settings = load(None, {"DRAY_DATA_DIR": str(tmp_path)}).settings
    runtime = SystemRuntime(threads=2)
    try:
        with ExitStack() as stack:
            await compacting._open_writer(settings, runtime, stack, CompactionObserver())
    finally:
        runtime.close()
    assert seen == ["warm", "settled"]


async def test_it_is_the_cycles_of_the_compactor_that_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process as `drayd compactor` makes it, with a compactor that only tells how its cycles ended."""
    seen: list[str | None] = []
    https: list[Any] = []

    class OnlyTells:
        def __init__(self, *arguments: Any, **_others: Any) -> None:
            [self.observer] = [one for one in arguments if isinstance(one, CompactionObserver)]

        async def run(self, _stop: asyncio.Event) -> None:
            [http] = https
            seen.append(http.cycles.fault())
            for _ in range(FAILED_CYCLES):
                self.observer.interrupted()
            seen.append(http.cycles.fault())
            self.observer.finished(CycleSummary())
            seen.append(http.cycles.fault())

    class Remembered(CompactorHttp):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            https.append(self)

    async def find(*_arguments: Any, wait: bool) -> Any:
        assert https[0].cycles is None, "not ready before Spark is warm"
        return SimpleNamespace(streams=None, tables=None, topics=None, cluster=None)

    async def nothing(*_arguments: Any, **_named: Any) -> Any:
        return None

    class Keeper:
        """Nothing is wrong with the bucket."""

        held = staticmethod(lambda: None)
        start = staticmethod(lambda: None)
        stop = staticmethod(nothing)
        __call__ = staticmethod(nothing)

    async def keeper(*_arguments: Any, **_named: Any) -> Keeper:
        return Keeper()

    monkeypatch.setattr(compacting, "Compactor", OnlyTells)
    monkeypatch.setattr(compacting, "CompactorHttp", Remembered)
    monkeypatch.setattr(compacting, "_find_cluster", find)
    monkeypatch.setattr(compacting, "claimed_bucket", keeper)
    monkeypatch.setattr(compacting, "_open_writer", nothing)
    settings = load(None, {"DRAY_DATA_DIR": str(tmp_path), "DRAY_ICEBERG__ENABLED": "false"}).settings
    runtime = SystemRuntime(threads=2)
    try:
        await compacting._work(settings, runtime, once=False)
    finally:
        runtime.close()
    before, failed, after = seen
    assert (before, after) == (None, None)
    assert failed is not None


async def test_a_thread_that_waits_for_ever_does_not_keep_the_process_from_its_end() -> None:
    """A compactor that cron starts would be there for ever, and with each turn one more."""
    runtime, answers = SystemRuntime(), Event()
    waiting = asyncio.ensure_future(runtime.in_thread(answers.wait))
    await runtime.in_thread(lambda: None)  # behind the other: that has its thread
    assert not runtime.closes(0.05)
    answers.set()
    await waiting
    assert runtime.closes(60)
