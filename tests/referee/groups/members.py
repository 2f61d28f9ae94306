"""Members of groups, each a client of its own: they remember what a client would, and do what they are told.

Whatever a request holds can be changed by its field's name, to ask what no honest client asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from dray.kafka.protocol import Request
from dray.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from dray.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.referee.cases import CONTROL, subscription
from tests.referee.session import Session

PATIENT_MS = 60_000
"""A timeout that no case reaches."""

Protocols = Sequence[tuple[str, bytes]]
RANGE: Protocols = (("range", subscription("t")),)
MEMBER_ID_REQUIRED = 79


def changed(request: Any, changes: Mapping[str, Any]) -> Any:
    for name, value in changes.items():
        assert hasattr(request, name), name
        setattr(request, name, value)
    return request


class ClassicMember:
    def __init__(
        self,
        session: Session,
        name: str,
        *,
        group: str | None = None,
        instance: str | None = None,
        protocols: Protocols = RANGE,
        session_ms: int = PATIENT_MS,
        rebalance_ms: int = PATIENT_MS,
        version: int = 9,
    ) -> None:
        self.session = session
        self.name = name
        self.group = group or session.group
        self.instance = instance
        self.protocols = protocols
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.version = version
        self.member_id = ""
        self.generation = -1
        self.protocol = ""

    async def join(self, label: str, *, version: int | None = None, **changes: Any) -> Any:
        """Join, with a member id if one was given out; returns when the broker lets it."""
        used = self.version if version is None else version
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance if used >= 5 else None,
            protocol_type="consumer",
            protocols=self.wire_protocols(),
        )
        response = await self.session.ask(label, changed(request, changes), used, self.name)
        if response is not None and response.error_code in (0, MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
        if response is not None and response.error_code == 0:
            self.generation, self.protocol = response.generation_id, response.protocol_name
        return response

    def wire_protocols(self) -> list[JoinGroupRequestProtocol]:
        return [JoinGroupRequestProtocol(name, metadata) for name, metadata in self.protocols]

    def identity(self, member_id: str) -> MemberIdentity:
        return MemberIdentity(member_id, self.instance)

    async def enter(self, label: str) -> Any:
        """Join as clients do: once for an id, where there is none yet, and once with it."""
        if not self.member_id and self.instance is None and self.version >= 4:
            await self.join(f"{label}, for an id")
        return await self.join(label)

    def entering(self, label: str) -> asyncio.Task[Any]:
        return asyncio.create_task(self.enter(label))

    def joining(self, label: str, **changes: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.join(label, **changes))

    async def sync(
        self,
        label: str,
        given: Mapping[ClassicMember, bytes] | None = None,
        *,
        version: int = 5,
        **changes: Any,
    ) -> Any:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member.member_id, assignment)
                for member, assignment in (given or {}).items()
            ],
        )
        return await self.session.ask(label, changed(request, changes), version, self.name)

    def syncing(self, label: str, **changes: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.sync(label, **changes))

    async def heartbeat(self, label: str, *, version: int = 4, **changes: Any) -> Any:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
        return await self.session.ask(label, changed(request, changes), version, self.name)

    async def heartbeat_until(self, error: int) -> None:
        """Not written down: nobody knows how many it takes."""
        async with asyncio.timeout(60):
            while True:
                request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance)
                response: Any = await self.session.send(request, 4, self.name)
                if response.error_code == error:
                    return
                await asyncio.sleep(0.05)

    async def leave(self, label: str, *, version: int = 5, **changes: Any) -> Any:
        request = LeaveGroupRequest(
            group_id=self.group,
            members=[MemberIdentity(self.member_id, self.instance)],
            member_id=self.member_id,
        )
        return await self.session.ask(label, changed(request, changes), version, self.name)

    async def commit(
        self, label: str, topic: str, offset: int = 5, *, version: int = 9, partition: int = 0, **changes: Any
    ) -> Any:
        request = commit_request(self.group, topic, partition, offset)
        request.member_id = self.member_id
        request.generation_id_or_member_epoch = self.generation
        request.group_instance_id = self.instance
        return await self.session.ask(label, changed(request, changes), version, self.name)


def commit_request(group: str, topic: str, partition: int = 0, offset: int = 5) -> OffsetCommitRequest:
    """By nobody in particular."""
    item = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=0,
        committed_metadata="note",
    )
    return OffsetCommitRequest(
        group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[item])]
    )


async def stable(session: Session, *members: ClassicMember) -> None:
    """The members in their first generation; the first of them leads, and each is given its own name."""
    leader, *others = members
    waiting = [leader.entering(f"{leader.name} joins")]
    for count, member in enumerate(others, 1):
        await session.until("PreparingRebalance", count, leader.group)
        waiting.append(member.entering(f"{member.name} joins"))
    await asyncio.gather(*waiting)
    await synced(*members)


async def synced(*members: ClassicMember, again: str = "") -> None:
    """The first of the members leads, and gives each its own name."""
    leader, *others = members
    given = {member: member.name.encode() for member in members}
    await asyncio.gather(
        leader.sync(f"{leader.name} leads{again}", given),
        *(member.sync(f"{member.name} follows{again}") for member in others),
    )


class ConsumerMember:
    """A member of a KIP-848 group. Its id is its name, so that every run sorts members the same way."""

    def __init__(
        self,
        session: Session,
        name: str,
        topics: Sequence[str] | None = None,
        *,
        group: str | None = None,
        instance: str | None = None,
        rebalance_ms: int = PATIENT_MS,
        assignor: str | None = None,
        regex: str | None = None,
    ) -> None:
        self.session = session
        self.name = name
        self.group = group or session.group
        self.instance = instance
        self.topics = topics
        self.regex = regex
        self.rebalance_ms = rebalance_ms
        self.assignor = assignor
        self.member_id = name
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}

    async def join(self, label: str, *, version: int = 1, **changes: Any) -> Any:
        """All there is to say, at epoch 0."""
        self.epoch = 0
        request = self._request()
        request.rebalance_timeout_ms = self.rebalance_ms
        request.subscribed_topic_names = None if self.topics is None else list(self.topics)
        request.subscribed_topic_regex = self.regex
        request.server_assignor = self.assignor
        request.topic_partitions = []
        return await self._send(label, changed(request, changes), version)

    async def beat(self, label: str, *, version: int = 1, **changes: Any) -> Any:
        """Only that it lives, unless something is changed."""
        return await self._send(label, changed(self._request(), changes), version)

    async def report(self, label: str, owned: Mapping[str, Sequence[int]] | None = None) -> Any:
        """That it lives, and what it owns: by default all that it was assigned."""
        return await self.beat(
            label, topic_partitions=self.partitions(self.owned if owned is None else owned)
        )

    async def leave(self, label: str, epoch: int = -1) -> Any:
        return await self.beat(label, member_epoch=epoch)

    async def commit(
        self, label: str, topic: str, offset: int = 5, *, version: int = 9, **changes: Any
    ) -> Any:
        request = commit_request(self.group, topic, 0, offset)
        request.member_id = self.member_id
        request.generation_id_or_member_epoch = self.epoch
        return await self.session.ask(label, changed(request, changes), version, self.name)

    def partitions(self, owned: Mapping[str, Sequence[int]]) -> list[TopicPartitions]:
        return [
            TopicPartitions(self.session.topic_id(topic), list(partitions))
            for topic, partitions in owned.items()
        ]

    def _request(self) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance
        )

    async def _send(self, label: str, request: Request[Any], version: int) -> Any:
        response = await self.session.ask(label, request, version, self.name)
        if response is not None and response.error_code == 0:
            self.member_id = response.member_id or self.member_id
            self.epoch = response.member_epoch
            if response.assignment is not None:
                known = self.session.topic_names()
                self.owned = {
                    known[topic.topic_id]: sorted(topic.partitions)
                    for topic in response.assignment.topic_partitions
                }
        return response


async def settle(session: Session, *members: ConsumerMember, rounds: int = 12) -> None:
    """Let every member report what it owns until nothing changes any more: whatever the broker asks of them,
    they do. Only where they arrive is written down, by whoever looks."""
    for turn in range(rounds):
        before = [(member.epoch, dict(member.owned)) for member in members]
        for member in members:
            label = f"(turn {turn} of {member.name})"
            await member.report(label)
            del session.notes[label]
        if turn and before == [(member.epoch, member.owned) for member in members]:
            return
    raise AssertionError("the members do not settle")


__all__ = ["CONTROL", "ClassicMember", "ConsumerMember", "commit_request", "settle", "stable", "synced"]
