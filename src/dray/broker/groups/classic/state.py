"""A coordinator's view of a classic group, and the settings that it works by.

A state is never changed: a step builds the next one, and shares with it all that stayed the same. So a step
that could not be stored leaves nothing to undo.

Only part of it is stored (see the codec). Parked requests, pending members and the initial delay so far are
the running coordinator's own; the next one starts without, and the clients come again. `static`, `support`
and the counts follow from the members, and are kept beside them so that no join has to walk them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from dray.kafka.protocol import DecodeError
from dray.kafka.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription


@dataclass(frozen=True, slots=True)
class ClassicGroupSettings:
    session_timeout_minimum_ms: int = 6_000
    session_timeout_maximum_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    """How long the first member of an empty group waits for others, so that they share one rebalance."""

    new_member_join_timeout_ms: int = 300_000
    """How long the join of a new member is parked at most. It cannot send heartbeats yet, and one that gave
    up and came again under another id must not be waited for."""

    largest_group: int = 2**31 - 1
    largest_member_bytes: int = 1 << 20
    """Of one member. Kafka stores a group in one message of at most 1 MiB: a larger member never gets its
    assignment there either."""

    largest_group_bytes: int = 16 << 20
    """Of all members. A coordinator sets it to what the store holds."""

    def __post_init__(self) -> None:
        if not 0 < self.session_timeout_minimum_ms <= self.session_timeout_maximum_ms:
            raise ValueError(
                f"the least session timeout of {self.session_timeout_minimum_ms} ms is not between 1 and the "
                f"greatest, {self.session_timeout_maximum_ms} ms"
            )
        if self.initial_rebalance_delay_ms < 0:
            raise ValueError("the initial rebalance delay cannot be negative")
        if self.new_member_join_timeout_ms < 1:
            raise ValueError("a new member must have time to join")
        if self.largest_group < 1:
            raise ValueError("a group must have room for a member")

    def held_by(self, value_bytes: int) -> ClassicGroupSettings:
        """For a store whose values may be so large: a group is one value."""
        member_bytes = min(self.largest_member_bytes, value_bytes)
        return replace(self, largest_group_bytes=value_bytes, largest_member_bytes=member_bytes)


Token: TypeAlias = object
"""Whatever the caller knows a request by; it comes back with the answer. Never None."""

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers: the only one whose metadata the coordinator ever looks into."""

NO_ASSIGNMENT: Final = b""


class GroupState(Enum):
    """The values are what clients see."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    """Joins are parked until all members are here, or the time is up."""

    COMPLETING = "CompletingRebalance"
    """The generation is settled; its leader has not said who gets what."""

    STABLE = "Stable"
    DEAD = "Dead"
    """How a group is called that does not exist. No group is ever in this state."""


class Protocol(NamedTuple):
    name: str
    metadata: bytes


class InitialDelay(NamedTuple):
    """How far the wait for the first members of a group has come."""

    delay_ms: int
    """The delay that is running."""

    remaining_ms: int
    """The time by which it may still be extended, once it is over."""

    member_came: bool
    """Whether someone came while it was running, which is what extends it."""


@dataclass(frozen=True, slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """In the order of the member's preference; no name twice."""

    assignment: bytes = NO_ASSIGNMENT
    parked_join: Token | None = None
    parked_sync: Token | None = None
    is_new: bool = False
    """It has not had an answer to its join yet, and so cannot send heartbeats."""

    owes_sync: bool = False
    """It knows of this generation, and has not asked for its assignment."""

    size: int = field(default=0, compare=False)
    """The memory that it takes, as `size_of` counts it."""

    def metadata(self, protocol_name: str | None) -> bytes | None:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        return None


_BYTES_BESIDE: Final = 256
"""The bytes that are kept for the smallest member, or for an id that was handed out."""


def size_of(member_id: str, instance_id: str | None, client_id: str, protocols: Iterable[Protocol]) -> int:
    """All that a client may make as long as it likes. Its assignment comes with the leader's."""
    named = len(member_id) + len(instance_id or "") + len(client_id)
    return _BYTES_BESIDE + named + sum(len(each.name) + len(each.metadata) for each in protocols)


@dataclass(frozen=True, slots=True)
class ClassicGroup:
    group_id: str
    since_ms: int
    """When it came into its present state. From there on the offsets of an empty group grow old."""

    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    """None for a simple group: one that never had members, only offsets."""

    protocol_name: str | None = None
    leader_id: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)

    pending: frozenset[str] = frozenset()
    """Ids that were handed out with MEMBER_ID_REQUIRED and have not joined yet."""

    initial_delay: InitialDelay | None = None
    """Of a rebalance that began with an empty group; then only the timer completes it."""

    subscribed_topics: frozenset[str] | None = None
    """Of this generation; None where that cannot be known."""

    static: Mapping[str, str] = field(default_factory=dict)
    """Member ids by instance id."""

    support: Mapping[str, int] = field(default_factory=dict)
    """How many members know each protocol."""

    parked_joins: int = 0
    owed_syncs: int = 0
    size: int = field(default=0, compare=False)
    """Of its members, and of the ids that are pending."""

    @property
    def has_everyone_joined(self) -> bool:
        return self.parked_joins == len(self.members) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The time that the slowest member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def is_subscribed_to(self, topic: str) -> bool:
        """If the subscriptions cannot be read, every topic counts as subscribed to."""
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.subscribed_topics

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Whether a member could join with these. It then has one protocol at least in common with all."""
        if self.state is GroupState.EMPTY:
            return bool(protocol_type) and any(True for _ in protocols)
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.support.get(protocol.name, 0) == everyone for protocol in protocols
        )

    def with_pending(self, member_id: str) -> ClassicGroup:
        size = self.size + len(member_id) + _BYTES_BESIDE
        return replace(self, pending=self.pending | {member_id}, size=size)

    def without_pending(self, member_id: str) -> ClassicGroup:
        if member_id not in self.pending:
            return self
        size = self.size - len(member_id) - _BYTES_BESIDE
        return replace(self, pending=self.pending - {member_id}, size=size)

    def with_member(self, member: Member) -> ClassicGroup:
        """With one more member, or another state of one that is there."""
        before = self.members.get(member.member_id)
        members = dict(self.members)
        members[member.member_id] = member
        return self._changed(members, before, member)

    def without_member(self, member: Member) -> ClassicGroup:
        members = dict(self.members)
        del members[member.member_id]
        left = self._changed(members, member, None)
        if self.leader_id == member.member_id:
            return replace(left, leader_id=next(iter(members), None))
        return left

    def with_replaced(self, before: Member, after: Member) -> ClassicGroup:
        """A static member under its new id, at its old place."""
        members = {
            (after.member_id if member is before else member_id): (after if member is before else member)
            for member_id, member in self.members.items()
        }
        changed = self._changed(members, before, after)
        if self.leader_id == before.member_id:
            return replace(changed, leader_id=after.member_id)
        return changed

    def with_members(self, members: Iterable[Member]) -> ClassicGroup:
        """With these members and no others."""
        table = {member.member_id: member for member in members}
        support: dict[str, int] = {}
        for member in table.values():
            for protocol in member.protocols:
                support[protocol.name] = support.get(protocol.name, 0) + 1
        return replace(
            self,
            members=table,
            static={
                member.instance_id: member.member_id
                for member in table.values()
                if member.instance_id is not None
            },
            support=support,
            parked_joins=sum(member.parked_join is not None for member in table.values()),
            owed_syncs=sum(member.owes_sync for member in table.values()),
            size=sum(member.size for member in table.values())
            + sum(len(member_id) + _BYTES_BESIDE for member_id in self.pending),
        )

    def _changed(
        self, members: Mapping[str, Member], before: Member | None, after: Member | None
    ) -> ClassicGroup:
        """With this table of members, of which one is new, gone or another."""
        return replace(
            self,
            members=members,
            static=_static_after(self.static, before, after),
            support=_support_after(self.support, before, after),
            parked_joins=self.parked_joins
            - (before is not None and before.parked_join is not None)
            + (after is not None and after.parked_join is not None),
            owed_syncs=self.owed_syncs
            - (before is not None and before.owes_sync)
            + (after is not None and after.owes_sync),
            size=self.size - (0 if before is None else before.size) + (0 if after is None else after.size),
        )


def _static_after(
    static: Mapping[str, str], before: Member | None, after: Member | None
) -> Mapping[str, str]:
    old = None if before is None else before.instance_id
    if old is None and (after is None or after.instance_id is None):
        return static
    changed = dict(static)
    if old is not None:
        del changed[old]
    if after is not None and after.instance_id is not None:
        changed[after.instance_id] = after.member_id
    return changed


def _support_after(
    support: Mapping[str, int], before: Member | None, after: Member | None
) -> Mapping[str, int]:
    old = () if before is None else before.protocols
    new = () if after is None else after.protocols
    if old is new:
        return support
    changed = dict(support)
    for protocol in old:
        changed[protocol.name] -= 1
        if not changed[protocol.name]:
            del changed[protocol.name]
    for protocol in new:
        changed[protocol.name] = changed.get(protocol.name, 0) + 1
    return changed


# --- subscriptions: the one thing that is read out of the members' metadata
#
# Metadata is whatever a client sends. What cannot be read makes the group's topics unknown, which counts as
# subscribed to everything: then no offset is deleted or expires that a member may still need.

_VERSION_SIZE = 2

_MOST_TOPICS_READ: Final = 100_000
"""In the metadata of all members of a group together: thirty milliseconds. One member has room for half a
million names of nothing."""


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """None where that cannot be known."""
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    # Mostly all members name the same topics, each with more of its own behind: those are read once.
    last_read = b""
    left = _MOST_TOPICS_READ
    for member in group.members.values():
        metadata = member.metadata(group.protocol_name)
        if metadata is None:
            return None
        if last_read and metadata.startswith(last_read, _VERSION_SIZE):
            continue
        named = _topics_in(metadata, left)
        if named is None:
            return None
        left -= len(named)
        topics.update(named)
        last_read = metadata[_VERSION_SIZE : _VERSION_SIZE + _size_of(named)]
    return frozenset(topics)


def _topics_in(metadata: bytes, most: int) -> list[str] | None:
    """None where they cannot be read, or are too many. Every version of a subscription starts as version 0
    does, so even one of the future can be read."""
    if len(metadata) < _VERSION_SIZE:
        return None
    try:
        subscription, _ = ConsumerProtocolSubscription.decode(memoryview(metadata), _VERSION_SIZE, 0, most)
    except DecodeError:
        return None
    return subscription.topics


def _size_of(topics: list[str]) -> int:
    """Of the list of topics as it is encoded: its length, then each with its own."""
    return 4 + sum(2 + len(topic.encode()) for topic in topics)
