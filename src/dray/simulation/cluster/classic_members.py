"""A simulated member of a classic group: it joins, gives signs of life, and rebalances eagerly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dray.protocol import ErrorCode
from dray.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from dray.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from dray.protocol.messages.heartbeat import HeartbeatRequest
from dray.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from dray.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dray.simulation.checks.log_truth import Violation
from dray.simulation.cluster.members import OUTDATED, UNKNOWN, GroupMember
from dray.simulation.cluster.topics import MAIN, Place

if TYPE_CHECKING:
    from dray.simulation.cluster.world import ClusterWorld

_LATER = "NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS REBALANCE_IN_PROGRESS"
_SUBSCRIPTION = ConsumerProtocolSubscription(topics=[MAIN])


class ClassicMember(GroupMember):
    group = "classics"

    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self._behind: tuple[int, dict[Place, int]] | None = None  # an older generation, and how far it got

    @property
    def is_member(self) -> bool:
        return self.epoch >= 0

    async def stay(self) -> None:
        if self.is_member:
            await self._beat()
        else:
            await self._join()

    async def leave(self, member_id: str) -> None:
        request = LeaveGroupRequest(
            group_id=self.group, member_id=member_id, members=[MemberIdentity(member_id=member_id)]
        )
        await self.ask(await self.coordinator(self.group), request)

    async def _join(self) -> None:
        """Eager: a member that joins again owns nothing until its sync is answered."""
        timeout = round(self.world.conditions.session_timeout * 1000)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=timeout,
            rebalance_timeout_ms=round(1.2 * timeout),
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", bytes([0, 1]) + b"".join(_SUBSCRIPTION.encode(1)))],
        )
        patience = 1.5 * self.world.conditions.session_timeout
        joined = await self.ask(await self.coordinator(self.group), request, patience)
        if joined.error_code:
            self._refused("JoinGroup", joined.error_code)
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            return
        self.member_id = joined.member_id
        self._hear_generation(joined.generation_id)
        await self._synchronise(joined, patience)
        if self._behind is not None and self.random.random() < 0.5:
            await self._commit_late(*self._behind)

    async def _commit_late(self, generation: int, positions: dict[Place, int]) -> None:
        """What the application had in hand when the rebalance came: refused, since that is over."""
        self._behind = None
        error = await self.commit(self.group, positions, self.member_id, generation)
        if error:
            self.world.expect(self.name, "OffsetCommit", error, f"{_LATER} {OUTDATED} {UNKNOWN}")

    def _hear_generation(self, generation: int) -> None:
        known = self.world.generations[self.group]
        if generation < known:
            raise Violation(f"{self.name}: generation {generation} after {known}")
        if generation > known > 0:
            self.world.counts["rebalances"] += 1
        self.world.generations[self.group] = generation
        self.world.trace(self.name, "joined generation", generation)

    async def _synchronise(self, joined: JoinGroupResponse, patience: float) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self._assign(joined),
        )
        sent = self.world.now()
        synced = await self.ask(await self.coordinator(self.group), request, patience)
        if synced.error_code:
            self._refused("SyncGroup", synced.error_code)
            return
        self.epoch = joined.generation_id
        partitions: set[int] = set()
        if synced.assignment:
            assignment, _ = ConsumerProtocolAssignment.decode(memoryview(synced.assignment), 2, 1)
            partitions = {number for topic in assignment.assigned_partitions for number in topic.partitions}
        self.took(partitions, sent)

    def _assign(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """By the leader, for all: each its share."""
        members = sorted(member.member_id for member in joined.members)
        found = []
        for number, member_id in enumerate(members):
            share = list(range(number, self.world.conditions.partitions, len(members)))
            assignment = ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(MAIN, share)])
            found.append(
                SyncGroupRequestAssignment(member_id, bytes([0, 1]) + b"".join(assignment.encode(1)))
            )
        return found

    def outdated(self, group: str, epoch: int) -> bool:
        """A member has got an answer of a newer generation: this one is over."""
        return epoch < self.world.generations[group]

    async def _beat(self) -> None:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        sent = self.world.now()
        answer = await self.ask(await self.coordinator(self.group), request)
        if answer.error_code:
            self._refused("Heartbeat", answer.error_code)
        else:
            self.still_there(sent)

    def _refused(self, what: str, code: int) -> None:
        allowed = f"{_LATER} ILLEGAL_GENERATION UNKNOWN_MEMBER_ID MEMBER_ID_REQUIRED"
        self.world.expect(self.name, what, code, allowed)
        error = ErrorCode(code)
        if error is ErrorCode.NOT_COORDINATOR:
            self.forget_coordinator(self.group)
        elif error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            if self.is_member and self.positions:
                self._behind = (self.epoch, self.positions)
            self.give_up_partitions()
            self.epoch = -1
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.give_up_partitions()
            self.member_id, self.epoch = "", -1
