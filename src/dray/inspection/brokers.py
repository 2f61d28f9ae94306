"""The way to the brokers: one connection to each, kept and shared, opened again when it broke.

Everything that is asked here may be asked twice. A request that changes something goes over a connection of
its own (`fresh`), and is never sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from dray.base.runtime import Runtime
from dray.kafka.client import ClientError, Cluster, Dialer, KafkaConnection
from dray.kafka.client.admin import offsets_at
from dray.kafka.client.cluster import Place
from dray.kafka.client.connection import BrokerConnection
from dray.kafka.protocol import Request, Response
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

ResponseType = TypeVar("ResponseType", bound=Response)
T = TypeVar("T")
HostPort: TypeAlias = tuple[str, int]

CLIENT_ID: Final = "dray-console"
LARGEST_FRAME: Final = 128 * 1024 * 1024
PLAIN_DIALER: Final = Dialer(client_id=CLIENT_ID, largest_frame=LARGEST_FRAME)


RECALLED_FOR: Final = 20
LONGEST_RECALL: Final = 10.0


class _KnownList:
    """The answer to a question about everything, and until when it is good."""

    def __init__(self) -> None:
        self.asking = asyncio.Lock()
        self.until = float("-inf")
        self.answer: Any = None


class BrokerUnreachable(Exception):
    """No broker answers. The text is one line."""


class BrokerLink:
    """One broker, whether or not a connection to it is open."""

    def __init__(self, address: HostPort, seconds: float, dial: Dialer) -> None:
        self.address = address
        self._dialer = dial
        self._seconds = seconds
        self._connection: KafkaConnection | None = None
        self._opening = asyncio.Lock()

    async def request(self, message: Request[ResponseType], version: int | None = None) -> ResponseType:
        was_open = self._connection is not None
        try:
            return await self._ask(message, version)
        except ClientError:
            if not was_open:
                raise
        return await self._ask(message, version)  # the broker may have been started again meanwhile

    def version_for(self, api_key: int) -> int:
        if self._connection is None:
            raise ClientError(f"{self.address[0]}:{self.address[1]} is not connected")
        return self._connection.version_for(api_key)

    async def open(self) -> KafkaConnection:
        async with self._opening:
            if self._connection is None:
                self._connection = await _connect(self._dialer, self.address, self._seconds)
            return self._connection

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _ask(self, message: Request[ResponseType], version: int | None) -> ResponseType:
        connection = await self.open()
        try:
            return await asyncio.wait_for(connection.request(message, version), self._seconds)
        except TimeoutError as error:
            await self._give_up(connection)
            host, port = self.address
            raise ClientError(f"{host}:{port} gave no answer within {self._seconds:g} s") from error
        except ClientError:
            await self._give_up(connection)
            raise

    async def _give_up(self, connection: KafkaConnection) -> None:
        if self._connection is connection:
            self._connection = None
        with suppress(ClientError):
            await connection.close()


class _Lent:
    """A link that its borrower cannot close."""

    def __init__(self, link: BrokerLink) -> None:
        self._link = link

    async def request(self, message: Request[ResponseType], version: int | None = None) -> ResponseType:
        return await self._link.request(message, version)

    def version_for(self, api_key: int) -> int:
        return self._link.version_for(api_key)

    async def close(self) -> None:
        return


class Brokers:
    def __init__(
        self,
        bootstrap: Sequence[HostPort],
        runtime: Runtime,
        seconds: float = 10.0,
        dial: Dialer = PLAIN_DIALER,
    ) -> None:
        """`seconds`: how long a broker may take to answer."""
        self._dialer = dial
        self.runtime = runtime
        self._bootstrap = tuple(bootstrap)
        self._seconds = seconds
        self._links: dict[HostPort, BrokerLink] = {}
        self._lists: dict[str, _KnownList] = {}

    @property
    def bootstrap(self) -> Sequence[HostPort]:
        return self._bootstrap

    def apart(self, seconds: float | None = None) -> Brokers:
        """The same cluster over connections of its own: requests that wait would hold up all that come
        after them on a shared one."""
        patience = seconds or self._seconds
        return Brokers(self._bootstrap, self.runtime, patience, self._dialer)

    async def first(self) -> BrokerLink:
        """A broker that answers."""
        failure: ClientError | None = None
        for address in (*self._bootstrap, *self._links):
            link = self._link(address)
            try:
                await link.open()
            except ClientError as error:
                failure = error
                continue
            return link
        raise BrokerUnreachable(str(failure or "no broker is named")) from failure

    async def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """The metadata of these topics; None: of all."""
        if topics is None:
            return await self.recall("topics", partial(self._metadata, None))
        return await self._metadata([MetadataRequestTopic(name=name) for name in topics])

    async def _metadata(self, wanted: list[MetadataRequestTopic] | None) -> MetadataResponse:
        return await (await self.first()).request(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        )

    async def recall(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """A list of everything, as it was a moment ago: for as much longer as it took to be asked for. So ten
        thousand topics cost the brokers no more than a small part of their time, however many pages are
        open, and a small cluster is shown as it is. A change that is made from here is seen at once."""
        known = self._lists.setdefault(what, _KnownList())
        async with known.asking:
            began = self.runtime.monotonic()
            if began >= known.until:
                known.answer = await ask()
                now = self.runtime.monotonic()
                known.until = now + min(LONGEST_RECALL, RECALLED_FOR * (now - began))
            answer: T = known.answer
            return answer

    def forget_lists(self) -> None:
        """Something was changed from here."""
        self._lists.clear()

    async def offsets(
        self, metadata: MetadataResponse, time: int, troubles: dict[Place, str] | None = None
    ) -> dict[Place, int]:
        """The offset of a time (or EARLIEST, LATEST) in every partition, as `offsets_at` has it."""
        cluster = self.cluster()
        cluster.view.learn(metadata)
        names = [topic.name or "" for topic in metadata.topics if not topic.error_code]
        return await offsets_at(cluster, names, time, troubles)

    def cluster(self) -> Cluster:
        """A cluster for one question: it has its own metadata, and borrows the connections."""

        async def lend(host: str, port: int, /) -> BrokerConnection:
            link = self._link((host, port))
            await link.open()
            return _Lent(link)

        return Cluster(self._bootstrap, lend, self.runtime)

    @asynccontextmanager
    async def own_cluster(self) -> AsyncIterator[Cluster]:
        """A cluster with its own connections, for requests that change something."""

        async def connect(host: str, port: int, /) -> BrokerConnection:
            return await _connect(self._dialer, (host, port), self._seconds)

        try:
            async with Cluster(self._bootstrap, connect, self.runtime) as cluster:
                yield cluster
        finally:
            self.forget_lists()

    @asynccontextmanager
    async def fresh(self, address: HostPort | None = None) -> AsyncIterator[KafkaConnection]:
        """A connection of its own to that broker, or to one that answers: for what must not be sent twice."""
        if address is None:
            address = (await self.first()).address
        try:
            async with await _connect(self._dialer, address, self._seconds) as connection:
                yield connection
        finally:
            self.forget_lists()

    def of(self, metadata: MetadataResponse) -> Mapping[int, BrokerLink]:
        """The links of a cluster's brokers, by their ids."""
        return {broker.node_id: self._link((broker.host, broker.port)) for broker in metadata.brokers}

    async def close(self) -> None:
        links, self._links = list(self._links.values()), {}
        for link in links:
            with suppress(ClientError):
                await link.close()

    def _link(self, address: HostPort) -> BrokerLink:
        link = self._links.get(address)
        if link is None:
            link = self._links[address] = BrokerLink(address, self._seconds, self._dialer)
        return link


async def _connect(dial: Dialer, address: HostPort, seconds: float) -> KafkaConnection:
    host, port = address
    try:
        async with asyncio.timeout(seconds):
            return await dial(host, port)
    except TimeoutError as error:
        raise ClientError(f"cannot reach {host}:{port} within {seconds:g} s") from error
