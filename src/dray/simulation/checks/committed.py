"""Committed offsets as registers: what is fetched was committed, and nothing that was acknowledged is lost.

Every commit carries metadata that no other has, so it is known which commit a fetch saw. A fetch may see
the newest commit that was acknowledged before it was sent, or any that overlaps that one or the fetch itself;
never one that was over before another was sent, if that other was acknowledged before the fetch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass

from dray.simulation.checks.log_truth import Violation

NOTHING = ""


@dataclass(slots=True)
class OffsetCommit:
    name: str  # its metadata
    offset: int
    sent: float
    answered: float = float("inf")  # until it is known to have happened
    acknowledged: bool = False
    refused: bool = False  # certainly not, and never


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
        commit.acknowledged, commit.answered = True, now

    def refused(self, commit: OffsetCommit) -> None:
        commit.refused = True

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
            over = seen.answered
        for commit in commits.values():
            if commit.acknowledged and commit.answered < sent and over < commit.sent:
                raise Violation(
                    f"{place}: {name or 'nothing'} is fetched, though {commit.name} "
                    f"(offset {commit.offset}) was acknowledged after it"
                )
