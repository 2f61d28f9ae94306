"""A gRPC server that answers as a test tells it to: for what a real etcd does only by bad luck."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import Message
from grpc import aio

from dray.metadata.etcd.wire import etcd_pb2 as wire

Answer: TypeAlias = Message | tuple[grpc.StatusCode, str]


def put_at(revision: int) -> wire.TxnResponse:
    """The answer to a write of one unconditional put."""
    done = wire.ResponseOp(response_put=wire.PutResponse())
    header = wire.ResponseHeader(revision=revision, raft_term=3)
    return wire.TxnResponse(header=header, succeeded=True, responses=[done])


class FakeEtcd:
    """Each method answers with what is queued for it, else with its default."""

    def __init__(self) -> None:
        header = wire.ResponseHeader(revision=10, raft_term=3)
        self.defaults: dict[str, Message] = {
            "Range": wire.RangeResponse(header=header),
            "Txn": put_at(10),
            "LeaseGrant": wire.LeaseGrantResponse(header=header, ID=7, TTL=60),
            "LeaseRevoke": wire.LeaseRevokeResponse(header=header),
            "LeaseKeepAlive": wire.LeaseKeepAliveResponse(header=header, TTL=60),
            "Authenticate": wire.AuthenticateResponse(token="fresh"),
            "Status": wire.StatusResponse(version="3.6.0"),
        }
        self.queued: dict[str, deque[Answer]] = {name: deque() for name in self.defaults}
        self.asked: list[tuple[str, Any, dict[str, str]]] = []
        self.port = 0
        self._server = aio.server()

    def count(self, name: str) -> int:
        return sum(asked == name for asked, _, _ in self.asked)

    async def __aenter__(self) -> FakeEtcd:
        services: dict[str, dict[str, Any]] = {
            "KV": {"Range": wire.RangeRequest, "Txn": wire.TxnRequest},
            "Lease": {"LeaseGrant": wire.LeaseGrantRequest, "LeaseRevoke": wire.LeaseRevokeRequest},
            "Auth": {"Authenticate": wire.AuthenticateRequest},
            "Maintenance": {"Status": wire.StatusRequest},
        }
        for service, methods in services.items():
            handlers: dict[str, grpc.RpcMethodHandler] = {
                name: grpc.unary_unary_rpc_method_handler(
                    self._unary(name),
                    request_deserializer=request.FromString,
                    response_serializer=lambda answer: answer.SerializeToString(),
                )
                for name, request in methods.items()
            }
            if service == "Lease":
                handlers["LeaseKeepAlive"] = grpc.stream_stream_rpc_method_handler(
                    self._keep_alive,
                    request_deserializer=wire.LeaseKeepAliveRequest.FromString,
                    response_serializer=lambda answer: answer.SerializeToString(),
                )
            handler = grpc.method_handlers_generic_handler(f"etcdserverpb.{service}", handlers)
            self._server.add_generic_rpc_handlers((handler,))
        self.port = self._server.add_insecure_port("127.0.0.1:0")
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def _unary(self, name: str) -> Callable[[Message, Any], Awaitable[Message]]:
        async def answer(request: Message, context: Any) -> Message:
            return await self._answer(name, request, context)

        return answer

    async def _keep_alive(self, requests: AsyncIterator[Message], context: Any) -> AsyncIterator[Message]:
        async for request in requests:
            yield await self._answer("LeaseKeepAlive", request, context)

    async def _answer(self, name: str, request: Message, context: Any) -> Message:
        self.asked.append((name, request, dict(context.invocation_metadata())))
        queue = self.queued[name]
        answer = queue.popleft() if queue else self.defaults[name]
        if isinstance(answer, tuple):
            await context.abort(*answer)
            raise AssertionError("abort raises")
        return answer
