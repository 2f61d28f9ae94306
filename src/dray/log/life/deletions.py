"""The rules for every deletion of objects: who allows it, when it stops by itself, and what is logged.

There are two kinds of garbage. For the first, the metadata *knows* that nothing needs the object any more:
that is proof, and the object is deleted after its grace. Objects of the second kind are unknown to the
metadata. Such an object may be an upload that came too late. But it may also hold records, if this metadata
store was restored from a backup that is older than the object. So an unknown object is only nominated: it
waits out its grace, and where there are too many of them, the brake keeps all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from dray.base.runtime.logger import get_logger

_log = get_logger(__name__)

MayDelete: TypeAlias = Callable[[], Awaitable[str | None]]
"""Called before a round deletes anything: None, or a line that says why nothing may be deleted. Raises
nothing."""

HELD: Final = "nothing is deleted"
"""The event of the log line of a round that may not delete, or does not."""

_EXAMPLES: Final = 3


async def nothing_may_go() -> str | None:
    """The default: nothing may be deleted, since nothing has checked whose bucket it is."""
    return "nothing says whose bucket this is"


@dataclass(frozen=True, slots=True)
class Brake:
    """Stops a round that would delete too much of what the metadata does not know."""

    share: float = 0.5  # of what the round sees
    least: int = 10  # as few as these never stop a round: in a small bucket they would be a large share

    def stops(self, unknown: int, seen: int) -> bool:
        return unknown > self.least and unknown > self.share * seen

    def line(self, what: str, unknown: int, seen: int) -> str:
        return (
            f"{unknown} of {seen} {what} are unknown to the metadata store, more than a round "
            f"may delete: if it was restored or is the wrong one, correct that; if they may go: "
            f"drayd admin gc --now --release-brake, first without and then with --execute"
        )


RELEASED: Final = Brake(share=1.0)
"""A brake that never stops a round: for a person who looked at the objects, and said that they may go."""


@dataclass(slots=True)
class DeletionSummary:
    """A round's deletions, counted. Each object is logged at debug level, and all of them in one line at the
    end."""

    what: str  # such as "WAL objects"
    number: int = 0
    size: int = 0  # bytes, of those whose size is known
    examples: list[str] = field(default_factory=list)

    def add(self, path: str, size: int = 0) -> None:
        _log.debug(f"{self.what} deleted", path=path)
        self.number += 1
        self.size += size
        if len(self.examples) < _EXAMPLES:
            self.examples.append(path)

    def say(self) -> None:
        if self.number:
            known = {"bytes": self.size} if self.size else {}
            _log.info(f"{self.what} deleted", number=self.number, **known, examples=self.examples)
