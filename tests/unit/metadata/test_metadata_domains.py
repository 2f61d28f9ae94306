"""Writes to several domains at once: each has its own outcome, and SQLite takes them in one transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.simulation.scripted import Fate, ScriptedStore

from dray.base.runtime import SystemRuntime
from dray.base.runtime.workers import Afterwards, Worker
from dray.metadata.contract import (
    ABSENT,
    Ambiguous,
    Change,
    MetadataStore,
    Outcome,
    Put,
    Unavailable,
    domains_writer,
)
from dray.metadata.sqlite import SqliteStore
from dray.metadata.sqlite.writer import AnyWrite, GroupWriter


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    runtime = SystemRuntime(threads=1)
    made: ScriptedStore | SqliteStore
    if request.param == "memory":
        made = ScriptedStore(runtime)
    else:
        made = SqliteStore(tmp_path / "metadata.sqlite", runtime)
        await made.open()
    yield made
    await made.close()
    runtime.close()


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each transaction held."""
    seen: list[int] = []
    run = GroupWriter.run

    def noted(self: GroupWriter, jobs: Sequence[AnyWrite]) -> Afterwards:
        seen.append(len(jobs))
        return run(self, jobs)

    monkeypatch.setattr(GroupWriter, "run", noted)
    return seen


async def test_sqlite_takes_them_in_one_transaction(
    transactions: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = SystemRuntime(threads=1)
    store = SqliteStore(tmp_path / "metadata.sqlite", runtime)
    await store.open()
    transactions.clear()
    handed_over: list[Worker[AnyWrite]] = []
    wake = Worker._wake

    def noted(self: Worker[AnyWrite]) -> None:
        handed_over.append(self)
        wake(self)

    monkeypatch.setattr(Worker, "_wake", noted)
    found = await store.write_domains([(domain, [Put("/a", b"x")]) for domain in range(4)])
    assert [type(outcomes) for outcomes in found] == [list] * 4
    assert transactions == [4]
    assert len(handed_over) == 1, "all at once, or the thread may begin with the first alone"
    await store.close()
    runtime.close()


async def test_the_watchers_of_this_process_are_not_woken_and_those_of_others_are(tmp_path: Path) -> None:
    runtime = SystemRuntime(threads=1)
    ours, theirs = [SqliteStore(tmp_path / "metadata.sqlite", runtime) for _ in range(2)]
    await ours.open()
    await theirs.open()
    own, foreign = aiter(ours.watch(0)), aiter(theirs.watch(0))
    assert await anext(own) == await anext(foreign) == Change(None)
    await ours.write_domains([(0, [Put("/known", b"x")]), (1, [Put("/known", b"x")])])
    async with asyncio.timeout(60):
        assert await anext(foreign) == Change("/known")
        await ours.write(0, [Put("/news", b"x")])
        assert await anext(own) == Change("/news")
    for store in (ours, theirs):
        await store.close()
    runtime.close()


async def test_what_shares_a_transaction_with_such_a_write_is_told(tmp_path: Path) -> None:
    runtime = SystemRuntime(threads=1)
    store = SqliteStore(tmp_path / "metadata.sqlite", runtime)
    await store.open()
    watch = aiter(store.watch(0))
    assert await anext(watch) == Change(None)
    known = asyncio.ensure_future(store.write_domains([(0, [Put("/known", b"x")])]))
    news = asyncio.ensure_future(store.write(0, [Put("/news", b"x")]))
    await asyncio.wait([known, news])
    async with asyncio.timeout(60):
        while await anext(watch) != Change("/news"):
            pass
    await store.close()
    runtime.close()


async def test_an_expectation_that_fails_is_of_its_own_domain(store: MetadataStore) -> None:
    await store.write(1, [Put("/a", b"first")])
    found = await domains_writer(store)([(domain, [Put("/a", b"x", ABSENT)]) for domain in range(3)])
    applied = [outcomes[0].applied for outcomes in found if isinstance(outcomes, list)]
    assert applied == [True, False, True]
    stored = [await store.get(domain, "/a") for domain in range(3)]
    assert [each and each.value for each in stored] == [b"x", b"first", b"x"]


async def test_a_closed_store_is_unavailable_for_each(tmp_path: Path) -> None:
    runtime = SystemRuntime(threads=1)
    store = SqliteStore(tmp_path / "metadata.sqlite", runtime)
    await store.open()
    await store.close()
    found = await store.write_domains([(domain, [Put("/a", b"x")]) for domain in range(2)])
    assert [type(outcome) for outcome in found] == [Unavailable] * 2
    runtime.close()


@pytest.mark.parametrize(
    ("fate", "kind"), [(Fate.REFUSE, Unavailable), (Fate.LOSE_REPLY, Ambiguous), (Fate.FAIL, Ambiguous)]
)
async def test_a_write_that_fails_takes_no_other_with_it(fate: Fate, kind: type[Exception]) -> None:
    runtime = SystemRuntime(threads=1)
    store = ScriptedStore(runtime)
    store.trap(fate, "write", "/b")
    first, second = await domains_writer(store)([(0, [Put("/a", b"x")]), (1, [Put("/b", b"y")])])
    assert isinstance(first, list)
    assert [type(each) for each in first] == [Outcome]
    assert isinstance(second, kind)
    await store.close()
    runtime.close()
