"""The oracle of groups: what they committed, and which member owns a partition.

Committed offsets are registers: what is fetched was committed, and nothing that was acknowledged is lost.
Every commit carries metadata that no other has, so it is known which commit a fetch saw. A fetch may see
the newest commit that was acknowledged before it was sent, or any that overlaps that one or the fetch itself;
never one that was over before another was sent, if that other was acknowledged before the fetch.

Never two members at once believe to own a partition. A member believes the last answer it got, until it gives
a partition up, dies, or has heard nothing for its session: it then knows that others may have been given what
it had.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from dray_simulation.checks.log_truth import Violation

NOTHING = ""


@dataclass(slots=True)
class OffsetCommit:
    name: str  # its metadata
    offset: int
    sent: float
    answered: float = float("inf")  # until it is known to have happened
    acknowledged: bool = False
    refused: bool = False  # certainly not, and never
    fetched: bool = False
    deleted: bool = False  # with its group, and nobody may hear of it


class CommittedOffsets:
    def __init__(self) -> None:
        self._commits: dict[Hashable, dict[str, OffsetCommit]] = defaultdict(dict)
        self._last = 0

    def sending(self, place: Hashable, offset: int, now: float) -> OffsetCommit:
        self._last += 1
        commit = OffsetCommit(f"commit {self._last}", offset, now)
        self._commits[place][commit.name] = commit
        return commit

    def acknowledged(self, commit: OffsetCommit, now: float) -> None:
        if commit.deleted:
            raise Violation(f"{commit.name} is acknowledged, and was deleted with its group")
        commit.acknowledged, commit.answered = True, now

    def refused(self, commit: OffsetCommit) -> None:
        commit.refused = True

    def deleted(self, place: Hashable, name: str) -> None:
        """With its group, by the brokers themselves. An unclear one that no client is ever told of may as
        well never have happened; of any other it is a loss."""
        commit = self._commits[place].get(name)
        if commit is None or commit.acknowledged or commit.fetched:
            raise Violation(f"{place}: {name} is deleted with its group, and a client knows it")
        commit.deleted = True

    def fetched(self, place: Hashable, name: str, offset: int, sent: float) -> None:
        """Judge an answer of OffsetFetch; `NOTHING` and -1 where nothing is committed."""
        commits = self._commits[place]
        over = float("-inf")  # nothing at all is the state before the first commit
        if name != NOTHING or offset != -1:
            seen = commits.get(name)
            if seen is None or seen.offset != offset:
                raise Violation(f"{place}: {offset} with {name!r} is fetched, and nobody committed that")
            if seen.refused:
                raise Violation(f"{place}: {name} is fetched, and was refused")
            if seen.deleted:
                raise Violation(f"{place}: {name} is fetched, and was deleted with its group")
            seen.fetched, over = True, seen.answered
        for commit in commits.values():
            if commit.acknowledged and commit.answered < sent and over < commit.sent:
                raise Violation(
                    f"{place}: {name or 'nothing'} is fetched, though {commit.name} "
                    f"(offset {commit.offset}) was acknowledged after it"
                )


# --- who owns a partition


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
