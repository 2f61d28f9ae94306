"""`OxiaStore`: the contract on an Oxia namespace, for clusters of any size.

One write of the contract is one request to one shard (`plan`), which Oxia applies as one step. Requests go
to the shard's leader (`calls`, `shards`), over one connection per server (`server`). Changes come as a stream
per shard (`watch`). Sessions belong to a shard and are kept alive one by one (`sessions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
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
    check_write,
)
from dray.metadata.oxia.calls import Calls
from dray.metadata.oxia.errors import NOTIFICATIONS_NOT_ENABLED, UnusableOxia, understand
from dray.metadata.oxia.keys import PREFIX_LENGTH, decode_key, stored_key
from dray.metadata.oxia.plan import RequestPlan
from dray.metadata.oxia.server import Servers
from dray.metadata.oxia.sessions import SessionCaretaker, open_session
from dray.metadata.oxia.settings import INLINE, OxiaSettings
from dray.metadata.oxia.shards import Leader, Shard, Shards
from dray.metadata.oxia.watch import ShardWatch
from dray.metadata.oxia.wire import client_pb2 as wire
from dray.metadata.sessions import KeptSession, session_identity
from dray.metadata.watching import WatchHub

_log = structlog.get_logger(__name__)

LIMITS: Final = Limits(operations=5_000, value_bytes=8 << 20, inline=INLINE)
"""One write is one entry of Oxia's log, and every node of the shard carries it whole."""


class OxiaStore:
    def __init__(self, settings: OxiaSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._hub = WatchHub()
        self._watches: dict[Shard, ShardWatch] = {}
        self._sessions: list[KeptSession] = []
        self._caretaker: SessionCaretaker | None = None
        self._closing = asyncio.Event()
        self._open = False

    async def open(self) -> None:
        """Find the shards and look at the namespace; `UnusableOxia` says in one line what is wrong."""
        self._servers = Servers(self._settings)
        self._shards = Shards(self._servers, self._settings, self._runtime)
        self._calls = Calls(self._shards, self._settings, self._runtime)
        self._open = True
        try:
            await self._shards.start()
            await inspect(self._shards.of(0), self._calls, self._settings)
            self._caretaker = SessionCaretaker(self._shards, self._calls, self._settings, self._runtime)
        except BaseException:
            await self.abandon()
            raise

    async def close(self) -> None:
        """End this store's sessions and let go of the servers."""
        if self._open:
            await gather_some(_close_session(session) for session in self._sessions)
        await self.abandon()

    async def abandon(self) -> None:
        """Close, but leave the sessions to run out by themselves, as those of a dead process do."""
        for session in self._sessions:
            session.abandon()
        if not self._open:
            return
        self._open = False
        self._closing.set()
        self._hub.close()
        for watch in self._watches.values():
            watch.stop()
        if self._caretaker is not None:
            self._caretaker.stop()
        self._shards.stop()
        await self._servers.close()

    @property
    def limits(self) -> Limits:
        return LIMITS

    async def get(self, domain: int, key: str) -> StoredValue | None:
        return await self._one(domain, key, wire.EQUAL, key)

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._one(domain, min(key, prefix + KEY_END), wire.FLOOR, prefix)

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._one(domain, max(key, prefix), wire.CEILING, prefix)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        check_domain(domain)
        check_limit(limit)
        self._check_open()
        if start >= end or limit == 0:
            return []

        async def ask(leader: Leader, shard: int, timeout: float) -> list[StoredValue]:
            """Oxia streams the pages of one snapshot; it knows no limit, so the stream is cut off there."""
            request = wire.RangeScanRequest(
                shard=shard,
                start_inclusive=stored_key(domain, start),
                end_exclusive=stored_key(domain, end),
            )
            records: list[StoredValue] = []
            stream = leader.server.range_scan(request, timeout)
            with leader.under_way(stream):
                async for page in stream:
                    records += [_record(found.key, found) for found in page.records]
                    if limit is not None and len(records) >= limit:
                        stream.cancel()
                        return records[:limit]
            return records

        return await self._calls.read(domain, ask)

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        """A caller that is cancelled does not know what became of its write."""
        session = check_write(domain, operations, LIMITS)
        identity = None if session is None else session_identity(domain, session)
        if session is not None and session.ended:
            raise SessionEnded(f"session {identity} is over")
        self._check_open()
        if not operations:
            return []
        shard = self._shards.of(domain)
        plan = RequestPlan(shard.identity, domain, operations, identity)
        return plan.outcomes(await self._calls.write(shard, plan.request))

    async def barrier(self, domain: int) -> None:
        check_domain(domain)
        self._check_open()
        await self._calls.barrier(self._shards.of(domain))

    async def mark(self, domain: int, name: str) -> None:
        check_domain(domain)
        self._check_open()
        await self._calls.mark(domain, name)

    async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncGenerator[Change, None]:
        check_domain(domain)
        self._check_open()
        shard = self._shards.of(domain)
        watch = self._watches.get(shard)
        if watch is None:
            watch = self._watches[shard] = ShardWatch(
                shard, self._calls, self._hub, self._runtime, self._settings.first_answer
            )
        watch.enter(domain)
        try:
            await self._in_place(watch)
            async with aclosing(self._hub.watch(domain, endings)) as changes:
                async for change in changes:
                    yield change
        finally:
            if watch.leave(domain):
                watch.stop()
                if self._watches.get(shard) is watch:
                    del self._watches[shard]

    async def session(self, domain: int, ttl: float) -> KeptSession:
        check_domain(domain)
        self._check_open()
        shard = self._shards.of(domain)
        session = await open_session(domain, shard, ttl, self._calls, self._settings, self._runtime)
        self._sessions = [*(kept for kept in self._sessions if not kept.ended), session]
        return session

    async def _in_place(self, watch: ShardWatch) -> None:
        """Until the stream stands, or the store closes: then the watch ends by itself."""
        standing = self._runtime.spawn(watch.in_place.wait(), "oxia watch in place")
        closing = self._runtime.spawn(self._closing.wait(), "oxia watch of a closing store")
        try:
            await asyncio.wait([standing, closing], return_when=asyncio.FIRST_COMPLETED)
        finally:
            standing.cancel()
            closing.cancel()

    async def _one(
        self, domain: int, key: str, how: wire.KeyComparisonType, prefix: str
    ) -> StoredValue | None:
        check_domain(domain)
        self._check_open()
        stored = stored_key(domain, key)

        async def ask(leader: Leader, shard: int, timeout: float) -> wire.GetResponse:
            get = wire.GetRequest(key=stored, include_value=True, comparison_type=how)
            answers: list[wire.GetResponse] = []
            stream = leader.server.read(wire.ReadRequest(shard=shard, gets=[get]), timeout)
            with leader.under_way(stream):
                async for page in stream:
                    answers += page.gets
            return answers[0]

        found = await self._calls.read(domain, ask)
        if found.status != wire.OK:
            return None
        name = found.key if found.HasField("key") else stored
        return _record(name, found) if name.startswith(stored_key(domain, prefix)) else None

    def _check_open(self) -> None:
        if not self._open:
            raise Unavailable("the metadata store is closed")


async def _close_session(session: KeptSession) -> None:
    try:
        await session.close()
    except MetadataError as error:
        _log.warning("a session is left to run out", error=str(error))


def _record(stored: str, found: wire.GetResponse) -> StoredValue:
    return StoredValue(decode_key(stored[PREFIX_LENGTH:]), found.value, found.version.version_id + 1)


# --- whether a namespace will do
#
# Found out at start: better one line then than wrong answers later.


async def inspect(shard: Shard, calls: Calls, settings: OxiaSettings) -> None:
    leader = await calls.prove(shard)
    stream = leader.server.notifications(shard.identity)
    try:
        async with asyncio.timeout(settings.request_timeout):
            await anext(aiter(stream))
    except aio.AioRpcError as error:
        if understand(error).reason == NOTIFICATIONS_NOT_ENABLED:
            raise UnusableOxia(
                f"the Oxia namespace {settings.namespace!r} has notifications disabled: enable them"
            ) from error
    except (TimeoutError, StopAsyncIteration):
        return  # an election, say: watches try again by themselves
    finally:
        stream.cancel()
