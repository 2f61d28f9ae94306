"""The etcd engine on real servers: TLS, users, limits, lost answers, and reads from one that is behind."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.services.certificates import Certificates, make_certificates
from tests.services.etcd import EtcdCluster, EtcdProcess
from tests.services.metadata import over_tls
from tests.services.proxy import TcpProxy

from dray.base.config.kinds import Secret
from dray.base.runtime import SystemRuntime
from dray.metadata.contract import ANY, Ambiguous, MetadataStore, Put, SessionEnded, Unavailable
from dray.metadata.etcd import EtcdSettings
from dray.metadata.etcd.calls import UnusableEtcd
from dray.metadata.etcd.store import EtcdStore

Opener = Callable[..., Awaitable[EtcdStore]]

QUICK: dict[str, Any] = {"patience": 0.5, "request_timeout": 0.5, "connect_timeout": 0.5}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    with EtcdProcess(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def opened() -> AsyncIterator[Opener]:
    runtime = SystemRuntime()
    stores: list[EtcdStore] = []

    async def opened(address: str | list[str], **settings: Any) -> EtcdStore:
        endpoints = [address] if isinstance(address, str) else address
        default = EtcdSettings(endpoints=endpoints, prefix=f"{uuid4().hex}/")
        store = EtcdStore(replace(default, **settings), runtime)
        stores.append(store)
        await store.open()
        return store

    yield opened
    for store in stores:
        await store.close()
    runtime.close()


# --- who is let in


def as_user(user: str, password: str) -> dict[str, Any]:
    return {"user": user, "secrets": {"password": Secret(password)}}


async def test_over_tls_with_our_own_certificate(
    tmp_path: Path, certificates: Certificates, opened: Opener
) -> None:
    asks = ["--client-cert-auth", f"--trusted-ca-file={certificates.authority}"]
    with EtcdProcess(tmp_path, certificates=certificates) as server:
        tls = over_tls(certificates.authority)
        store = await opened(server.address, **tls)
        await store.write(0, [Put("/a", b"x")])
        assert await store.get(0, "/a") is not None
        with pytest.raises(UnusableEtcd, match="no connection to etcd"):
            await opened(server.address, **over_tls(), **QUICK)
        server.kill()
        # Now the server asks for a certificate as well: its own readiness can no longer be asked over HTTPS.
        server.arguments = tuple(asks)
        server.spawn()
        ours = over_tls(certificates.authority, certificates.certificate, certificates.key)
        store = await opened(server.address, **ours, prefix=store._settings.prefix)
        assert await store.get(0, "/a") is not None
        with pytest.raises(UnusableEtcd, match="no connection to etcd"):
            await opened(server.address, **tls, **QUICK)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


async def test_users_passwords_and_tokens(tmp_path: Path, opened: Opener) -> None:
    with EtcdProcess(tmp_path) as server:
        for path, body in (
            ("user/add", {"name": "root", "password": "r"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("user/add", {"name": "dray", "password": "hidden-word"}),
            ("role/add", {"name": "dray"}),
            (
                "role/grant",
                {
                    "name": "dray",
                    "perm": {"permType": 2, "key": encoded("dray/"), "range_end": encoded("dray0")},
                },
            ),
            ("user/grant", {"user": "dray", "role": "dray"}),
            ("enable", {}),
        ):
            server.ask(f"/v3/auth/{path}", body)
        store = await opened(server.address, prefix="dray/", **as_user("dray", "hidden-word"))
        await store.write(0, [Put("/a", b"x")])
        session = await store.session(0, 30.0)
        await store.write(0, [Put("/b", b"x", ANY, session)])
        watch = store.watch(0)
        assert (await anext(watch)).key is None
        await watch.aclose()

        # A server that starts again knows none of its tokens: we log in once more, and nobody notices.
        server.kill()
        server.start()
        await store.write(0, [Put("/a", b"y")])
        record = await store.get(0, "/a")
        assert record is not None
        assert record.value == b"y"
        token = store._calls._token
        assert token is not None
        other = await opened(server.address, prefix="dray/", secrets={"token": Secret(token)})
        assert await other.get(0, "/a") == record

        for refused in (
            as_user("dray", "wrong-word"),
            as_user("nobody", "hidden-word"),
        ):
            with pytest.raises(UnusableEtcd, match=r"cannot log in.*metadata\.etcd\.user") as caught:
                await opened(server.address, prefix="dray/", **refused)
            assert "word" not in str(caught.value).replace("password", "")
        with pytest.raises(UnusableEtcd, match="access is refused"):
            await opened(server.address, prefix="dray/", **QUICK)
        with pytest.raises(UnusableEtcd, match="access is refused"):
            await opened(server.address, prefix="others/", **as_user("dray", "hidden-word"))
        await store.close()


# --- servers that would not do


async def test_nobody_there(opened: Opener) -> None:
    with pytest.raises(UnusableEtcd, match=r"no connection to etcd at 127\.0\.0\.1:9: check metadata\.etcd"):
        await opened("127.0.0.1:9", **QUICK)


async def test_too_small_transactions(tmp_path: Path, opened: Opener) -> None:
    with EtcdProcess(tmp_path, arguments=["--max-txn-ops=100"]) as server:
        with pytest.raises(UnusableEtcd, match="start them with --max-txn-ops=128"):
            await opened(server.address)
        store = await opened(server.address, max_txn_ops=100)
        outcomes = await store.write(0, [Put(f"/{number}", b"") for number in range(store.limits.operations)])
        assert all(outcome.applied for outcome in outcomes)


async def test_requests_that_the_server_does_not_take(server: EtcdProcess, opened: Opener) -> None:
    """Told here where it is known, and by the server where it was configured otherwise."""
    store = await opened(server.address)
    limit = store.limits.value_bytes
    await store.write(0, [Put("/a", bytes(limit))])
    with pytest.raises(ValueError, match="at most"):
        await store.write(0, [Put("/k" * 900 + str(number), bytes(limit // 1000)) for number in range(1000)])
    store = await opened(server.address, max_request_bytes=8 << 20)
    with pytest.raises(Unavailable, match="raise --max-request-bytes"):
        await store.write(0, [Put("/a", bytes(2 << 20))])


# --- answers that are lost


@pytest.fixture
def proxy(server: EtcdProcess) -> Iterator[TcpProxy]:
    with TcpProxy(server.port) as proxy:
        yield proxy


async def test_a_write_without_an_answer_is_unclear_and_is_not_sent_again(
    server: EtcdProcess, proxy: TcpProxy, opened: Opener
) -> None:
    store = await opened(proxy.address, request_timeout=0.3, patience=5.0)
    direct = await opened(server.address, prefix=store._settings.prefix)
    proxy.freeze()
    with pytest.raises(Ambiguous):
        await store.write(0, [Put("/a", b"late")])
    proxy.thaw()
    # What was on its way may yet arrive; what is asked now is answered.
    await store.barrier(0)
    record = await direct.get(0, "/a")
    assert record is None or record.value == b"late"
    writing = asyncio.ensure_future(store.write(0, [Put("/b", b"x")]))
    await asyncio.sleep(0)
    proxy.cut()
    with pytest.raises((Ambiguous, Unavailable)):
        await writing
    with pytest.raises(UnusableEtcd, match="no connection"):
        await opened(proxy.address, **QUICK)
    proxy.mend()
    await store.write(0, [Put("/c", b"x")])


async def test_a_watch_that_broke_says_read_again(
    server: EtcdProcess, proxy: TcpProxy, opened: Opener
) -> None:
    store = await opened(proxy.address)
    direct = await opened(server.address, prefix=store._settings.prefix)
    watch = store.watch(0)
    assert (await anext(watch)).key is None
    proxy.cut()
    await direct.write(0, [Put("/missed", b"")])
    proxy.mend()
    assert (await asyncio.wait_for(anext(watch), 60)).key is None
    await direct.write(0, [Put("/heard", b"")])
    assert (await asyncio.wait_for(anext(watch), 60)).key == "/heard"
    await watch.aclose()


async def test_what_was_compacted_keeps_no_watch_from_starting(server: EtcdProcess, opened: Opener) -> None:
    store = await opened(server.address)
    for _ in range(3):
        [outcome] = await store.write(0, [Put("/a", b"")])
    server.ask("/v3/kv/compaction", {"revision": outcome.version >> 16, "physical": True})
    watch = store.watch(0)
    assert (await asyncio.wait_for(anext(watch), 60)).key is None
    assert await store.get(0, "/a") is not None
    await watch.aclose()


async def test_a_session_that_the_server_ended_is_over(server: EtcdProcess, opened: Opener) -> None:
    store = await opened(server.address)
    session = await store.session(0, 3.0)
    await store.write(0, [Put("/a", b"", ANY, session)])
    server.ask("/v3/lease/revoke", {"ID": session.identity})
    with pytest.raises(SessionEnded):
        await store.write(0, [Put("/b", b"", ANY, session)])
    await asyncio.wait_for(session.wait_ended(), 60)
    assert await store.get(0, "/a") is None
    await session.close()


async def test_a_session_whose_server_is_silent_ends_by_itself(
    server: EtcdProcess, proxy: TcpProxy, opened: Opener
) -> None:
    store = await opened(proxy.address, **QUICK)
    session = await store.session(0, 2.0)
    proxy.freeze()
    await asyncio.wait_for(session.wait_ended(), 60)
    assert session.ended
    proxy.thaw()


# --- reads that are answered by one server alone


async def test_serializable_reads_never_go_back(tmp_path: Path, opened: Opener) -> None:
    """A server that stopped at an old state answers alone; what the client has seen elsewhere counts more."""
    with EtcdCluster(tmp_path) as cluster:
        leader = await asyncio.to_thread(cluster.leader)
        behind, other = [member for member in cluster.members if member is not leader]
        prefix = "serial/"
        ahead = await opened(leader.address, prefix=prefix)
        await ahead.write(0, [Put("/a", b"old")])
        reader = await opened(behind.address, prefix=prefix, serializable_reads=True, request_timeout=1.0)
        await reader.barrier(0)
        # Without the others, the one that is behind still answers for itself, from what it knows.
        leader.freeze()
        other.freeze()
        record = await reader.get(0, "/a")
        assert record is not None
        assert record.value == b"old"
        leader.thaw()
        other.thaw()
        # It has heard of something newer: from then on, an old answer is not taken.
        [outcome] = await written(ahead, b"new")
        reader._saw((outcome.version >> 16) + 1_000_000)
        leader.freeze()
        other.freeze()
        reader._settings = replace(reader._settings, patience=1.0)
        reader._calls._settings = replace(reader._calls._settings, patience=1.0, request_timeout=0.5)
        with pytest.raises(Unavailable):
            await reader.get(0, "/a")
        leader.thaw()
        other.thaw()


async def written(store: MetadataStore, value: bytes) -> Any:
    while True:
        try:
            return await store.write(0, [Put("/a", value)])
        except (Ambiguous, Unavailable):
            continue
