"""Simulated members of groups, classic and of KIP-848. Between rebalances both do the same: they read from
where the group is, and commit how far they got.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import UUID

from dray.kafka.protocol import ApiKey, ErrorCode
from dray.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from dray.kafka.protocol.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    TopicPartition,
)
from dray.kafka.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from dray.kafka.protocol.messages.heartbeat import HeartbeatRequest
from dray.kafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from dray.kafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from dray.kafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from dray_simulation.checks.log_truth import Violation
from dray_simulation.cluster.client import Unanswered
from dray_simulation.cluster.conditions import MAIN, Place
from dray_simulation.cluster.readers import EARLIEST, Consumer

if TYPE_CHECKING:
    from dray_simulation.cluster.world import ClusterWorld

_LATER = "NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS"
OUTDATED = "ILLEGAL_GENERATION UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH REBALANCE_IN_PROGRESS"
UNKNOWN = "UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PARTITION"


class GroupMember(Consumer):
    """Subclasses say how one joins, stays and leaves."""

    group = ""

    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self.member_id = ""
        self.epoch = -1  # or generation
        self.positions: dict[Place, int] = {}
        self.owned: set[int] = set()

    @property
    def is_member(self) -> bool:
        raise NotImplementedError

    async def stay(self) -> None:
        """Join, or give a sign of life, and do what the answer says."""
        raise NotImplementedError

    async def leave(self, member_id: str) -> None:
        raise NotImplementedError

    def give_up_partitions(self) -> None:
        """Own nothing any more."""
        self.world.owners(self.group).give_up(self.name)
        self.owned = set()
        self.positions = {}

    async def play(self) -> None:
        conditions = self.world.conditions
        while not await self._is_known():
            continue
        beat_every = conditions.session_timeout / 6
        beat_at = 0.0
        while True:
            await asyncio.sleep(self.random.random() * conditions.pace)
            try:
                restless = self.is_member and not self.world.calm
                if restless and self.random.random() < conditions.restless * conditions.pace:
                    await self._go_away()
                if self.world.now() >= beat_at or not self.is_member:
                    beat_at = self.world.now() + beat_every
                    await self.stay()
                if self.owned:
                    await self.work()
            except Unanswered:
                self.forget_coordinator(self.group)

    async def _is_known(self) -> bool:
        await asyncio.sleep(0.01)
        try:
            return await self.look_around(MAIN)
        except Unanswered:
            return False

    async def _go_away(self) -> None:
        """Leave, or die and come back as another member."""
        self.give_up_partitions()
        member_id, self.member_id, self.epoch = self.member_id, "", -1
        if self.random.random() < 0.5:
            self.world.counts["members left"] += 1
            self.world.trace(self.name, "leaves")
            await self.leave(member_id)
        else:
            self.world.counts["! member crashed"] += 1
            self.world.trace(self.name, "dies")
            self.disconnect()
        await asyncio.sleep(self.random.random() * 0.3)

    def took(self, partitions: set[int], heard_since: float) -> None:
        """These are ours, by an answer to what was sent at that time, and no others."""
        owners = self.world.owners(self.group)
        owners.give_up(self.name, self.owned - partitions)
        until = heard_since + self.world.conditions.session_timeout
        owners.take(self.name, partitions, self.world.now(), until)
        if partitions != self.owned:
            self.world.counts["assignments"] += 1
            self.world.trace(self.name, "owns", sorted(partitions))
        self.owned = partitions
        self.positions = {place: at for place, at in self.positions.items() if place[1] in partitions}

    def still_there(self, heard_since: float) -> None:
        until = heard_since + self.world.conditions.session_timeout
        self.world.owners(self.group).confirm(self.name, until)

    # --- reading and committing

    async def work(self) -> None:
        missing = [partition for partition in sorted(self.owned) if (MAIN, partition) not in self.positions]
        if missing:
            await self._find_places(missing)
        if not self.positions:
            return
        following = await self.poll(self.positions)
        owned = self.owned
        for place, position in following.items():
            if place[1] not in owned:
                continue
            if position is None:
                del self.positions[place]
            else:
                self.positions[place] = position
        if self.positions and self.random.random() < 0.4:
            await self._commit()

    async def _find_places(self, partitions: list[int]) -> None:
        found = await self.committed(self.group, partitions, self.member_id or None, self.epoch)
        for partition, offset in (found or {}).items():
            place = (MAIN, partition)
            position = offset
            if offset < self.world.truth.bounds(*place).start:
                earliest = await self.list_offset(place, EARLIEST)
                if earliest is None:
                    continue
                position = earliest[0]
            if partition in self.owned:
                self.sought.add(place)
                self.positions[place] = position

    async def _commit(self) -> None:
        error = await self.commit(self.group, self.positions, self.member_id, self.epoch)
        if error:
            self.world.expect(self.name, "OffsetCommit", error, f"{_LATER} {OUTDATED} {UNKNOWN}")
            if error is ErrorCode.UNKNOWN_MEMBER_ID:
                self.give_up_partitions()
                self.member_id, self.epoch = "", -1


# --- of a classic group: it joins, gives signs of life, and rebalances eagerly

_JOIN_LATER = "NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS REBALANCE_IN_PROGRESS"
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
        """A commit of records that the application still had in hand at the rebalance: refused, as that is
        over."""
        self._behind = None
        error = await self.commit(self.group, positions, self.member_id, generation)
        if error:
            self.world.expect(self.name, "OffsetCommit", error, f"{_JOIN_LATER} {OUTDATED} {UNKNOWN}")

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
        allowed = f"{_JOIN_LATER} ILLEGAL_GENERATION UNKNOWN_MEMBER_ID MEMBER_ID_REQUIRED"
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


# --- of a KIP-848 group: it sends heartbeats, and takes and gives up what the answers say

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
        allowed = f"{_LATER} UNKNOWN_MEMBER_ID FENCED_MEMBER_EPOCH GROUP_ID_NOT_FOUND"
        self.world.expect(self.name, "ConsumerGroupHeartbeat", answer.error_code, allowed)
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NOT_COORDINATOR:
            self.forget_coordinator(self.group)
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.give_up_partitions()
            self.epoch = -1
        elif error is ErrorCode.GROUP_ID_NOT_FOUND:
            # All members have expired, and the sweep came before the first commit. Epochs begin anew.
            self.give_up_partitions()
            self.epoch = -1
            self.world.generations[self.group] = 0
