"""The owner of a group is the holder of its lease, a key that lives as long as a session of its broker.

A broker has one session per domain, and all its leases there hang on it. A lease is worth what its session
is: `confirmed` is asked before every answer, since a broker that was frozen for a while finds out only that
way that another may have taken its place.

The value names the session, so that a broker knows its own put again after an unclear reply. If it finds a
lease of its own that it did not expect (a release has yet to arrive, say), it puts it again before it relies
on it: whatever is still on its way to the old version then changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import Field

from dray.base.runtime import Runtime, run_once
from dray.broker.groups.coordinator.contract import NotCoordinator, Unreachable
from dray.metadata import keys
from dray.metadata.contract import (
    ABSENT,
    Ambiguous,
    Delete,
    Expectation,
    MetadataError,
    MetadataStore,
    Put,
    Session,
    SessionEnded,
    Unavailable,
)
from dray.metadata.values import JsonCodec

LEASE_FORMAT: Final = 1

_ATTEMPTS: Final = 8
_PAUSE: Final = 0.02


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Machine and process let another broker on the same machine see that this one has died."""

    broker_id: Annotated[int, Field(alias="broker")]
    machine: str = ""
    process: int = 0
    session: str = ""


_CODEC: Final = JsonCodec(LeaseHolder, LEASE_FORMAT)


def encode_holder(holder: LeaseHolder) -> bytes:
    return _CODEC.encode(holder)


def decode_holder(group_id: str, value: bytes) -> LeaseHolder:
    return _CODEC.decode(f"the lease of group '{group_id}'", value)


class Lease:
    """Ours, as long as it is `confirmed`."""

    __slots__ = ("_runtime", "_session", "group_id", "version")

    def __init__(self, group_id: str, session: Session, version: int, runtime: Runtime) -> None:
        self.group_id = group_id
        self.version = version
        self._session = session
        self._runtime = runtime

    def confirmed(self) -> bool:
        """Whether no other broker can hold the lease at this moment."""
        session = self._session
        return not session.ended and session.confirmed_until() > self._runtime.monotonic()


@dataclass(frozen=True, slots=True)
class _OwnSession:
    session: Session
    holder: LeaseHolder
    watching: asyncio.Task[None]


class Leases:
    def __init__(
        self,
        store: MetadataStore,
        runtime: Runtime,
        me: LeaseHolder,
        *,
        domains: int,
        ttl: float,
        lost: Callable[[int], None],
        is_dead: Callable[[LeaseHolder], bool] = lambda _: False,
    ) -> None:
        """`lost` hears of a domain whose session has ended. `is_dead` says of a holder that its process is
        certainly gone (same machine, no such process)."""
        self._store = store
        self._runtime = runtime
        self._me = me
        self._domains = domains
        self._ttl = ttl
        self._lost = lost
        self._is_dead = is_dead
        self._sessions: dict[int, _OwnSession] = {}
        self._opening: dict[int, asyncio.Task[_OwnSession | MetadataError]] = {}
        self._own_sessions: set[str] = set()
        self._stopped = False

    async def stop(self) -> None:
        """End every lease now, so that others need not wait for the sessions to run out; take no more."""
        self._stopped = True
        for opening in list(self._opening.values()):
            await asyncio.wait([opening])
        for own in list(self._sessions.values()):
            own.watching.cancel()
            await self._close(own.session)
        self._sessions.clear()

    def renumber(self, broker_id: int) -> None:
        """This broker has another id. Every lease names the old one: all of them end, to be taken again."""
        self._me = replace(self._me, broker_id=broker_id)
        for domain, own in list(self._sessions.items()):
            self._end(domain, own)
            run_once(self._runtime, "end group session", self._close, own.session)

    async def _close(self, session: Session) -> None:
        with suppress(MetadataError):  # it ends by itself, a little later
            await session.close()

    async def holder(self, group_id: str) -> LeaseHolder | None:
        """The holder of the lease, as far as a read can tell."""
        record = await self._store.get(self._domain(group_id), keys.group_lease(group_id))
        return None if record is None else decode_holder(group_id, record.value)

    def is_me(self, holder: LeaseHolder) -> bool:
        return holder.session in self._own_sessions

    def is_dead(self, holder: LeaseHolder) -> bool:
        return self._is_dead(holder)

    async def take(self, group_id: str) -> Lease:
        """The lease, if no other broker holds it. Raises `NotCoordinator`, `Unreachable`."""
        try:
            for attempt in range(_ATTEMPTS):
                if attempt:
                    await self._runtime.sleep(_PAUSE * attempt)
                try:
                    lease = await self._try_take(group_id)
                except Ambiguous:
                    continue  # the next attempt reads what became of it
                if lease is not None:
                    return lease
        except MetadataError as error:
            raise Unreachable(str(error)) from error
        raise Unreachable(f"the lease of group '{group_id}' could not be taken")

    async def release(self, lease: Lease) -> None:
        """Let another broker take it. An unclear end does no harm: the lease is ours or gone."""
        with suppress(MetadataError):
            await self._store.write(
                self._domain(lease.group_id), [Delete(keys.group_lease(lease.group_id), lease.version)]
            )

    async def _try_take(self, group_id: str) -> Lease | None:
        domain, key = self._domain(group_id), keys.group_lease(group_id)
        own = await self._own_session(domain)
        await self._store.barrier(domain)
        record = await self._store.get(domain, key)
        expect: Expectation = ABSENT
        if record is not None:
            holder = decode_holder(group_id, record.value)
            if holder != own.holder:
                if not (self.is_me(holder) or self._is_dead(holder)):
                    raise NotCoordinator(f"broker {holder.broker_id} looks after group '{group_id}'")
                await self._store.write(domain, [Delete(key, record.version)])
                return None
            expect = record.version
        put = Put(key, encode_holder(own.holder), expect, own.session)
        try:
            [outcome] = await self._store.write(domain, [put])
        except SessionEnded:
            self._end(domain, own)  # before our side noticed
            return None
        if not outcome.applied:
            return None
        return Lease(group_id, own.session, outcome.version, self._runtime)

    def _domain(self, group_id: str) -> int:
        return keys.domain_of_group(group_id, self._domains)

    # --- sessions

    async def _own_session(self, domain: int) -> _OwnSession:
        if self._stopped:
            raise NotCoordinator("this broker is stopping")
        own = self._sessions.get(domain)
        if own is not None and not own.session.ended:
            return own
        opening = self._opening.get(domain)
        if opening is None:
            opening = self._runtime.spawn(self._open_session(domain), f"group session of domain {domain}")
            self._opening[domain] = opening
            opening.add_done_callback(lambda _: self._opening.pop(domain, None))
        opened = await asyncio.shield(opening)
        if isinstance(opened, MetadataError):
            raise opened
        return opened

    async def _open_session(self, domain: int) -> _OwnSession | MetadataError:
        """A failure is an answer for all who wait, and no failure of the task they share."""
        earlier = self._sessions.get(domain)
        if earlier is not None:
            self._end(domain, earlier)
        try:
            session = await self._store.session(domain, self._ttl)
        except Ambiguous as error:
            return Unavailable(str(error))  # a session that nobody keeps alive ends by itself
        except MetadataError as error:
            return error
        token = self._runtime.uuid().hex
        holder = LeaseHolder(self._me.broker_id, self._me.machine, self._me.process, token)
        self._own_sessions.add(token)
        watching = run_once(self._runtime, "end of group session", self._watch, domain, session)
        own = self._sessions[domain] = _OwnSession(session, holder, watching)
        return own

    async def _watch(self, domain: int, session: Session) -> None:
        await session.wait_ended()
        own = self._sessions.get(domain)
        if own is not None and own.session is session:
            self._end(domain, own)

    def _end(self, domain: int, own: _OwnSession) -> None:
        """All leases of this session are worth nothing from now on."""
        if self._sessions.get(domain) is own:
            del self._sessions[domain]
            own.watching.cancel()
            self._lost(domain)
