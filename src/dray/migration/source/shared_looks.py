"""An answer of a store, asked for once for all that wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from dray.base.runtime import Runtime

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class NotAnswered(Exception):
    """The store did not say. One line says why."""


class Look(NamedTuple, Generic[Value]):
    value: Value
    asked: float
    """When the question left: what it says was true then, or later."""


class SharedLooks(Generic[Key, Value]):
    """`read` raises `NotAnswered`. It is begun at most every `pause` seconds for one key."""

    def __init__(
        self, read: Callable[[Key], Awaitable[Value]], runtime: Runtime, pause: float, name: str
    ) -> None:
        self._read = read
        self._runtime = runtime
        self._pause = pause
        self._name = name
        self._found: dict[Key, Look[Value]] = {}
        self._begun: dict[Key, float] = {}
        self._next: dict[Key, asyncio.Task[Look[Value] | NotAnswered]] = {}

    async def within(self, key: Key, seconds: float) -> Look[Value]:
        """An answer that was asked for at most so long ago."""
        found = self._found.get(key)
        if found is not None and self._runtime.monotonic() - found.asked <= seconds:
            return found
        return await self.fresh(key)

    async def fresh(self, key: Key) -> Look[Value]:
        """An answer that is asked for from now on. A question that is on its way already would not do."""
        task = self._next.get(key)
        if task is None:
            task = self._next[key] = self._runtime.spawn(self._look(key), self._name)
        found = await asyncio.shield(task)
        if isinstance(found, NotAnswered):
            raise found
        return found

    async def _look(self, key: Key) -> Look[Value] | NotAnswered:
        """A failure is returned, not raised: it is the answer to all that share this task."""
        begun = self._begun.get(key)
        if begun is not None and (wait := begun + self._pause - self._runtime.monotonic()) > 0:
            await self._runtime.sleep(wait)
        del self._next[key]
        asked = self._begun[key] = self._runtime.monotonic()
        try:
            look = Look(await self._read(key), asked)
        except NotAnswered as failure:
            return failure
        known = self._found.get(key)
        if known is None or known.asked < asked:
            self._found[key] = look
        return look
