"""Who believes to own which partition of a group: never two at once.

A member believes the last answer it got, until it gives a partition up, dies, or has heard nothing for its
session: it then knows that others may have been given what it had.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from dray.simulation.checks.log_truth import Violation


@dataclass(slots=True)
class _Claim:
    member: str
    until: float


class Ownership:
    """Of one group."""

    def __init__(self, group: str) -> None:
        self.group = group
        self._claims: dict[Hashable, _Claim] = {}

    def take(self, member: str, partitions: Iterable[Hashable], now: float, until: float) -> None:
        for partition in partitions:
            claim = self._claims.get(partition)
            if claim is not None and claim.member != member and claim.until > now:
                raise Violation(
                    f"group {self.group}: {partition} is given to {member}, and {claim.member} owns it"
                )
            self._claims[partition] = _Claim(member, until)

    def confirm(self, member: str, until: float) -> None:
        """The coordinator has answered that the member is still one."""
        for claim in self._claims.values():
            if claim.member == member:
                claim.until = max(claim.until, until)

    def give_up(self, member: str, partitions: Iterable[Hashable] | None = None) -> None:
        for partition in list(self._claims if partitions is None else partitions):
            claim = self._claims.get(partition)
            if claim is not None and claim.member == member:
                del self._claims[partition]

    def owners(self, now: float) -> dict[Hashable, str]:
        return {partition: claim.member for partition, claim in self._claims.items() if claim.until > now}
