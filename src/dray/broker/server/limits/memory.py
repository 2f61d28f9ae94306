"""The bound on what request frames may occupy, shared by all connections of a server. Answers have theirs in
`answers.py`.

Two shares. The small one is only for small requests that are not bulk (heartbeats, metadata, fetches): they
never wait behind producers, and use the other share as well while it has room. Everything else takes from
the bulk share.

A large frame takes its memory in steps, as its bytes arrive: bytes that are announced and not sent take
nothing from others. Frames that grow could lock each other up, each waiting for what the others hold. Three
rules prevent that (`docs/design/0065-limits-that-limit.md`):

- The oldest growing frame takes whatever is free, and what it still needs is kept from all others.
- The others together leave room for the largest growing frame, so each of them can be completed once it is
  the oldest.
- A frame that finds no room waits, first come, first served.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final


class MemoryShare:
    """Plain numbers, since looking up a member of an enumeration would cost a request more than the rest."""

    NONE: Final = 0
    SMALL: Final = 1
    BULK: Final = 2


_SMALL: Final = MemoryShare.SMALL
_BULK: Final = MemoryShare.BULK


class Claim:
    """One frame's memory: `held` of `size` bytes. While `wanted` is above `held` it waits, and `granted` is
    called once it has them; `share` says from where."""

    __slots__ = ("granted", "held", "order", "share", "size", "wanted")

    def __init__(self, size: int, granted: Callable[[], None], share: int = MemoryShare.BULK) -> None:
        self.size = size
        self.granted = granted
        self.held = 0
        self.wanted = 0
        self.order = 0
        self.share = share


class MemoryBudget:
    __slots__ = (
        "_bulk_used",
        "_growing",
        "_growing_held",
        "_kept_for_oldest",
        "_last_order",
        "_orders",
        "_sizes",
        "_small_used",
        "_small_waiting",
        "_waiting",
        "bulk_limit",
        "limit",
        "peak",
        "small_limit",
    )

    def __init__(self, limit: int, small_limit: int = 0) -> None:
        self.limit = limit
        self.small_limit = small_limit
        self.bulk_limit = limit - small_limit
        self.peak = 0
        self._bulk_used = 0
        self._small_used = 0
        self._growing: OrderedDict[Claim, None] = OrderedDict()  # oldest first
        self._growing_held = 0
        self._kept_for_oldest = 0
        self._orders: set[int] = set()  # the orders of growing claims
        self._last_order = 0
        self._sizes: list[tuple[int, int]] = []  # a heap, the largest first; those that left are dropped late
        self._waiting: OrderedDict[Claim, None] = OrderedDict()
        self._small_waiting: OrderedDict[Claim, None] = OrderedDict()

    @property
    def used(self) -> int:
        return self._bulk_used + self._small_used

    @property
    def waiting(self) -> int:
        return len(self._waiting) + len(self._small_waiting)

    @property
    def unfinished(self) -> int:
        """The bytes of frames that have not got all their memory, and those kept for the oldest of them."""
        return self._growing_held + self._kept_for_oldest

    # --- frames that have arrived whole

    def try_reserve(self, size: int, small: bool = False) -> int:
        """Reserve now if there is room and no earlier frame waits. Gives back the share, NONE if nothing was
        reserved."""
        # For every request, so what it asks is written out here.
        if small and not self._small_waiting and self._small_used + size <= self.small_limit:
            self._small_used += size
            share = _SMALL
        else:
            used = self._bulk_used + size
            if (
                self._waiting
                or used + self._kept_for_oldest > self.bulk_limit
                or (small and self._small_waiting)
            ):
                return MemoryShare.NONE
            self._bulk_used = used
            share = _BULK
        self.peak = max(self.peak, self._bulk_used + self._small_used)
        return share

    def claim(self, size: int, granted: Callable[[], None], small: bool = False) -> Claim:
        """Queue up; `granted` is called from a later release or withdrawal, never from here."""
        small = small and size <= self.small_limit
        if not small and size > self.bulk_limit:
            raise ValueError(f"{size} bytes can never fit a budget of {self.bulk_limit}")
        claim = Claim(size, granted, MemoryShare.SMALL if small else MemoryShare.BULK)
        claim.wanted = size
        if small:
            self._small_waiting[claim] = None
        else:
            self._join(claim)
            self._waiting[claim] = None
        return claim

    # --- frames that are arriving

    def begin(self, size: int, granted: Callable[[], None]) -> Claim:
        """A large frame begins to arrive; it holds nothing yet."""
        if size > self.bulk_limit:
            raise ValueError(f"{size} bytes can never fit a budget of {self.bulk_limit}")
        claim = Claim(size, granted)
        self._join(claim)
        return claim

    def grow(self, claim: Claim, held: int) -> bool:
        """Let the frame hold `held` bytes. False: it waits, and `granted` is called once it holds them."""
        claim.wanted = held
        if self._may_grow(claim) and (not self._waiting or self._is_oldest(claim)):
            self._give(claim)
            return True
        self._waiting[claim] = None
        return False

    # --- giving back

    def withdraw(self, claim: Claim) -> None:
        """The frame will never be whole: give back what it holds, and its place."""
        if claim.share == MemoryShare.SMALL:
            self._small_waiting.pop(claim, None)
            self._small_used -= claim.held
        else:
            self._waiting.pop(claim, None)
            self._bulk_used -= claim.held
            if claim in self._growing:
                self._leave(claim)
        self._grant()

    def release(self, size: int, share: int = MemoryShare.BULK) -> None:
        if share == MemoryShare.SMALL:
            self._small_used = left = self._small_used - size
        else:
            self._bulk_used = left = self._bulk_used - size
        if left < 0:
            raise AssertionError("released more than was reserved")
        if self._waiting or self._small_waiting:
            self._grant()

    # --- the rules

    def _is_oldest(self, claim: Claim) -> bool:
        return next(iter(self._growing)) is claim

    def _leaves_room(self, size: int) -> bool:
        return self._bulk_used + size + self._kept_for_oldest <= self.bulk_limit

    def _may_grow(self, claim: Claim) -> bool:
        step = claim.wanted - claim.held
        oldest = next(iter(self._growing))
        if claim is oldest:
            return self._bulk_used + step <= self.bulk_limit
        if not self._leaves_room(step):
            return False
        if claim.wanted == claim.size:
            return True  # it needs nothing more, so it blocks no other frame
        others_held = self._growing_held - oldest.held
        return others_held + step + self._largest() <= self.bulk_limit

    def _largest(self) -> int:
        while self._sizes[0][1] not in self._orders:
            heappop(self._sizes)
        return -self._sizes[0][0]

    def _grant(self) -> None:
        """Grant waiting frames their memory, as far as there is room. A callback may call this again, so no
        state is kept across one."""
        while self._waiting:
            oldest = next(iter(self._growing))
            claim = oldest if oldest in self._waiting else next(iter(self._waiting))
            if not self._may_grow(claim):
                break
            del self._waiting[claim]
            self._give(claim)
            claim.granted()
        while self._small_waiting:
            claim = next(iter(self._small_waiting))
            if self._small_used + claim.size <= self.small_limit:
                self._small_used += claim.size
            elif not self._waiting and self._leaves_room(claim.size):
                self._bulk_used += claim.size
                claim.share = MemoryShare.BULK
            else:
                break
            del self._small_waiting[claim]
            claim.held = claim.size
            self._note_peak()
            claim.granted()

    # --- keeping count

    def _give(self, claim: Claim) -> None:
        step = claim.wanted - claim.held
        claim.held = claim.wanted
        self._bulk_used += step
        self._growing_held += step
        self._note_peak()
        if claim.held == claim.size:
            self._leave(claim)
        else:
            self._keep_for_oldest()

    def _join(self, claim: Claim) -> None:
        self._last_order += 1
        claim.order = self._last_order
        self._growing[claim] = None
        self._orders.add(claim.order)
        if len(self._sizes) > 2 * len(self._growing) + 100:
            self._sizes = sorted((-each.size, each.order) for each in self._growing)
        else:
            heappush(self._sizes, (-claim.size, claim.order))
        self._keep_for_oldest()

    def _leave(self, claim: Claim) -> None:
        del self._growing[claim]
        self._orders.discard(claim.order)
        self._growing_held -= claim.held
        self._keep_for_oldest()

    def _keep_for_oldest(self) -> None:
        if self._growing:
            oldest = next(iter(self._growing))
            self._kept_for_oldest = oldest.size - oldest.held
        else:
            self._kept_for_oldest = 0

    def _note_peak(self) -> None:
        used = self._bulk_used + self._small_used
        if used > self.peak:  # noqa: PLR1730 - half the time of `max`, for every request
            self.peak = used
