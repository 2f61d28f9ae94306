"""One broker, asked; its answers, written down."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from dray.kafka.client import ClientError, KafkaConnection
from dray.kafka.protocol import Request, Response
from dray.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from dray.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from dray.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from dray.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.list_groups import ListGroupsRequest
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.referee.notation import Notation

SECONDS = 60.0
CLIENT_ID = "zone_id=zone-a"
"""On a cluster the first broker is the only one in this zone, and leads everything that this client sees."""
CLOSED = "connection closed"
NO_ANSWER = "(no answer)"
ANSWERED = "answered"


class Session:
    """One case of the referee, talking to one broker. `notes` are the answers, by the labels of the requests.

    Each client (`via`) has a connection of its own, since a broker answers the requests of one connection in
    order, and parks some of them for long.
    """

    def __init__(
        self, name: str, bootstrap: str, notation: Notation | None = None, client: str = CLIENT_ID
    ) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.name = name
        self.group = f"golden-{name}"
        self.notes: dict[str, Any] = {}
        self._host = host
        self._port = int(port)
        self._client = client
        self._connections: dict[str, KafkaConnection] = {}
        self._notation = notation or Notation()

    async def meet(self) -> None:
        metadata = await self.send(MetadataRequest(topics=[]), 9)
        assert isinstance(metadata, MetadataResponse)
        self._notation.node = metadata.controller_id
        self._notation.elsewhere = {broker.node_id for broker in metadata.brokers} - {self.node}

    async def meet_coordinator(self) -> None:
        """Kafka makes its topic of offsets when it is first asked for a coordinator."""
        async with asyncio.timeout(SECONDS):
            while True:
                found: Any = await self.send(FindCoordinatorRequest(coordinator_keys=[self.group]), 4)
                described: Any = await self.send(DescribeGroupsRequest(groups=[self.group]), 5)
                if found.coordinators[0].error_code == described.groups[0].error_code == 0:
                    return
                await asyncio.sleep(0.05)

    @property
    def node(self) -> int:
        return self._notation.node

    def plain(self, value: Any) -> Any:
        return self._notation.plain(value)

    # --- asking

    async def send(self, request: Request[Any], version: int, via: str | None = None) -> Response:
        """Ask without writing the answer down."""
        client = via or self._client
        if client not in self._connections:
            self._connections[client] = await KafkaConnection.connect(
                self._host, self._port, client_id=client
            )
        try:
            return await asyncio.wait_for(self._connections[client].request(request, version), SECONDS)
        except (ClientError, TimeoutError):
            if (connection := self._connections.pop(client, None)) is not None:
                await connection.close()
            raise

    async def ask(self, label: str, request: Request[Any], version: int, via: str | None = None) -> Any:
        """Ask, and write the answer down under a label. None when the broker closed the connection."""
        assert label not in self.notes, label
        self.notes[label] = NO_ANSWER
        try:
            response = await self.send(request, version, via)
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
        for connection in self._connections.values():
            await connection.close()
        self._connections.clear()

    # --- topics

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
                    self._notation.topic_ids[topic.topic_id] = name
                    return UUID(int=topic.topic_id.int)
                await asyncio.sleep(0.02)

    async def _led(self, name: str, partitions: int) -> bool:
        """Kafka's metadata name a leader before that leader serves the partition."""
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        wanted = [ListOffsetsTopic(name=name, partitions=asked)]
        response = await self.send(ListOffsetsRequest(replica_id=-1, topics=wanted), 7)
        (topic,) = response.topics  # type: ignore[attr-defined]
        return all(partition.error_code == 0 for partition in topic.partitions)

    def topic_id(self, name: str) -> UUID:
        (found,) = [topic_id for topic_id, known in self._notation.topic_ids.items() if known == name]
        return found

    def forget_topic(self, name: str) -> None:
        """It was deleted: the next one of that name has another id."""
        del self._notation.topic_ids[self.topic_id(name)]

    def topic_names(self) -> dict[UUID, str]:
        return dict(self._notation.topic_ids)

    # --- groups

    def group_named(self, suffix: str) -> str:
        return f"{self.group}-{suffix}"

    async def until(self, state: str, members: int | None = None, group: str | None = None) -> None:
        """A parked request has arrived when the group shows it."""
        async with asyncio.timeout(SECONDS):
            while True:
                response = await self.send(DescribeGroupsRequest(groups=[group or self.group]), 5)
                (found,) = response.groups  # type: ignore[attr-defined]
                if found.group_state == state and members in (None, len(found.members)):
                    return
                await asyncio.sleep(0.01)

    async def until_settled(self, request: asyncio.Task[Any]) -> None:
        """A request is answered, or parked by a rebalance that it has begun."""
        async with asyncio.timeout(SECONDS):
            while not request.done():
                response = await self.send(DescribeGroupsRequest(groups=[self.group]), 5)
                (found,) = response.groups  # type: ignore[attr-defined]
                if found.group_state == "PreparingRebalance":
                    return
                await asyncio.sleep(0.01)

    async def describe(self, label: str, version: int = 6, group: str | None = None) -> Any:
        return await self.ask(label, DescribeGroupsRequest(groups=[group or self.group]), version)

    async def describe_consumer(self, label: str, version: int = 1, group: str | None = None) -> Any:
        return await self.ask(label, ConsumerGroupDescribeRequest(group_ids=[group or self.group]), version)

    async def list_own(
        self, label: str, states: Collection[str] = (), types: Collection[str] = (), version: int = 5
    ) -> None:
        """The groups of this case, as they are listed among those of the others."""
        assert label not in self.notes, label
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response: Any = await self.send(request, version)
        response.groups = [group for group in response.groups if group.group_id.startswith(self.group)]
        self.notes[label] = self.plain(response)

    async def until_assignable(self, *topics: str) -> None:
        """Kafka's coordinator of groups learns of a topic after all others: until then it assigns nothing."""
        probe = ConsumerGroupHeartbeatRequest(
            group_id=f"probe-{self.name}-{topics[0]}",
            member_id="probe",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
        )
        async with asyncio.timeout(SECONDS):
            while True:
                response: Any = await self.send(probe, 1)
                assert response.error_code == 0, response
                if response.assignment and len(response.assignment.topic_partitions) == len(topics):
                    break
                await asyncio.sleep(0.02)
        probe.member_epoch = -1
        await self.send(probe, 1)

    async def assignable(self, suffix: str = "", partitions: int = 1) -> str:
        """A topic that members of KIP-848 groups can be assigned at once."""
        name = await self.create(suffix, partitions)
        await self.until_assignable(name)
        return name
