"""Sessions of one shard.

A leader answers keep-alives from memory. One that was deposed and does not know it would go on saying that
all is well while the new leader counts the session out. So a keep-alive is confirmed only by a barrier that
follows it at the same leader: the one that acknowledges it did lead when it took the keep-alive, and whoever
leads after it gives the session its full life again, or does not know it (see `Caretaker`): then it is over,
and its holder, which nobody else waits for, removes what is left of it.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from grpc import aio

from dray.base.runtime import Runtime, keep_running, run_once
from dray.metadata.contract import Ambiguous, MetadataError, Unavailable, check_ttl
from dray.metadata.oxia.calls import Calls, RetryDeadline
from dray.metadata.oxia.errors import SESSION_NOT_FOUND, understand
from dray.metadata.oxia.server import OxiaServer
from dray.metadata.oxia.settings import OxiaSettings
from dray.metadata.oxia.shards import Leader, Shard, Shards, Superseded
from dray.metadata.oxia.wire import client_pb2 as wire
from dray.metadata.oxia.wire import internal_pb2 as internal
from dray.metadata.sessions import KeptSession, SendTime

SHORTEST: Final = 2.0
LONGEST: Final = 300.0


async def open_session(
    domain: int, shard: Shard, ttl: float, calls: Calls, settings: OxiaSettings, runtime: Runtime
) -> KeptSession:
    check_ttl(ttl)
    if not SHORTEST <= ttl <= LONGEST:
        raise ValueError(f"a session of Oxia lives for {SHORTEST} to {LONGEST} seconds, not {ttl}")
    request = wire.CreateSessionRequest(
        shard=shard.identity, session_timeout_ms=round(ttl * 1000), client_identity="dray"
    )
    leader = await calls.leader(shard, RetryDeadline(runtime, settings.patience))
    sent = SendTime.now(runtime)
    try:
        answer = await calls.once(
            shard, leader, leader.server.create_session(request, settings.request_timeout)
        )
    except (aio.AioRpcError, Superseded) as error:
        # A session that was opened all the same holds no key, and runs out.
        raise Unavailable(f"no session from Oxia at {leader.server.address}: {_text(error)}") from error
    kept = _OxiaKeepAlive(shard, answer.session_id, ttl, calls, settings, runtime)
    return KeptSession(
        runtime,
        domain=domain,
        identity=answer.session_id,
        ttl=ttl,
        sent=sent,
        renew=kept.renew,
        remove=kept.remove,
    )


class _OxiaKeepAlive:
    def __init__(
        self, shard: Shard, identity: int, ttl: float, calls: Calls, settings: OxiaSettings, runtime: Runtime
    ) -> None:
        self._shard = shard
        self._identity = identity
        self._ttl = ttl
        self._calls = calls
        self._settings = settings
        self._runtime = runtime

    async def renew(self) -> bool:
        timeout = min(self._settings.request_timeout, self._ttl / 3)
        leader = await self._calls.leader(self._shard, RetryDeadline(self._runtime, timeout))
        beat = wire.SessionHeartbeat(shard=self._shard.identity, session_id=self._identity)
        lives = True
        try:
            await self._calls.once(self._shard, leader, leader.server.keep_alive(beat, timeout))
        except aio.AioRpcError as error:
            lives = understand(error).reason != SESSION_NOT_FOUND
            if lives:
                raise Unavailable(f"no keep-alive at {leader.server.address}: {_text(error)}") from error
        except Superseded as error:
            raise Unavailable("another leader took over during a keep-alive") from error
        if await self._calls.barrier(self._shard) is not leader:
            raise Unavailable("another leader took over during a keep-alive")
        if not lives:
            await erase_session(self._calls, self._shard, self._identity)
        return lives

    async def remove(self) -> None:
        """Until a leader says that it is gone, also where an earlier attempt was left unanswered."""
        attempt = RetryDeadline(self._runtime, self._settings.patience)
        request = wire.CloseSessionRequest(shard=self._shard.identity, session_id=self._identity)
        while True:
            leader = await self._calls.leader(self._shard, attempt)
            try:
                await self._calls.once(
                    self._shard, leader, leader.server.close_session(request, self._settings.request_timeout)
                )
                return
            except aio.AioRpcError as error:
                fault = understand(error)
                if fault.reason == SESSION_NOT_FOUND:
                    break
                attempt.note(str(fault))
            except Superseded:
                attempt.note("another leader took over")
            if attempt.remaining() <= 0:
                raise Ambiguous(f"a session was not closed: {attempt.why('no answer')}")
            await self._runtime.sleep(attempt.pause())
        await erase_session(self._calls, self._shard, self._identity)


def _text(error: aio.AioRpcError | Superseded) -> str:
    return str(understand(error)) if isinstance(error, aio.AioRpcError) else "another leader took over"


# --- sessions that their server forgot
#
# In a namespace with natural sorting, an Oxia leader (0.17.1) that takes over does not find the sessions of
# the one before: it looks for them in a range of keys that only fits hierarchical sorting. Their records
# and keys stay, keep-alives are answered with "not found", and nothing ever removes them. The holder
# notices at its next keep-alive and removes its own. For holders that are gone every store looks after each
# change of leader: what is there then, still there after the session's whole life, and unknown to the same
# leader, is removed.
#
# With hierarchical sorting leaders find the sessions, and there is nothing to do: the range in which they
# are looked for here only fits natural sorting, and is empty in the other.
#
# By then no holder can believe in it: the last keep-alive that counted was confirmed by the leader before.
# Asking after a session is a keep-alive, so it is done once per leader, and not at all where nothing
# happened.


_log = structlog.get_logger(__name__)

INTERVAL: Final = 1.0
MARGIN: Final = 0.5

SESSIONS: Final = "__oxia/session/"
SESSIONS_END: Final = "__oxia/session0"
DIGITS: Final = 16


def session_key(identity: int) -> str:
    return f"{SESSIONS}{identity:0{DIGITS}x}"


async def erase_session(calls: Calls, shard: Shard, identity: int) -> None:
    """Removes the record of a session, and with it, in the same step, its keys. As often as one likes."""
    deletes = [wire.DeleteRequest(key=session_key(identity))]
    await calls.insist(shard, wire.WriteRequest(shard=shard.identity, deletes=deletes))


class SessionCaretaker:
    def __init__(self, shards: Shards, calls: Calls, settings: OxiaSettings, runtime: Runtime) -> None:
        self._shards = shards
        self._calls = calls
        self._settings = settings
        self._runtime = runtime
        self._inspections: set[asyncio.Task[None]] = set()
        self._task = keep_running(runtime, "oxia caretaker", self._run)

    def stop(self) -> None:
        self._task.cancel()
        for inspection in self._inspections:
            inspection.cancel()

    async def _run(self) -> None:
        while True:
            for shard in self._shards.all():
                leader = shard.leader
                if leader is not None and not leader.inspected:
                    leader.inspected = True
                    inspection = run_once(self._runtime, "oxia sessions", self._inspect, shard, leader)
                    self._inspections.add(inspection)
                    inspection.add_done_callback(self._inspections.discard)
            await self._runtime.sleep(INTERVAL)

    async def _inspect(self, shard: Shard, leader: Leader) -> None:
        try:
            if await self._calls.prove(shard) is leader:
                seen = self._runtime.monotonic()
                for identity, ttl in sorted(
                    await self._sessions(leader.server, shard), key=lambda pair: pair[1]
                ):
                    pause = seen + ttl + MARGIN - self._runtime.monotonic()
                    await self._runtime.sleep(max(pause, 0.0))
                    if shard.leader is not leader:
                        return  # the next one is inspected as well
                    await self._ask_after(shard, leader, identity)
        except (aio.AioRpcError, Superseded, MetadataError) as error:
            leader.inspected = False  # once more, later
            _log.debug("could not look after sessions", shard=shard.identity, error=str(error))
        except Exception:
            leader.inspected = False
            raise

    async def _sessions(self, server: OxiaServer, shard: Shard) -> list[tuple[int, float]]:
        request = wire.RangeScanRequest(
            shard=shard.identity,
            start_inclusive=SESSIONS,
            end_exclusive=SESSIONS_END,
            include_internal_keys=True,
        )
        found = []
        async for page in server.range_scan(request, self._settings.request_timeout):
            for record in page.records:
                if len(record.key) == len(SESSIONS) + DIGITS:  # the longer ones name a session's keys
                    ttl = internal.SessionRecord.FromString(record.value).timeout_ms / 1000
                    found.append((int(record.key[len(SESSIONS) :], 16), ttl))
        return found

    async def _ask_after(self, shard: Shard, leader: Leader, identity: int) -> None:
        beat = wire.SessionHeartbeat(shard=shard.identity, session_id=identity)
        try:
            await self._calls.once(
                shard, leader, leader.server.keep_alive(beat, self._settings.request_timeout)
            )
        except aio.AioRpcError as error:
            if understand(error).reason != SESSION_NOT_FOUND:
                raise
            _log.info("a session that Oxia forgot is removed", shard=shard.identity, session=identity)
            await erase_session(self._calls, shard, identity)
