"""What a client of Oxia makes of leaders that fall silent, refuse, lie or lose their place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import grpc
import pytest
from grpc import aio
from tests.unit.metadata.oxia_fake import FakeServer, FakeShard

from dray.base.config.kinds import Secret
from dray.base.runtime import SystemRuntime
from dray.metadata.contract import ABSENT, Ambiguous, Change, Put, Unavailable
from dray.metadata.oxia import OxiaSettings
from dray.metadata.oxia.store import OxiaStore

PATIENCE = 60.0
TTL = 2.0


@pytest.fixture
def runtime() -> Iterator[SystemRuntime]:
    runtime = SystemRuntime()
    yield runtime
    runtime.close()


@pytest.fixture
async def servers() -> AsyncIterator[tuple[FakeServer, FakeServer]]:
    """Two on the same shard; both say that the first leads."""
    shard = FakeShard()
    first, second = FakeServer(shard), FakeServer(shard)
    await first.start()
    second.believes = first.address
    second.leads = False
    await second.start()
    yield first, second
    await first.stop()
    await second.stop()


@pytest.fixture
async def store(servers: tuple[FakeServer, FakeServer], runtime: SystemRuntime) -> AsyncIterator[OxiaStore]:
    store = await opened(servers, runtime)
    yield store
    await store.close()


async def opened(
    servers: tuple[FakeServer, FakeServer],
    runtime: SystemRuntime,
    *,
    token: str | None = None,
    request_timeout: float = 0.5,
) -> OxiaStore:
    settings = OxiaSettings(
        addresses=[server.address for server in servers],
        request_timeout=request_timeout,
        patience=1.5,
        secrets={} if token is None else {"token": Secret(token)},
    )
    store = OxiaStore(settings, runtime)
    await store.open()
    return store


def hand_over(first: FakeServer, second: FakeServer) -> None:
    first.leads, second.leads = False, True
    first.believes = second.believes = second.address


async def abort(context: aio.ServicerContext, code: grpc.StatusCode) -> None:
    await context.abort(code, "as told")


@pytest.mark.parametrize(
    "code",
    [
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.DEADLINE_EXCEEDED,
    ],
)
async def test_a_write_with_an_unclear_answer_is_ambiguous_and_never_repeated(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer], code: grpc.StatusCode
) -> None:
    first, _ = servers
    before = len(first.writes)
    first.after_write = lambda context: abort(context, code)
    with pytest.raises(Ambiguous):
        await store.write(0, [Put("/a", b"")])
    first.after_write = None
    await store.barrier(0)
    assert len(first.writes) == before + 1


async def test_a_write_that_is_not_answered_in_time_is_ambiguous(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer]
) -> None:
    servers[0].depose()
    with pytest.raises(Ambiguous):
        await store.write(0, [Put("/a", b"")])


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED])
async def test_what_is_turned_away_at_the_door_is_unavailable_at_once(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer], code: grpc.StatusCode
) -> None:
    asked = 0

    async def turn_away(context: aio.ServicerContext) -> None:
        nonlocal asked
        asked += 1
        await abort(context, code)

    servers[0].before_write = turn_away
    with pytest.raises(Unavailable, match=code.name):
        await store.write(0, [Put("/a", b"")])
    assert asked == 1, "it is not asked again"


async def test_a_leader_that_says_it_is_none_is_not_asked_again(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer]
) -> None:
    first, second = servers
    hand_over(first, second)
    [outcome] = await store.write(0, [Put("/a", b"1", ABSENT)])
    assert outcome.applied
    assert len(second.writes) == 1
    record = await store.get(0, "/a")
    assert record is not None


async def test_without_anybody_who_leads_nothing_happened(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer]
) -> None:
    for server in servers:
        server.leads = False
        server.believes = server.address
    before = [len(server.writes) for server in servers]
    with pytest.raises(Unavailable):
        await store.write(0, [Put("/a", b"")])
    assert [len(server.writes) for server in servers] == before


async def test_a_server_that_is_gone_is_unavailable(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer]
) -> None:
    """A write that meets a connection which is only just being closed is ambiguous: gRPC does not say whether
    the server saw it, and its farewell may come at any time. Once the client knows that the connection is
    down, nothing is sent, and it says so."""
    await servers[0].stop()
    before = len(servers[0].writes)
    async with asyncio.timeout(PATIENCE):
        while True:
            with pytest.raises((Unavailable, Ambiguous)) as raised:
                await store.write(0, [Put("/a", b"")])
            if raised.type is Unavailable:
                break
    assert len(servers[0].writes) == before
    with pytest.raises(Unavailable):
        await store.write(0, [Put("/a", b"")])


async def test_reads_do_not_go_back_to_a_leader_that_was_deposed(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer]
) -> None:
    """It still answers, and the view of who leads goes back to it, from a server that knows no better."""
    first, second = servers
    await store.write(0, [Put("/a", b"old")])
    first.depose()
    second.leads = True
    for server in servers:
        server.assign(second.address)
    await store.barrier(0)
    await store.write(0, [Put("/a", b"new")])
    seen = await store.get(0, "/a")
    assert seen is not None
    assert seen.value == b"new"
    for server in servers:
        server.assign(first.address)
    reads = first.reads
    asking = asyncio.ensure_future(store.get(0, "/a"))
    await asyncio.wait([asking], timeout=0.5)
    assert first.reads == reads, "it was read from before it had proven itself"
    for server in servers:
        server.assign(second.address)
    assert await asyncio.wait_for(asking, PATIENCE) == seen


async def test_a_read_that_was_under_way_when_the_lead_changed_is_read_again(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer]
) -> None:
    first, second = servers
    await store.write(0, [Put("/a", b"old")])
    arrived, let_go = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        arrived.set()
        await let_go.wait()

    first.before_read = hold
    asking = asyncio.ensure_future(store.get(0, "/a"))
    await arrived.wait()
    hand_over(first, second)
    for server in servers:
        server.assign(second.address)
    await store.write(0, [Put("/a", b"new")])
    let_go.set()
    record = await asyncio.wait_for(asking, PATIENCE)
    assert record is not None
    assert record.value == b"new"


async def test_a_read_at_a_leader_that_fell_silent_goes_to_the_next(
    servers: tuple[FakeServer, FakeServer], runtime: SystemRuntime
) -> None:
    """Long before the request's own time is up."""
    first, second = servers
    store = await opened(servers, runtime, request_timeout=10 * PATIENCE)
    await store.write(0, [Put("/a", b"1")])
    arrived = asyncio.Event()

    async def silence() -> None:
        arrived.set()
        await asyncio.Event().wait()

    first.before_read = silence
    asking = asyncio.ensure_future(store.get(0, "/a"))
    await arrived.wait()
    hand_over(first, second)
    for server in servers:
        server.assign(second.address)
    record = await asyncio.wait_for(asking, PATIENCE)
    assert record is not None
    assert record.value == b"1"
    await store.close()


async def test_a_keep_alive_counts_only_where_a_write_is_acknowledged_after_it(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer], runtime: SystemRuntime
) -> None:
    """A deposed leader answers keep-alives from memory, while the session runs out elsewhere."""
    first, _ = servers
    session = await store.session(0, TTL)
    opened_until = session.confirmed_until()
    for _ in range(2):  # the second is sent when the first has counted
        await asyncio.wait_for(first.beats.get(), PATIENCE)
    assert session.confirmed_until() > opened_until
    first.depose()
    deposed = runtime.monotonic()
    await asyncio.wait_for(session.wait_ended(), PATIENCE)
    assert session.confirmed_until() <= deposed + TTL


async def test_one_barrier_serves_all_who_asked_before_it_was_sent(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer]
) -> None:
    first, _ = servers
    arrived, let_go = asyncio.Event(), asyncio.Event()

    async def hold(context: aio.ServicerContext) -> None:
        arrived.set()
        await let_go.wait()

    before = first.barriers
    first.before_write = hold
    early = [asyncio.ensure_future(store.barrier(domain)) for domain in (0, 0, 1)]
    await arrived.wait()
    late = [asyncio.ensure_future(store.barrier(0)) for _ in range(5)]
    await asyncio.sleep(0)
    let_go.set()
    await asyncio.gather(*early, *late)
    assert first.barriers == before + 2


async def test_the_token_goes_with_every_request(
    servers: tuple[FakeServer, FakeServer], runtime: SystemRuntime
) -> None:
    store = await opened(servers, runtime, token="hidden")
    await store.write(0, [Put("/a", b"")])
    assert ("authorization", "Bearer hidden") in [tuple(pair) for pair in servers[0].metadata]
    assert "hidden" not in repr(OxiaSettings(secrets={"token": Secret("hidden")}))
    await store.close()


async def test_a_watch_that_lost_its_leader_says_that_anything_may_have_changed(
    store: OxiaStore, servers: tuple[FakeServer, FakeServer]
) -> None:
    first, second = servers
    watch = store.watch(0)
    async with asyncio.timeout(PATIENCE):
        assert await anext(watch) == Change(None)
        hand_over(first, second)
        for server in servers:
            server.assign(second.address)
        assert await anext(watch) == Change(None)
