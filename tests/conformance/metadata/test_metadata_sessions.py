"""Sessions: their keys vanish when they end, and not before."""

from __future__ import annotations

import asyncio

import pytest
from tests.conformance.metadata.engines import Engine

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import (
    ABSENT,
    ANY,
    MetadataStore,
    Operation,
    Outcome,
    Put,
    Session,
    SessionEnded,
)

LONG = 60.0
PATIENCE = 60.0


async def vanished(store: MetadataStore, key: str) -> None:
    async with asyncio.timeout(PATIENCE):
        async for _ in store.watch(0):
            if await store.get(0, key) is None:
                return


async def put(store: MetadataStore, session: Session, key: str = "/lease") -> int:
    [outcome] = await store.write(0, [Put(key, b"held", ABSENT, session)])
    assert outcome.applied
    return outcome.version


async def test_keys_of_a_session_are_like_others_while_it_lives(
    store: MetadataStore, other: MetadataStore
) -> None:
    session = await store.session(0, LONG)
    assert not session.ended
    version = await put(store, session)
    record = await other.get(0, "/lease")
    assert record is not None
    assert record.version == version
    assert await other.write(0, [Put("/lease", b"", ABSENT)]) == [Outcome(False)]
    assert [record.key for record in await other.scan(0, "/", "0")] == ["/lease"]
    assert (await other.floor(0, "/z", "/")) == record
    assert (await other.ceiling(0, "/", "/")) == record


async def test_close_removes_the_keys_before_it_returns(store: MetadataStore, other: MetadataStore) -> None:
    session = await store.session(0, LONG)
    await put(store, session, "/a")
    await put(store, session, "/b")
    await store.write(0, [Put("/c", b"")])
    await session.close()
    assert session.ended
    await asyncio.wait_for(session.wait_ended(), PATIENCE)
    assert [record.key for record in await other.scan(0, "/", "0")] == ["/c"]
    await session.close()


async def test_closing_is_heard_by_watchers(store: MetadataStore, other: MetadataStore) -> None:
    session = await store.session(0, LONG)
    await put(store, session)
    watching = asyncio.ensure_future(vanished(other, "/lease"))
    await session.close()
    await watching


async def test_a_put_with_an_ended_session_does_nothing(store: MetadataStore, other: MetadataStore) -> None:
    session = await store.session(0, LONG)
    await session.close()
    with pytest.raises(SessionEnded):
        await store.write(0, [Put("/a", b"", ANY, session), Put("/b", b"", ABSENT, session)])
    assert await other.scan(0, "/", "0") == []


async def test_the_session_of_a_dead_client_runs_out(
    engine: Engine, store: MetadataStore, runtime: SystemRuntime
) -> None:
    """Its key stays for the session's life and is gone some time after, and watchers hear of it."""
    dying = await engine.open()
    ttl = engine.shortest_ttl
    session = await dying.session(0, ttl)
    await put(dying, session)
    await engine.abandon(dying)
    certain_until = session.confirmed_until()
    record = await store.get(0, "/lease")
    assert record is not None or runtime.monotonic() >= certain_until
    await vanished(store, "/lease")
    assert runtime.monotonic() >= certain_until
    assert await store.scan(0, "/", "0") == []
    assert await store.floor(0, "/z", "/") is None
    assert await store.ceiling(0, "/", "/") is None
    [outcome] = await store.write(0, [Put("/lease", b"mine", ABSENT)])
    assert outcome.applied
    if record is not None:
        assert outcome.version != record.version


async def test_a_kept_session_outlives_its_ttl(
    engine: Engine, store: MetadataStore, other: MetadataStore, runtime: SystemRuntime
) -> None:
    session = await store.session(0, engine.shortest_ttl)
    opened = session.confirmed_until()
    await put(store, session)
    while session.confirmed_until() < opened + engine.shortest_ttl:
        assert not session.ended
        assert await other.get(0, "/lease") is not None
        await runtime.sleep(engine.shortest_ttl / 4)
    assert await other.get(0, "/lease") is not None
    await session.close()


async def test_it_is_confirmed_for_its_ttl_from_sending(store: MetadataStore, runtime: SystemRuntime) -> None:
    before = runtime.monotonic()
    session = await store.session(0, LONG)
    assert before <= session.confirmed_until() - LONG <= runtime.monotonic()


async def test_sessions_end_one_by_one(store: MetadataStore, other: MetadataStore) -> None:
    first, second = await store.session(0, LONG), await store.session(0, LONG)
    await put(store, first, "/first")
    await put(store, second, "/second")
    await first.close()
    assert [record.key for record in await other.scan(0, "/", "0")] == ["/second"]
    assert not second.ended


async def test_a_put_without_a_session_makes_a_key_permanent(
    store: MetadataStore, other: MetadataStore
) -> None:
    session = await store.session(0, LONG)
    await put(store, session)
    await other.write(0, [Put("/lease", b"kept")])
    await session.close()
    record = await other.get(0, "/lease")
    assert record is not None
    assert record.value == b"kept"


async def test_a_key_moves_to_the_session_that_put_it_last(
    store: MetadataStore, other: MetadataStore
) -> None:
    first, second = await store.session(0, LONG), await other.session(0, LONG)
    version = await put(store, first)
    [outcome] = await other.write(0, [Put("/lease", b"taken", version, second)])
    assert outcome.applied
    await first.close()
    assert await store.get(0, "/lease") is not None
    await second.close()
    assert await store.get(0, "/lease") is None


async def test_closing_the_store_ends_its_sessions(engine: Engine, store: MetadataStore) -> None:
    leaving = await engine.open()
    session = await leaving.session(0, LONG)
    await put(leaving, session)
    await leaving.close()
    assert session.ended
    assert await store.get(0, "/lease") is None


async def test_a_session_belongs_to_its_domain(store: MetadataStore, other: MetadataStore) -> None:
    session = await store.session(1, LONG)
    with pytest.raises(ValueError, match="domain"):
        await store.write(0, [Put("/a", b"", ANY, session)])
    await store.write(1, [Put("/a", b"", ANY, session)])
    assert await other.get(1, "/a") is not None


async def test_puts_of_a_session_share_a_write_with_nothing_else(store: MetadataStore) -> None:
    first, second = await store.session(0, LONG), await store.session(0, LONG)
    mixed: list[list[Operation]] = [
        [Put("/a", b"", ANY, first), Put("/b", b"")],
        [Put("/a", b"", ANY, first), Put("/b", b"", ANY, second)],
    ]
    for operations in mixed:
        with pytest.raises(ValueError, match="session"):
            await store.write(0, operations)


@pytest.mark.parametrize("ttl", [0.0, -1.0, float("inf"), float("nan")])
async def test_a_session_needs_a_life(store: MetadataStore, ttl: float) -> None:
    with pytest.raises(ValueError, match="session"):
        await store.session(0, ttl)
