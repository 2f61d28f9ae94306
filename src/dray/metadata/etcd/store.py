"""The metadata store on etcd: the contract, over its public gRPC API."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import structlog
from grpc import aio

from dray.base.runtime import Runtime, gather_some
from dray.metadata.contract import (
    KEY_END,
    Change,
    Limits,
    MetadataError,
    Operation,
    Outcome,
    SessionEnded,
    StoredValue,
    Unavailable,
    check_domain,
    check_limit,
    check_ttl,
    check_write,
)
from dray.metadata.etcd.calls import TOO_MANY_OPERATIONS, Calls, CannotLogIn, UnusableEtcd, understand
from dray.metadata.etcd.keys import Keyspace, place_and_value, version_of
from dray.metadata.etcd.plan import TransactionPlan
from dray.metadata.etcd.settings import INLINE, EtcdSettings
from dray.metadata.etcd.watch import DomainWatch
from dray.metadata.etcd.wire import etcd_pb2 as wire
from dray.metadata.sessions import KeptSession, SendTime, session_identity
from dray.metadata.watching import WatchHub

_log = structlog.get_logger(__name__)

MOST_OPERATIONS: Final = 1100
ROOM_FOR_KEYS: Final = 512 << 10
"""Of a request, for everything but values: keys are repeated in comparisons."""


class EtcdStore:
    """One client. `open` first: it says in one line why these servers would not do."""

    def __init__(self, settings: EtcdSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._keyspace = Keyspace(settings.prefix)
        self._calls = Calls(settings, runtime)
        self._hub = WatchHub()
        self._watches: dict[int, DomainWatch] = {}
        self._sessions: list[KeptSession] = []
        self._newest = 0
        self._limits = Limits(MOST_OPERATIONS, settings.max_request_bytes - ROOM_FOR_KEYS, INLINE)

    @property
    def limits(self) -> Limits:
        return self._limits

    async def open(self) -> None:
        await inspect(self._calls, self._settings, self._keyspace)

    # --- reads

    async def get(self, domain: int, key: str) -> StoredValue | None:
        check_domain(domain)
        return self._first(domain, await self._range(wire.RangeRequest(key=self._keyspace.key(domain, key))))

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        # Every key up to and with `key`: the least that is greater ends with a zero byte.
        end = min(key + "\0", prefix + KEY_END)
        return await self._nearest(domain, prefix, end, wire.RangeRequest.DESCEND)

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._nearest(domain, max(key, prefix), prefix + KEY_END, wire.RangeRequest.ASCEND)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        check_domain(domain)
        check_limit(limit)
        if start >= end or limit == 0:
            self._check_open()
            return []
        request = wire.RangeRequest(
            key=self._keyspace.key(domain, start),
            range_end=self._keyspace.key(domain, end),
            limit=limit or 0,
            sort_order=wire.RangeRequest.ASCEND,
        )
        response = await self._range(request)
        return [self._record(domain, found) for found in response.kvs]

    async def barrier(self, domain: int) -> None:
        check_domain(domain)
        await self._range(wire.RangeRequest(key=self._keyspace.tick, count_only=True), linearizable=True)

    async def _nearest(
        self, domain: int, start: str, end: str, order: wire.RangeRequest.SortOrder
    ) -> StoredValue | None:
        check_domain(domain)
        if start >= end:
            self._check_open()
            return None
        request = wire.RangeRequest(
            key=self._keyspace.key(domain, start),
            range_end=self._keyspace.key(domain, end),
            limit=1,
            sort_order=order,
        )
        return self._first(domain, await self._range(request))

    async def _range(self, request: wire.RangeRequest, *, linearizable: bool = False) -> wire.RangeResponse:
        request.serializable = self._settings.serializable_reads and not linearizable
        response = await self._calls.repeatable(lambda server: server.range, request)
        if response.header.revision < self._newest and request.serializable:
            # This server is behind what we have seen elsewhere, and our reads never go back.
            return await self._range(request, linearizable=True)
        self._saw(response.header.revision)
        return response

    def _saw(self, revision: int) -> None:
        self._newest = max(self._newest, revision)

    def _first(self, domain: int, response: wire.RangeResponse) -> StoredValue | None:
        return self._record(domain, response.kvs[0]) if response.kvs else None

    def _record(self, domain: int, found: wire.KeyValue) -> StoredValue:
        place, value = place_and_value(found.value)
        return StoredValue(
            self._keyspace.bare(domain, found.key), value, version_of(found.mod_revision, place)
        )

    # --- writes

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        session = check_write(domain, operations, self._limits)
        lease = 0 if session is None else session_identity(domain, session)
        self._check_open()
        if session is not None and session.ended:
            raise SessionEnded(f"session {lease:x} is over")
        if not operations:
            return []
        plan = TransactionPlan(domain, operations, self._keyspace, lease, self._settings.max_txn_ops)
        size, most = plan.request.ByteSize(), self._settings.max_request_bytes
        if size > most:
            raise ValueError(f"{size} bytes in one write, at most {most} go")
        response = await self._calls.write(plan.request)
        self._saw(response.header.revision)
        return plan.outcomes(response)

    # --- watches

    def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncGenerator[Change, None]:
        check_domain(domain)
        closed = self._calls.closed
        return self._hub.watch(domain, endings) if closed else self._watching(domain, endings)

    async def mark(self, domain: int, name: str) -> None:
        """A put, which watches tell behind everything before it. A request for progress would be no write,
        but until 3.4.31 and 3.5.13 its answer may overtake changes, or never come."""
        check_domain(domain)
        put = wire.PutRequest(key=self._keyspace.mark(domain), value=name.encode())
        request = wire.TxnRequest(success=[wire.RequestOp(request_put=put)])
        response = await self._calls.repeatable(lambda server: server.transaction, request)
        self._saw(response.header.revision)

    async def _watching(self, domain: int, endings: tuple[str, ...]) -> AsyncGenerator[Change, None]:
        watch = self._watches.get(domain)
        if watch is None:
            watch = self._watches[domain] = DomainWatch(
                domain,
                self._calls,
                self._keyspace,
                self._hub,
                self._runtime,
                self._settings.patience,
                self._saw,
            )
        watch.watchers += 1
        try:
            await watch.in_place.wait()
            async for change in self._hub.watch(domain, endings):
                yield change
        finally:
            watch.watchers -= 1
            if not watch.watchers and self._watches.get(domain) is watch:
                del self._watches[domain]
                watch.stop()

    # --- sessions

    async def session(self, domain: int, ttl: float) -> KeptSession:
        check_domain(domain)
        check_ttl(ttl)
        sent = SendTime.now(self._runtime)
        request = wire.LeaseGrantRequest(TTL=math.ceil(ttl))
        # A lease whose answer was lost runs out by itself: no process knows its name.
        granted = await self._calls.repeatable(lambda server: server.grant, request)
        lease = granted.ID

        async def renew() -> bool:
            # Servers that do not answer must not use up the life of the session.
            return await self._renew(lease, min(self._settings.request_timeout, ttl / 8))

        async def remove() -> None:
            await self._revoke(lease)

        session = KeptSession(
            self._runtime, domain=domain, identity=lease, ttl=ttl, sent=sent, renew=renew, remove=remove
        )
        self._sessions = [*(kept for kept in self._sessions if not kept.ended), session]
        return session

    async def _renew(self, lease: int, timeout: float) -> bool:
        """A keep-alive is answered by a server that believes to lead, from its memory. That it still leads is
        certain when a read that a majority confirmed afterwards is of the same term."""
        server = await self._calls.connected(self._runtime.monotonic())
        try:
            answer = await server.keep_alive(lease, timeout, self._calls.metadata())
        except aio.AioRpcError as error:
            fault = understand(error)
            await self._calls.recover(server, fault)
            raise Unavailable(str(fault)) from None
        if not isinstance(answer, wire.LeaseKeepAliveResponse):
            raise Unavailable("the keep-alive was not answered")
        request = wire.RangeRequest(key=self._keyspace.tick, count_only=True)
        confirmed = await self._calls.repeatable(lambda server: server.range, request, timeout)
        if confirmed.header.raft_term != answer.header.raft_term:
            raise Unavailable("the leader changed meanwhile")
        return answer.TTL > 0

    async def _revoke(self, lease: int) -> None:
        try:
            await self._calls.repeatable(lambda server: server.revoke, wire.LeaseRevokeRequest(ID=lease))
        except SessionEnded:
            return

    # --- the end

    async def close(self) -> None:
        await gather_some(self._end(session) for session in self._sessions)
        await self.abandon()

    async def _end(self, session: KeptSession) -> None:
        try:
            await session.close()
        except MetadataError as error:
            _log.warning("a session is left to run out", lease=f"{session.identity:x}", error=str(error))

    async def abandon(self) -> None:
        """Vanish as a process that died: the sessions run out by themselves."""
        for session in self._sessions:
            session.abandon()
        self._hub.close()
        for watch in self._watches.values():
            watch.stop()
        await self._calls.close()

    def _check_open(self) -> None:
        if self._calls.closed:
            raise Unavailable("the metadata store is closed")


# --- whether these servers will do, asked once when a store is opened


# Before these, a leader that was frozen and wakes up revokes leases that others have kept alive meanwhile.
MENDED: Final = {(3, 4): 31, (3, 5): 13}


async def inspect(calls: Calls, settings: EtcdSettings, keyspace: Keyspace) -> None:
    """`UnusableEtcd` says what to do. The attempts only read, and leave nothing behind."""
    look = wire.RequestOp(request_range=wire.RangeRequest(key=keyspace.tick, count_only=True))
    most = settings.max_txn_ops
    try:
        await calls.repeatable(lambda server: server.transaction, wire.TxnRequest(success=[look] * most))
        status = await calls.repeatable(lambda server: server.status, wire.StatusRequest())
    except CannotLogIn as error:
        raise UnusableEtcd(f"{error}: check metadata.etcd.user and metadata.etcd.password") from None
    except Unavailable as error:
        raise UnusableEtcd(_advice(str(error), most)) from None
    except MetadataError as error:
        raise UnusableEtcd(str(error)) from None
    if revokes_wrongly(status.version):
        _log.warning(
            "this etcd may end sessions too early when its leader was frozen: use 3.4.31, 3.5.13 or newer",
            version=status.version,
        )


def revokes_wrongly(version: str) -> bool:
    """Nothing of the log is at stake: it never rests on a session."""
    numbers = re.match(r"([0-9]+)\.([0-9]+)\.([0-9]+)", version)
    if numbers is None:
        return False
    major, minor, patch = map(int, numbers.groups())
    return patch < MENDED.get((major, minor), 0)


def _advice(said: str, most: int) -> str:
    if TOO_MANY_OPERATIONS in said:
        return (
            f"the servers allow fewer than {most} operations in a transaction: start them with "
            f"--max-txn-ops={most}"
        )
    if "permission denied" in said or "user name is empty" in said or "auth token" in said:
        return (
            f"access is refused ({said}): check metadata.etcd.user, password and token, and the role's keys"
        )
    if "no connection" in said:
        return f"{said}: check metadata.etcd.endpoints, the TLS settings and the network"
    return said
