"""Members of groups for benchmarks: each has a connection of its own, as a real consumer has, and does what
the broker tells it at once. Nothing waits for a heartbeat's turn, so that what is measured is the broker and
not the patience of its clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from uuid import UUID

from dray.kafka.client import KafkaConnection
from dray.kafka.protocol import ErrorCode
from dray.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from dray.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from dray.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dray.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TIMEOUT_MS = 300_000
ASSIGNMENT = bytes(60)
"""As large as that of ten partitions of one topic. The broker does not look into it."""


async def connections(bootstrap: str, count: int, stack: AsyncExitStack) -> list[KafkaConnection]:
    """A broker answers one connection in order, and joins are parked: members cannot share one."""
    host, port = bootstrap.rsplit(":", 1)
    return [
        await stack.enter_async_context(await KafkaConnection.connect(host, int(port))) for _ in range(count)
    ]


async def make_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Returns when a member can have all of it: Kafka's coordinator learns of topics after all others."""
    async with AsyncExitStack() as stack:
        [connection] = await connections(bootstrap, 1, stack)
        wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = await connection.request(CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS), 7)
        assert answer.topics[0].error_code == ErrorCode.NONE, answer
        async with asyncio.timeout(60):
            while True:
                # Kafka makes its topic of offsets when it is first asked for a coordinator.
                await connection.request(FindCoordinatorRequest(coordinator_keys=["probe"]), 4)
                probe = ConsumerMember(connection, "probe", "probe", name)
                with suppress(Refused):
                    await probe.beat()
                    await probe.leave()
                    if len(probe.partitions) == partitions:
                        return
                await asyncio.sleep(0.1)


class Refused(Exception):
    """The broker answered with an error."""


class ClassicMember:
    def __init__(self, connection: KafkaConnection, group_id: str, topic: str) -> None:
        self._connection = connection
        self._group_id = group_id
        name = topic.encode()
        subscription = b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\0\0\0\0"
        self._protocols = [JoinGroupRequestProtocol("range", subscription)]
        self.member_id = ""
        self.generation = -1

    async def join(self) -> JoinGroupResponse:
        """Until the generation is settled."""
        while True:
            answer = await self._connection.request(
                JoinGroupRequest(
                    group_id=self._group_id,
                    session_timeout_ms=TIMEOUT_MS,
                    rebalance_timeout_ms=TIMEOUT_MS,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocols=self._protocols,
                ),
                9,
            )
            self.member_id = answer.member_id
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                assert answer.error_code == ErrorCode.NONE, answer
                self.generation = answer.generation_id
                return answer

    async def enter(self) -> None:
        """Join, and get an assignment; the leader makes one for all."""
        while True:
            joined = await self.join()
            assignments = [SyncGroupRequestAssignment(one.member_id, ASSIGNMENT) for one in joined.members]
            answer = await self._connection.request(
                SyncGroupRequest(
                    group_id=self._group_id,
                    generation_id=self.generation,
                    member_id=self.member_id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=assignments,
                ),
                5,
            )
            if answer.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                assert answer.error_code == ErrorCode.NONE, answer
                assert answer.assignment == ASSIGNMENT
                return

    async def beat(self) -> None:
        """Hear of the rebalance that is under way, and take part in it."""
        answer = await self._connection.request(
            HeartbeatRequest(self._group_id, self.generation, self.member_id), 4
        )
        assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS, answer
        await self.enter()

    async def leave(self) -> None:
        answer = await self._connection.request(
            LeaveGroupRequest(group_id=self._group_id, members=[MemberIdentity(self.member_id)]), 5
        )
        assert answer.error_code == ErrorCode.NONE, answer


class ConsumerMember:
    """Of a KIP-848 group. It says what it owns when that has changed, as the Java client does."""

    def __init__(self, connection: KafkaConnection, group_id: str, member_id: str, topic: str) -> None:
        self._connection = connection
        self._group_id = group_id
        self._topic = topic
        self.member_id = member_id
        self.epoch = 0
        self._owned: list[TopicPartitions] = []
        self._to_tell = True

    @property
    def partitions(self) -> set[tuple[UUID, int]]:
        return {(topic.topic_id, partition) for topic in self._owned for partition in topic.partitions}

    async def beat(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == 0:
            request.rebalance_timeout_ms = TIMEOUT_MS
            request.subscribed_topic_names = [self._topic]
        if self._to_tell:
            request.topic_partitions = self._owned
        answer = await self._connection.request(request, 1)
        if answer.error_code != ErrorCode.NONE:
            raise Refused(answer)
        self.epoch = answer.member_epoch
        self._to_tell = answer.assignment is not None
        if answer.assignment is not None:
            self._owned = answer.assignment.topic_partitions

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=-1
        )
        answer = await self._connection.request(request, 1)
        assert answer.error_code == ErrorCode.NONE, answer


async def settle(members: Sequence[ConsumerMember], partitions: int, most_rounds: int = 100) -> int:
    """Rounds of heartbeats until all are at one epoch and own all partitions between them, each once."""
    for rounds in range(1, most_rounds + 1):
        await asyncio.gather(*(member.beat() for member in members))
        owned = [member.partitions for member in members]
        if len({member.epoch for member in members}) == 1 and sum(map(len, owned)) == partitions:
            assert len(set().union(*owned)) == partitions, "a partition has two owners"
            return rounds
    raise AssertionError(f"not settled after {most_rounds} rounds")
