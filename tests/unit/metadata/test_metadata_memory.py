"""The memory engine: sessions by the injected clock, clients that share a state."""

from __future__ import annotations

import pytest
from tests.unit.metadata.stopped_clock import StoppedClock

from dray.metadata.contract import ABSENT, ANY, Put, SessionEnded
from dray.metadata.memory import MemoryState, MemoryStore


async def test_a_session_runs_out_by_the_runtimes_clock_alone() -> None:
    """No timer has fired yet: reads and writes ask the clock themselves."""
    runtime = StoppedClock()
    state = MemoryState()
    holder, reader = MemoryStore(runtime, state), MemoryStore(runtime, state)
    session = await holder.session(0, 10.0)
    await holder.write(0, [Put("/lease", b"", ANY, session)])
    holder.abandon()
    runtime.now += 9.9
    assert await reader.get(0, "/lease") is not None
    runtime.now += 0.1
    assert await reader.get(0, "/lease") is None
    [outcome] = await reader.write(0, [Put("/lease", b"", ABSENT)])
    assert outcome.applied
    runtime.close()


async def test_the_state_judges_a_session_though_its_client_believes_in_it() -> None:
    runtime = StoppedClock()
    state = MemoryState()
    store = MemoryStore(runtime, state)
    session = await store.session(0, 10.0)
    state.remove_session(session.identity)
    assert not session.ended
    with pytest.raises(SessionEnded):
        await store.write(0, [Put("/lease", b"", ANY, session)])
    assert await store.get(0, "/lease") is None
    await store.close()
    runtime.close()


async def test_versions_count_up_from_one() -> None:
    """The same run gives the same versions: a simulation can be replayed."""
    runtime = StoppedClock()
    store = MemoryStore(runtime)
    outcomes = await store.write(0, [Put("/a", b""), Put("/b", b""), Put("/a", b"")])
    assert [outcome.version for outcome in outcomes] == [1, 2, 3]
    await store.close()
    runtime.close()
