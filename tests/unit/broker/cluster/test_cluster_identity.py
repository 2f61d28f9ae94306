from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from structlog.testing import capture_logs
from tests.simulation.scripted import Fate, ScriptedStore
from tests.unit.broker.topics.fakes import ImpatientRuntime

from dray.broker.cluster import open_cluster, uuid_text
from dray.metadata import keys
from dray.metadata.contract import Put, Unavailable
from dray.metadata.memory import MemoryState
from dray.metadata.values import FormatTooNew


@pytest.fixture
def runtime() -> ImpatientRuntime:
    return ImpatientRuntime(threads=1)


@pytest.fixture
def store(runtime: ImpatientRuntime) -> ScriptedStore:
    return ScriptedStore(runtime, MemoryState())


async def test_the_first_broker_makes_the_cluster_and_the_others_find_it(
    store: ScriptedStore, runtime: ImpatientRuntime
) -> None:
    found = await asyncio.gather(*(open_cluster(store, runtime, 4) for _ in range(3)))
    assert len(set(found)) == 1
    assert found[0].domains == 4
    assert len(found[0].cluster_id) == 22


async def test_the_stored_number_of_domains_wins(store: ScriptedStore, runtime: ImpatientRuntime) -> None:
    first = await open_cluster(store, runtime, 4)
    with capture_logs() as logs:
        assert await open_cluster(store, runtime, 16) == first
    assert [(line["configured"], line["stored"]) for line in logs] == [(16, 4)]


async def test_a_default_that_differs_gives_way_silently(
    store: ScriptedStore, runtime: ImpatientRuntime
) -> None:
    first = await open_cluster(store, runtime, 4)
    with capture_logs() as logs:
        assert await open_cluster(store, runtime, 16, False) == first
    assert logs == []


@pytest.mark.parametrize("plan", [[Fate.LOSE_REPLY], [Fate.LOSE], [Fate.REFUSE, Fate.LOSE]])
async def test_faults_are_read_through(
    store: ScriptedStore, runtime: ImpatientRuntime, plan: list[Fate]
) -> None:
    store.script(*plan)
    first = await open_cluster(store, runtime, 4)
    assert await open_cluster(store, runtime, 4) == first


async def test_a_store_that_stays_away_is_reported(store: ScriptedStore, runtime: ImpatientRuntime) -> None:
    store.down = True
    with pytest.raises(Unavailable):
        await open_cluster(store, runtime, 4)


async def test_a_newer_cluster_is_refused(store: ScriptedStore, runtime: ImpatientRuntime) -> None:
    await store.write(keys.CLUSTER_DOMAIN, [Put(keys.CLUSTER, b"\x03{}")])
    with pytest.raises(FormatTooNew):
        await open_cluster(store, runtime, 4)


async def test_no_domains_no_cluster(store: ScriptedStore, runtime: ImpatientRuntime) -> None:
    with pytest.raises(ValueError, match="at least one domain"):
        await open_cluster(store, runtime, 0)


async def test_a_cluster_id_never_looks_like_an_option(
    store: ScriptedStore, runtime: ImpatientRuntime
) -> None:
    dashed, plain = UUID(bytes=b"\xf8" + bytes(15)), UUID(bytes=b"\x04" + bytes(15))
    assert uuid_text(dashed).startswith("-")
    drawn = iter([dashed, plain])
    runtime.uuid = lambda: next(drawn)  # type: ignore[method-assign]
    assert (await open_cluster(store, runtime, 4)).cluster_id == uuid_text(plain)
