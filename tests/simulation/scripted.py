"""Stores that follow a script: a test that needs one certain schedule sets traps for the calls in it.

Random runs find schedules that no author thinks of, but some of them too rarely to rest a rule on. A trap is
sprung once, by the first call that matches: a kind of call, and a part of one of its keys or its path.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from dray.base.runtime import Runtime
from dray.metadata.contract import (
    Ambiguous,
    Change,
    DeleteRange,
    Limits,
    MetadataError,
    Operation,
    Outcome,
    SessionEnded,
    StoredValue,
    Unavailable,
    check_write,
)
from dray.metadata.memory import MemoryState, MemoryStore
from dray.metadata.memory import _Domain as DomainContent
from dray.metadata.sessions import session_identity
from dray.objects.contract import Buffer, ObjectError, ObjectInfo, ObjectMissing, OwnBuffer, RangeOutside
from dray.objects.memory import MemoryBucket, MemoryObjects
from dray.tables.contract import TablesUnavailable
from dray_simulation.cluster.tables import MemoryCatalog, MemoryTables

T = TypeVar("T")

_PATIENCE = 3600.0


class Fate(Enum):
    PASS = "happens"
    HOLD_BEFORE = "stops before it happens"
    HOLD_AFTER = "stops after it happened, before it is answered"
    REFUSE = "does not happen, and the caller knows that"
    LOSE = "does not happen, and the caller cannot know"
    LOSE_REPLY = "happens, and the reply is lost"
    LATE = "is unclear, and happens when `land` is called"
    FAIL = "raises an error that no caller expects"
    COPY = "happens, and once more when `land` is called"


@dataclass
class Trap:
    kind: str
    part: str
    fate: Fate
    first: Callable[[], Awaitable[object]] | None = None
    """What happens before the call does."""

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

    @property
    def is_late(self) -> bool:
        return bool(self._landings)

    async def before(self, act: Callable[[], object]) -> MetadataError | None:
        """What keeps the call from happening, if anything does."""
        self.sprung.set()
        if self.first is not None:
            await self.first()
        if self.fate is Fate.HOLD_BEFORE:
            await self._released.wait()
        elif self.fate is Fate.FAIL:
            raise RuntimeError("fails by script")
        elif self.fate is Fate.REFUSE:
            return Unavailable("refused by script")
        elif self.fate is Fate.LOSE:
            return Ambiguous("the request is lost by script")
        elif self.fate is Fate.LATE:
            self._landings.append(act)
            return Ambiguous("late by script")
        elif self.fate is Fate.COPY:
            self._landings.append(act)
        return None

    async def after(self) -> MetadataError | None:
        """What keeps the answer away, if anything does."""
        if self.fate is Fate.HOLD_AFTER:
            await self._released.wait()
        return Ambiguous("the reply is lost by script") if self.fate is Fate.LOSE_REPLY else None


class Traps:
    """The traps that are set: what every scripted store is made of."""

    def __init__(self) -> None:
        self._set: list[Trap] = []
        self._caught: list[Trap] = []

    def trap(
        self,
        fate: Fate,
        kind: str = "write",
        part: str = "",
        *,
        first: Callable[[], Awaitable[object]] | None = None,
    ) -> Trap:
        trap = Trap(kind, part, fate, first)
        self._set.append(trap)
        return trap

    def script(self, *fates: Fate, part: str = "") -> None:
        """What becomes of the coming writes, one after the other."""
        for fate in fates:
            self.trap(fate, part=part)

    def all_sprung(self) -> bool:
        return not self._set

    def disarm(self) -> None:
        """Take back the traps that caught nothing."""
        self._set.clear()

    def springing(self, kind: str, names: Sequence[str]) -> Trap:
        for trap in self._set:
            if trap.kind == kind and any(trap.part in name for name in names):
                self._set.remove(trap)
                self._caught.append(trap)
                return trap
        return Trap(kind, "", Fate.PASS)

    def release(self) -> None:
        """Let every call that was held go on."""
        for trap in self._caught:
            trap.release()

    def land(self) -> None:
        """Let everything late arrive, once."""
        caught, self._caught = self._caught, []
        for trap in caught:
            if trap.is_late:
                trap.land()

    def hold(self, kind: str, part: str = "", *, answered: bool = False) -> Trap:
        return self.trap(Fate.HOLD_AFTER if answered else Fate.HOLD_BEFORE, kind, part)


class ScriptedStore(Traps, MemoryStore):
    """A client of a `MemoryState`. Kinds: get, scan, write, barrier.

    `writes` and `barriers` are all that was asked for. While it is `down`, nothing gets through, the renewal
    of sessions included.
    """

    def __init__(
        self, runtime: Runtime, state: MemoryState | None = None, limits: Limits | None = None
    ) -> None:
        Traps.__init__(self)
        MemoryStore.__init__(self, runtime, state)
        self._limits = limits or super().limits
        self._behind: dict[int, MemoryState] = {}
        self.writes: list[Sequence[Operation]] = []
        self.barriers: list[int] = []
        self.on_write: Callable[[Sequence[Operation]], None] | None = None
        self.deaf = False  # gets no hints
        self.down = False

    @property
    def limits(self) -> Limits:
        return self._limits

    def fall_behind(self, *domains: int) -> None:
        """Read these domains as they are now, until a barrier."""
        now = self._clock()
        for domain in domains:
            self._behind[domain] = past = MemoryState()
            source, copy = self._state.domain(domain, now), past.domain(domain, now)
            copy.entries.update(source.entries)
            copy.keys.extend(source.keys)

    async def get(self, domain: int, key: str) -> StoredValue | None:
        trap = self.springing("get", [key])
        await _meet(trap.before(_nothing))
        found = await super().get(domain, key)
        await _meet(trap.after())
        return found

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        trap = self.springing("scan", [start])
        await _meet(trap.before(_nothing))
        found = await super().scan(domain, start, end, limit)
        await _meet(trap.after())
        return found

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        operations = list(operations)
        session = check_write(domain, operations, self._limits)
        identity = None if session is None else session_identity(domain, session)

        def apply() -> list[Outcome]:
            return self._state.apply(domain, operations, identity, self._clock())

        self.writes.append(operations)
        trap = self.springing("write", [_name(operation) for operation in operations])
        await _meet(trap.before(apply))
        if self.on_write is not None:
            self.on_write(operations)
        if session is not None and session.ended:
            raise SessionEnded(f"session {identity} is over")
        await self._turn()
        outcomes = apply()
        await _meet(trap.after())
        return outcomes

    async def barrier(self, domain: int) -> None:
        self.barriers.append(domain)
        trap = self.springing("barrier", [str(domain)])
        await _meet(trap.before(_nothing))
        await super().barrier(domain)
        self._behind.pop(domain, None)
        await _meet(trap.after())

    async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncGenerator[Change, None]:
        async for change in super().watch(domain, endings):
            if not self.deaf:
                self._behind.pop(domain, None)
                yield change

    def interrupt(self) -> None:
        """Its watches stand anew."""
        self._hub.interrupt()

    async def _domain(self, domain: int) -> DomainContent:
        content = await super()._domain(domain)
        past = self._behind.get(domain)
        return content if past is None else past.domain(domain, self._clock())

    async def _turn(self) -> None:
        if self.down:
            raise Unavailable("down in this test")
        await super()._turn()


class Lie(Enum):
    """A bad answer to a read of an object that is sound."""

    FLIP = "a bit is another"
    SHORT = "it ends too soon"
    MISSING = "there is no such object"


def told_badly(lie: Lie | None, path: str, found: Sequence[OwnBuffer]) -> Sequence[OwnBuffer]:
    """What a store that lies makes of an answer."""
    if lie is Lie.MISSING:
        raise ObjectMissing(f"{path}: no such object")
    if lie is Lie.SHORT:
        raise RangeOutside(f"{path}: it has 7 bytes, more were asked for")
    for buffer in found if lie is Lie.FLIP else ():
        buffer[len(buffer) // 2] ^= 0x10
    return found


class ScriptedObjects(Traps):
    """A client of a `MemoryBucket`. Kinds: put, put_if_absent, get, head, delete. What is in `lies` is told
    to the next reads of ranges, one by one; None is the truth."""

    def __init__(self, runtime: Runtime, bucket: MemoryBucket) -> None:
        super().__init__()
        self._runtime = runtime
        self._bucket = bucket
        self._inner = MemoryObjects(runtime, bucket)
        self.uploading = 0
        self.most_uploading = 0
        self.ranges_read: list[tuple[str, int, int]] = []
        self.lies: deque[Lie | None] = deque()

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
        return told_badly(self.lies.popleft(), path, found) if self.lies else found

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


class ScriptedTables(Traps, MemoryTables):
    """A client of a `MemoryCatalog`. Kinds: as its own. While it is `down`, nothing gets through."""

    def __init__(self, catalog: MemoryCatalog, runtime: Runtime) -> None:
        Traps.__init__(self)
        MemoryTables.__init__(self, catalog, runtime)
        self.down = False

    async def call(self, kind: str, name: str, act: Callable[[], T]) -> T:
        await self._runtime.sleep(0)
        if self.down:
            raise TablesUnavailable("the catalog is down")
        trap = self.springing(kind, [name])
        await _meet_tables(trap.before(act))
        answer = act()
        await _meet_tables(trap.after())
        return answer


async def _meet(meeting: Awaitable[MetadataError | None]) -> None:
    if (error := await meeting) is not None:
        raise error


async def _meet_object(meeting: Awaitable[MetadataError | None]) -> None:
    if (error := await meeting) is not None:
        raise ObjectError(str(error))


async def _meet_tables(meeting: Awaitable[Exception | None]) -> None:
    if (error := await meeting) is not None:
        raise TablesUnavailable(str(error))


def _nothing() -> None:
    """A read leaves nothing that could land later."""


def _name(operation: Operation) -> str:
    return operation.start if isinstance(operation, DeleteRange) else operation.key


async def bucket_is_ours() -> str | None:
    """What parts of a cluster ask before they delete, where they run without a node: the bucket is theirs."""
    return None
