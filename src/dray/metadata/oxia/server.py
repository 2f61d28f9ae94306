"""One connection to one Oxia server, and the calls that go over it.

Oxia's service was given another name, and its messages stayed what they were: 0.14 knows the second name
below alone, 0.17 both. Which one a server goes by is found out when it is first spoken to, and again if it
refuses that name one day, as a newer version in its place may.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, Protocol, TypeVar

import grpc
from grpc import aio

from dray.base.runtime import gather_some
from dray.metadata.oxia.errors import UnusableOxia, understand
from dray.metadata.oxia.settings import OxiaSettings
from dray.metadata.oxia.wire import client_pb2 as wire

SERVICES: Final = ("io.oxia.proto.v1.OxiaClient", "io.streamnative.oxia.proto.OxiaClient")

LARGEST_ANSWER: Final = 256 << 20

OPTIONS: Final = [
    ("grpc.max_receive_message_length", LARGEST_ANSWER),
    ("grpc.max_send_message_length", LARGEST_ANSWER),
    # A server that is frozen, or a network that swallows everything, shows within these. Oxia takes offence
    # at pings more often than every 5 seconds.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 2_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # The name deceives: so long may a connection take to come up.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Whether a write may be sent twice is ours to decide, and the answer is no.
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
]


Answer_co = TypeVar("Answer_co", covariant=True)


class Call(Protocol[Answer_co]):
    """A request with one answer, as gRPC gives it."""

    def __await__(self) -> Generator[Any, None, Answer_co]: ...

    def cancel(self) -> bool: ...


class Stream(Protocol[Answer_co]):
    """A request with many."""

    def __aiter__(self) -> AsyncIterator[Answer_co]: ...

    def cancel(self) -> bool: ...


class _Service:
    """The methods of a service by one of its names."""

    def __init__(self, channel: aio.Channel, name: str) -> None:
        self._channel = channel
        self._name = name
        self.write = self._unary("Write", wire.WriteRequest, wire.WriteResponse)
        self.read = self._stream("Read", wire.ReadRequest, wire.ReadResponse)
        self.range_scan = self._stream("RangeScan", wire.RangeScanRequest, wire.RangeScanResponse)
        self.assignments = self._stream(
            "GetShardAssignments", wire.ShardAssignmentsRequest, wire.ShardAssignments
        )
        self.notifications = self._stream(
            "GetNotifications", wire.NotificationsRequest, wire.NotificationBatch
        )
        self.create_session = self._unary(
            "CreateSession", wire.CreateSessionRequest, wire.CreateSessionResponse
        )
        self.keep_alive = self._unary("KeepAlive", wire.SessionHeartbeat, wire.KeepAliveResponse)
        self.close_session = self._unary("CloseSession", wire.CloseSessionRequest, wire.CloseSessionResponse)

    def _unary(self, name: str, request: Any, answer: Any) -> Callable[..., Call[Any]]:
        call: Callable[..., Call[Any]] = self._channel.unary_unary(
            f"/{self._name}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call

    def _stream(self, name: str, request: Any, answer: Any) -> Callable[..., Stream[Any]]:
        call: Callable[..., Stream[Any]] = self._channel.unary_stream(
            f"/{self._name}/{name}",
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call


class OxiaServer:
    """Calls take the metadata of the connection (the token) by themselves; timeouts are the caller's. They
    are for a server that was `introduced`, as every one that is `ready` was."""

    def __init__(self, address: str, channel: aio.Channel, namespace: str, token: str | None) -> None:
        self.address = address
        self._channel = channel
        self._metadata = aio.Metadata()
        if token is not None:
            self._metadata.add("authorization", f"Bearer {token}")
        self._assignments_request = wire.ShardAssignmentsRequest(namespace=namespace)
        self._service = _Service(channel, SERVICES[0])
        self._introduced = False
        self._introduction = asyncio.Lock()

    async def ready(self, timeout: float) -> bool:
        """Whether the connection stands and the server is introduced, within that time. A request that is
        sent over a connection that does not stand was certainly not received."""
        state = self._channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY and self._introduced:
            return True
        try:
            async with asyncio.timeout(timeout):
                while state is not grpc.ChannelConnectivity.READY:
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
                await self.introduce()
        except (TimeoutError, aio.AioRpcError):
            return False
        return True

    async def introduce(self) -> None:
        """Learn by which name the server offers its service; `UnusableOxia` if by none that is known."""
        async with self._introduction:
            if self._introduced:
                return
            for name in SERVICES:
                service = _Service(self._channel, name)
                if await self._offers(service):
                    self._service, self._introduced = service, True
                    return
            raise UnusableOxia(
                f"what answers at {self.address} is no Oxia server that Dray knows: see to the address, "
                "or to the version of Oxia"
            )

    def forget(self) -> None:
        """It refuses the name that it went by."""
        self._introduced = False

    async def _offers(self, service: _Service) -> bool:
        """Asks for the assignments, which any server answers. A complaint of the service itself will do."""
        stream = service.assignments(self._assignments_request, metadata=self._metadata)
        try:
            await anext(aiter(stream), None)
        except aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return False
            fault = understand(error)
            if not fault.reason and not fault.hopeless:
                raise
        finally:
            stream.cancel()
        return True

    def write(self, request: wire.WriteRequest, timeout: float) -> Call[wire.WriteResponse]:
        return self._service.write(request, timeout=timeout, metadata=self._metadata)

    def read(self, request: wire.ReadRequest, timeout: float) -> Stream[wire.ReadResponse]:
        return self._service.read(request, timeout=timeout, metadata=self._metadata)

    def range_scan(self, request: wire.RangeScanRequest, timeout: float) -> Stream[wire.RangeScanResponse]:
        return self._service.range_scan(request, timeout=timeout, metadata=self._metadata)

    def assignments(self) -> Stream[wire.ShardAssignments]:
        return self._service.assignments(self._assignments_request, metadata=self._metadata)

    def notifications(self, shard: int) -> Stream[wire.NotificationBatch]:
        return self._service.notifications(wire.NotificationsRequest(shard=shard), metadata=self._metadata)

    def create_session(
        self, request: wire.CreateSessionRequest, timeout: float
    ) -> Call[wire.CreateSessionResponse]:
        return self._service.create_session(request, timeout=timeout, metadata=self._metadata)

    def keep_alive(self, request: wire.SessionHeartbeat, timeout: float) -> Call[wire.KeepAliveResponse]:
        return self._service.keep_alive(request, timeout=timeout, metadata=self._metadata)

    def close_session(
        self, request: wire.CloseSessionRequest, timeout: float
    ) -> Call[wire.CloseSessionResponse]:
        return self._service.close_session(request, timeout=timeout, metadata=self._metadata)

    async def close(self) -> None:
        await self._channel.close()


class Servers:
    """Every server this store has spoken to, by address. Certificates are read once."""

    def __init__(self, settings: OxiaSettings) -> None:
        self._settings = settings
        self._credentials = settings.credentials() if settings.tls else None
        self._servers: dict[str, OxiaServer] = {}
        for address in settings.addresses:
            self.at(address)

    @property
    def addresses(self) -> list[str]:
        return list(self._servers)

    def at(self, address: str) -> OxiaServer:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = OxiaServer(
                address, self._channel(address), self._settings.namespace, self._settings.token
            )
        return server

    async def close(self) -> None:
        await gather_some(server.close() for server in list(self._servers.values()))

    def _channel(self, address: str) -> aio.Channel:
        if self._credentials is None:
            return aio.insecure_channel(address, OPTIONS)
        options = [*OPTIONS, *self._settings.tls_options()]
        return aio.secure_channel(address, self._credentials, options)
