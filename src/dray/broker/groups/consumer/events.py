"""Events of a group, its answers, and its requests to the outside.

These are tuples, not messages: answers are built ten thousand times a second, and the wire is not known here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from dray.broker.groups.assignors import Assignment
from dray.broker.groups.consumer.state import ConsumerGroup
from dray.kafka.protocol import ErrorCode

OwnedPartitions: TypeAlias = Sequence[tuple[UUID, Sequence[int]]]


class TimerKind(Enum):
    SESSION = "session"
    """The member sent no heartbeat for too long."""

    REBALANCE = "rebalance"
    """The member did not give up what it had to."""


# Events


MayDescribe: TypeAlias = Callable[[str], bool]
"""Whether the client that asks may see a topic of this name. It is handed on and never called by the machine;
None where clients are not authorized."""


class Heartbeat(NamedTuple):
    """A ConsumerGroupHeartbeat request. A field left out is None, or -1 for the rebalance timeout."""

    group_id: str
    member_id: str
    member_epoch: int
    version: int
    """Of the API: from 1 on, clients make their member ids themselves."""

    client_id: str
    client_host: str
    fresh_member_id: str = ""
    """Made by the caller, for a version 0 client that brings none."""

    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: Sequence[str] | None = None
    topic_regex: str | None = None
    regex_is_judged: bool = False
    regex_fault: str | None = None
    """Why `topic_regex` is not a pattern. The matcher lives outside: see `PATTERN_UNJUDGED`."""

    server_assignor: str | None = None
    owned: OwnedPartitions | None = None
    may_describe: MayDescribe | None = None


class RemoveMembers(NamedTuple):
    """LeaveGroup on this group, as the admin client sends it: (member id, instance id) of each."""

    members: Sequence[tuple[str, str | None]]


class TimerFired(NamedTuple):
    """A timer ran out that was neither cancelled nor scheduled anew since."""

    kind: TimerKind
    member_id: str
    member_epoch: int


class PatternsResolved(NamedTuple):
    """The answer to `ResolvePatterns`; without any pattern in it when that failed, to be asked again."""

    topic_names: Mapping[str, frozenset[str]]
    topics_version: int


Event: TypeAlias = Heartbeat | RemoveMembers | TimerFired | PatternsResolved


# Effects


class ScheduleTimer(NamedTuple):
    """Replaces the member's timer of that kind. When it runs out: `TimerFired` with the same three values."""

    kind: TimerKind
    member_id: str
    at_ms: int
    member_epoch: int


class CancelTimer(NamedTuple):
    kind: TimerKind
    member_id: str


class ResolvePatterns(NamedTuple):
    """Find the topic names that match each of these whole, and come back with `PatternsResolved`. As in
    Kafka, the patterns of all members stand for what the one may see whose heartbeat had them resolved."""

    patterns: frozenset[str]
    may_describe: MayDescribe | None = None


Effect: TypeAlias = ScheduleTimer | CancelTimer | ResolvePatterns


# Answers


class HeartbeatAnswer(NamedTuple):
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None
    """None where the member knows it already."""


class RemovalAnswer(NamedTuple):
    errors: tuple[ErrorCode, ...]
    """One for each member that was named, in that order."""


class Refusal(NamedTuple):
    error: ErrorCode
    message: str


PATTERN_UNJUDGED: Final = Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, "the pattern was not looked at")
"""The machine would take the member, but has not heard whether its pattern is one: the caller finds out and
asks again. So a client that is refused anyway has nothing compiled."""

Answer: TypeAlias = HeartbeatAnswer | RemovalAnswer | Refusal


class ConsumerResult(NamedTuple):
    """Of one event, or of several heartbeats together."""

    group: ConsumerGroup | None
    """The state from now on; None while there is no group."""

    answers: Sequence[Answer] = ()
    """One for each request, in their order; none for what happens by itself."""

    persist: bool = False
    """Whether the new state must be stored before the answers leave and the effects happen."""

    effects: tuple[Effect, ...] = ()

    @property
    def answer(self) -> Answer | None:
        """Of a step with one request at most."""
        return self.answers[0] if self.answers else None
