"""Requests to the leader of a shard: waited for, retried where that is safe, judged where it is not.

Reads and barriers change nothing, so they are tried again until patience runs out. A write is sent again
only when a server refused it before its log saw it; any other failure leaves open what became of it.

**Reads never go back.** A deposed leader that has not heard of it serves what it knew last. So no read is
sent to a leader before a write was acknowledged there in this client's time with it: an acknowledgement
takes a majority, which a deposed leader does not get, and by then the leader has applied everything that
was committed before, by any client. From there on one server's state only grows. Whenever the view of who
leads changes, also back to a server that led before, the proof is asked for again, and the answer of a read
that was under way meanwhile is thrown away and read again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from grpc import aio

from dray.base.runtime import Runtime, run_once
from dray.metadata.contract import Ambiguous, MetadataError, Unavailable
from dray.metadata.oxia.errors import Fault, UnusableOxia, understand
from dray.metadata.oxia.keys import BARRIER_KEY, mark_key
from dray.metadata.oxia.server import Call
from dray.metadata.oxia.settings import OxiaSettings
from dray.metadata.oxia.shards import Leader, Shard, Shards, Superseded
from dray.metadata.oxia.wire import client_pb2 as wire

T = TypeVar("T")

FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 0.5
BARRIER_TIMEOUT: Final = 2.0
"""Seconds for one attempt: it leaves nothing behind, so a leader that is silent is not waited for."""


class Calls:
    def __init__(self, shards: Shards, settings: OxiaSettings, runtime: Runtime) -> None:
        self._shards = shards
        self._settings = settings
        self._runtime = runtime
        self._rounds: dict[Shard, _Round] = {}

    async def read(self, domain: int, ask: Callable[[Leader, int, float], Awaitable[T]]) -> T:
        """The answer of a proven leader. `ask` gets the leader, the shard and the seconds it may take."""
        attempt = RetryDeadline(self._runtime, self._settings.patience)
        while True:
            shard = self._shards.of(domain)
            leader = shard.leader
            if leader is None or not leader.proven:
                leader = await self.prove(shard)
            try:
                answer = await ask(leader, shard.identity, self._settings.request_timeout)
            except aio.AioRpcError as error:
                await self._failed(shard, leader, understand(error), attempt)
                continue
            except Superseded:
                continue
            if shard.leader is leader:
                return answer

    async def write(self, shard: Shard, request: wire.WriteRequest) -> wire.WriteResponse:
        attempt = RetryDeadline(self._runtime, self._settings.patience)
        while True:
            leader = await self.leader(shard, attempt)
            try:
                answer = await self._tracked(
                    leader, leader.server.write(request, self._settings.request_timeout)
                )
            except aio.AioRpcError as error:
                fault = understand(error)
                if not fault.refused:
                    self.suspect(shard, leader, fault)
                    raise Ambiguous(
                        f"no clear answer from Oxia at {leader.server.address}: {fault}"
                    ) from error
                await self._failed(shard, leader, fault, attempt)
                continue
            except Superseded as error:
                raise Ambiguous(
                    f"Oxia at {leader.server.address} lost the lead and did not answer"
                ) from error
            leader.proven = True
            return answer

    async def once(self, shard: Shard, leader: Leader, call: Call[T]) -> T:
        """One attempt at a call of another kind; every failure is the caller's to judge."""
        try:
            return await self._tracked(leader, call)
        except aio.AioRpcError as error:
            self.suspect(shard, leader, understand(error))
            raise

    async def barrier(self, shard: Shard) -> Leader:
        """Returns the leader that has applied every write acknowledged before this was called. One write
        at a time serves all who asked before it was sent."""
        under_way = self._rounds.get(shard)
        if under_way is None:
            under_way = self._rounds[shard] = _Round()
            run_once(self._runtime, "oxia barriers", self._run_rounds, shard)
        if under_way.sent:
            if under_way.following is None:
                under_way.following = _Round()
            under_way = under_way.following
        return await asyncio.shield(under_way.done)

    async def prove(self, shard: Shard) -> Leader:
        """A leader that reads may go to."""
        leader = shard.leader
        return leader if leader is not None and leader.proven else await self.barrier(shard)

    async def leader(self, shard: Shard, attempt: RetryDeadline) -> Leader:
        """The present leader, with a connection that stands. `Unavailable` when no server does for too
        long."""
        while True:
            leader, changed = shard.leader, shard.changed
            remaining = attempt.remaining()
            if remaining <= 0:
                raise Unavailable(attempt.why(f"nobody leads shard {shard.identity} of Oxia"))
            if leader is None:
                await _wait(changed, remaining)
                continue
            try:
                ready = await leader.server.ready(min(remaining, 1.0))
            except UnusableOxia as error:
                raise Unavailable(str(error)) from error
            if ready:
                if shard.leader is leader:
                    return leader
                continue
            attempt.note(f"Oxia at {leader.server.address} cannot be reached")
            self._shards.refresh()
            await _wait(changed, attempt.pause())

    async def _run_rounds(self, shard: Shard) -> None:
        while True:
            current = self._rounds[shard]
            current.sent = True
            try:
                leader = await self._send_barrier(shard)
            except MetadataError as error:
                current.fail(error)
            except asyncio.CancelledError:
                current.fail(Unavailable("the metadata store is closed"))
                raise
            except Exception as error:  # no task may wait for ever, and the next round must begin
                current.fail(Unavailable(f"a barrier failed: {error!r}"))
                self._runtime.background.report("oxia barriers", error)
            else:
                current.finish(leader)
            if current.following is None:
                del self._rounds[shard]
                return
            self._rounds[shard] = current.following

    async def _send_barrier(self, shard: Shard) -> Leader:
        """Deletes a key that never was: a log entry like any other, which leaves nothing behind."""
        return await self.insist(
            shard, wire.WriteRequest(shard=shard.identity, deletes=[wire.DeleteRequest(key=BARRIER_KEY)])
        )

    async def mark(self, domain: int, name: str) -> None:
        """Deletes a range that holds nothing: watches are told its first key all the same."""
        key, shard = mark_key(domain, name), self._shards.of(domain)
        span = wire.DeleteRangeRequest(start_inclusive=key, end_exclusive=key + "\0")
        await self.insist(shard, wire.WriteRequest(shard=shard.identity, delete_ranges=[span]))

    async def insist(self, shard: Shard, request: wire.WriteRequest) -> Leader:
        """A write that may be repeated without harm, until a leader acknowledges it."""
        attempt = RetryDeadline(self._runtime, self._settings.patience)
        while True:
            leader = await self.leader(shard, attempt)
            timeout = min(BARRIER_TIMEOUT, self._settings.request_timeout)
            try:
                await self._tracked(leader, leader.server.write(request, timeout))
            except aio.AioRpcError as error:
                await self._failed(shard, leader, understand(error), attempt)
            except Superseded:
                continue
            else:
                leader.proven = True
                if shard.leader is leader:
                    return leader

    async def _tracked(self, leader: Leader, call: Call[T]) -> T:
        with leader.under_way(call):
            return await call

    async def _failed(self, shard: Shard, leader: Leader, fault: Fault, attempt: RetryDeadline) -> None:
        """Wait for something to change before the next attempt, if there may be one."""
        attempt.note(f"Oxia at {leader.server.address}: {fault}")
        if fault.hopeless or attempt.remaining() <= 0:
            raise Unavailable(attempt.why("Oxia gives no answer"))
        changed = shard.changed
        self.suspect(shard, leader, fault)
        if shard.leader is leader:
            await _wait(changed, attempt.pause())

    def suspect(self, shard: Shard, leader: Leader, fault: Fault) -> None:
        """Something is wrong with a leader: look for another one, and look after the sessions of this one."""
        leader.inspected = False
        if fault.unknown_service:
            leader.server.forget()
        if shard.leader is not leader:
            return
        if fault.leader and fault.leader != leader.server.address:
            self._shards.hint(shard, fault.leader)
        else:
            self._shards.refresh()


class _Round:
    """One barrier, and those who wait for it."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Leader] = asyncio.get_running_loop().create_future()
        self.sent = False
        self.following: _Round | None = None

    def finish(self, leader: Leader) -> None:
        if not self.done.done():
            self.done.set_result(leader)

    def fail(self, error: MetadataError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # the waiting task may be gone: then the error is not needed


class RetryDeadline:
    """How long one call may still try, and why it had to so far."""

    def __init__(self, runtime: Runtime, seconds: float) -> None:
        self._runtime = runtime
        self._deadline = runtime.monotonic() + seconds
        self._pause = FIRST_PAUSE
        self._reason = ""

    def remaining(self) -> float:
        return self._deadline - self._runtime.monotonic()

    def pause(self) -> float:
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        return max(0.0, min(pause, self.remaining()))

    def note(self, reason: str) -> None:
        self._reason = reason

    def why(self, otherwise: str) -> str:
        return self._reason or otherwise


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
