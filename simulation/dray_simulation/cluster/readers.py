"""A simulated consumer that assigns partitions to itself: it reads, seeks, asks for offsets, and commits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, cast

from dray.kafka.client.cluster import Address
from dray.kafka.protocol import ZERO_UUID, ErrorCode
from dray.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from dray.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from dray.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from dray.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from dray.kafka.records import HEADER_SIZE, Record, decode, read_header
from dray.log.types import Bounds
from dray_simulation.checks.group_truth import NOTHING, OffsetCommit
from dray_simulation.checks.history import EndAsked, Poll
from dray_simulation.checks.log_truth import TIMES, Violation
from dray_simulation.cluster.client import SimulatedClient, Unanswered
from dray_simulation.cluster.conditions import COMPACTED, MAIN, SPARE, Place

if TYPE_CHECKING:
    from dray_simulation.cluster.world import ClusterWorld

LATEST, EARLIEST, LARGEST_TIMESTAMP = -1, -2, -3
_GONE = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID}
_LATER = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
_COMMIT_LATER = "NOT_COORDINATOR COORDINATOR_NOT_AVAILABLE COORDINATOR_LOAD_IN_PROGRESS"
_COMMIT_UNKNOWN = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}


class Consumer(SimulatedClient):
    """The common part of readers and members of groups: polling and committing."""

    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self.sought: set[Place] = set()  # where the next poll does not go on from the last
        self._coordinator: dict[str, Address] = {}

    # --- polling

    async def poll(self, positions: Mapping[Place, int]) -> dict[Place, int | None]:
        """Fetch once from these positions; the new ones, None where one has to seek."""
        world = self.world
        before = {place: world.truth.bounds(*place) for place in positions}
        sent = world.now()
        first = next(iter(positions))
        answer = await self.ask(self.address_for(*first), self.fetch_request(positions))
        if answer.error_code:
            raise Violation(f"{self.name}: a fetch was refused with {ErrorCode.name_of(answer.error_code)}")
        names = {self.topic_ids.get(name, ZERO_UUID): name for name, _ in positions}
        following: dict[Place, int | None] = dict(positions)
        got: dict[Place, list[Record]] = {}
        failed = False
        for topic in answer.responses:
            name = topic.topic or names[topic.topic_id]
            for part in topic.partitions:
                place = (name, part.partition_index)
                if part.error_code:
                    failed = True
                    following[place] = self.judge_refusal(place, positions[place], before[place], part)
                else:
                    got[place] = self._records(place, positions[place], part)
        empty = not failed and not any(got.values())
        for place, records in got.items():
            position = positions[place]
            if empty and position < before[place].end and not world.truth.was_deleted(place[0]):
                raise Violation(f"{self.name}: nothing at {place}:{position}, below {before[place].end}")
            if records or empty:
                following[place] = self._polled(place, position, records, sent)
        return following

    def fetch_request(self, positions: Mapping[Place, int]) -> FetchRequest:
        topics: dict[str, FetchTopic] = {}
        for (name, partition), position in positions.items():
            topic = topics.setdefault(
                name, FetchTopic(topic_id=self.topic_ids.get(name, ZERO_UUID), topic=name)
            )
            topic.partitions.append(
                FetchPartition(
                    partition=partition,
                    fetch_offset=position,
                    partition_max_bytes=self.random.choice((1, 500, 1 << 20)),
                )
            )
        return FetchRequest(
            max_wait_ms=self.random.choice((50, 200)),
            min_bytes=1,
            max_bytes=1 << 20,
            topics=list(topics.values()),
        )

    def _records(self, place: Place, position: int, part: PartitionData) -> list[Record]:
        records: list[Record] = []
        data = memoryview(cast(bytes, part.records or b""))
        while len(data) >= HEADER_SIZE:
            size = read_header(data).size
            records += [record for record in decode(data[:size]).records() if record.offset >= position]
            data = data[size:]
        if records and records[0].offset != position:
            raise Violation(f"{self.name}: asked for {place}:{position}, got {records[0].offset}")
        return records

    def _polled(self, place: Place, position: int, records: Sequence[Record], sent: float) -> int:
        world = self.world
        stream = world.truth.stream(*place)
        if records:
            stream = world.truth.consumed(*place, records)
            world.counts["consumed"] += len(records)
        seen = tuple((record.offset, record.value) for record in records)
        world.history.polls.append(
            Poll(self.name, stream, position, seen, sent, world.now(), goes_on=place not in self.sought)
        )
        self.sought.discard(place)
        return records[-1].offset + 1 if records else position

    def judge_refusal(self, place: Place, position: int, before: Bounds, part: PartitionData) -> int | None:
        world, error = self.world, ErrorCode(part.error_code)
        world.errors[f"FetchRequest: {error.name}"] += 1
        if error in _LATER or (error in _GONE and place[0] in (MAIN, COMPACTED)):
            return position  # a broker may not have heard yet that a topic was made
        if error in _GONE:
            self.topic_ids.pop(place[0], None)
            return None
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            if world.truth.was_deleted(place[0]):
                return None
            if position < world.truth.bounds(*place).start:
                return None
        raise Violation(f"{self.name}: reading {place} at {position} failed: {error.name}, bounds {before}")

    # --- asking for offsets

    async def list_offset(self, place: Place, timestamp: int) -> tuple[int, int] | None:
        """The offset and timestamp that belong to a time; None where one has to ask again."""
        name, partition = place
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[ListOffsetsPartition(partition_index=partition, timestamp=timestamp)],
                )
            ],
        )
        world = self.world
        before, sent = world.truth.bounds(*place), world.now()
        answer = await self.ask(self.address_for(*place), request)
        part = answer.topics[0].partitions[0]
        if part.error_code:
            allowed = (
                "KAFKA_STORAGE_ERROR NOT_LEADER_OR_FOLLOWER LEADER_NOT_AVAILABLE UNKNOWN_TOPIC_OR_PARTITION"
            )
            world.expect(self.name, "ListOffsets", part.error_code, allowed)
            return None
        if not world.truth.was_deleted(name):
            self._judge_offset(place, timestamp, before, sent, part.offset, part.timestamp)
        return part.offset, part.timestamp

    def _judge_offset(
        self, place: Place, timestamp: int, before: Bounds, sent: float, offset: int, found: int
    ) -> None:
        world = self.world
        after, stream = world.truth.bounds(*place), world.truth.stream(*place)
        if timestamp == LATEST:
            if not before.end <= offset <= after.end:
                raise Violation(f"{self.name}: {place} ends at {offset}, not in {before.end}..{after.end}")
            world.history.ends.append(EndAsked(self.name, stream, offset, sent, world.now()))
        elif timestamp == EARLIEST:
            if not before.start <= offset <= after.start:
                raise Violation(
                    f"{self.name}: {place} starts at {offset}, not in {before.start}..{after.start}"
                )
        else:
            wanted = None if timestamp == LARGEST_TIMESTAMP else timestamp
            world.truth.found_by_time(stream, wanted, before, offset, found)

    # --- committed offsets

    async def commit(
        self, group: str, positions: Mapping[Place, int], member: str = "", epoch: int = -1
    ) -> ErrorCode:
        """Commit positions in the main topic; the worst error. Raises `Unanswered`."""
        world = self.world
        sending: dict[int, OffsetCommit] = {
            partition: world.committed.sending((group, partition), offset, world.now())
            for (_, partition), offset in positions.items()
        }
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[
                OffsetCommitRequestTopic(
                    topic_id=self.topic_ids.get(MAIN, ZERO_UUID),
                    name=MAIN,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=commit.offset,
                            committed_metadata=commit.name,
                        )
                        for partition, commit in sending.items()
                    ],
                )
            ],
        )
        outdated = self.outdated(group, epoch)
        others = world.owners(group).owners(world.now()) if member else {}
        answer = await self.ask(await self.coordinator(group), request)
        worst = ErrorCode.NONE
        for part in answer.topics[0].partitions:
            error = ErrorCode(part.error_code)
            if not error:
                owner = others.get(part.partition_index, self.name)
                if outdated or owner != self.name:
                    raise Violation(
                        f"{self.name} of epoch {epoch} committed {part.partition_index}, of {owner}"
                    )
                world.committed.acknowledged(sending[part.partition_index], world.now())
                world.counts["commits"] += 1
                continue
            worst = error
            if error not in _COMMIT_UNKNOWN:
                world.committed.refused(sending[part.partition_index])
        if worst is ErrorCode.NOT_COORDINATOR:
            self.forget_coordinator(group)
        return worst

    def outdated(self, group: str, epoch: int) -> bool:  # noqa: ARG002 - subclasses know
        """Whether a commit with this epoch, sent now, comes certainly too late."""
        return False

    async def committed(
        self, group: str, partitions: Sequence[int], member: str | None = None, epoch: int = -1
    ) -> dict[int, int] | None:
        """The committed offsets of partitions of the main topic, -1 for nothing; None: ask again."""
        world = self.world
        topic_id = self.topic_ids.get(MAIN, ZERO_UUID)
        request = OffsetFetchRequest(
            group_id=group,
            topics=[OffsetFetchRequestTopic(name=MAIN, partition_indexes=list(partitions))],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=group,
                    member_id=member,
                    member_epoch=epoch,
                    topics=[
                        OffsetFetchRequestTopics(
                            topic_id=topic_id, name=MAIN, partition_indexes=list(partitions)
                        )
                    ],
                )
            ],
        )
        sent = world.now()
        answer = await self.ask(await self.coordinator(group), request)
        of_group = answer.groups[0] if self.version(request) >= 8 else answer
        if of_group.error_code:
            if of_group.error_code == ErrorCode.NOT_COORDINATOR:
                self.forget_coordinator(group)
            allowed = f"{_COMMIT_LATER} UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH"
            world.expect(self.name, "OffsetFetch", of_group.error_code, allowed)
            return None
        found: dict[int, int] = {}
        for part in of_group.topics[0].partitions:
            if part.error_code:
                if part.error_code == ErrorCode.NOT_COORDINATOR:  # as the oldest versions say it
                    self.forget_coordinator(group)
                allowed = f"{_COMMIT_LATER} UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PARTITION"
                world.expect(self.name, "OffsetFetch", part.error_code, allowed)
                return None
            name = part.metadata or NOTHING
            world.committed.fetched((group, part.partition_index), name, part.committed_offset, sent)
            found[part.partition_index] = part.committed_offset
        return found

    async def coordinator(self, group: str) -> Address:
        """The broker to ask about a group. Raises `Unanswered` where no broker says."""
        known = self._coordinator.get(group)
        if known is None:
            known = await self.find_coordinator(group)
            if known is None:
                raise Unanswered("no coordinator")
            self._coordinator[group] = known
        return known

    def forget_coordinator(self, group: str) -> None:
        self._coordinator.pop(group, None)


class SimulatedReader(Consumer):
    """Reads everything from its start, again and again, through whichever broker, and keeps its place in a
    group of its own."""

    async def play(self) -> None:
        while True:
            try:
                await asyncio.sleep(self.random.random() * self.world.conditions.pace)
                await self.look_around(MAIN)
                await self._read_on()
            except Unanswered:
                self.forget_coordinator(self.group)

    @property
    def group(self) -> str:
        return f"alone-{self.name}"

    async def _read_on(self) -> None:
        """From the start of some partitions until it has seen enough, or must seek."""
        if SPARE in self.world.truth.named:
            await self.look_around(SPARE)
        known = [place for place in self.world.places if place[0] in self.topic_ids]
        places = self.random.sample(known, k=self.random.randint(min(1, len(known)), len(known)))
        positions: dict[Place, int] = {}
        for place in places:
            found = await self.list_offset(place, EARLIEST)
            if found is not None:
                positions[place] = found[0]
        self.sought.update(self.world.places)
        while positions and self.random.random() > 0.08:
            await asyncio.sleep(self.random.random() * self.world.conditions.pace)
            following = await self.poll(positions)
            positions = {place: offset for place, offset in following.items() if offset is not None}
            await self._look_aside(positions)

    async def _look_aside(self, positions: Mapping[Place, int]) -> None:
        chance = self.random.random()
        place = self.random.choice(self.world.places)
        main = {place: position for place, position in positions.items() if place[0] == MAIN}
        if chance < 0.15:
            await self.list_offset(place, LATEST)
        elif chance < 0.25:
            await self.list_offset(place, self.random.choice((EARLIEST, LARGEST_TIMESTAMP, *TIMES)))
        elif chance < 0.45 and main:
            error = await self.commit(self.group, main)
            if error:
                self.world.expect(
                    self.name,
                    "OffsetCommit",
                    error,
                    f"{_COMMIT_LATER} UNKNOWN_TOPIC_ID UNKNOWN_TOPIC_OR_PARTITION",
                )
        elif chance < 0.6 and main:
            await self.committed(self.group, [partition for _, partition in main])


# --- a consumer that comes back


class ReturningReader(Consumer):
    """It stops, comes back where it was, and finds that its records were deleted.

    Readers that go on are at the end within moments; deletions hardly ever meet them. This one remembers
    where it was before, waits, and asks the same broker for it, which leads the partition or not. Its records
    are held against the history: records below an acknowledged start are stale once the bound has passed."""

    def __init__(self, world: ClusterWorld, name: str, seed: int) -> None:
        super().__init__(world, name, seed)
        self._bound = world.conditions.deleted_within
        self._address = self.any_address()

    def address_for(self, topic: str, partition: int) -> Address:
        """The broker that led when it was here last: any serves any partition."""
        del topic, partition
        return self._address

    async def play(self) -> None:
        while True:
            try:
                await asyncio.sleep(self.random.random() * self.world.conditions.pace)
                await self.look_around(MAIN)
                await self._stay()
            except Unanswered:
                continue

    async def _stay(self) -> None:
        """Read a little of a partition, and come back to the same place a few times."""
        self._address = self.any_address()
        place = self.random.choice([place for place in self.world.places if place[0] == MAIN])
        found = await self.list_offset(place, EARLIEST)
        if found is None:
            return
        position: int | None = found[0]
        for _ in range(8):
            self.sought.add(place)
            try:
                position = (await self.poll({place: found[0]}))[place]
            except Unanswered:
                continue
            if position is None:
                self.world.counts["came back too late"] += 1
                return
            await asyncio.sleep(self.random.random() * self._bound)
