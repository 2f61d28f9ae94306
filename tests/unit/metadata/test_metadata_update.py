"""The one policy of tries: what is tried again, how often, after which pause, and how it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from dray.base.runtime import SystemRuntime
from dray.metadata.contract import Ambiguous, Unavailable, WriteTooLarge
from dray.metadata.update import (
    ALL_FAILURES,
    LOST_REPLIES,
    MOST_FAILURES,
    MOST_LOSSES,
    PAUSE_SECONDS,
    update,
)


class CountingRuntime(SystemRuntime):
    """Its sleeps take no time, and are remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


LOST = None


def attempts(*results: str | Exception | None) -> tuple[Callable[[], Awaitable[str | None]], list[int]]:
    """Attempts that end so; the last of them again and again."""
    made = [0]

    async def attempt() -> str | None:
        result = results[min(made[0], len(results) - 1)]
        made[0] += 1
        if isinstance(result, Exception):
            raise result
        return result

    return attempt, made


async def test_one_that_succeeds_is_the_only_one() -> None:
    attempt, made = attempts("done")
    runtime = CountingRuntime()
    assert await update(runtime, attempt) == "done"
    assert (made, runtime.slept) == ([1], [])


async def test_one_that_lost_is_made_again_at_once() -> None:
    attempt, made = attempts(LOST, LOST, "done")
    runtime = CountingRuntime()
    assert await update(runtime, attempt) == "done"
    assert (made, runtime.slept) == ([3], [])


async def test_one_whose_reply_was_lost_is_made_again_after_pauses_that_grow() -> None:
    attempt, _ = attempts(Ambiguous("?"), LOST, Ambiguous("?"), "done")
    runtime = CountingRuntime()
    assert await update(runtime, attempt) == "done"
    assert runtime.slept == [PAUSE_SECONDS, 2 * PAUSE_SECONDS]


async def test_a_store_that_is_away_is_tried_again_only_where_that_is_asked_for() -> None:
    attempt, made = attempts(Unavailable("away"), "done")
    with pytest.raises(Unavailable, match="away"):
        await update(CountingRuntime(), attempt, LOST_REPLIES)
    assert made == [1]
    attempt, made = attempts(Unavailable("away"), "done")
    assert await update(CountingRuntime(), attempt, ALL_FAILURES) == "done"
    assert made == [2]


async def test_other_errors_end_it() -> None:
    attempt, made = attempts(WriteTooLarge("too much"), "done")
    with pytest.raises(WriteTooLarge):
        await update(CountingRuntime(), attempt, ALL_FAILURES)
    assert made == [1]


async def test_losses_end_it_after_many() -> None:
    attempt, made = attempts(LOST)
    with pytest.raises(Unavailable, match="others change it all the time"):
        await update(CountingRuntime(), attempt)
    assert made == [MOST_LOSSES]


async def test_failures_end_it_after_some_without_another_pause() -> None:
    attempt, made = attempts(Unavailable("away"))
    runtime = CountingRuntime()
    with pytest.raises(Unavailable, match="away"):
        await update(runtime, attempt, ALL_FAILURES)
    assert made == [MOST_FAILURES]
    assert len(runtime.slept) == MOST_FAILURES - 1


@pytest.mark.parametrize("last", [Unavailable("away"), LOST])
async def test_one_reply_that_was_lost_leaves_it_unclear_whatever_came_later(last: Exception | None) -> None:
    """That write may yet arrive: to say that nothing happened would be wrong."""
    attempt, _ = attempts(Ambiguous("lost"), last)
    with pytest.raises(Ambiguous, match="lost"):
        await update(CountingRuntime(), attempt, ALL_FAILURES)
