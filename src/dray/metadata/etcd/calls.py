"""Calls that find their server: which one is asked, how often, and what an error means in the end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from dray.base.runtime import Runtime
from dray.metadata.contract import Ambiguous, MetadataError, SessionEnded, Unavailable
from dray.metadata.etcd.server import Call, EtcdServer
from dray.metadata.etcd.settings import EtcdSettings
from dray.metadata.etcd.wire import etcd_pb2 as wire

# --- errors
#
# Only what a server refuses *before* its log sees the write is safe to try again. A deadline, a lost
# connection, a stopping server or a change of leaders leave open whether the write happened. So does a full
# quota: etcd looks at it when it accepts a request, and again *after* it has applied it.


NO_LEADER: Final = "etcdserver: no leader"
TOO_MANY_REQUESTS: Final = "etcdserver: too many requests"
INVALID_TOKEN: Final = "etcdserver: invalid auth token"
LEASE_NOT_FOUND: Final = "etcdserver: requested lease not found"
TOO_LARGE: Final = "etcdserver: request is too large"
MUCH_TOO_LARGE: Final = "received message larger than max"
TOO_MANY_OPERATIONS: Final = "etcdserver: too many operations in txn request"
NO_SPACE: Final = "database space exceeded"

# Answered before a request reaches the log, and gone in a moment.
PASSING: Final = frozenset({NO_LEADER, TOO_MANY_REQUESTS, INVALID_TOKEN})
# Answered before a request takes effect, and the same the next time.
HOPELESS_CODES: Final = frozenset(
    {
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)
ADVICE: Final = {
    NO_SPACE: "compact and defragment it, raise --quota-backend-bytes, then `etcdctl alarm disarm`",
    TOO_LARGE: "raise --max-request-bytes of the servers",
    MUCH_TOO_LARGE: "raise --max-request-bytes of the servers",
    TOO_MANY_OPERATIONS: "raise --max-txn-ops of the servers",
}


class UnusableEtcd(MetadataError):
    """The servers are none that Dray can keep its metadata in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An error, understood."""

    code: grpc.StatusCode
    text: str

    @property
    def passing(self) -> bool:
        """Nothing happened, and soon it may."""
        return self.text in PASSING

    @property
    def out_of_space(self) -> bool:
        """A write with this answer may be in the store."""
        return NO_SPACE in self.text

    @property
    def hopeless(self) -> bool:
        """Nothing happened, and another attempt would end the same way."""
        return self.code in HOPELESS_CODES and not self.passing and not self.out_of_space

    def __str__(self) -> str:
        advice = next((advice for text, advice in ADVICE.items() if text in self.text), None)
        said = f"{self.text or 'no details'} ({self.code.name})"
        return said if advice is None else f"{said}: {advice}"


def understand(error: aio.AioRpcError) -> Fault:
    return Fault(error.code(), " ".join((error.details() or "").split()))


# --- calls


Answer = TypeVar("Answer", bound=Message)

PAUSE: Final = 0.05

# A server without a leader refuses at once, instead of letting us wait for one.
REQUIRE_LEADER: Final = ("hasleader", "true")


class Calls:
    """All clients begin with another server, and stay with it for as long as it answers."""

    def __init__(self, settings: EtcdSettings, runtime: Runtime) -> None:
        self._settings = settings
        self._runtime = runtime
        self._servers = [EtcdServer(address, settings) for address in settings.endpoints]
        self._current = runtime.random.randrange(len(self._servers))
        self._token = settings.token
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    async def close(self) -> None:
        self._closed = True
        for server in self._servers:
            await server.close(self._settings.request_timeout)

    def metadata(self) -> list[tuple[str, str]]:
        return [REQUIRE_LEADER] if self._token is None else [REQUIRE_LEADER, ("token", self._token)]

    async def repeatable(
        self, call: Callable[[EtcdServer], Call[Answer]], request: Message, timeout: float | None = None
    ) -> Answer:
        """For what may happen twice: it is asked again, elsewhere, until patience ends."""
        seconds = self._settings.request_timeout if timeout is None else timeout

        async def once(server: EtcdServer) -> Answer:
            return await call(server)(request, timeout=seconds, metadata=self.metadata())

        return await self.patiently(once, repeatable=True)

    async def write(self, request: wire.TxnRequest) -> wire.TxnResponse:
        """Sent again only where it is certain that nothing happened."""

        async def once(server: EtcdServer) -> wire.TxnResponse:
            timeout = self._settings.request_timeout
            return await server.transaction(request, timeout=timeout, metadata=self.metadata())

        return await self.patiently(once, repeatable=False)

    async def patiently(self, ask: Callable[[EtcdServer], Awaitable[Answer]], *, repeatable: bool) -> Answer:
        deadline = self._runtime.monotonic() + self._settings.patience
        while True:
            server = await self.connected(deadline)
            try:
                return await ask(server)
            except aio.AioRpcError as error:
                fault = understand(error)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not self._closed or (task is not None and task.cancelling()):
                    raise
                # Closing the channel cancelled the call; the caller was not cancelled.
                raise (Unavailable if repeatable else Ambiguous)("the metadata store was closed") from None
            if fault.text == LEASE_NOT_FOUND:
                raise SessionEnded(str(fault))
            if fault.hopeless or (repeatable and fault.out_of_space):
                raise Unavailable(str(fault))
            if not repeatable and not fault.passing:
                if not fault.out_of_space:  # the others have no more
                    self.leave(server)
                raise Ambiguous(str(fault))
            await self.recover(server, fault)
            if self._runtime.monotonic() >= deadline:
                raise Unavailable(str(fault))

    async def connected(self, deadline: float) -> EtcdServer:
        """A server with a connection, logged in where that is asked for."""
        while True:
            if self._closed:
                raise Unavailable("the metadata store is closed")
            server = self._servers[self._current]
            if not await server.reachable():
                trouble = f"no connection to etcd at {', '.join(self._settings.endpoints)}"
            else:
                fault = await self._log_in(server)
                if fault is None:
                    return server
                if fault.hopeless:
                    raise CannotLogIn(f"cannot log in: {fault}")
                trouble = f"cannot log in: {fault}"
            self.leave(server)
            if self._runtime.monotonic() >= deadline:
                raise Unavailable(trouble)
            await self._runtime.sleep(PAUSE)

    def leave(self, server: EtcdServer) -> None:
        """The next call asks another one."""
        if self._servers[self._current] is server:
            self._current = (self._current + 1) % len(self._servers)

    async def recover(self, server: EtcdServer, fault: Fault) -> None:
        if fault.text == INVALID_TOKEN and self._settings.user is not None:
            self._token = None
            return
        self.leave(server)
        await self._runtime.sleep(PAUSE)

    async def _log_in(self, server: EtcdServer) -> Fault | None:
        if self._token is not None or self._settings.user is None:
            return None
        request = wire.AuthenticateRequest(name=self._settings.user, password=self._settings.password or "")
        try:
            answer = await server.authenticate(
                request, timeout=self._settings.request_timeout, metadata=[REQUIRE_LEADER]
            )
        except aio.AioRpcError as error:
            return understand(error)
        self._token = answer.token
        return None


class CannotLogIn(Unavailable):
    """User or password are wrong, or etcd asks for none."""
