"""Stores that fail like the real ones: slow, refused, unclear, late, twice.

Each simulated process reaches the shared stores through clients of its own, which can be cut off when it
crashes; what it sent before may still arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from random import Random

from dray.metadata.contract import (
    Ambiguous,
    Change,
    Limits,
    MetadataStore,
    Operation,
    Outcome,
    Record,
    Session,
    Unavailable,
)
from dray.objects.contract import Buffer, ObjectError, ObjectInfo, ObjectStore


@dataclass(slots=True)
class Weather:
    """How bad things are. All chances are per call."""

    random: Random
    refused: float = 0.02  # nothing happens, and the caller is told
    lost: float = 0.02  # nothing happens, and the caller is not told
    unanswered: float = 0.05  # it happens, but the reply is lost
    late: float = 0.06  # the caller gives up, and it happens afterwards
    twice: float = 0.08  # it happens, is answered, and happens again afterwards
    slowest: float = 0.02  # seconds that a call takes at most, as a rule
    latest: float = 3.0  # seconds after which a late write has arrived, at most
    pending: int = 0  # writes that are still on their way

    def calm(self) -> None:
        """From now on everything works; what is on its way still arrives."""
        self.refused = self.lost = self.unanswered = self.late = self.twice = 0.0

    async def delay(self) -> None:
        await asyncio.sleep(self.random.random() * self.slowest)

    def arrive_later(self, act: Callable[[], object], again: bool = True) -> None:
        """Let something arrive at some time, and perhaps once more after that."""
        wait = self.latest * self.random.random() ** 2
        self.pending += 1

        def arrive() -> None:
            self.pending -= 1
            act()
            if again and self.random.random() < 0.25:
                self.arrive_later(act, again=False)

        asyncio.get_running_loop().call_later(wait, arrive)


class FaultyStore:
    """A process's client of the metadata store."""

    def __init__(
        self,
        inner: MetadataStore,
        apply: Callable[[int, Sequence[Operation]], list[Outcome]],
        weather: Weather,
    ) -> None:
        self._inner = inner
        self._apply = apply  # at once, as the server does it
        self._weather = weather
        self.cut_off = False

    @property
    def limits(self) -> Limits:
        return self._inner.limits

    async def get(self, domain: int, key: str) -> Record | None:
        await self._travel()
        return await self._inner.get(domain, key)

    async def floor(self, domain: int, key: str, prefix: str) -> Record | None:
        await self._travel()
        return await self._inner.floor(domain, key, prefix)

    async def ceiling(self, domain: int, key: str, prefix: str) -> Record | None:
        await self._travel()
        return await self._inner.ceiling(domain, key, prefix)

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[Record]:
        await self._travel()
        return await self._inner.scan(domain, start, end, limit)

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        await self._travel()
        weather, chance = self._weather, self._weather.random.random()
        operations = list(operations)
        if (chance := chance - weather.lost) < 0:
            await weather.delay()
            raise Ambiguous("the request was lost")
        if (chance := chance - weather.late) < 0:
            weather.arrive_later(lambda: self._apply(domain, operations))
            await weather.delay()
            raise Ambiguous("the request timed out")
        outcomes = self._apply(domain, operations)
        if (chance := chance - weather.unanswered) < 0:
            await weather.delay()
            raise Ambiguous("the reply was lost")
        if chance - weather.twice < 0:
            weather.arrive_later(lambda: self._apply(domain, operations))
        await weather.delay()
        return outcomes

    async def barrier(self, domain: int) -> None:
        await self._travel()
        await self._inner.barrier(domain)

    def watch(self, domain: int) -> AsyncIterator[Change]:
        return self._inner.watch(domain)

    async def session(self, domain: int, ttl: float) -> Session:
        await self._travel()
        return await self._inner.session(domain, ttl)

    async def close(self) -> None:
        await self._inner.close()

    async def _travel(self) -> None:
        await self._weather.delay()
        if self.cut_off:
            raise asyncio.CancelledError
        if self._weather.random.random() < self._weather.refused:
            raise Unavailable("the metadata store is away")


class FaultyObjects:
    """A process's client of the object store."""

    def __init__(
        self,
        inner: ObjectStore,
        store_now: Callable[[str, bytes], None],
        delete_now: Callable[[str], None],
        weather: Weather,
    ) -> None:
        self._inner = inner
        self._store_now = store_now
        self._delete_now = delete_now
        self._weather = weather
        self.cut_off = False

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        await self._change(lambda: self._store_now(path, data))

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._travel()
        await self._inner.put_if_absent(path, parts)

    async def get(self, path: str) -> Buffer:
        await self._travel()
        return await self._inner.get(path)

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> list[bytearray]:
        await self._travel()
        return await self._inner.get_ranges(path, ranges)

    async def head(self, path: str) -> ObjectInfo:
        await self._travel()
        return await self._inner.head(path)

    async def delete(self, path: str) -> None:
        await self._change(lambda: self._delete_now(path))

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._inner.list(prefix)

    async def close(self) -> None:
        await self._inner.close()

    async def _change(self, act: Callable[[], None]) -> None:
        await self._travel()
        weather, chance = self._weather, self._weather.random.random()
        if (chance := chance - weather.lost) < 0:
            await weather.delay()
            raise ObjectError("the request was lost")
        if (chance := chance - weather.late) < 0:
            weather.arrive_later(act)
            await weather.delay()
            raise ObjectError("the request timed out")
        act()
        if (chance := chance - weather.unanswered) < 0:
            await weather.delay()
            raise ObjectError("the reply was lost")
        if chance - weather.twice < 0:
            weather.arrive_later(act)
        await weather.delay()

    async def _travel(self) -> None:
        await self._weather.delay()
        if self.cut_off:
            raise asyncio.CancelledError
        if self._weather.random.random() < self._weather.refused:
            raise ObjectError("the object store is away")
