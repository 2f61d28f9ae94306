"""A broker without sockets: the real dispatcher, topics and cluster on a memory store, and a log of lists."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tests.services import room_settings
from tests.simulation.scripted import ScriptedStore
from tests.unit.broker.topics.fakes import QUIET, FakeStreams, ImpatientRuntime

from dray.base.runtime import AnswerRoom, EndlessRoom
from dray.broker.api import ApiSettings, Dispatcher, Services
from dray.broker.cluster import AdvertisedListener, Broker, Membership, open_cluster
from dray.broker.groups.coordinator import Groups
from dray.broker.security.acls.authorization import Authorization
from dray.broker.security.acls.store import Acls
from dray.broker.security.audit import AuditedAct, AuditLog
from dray.broker.security.principals import ANONYMOUS
from dray.broker.security.quotas.store import Quotas
from dray.broker.security.quotas.throttle import Throttle
from dray.broker.security.users import Users
from dray.broker.settings import TopicsOptions
from dray.broker.topics import Topics
from dray.kafka.protocol import (
    ErrorCode,
    Request,
    RequestHeader,
    Response,
    encode_request_header,
    parse_response_header,
    response_class,
)
from dray.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from dray.kafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dray.kafka.records import Batch, Record, patch, twin
from dray.log.origins import Origin
from dray.log.types import (
    ActiveProducer,
    AppendResult,
    Bounds,
    LogError,
    OffsetOutOfRange,
    ReadRequest,
    ReadResult,
    StreamClosed,
    TimestampedOffset,
)
from dray.metadata.memory import MemoryState
from dray.migration.groups.gate import GroupGate

ResponseType = TypeVar("ResponseType", bound=Response)


@dataclass
class FakeStream:
    start: int = 0
    end: int = 0
    batches: list[tuple[int, bytes, int]] = field(default_factory=list)  # base offset, bytes, append time


class FakeLog(FakeStreams):
    """Streams that hold what is appended; `fail` makes the next calls about a stream fail."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[int, FakeStream] = {}
        self.fail: dict[int, LogError] = {}
        self.appended: list[tuple[int, int]] = []  # stream, base sequence: in the order of their arrival
        self.fetches: list[tuple[list[ReadRequest], int, int, int]] = []
        self.held: asyncio.Event | None = None  # a long poll waits for it
        self.producer_ids = 1000
        self.origins: dict[int, Origin] = {}

    def _stream(self, stream: int) -> FakeStream:
        if stream in self.fail:
            raise self.fail[stream]
        if stream not in self.open:
            raise StreamClosed(f"stream {stream}")
        return self.streams.setdefault(stream, FakeStream())

    def append(
        self, stream: int, batch: Batch, buffer: memoryview, append_time_ms: int = -1
    ) -> asyncio.Future[AppendResult]:
        future: asyncio.Future[AppendResult] = asyncio.get_running_loop().create_future()
        self.appended.append((stream, batch.base_sequence))
        try:
            into = self._stream(stream)
        except LogError as error:
            future.set_exception(error)
            return future
        view = buffer[batch.position : batch.position + batch.length]
        patch(view, 0, into.end, 0)
        into.batches.append((into.end, bytes(view), append_time_ms))
        future.set_result(AppendResult(into.end, append_time_ms, into.start))
        into.end += batch.record_count
        return future

    async def bounds(self, stream: int) -> Bounds:
        found = self._stream(stream)
        return Bounds(found.start, found.end)

    def origin(self, stream: int) -> Origin | None:
        return self.origins.get(stream)

    async def end_of_epoch(self, stream: int, epoch: int, end: int) -> int:
        return end

    async def fetch(
        self,
        requests: Sequence[ReadRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: AnswerRoom | None = None,
    ) -> list[ReadResult]:
        assert room is not None, "every fetch of a client is counted"
        self.fetches.append((list(requests), min_bytes, max_bytes, max_wait_ms))
        if max_wait_ms and self.held is not None:
            await self.held.wait()
        return [self._read(request) for request in requests]

    def _read(self, request: ReadRequest) -> ReadResult:
        try:
            found = self._stream(request.stream)
            if not found.start <= request.offset <= found.end:
                raise OffsetOutOfRange(request.offset, found.start, found.end)
        except LogError as error:
            return ReadResult(error=error)
        buffers = [content for base, content, _ in found.batches if base >= request.offset]
        return ReadResult(buffers, sum(map(len, buffers)), found.end, found.start)

    async def find_timestamp(self, stream: int, timestamp: int) -> TimestampedOffset | None:
        self._stream(stream)
        return TimestampedOffset(7, timestamp + 1) if timestamp < 5000 else None

    async def find_max_timestamp(self, stream: int) -> TimestampedOffset | None:
        return TimestampedOffset(3, 4242) if self._stream(stream).end else None

    async def delete_records(self, stream: int, before: int) -> int:
        found = self._stream(stream)
        if before == -1:
            before = found.end
        if before > found.end or before < 0:
            raise OffsetOutOfRange(before, found.start, found.end)
        found.start = max(found.start, before)
        return found.start

    async def allocate_producer_id(self) -> int:
        if -1 in self.fail:
            raise self.fail[-1]
        self.producer_ids += 1
        return self.producer_ids

    async def size(self, stream: int) -> int:
        return sum(len(content) for _, content, _ in self._stream(stream).batches)

    async def producers(self, stream: int) -> list[ActiveProducer]:
        self._stream(stream)
        return [ActiveProducer(1001, 2, 30, 4000)]


class FakeConnection:
    def __init__(self, listener: str = "PLAINTEXT", principal: str | None = None) -> None:
        self.peer = "127.0.0.1:40000"
        self.listener = listener
        self.ending = False
        self.state: dict[str, Any] = {}
        self.callbacks: list[Callable[[], None]] = []
        self.principal: Any = principal
        self.welcomed = 0
        self.throttled: list[float] = []
        self.room = EndlessRoom

    async def turn(self) -> None:
        """No other request is ahead of it."""

    def welcome(self) -> None:
        self.welcomed += 1

    def throttle(self, seconds: float) -> None:
        self.throttled.append(seconds)

    def when_ending(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        if callback in self.callbacks:
            self.callbacks.remove(callback)

    def end(self) -> None:
        self.ending = True
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


def frame(
    request: Request[Any], version: int, correlation_id: int = 77, client_id: str = "test"
) -> memoryview:
    header = RequestHeader(request.API_KEY, version, correlation_id, client_id)
    return memoryview(bytearray(encode_request_header(header) + b"".join(request.encode(version))))


class Harness:
    """One broker. Others over the same `state` and `log` are its cluster."""

    def __init__(
        self, state: MemoryState, log: FakeLog, runtime: ImpatientRuntime, settings: ApiSettings
    ) -> None:
        self.state = state
        self.log = log
        self.runtime = runtime
        self.settings = settings
        self.group_settings = room_settings.groups(initial_rebalance_delay=0.0, session_ttl=3600.0)
        self.store = ScriptedStore(runtime, state)
        self.connection = FakeConnection()
        self.observed: list[tuple[int, str]] = []
        self.acls: Acls | None = None
        self.super_users: Sequence[str] = [ANONYMOUS]
        self.allow_if_no_acl = False
        self.audited: list[AuditedAct] = []

    async def start(self, broker_id: int, options: TopicsOptions, zone: str | None = None) -> None:
        cluster = await open_cluster(self.store, self.runtime, 4)
        self.topics = Topics(self.store, self.runtime, self.log, options)
        listeners = (
            AdvertisedListener("PLAINTEXT", "127.0.0.1", 9092 + broker_id),
            AdvertisedListener("OUTSIDE", "broker.example", 9192 + broker_id),
        )
        self.membership = Membership(
            self.store,
            self.runtime,
            Broker(broker_id, listeners, zone=zone, rack=f"rack-{broker_id}"),
            session_ttl=3600,
            reread_interval=3600,
        )
        await self.membership.start()
        self.groups = Groups(
            self.store,
            self.runtime,
            self.topics,
            self.membership,
            cluster.domains,
            self.group_settings,
            admission=GroupGate(self.store, self.runtime, cluster.domains),
        )
        self.users = Users(self.store, self.runtime)  # it follows nobody: tests count what sleeps
        self.quotas = Quotas(self.store, self.runtime)
        if self.acls is not None:
            await self.acls.start()
        authorization = None
        if self.acls is not None:
            authorization = Authorization(
                self.acls,
                self.runtime,
                self.super_users,
                allow_if_no_acl=self.allow_if_no_acl,
                audit=AuditLog(self.runtime.monotonic, lambda act, _times, _left: self.audited.append(act)),
            )
        self.services = Services(
            self.log,
            self.topics,
            self.membership,
            cluster,
            self.runtime,
            self.settings,
            groups=self.groups,
            users=self.users,
            quotas=self.quotas,
            throttle=Throttle(self.quotas.table),
            authorization=authorization,
        )
        self.dispatcher = Dispatcher(self.services, observer=self._observe)

    def _observe(self, api_key: int, seconds: float, outcome: str) -> None:
        assert seconds >= 0
        self.observed.append((api_key, outcome))

    async def stop(self) -> None:
        if self.acls is not None:
            await self.acls.stop()
        await self.groups.stop()
        await self.membership.stop()

    async def ask(
        self,
        request: Request[ResponseType],
        version: int,
        connection: FakeConnection | None = None,
        client_id: str = "test",
    ) -> ResponseType:
        """The decoded answer: every byte there and back."""
        asked = frame(request, version, client_id=client_id)
        buffers = await self.dispatcher.dispatch(asked, connection or self.connection)
        assert buffers is not None, "no answer"
        return self.decode(request, version, buffers)

    def decode(self, request: Request[ResponseType], version: int, buffers: Sequence[Any]) -> ResponseType:
        answer = memoryview(b"".join(bytes(buffer) for buffer in buffers))
        correlation_id, position = parse_response_header(answer, request.API_KEY, version)
        assert correlation_id == 77
        response, end = response_class(request.API_KEY).decode(answer, position, version)
        assert end == len(answer)
        return response  # type: ignore[return-value]


@asynccontextmanager
async def running(
    settings: ApiSettings | None = None,
    *,
    beside: Harness | None = None,
    broker_id: int = 0,
    options: TopicsOptions = QUIET,
    zone: str | None = None,
    authorizes: bool = False,
    allow_if_no_acl: bool = False,
) -> AsyncIterator[Harness]:
    """A broker, alone or `beside` another. Where it `authorizes`, ANONYMOUS is a super user."""
    runtime = beside.runtime if beside else ImpatientRuntime(threads=2)
    harness = Harness(
        beside.state if beside else MemoryState(),
        beside.log if beside else FakeLog(),
        runtime,
        settings or room_settings.api(),
    )
    if authorizes:
        harness.acls = Acls(harness.store, runtime)
        harness.allow_if_no_acl = allow_if_no_acl
    await harness.start(broker_id, options, zone)
    yield harness
    await harness.stop()


def batch(
    *values: bytes, timestamps: Sequence[int] | None = None, now_ms: int = 1_700_000_000_000, **fields: Any
) -> bytes:
    """One record batch as a producer would send it."""
    times = timestamps or [now_ms] * len(values)
    records = [
        Record(offset, time, None, value)
        for offset, (value, time) in enumerate(zip(values, times, strict=True))
    ]
    return bytes(twin.encode(records, **fields))


def sees_brokers(broker: Harness, count: int) -> bool:
    return len(broker.membership.brokers()) == count


METADATA = b"\0\0\0\0\0\1\0\1t\0\0\0\0"


def join(member_id: str = "", **fields: Any) -> JoinGroupRequest:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("range", METADATA)],
    )
    for name, value in fields.items():
        setattr(request, name, value)
    return request


async def joined(broker: Harness, version: int, **fields: Any) -> JoinGroupResponse:
    """Joined, in the two steps that newer versions need."""
    answer = await broker.ask(join(**fields), version)
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await broker.ask(join(answer.member_id, **fields), version)
    assert answer.error_code == 0, answer
    return answer


async def stable(broker: Harness, group_id: str = "g") -> JoinGroupResponse:
    answer = await joined(broker, 9, group_id=group_id)
    await broker.ask(
        SyncGroupRequest(
            group_id,
            answer.generation_id,
            answer.member_id,
            None,
            "consumer",
            "range",
            [SyncGroupRequestAssignment(answer.member_id, b"mine")],
        ),
        5,
    )
    return answer


def beat(member_id: str = "m", epoch: int = 0, **fields: object) -> ConsumerGroupHeartbeatRequest:
    request = ConsumerGroupHeartbeatRequest("g", member_id, epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 30_000
        request.subscribed_topic_names = ["t"]
        request.topic_partitions = []
    for name, value in fields.items():
        setattr(request, name, value)
    return request
