"""A simulated member of a KIP-848 group: it sends heartbeats, and takes and gives up what the answers say."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from dray.protocol import ApiKey, ErrorCode
from dray.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from dray.simulation.checks.log_truth import Violation
from dray.simulation.cluster.members import GroupMember
from dray.simulation.cluster.topics import MAIN

if TYPE_CHECKING:
    from dray.simulation.cluster.world import ClusterWorld

_LATER = "NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS"
_LEAVES = -1


class ConsumerMember(GroupMember):
    group = "consumers"
    # Older versions of these know no member epochs, and members of such a group may not use them.
    least_versions = GroupMember.least_versions | {ApiKey.OFFSET_COMMIT: 9, ApiKey.OFFSET_FETCH: 9}

    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self._incarnation = 0
        self._tell_all = True  # what the coordinator may have missed

    @property
    def is_member(self) -> bool:
        return self.epoch > 0

    async def leave(self, member_id: str) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=member_id, member_epoch=_LEAVES
        )
        await self.ask(await self.coordinator(self.group), request)

    async def stay(self) -> None:
        joins = not self.is_member
        if joins:
            if not self.member_id:
                self.member_id = str(UUID(int=self.random.getrandbits(128), version=4))
            self.give_up_partitions()
        tells = joins or self._tell_all
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=0 if joins else self.epoch,
            rebalance_timeout_ms=round(1200 * self.world.conditions.session_timeout) if tells else -1,
            subscribed_topic_names=[MAIN] if tells else None,
            topic_partitions=self._owns() if tells or self.random.random() < 0.5 else None,
        )
        sent = self.world.now()
        self._tell_all = True
        answer = await self.ask(await self.coordinator(self.group), request)
        if answer.error_code:
            self._refused(answer)
            return
        self._tell_all = False
        self._follow_answer(answer, sent, joins)

    def _owns(self) -> list[TopicPartitions]:
        if not self.owned:
            return []
        return [TopicPartitions(topic_id=self.topic_ids[MAIN], partitions=sorted(self.owned))]

    def _follow_answer(self, answer: ConsumerGroupHeartbeatResponse, sent: float, joined: bool) -> None:
        if answer.member_epoch < self.epoch and not joined:
            raise Violation(f"{self.name}: from epoch {self.epoch} back to {answer.member_epoch}")
        if answer.member_epoch > self.world.generations[self.group] > 0:
            self.world.counts["rebalances"] += 1
        known = self.world.generations[self.group]
        self.world.generations[self.group] = max(known, answer.member_epoch)
        self.epoch = answer.member_epoch
        self.still_there(sent)
        if answer.assignment is not None:
            given = {
                partition for topic in answer.assignment.topic_partitions for partition in topic.partitions
            }
            if given - self.owned or self.owned - given:
                self._tell_all = self._tell_all or bool(self.owned - given)
            self.took(given, sent)

    def _refused(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        allowed = f"{_LATER} UNKNOWN_MEMBER_ID FENCED_MEMBER_EPOCH"
        self.world.expect(self.name, "ConsumerGroupHeartbeat", answer.error_code, allowed)
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NOT_COORDINATOR:
            self.forget_coordinator(self.group)
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.give_up_partitions()
            self.epoch = -1
