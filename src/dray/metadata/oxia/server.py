"""One connection to one Oxia server, and the calls that go over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Final, Protocol, TypeVar

import grpc
from grpc import aio

from dray.metadata.oxia.settings import OxiaSettings, OxiaTls
from dray.metadata.oxia.wire import client_pb2 as wire

SERVICE: Final = "/io.oxia.proto.v1.OxiaClient/"

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
    ("grpc.min_reconnect_backoff_ms", 1_000),
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


class Server:
    """Calls take the metadata of the connection (the token) by themselves; timeouts are the caller's."""

    def __init__(self, address: str, channel: aio.Channel, token: str | None) -> None:
        self.address = address
        self._channel = channel
        self._metadata = aio.Metadata()
        if token is not None:
            self._metadata.add("authorization", f"Bearer {token}")
        self._write = self._unary("Write", wire.WriteRequest, wire.WriteResponse)
        self._read = self._stream("Read", wire.ReadRequest, wire.ReadResponse)
        self._range_scan = self._stream("RangeScan", wire.RangeScanRequest, wire.RangeScanResponse)
        self._assignments = self._stream(
            "GetShardAssignments", wire.ShardAssignmentsRequest, wire.ShardAssignments
        )
        self._notifications = self._stream(
            "GetNotifications", wire.NotificationsRequest, wire.NotificationBatch
        )
        self._create_session = self._unary(
            "CreateSession", wire.CreateSessionRequest, wire.CreateSessionResponse
        )
        self._keep_alive = self._unary("KeepAlive", wire.SessionHeartbeat, wire.KeepAliveResponse)
        self._close_session = self._unary("CloseSession", wire.CloseSessionRequest, wire.CloseSessionResponse)

    async def ready(self, timeout: float) -> bool:
        """Whether the connection stands, within that time. What is sent over one that does not stand was
        certainly not received."""
        state = self._channel.get_state(try_to_connect=True)
        if state is grpc.ChannelConnectivity.READY:
            return True
        try:
            async with asyncio.timeout(timeout):
                while state is not grpc.ChannelConnectivity.READY:
                    await self._channel.wait_for_state_change(state)
                    state = self._channel.get_state(try_to_connect=True)
        except TimeoutError:
            return False
        return True

    def write(self, request: wire.WriteRequest, timeout: float) -> Call[wire.WriteResponse]:
        return self._write(request, timeout=timeout, metadata=self._metadata)

    def read(self, request: wire.ReadRequest, timeout: float) -> Stream[wire.ReadResponse]:
        return self._read(request, timeout=timeout, metadata=self._metadata)

    def range_scan(self, request: wire.RangeScanRequest, timeout: float) -> Stream[wire.RangeScanResponse]:
        return self._range_scan(request, timeout=timeout, metadata=self._metadata)

    def assignments(self, namespace: str) -> Stream[wire.ShardAssignments]:
        return self._assignments(wire.ShardAssignmentsRequest(namespace=namespace), metadata=self._metadata)

    def notifications(self, shard: int) -> Stream[wire.NotificationBatch]:
        return self._notifications(wire.NotificationsRequest(shard=shard), metadata=self._metadata)

    def create_session(
        self, request: wire.CreateSessionRequest, timeout: float
    ) -> Call[wire.CreateSessionResponse]:
        return self._create_session(request, timeout=timeout, metadata=self._metadata)

    def keep_alive(self, request: wire.SessionHeartbeat, timeout: float) -> Call[wire.KeepAliveResponse]:
        return self._keep_alive(request, timeout=timeout, metadata=self._metadata)

    def close_session(
        self, request: wire.CloseSessionRequest, timeout: float
    ) -> Call[wire.CloseSessionResponse]:
        return self._close_session(request, timeout=timeout, metadata=self._metadata)

    async def close(self) -> None:
        await self._channel.close()

    def _unary(self, name: str, request: Any, answer: Any) -> Callable[..., Call[Any]]:
        call: Callable[..., Call[Any]] = self._channel.unary_unary(
            SERVICE + name,
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call

    def _stream(self, name: str, request: Any, answer: Any) -> Callable[..., Stream[Any]]:
        call: Callable[..., Stream[Any]] = self._channel.unary_stream(
            SERVICE + name,
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
        return call


class Servers:
    """Every server this store has spoken to, by address. Certificates are read once."""

    def __init__(self, settings: OxiaSettings) -> None:
        self._settings = settings
        self._credentials = None if settings.tls is None else _credentials(settings.tls)
        self._servers: dict[str, Server] = {}
        for address in settings.addresses:
            self.at(address)

    @property
    def addresses(self) -> list[str]:
        return list(self._servers)

    def at(self, address: str) -> Server:
        server = self._servers.get(address)
        if server is None:
            server = self._servers[address] = Server(address, self._channel(address), self._settings.token)
        return server

    async def close(self) -> None:
        await asyncio.gather(*(server.close() for server in self._servers.values()))

    def _channel(self, address: str) -> aio.Channel:
        if self._credentials is None or self._settings.tls is None:
            return aio.insecure_channel(address, OPTIONS)
        name = self._settings.tls.server_name
        override = [] if name is None else [("grpc.ssl_target_name_override", name)]
        return aio.secure_channel(address, self._credentials, [*OPTIONS, *override])


def _credentials(tls: OxiaTls) -> grpc.ChannelCredentials:
    """An `OSError` names the file that cannot be read."""
    return grpc.ssl_channel_credentials(
        *(None if path is None else path.read_bytes() for path in (tls.authority, tls.key, tls.certificate))
    )
