"""The client's half of a session: it stops believing before anybody else may stop waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.metadata.stopped_clock import StoppedClock

from dray.metadata.contract import Unavailable
from dray.metadata.sessions import KeptSession, SendTime

TTL = 0.06


def kept(
    runtime: StoppedClock,
    renew: Callable[[], Awaitable[bool]],
    removed: list[str] | None = None,
    ttl: float = TTL,
) -> KeptSession:
    async def remove() -> None:
        if removed is not None:
            removed.append("removed")

    return KeptSession(
        runtime, domain=0, identity=1, ttl=ttl, sent=SendTime.now(runtime), renew=renew, remove=remove
    )


async def test_a_keep_alive_counts_from_when_it_was_sent() -> None:
    runtime = StoppedClock()
    renewed = asyncio.Event()

    async def renew() -> bool:
        runtime.now += 0.01  # the answer takes its time
        renewed.set()
        return True

    session = kept(runtime, renew)
    assert session.confirmed_until() == runtime.now + TTL
    runtime.now += 0.02
    sent = runtime.now
    await renewed.wait()
    await asyncio.sleep(0)
    assert session.confirmed_until() == sent + TTL
    session.abandon()
    runtime.close()


async def test_it_ends_by_the_clock_though_nobody_said_so() -> None:
    """A process that was frozen wakes up to a session that may be anybody's."""
    runtime = StoppedClock()
    session = kept(runtime, asyncio.Event().wait)
    assert not session.ended
    runtime.now += TTL
    assert session.ended
    async with asyncio.timeout(60):
        await session.wait_ended()
    runtime.close()


async def test_a_keep_alive_without_an_answer_does_not_hold_the_end_up() -> None:
    runtime = StoppedClock()
    asked = asyncio.Event()

    async def renew() -> bool:
        asked.set()
        runtime.now += TTL
        await asyncio.Event().wait()
        return True

    session = kept(runtime, renew)
    async with asyncio.timeout(60):
        await session.wait_ended()
    assert asked.is_set()
    runtime.close()


async def test_failed_keep_alives_are_tried_again() -> None:
    runtime = StoppedClock()
    answers = [Unavailable("first"), Unavailable("second")]
    renewed = asyncio.Event()

    async def renew() -> bool:
        runtime.now += 0.001
        if answers:
            raise answers.pop()
        renewed.set()
        return True

    session = kept(runtime, renew)
    before = session.confirmed_until()
    async with asyncio.timeout(60):
        await renewed.wait()
    await asyncio.sleep(0)
    assert not session.ended
    assert session.confirmed_until() > before
    session.abandon()
    runtime.close()


async def test_it_ends_when_the_engine_says_so() -> None:
    runtime = StoppedClock()

    async def renew() -> bool:
        return False

    session = kept(runtime, renew)
    async with asyncio.timeout(60):
        await session.wait_ended()
    assert session.ended
    runtime.close()


async def test_close_removes_once_and_again_if_it_failed() -> None:
    runtime = StoppedClock()
    calls = 0

    async def remove() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise Unavailable("not now")

    session = KeptSession(
        runtime,
        domain=0,
        identity=1,
        ttl=TTL,
        sent=SendTime.now(runtime),
        renew=asyncio.Event().wait,
        remove=remove,
    )
    with pytest.raises(Unavailable):
        await session.close()
    assert session.ended
    await session.close()
    await session.close()
    assert calls == 2
    runtime.close()


async def test_after_clocks_that_stood_still_nothing_is_certain_before_the_next_keep_alive() -> None:
    """The wall clock was set right; the other one did not see the pause. A keep-alive is sent at once."""
    runtime = StoppedClock()
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def renew() -> bool:
        asked.set()
        await go_on.wait()
        return True

    session = kept(runtime, renew, ttl=1000.0)
    runtime.ahead = 400.0
    assert session.confirmed_until() < runtime.now
    assert session.confirmed_until() < runtime.now
    async with asyncio.timeout(60):
        await asked.wait()
    assert not session.ended  # that is the engine's to say
    go_on.set()
    await asyncio.sleep(0)
    assert session.confirmed_until() == runtime.now + 1000.0
    session.abandon()
    runtime.close()


async def test_a_session_that_ended_meanwhile_is_over_at_once() -> None:
    runtime = StoppedClock()

    async def renew() -> bool:
        return False

    session = kept(runtime, renew, ttl=1000.0)
    runtime.ahead = 400.0
    assert session.confirmed_until() < runtime.now
    async with asyncio.timeout(60):
        await session.wait_ended()
    assert session.ended
    runtime.close()


@pytest.mark.parametrize("ahead", [-5000.0, 300.0])
async def test_a_wall_clock_that_is_set_a_little_or_back_says_nothing(ahead: float) -> None:
    runtime = StoppedClock()
    session = kept(runtime, asyncio.Event().wait, ttl=1000.0)
    runtime.ahead = ahead
    assert session.confirmed_until() == runtime.now + 1000.0
    session.abandon()
    runtime.close()
