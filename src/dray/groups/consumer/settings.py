"""The `group.consumer.*` settings, under the names they have here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dray.groups.assignors import ASSIGNORS


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    session_timeout_ms: int = 45_000
    session_timeout_minimum_ms: int = 45_000
    session_timeout_maximum_ms: int = 60_000
    heartbeat_interval_ms: int = 5_000
    heartbeat_interval_minimum_ms: int = 5_000
    heartbeat_interval_maximum_ms: int = 15_000
    largest_group: int = 2**31 - 1
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
