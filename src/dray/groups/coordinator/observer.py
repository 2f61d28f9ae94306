"""What the groups tell of themselves to whoever measures. Calls are cheap and must stay so."""

from __future__ import annotations


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
        """This broker had to give a group up: its lease ended, or somebody else wrote the group."""
