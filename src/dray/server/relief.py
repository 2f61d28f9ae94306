"""Which connections are closed when memory is short: those whose peers hold memory without making progress.

A connection that makes progress is never closed. For answers: those whose peer has taken none for
`unread_seconds`, or next to nothing for long; the longest first, and no more than waiting answers need. For
frames: the slowest first, while unfinished frames hold more than a quarter of the budget.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from dray.server.answers import AnswerBudget
    from dray.server.memory import MemoryBudget

UNREAD: Final = "answers not read while memory is short"
TOO_SLOW: Final = "frame too slow while memory is short"

_UNFINISHED_SHARE: Final = 4


class DroppableConnection(Protocol):
    """A connection, as this module sees it."""

    @property
    def pace(self) -> float | None:
        """The pace of a frame that is too slow to stay, else None."""

    @property
    def answer_bytes(self) -> int: ...

    def unread_for(self, now: float) -> float:
        """How long the peer has taken no answers; 0 if it makes progress."""

    def drop(self, kind: str) -> None:
        """Close it now."""


def relieve_answers(members: Iterable[DroppableConnection], answers: AnswerBudget, now: float) -> None:
    if not answers.waiting:
        return
    answers.look_again()
    missing = answers.missing
    if not missing:
        return
    unread = [(seconds, member) for member in members if (seconds := member.unread_for(now)) > 0]
    for _, member in sorted(unread, key=lambda each: each[0], reverse=True):
        if missing <= 0:
            break
        missing -= member.answer_bytes
        member.drop(UNREAD)


def relieve_frames(members: Iterable[DroppableConnection], budget: MemoryBudget) -> None:
    if not budget.waiting:
        return
    slow = [(pace, member) for member in members if (pace := member.pace) is not None]
    for _, member in sorted(slow, key=lambda each: each[0]):
        if budget.unfinished * _UNFINISHED_SHARE <= budget.bulk_limit:
            break
        member.drop(TOO_SLOW)
