"""Bounds on what is held at once: bytes in threads (`Allowance`), and places, by owner (`Places`)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from ipaddress import IPv6Address
from typing import Any, Generic, TypeVar

from dray.base.runtime.contract import Runtime

T = TypeVar("T")


class Allowance:
    """A caller that asks for more than there is gets all of it, alone."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def in_thread(self, runtime: Runtime, size: int, function: Callable[..., T], *arguments: Any) -> T:
        """Runs it in a thread once `size` bytes are free. They are given back when the thread is done, and
        not when the caller is cancelled: until then they are in use."""
        size = min(size, self.limit)
        await self._take(size)
        work = runtime.spawn(runtime.in_thread(function, *arguments), "within an allowance")

        def end(task: asyncio.Task[T]) -> None:
            if not task.cancelled():
                task.exception()  # the caller's, if there still is one
            self._give_back(size)

        work.add_done_callback(end)
        return await asyncio.shield(work)

    async def _take(self, size: int) -> None:
        if not self._waiting and self.used + size <= self.limit:
            self.used += size
            return
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, granted))
        try:
            await granted
        except asyncio.CancelledError:
            if granted.cancelled():
                self._grant()  # those behind it may fit
            else:
                self._give_back(size)
            raise

    def _give_back(self, size: int) -> None:
        self.used -= size
        self._grant()

    def _grant(self) -> None:
        while self._waiting:
            size, granted = self._waiting[0]
            if granted.cancelled():
                self._waiting.popleft()
            elif self.used + size <= self.limit:
                self._waiting.popleft()
                self.used += size
                granted.set_result(None)
            else:
                return


# --- places
#
# Whoever has most gives one up, the newcomer counted: so one who takes many takes them from himself, and
# nobody else notices.


Member = TypeVar("Member")


class Places(Generic[Member]):
    """`most_each`: at most so many of one owner. `safe_seconds`: how long a place is safe, so that work which
    takes a while gets done in a crowd, too; then the newest is given up, and not the one that is idle
    longest. Between owners it makes no difference."""

    def __init__(self, most: int, most_each: int | None = None, safe_seconds: float = 0.0) -> None:
        self._most = most
        self._most_each = most if most_each is None else most_each
        self._safe_seconds = safe_seconds
        self._owners: dict[Member, str] = {}
        self._used: dict[str, OrderedDict[Member, float]] = {}  # by owner, the idlest first

    def __len__(self) -> int:
        return len(self._owners)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._owners)

    def __contains__(self, member: Member) -> bool:
        return member in self._owners

    def count_of(self, owner: str) -> int:
        return len(self._used.get(owner, ()))

    def take(self, owner: str, member: Member, now: float) -> Member | None:
        """The member that has to go for it, and has no place any more. It may be the newcomer."""
        self._owners[member] = owner
        self._used.setdefault(owner, OrderedDict())[member] = now
        if self.count_of(owner) > self._most_each:
            given_up = self._given_up_by(owner, now)
        elif len(self._owners) > self._most:
            given_up = self._given_up_by(self._owner_of_most(owner), now)
        else:
            return None
        self.leave(given_up)
        return given_up

    def use(self, member: Member, now: float) -> None:
        """It is the last now that would be given up."""
        owner = self._owners.get(member)
        if owner is not None:
            self._used[owner][member] = now
            self._used[owner].move_to_end(member)

    def leave(self, member: Member) -> None:
        owner = self._owners.pop(member, None)
        if owner is None:
            return
        line = self._used[owner]
        del line[member]
        if not line:
            del self._used[owner]

    def _owner_of_most(self, newcomer: str) -> str:
        """If nobody has more than one, the owner of the place that is idle longest."""
        most = max(map(len, self._used.values()))
        if 1 < most == self.count_of(newcomer):
            return newcomer
        idle_since = {
            owner: next(iter(line.values()))
            for owner, line in self._used.items()
            if len(line) == most and owner != newcomer
        }
        return min(idle_since, key=idle_since.__getitem__, default=newcomer)

    def _given_up_by(self, owner: str, now: float) -> Member:
        line = self._used[owner]
        idlest = next(iter(line))
        return idlest if now - line[idlest] >= self._safe_seconds else next(reversed(line))


def owner_of(address: str) -> str:
    """An IPv4 address, or the network of an IPv6 address: a client has all of the latter."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped is not None else parsed.packed[:8].hex()
