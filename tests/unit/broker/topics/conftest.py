from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.simulation.scripted import ScriptedStore
from tests.unit.broker.topics.fakes import QUIET, FakeStreams, ImpatientRuntime

from dray.base.runtime import SystemRuntime
from dray.broker.settings import TopicsOptions
from dray.broker.topics import Topics
from dray.metadata.memory import MemoryState


@pytest.fixture
async def runtime() -> AsyncIterator[SystemRuntime]:
    runtime = ImpatientRuntime(threads=1)
    yield runtime
    runtime.close()


@pytest.fixture
def state() -> MemoryState:
    return MemoryState()


@pytest.fixture
def streams() -> FakeStreams:
    return FakeStreams()


@pytest.fixture
def store(runtime: SystemRuntime, state: MemoryState) -> ScriptedStore:
    return ScriptedStore(runtime, state)


@pytest.fixture
def make_topics(runtime: SystemRuntime, state: MemoryState, streams: FakeStreams) -> Callable[..., Topics]:
    """Another broker's topics over the same store. They are not started: nothing tells them of changes."""

    def make(options: TopicsOptions = QUIET, store: ScriptedStore | None = None) -> Topics:
        return Topics(store or ScriptedStore(runtime, state), runtime, streams, options)

    return make


@pytest.fixture
def topics(make_topics: Callable[..., Topics], store: ScriptedStore) -> Topics:
    return make_topics(store=store)
