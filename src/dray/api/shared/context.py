"""What a handler is given: the services it may ask, and who is asking."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import structlog

from dray.api.shared.checks import Check
from dray.api.shared.linked_topics import Forwarder, LinkedTopics
from dray.cluster import ClusterInfo, Membership
from dray.groups.coordinator import Groups
from dray.log.origins import Origin
from dray.log.types import (
    ActiveProducer,
    AppendResult,
    Bounds,
    ReadRequest,
    ReadResult,
    TimestampedOffset,
)
from dray.protocol import ApiKey, RequestHeader
from dray.records import Batch
from dray.runtime import Allowance, AnswerRoom, Runtime, Turns
from dray.security.acls.authorization import Access, Authorization
from dray.security.acls.model import CLUSTER_NAME, SUPPORTED, AclResourceType
from dray.security.acls.store import Acls
from dray.security.quotas.store import Quotas
from dray.security.quotas.throttle import Throttle
from dray.security.users import Users
from dray.telemetry import TopicTraffic, uncounted_traffic
from dray.topics import Topics

T = TypeVar("T")

WORK_PER_TURN = 8 << 20
"""Bytes of records judged on the event loop within one turn of it: ten milliseconds or so."""

_EVERYTHING = {kind: sum(1 << one for one in operations) for kind, operations in SUPPORTED.items()}

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class LogService(Protocol):
    """What the handlers need of the log; `dray.log.Log` is one."""

    def append(
        self, stream: int, batch: Batch, buffer: memoryview, append_time_ms: int = -1
    ) -> asyncio.Future[AppendResult]: ...

    async def bounds(self, stream: int) -> Bounds: ...

    def origin(self, stream: int) -> Origin | None: ...

    async def fetch(
        self,
        requests: Sequence[ReadRequest],
        *,
        min_bytes: int,
        max_bytes: int,
        max_wait_ms: int,
        room: AnswerRoom | None = None,
    ) -> list[ReadResult]: ...

    async def find_timestamp(self, stream: int, timestamp: int) -> TimestampedOffset | None: ...

    async def find_max_timestamp(self, stream: int) -> TimestampedOffset | None: ...

    async def delete_records(self, stream: int, before: int) -> int: ...

    async def allocate_producer_id(self) -> int: ...

    async def size(self, stream: int) -> int: ...

    async def producers(self, stream: int) -> list[ActiveProducer]: ...


class ClientConnection(Protocol):
    """What the handlers need of a connection; the server's is one."""

    peer: str
    listener: str
    ending: bool
    state: dict[str, Any]
    principal: Any
    """Who the client is, as `User:name`; None where the listener does not ask."""

    def when_ending(self, callback: Callable[[], None]) -> None: ...

    def forget(self, callback: Callable[[], None]) -> None: ...

    @property
    def turn(self) -> Callable[[], Awaitable[None]]:
        """Await it to wait until the requests before this one are answered, and the answers taken."""

    @property
    def welcome(self) -> Callable[[], None]:
        """Called once the client has said who it is."""

    @property
    def throttle(self) -> Callable[[float], None]:
        """Called with seconds: the answer leaves at once, and the next request is not read for so long."""

    @property
    def room(self) -> Callable[[], AnswerRoom]:
        """What the answer to the request at hand may take of the memory for answers."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A cluster feature that clients may ask about in ApiVersions."""

    name: str
    min_version: int
    max_version: int
    finalized: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    auto_create_topics: bool
    max_decompressed_bytes: int  # of one batch
    max_request_decompressed_bytes: int  # of all batches of one produce request
    fetch_max_bytes: int  # Kafka's fetch.max.bytes
    describe_partition_limit: int = 2000  # Kafka's max.request.partition.size.limit
    enforce_owner: bool  # refuse produce and fetch at brokers without affinity
    strict_zones: bool  # name no broker of another zone to a client that names its own
    log_dir: str  # where records are, as DescribeLogDirs names it: nothing secret
    broker_configs: Mapping[str, str] = field(default_factory=dict)  # shown by DescribeConfigs
    features: Sequence[Feature] = ()


@dataclass(frozen=True, slots=True)
class Services:
    log: LogService
    topics: Topics
    membership: Membership
    cluster: ClusterInfo
    runtime: Runtime
    settings: ApiSettings
    groups: Groups = field(kw_only=True)
    users: Users = field(kw_only=True)
    quotas: Quotas = field(kw_only=True)
    throttle: Throttle = field(kw_only=True)
    throttled: Callable[[float], None] = lambda _seconds: None  # told of every client that has to wait
    authorization: Authorization | None = None  # None: every client may do everything
    turns: Turns = field(default_factory=lambda: Turns(WORK_PER_TURN))
    unfolding: Allowance = field(default_factory=lambda: Allowance(256 << 20))
    traffic: TopicTraffic = field(default_factory=uncounted_traffic)
    forwarder: Forwarder | None = None  # None where no source is configured
    linked: LinkedTopics | None = None

    @property
    def acls(self) -> Acls | None:
        return None if self.authorization is None else self.authorization.acls


@dataclass(frozen=True, slots=True)
class VersionRange:
    """What ApiVersions says of one API."""

    api_key: int
    first: int
    last: int


class Context:
    """One request on its way through a handler."""

    __slots__ = ("access", "advertised", "connection", "header", "services", "wait_ms")

    def __init__(
        self,
        services: Services,
        advertised: Sequence[VersionRange],
        header: RequestHeader,
        connection: ClientConnection,
        access: Access | None = None,
    ) -> None:
        self.services = services
        self.advertised = advertised
        self.header = header
        self.connection = connection
        self.access = access
        """None where clients are not authorized."""
        self.wait_ms = 0
        """How long the client has to wait because of what the handler did (a quota of mutations)."""

    @property
    def version(self) -> int:
        return self.header.api_version

    def may(self, check: Check, name: str = CLUSTER_NAME, *, about: str = "") -> bool:
        """Whether the client may do that to the resource of this name. A denial is noted: it is for what is
        refused then. `about`: what a right to the cluster is asked for, for the audit log."""
        access = self.access
        return access is None or access.may(check.operation, check.resource, name, about=about)

    def sees(self, check: Check, name: str = CLUSTER_NAME, *, about: str = "") -> bool:
        """As `may`, where a denial refuses nothing: lists that leave out, checks that others stand in for."""
        access = self.access
        return access is None or access.may(
            check.operation, check.resource, name, denial_is_noted=False, about=about
        )

    def may_change(self, check: Check, changes: Iterable[str]) -> bool:
        """Whether the client may do that to the cluster, for changes of which each has a line in the audit
        log."""
        if self.access is None:
            return True
        answers = [self.may(check, about=change) for change in changes]
        return all(answers) if answers else self.may(check)

    def may_on_some(self, check: Check) -> bool:
        """Whether the client may do that to any resource of this kind at all."""
        return self.access is None or self.access.may_on_some(check.operation, check.resource)

    def operations(self, kind: AclResourceType, name: str = CLUSTER_NAME) -> int:
        """What the client may do to a resource, as the bits that answers have."""
        if self.access is None:
            return _EVERYTHING[kind]
        return self.access.operations(kind, name)

    @staticmethod
    def logger() -> structlog.stdlib.BoundLogger:
        """A logger whose lines name the request: the dispatcher bound it."""
        return _log

    async def within(self, timeout_ms: int, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, or `TimeoutError` after the client's timeout. The work goes on even then,
        so that an administrator's request is not left half done. With a timeout of 0 or less, this waits to
        the end."""
        left = False

        async def settle() -> T | Exception:
            """An error goes to the client. Only if the client no longer waits does the task itself fail."""
            try:
                return await work
            except Exception as error:
                if left:
                    raise
                return error

        task = self.services.runtime.spawn(settle(), ApiKey(self.header.api_key).name)
        done, _ = await asyncio.wait([task], timeout=timeout_ms / 1000 if timeout_ms > 0 else None)
        if not done:
            left = True
            raise TimeoutError
        outcome = task.result()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


async def unless_ending(connection: ClientConnection, waiting: Awaitable[T]) -> T | None:
    """The result of `waiting`, or None as soon as the connection is ending: a long poll has no use then."""
    task = asyncio.current_task()
    assert task is not None
    ended = False

    def end() -> None:
        nonlocal ended
        ended = True
        task.cancel()

    connection.when_ending(end)
    try:
        return await waiting
    except asyncio.CancelledError:
        if ended and task.uncancel() == 0:
            return None
        raise
    finally:
        connection.forget(end)
