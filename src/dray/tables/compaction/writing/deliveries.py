"""Deliveries of a round's files while the rest is being written: topics do not wait for each other's slowest
unit.

A topic is carried on once all of its units are answered, since each commit of its table costs; what waits
longer for the last one goes without it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final
from uuid import UUID

from dray.base.runtime import Runtime
from dray.tables.compaction.model import Unit, UnitAnswer

LINGER_SECONDS: Final = 15.0
Carry = Callable[[list[UnitAnswer]], Awaitable[None]]


class Deliveries:
    """`carry` is called with answers that are due, one call at a time. A writer that delivers nothing costs
    nothing here."""

    def __init__(
        self, units: Sequence[Unit], carry: Carry, runtime: Runtime, count: Callable[[int], None]
    ) -> None:
        """`count` is told the bytes of each unit that is answered."""
        self._count = count
        self._open = {(unit.stream, unit.job): unit for unit in units}
        self._left = Counter(unit.topic_id for unit in units)
        self._carry = carry
        self._runtime = runtime
        self._waiting: dict[UUID, list[UnitAnswer]] = {}  # what is not due yet
        self._since: dict[UUID, float] = {}
        self._news = asyncio.Event()
        self._ended = False
        self._carrier: asyncio.Task[None] | None = None

    def deliver(self, answer: UnitAnswer) -> None:
        unit = self._close(answer)
        if unit is None:
            return  # it was answered before
        topic = unit.topic_id
        self._left[topic] -= 1
        self._waiting.setdefault(topic, []).append(answer)
        self._since.setdefault(topic, self._runtime.monotonic())
        self._news.set()
        if self._carrier is None:
            self._carrier = self._runtime.spawn(self._carry_on(), "carry on what is written")

    def closed(self, answers: Sequence[UnitAnswer]) -> list[UnitAnswer]:
        """Those that came in the end, without those that came before."""
        return [answer for answer in answers if self._close(answer) is not None]

    def _close(self, answer: UnitAnswer) -> Unit | None:
        unit = self._open.pop((answer.stream, answer.job), None)
        if unit is not None:
            self._count(sum(entry.stored_bytes for entry in unit.decoded()))
        return unit

    def unanswered(self) -> list[Unit]:
        return list(self._open.values())

    async def end(self) -> list[UnitAnswer]:
        """The writer is done: what is left to be carried on. Raises what `carry` raised."""
        self._ended = True
        self._news.set()
        if self._carrier is not None:
            await self._carrier
        return [answer for answers in self._waiting.values() for answer in answers]

    async def stop(self) -> None:
        """At the end of the process, or of the writer: in the middle of anything."""
        if self._carrier is not None and not self._carrier.done():
            self._carrier.cancel()
            await asyncio.wait([self._carrier])

    async def _carry_on(self) -> None:
        while not self._ended:
            self._news.clear()
            if due := self._take_due():
                await self._carry(due)
                continue
            try:
                await asyncio.wait_for(self._news.wait(), LINGER_SECONDS)
            except TimeoutError:
                continue

    def _take_due(self) -> list[UnitAnswer]:
        long_ago = self._runtime.monotonic() - LINGER_SECONDS
        due = [topic for topic in self._waiting if not self._left[topic] or self._since[topic] <= long_ago]
        for topic in due:
            del self._since[topic]
        return [answer for topic in due for answer in self._waiting.pop(topic)]
