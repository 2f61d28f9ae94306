"""Sessions of one shard.

A leader answers keep-alives from memory. One that was deposed and does not know it would go on saying that
all is well while the new leader counts the session out. So a keep-alive is confirmed only by a barrier that
follows it at the same leader: the one that acknowledges it did lead when it took the keep-alive, and whoever
leads after it gives the session its full life again, or does not know it (see `caretaker`): then it is over,
and its holder, which nobody else waits for, removes what is left of it.
"""

from __future__ import annotations

from typing import Final

from grpc import aio

from dray.metadata.checks import check_ttl
from dray.metadata.contract import Ambiguous, Unavailable
from dray.metadata.oxia.calls import Calls, RetryDeadline
from dray.metadata.oxia.caretaker import erase_session
from dray.metadata.oxia.errors import SESSION_NOT_FOUND, understand
from dray.metadata.oxia.settings import OxiaSettings
from dray.metadata.oxia.shards import Shard, Superseded
from dray.metadata.oxia.wire import client_pb2 as wire
from dray.metadata.sessions import KeptSession, SendTime
from dray.runtime import Runtime

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
    kept = _Kept(shard, answer.session_id, ttl, calls, settings, runtime)
    return KeptSession(
        runtime,
        domain=domain,
        identity=answer.session_id,
        ttl=ttl,
        sent=sent,
        renew=kept.renew,
        remove=kept.remove,
    )


class _Kept:
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
