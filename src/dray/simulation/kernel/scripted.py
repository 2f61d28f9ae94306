"""Stores that do as they are told: a test that needs one certain schedule sets traps for the calls in it.

Chance finds what nobody thought of; some schedules it finds too rarely to rest a rule on. A trap is
sprung once, by the first call that matches: a kind of call, and a part of one of its keys or its path.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from dray.metadata.checks import check_write
from dray.metadata.contract import (
    Ambiguous,
    Change,
    DeleteRange,
    Limits,
    MetadataError,
    Operation,
    Outcome,
    Session,
    StoredValue,
    Unavailable,
)
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects.contract import Buffer, ObjectError, ObjectInfo, OwnBuffer
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.runtime import Runtime

T = TypeVar("T")

_PATIENCE = 3600.0


class Fate(Enum):
    PASS = "happens"
    HOLD_BEFORE = "stops before it happens"
    HOLD_AFTER = "stops after it happened, before it is answered"
    REFUSE = "does not happen, and the caller is told"
    LOSE = "does not happen, and the caller is not told"
    LOSE_REPLY = "happens, and the reply is lost"
    LATE = "is unclear, and happens when `land` is called"
    FAIL = "raises what nobody foresaw"
    COPY = "happens, and once more when `land` is called"


@dataclass
class Trap:
    kind: str
    part: str
    fate: Fate
    sprung: asyncio.Event = field(default_factory=asyncio.Event)
    _released: asyncio.Event = field(default_factory=asyncio.Event)
    _landings: list[Callable[[], object]] = field(default_factory=list)

    async def reached(self) -> None:
        """Until a call is caught. Something else may go on for ever, so this does not."""
        try:
            await asyncio.wait_for(self.sprung.wait(), _PATIENCE)
        except TimeoutError:
            raise LookupError(f"no {self.kind} of {self.part} came") from None

    def release(self) -> None:
        """Let a call that was held go on."""
        self._released.set()

    def land(self) -> None:
        """Let what is late, or a copy, arrive: as often as this is called."""
        if not self._landings:
            raise LookupError(f"no {self.kind} of {self.part} was caught")
        for landing in self._landings:
            landing()

    async def before(self, act: Callable[[], object]) -> MetadataError | None:
        """What keeps the call from happening, if anything does."""
        self.sprung.set()
        if self.fate is Fate.HOLD_BEFORE:
            await self._released.wait()
        elif self.fate is Fate.FAIL:
            raise RuntimeError("told to fail")
        elif self.fate is Fate.REFUSE:
            return Unavailable("told to refuse")
        elif self.fate is Fate.LOSE:
            return Ambiguous("told to lose the request")
        elif self.fate is Fate.LATE:
            self._landings.append(act)
            return Ambiguous("told to be late")
        elif self.fate is Fate.COPY:
            self._landings.append(act)
        return None

    async def after(self) -> MetadataError | None:
        """What keeps the answer away, if anything does."""
        if self.fate is Fate.HOLD_AFTER:
            await self._released.wait()
        return Ambiguous("told to lose the reply") if self.fate is Fate.LOSE_REPLY else None


class Traps:
    """The traps that are set: what every scripted store is made of."""

    def __init__(self) -> None:
        self._set: list[Trap] = []

    def trap(self, fate: Fate, kind: str, part: str = "") -> Trap:
        trap = Trap(kind, part, fate)
        self._set.append(trap)
        return trap

    def springing(self, kind: str, names: Sequence[str]) -> Trap:
        for trap in self._set:
            if trap.kind == kind and any(trap.part in name for name in names):
                self._set.remove(trap)
                return trap
        return Trap(kind, "", Fate.PASS)

    def hold(self, kind: str, part: str = "", *, answered: bool = False) -> Trap:
        return self.trap(Fate.HOLD_AFTER if answered else Fate.HOLD_BEFORE, kind, part)


class ScriptedStore(Traps):
    """A client of a `MemoryState`. Kinds: get, scan, write, barrier."""

    def __init__(self, runtime: Runtime, state: MemoryState, limits: Limits | None = None) -> None:
        super().__init__()
        self._runtime = runtime
        self._state = state
        self._current = MemoryStore(runtime, state)
        self._limits = limits or self._current.limits
        self._behind: dict[int, MemoryStore] = {}
        self.barriers = 0
        self.deaf = False  # hears no hints

    @property
    def limits(self) -> Limits:
        return self._limits

    def fall_behind(self, domain: int) -> None:
        """Read the domain as it is now, until a barrier."""
        past = MemoryState()
        now = self._runtime.monotonic()
        source, copy = self._state.domain(domain, now), past.domain(domain, now)
        copy.entries.update(source.entries)
        copy.keys.extend(source.keys)
        self._behind[domain] = MemoryStore(self._runtime, past)

    async def get(self, domain: int, key: str) -> StoredValue | None:
        trap = self.springing("get", [key])
        await _meet(trap.before(_nothing))
        found = await self._view(domain).get(domain, key)
        await _meet(trap.after())
        return found

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        trap = self.springing("scan", [start])
        await _meet(trap.before(_nothing))
        found = await self._view(domain).scan(domain, start, end, limit)
        await _meet(trap.after())
        return found

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._view(domain).floor(domain, key, prefix)

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._view(domain).ceiling(domain, key, prefix)

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        operations = list(operations)
        check_write(domain, operations, self._limits)

        def apply() -> list[Outcome]:
            return self._state.apply(domain, operations, None, self._runtime.monotonic())

        trap = self.springing("write", [_name(operation) for operation in operations])
        await _meet(trap.before(apply))
        await self._runtime.sleep(0)
        outcomes = apply()
        await _meet(trap.after())
        return outcomes

    async def barrier(self, domain: int) -> None:
        self.barriers += 1
        trap = self.springing("barrier", [str(domain)])
        await _meet(trap.before(_nothing))
        await self._current.barrier(domain)
        self._behind.pop(domain, None)
        await _meet(trap.after())

    async def watch(self, domain: int) -> AsyncIterator[Change]:
        async for change in self._current.watch(domain):
            if not self.deaf:
                yield change

    async def session(self, domain: int, ttl: float) -> Session:
        return await self._current.session(domain, ttl)

    async def close(self) -> None:
        await self._current.close()

    def _view(self, domain: int) -> MemoryStore:
        return self._behind.get(domain, self._current)


class ScriptedObjects(Traps):
    """A client of a `MemoryBucket`. Kinds: put, put_if_absent, get, head, delete."""

    def __init__(self, runtime: Runtime, bucket: MemoryBucket) -> None:
        super().__init__()
        self._runtime = runtime
        self._bucket = bucket
        self._inner = MemoryObjects(runtime, bucket)
        self.uploading = 0
        self.most_uploading = 0
        self.ranges_read: list[tuple[str, int, int]] = []

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)

        def store() -> None:
            self._bucket.put(path, data, self._runtime.wall_ms())

        self.uploading += 1
        self.most_uploading = max(self.most_uploading, self.uploading)
        try:
            trap = self.springing("put", [path])
            await _meet_object(trap.before(store))
            store()
            await _meet_object(trap.after())
        finally:
            self.uploading -= 1

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        trap = self.springing("put_if_absent", [path])
        await _meet_object(trap.before(_nothing))
        await self._inner.put_if_absent(path, parts)
        await _meet_object(trap.after())

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        await self.put(path, [bytes(part) async for parts in pieces for part in parts])

    async def get(self, path: str) -> Buffer:
        return await self._inner.get(path)

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        self.ranges_read += [(path, start, length) for start, length in ranges]
        trap = self.springing("get", [path])
        await _meet_object(trap.before(_nothing))
        found = await self._inner.get_ranges(path, ranges)
        await _meet_object(trap.after())
        return found

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        return work(await self.get_ranges(path, ranges))

    async def head(self, path: str) -> ObjectInfo:
        trap = self.springing("head", [path])
        await _meet_object(trap.before(_nothing))
        return await self._inner.head(path)

    async def delete(self, path: str) -> None:
        trap = self.springing("delete", [path])
        await _meet_object(trap.before(lambda: self._bucket.delete(path)))
        self._bucket.delete(path)
        await _meet_object(trap.after())

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._inner.list(prefix)

    async def close(self) -> None:
        await self._inner.close()


async def _meet(meeting: Awaitable[MetadataError | None]) -> None:
    if (error := await meeting) is not None:
        raise error


async def _meet_object(meeting: Awaitable[MetadataError | None]) -> None:
    if (error := await meeting) is not None:
        raise ObjectError(str(error))


def _nothing() -> None:
    """A read leaves nothing that could land later."""


def _name(operation: Operation) -> str:
    return operation.start if isinstance(operation, DeleteRange) else operation.key
