"""Events of a classic group, its answers, and its requests to the outside.

Joins and syncs are parked until others have come too, so one event may answer many requests, or none. An
answer finds its request by the token that came with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from dray.broker.groups.classic.state import NO_ASSIGNMENT, ClassicGroup, Protocol, Token
from dray.kafka.protocol import ErrorCode

# --- the result of one step: the next state, and what goes out with it

State_co = TypeVar("State_co", covariant=True)
Effect_co = TypeVar("Effect_co", covariant=True)


class Reply(NamedTuple):
    token: Any
    """The token by which the caller knows the request."""

    answer: Any


class Result(NamedTuple, Generic[State_co, Effect_co]):
    group: State_co
    """The state from now on; None while there is no group."""

    replies: Sequence[Reply] = ()
    """One for each request that is answered by this step. A step may answer many requests, or none."""

    persist: bool = False
    """Whether the new state must be stored before the replies leave and the effects happen; where it is None,
    the group must be deleted from the store."""

    effects: Sequence[Effect_co] = ()


# --- events


class TimerKind(Enum):
    SESSION = "session"
    """Of one member: it was not heard of for too long. Also of an id that was handed out and not used."""

    JOIN = "join"
    """Of the group: no more waiting for members that have not rejoined."""

    SYNC = "sync"
    """Of the group: no more waiting for members that have not asked for their assignment."""


# Events


class Join(NamedTuple):
    token: Token
    group_id: str
    member_id: str
    version: int
    """Of the API: from 4 on a client must come again with the id it is given, from 9 on the answer can
    say to skip the assignment."""

    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Sequence[tuple[str, bytes]]
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    fresh_member_id: str = ""
    """Made by the caller where `member_id` is empty: the instance id, or else the client id, then `-` and a
    UUID. It is the new member's id, if one is needed."""


class Sync(NamedTuple):
    token: Token
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    """None where the version of the API does not carry it; so is the name."""

    protocol_name: str | None = None
    assignments: Sequence[tuple[str, bytes]] = ()
    """(member id, assignment), by the leader."""


class Heartbeat(NamedTuple):
    token: Token
    group_id: str
    member_id: str
    generation: int
    instance_id: str | None = None


class Leave(NamedTuple):
    token: Token
    group_id: str
    members: Sequence[tuple[str, str | None]]
    """(member id, instance id) of each. An administrator names a static member by its instance id alone."""


class CommitCheck(NamedTuple):
    """May this member commit offsets now? The offsets themselves are the caller's to check and to store."""

    token: Token
    group_id: str
    member_id: str
    generation: int
    version: int
    instance_id: str | None = None


class DeleteGroup(NamedTuple):
    token: Token


class TimerFired(NamedTuple):
    """A timer ran out that was neither cancelled nor scheduled anew since."""

    kind: TimerKind
    member_id: str = ""


class TakenOver(NamedTuple):
    """The state was loaded by a coordinator that did not make it. The first event it gives the group."""


Event: TypeAlias = Join | Sync | Heartbeat | Leave | CommitCheck | DeleteGroup | TimerFired | TakenOver


# Answers


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinAnswer(NamedTuple):
    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()
    """For the leader, who assigns to them."""


class SyncAnswer(NamedTuple):
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = NO_ASSIGNMENT


class LeaveAnswer(NamedTuple):
    error: ErrorCode
    members: tuple[tuple[str, str | None, ErrorCode], ...] = ()
    """(member id, instance id, error) of each that was named, in that order."""


class ErrorAnswer(NamedTuple):
    """The answer to a heartbeat, a commit or a deletion."""

    error: ErrorCode


Answer: TypeAlias = JoinAnswer | SyncAnswer | LeaveAnswer | ErrorAnswer


# Effects


class ScheduleTimer(NamedTuple):
    """Replaces the timer of that kind and member. When it runs out: `TimerFired(kind, member_id)`."""

    kind: TimerKind
    member_id: str
    """Empty for the timers of the whole group."""

    at_ms: int


class CancelTimer(NamedTuple):
    kind: TimerKind
    member_id: str


Effect: TypeAlias = ScheduleTimer | CancelTimer


ClassicResult: TypeAlias = Result[ClassicGroup | None, Effect]


def protocols_of(pairs: Sequence[tuple[str, bytes]]) -> tuple[Protocol, ...]:
    """Each protocol once: the vote counts members by name."""
    first: dict[str, bytes] = {}
    for name, metadata in pairs:
        first.setdefault(name, metadata)
    return tuple(Protocol(name, metadata) for name, metadata in first.items())
