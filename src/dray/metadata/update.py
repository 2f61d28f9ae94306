"""Changing what is stored by compare-and-set: one policy of tries for all that read, decide and write.

An attempt reads, decides, and writes with the versions that it read. It is made again

- when it *lost*: another write came in between. At once: each loss is the other one's success, so of all
  that try one gets through.
- when it *failed*: the store did not answer, or its reply was lost (`Ambiguous`). After a pause that grows.
  The next attempt reads what became of the last one: a write that names a version does no harm when it
  arrives late, for by then the key has another.

The commit of records has rules of its own (`log/append/commit.py`), and so have leases.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from dray.base.runtime import Runtime
from dray.metadata.contract import Ambiguous, Unavailable

T = TypeVar("T")

MOST_LOSSES: Final = 64
MOST_FAILURES: Final = 8
PAUSE_SECONDS: Final = 0.05

LOST_REPLIES: Final = (Ambiguous,)
"""For callers whose own caller is asked again soon: a store that is away is reported at once."""
ALL_FAILURES: Final = (Ambiguous, Unavailable)


async def update(
    runtime: Runtime,
    attempt: Callable[[], Awaitable[T | None]],
    again_after: tuple[type[Exception], ...] = LOST_REPLIES,
) -> T:
    """The result of the first attempt that neither lost (None) nor failed. Any other error ends it.

    After too many, `Ambiguous` if a reply of any attempt was lost, so that one may yet apply; otherwise the
    last failure, or `Unavailable` where all attempts lost."""
    losses = failures = 0
    unclear: Ambiguous | None = None
    while True:
        try:
            done = await attempt()
        except again_after as error:
            if isinstance(error, Ambiguous):
                unclear = error
            failures += 1
            if failures == MOST_FAILURES:
                if unclear is not None and unclear is not error:
                    raise unclear from error
                raise
            await runtime.sleep(PAUSE_SECONDS * failures)
            continue
        if done is not None:
            return done
        losses += 1
        if losses == MOST_LOSSES:
            raise unclear or Unavailable("others change it all the time")
