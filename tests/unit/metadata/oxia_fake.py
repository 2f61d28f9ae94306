"""Oxia servers that follow a script, in this process: for what a real one does only on a bad day."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
from grpc import aio

from dray.metadata.oxia.keys import BARRIER_KEY
from dray.metadata.oxia.server import SERVICES
from dray.metadata.oxia.wire import client_pb2 as wire
from dray.metadata.oxia.wire import errors_pb2 as errors

NAMESPACE = "default"


def error_details(reason: str, leader: str = "") -> bytes:
    metadata = {"shard": "0", "leader": leader} if leader else {}
    info = errors.ErrorInfo(reason=reason, domain="oxia.io", metadata=metadata)
    detail = errors.Detail(
        type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString()
    )
    status = errors.ErrorStatus(code=10, message=reason, details=[detail])
    data: bytes = status.SerializeToString()
    return data


class FakeShard:
    """The records that a majority agreed on, in byte order, and the last version id."""

    def __init__(self) -> None:
        self.records: dict[str, wire.GetResponse] = {}
        self.last_version = -1

    def apply(self, request: wire.WriteRequest) -> wire.WriteResponse:
        """As Oxia does: the puts, then the deletes, then the ranges."""
        response = wire.WriteResponse()
        for put in request.puts:
            if not self._expected(put):
                response.puts.add(status=wire.UNEXPECTED_VERSION_ID)
                continue
            self.last_version += 1
            version = wire.Version(version_id=self.last_version)
            self.records[put.key] = wire.GetResponse(key=put.key, value=put.value, version=version)
            response.puts.add(version=version)
        for delete in request.deletes:
            if not self._expected(delete):
                response.deletes.add(status=wire.UNEXPECTED_VERSION_ID)
            elif self.records.pop(delete.key, None) is None:
                response.deletes.add(status=wire.KEY_NOT_FOUND)
            else:
                response.deletes.add()
        for deleted in request.delete_ranges:
            for key in [
                key for key in self.records if deleted.start_inclusive <= key < deleted.end_exclusive
            ]:
                del self.records[key]
            response.delete_ranges.add()
        return response

    def _expected(self, operation: wire.PutRequest | wire.DeleteRequest) -> bool:
        if not operation.HasField("expected_version_id"):
            return True
        record = self.records.get(operation.key)
        found = -1 if record is None else record.version.version_id
        return bool(found == operation.expected_version_id)


class FakeServer:
    """Leads the only shard, in its own eyes, while `leads`; `believes` is whom it names as the leader."""

    def __init__(self, shard: FakeShard, *services: str) -> None:
        self.shard = shard
        self.services = services or SERVICES[:1]
        self.assignments = asyncio.Queue[str]()
        self.leads = True
        self.believes = ""
        self.address = ""
        self.writes: list[wire.WriteRequest] = []
        self.metadata: list[tuple[str, str]] = []
        self.barriers = 0
        self.reads = 0
        self.before_write: Callable[[aio.ServicerContext], Any] | None = None
        self.after_write: Callable[[aio.ServicerContext], Any] | None = None
        self.before_read: Callable[[], Any] | None = None
        self.beats = asyncio.Queue[int]()
        self.frozen_view: dict[str, wire.GetResponse] | None = None
        self._assigned = asyncio.Event()
        self._server = aio.server()

    async def start(self, credentials: grpc.ServerCredentials | None = None, port: int = 0) -> None:
        unary, stream = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        handlers = {
            "Write": unary(self._write, wire.WriteRequest.FromString, wire.WriteResponse.SerializeToString),
            "Read": stream(self._read, wire.ReadRequest.FromString, wire.ReadResponse.SerializeToString),
            "RangeScan": stream(
                self._scan, wire.RangeScanRequest.FromString, wire.RangeScanResponse.SerializeToString
            ),
            "GetShardAssignments": stream(
                self._assignments,
                wire.ShardAssignmentsRequest.FromString,
                wire.ShardAssignments.SerializeToString,
            ),
            "GetNotifications": stream(
                self._notifications,
                wire.NotificationsRequest.FromString,
                wire.NotificationBatch.SerializeToString,
            ),
        }
        handlers |= {
            "CreateSession": unary(
                self._create_session,
                wire.CreateSessionRequest.FromString,
                wire.CreateSessionResponse.SerializeToString,
            ),
            "KeepAlive": unary(
                self._keep_alive, wire.SessionHeartbeat.FromString, wire.KeepAliveResponse.SerializeToString
            ),
            "CloseSession": unary(
                self._close_session,
                wire.CloseSessionRequest.FromString,
                wire.CloseSessionResponse.SerializeToString,
            ),
        }
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(service, handlers) for service in self.services]
        )
        if credentials is None:
            port = self._server.add_insecure_port(f"127.0.0.1:{port}")
        else:
            port = self._server.add_secure_port(f"127.0.0.1:{port}", credentials)
        self.address = f"127.0.0.1:{port}"
        self.believes = self.believes or self.address
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(None)

    def assign(self, leader: str) -> None:
        """Tells everybody who asked that another server leads."""
        self.believes = leader
        self._assigned.set()
        self._assigned = asyncio.Event()

    def depose(self) -> None:
        """It serves what it knows, and no write of its gets a majority."""
        self.frozen_view = dict(self.shard.records)

        async def never(context: aio.ServicerContext) -> None:
            await asyncio.Event().wait()

        self.before_write = never

    async def _write(self, request: wire.WriteRequest, context: aio.ServicerContext) -> wire.WriteResponse:
        self.metadata += context.invocation_metadata()
        if self.before_write is not None:
            await self.before_write(context)
        await self._refuse_unless_leading(context)
        if any(delete.key == BARRIER_KEY for delete in request.deletes):
            self.barriers += 1
        else:
            self.writes.append(request)
        response = self.shard.apply(request)
        if self.after_write is not None:
            await self.after_write(context)
        return response

    async def _read(
        self, request: wire.ReadRequest, context: aio.ServicerContext
    ) -> AsyncIterator[wire.ReadResponse]:
        await self._refuse_unless_leading(context)
        self.reads += 1
        view = dict(self.shard.records if self.frozen_view is None else self.frozen_view)
        if self.before_read is not None:
            await self.before_read()
        response = wire.ReadResponse()
        for get in request.gets:
            if get.comparison_type == wire.CEILING:
                key = min((key for key in view if key >= get.key), default="")
            else:
                key = get.key
            found = view.get(key)
            response.gets.append(wire.GetResponse(status=wire.KEY_NOT_FOUND) if found is None else found)
        yield response

    async def _scan(
        self, request: wire.RangeScanRequest, context: aio.ServicerContext
    ) -> AsyncIterator[wire.RangeScanResponse]:
        await self._refuse_unless_leading(context)
        for key in sorted(self.shard.records):
            if request.start_inclusive <= key < request.end_exclusive:
                yield wire.RangeScanResponse(records=[self.shard.records[key]])

    async def _assignments(
        self, request: wire.ShardAssignmentsRequest, context: aio.ServicerContext
    ) -> AsyncIterator[wire.ShardAssignments]:
        self.assignments.put_nowait(request.namespace)
        while True:
            assigned = self._assigned
            bounds = wire.Int32HashRange(min_hash_inclusive=0, max_hash_inclusive=0xFFFFFFFF)
            shard = wire.ShardAssignment(shard=0, leader=self.believes, int32_hash_range=bounds)
            namespace = wire.NamespaceShardsAssignment(assignments=[shard], shard_key_router=wire.XXHASH3)
            yield wire.ShardAssignments(namespaces={NAMESPACE: namespace})
            await assigned.wait()

    async def _notifications(
        self, request: wire.NotificationsRequest, context: aio.ServicerContext
    ) -> AsyncIterator[wire.NotificationBatch]:
        await self._refuse_unless_leading(context)
        yield wire.NotificationBatch(shard=0, offset=0)
        await asyncio.Event().wait()

    async def _create_session(
        self, request: wire.CreateSessionRequest, context: aio.ServicerContext
    ) -> wire.CreateSessionResponse:
        return wire.CreateSessionResponse(session_id=7)

    async def _keep_alive(
        self, request: wire.SessionHeartbeat, context: aio.ServicerContext
    ) -> wire.KeepAliveResponse:
        self.beats.put_nowait(request.session_id)
        return wire.KeepAliveResponse()

    async def _close_session(
        self, request: wire.CloseSessionRequest, context: aio.ServicerContext
    ) -> wire.CloseSessionResponse:
        return wire.CloseSessionResponse()

    async def _refuse_unless_leading(self, context: aio.ServicerContext) -> None:
        if not self.leads:
            hint = self.believes if self.believes != self.address else ""
            details = error_details("NODE_IS_NOT_LEADER", hint)
            await context.abort(
                grpc.StatusCode.ABORTED,
                "oxia: node is not leader",
                (("grpc-status-details-bin", details),),
            )
