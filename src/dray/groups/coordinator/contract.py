"""What the coordinator takes and gives: its settings, its observer, and why a group does not answer."""

from __future__ import annotations

from dataclasses import dataclass

from dray.groups.classic import ClassicGroupSettings
from dray.groups.consumer import ConsumerGroupSettings
from dray.protocol import ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSettings:
    classic: ClassicGroupSettings
    consumer: ConsumerGroupSettings
    session_ttl: float
    """How long after a broker's last sign of life another may take over its groups."""

    largest_metadata: int
    offset_retention_ms: int
    sweep_interval: float
    """Seconds between looks for offsets that have expired."""

    memory_groups: int
    """How many groups without members stay in memory; the longest unused go first."""

    topic_interval: float = 0.5
    """Seconds between looks for topics that came, went or grew."""


class GroupsObserver:
    """Listens to nothing; a node's own overrides what it measures. `kind` is "classic" or "consumer"."""

    def rebalanced(self, kind: str) -> None:
        """A generation was settled, or targets were computed anew."""

    def member_expired(self, kind: str) -> None:
        """A member was silent for its session, or too slow in a rebalance."""

    def committed(self, offsets: int, seconds: float) -> None:
        """Offsets of one request were stored, so long after they were asked for."""

    def taken(self) -> None:
        """This broker looks after one more group."""

    def lost(self) -> None:
        """This broker had to give a group up: its lease ended, or another broker wrote the group."""


class GroupUnavailable(Exception):
    """Answer the request with this error code; the text is for logs and for APIs that carry one."""

    def __init__(self, error: ErrorCode, message: str = "") -> None:
        super().__init__(message or error.name)
        self.error = error
        self.message = message


class NotCoordinator(GroupUnavailable):
    """Another broker looks after the group, or may by now: the client asks who, and goes there."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NOT_COORDINATOR, message)


class Unreachable(GroupUnavailable):
    """The metadata store did not do it. Nothing has happened that the group knows of: try again."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.COORDINATOR_NOT_AVAILABLE, message)


class TooLarge(GroupUnavailable):
    """The group has outgrown what one value of the store may hold. Kafka answers the same way."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)
