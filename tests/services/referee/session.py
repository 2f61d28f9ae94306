"""One broker, asked; its answers, written down."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import UUID

from dray.client import ClientError, KafkaConnection
from dray.protocol import ZERO_UUID, Request, Response, Struct
from dray.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from dray.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from dray.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.services.batches import TIMESTAMP, summarise

SECONDS = 20.0
CLIENT_ID = "zone_id=zone-a"
"""On a cluster the first broker is the only one in this zone, and leads everything that this client sees."""
CLOSED = "connection closed"
ANSWERED = "answered"

Case = Callable[["Session"], Awaitable[None]]
CASES: dict[str, Case] = {}

LEFT_OUT = {
    "throttle_time_ms",
    "error_message",
    "batch_index_error_message",
    "host",
    "port",
    "cluster_id",
    "node_endpoints",
    "documentation",
    "log_dir",
    "total_bytes",
    "usable_bytes",
}
NODE_FIELDS = {"leader_id", "node_id", "broker_id", "controller_id"}
NODE_LISTS = {"replica_nodes", "isr_nodes", "offline_replicas", "eligible_leader_replicas", "last_known_elr"}
OF_FAILURES = {
    "error_code",
    "name",
    "topic",
    "topic_id",
    "index",
    "partition",
    "partition_index",
    "partition_id",
    "topic_name",
    "transactional_id",
    "feature",
    "user",
    "resource_type",
    "resource_name",
    "key",
    "record_errors",
}
"""Where something failed, what failed and how is all that a client may look at."""
ORDER: dict[str, Callable[[dict[str, Any]], Any]] = {
    "partition_responses": lambda entry: entry["index"],
    "partitions": lambda entry: entry.get("partition_index", 0),
}
"""Lists that Kafka keeps in a hash map: their order says nothing."""
CLOCK_FIELDS = {"log_append_time_ms"}


def case(function: Case) -> Case:
    """Register a case under its function's name."""
    name = getattr(function, "__name__", "")
    assert name not in CASES, name
    CASES[name.replace("_", "-")] = function
    return function


async def run_case(name: str, bootstrap: str) -> dict[str, Any]:
    host, port = bootstrap.rsplit(":", 1)
    session = Session(name, host, int(port))
    try:
        await session.meet()
        await CASES[name](session)
    finally:
        await session.close()
    return session.notes


class Session:
    def __init__(self, name: str, host: str, port: int) -> None:
        self.name = name
        self.notes: dict[str, Any] = {}
        self._host = host
        self._port = port
        self._connection: KafkaConnection | None = None
        self._node = -1
        self._elsewhere: set[int] = set()  # brokers of other zones: shown as a way out, and never compared
        self._topic_ids: dict[UUID, str] = {}

    async def meet(self) -> None:
        metadata = await self.send(MetadataRequest(topics=[]), 9)
        assert isinstance(metadata, MetadataResponse)
        self._node = metadata.controller_id
        self._elsewhere = {broker.node_id for broker in metadata.brokers} - {self._node}

    @property
    def node(self) -> int:
        return self._node

    async def send(self, request: Request[Any], version: int) -> Response:
        """Ask without writing the answer down."""
        if self._connection is None:
            self._connection = await KafkaConnection.connect(self._host, self._port, client_id=CLIENT_ID)
        try:
            return await asyncio.wait_for(self._connection.request(request, version), SECONDS)
        except (ClientError, TimeoutError):
            await self.close()
            raise

    async def ask(self, label: str, request: Request[Any], version: int) -> Any:
        """Ask, and write the answer down under a label. None when the broker closed the connection."""
        assert label not in self.notes, label
        try:
            response = await self.send(request, version)
        except ClientError as error:
            if "closed the connection" not in str(error) and "broke off" not in str(error):
                raise
            self.notes[label] = CLOSED
            return None
        self.notes[label] = self.plain(response)
        return response

    async def raw(self, label: str, payload: bytes, size: int | None = None, show: bool = False) -> None:
        """Send bytes as one frame on a connection of its own; write down whether it was answered."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            writer.write(struct.pack(">i", len(payload) if size is None else size) + payload)
            await writer.drain()
            async with asyncio.timeout(SECONDS):
                length = struct.unpack(">i", await reader.readexactly(4))[0]
                answer = await reader.readexactly(length)
                self.notes[label] = answer.hex() if show else ANSWERED
        except (asyncio.IncompleteReadError, ConnectionError):
            self.notes[label] = CLOSED
        finally:
            writer.close()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()
            self._connection = None

    async def create(
        self, suffix: str = "", partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """A topic of this case's own, ready to be written to."""
        name = f"referee-{self.name}" + (f"-{suffix}" if suffix else "")
        entries = [CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)
        response = await self.send(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7)
        (result,) = response.topics  # type: ignore[attr-defined]
        assert result.error_code == 0, result
        await self.until_known(name, partitions)
        return name

    async def until_known(self, name: str, partitions: int = 1) -> UUID:
        """Kafka's brokers learn of a topic a moment after its creation was answered."""
        async with asyncio.timeout(SECONDS):
            while True:
                wanted = [MetadataRequestTopic(name=name)]
                metadata = await self.send(
                    MetadataRequest(topics=wanted, allow_auto_topic_creation=False), 12
                )
                (topic,) = metadata.topics  # type: ignore[attr-defined]
                ready = [p for p in topic.partitions if p.error_code == 0 and p.leader_id >= 0]
                if topic.error_code == 0 and len(ready) == partitions and await self._led(name, partitions):
                    self._topic_ids[topic.topic_id] = name
                    return UUID(int=topic.topic_id.int)
                await asyncio.sleep(0.02)

    async def _led(self, name: str, partitions: int) -> bool:
        """Kafka's metadata name a leader before that leader serves the partition."""
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        wanted = [ListOffsetsTopic(name=name, partitions=asked)]
        response = await self.send(ListOffsetsRequest(replica_id=-1, topics=wanted), 7)
        (topic,) = response.topics  # type: ignore[attr-defined]
        return all(partition.error_code == 0 for partition in topic.partitions)

    def plain(self, value: Any, field: str = "") -> Any:
        """An answer as JSON, without what differs between two honest brokers."""
        if isinstance(value, Struct):
            failed = getattr(value, "error_code", 0) != 0
            return {
                name: self.plain(getattr(value, name), name)
                for name in value.__slots__
                if name not in LEFT_OUT and (not failed or name in OF_FAILURES)
            }
        if field == "records":
            return None if value is None else summarise(joined(value))
        if isinstance(value, list):
            if field in NODE_LISTS:
                return [self._node_name(node) for node in value]
            if field == "brokers":
                value = [broker for broker in value if getattr(broker, "node_id", -1) not in self._elsewhere]
            entries = [self.plain(entry) for entry in value]
            return sorted(entries, key=ORDER[field]) if field in ORDER else entries
        if isinstance(value, UUID):
            return "zero" if value == ZERO_UUID else self._topic_ids.get(value, "an id")
        if field in NODE_FIELDS:
            return self._node_name(value)
        if field in CLOCK_FIELDS and value > TIMESTAMP:
            return "now"
        return value

    def _node_name(self, node: int) -> str | int:
        return "self" if node == self._node else node


def joined(records: Any) -> bytes:
    if isinstance(records, (bytes, bytearray, memoryview)):
        return bytes(records)
    return b"".join(bytes(part) for part in records)
