"""One etcd server: its channel, and the calls that Dray makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, Final, Protocol, TypeVar

import grpc
from google.protobuf.message import Message
from grpc import aio

from dray.metadata.etcd.settings import EtcdSettings
from dray.metadata.etcd.wire import etcd_pb2 as wire

Answer_co = TypeVar("Answer_co", bound=Message, covariant=True)
Answer = TypeVar("Answer", bound=Message)

OPTIONS: Final[list[tuple[str, Any]]] = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A write is sent once. What became of it is for us to find out.
    ("grpc.enable_retries", 0),
    # A connection that died in silence is noticed; etcd allows a ping every 5 seconds.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.initial_reconnect_backoff_ms", 50),
    # The name deceives: so long may a connection take to come up.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Stores do not share connections: closing one leaves the others alone.
    ("grpc.use_local_subchannel_pool", 1),
    # Metadata servers are asked directly, whatever proxy the environment names.
    ("grpc.enable_http_proxy", 0),
]


class Call(Protocol[Answer_co]):
    """A unary call: one message there, one back."""

    def __call__(
        self, request: Message, *, timeout: float, metadata: list[tuple[str, str]]
    ) -> Awaitable[Answer_co]: ...


class EtcdServer:
    def __init__(self, address: str, settings: EtcdSettings) -> None:
        self.address = address
        self._settings = settings
        options = list(OPTIONS)
        if not settings.tls:
            self._channel = aio.insecure_channel(address, options=options)
        else:
            options += settings.tls_options()
            self._channel = aio.secure_channel(address, settings.credentials(), options=options)
        self.range = self._unary("KV/Range", wire.RangeResponse)
        self.transaction = self._unary("KV/Txn", wire.TxnResponse)
        self.grant = self._unary("Lease/LeaseGrant", wire.LeaseGrantResponse)
        self.revoke = self._unary("Lease/LeaseRevoke", wire.LeaseRevokeResponse)
        self.authenticate = self._unary("Auth/Authenticate", wire.AuthenticateResponse)
        self.status = self._unary("Maintenance/Status", wire.StatusResponse)
        self._keep_alive = self._streaming("Lease/LeaseKeepAlive", wire.LeaseKeepAliveResponse)
        self._watch = self._streaming("Watch/Watch", wire.WatchResponse)

    async def reachable(self) -> bool:
        """Whether there is a connection, after an attempt to make one: only then is anything sent."""
        try:
            async with asyncio.timeout(self._settings.connect_timeout):
                while True:
                    state = self._channel.get_state(try_to_connect=True)
                    if state == grpc.ChannelConnectivity.READY:
                        return True
                    if state in (
                        grpc.ChannelConnectivity.TRANSIENT_FAILURE,
                        grpc.ChannelConnectivity.SHUTDOWN,
                    ):
                        return False
                    await self._channel.wait_for_state_change(state)
        except TimeoutError:
            return False

    async def keep_alive(
        self, lease: int, timeout: float, metadata: list[tuple[str, str]]
    ) -> wire.LeaseKeepAliveResponse:
        """One keep-alive and its answer, on a stream of their own."""
        request = wire.LeaseKeepAliveRequest(ID=lease)
        stream = self._keep_alive(timeout=timeout, metadata=metadata)
        try:
            await stream.write(request)
            await stream.done_writing()
            answer: wire.LeaseKeepAliveResponse = await stream.read()
            return answer
        finally:
            stream.cancel()

    async def watch(
        self, start: bytes, end: bytes, metadata: list[tuple[str, str]]
    ) -> AsyncGenerator[wire.WatchResponse, None]:
        """The changes of the keys from now on; the first item says that the watch is in place."""
        stream = self._watch(metadata=metadata)
        try:
            create = wire.WatchCreateRequest(key=start, range_end=end)
            await stream.write(wire.WatchRequest(create_request=create))
            async for response in stream:
                yield response
        finally:
            stream.cancel()

    async def close(self, grace: float) -> None:
        await self._channel.close(grace)

    def _unary(self, name: str, answer: type[Answer]) -> Call[Answer]:
        call: Call[Answer] = self._channel.unary_unary(
            f"/etcdserverpb.{name}",
            request_serializer=_serialized,
            response_deserializer=answer.FromString,
        )
        return call

    def _streaming(self, name: str, answer: type[Message]) -> Any:
        return self._channel.stream_stream(
            f"/etcdserverpb.{name}",
            request_serializer=_serialized,
            response_deserializer=answer.FromString,
        )


def _serialized(message: Message) -> bytes:
    data: bytes = message.SerializeToString()
    return data
