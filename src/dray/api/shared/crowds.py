"""Much of the same in one request: some of it at a time, so that the event loop has turns in between."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")

AT_A_TIME: Final = 256


async def gather_some(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """`asyncio.gather`, of so many at a time. A generator makes the coroutines as they are begun."""
    results: list[T] = []
    waiting = iter(work)
    while some := list(islice(waiting, AT_A_TIME)):
        results += await asyncio.gather(*some)
    return results
