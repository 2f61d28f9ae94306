"""The memory of the frame that a connection is receiving.

A small frame takes its memory when it is whole, a larger one in steps, a little ahead of what has arrived. So
a frame that is announced and not sent takes no memory from others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from dray.server.memory import Claim, MemoryBudget, MemoryShare

if TYPE_CHECKING:
    from dray.server.settings import ServerSettings

_GROWTH: Final = 4
_LARGEST_STEP: Final = 64
"""The largest step, counted in small frames: 4 MiB."""


class FrameClaims:
    """`proceed` is called once there is room for what was asked last, and it should be asked again."""

    __slots__ = ("_budget", "_bulk_kinds", "_part", "_proceed", "_small", "granted", "share", "waiting")

    def __init__(self, budget: MemoryBudget, settings: ServerSettings, proceed: Callable[[], None]) -> None:
        self._budget = budget
        self._small = settings.small_frame_bytes
        self._bulk_kinds = settings.bulk_kinds
        self._proceed = proceed
        self._part: Claim | None = None  # of a frame that arrives in steps
        self.waiting: Claim | None = None
        """What has to be granted before the frame can go on."""
        self.granted = False
        """What was waited for is there, for the frame at hand."""
        self.share: int = MemoryShare.NONE
        """Where the memory of the frame at hand is from."""

    def ask(self, size: int, filled: int, kind: int) -> int:
        """How far the frame may be filled; -1 if it has to wait."""
        if size > self._small:
            return self._grow(size, filled)
        if filled < size:
            return size
        if self.granted:
            self.granted = False
            return size
        small = kind not in self._bulk_kinds
        share = self._budget.try_reserve(size, small)
        if share:
            self.share = share
            return size
        self.waiting = self._budget.claim(size, self._grant, small)
        return -1

    def delivered(self) -> int:
        """The frame is the receiver's, and its memory as well."""
        self._part = None
        return self.share

    def give_up(self) -> None:
        held = self._part or self.waiting
        self._part = self.waiting = None
        if held is not None:
            self._budget.withdraw(held)

    def _grow(self, size: int, filled: int) -> int:
        part = self._part
        if part is None:
            part = self._part = self._budget.begin(size, self._grant)
            self.share = MemoryShare.BULK
        self.granted = False
        if part.held > filled or part.held == size:
            return part.held
        small = self._small
        if self._budget.grow(part, min(size, _GROWTH * filled + small, filled + _LARGEST_STEP * small)):
            return part.held
        self.waiting = part
        return -1

    def _grant(self) -> None:
        assert self.waiting is not None
        self.share = self.waiting.share
        self.waiting = None
        self.granted = True
        self._proceed()
