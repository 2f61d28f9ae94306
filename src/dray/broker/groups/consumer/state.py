"""A coordinator's view of a KIP-848 group: its settings, the topics that it sees, its members.

A state is never changed: a step builds the next one, and shares with it all that stayed the same. A step
costs a copy of the table of members, and a new member for each that changed. That also makes the question "is
there anything to persist" a comparison of identities.

Three parts of a group are not stored. `owned` and `static` follow from the members and are kept beside them
so that no step has to walk them all. `notes` are what this coordinator did lately; the next starts without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from dray.broker.groups.assignors import ASSIGNORS, NOTHING, Assignment


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    session_timeout_ms: int = 45_000
    session_timeout_minimum_ms: int = 45_000
    session_timeout_maximum_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    heartbeat_interval_minimum_ms: int = 5_000
    heartbeat_interval_maximum_ms: int = 15_000
    largest_group: int = 2**31 - 1
    largest_member_bytes: int = 1 << 20
    """Of the topics that a member names. Kafka stores them in one message of at most 1 MiB."""

    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is taken where no member names one."""

    regex_refresh_interval_ms: int = 600_000
    regex_refresh_pause_ms: int = 9_500
    """The least time between two resolutions of a group's patterns, however often topics come and go.

    Kafka's 10 s, less what the second heartbeat after a resolution may be early: a member counts from when
    it sent its first, which waited here until the group's lease was taken and its state was read. With 10 s
    it is left to milliseconds whether that heartbeat or the one after it finds a new topic.
    """

    def __post_init__(self) -> None:
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown or not self.assignors:
            raise ValueError(f"the assignors are {list(ASSIGNORS)}, not {list(self.assignors)}")
        for what, low, value, high in (
            (
                "session timeout",
                self.session_timeout_minimum_ms,
                self.session_timeout_ms,
                self.session_timeout_maximum_ms,
            ),
            (
                "heartbeat interval",
                self.heartbeat_interval_minimum_ms,
                self.heartbeat_interval_ms,
                self.heartbeat_interval_maximum_ms,
            ),
        ):
            if not 0 < low <= value <= high:
                raise ValueError(f"the {what} of {value} ms is not between {low} and {high} ms")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ValueError("a member must have time for more than one heartbeat in a session")
        if self.largest_group < 1:
            raise ValueError("a group must have room for a member")

    def for_group(
        self, session_timeout_ms: int | None = None, heartbeat_interval_ms: int | None = None
    ) -> ConsumerGroupSettings:
        """With what was set for one group, held between the minimum and the maximum."""
        if session_timeout_ms is None and heartbeat_interval_ms is None:
            return self
        session = self.session_timeout_ms if session_timeout_ms is None else session_timeout_ms
        heartbeat = self.heartbeat_interval_ms if heartbeat_interval_ms is None else heartbeat_interval_ms
        return replace(
            self,
            session_timeout_ms=min(
                max(session, self.session_timeout_minimum_ms), self.session_timeout_maximum_ms
            ),
            heartbeat_interval_ms=min(
                max(heartbeat, self.heartbeat_interval_minimum_ms), self.heartbeat_interval_maximum_ms
            ),
        )


class TopicShape(NamedTuple):
    topic_id: UUID
    partitions: int


class TopicsView(Protocol):
    @property
    def version(self) -> int:
        """Another number whenever a topic was created, deleted or has grown.

        A heartbeat compares this one number, and looks at topics only when it moved.
        """
        ...

    def shape(self, name: str) -> TopicShape | None: ...

    def name_of(self, topic_id: UUID) -> str | None: ...


class TopicsTable:
    """A view over a mapping that does not change any more."""

    def __init__(self, shapes: Mapping[str, TopicShape], version: int) -> None:
        self.version = version
        self._shapes = shapes
        self._names = {shape.topic_id: name for name, shape in shapes.items()}

    def shape(self, name: str) -> TopicShape | None:
        return self._shapes.get(name)

    def name_of(self, topic_id: UUID) -> str | None:
        return self._names.get(topic_id)


LEAVING: Final = -1
"""The member epoch that says "I leave"."""

AWAY: Final = -2
"""The member epoch of a static member that left, and may be back before its session ends."""


class MemberState(IntEnum):
    """Stored: never renumber."""

    STABLE = 0
    UNREVOKED = 1
    """It has to give up partitions, and has not said that it did."""

    UNRELEASED = 2
    """It is at the target's epoch, and waits for partitions that others have not given up."""


class GroupState(Enum):
    """The values are what clients see."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    server_assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=lambda: NOTHING)
    pending: Assignment = field(default_factory=lambda: NOTHING)
    """To be given up. It is the member's until the member says that it has done so."""

    target: Assignment = field(default_factory=lambda: NOTHING)
    stored: bytes | None = field(default=None, init=False, compare=False, repr=False)
    """The codec's result for it, so that to store a group again costs only its changes."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch


class CoordinatorNotes(NamedTuple):
    """The running coordinator's notes of its own work; lost at a takeover without harm."""

    topics_version: int | None = None
    """The view of the topics that `ConsumerGroup.topics` was last compared with."""

    resolved_version: int | None = None
    """The view of the topics that the patterns were last resolved on."""

    asked_ms: int | None = None
    """When the patterns were last asked after: at a heartbeat, whole intervals before the next ones."""

    resolving: bool = False


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    members: Mapping[str, Member] = field(default_factory=dict)
    topics: Mapping[str, TopicShape] = field(default_factory=dict)
    """The subscribed topics that exist, as they were when the group epoch was last decided."""

    patterns: Mapping[str, frozenset[str] | None] = field(default_factory=dict)
    """Every pattern that a member subscribes to, and the topic names it stands for: None until resolved."""

    owned: Mapping[UUID, frozenset[int]] = field(default_factory=dict, compare=False)
    static: Mapping[str, str] = field(default_factory=dict, compare=False)
    notes: CoordinatorNotes = field(default=CoordinatorNotes(), compare=False)

    @property
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def stored_alike(self, other: ConsumerGroup) -> bool:
        """Whether nothing that is stored differs, of two states of which one was made from the other."""
        return (
            self.members is other.members
            and self.epoch == other.epoch
            and self.assignment_epoch == other.assignment_epoch
            and self.topics is other.topics
            and self.patterns is other.patterns
        )

    def with_member(self, member: Member) -> ConsumerGroup:
        """With one more member, or another state of one that is there."""
        before = self.members.get(member.member_id)
        if before is member:
            return self
        members = dict(self.members)
        members[member.member_id] = member
        return replace(
            self,
            members=members,
            owned=_owned_after(self.owned, before, member),
            static=_static_after(self.static, before, member),
        )

    def with_targets(self, targets: Mapping[str, Assignment], assignment_epoch: int) -> ConsumerGroup:
        members = {
            member_id: member
            if targets[member_id] is member.target
            else replace(member, target=targets[member_id])
            for member_id, member in self.members.items()
        }
        return replace(self, members=members, assignment_epoch=assignment_epoch)

    def without_members(self, gone: Iterable[Member]) -> ConsumerGroup:
        members = dict(self.members)
        owned, static = self.owned, self.static
        for member in gone:
            del members[member.member_id]
            owned = _owned_after(owned, member, None)
            static = _static_after(static, member, None)
        return replace(self, members=members, owned=owned, static=static)


def assembled(
    group_id: str,
    epoch: int,
    assignment_epoch: int,
    members: Iterable[Member],
    topics: Mapping[str, TopicShape],
    patterns: Mapping[str, frozenset[str] | None],
) -> ConsumerGroup:
    """A group from what is stored of it."""
    table = {member.member_id: member for member in members}
    owned: dict[UUID, set[int]] = {}
    for member in table.values():
        for held in (member.assigned, member.pending):
            for topic_id, partitions in held.items():
                owned.setdefault(topic_id, set()).update(partitions)
    return ConsumerGroup(
        group_id=group_id,
        epoch=epoch,
        assignment_epoch=assignment_epoch,
        members=table,
        topics=topics,
        patterns=patterns,
        owned={topic_id: frozenset(partitions) for topic_id, partitions in owned.items()},
        static={
            member.instance_id: member.member_id
            for member in table.values()
            if member.instance_id is not None
        },
    )


def _owned_after(
    owned: Mapping[UUID, frozenset[int]], before: Member | None, after: Member | None
) -> Mapping[UUID, frozenset[int]]:
    old = (NOTHING, NOTHING) if before is None else (before.assigned, before.pending)
    new = (NOTHING, NOTHING) if after is None else (after.assigned, after.pending)
    if old[0] is new[0] and old[1] is new[1]:
        return owned
    changed = dict(owned)
    for topic_id in {topic_id for held in (*old, *new) for topic_id in held}:
        freed = old[0].get(topic_id, _NONE) | old[1].get(topic_id, _NONE)
        taken = new[0].get(topic_id, _NONE) | new[1].get(topic_id, _NONE)
        if freed == taken:
            continue
        partitions = changed.get(topic_id, _NONE)
        assert not (partitions - freed) & taken, "a partition would have two owners"
        partitions = (partitions - freed) | taken
        if partitions:
            changed[topic_id] = partitions
        else:
            changed.pop(topic_id, None)
    return changed


def _static_after(
    static: Mapping[str, str], before: Member | None, after: Member | None
) -> Mapping[str, str]:
    old = None if before is None else before.instance_id
    new = None if after is None else after.instance_id
    if old == new:
        return static
    changed = dict(static)
    if old is not None:
        del changed[old]
    if new is not None and after is not None:
        changed[new] = after.member_id
    return changed


_NONE: Final[frozenset[int]] = frozenset()
