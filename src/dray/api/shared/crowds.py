"""Much of the same in one request: some of it at a time, so that the event loop has turns in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from dray.runtime import Runtime

T = TypeVar("T")

AT_A_TIME: Final = 256

PARTS_A_TURN: Final = 500
"""Of a large answer: some milliseconds."""


async def gather_some(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """`asyncio.gather`, of so many at a time. A generator makes the coroutines as they are begun."""
    results: list[T] = []
    waiting = iter(work)
    while some := list(islice(waiting, AT_A_TIME)):
        results += await asyncio.gather(*some)
    return results


class Writable(Protocol):
    """A part of a message."""

    def write(self, out: bytearray, version: int, cuts: Any) -> None: ...


Part = TypeVar("Part", bound=Writable)


class WrittenPart:
    """A part of a response that is encoded already: to encode the response only puts it in its place."""

    __slots__ = ("_content",)

    def __init__(self, content: bytearray) -> None:
        self._content = content

    def write(self, out: bytearray, version: int, cuts: Any) -> None:  # noqa: ARG002 - as all parts
        out += self._content


class LargeAnswer:
    """Encodes the parts of an answer of thousands, some in each turn of the event loop: all at once would
    hold it up for a tenth of a second and more. No part may hold records."""

    def __init__(self, runtime: Runtime, version: int) -> None:
        self._runtime = runtime
        self._version = version
        self._left = PARTS_A_TURN

    async def written(self, part: Part, weight: int = 1) -> Part:
        """`weight`: of how many parts this one is made."""
        content = bytearray()
        part.write(content, self._version, [])
        self._left -= weight
        if self._left <= 0:
            self._left = PARTS_A_TURN
            await self._runtime.sleep(0)
        return cast(Part, WrittenPart(content))
