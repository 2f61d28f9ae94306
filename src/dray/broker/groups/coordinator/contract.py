"""The coordinator's contract: what its machines take, its observer, and why a group does not answer."""

from __future__ import annotations

from typing import Final

from dray.broker.groups.classic import ClassicGroupSettings
from dray.broker.groups.consumer import ConsumerGroupSettings
from dray.broker.settings import GroupsSettings
from dray.kafka.protocol import ErrorCode

_HEARTBEATS: Final = 5.0
"""Seconds between heartbeats of KIP-848 groups, unless their session is short."""


def classic_settings(settings: GroupsSettings) -> ClassicGroupSettings:
    """A `ValueError` says what does not fit together."""
    return ClassicGroupSettings(
        session_timeout_minimum_ms=_ms(settings.min_session_timeout),
        session_timeout_maximum_ms=_ms(settings.max_session_timeout),
        initial_rebalance_delay_ms=_ms(settings.initial_rebalance_delay),
        largest_group=settings.max_size,
    )


def consumer_settings(settings: GroupsSettings) -> ConsumerGroupSettings:
    """A `ValueError` says what does not fit together."""
    session = _ms(settings.consumer_session_timeout)
    if (told := settings.consumer_heartbeat_interval) is None:
        told = min(_HEARTBEATS, settings.consumer_session_timeout / 3)
    heartbeat = _ms(told)
    return ConsumerGroupSettings(
        session_timeout_ms=session,
        session_timeout_minimum_ms=min(session, 45_000),
        session_timeout_maximum_ms=max(session, 60_000),
        heartbeat_interval_ms=heartbeat,
        heartbeat_interval_minimum_ms=min(heartbeat, 5_000),
        heartbeat_interval_maximum_ms=max(heartbeat, 15_000),
        largest_group=settings.max_size,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


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
