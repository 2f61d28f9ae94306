"""A simulated Kafka client: real bytes over simulated connections, versions negotiated, brokers followed.

It knows what every client must: an answer that does not come leaves open what happened, the metadata says
whom to ask, and a coordinator is looked for again when it is none any more.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast
from uuid import UUID

from dray.kafka.client.cluster import Address, ClusterView, coordinator_in
from dray.kafka.protocol import (
    SCHEMAS,
    ApiKey,
    Request,
    RequestHeader,
    Response,
    encode_request_header,
    frame_message,
    parse_response_header,
    response_class,
)
from dray.kafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from dray_simulation.cluster.world import ClusterWorld

Answered = TypeVar("Answered", bound=Response)

_VERSIONS_REQUEST = 3


class Unanswered(Exception):
    """No answer came: what was asked for may have happened, and may still happen."""


class SimulatedConnection(asyncio.Protocol):
    """Pairs answers with requests. Broken for good once anything about it is."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: dict[int, asyncio.Future[memoryview]] = {}
        self._last_id = 0
        self.broken = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        position = 0
        while len(received) - position >= 4:
            end = position + 4 + int.from_bytes(received[position : position + 4], "big")
            if len(received) < end:
                break
            frame = memoryview(bytes(received[position + 4 : end]))
            waiting = self._waiting.pop(int.from_bytes(frame[:4], "big"), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(frame)
            position = end
        del received[:position]

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(str(error) if error is not None else "the broker hung up")

    def close(self, why: str = "given up") -> None:
        if self._transport is not None:
            self._transport.abort()
        self._fail(why)

    def send(self, message: Request[Any], version: int, client_id: str) -> asyncio.Future[memoryview]:
        """On its way when this returns; the future is the frame that answers it."""
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if self.broken or self._transport is None:
            answer.set_exception(Unanswered("the connection is broken"))
            return answer
        self._last_id += 1
        self._waiting[self._last_id] = answer
        header = RequestHeader(message.API_KEY, version, self._last_id, client_id)
        self._transport.writelines(frame_message(encode_request_header(header), message.encode(version)))
        return answer

    def _fail(self, why: str) -> None:
        self.broken = True
        waiting, self._waiting = self._waiting, {}
        for answer in waiting.values():
            if not answer.done():
                answer.set_exception(Unanswered(why))
                answer.exception()  # seen, even where the task that asked has left


class SimulatedClient:
    # The features of an API that this client needs: topic ids, lookups by the largest timestamp.
    least_versions: ClassVar[dict[int, int]] = {
        ApiKey.PRODUCE: 3,
        ApiKey.METADATA: 10,
        ApiKey.LIST_OFFSETS: 7,
    }

    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None:
        self.world = world
        self.name = name
        self.random = Random(seed)
        self.patience = world.conditions.patience
        self.view = ClusterView()
        self._served: dict[int, tuple[int, int]] | None = None
        self._versions: dict[int, int] = {}
        self._connections: dict[Address, SimulatedConnection] = {}

    # --- asking

    async def ask(
        self, address: Address, message: Request[Answered], patience: float | None = None
    ) -> Answered:
        """The answer. Raises `Unanswered`; the connection is given up then, as real clients do."""
        connection = await self.connect(address)
        return await self.answer(connection, self.send(connection, message), message, patience)

    def send(self, connection: SimulatedConnection, message: Request[Any]) -> asyncio.Future[memoryview]:
        self.world.counts["operations"] += 1
        self.world.operations[type(message).__name__] += 1
        return connection.send(message, self.version(message), self.name)

    async def answer(
        self,
        connection: SimulatedConnection,
        frame: asyncio.Future[memoryview],
        message: Request[Answered],
        patience: float | None = None,
    ) -> Answered:
        timer = asyncio.get_running_loop().call_later(
            self.patience if patience is None else patience, connection.close, "no answer in time"
        )
        try:
            return cast(Answered, _decode(await frame, message.API_KEY, self.version(message)))
        except Unanswered as error:
            self.world.counts["unanswered"] += 1
            self.world.trace(self.name, "no answer to", type(message).__name__, error)
            raise
        finally:
            timer.cancel()

    async def connect(self, address: Address) -> SimulatedConnection:
        known = self._connections.get(address)
        if known is not None and not known.broken:
            return known
        try:
            _, made = await asyncio.get_running_loop().create_connection(SimulatedConnection, *address)
        except OSError as error:
            self.view.forget_broker(address)
            raise Unanswered(str(error)) from error
        connection = made
        self._connections[address] = connection
        if self._served is None:
            await self._learn_versions(connection)
        return connection

    async def _learn_versions(self, connection: SimulatedConnection) -> None:
        request = ApiVersionsRequest(client_software_name="simulated", client_software_version="1")
        timer = asyncio.get_running_loop().call_later(self.patience, connection.close)
        try:
            frame = await connection.send(request, _VERSIONS_REQUEST, self.name)
        finally:
            timer.cancel()
        response = cast(ApiVersionsResponse, _decode(frame, request.API_KEY, _VERSIONS_REQUEST))
        self._served = {
            one.api_key: (one.min_version, one.max_version)
            for one in response.api_keys
            if one.api_key in SCHEMAS
        }

    def version(self, message: Request[Any]) -> int:
        """Each client speaks one version of each API, any that is served."""
        key = message.API_KEY
        if key not in self._versions:
            assert self._served is not None
            first, last = self._served[key]
            known = SCHEMAS[key]
            first = max(first, known.first_version, self.least_versions.get(key, 0))
            self._versions[key] = self.random.randint(first, min(last, known.last_version))
        return self._versions[key]

    def disconnect(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # --- following the cluster, as the view of every client of ours does

    @property
    def topic_ids(self) -> dict[str, UUID]:
        return self.view.topic_ids

    def any_address(self) -> Address:
        if self.view.brokers and self.random.random() < 0.9:
            return self.random.choice(list(self.view.brokers.values()))
        return self.random.choice(self.world.addresses)

    def address_for(self, topic: str, partition: int) -> Address:
        """The leader, as far as known; any broker serves any partition, so now and then another."""
        leader = self.view.leader(topic, partition)
        if leader is not None and self.random.random() < 0.8:
            return leader
        return self.any_address()

    async def look_around(self, *topics: str) -> bool:
        """Read the metadata of topics, without creating any. False where one is not known."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic) for topic in topics], allow_auto_topic_creation=False
        )
        found = await self.ask(self.any_address(), request)
        self.view.learn(found)
        for topic in found.topics:
            if topic.error_code:
                self.world.expect(
                    self.name, "Metadata", topic.error_code, "UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE"
                )
        return all(topic in self.topic_ids for topic in topics)

    async def find_coordinator(self, group: str) -> Address | None:
        """The broker that looks after a group; None if that is not known now."""
        request = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        found = await self.ask(self.any_address(), request)
        assert found.coordinators or self.version(request) < 4
        one = coordinator_in(found, group)
        if one.error_code:
            self.world.expect(self.name, "FindCoordinator", one.error_code, "COORDINATOR_NOT_AVAILABLE")
            return None
        return one.host, one.port


def _decode(frame: memoryview, api_key: int, version: int) -> Response:
    _, position = parse_response_header(frame, api_key, version)
    response, _ = response_class(api_key).decode(frame, position, version)
    return response
