"""The context of a handler: the services it may ask, who is asking, and requests that wait for long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeVar

import structlog

from dray.base.runtime import Allowance, AnswerRoom, FairWork, Runtime, Turns, cut
from dray.base.telemetry import AnsweredErrors, TopicTraffic, uncounted_errors, uncounted_traffic
from dray.broker.api.shared.checks import READ_GROUP, Check
from dray.broker.api.shared.fetch_sessions import FetchSessions, OpenedFetch
from dray.broker.api.shared.large_answers import AT_ONCE, LargeAnswer, weigh
from dray.broker.api.shared.other_owner import LinkedTopics, OtherOwner
from dray.broker.cluster import ClusterInfo, Membership, zone_of_address, zone_of_client
from dray.broker.groups.coordinator import Groups, GroupUnavailable, NotCoordinator
from dray.broker.groups.coordinator.machines import Event
from dray.broker.security.acls.authorization import Access, Authorization
from dray.broker.security.acls.store import Acls
from dray.broker.security.quotas.store import Quotas
from dray.broker.security.quotas.throttle import Throttle
from dray.broker.security.users import Users
from dray.broker.settings import LimitSettings, RoutingSettings
from dray.broker.topics import Topics
from dray.kafka.acls import CLUSTER_NAME, SUPPORTED, AclResourceType
from dray.kafka.protocol import SCHEMAS, ApiKey, ErrorCode, RequestHeader, Response
from dray.kafka.records import Batch
from dray.log.origins import Origin
from dray.log.types import (
    ActiveProducer,
    AppendResult,
    Bounds,
    ReadRequest,
    ReadResult,
    TimestampedOffset,
    unreadable_in,
)

T = TypeVar("T")

WORK_PER_TURN = 8 << 20
"""Bytes of records judged on the event loop within one turn of it: ten milliseconds or so."""

PIECES_PER_TURN = 512
"""Of requests that are made of many, and of large answers: ten milliseconds."""

_ZONE = "zone of its address"

_EVERYTHING = {kind: sum(1 << one for one in operations) for kind, operations in SUPPORTED.items()}

_log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


class LogService(Protocol):
    """The part of the log that handlers need; `dray.log.Log` is one."""

    def append(
        self, stream: int, batch: Batch, buffer: memoryview, append_time_ms: int = -1
    ) -> asyncio.Future[AppendResult]: ...

    async def bounds(self, stream: int) -> Bounds: ...

    def origin(self, stream: int) -> Origin | None: ...

    async def end_of_epoch(self, stream: int, epoch: int, end: int) -> int: ...

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
    """The part of a connection that handlers need; the server's connection has it."""

    peer: str
    listener: str
    ending: bool
    state: dict[str, Any]
    principal: Any
    """The client's principal, as `User:name`; None if the listener does not ask."""

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
        """The share of the memory for answers that the answer to the request at hand may take."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A cluster feature that clients may ask about in ApiVersions."""

    name: str
    min_version: int
    max_version: int
    finalized: int


@dataclass(frozen=True, kw_only=True)
class ApiSettings(LimitSettings, RoutingSettings):
    describe_partition_limit: int = 2000  # Kafka's max.request.partition.size.limit
    log_dir: str  # where records are, as DescribeLogDirs names it: nothing secret
    broker_configs: Mapping[str, str] = field(default_factory=dict)  # shown by DescribeConfigs
    features: Sequence[Feature] = ()
    listener_zones: Mapping[str, str] = field(default_factory=dict)


class LongPolls:
    """How many partitions are named by the fetches that wait, of those that name many. They stay in memory as
    long as a client likes: half a kilobyte each."""

    MOST: Final = 500_000

    def __init__(self) -> None:
        self._named = 0

    def have_room(self, named: int) -> bool:
        return self._named + named <= self.MOST

    @contextmanager
    def waiting(self, named: int) -> Iterator[None]:
        self._named += named
        try:
            yield
        finally:
            self._named -= named


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
    work: FairWork = field(default_factory=lambda: FairWork(PIECES_PER_TURN))
    polls: LongPolls = field(default_factory=LongPolls)
    fetch_sessions: FetchSessions = field(default_factory=FetchSessions)
    unfolding: Allowance = field(default_factory=lambda: Allowance(256 << 20))
    traffic: TopicTraffic = field(default_factory=uncounted_traffic)
    errors: AnsweredErrors = field(default_factory=uncounted_errors)
    other_owner: OtherOwner | None = None  # None where every stream is this cluster's
    linked: LinkedTopics | None = None

    @property
    def acls(self) -> Acls | None:
        return None if self.authorization is None else self.authorization.acls


@dataclass(frozen=True, slots=True)
class VersionRange:
    """The versions of one API, for ApiVersions."""

    api_key: int
    first: int
    last: int


class Context:
    """One request on its way through a handler."""

    __slots__ = (
        "_large",
        "access",
        "advertised",
        "connection",
        "errors",
        "fetch",
        "header",
        "services",
        "wait_ms",
    )

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
        self.fetch: OpenedFetch | None = None
        """The session that a fetch belongs to."""
        self.errors = 0
        """How many the answer has: of partitions, mostly."""
        self._large: LargeAnswer | None = None

    @property
    def version(self) -> int:
        return self.header.api_version

    @property
    def zone(self) -> str | None:
        """Of the client: the one that its `client.id` names, else its listener's, else its address's."""
        named = zone_of_client(self.header.client_id)
        if named is not None:
            return named
        settings, connection = self.services.settings, self.connection
        listener = settings.listener_zones.get(connection.listener)
        if listener is not None or not settings.zones:
            return listener
        if _ZONE not in connection.state:
            address = connection.peer.rpartition(":")[0]
            connection.state[_ZONE] = zone_of_address(address, settings.zones)
        found: str | None = connection.state[_ZONE]
        return found

    @property
    def large(self) -> LargeAnswer:
        """The answer, for a handler that makes much of it."""
        if self._large is None:
            services = self.services
            most = services.settings.one_answer_bytes
            self._large = LargeAnswer(services.runtime, self.version, self.connection, most, services.work)
        return self._large

    async def encode_large(self, response: Response) -> None:
        """Have what is large of a response encoded before the rest is, which takes one turn."""
        if self._large is not None or weigh(response, AT_ONCE) > AT_ONCE:
            await self.large.write_lists(response)

    def failed(self, code: int, partitions: int = 1) -> None:
        """Count an error that the client is answered with."""
        self.errors += partitions
        self.services.errors.count(SCHEMAS[self.header.api_key].name, ErrorCode.name_of(code), partitions)

    def cannot_read(self, place: str, error: Exception) -> bool:
        """Whether a stored value that this build cannot read is why. It is noted then, and told once for each
        place and minute."""
        found = unreadable_in(error)
        if found is None:
            return False
        if self.services.errors.unreadable.met(found.kind, place, str(found)):
            _log.error("what is stored cannot be read, and is not served", place=place, error=str(found))
        return True

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
        """The operations that the client may do on a resource, as the bits that answers have."""
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
        left, name = False, ApiKey(self.header.api_key).name

        async def finished() -> T | Exception:
            """An error goes to the client; if that no longer waits, into the log."""
            try:
                return await work
            except Exception as error:
                if left:
                    why = str(error) or type(error).__name__
                    _log.error("a request failed after its timeout", request=name, error=why)
                return error

        task = self.services.runtime.spawn(finished(), name)
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


# --- requests of groups, which may be parked

NO_OPERATIONS: Final = -(2**31)
"""The client did not ask for them."""


def client_host(context: Context) -> str:
    """The address of the client as Kafka writes it."""
    host, _, _ = context.connection.peer.rpartition(":")
    return f"/{host.strip('[]')}"


def may_still_read(context: Context, group_id: str) -> bool:
    """Asked once more before the answer: a request may have been parked for longer than the right lasted."""
    return context.may(READ_GROUP, group_id)


async def ask_and_wait(context: Context, group_id: str, event_with: Callable[[object], Event]) -> Any:
    """The answer to a request that may be parked for long. When the connection ends first (its peer hung up,
    or this broker is stopping), the answer sends the client to look for the coordinator again. Raises
    `GroupUnavailable`."""
    answer = None
    if not context.connection.ending:
        try:
            asked = context.services.groups.ask(group_id, event_with)
            answer = await unless_ending(context.connection, asked)
        except GroupUnavailable as error:
            context.cannot_read(f"group {cut(group_id)}", error)
            raise
    if answer is None:
        raise NotCoordinator("this connection is ending")
    return answer
