"""How long a fetch waits for stores that are not ours.

What another system's store does is beyond this cluster's care: it may be slow, or not answer at all. A fetch
waits for it as long as it has nothing else to answer, and then a moment longer for what comes at the same
time. What has not come by then is answered without records. Its read goes on, and the client's next fetch
finds what it brought, or meets its error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeVar

ALONE_SECONDS: Final = 5.0
"""While there is nothing else to answer. Clients give up a request after 30."""

BESIDE_SECONDS: Final = 0.2
"""Once there is something: an object store of the usual kind has answered by then."""

T = TypeVar("T")


class PatientReads(Generic[T]):
    """Reads that are under way from the moment at which this is made. `is_answer`: is a result worth
    answering the client?"""

    def __init__(
        self, reads: Sequence[Coroutine[Any, Any, T]], is_answer: Callable[[T], bool] = lambda _: True
    ) -> None:
        self._tasks = [asyncio.ensure_future(read) for read in reads]
        self._is_answer = is_answer

    async def results(self, *, beside: bool) -> list[T | None]:
        """In their order; None for what has not come in time. `beside`: is there something to answer
        already?"""
        waiting = set(self._tasks)
        try:
            deadline = asyncio.get_running_loop().time() + ALONE_SECONDS
            while waiting and not beside:
                left = deadline - asyncio.get_running_loop().time()
                done, waiting = await asyncio.wait(
                    waiting, timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED
                )
                if not done:
                    break
                beside = any(self._is_answer(task.result()) for task in done)
            if waiting and beside:
                await asyncio.wait(waiting, timeout=BESIDE_SECONDS)
            return [task.result() if task.done() else None for task in self._tasks]
        finally:
            self.cancel()

    def cancel(self) -> None:
        """Of reads that others share, only the waiting ends."""
        for task in self._tasks:
            task.cancel()
