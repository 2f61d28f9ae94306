"""Stores that fail like the real ones: slow, refused, unclear, late, twice, behind.

Each simulated process reaches the shared stores through clients of its own, which can be cut off when it
crashes; what it sent before may still arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from dray.metadata.contract import (
    Ambiguous,
    Change,
    DeleteRange,
    Limits,
    Operation,
    Outcome,
    Session,
    SessionEnded,
    StoredValue,
    Unavailable,
    WriteTooLarge,
    check_write,
)
from dray.metadata.memory import MemoryState, MemoryStore
from dray.objects.contract import (
    Buffer,
    ObjectError,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    OwnBuffer,
    RangeOutside,
)
from dray_simulation.kernel.runtime import SimulatedRuntime, true_time
from dray_simulation.kernel.weather import UnexpectedErrors, Weather

T = TypeVar("T")

_LONGEST_HIDDEN = 12.0
_LATEST_HINT = 1.0


class _AtOnce(MemoryStore):
    """Answers without giving way: the way there and back took its time already."""

    async def _turn(self) -> None:
        if self._closed:
            raise Unavailable("the metadata store is closed")


class FaultyStore:
    """A process's client of the metadata store.

    Reads can be stale, as behind a leader that was deposed and has not noticed: the client then reads
    one past state of the domain until a barrier, or until it finds out by itself. It never sees the
    domain go back, and writes always go to the real one.
    """

    def __init__(
        self,
        state: MemoryState,
        apply: Callable[[int, Sequence[Operation]], list[Outcome]],
        runtime: SimulatedRuntime,
        weather: Weather,
        limits: Limits | None = None,
        unexpected: UnexpectedErrors | None = None,
    ) -> None:
        self._limits = limits
        self._unexpected = unexpected or UnexpectedErrors(weather)
        self._state = state
        self._current = _AtOnce(runtime, state, true_time)
        self._apply = apply  # at once, as the server does it
        self._runtime = runtime
        self._weather = weather
        self._behind: dict[int, MemoryStore] = {}
        self._sessions = _SessionKeeper(runtime, state, true_time)
        self._sessions.unexpected = self._unexpected
        self.cut_off = False

    @property
    def limits(self) -> Limits:
        return self._limits or self._current.limits

    # --- reading

    async def get(self, domain: int, key: str) -> StoredValue | None:
        return await self._answered(await (await self._view(domain, key)).get(domain, key))

    async def floor(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._answered(await (await self._view(domain)).floor(domain, key, prefix))

    async def ceiling(self, domain: int, key: str, prefix: str) -> StoredValue | None:
        return await self._answered(await (await self._view(domain)).ceiling(domain, key, prefix))

    async def scan(self, domain: int, start: str, end: str, limit: int | None = None) -> list[StoredValue]:
        found = await (await self._view(domain, start)).scan(domain, start, end, limit)
        await self._come_back()
        return found

    async def barrier(self, domain: int) -> None:
        await self._travel()
        self._behind.pop(domain, None)
        await self._come_back()

    async def _answered(self, found: StoredValue | None) -> StoredValue | None:
        await self._come_back()
        return found

    async def _come_back(self) -> None:
        await self._weather.delay()
        await self._runtime.awake()
        self._unexpected.maybe_raise()

    async def _view(self, domain: int, touched: str = "") -> MemoryStore:
        if self._weather.reads_travel_both_ways:
            await self._weather.delay()
        await self._set_out(touched)
        if domain not in self._behind and self._weather.happens(self._weather.stale):
            self._fall_behind(domain)
        return self._behind.get(domain, self._current)

    def _fall_behind(self, domain: int) -> None:
        self._weather.counts["reads stale"] += 1
        past = MemoryState()
        now = true_time()
        source, copy = self._state.domain(domain, now), past.domain(domain, now)
        copy.entries.update(source.entries)
        copy.keys.extend(source.keys)
        behind = self._behind[domain] = _AtOnce(self._runtime, past, true_time)

        def catch_up() -> None:
            if self._behind.get(domain) is behind:
                del self._behind[domain]

        seconds = self._weather.random.random() * self._weather.stalest
        asyncio.get_running_loop().call_later(seconds, catch_up)

    # --- writing

    async def write(self, domain: int, operations: Sequence[Operation]) -> list[Outcome]:
        operations = list(operations)
        try:
            check_write(domain, operations, self.limits)
        except WriteTooLarge:
            self._weather.counts["write too large"] += 1
            raise
        await self._travel(" ".join(_key(operation) for operation in operations))
        weather, chance = self._weather, self._weather.random.random()
        outcomes: list[Outcome] | None = None
        why = ""
        if (chance := chance - weather.lost) < 0:
            why = "the request was lost"
        elif (chance := chance - weather.late) < 0:
            weather.arrive_later(lambda: self._apply_late(domain, operations))
            why = "the request timed out"
        else:
            outcomes = self._apply(domain, operations)
            if (chance := chance - weather.unanswered) < 0:
                why = "the reply was lost"
            elif chance - weather.twice < 0:
                weather.counts["write arrived twice"] += 1
                weather.arrive_later(lambda: self._apply_late(domain, operations))
        if why:
            weather.counts[f"write: {why}"] += 1
        await self._come_back()
        if why or outcomes is None:
            raise Ambiguous(why)
        return outcomes

    def _apply_late(self, domain: int, operations: Sequence[Operation]) -> None:
        try:
            self._apply(domain, operations)
        except SessionEnded:
            return  # the caller is gone, too

    # --- the rest

    def cut(self) -> None:
        """The process is gone: nothing more goes out, whatever still runs in it."""
        self.cut_off = True
        self._current.abandon()
        self._sessions.abandon()

    def silence(self, seconds: float) -> None:
        """Let no sign of life through for a while: the sessions of this process may run out under it."""
        self._sessions.silent_until = true_time() + seconds

    async def watch(self, domain: int, endings: tuple[str, ...] = ()) -> AsyncIterator[Change]:
        """Those that name endings go by marks, which prove that nothing was lost: so nothing is."""
        async for change in self._current.watch(domain, endings):
            await self._runtime.awake()
            self._unexpected.maybe_raise()
            if change.key is not None and self._weather.happens(self._weather.unheard):
                if not endings:
                    self._weather.counts["hint lost"] += 1
                    continue
                await self._late_or_broken()
            self._behind.pop(domain, None)
            yield change

    async def _late_or_broken(self) -> None:
        if self._weather.random.random() < 0.3:
            self._weather.counts["watch broken"] += 1
            raise Unavailable("the watch is broken")
        self._weather.counts["hint late"] += 1
        await asyncio.sleep(self._weather.random.random() * _LATEST_HINT)

    async def mark(self, domain: int, name: str) -> None:
        await self._travel()
        await self._current.mark(domain, name)
        await self._come_back()

    async def session(self, domain: int, ttl: float) -> Session:
        await self._travel()
        return await self._sessions.session(domain, ttl)

    async def close(self) -> None:
        await self._sessions.close()
        await self._current.close()

    async def _travel(self, touched: str = "") -> None:
        await self._weather.delay()
        await self._set_out(touched)

    async def _set_out(self, touched: str = "") -> None:
        await self._runtime.awake()
        if self.cut_off:
            raise asyncio.CancelledError
        self._unexpected.maybe_raise(touched)
        if self._weather.happens(self._weather.refused):
            self._weather.counts["store away"] += 1
            raise Unavailable("the metadata store is away")


def _key(operation: Operation) -> str:
    return operation.start if isinstance(operation, DeleteRange) else operation.key


class _SessionKeeper(MemoryStore):
    """The store in which a process opens its sessions and sends its signs of life."""

    silent_until = 0.0
    unexpected: UnexpectedErrors

    async def _turn(self) -> None:
        self.unexpected.maybe_raise()
        if true_time() < self.silent_until:
            raise Unavailable("no sign of life gets through")
        await super()._turn()


class FaultyObjects:
    """A process's client of the object store."""

    def __init__(
        self,
        inner: ObjectStore,
        store_now: Callable[[str, bytes], None],
        delete_now: Callable[[str], None],
        runtime: SimulatedRuntime,
        weather: Weather,
        unexpected: UnexpectedErrors | None = None,
    ) -> None:
        self._unexpected = unexpected or UnexpectedErrors(weather)
        self._inner = inner
        self._store_now = store_now
        self._delete_now = delete_now
        self._runtime = runtime
        self._weather = weather
        self._hidden_until: dict[str, float] = {}  # by path
        self.cut_off = False

    async def put(self, path: str, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        await self._weather.upload_delay()
        await self._change(lambda: self._store_now(path, data))

    async def put_if_absent(self, path: str, parts: Sequence[Buffer]) -> None:
        await self._travel()
        weather = self._weather
        if weather.happens(weather.lost):
            weather.counts["object: the request was lost"] += 1
            raise ObjectError("the request was lost")
        await self._inner.put_if_absent(path, parts)
        if weather.happens(weather.unanswered):
            weather.counts["object: the reply was lost"] += 1
            raise ObjectError("the reply was lost")

    async def put_stream(self, path: str, pieces: AsyncIterator[Sequence[Buffer]]) -> None:
        await self.put(path, [bytes(part) async for parts in pieces for part in parts])

    async def get(self, path: str) -> Buffer:
        await self._travel()
        self._must_show(path)
        found = await self._inner.get(path)
        if not self._weather.lies():
            return found
        buffer = bytearray(found)
        try:
            self._lie(path, [buffer])
        except RangeOutside:
            return bytes(buffer[:-1])
        return bytes(buffer)

    async def get_ranges(self, path: str, ranges: Sequence[tuple[int, int]]) -> Sequence[OwnBuffer]:
        await self._travel()
        self._must_show(path)
        found = await self._inner.get_ranges(path, ranges)
        await self._runtime.awake()
        if self._weather.lies():
            self._lie(path, found)
        return found

    def _lie(self, path: str, found: Sequence[OwnBuffer]) -> None:
        """As answers are bad in clouds: not there, once or for seconds and whoever asks, short, or with a bit
        that is another."""
        how = self._weather.random.choice(("missing", "hidden", "short", "flipped"))
        self._weather.counts[f"object told {how}"] += 1
        if how == "hidden":
            self._hidden_until[path] = true_time() + self._weather.random.random() * _LONGEST_HIDDEN
            self._must_show(path)
        if how == "missing":
            raise ObjectMissing(f"{path}: no such object")
        if how == "short":
            raise RangeOutside(f"{path}: it has 1 byte, more were asked for")
        buffer = self._weather.random.choice(found)
        if buffer:
            buffer[self._weather.random.randrange(len(buffer))] ^= 1 << self._weather.random.randrange(8)

    def _must_show(self, path: str) -> None:
        if self._is_hidden(path):
            raise ObjectMissing(f"{path}: no such object")

    def _is_hidden(self, path: str) -> bool:
        return self._weather.lying > 0.0 and true_time() < self._hidden_until.get(path, 0.0)

    async def with_ranges(
        self, path: str, ranges: Sequence[tuple[int, int]], work: Callable[[Sequence[OwnBuffer]], T]
    ) -> T:
        return work(await self.get_ranges(path, ranges))

    async def head(self, path: str) -> ObjectInfo:
        await self._travel()
        self._weather.counts["object hidden from a look"] += self._is_hidden(path)
        self._must_show(path)
        return await self._inner.head(path)

    async def delete(self, path: str) -> None:
        await self._change(lambda: self._delete_now(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async for info in self._inner.list(prefix):
            if self._is_hidden(info.path) or self._weather.lies():
                self._weather.counts["object left out of a list"] += 1
                continue
            yield info
            await self._runtime.awake()

    def cut(self) -> None:
        self.cut_off = True

    async def close(self) -> None:
        await self._inner.close()

    async def _change(self, act: Callable[[], None]) -> None:
        await self._travel()
        weather, chance = self._weather, self._weather.random.random()
        why = ""
        if (chance := chance - weather.lost) < 0:
            why = "the request was lost"
        elif (chance := chance - weather.late) < 0:
            weather.arrive_later(act)
            why = "the request timed out"
        else:
            act()
            if (chance := chance - weather.unanswered) < 0:
                why = "the reply was lost"
            elif chance - weather.twice < 0:
                weather.counts["object changed twice"] += 1
                weather.arrive_later(act)
        if why:
            weather.counts[f"object: {why}"] += 1
        await weather.delay()
        await self._runtime.awake()
        self._unexpected.maybe_raise()
        if why:
            raise ObjectError(why)

    async def _travel(self) -> None:
        await self._weather.delay()
        await self._runtime.awake()
        if self.cut_off:
            raise asyncio.CancelledError
        self._unexpected.maybe_raise()
        if self._weather.happens(self._weather.refused):
            self._weather.counts["objects away"] += 1
            raise ObjectError("the object store is away")
