"""The engine of the simulation: plain dictionaries, no threads, nothing that is not replayable.

A `MemoryState` is the server; each `MemoryStore` is one client of it, so a cluster of brokers in one
process shares a state and each broker has sessions of its own. Every call gives way to the event loop
once before it takes effect, so that callers interleave as they would over a network.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from dray.base.runtime import Runtime
from dray.metadata.contract import (
    ABSENT,
    ANY,
    KEY_END,
    Change,
    Delete,
    DeleteRange,
    Expectation,
    Limits,
    Operation,
    Outcome,
    Put,
    SessionEnded,
    StoredValue,
    Unavailable,
    check_domain,
    check_limit,
    check_ttl,
    check_write,
)
from dray.metadata.sessions import KeptSession, SendTime, session_identity
from dray.metadata.watching import WatchHub

LIMITS: Final = Limits(operations=10_000, value_bytes=16 << 20)

_APPLIED: Final = Outcome(True)
_SKIPPED: Final = Outcome(False)


@dataclass(slots=True)
class _Entry:
    record: StoredValue
    session: int | None


@dataclass(slots=True)
class _Domain:
    entries: dict[str, _Entry] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)  # sorted; str order is byte order for ASCII

    def put(self, record: StoredValue, session: int | None) -> None:
        if record.key not in self.entries:
            insort(self.keys, record.key)
        self.entries[record.key] = _Entry(record, session)

    def remove(self, key: str) -> None:
        if self.entries.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def meets(self, key: str, expect: Expectation) -> bool:
        if expect == ANY:
            return True
        entry = self.entries.get(key)
        return entry is None if expect == ABSENT else entry is not None and entry.record.version == expect


@dataclass(slots=True)
class _SessionState:
    domain: int
    ttl: float
    expires: float


class MemoryState:
    """The records, versions and sessions that the stores opened on it share."""

    def __init__(self) -> None:
        self._hubs: dict[WatchHub, None] = {}  # ordered: a set would not be replayable
        self._domains: dict[int, _Domain] = {}
        self._sessions: dict[int, _SessionState] = {}
        self._last_version = 0
        self._last_session = 0

    def attach(self, hub: WatchHub) -> None:
        self._hubs[hub] = None

    def detach(self, hub: WatchHub) -> None:
        self._hubs.pop(hub, None)

    def domain(self, number: int, now: float) -> _Domain:
        """The domain as it is now: without the keys of sessions that have run out."""
        self._expire(now)
        return self._domains.setdefault(number, _Domain())

    def apply(
        self, number: int, operations: Sequence[Operation], session: int | None, now: float
    ) -> list[Outcome]:
        domain = self.domain(number, now)
        if session is not None and session not in self._sessions:
            raise SessionEnded(f"session {session} is over")
        changed: dict[str, None] = {}
        outcomes: list[Outcome] = []
        for operation in operations:
            if isinstance(operation, DeleteRange):
                low, high = (bisect_left(domain.keys, end) for end in (operation.start, operation.end))
                for key in domain.keys[low:high]:
                    domain.remove(key)
                    changed[key] = None
                outcomes.append(_APPLIED)
            elif not domain.meets(operation.key, operation.expect):
                outcomes.append(_SKIPPED)
            elif isinstance(operation, Delete):
                domain.remove(operation.key)
                changed[operation.key] = None
                outcomes.append(_APPLIED)
            else:
                outcomes.append(self._put(domain, operation, session))
                changed[operation.key] = None
        self._publish(number, changed)
        return outcomes

    def open_session(self, domain: int, ttl: float, clock: Callable[[], float]) -> int:
        self._last_session += 1
        session = _SessionState(domain, ttl, clock() + ttl)
        self._sessions[self._last_session] = session
        self._expire_later(self._last_session, session, clock)
        return self._last_session

    def renew_session(self, identity: int, now: float) -> bool:
        self._expire(now)
        session = self._sessions.get(identity)
        if session is not None:
            session.expires = now + session.ttl
        return session is not None

    def remove_session(self, identity: int) -> None:
        session = self._sessions.pop(identity, None)
        if session is None:
            return
        domain = self._domains.setdefault(session.domain, _Domain())
        keys = [key for key in domain.keys if domain.entries[key].session == identity]
        for key in keys:
            domain.remove(key)
        self._publish(session.domain, keys)

    def _put(self, domain: _Domain, put: Put, session: int | None) -> Outcome:
        self._last_version += 1
        domain.put(StoredValue(put.key, bytes(put.value), self._last_version), session)
        return Outcome(True, self._last_version)

    def _expire(self, now: float) -> None:
        for identity in [name for name, session in self._sessions.items() if session.expires <= now]:
            self.remove_session(identity)

    def _expire_later(self, identity: int, session: _SessionState, clock: Callable[[], float]) -> None:
        """When a session runs out there may be no reader, but there may be a watcher."""

        def check() -> None:
            self._expire(clock())
            if identity in self._sessions:
                self._expire_later(identity, session, clock)

        asyncio.get_running_loop().call_later(max(session.expires - clock(), 0.0), check)

    def _publish(self, domain: int, keys: Iterable[str]) -> None:
        for hub in self._hubs:
            hub.publish(domain, keys)


class MemoryStore:
    """One client of a `MemoryState`; with none given, of one of its own. `clock` is the server's: that of the
    process where it is not another one."""

    def __init__(
        self,
        runtime: Runtime,
        state: MemoryState | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._runtime = runtime
        self._clock = clock or runtime.monotonic
        self._state = MemoryState() if state is None else state
        self._hub = WatchHub()
        self._state.attach(self._hub)
        self._sessions: list[KeptSession] = []
        self._closed = False

    @property
    def limits(self) -> Limits:
        return LIMITS

    async def get(self, domain: int, key: str) -> StoredValue | None:
        entry = (await self._domain(domain)).entries.get(key)
        return None if entry is None else entry.record

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        content = await self._domain(domain)
        position = bisect_right(content.keys, min(key, prefix + KEY_END)) - 1
        return _record_under(content, position, prefix)

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        content = await self._domain(domain)
        position = bisect_left(content.keys, max(key, prefix))
        return _record_under(content, position, prefix)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        check_limit(limit)
        content = await self._domain(domain)
        low, high = bisect_left(content.keys, start), bisect_left(content.keys, end)
        if limit is not None:
            high = min(high, low + limit)
        return [content.entries[key].record for key in content.keys[low:high]]

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        session = check_write(domain, operations, LIMITS)
        identity = None if session is None else session_identity(domain, session)
        if session is not None and session.ended:
            raise SessionEnded(f"session {identity} is over")
        await self._turn()
        return self._state.apply(domain, operations, identity, self._clock())

    async def barrier(self, domain: int) -> None:
        check_domain(domain)
        await self._turn()

    def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncGenerator[Change, None]:
        check_domain(domain)
        return self._hub.watch(domain, endings)

    async def mark(self, domain: int, name: str) -> None:
        """Whoever writes tells all watchers at once."""
        await self.barrier(domain)
        self._hub.publish(domain, [name])

    async def session(self, domain: int, ttl: float) -> KeptSession:
        check_domain(domain)
        check_ttl(ttl)
        sent = SendTime.now(self._runtime)
        await self._turn()
        state, runtime = self._state, self._runtime
        identity = state.open_session(domain, ttl, self._clock)

        async def renew() -> bool:
            await self._turn()
            return state.renew_session(identity, self._clock())

        async def remove() -> None:
            await runtime.sleep(0)
            state.remove_session(identity)

        session = KeptSession(
            runtime, domain=domain, identity=identity, ttl=ttl, sent=sent, renew=renew, remove=remove
        )
        self._sessions = [*(kept for kept in self._sessions if not kept.ended), session]
        return session

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()
        self.abandon()

    def abandon(self) -> None:
        """Vanish as a process that died: the sessions run out by themselves."""
        self._closed = True
        for session in self._sessions:
            session.abandon()
        self._hub.close()
        self._state.detach(self._hub)

    async def _domain(self, domain: int) -> _Domain:
        check_domain(domain)
        await self._turn()
        return self._state.domain(domain, self._clock())

    async def _turn(self) -> None:
        if self._closed:
            raise Unavailable("the metadata store is closed")
        await self._runtime.sleep(0)


def _record_under(domain: _Domain, position: int, prefix: str) -> StoredValue | None:
    if not 0 <= position < len(domain.keys):
        return None
    record = domain.entries[domain.keys[position]].record
    return record if record.key.startswith(prefix) else None
