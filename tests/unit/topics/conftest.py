from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from tests.unit.topics.topic_fakes import QUIET, FakeStreams, FaultyStore, ImpatientRuntime

from dray.metadata.memory import MemoryState
from dray.runtime import SystemRuntime
from dray.topics import Topics, TopicsOptions


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
def store(runtime: SystemRuntime, state: MemoryState) -> FaultyStore:
    return FaultyStore(runtime, state)


@pytest.fixture
def make_topics(runtime: SystemRuntime, state: MemoryState, streams: FakeStreams) -> Callable[..., Topics]:
    """Another broker's topics over the same store. They are not started: nothing tells them of changes."""

    def make(options: TopicsOptions = QUIET, store: FaultyStore | None = None) -> Topics:
        return Topics(store or FaultyStore(runtime, state), runtime, streams, options)

    return make


@pytest.fixture
def topics(make_topics: Callable[..., Topics], store: FaultyStore) -> Topics:
    return make_topics(store=store)
