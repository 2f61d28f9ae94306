"""A cluster as its clients see it: brokers found from a few addresses, leaders by the brokers' metadata, and
another try where something has moved."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, Self, TypeAlias, TypeVar
from uuid import UUID

from dray.base.runtime import Runtime
from dray.kafka.client.connection import BrokerConnection, Dial
from dray.kafka.client.errors import AuthenticationFailed, ClientError, RequestFailed
from dray.kafka.protocol import ZERO_UUID, ErrorCode, Request, Response
from dray.kafka.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

ResponseType = TypeVar("ResponseType", bound=Response)
T = TypeVar("T")
Address: TypeAlias = tuple[str, int]
"""A host and a port."""
Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""

RETRY_SECONDS: Final = 0.1
PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,  # of a leader that is new, until its replicas have followed it
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Errors of a partition that are worth another try, with fresh metadata."""


class ClusterView:
    """The brokers' latest metadata: who they are, and who leads which partition."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.brokers: dict[int, Address] = {}
        self.topic_ids: dict[str, UUID] = {}
        self._leaders: dict[str, dict[int, int]] = {}

    def learn(self, answer: MetadataResponse) -> None:
        self.cluster_id = answer.cluster_id
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code:
                self.topic_ids.pop(name, None)
                continue
            if topic.topic_id != ZERO_UUID or name not in self.topic_ids:
                self.topic_ids[name] = topic.topic_id
            self._leaders[name] = {each.partition_index: each.leader_id for each in topic.partitions}

    def partitions(self, topic: str) -> list[int]:
        """The topic's partitions; none for a topic that does not exist."""
        return sorted(self._leaders[topic]) if topic in self.topic_ids else []

    def leader(self, topic: str, partition: int) -> Address | None:
        """The address of the partition's leader; None if none is known."""
        leader = self._leaders.get(topic, {}).get(partition)
        return None if leader is None else self.brokers.get(leader)

    def by_leader(self, places: Iterable[Place]) -> dict[Address, dict[str, list[int]]]:
        """Partitions by topic, for each leader; a place without a leader is left out."""
        found: dict[Address, dict[str, list[int]]] = {}
        for topic, partition in places:
            leader = self.leader(topic, partition)
            if leader is not None:
                found.setdefault(leader, {}).setdefault(topic, []).append(partition)
        return found

    def forget_broker(self, address: Address) -> None:
        """A broker cannot be reached: it counts as no leader until fresh metadata says so again."""
        self.brokers = {number: place for number, place in self.brokers.items() if place != address}


def coordinator_in(answer: FindCoordinatorResponse, key: str) -> Coordinator:
    """Older versions of the answer are about one key, newer ones about several."""
    if answer.coordinators:
        return answer.coordinators[0]
    return Coordinator(key, answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message)


class Cluster:
    """A way to the brokers of a cluster. Connections are kept until `close`; one that breaks off is dialled
    anew when it is next needed. `async with` fails at once where no address answers."""

    def __init__(self, bootstrap: Sequence[Address], dial: Dial, runtime: Runtime) -> None:
        self.view = ClusterView()
        self._bootstrap = bootstrap
        self._dial = dial
        self._runtime = runtime
        self._connections: dict[Address, BrokerConnection] = {}
        self._failed: set[Address] = set()  # when they were last asked

    async def __aenter__(self) -> Self:
        await self._any_address()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connections and forgets what was learnt. A later request begins from the first addresses
        again."""
        self.view = ClusterView()
        async with AsyncExitStack() as stack:
            for connection in self._connections.values():
                stack.push_async_callback(connection.close)
            self._connections = {}

    async def request(self, message: Request[ResponseType]) -> ResponseType:
        """Send a request that any broker can answer."""
        async with self.broker(await self._any_address()) as broker:
            return await broker.request(message)

    async def learn(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Fresh metadata of topics, None for all; none is created by this."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer = await self.request(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        self.view.learn(answer)
        return answer

    @asynccontextmanager
    async def broker(self, address: Address) -> AsyncIterator[BrokerConnection]:
        """The connection to one broker."""
        connection = await self._connection(address)
        try:
            yield connection
        except ClientError:
            self._failed.add(address)
            if self._connections.get(address) is connection:
                del self._connections[address]
            await connection.close()
            raise

    async def patiently(
        self,
        attempt: Callable[[], Awaitable[T]],
        seconds: float,
        passing: Collection[int] = PASSING,
        waits: Callable[[ClientError | RequestFailed], None] | None = None,
    ) -> T:
        """Tries again while brokers are out of reach or answer with a passing error: one that died has
        successors, and fresh metadata names them. After so many seconds the last failure is raised. `waits`
        gets each failure before that."""
        deadline = self._runtime.monotonic() + seconds
        while True:
            try:
                return await attempt()
            except (ClientError, RequestFailed) as error:
                if isinstance(error, RequestFailed) and error.code not in passing:
                    raise
                await self.close()
                if isinstance(error, AuthenticationFailed):
                    raise  # a password does not become right by being sent again
                if self._runtime.monotonic() >= deadline:
                    raise
                if waits is not None:
                    waits(error)
            await self._runtime.sleep(RETRY_SECONDS)

    async def _any_address(self) -> Address:
        """The first that answers: of the brokers that are connected, then of those that were named, then of
        those that they told of. An address that failed last comes last: to find out again may take long."""
        failure: ClientError | None = None
        known = dict.fromkeys((*self._connections, *self._bootstrap, *self.view.brokers.values()))
        for address in sorted(known, key=self._failed.__contains__):
            try:
                await self._connection(address)
            except ClientError as error:
                failure = error
            else:
                return address
        raise failure or ClientError("no broker is named")

    async def _connection(self, address: Address) -> BrokerConnection:
        if address not in self._connections:
            try:
                dialled = await self._dial(*address)
            except ClientError:
                self._failed.add(address)
                raise
            self._failed.discard(address)
            if self._connections.setdefault(address, dialled) is not dialled:
                await dialled.close()  # another request was quicker
        return self._connections[address]
