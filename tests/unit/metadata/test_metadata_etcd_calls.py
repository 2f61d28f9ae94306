"""What the etcd client does with answers that a real server gives only by bad luck."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest
from tests.unit.metadata.etcd_fake import FakeEtcd, put_at

from dray.base.config.kinds import Secret
from dray.base.runtime import SystemRuntime
from dray.metadata.contract import Ambiguous, Put, SessionEnded, Unavailable
from dray.metadata.etcd import EtcdSettings
from dray.metadata.etcd.calls import CannotLogIn
from dray.metadata.etcd.store import EtcdStore
from dray.metadata.etcd.wire import etcd_pb2 as wire

CODE = grpc.StatusCode


@pytest.fixture
async def etcd() -> AsyncIterator[FakeEtcd]:
    async with FakeEtcd() as etcd:
        yield etcd


@pytest.fixture
async def store(etcd: FakeEtcd) -> AsyncIterator[EtcdStore]:
    runtime = SystemRuntime()
    settings = EtcdSettings(endpoints=[f"127.0.0.1:{etcd.port}"], patience=2.0, serializable_reads=True)
    store = EtcdStore(settings, runtime)
    yield store
    await store.close()
    runtime.close()


UNCLEAR = [
    (CODE.UNAVAILABLE, "etcdserver: leader changed"),
    (CODE.UNAVAILABLE, "etcdserver: request timed out"),
    (CODE.UNAVAILABLE, "etcdserver: server stopped"),
    (CODE.UNKNOWN, "anything"),
    (CODE.CANCELLED, "anything"),
]
# etcd says so of writes that it has applied: it looks at its quota a second time after that.
FULL = (CODE.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")


@pytest.mark.parametrize("answer", [*UNCLEAR, FULL], ids=lambda answer: answer[1])
async def test_an_unclear_write_is_never_sent_again(
    store: EtcdStore, etcd: FakeEtcd, answer: tuple[grpc.StatusCode, str]
) -> None:
    etcd.queued["Txn"].append(answer)
    with pytest.raises(Ambiguous):
        await store.write(0, [Put("/a", b"")])
    assert etcd.count("Txn") == 1


@pytest.mark.parametrize("answer", UNCLEAR, ids=lambda answer: answer[1])
async def test_a_read_is(store: EtcdStore, etcd: FakeEtcd, answer: tuple[grpc.StatusCode, str]) -> None:
    etcd.queued["Range"].extend([answer, answer])
    assert await store.get(0, "/a") is None
    assert etcd.count("Range") == 3


@pytest.mark.parametrize(
    "answer",
    [(CODE.UNAVAILABLE, "etcdserver: no leader"), (CODE.RESOURCE_EXHAUSTED, "etcdserver: too many requests")],
    ids=lambda answer: answer[1],
)
async def test_a_write_that_was_refused_before_the_log_is_sent_again(
    store: EtcdStore, etcd: FakeEtcd, answer: tuple[grpc.StatusCode, str]
) -> None:
    etcd.queued["Txn"].extend([answer, answer])
    [outcome] = await store.write(0, [Put("/a", b"")])
    assert outcome.applied
    assert etcd.count("Txn") == 3


def as_user(etcd: FakeEtcd) -> EtcdSettings:
    secrets = {"password": Secret("hidden")}
    return EtcdSettings(endpoints=[f"127.0.0.1:{etcd.port}"], user="me", secrets=secrets)


async def test_a_refusal_that_stays_is_unavailable_at_once(store: EtcdStore, etcd: FakeEtcd) -> None:
    etcd.queued["Txn"].append((CODE.PERMISSION_DENIED, "etcdserver: permission denied"))
    with pytest.raises(Unavailable, match="permission denied"):
        await store.write(0, [Put("/a", b"")])
    assert etcd.count("Txn") == 1


async def test_a_lease_that_is_gone_ends_the_session_of_its_put(store: EtcdStore, etcd: FakeEtcd) -> None:
    session = await store.session(0, 60.0)
    etcd.queued["Txn"].append((CODE.NOT_FOUND, "etcdserver: requested lease not found"))
    with pytest.raises(SessionEnded):
        await store.write(0, [Put("/a", b"", session=session)])


async def test_everything_asks_for_a_server_with_a_leader(store: EtcdStore, etcd: FakeEtcd) -> None:
    await store.get(0, "/a")
    await store.write(0, [Put("/a", b"")])
    assert all(metadata["hasleader"] == "true" for _, _, metadata in etcd.asked)


def found(revision: int, value: bytes) -> wire.RangeResponse:
    answer = wire.RangeResponse(header=wire.ResponseHeader(revision=revision))
    answer.kvs.add(key=b"dray/00000000//a", mod_revision=revision, value=b"\1\0\0\0" + value)
    return answer


async def test_an_answer_older_than_what_was_seen_is_asked_for_again(
    store: EtcdStore, etcd: FakeEtcd
) -> None:
    etcd.queued["Range"].extend([found(20, b"new"), found(15, b"old"), found(21, b"newer")])
    values = [record.value for record in (await store.get(0, "/a"), await store.get(0, "/a")) if record]
    assert values == [b"new", b"newer"]
    assert [request.serializable for name, request, _ in etcd.asked if name == "Range"] == [True, True, False]


async def test_what_a_write_has_seen_counts_too(store: EtcdStore, etcd: FakeEtcd) -> None:
    etcd.queued["Txn"].append(put_at(30))
    await store.write(0, [Put("/a", b"")])
    etcd.queued["Range"].extend([found(29, b"old"), found(30, b"mine")])
    record = await store.get(0, "/a")
    assert record is not None
    assert record.value == b"mine"


async def test_a_barrier_is_linearizable(store: EtcdStore, etcd: FakeEtcd) -> None:
    await store.barrier(0)
    assert [request.serializable for name, request, _ in etcd.asked if name == "Range"] == [False]


# --- keep-alives


def alive(term: int, ttl: int = 60) -> wire.LeaseKeepAliveResponse:
    return wire.LeaseKeepAliveResponse(header=wire.ResponseHeader(raft_term=term), TTL=ttl)


def read_in(term: int) -> wire.RangeResponse:
    return wire.RangeResponse(header=wire.ResponseHeader(revision=10, raft_term=term))


async def test_a_keep_alive_is_believed_in_the_term_of_a_majority(store: EtcdStore, etcd: FakeEtcd) -> None:
    etcd.queued["LeaseKeepAlive"].append(alive(term=4))
    etcd.queued["Range"].append(read_in(term=4))
    assert await store._renew(7, 1.0) is True
    reads = [request for name, request, _ in etcd.asked if name == "Range"]
    assert [request.serializable for request in reads] == [False]


async def test_a_keep_alive_of_a_leader_of_old_is_not(store: EtcdStore, etcd: FakeEtcd) -> None:
    etcd.queued["LeaseKeepAlive"].append(alive(term=4))
    etcd.queued["Range"].append(read_in(term=5))
    with pytest.raises(Unavailable, match="leader changed"):
        await store._renew(7, 1.0)


async def test_a_lease_without_time_left_is_over(store: EtcdStore, etcd: FakeEtcd) -> None:
    etcd.queued["LeaseKeepAlive"].append(alive(term=3, ttl=0))
    assert await store._renew(7, 1.0) is False


async def test_a_keep_alive_that_fails_is_unavailable(store: EtcdStore, etcd: FakeEtcd) -> None:
    etcd.queued["LeaseKeepAlive"].append((CODE.UNAVAILABLE, "etcdserver: no leader"))
    with pytest.raises(Unavailable):
        await store._renew(7, 1.0)


# --- logging in


async def test_an_old_token_is_replaced_and_the_write_goes_on(etcd: FakeEtcd) -> None:
    runtime = SystemRuntime()
    store = EtcdStore(
        as_user(etcd),
        runtime,
    )
    await store.get(0, "/a")
    etcd.defaults["Authenticate"] = wire.AuthenticateResponse(token="newer")
    etcd.queued["Txn"].append((CODE.UNAUTHENTICATED, "etcdserver: invalid auth token"))
    await store.write(0, [Put("/a", b"")])
    tokens = [metadata.get("token") for name, _, metadata in etcd.asked if name == "Txn"]
    assert tokens == ["fresh", "newer"]
    await store.close()
    runtime.close()


async def test_a_log_in_that_fails_in_passing_is_tried_again_and_a_refused_one_is_not(etcd: FakeEtcd) -> None:
    runtime = SystemRuntime()
    store = EtcdStore(
        as_user(etcd),
        runtime,
    )
    etcd.queued["Authenticate"].append((CODE.UNAVAILABLE, "etcdserver: no leader"))
    await store.get(0, "/a")
    assert etcd.count("Authenticate") == 2
    await store.close()
    other = EtcdStore(
        as_user(etcd),
        runtime,
    )
    etcd.queued["Authenticate"].append((CODE.INVALID_ARGUMENT, "etcdserver: authentication failed"))
    with pytest.raises(CannotLogIn, match="authentication failed"):
        await other.get(0, "/a")
    assert etcd.count("Authenticate") == 3
    await other.close()
    runtime.close()
