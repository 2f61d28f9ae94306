"""The cases by name, and how they are run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from dray.kafka.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from tests.referee.notation import GroupNotation
from tests.referee.session import Session

Case = Callable[[Session], Awaitable[None]]
LOG_CASES: dict[str, Case] = {}
GROUP_CASES: dict[str, Case] = {}

AT_ONCE: Final = 8
"""Cases of groups that run side by side: most of their time they wait for timeouts."""

CONTROL: Final = "control"
"""The client that looks at what the members of groups do."""


def case(function: Case) -> Case:
    """Register a case of the log under its function's name."""
    return _register(LOG_CASES, function)


def group_case(function: Case) -> Case:
    return _register(GROUP_CASES, function)


def _register(cases: dict[str, Case], function: Case) -> Case:
    name = getattr(function, "__name__", "").replace("_", "-")
    assert name not in cases, name
    cases[name] = function
    return function


async def run_case(name: str, bootstrap: str) -> dict[str, Any]:
    """The notes of a case of the log."""
    session = Session(name, bootstrap)
    try:
        await session.meet()
        await LOG_CASES[name](session)
    finally:
        await session.close()
    return session.notes


async def run_group_cases(bootstrap: str, names: Collection[str]) -> dict[str, dict[str, Any] | Exception]:
    """The notes of each case, or what went wrong in it."""
    places = asyncio.Semaphore(AT_ONCE)

    async def run(name: str) -> dict[str, Any] | Exception:
        async with places:
            session = Session(name, bootstrap, GroupNotation(), CONTROL)
            try:
                await session.meet()
                await session.meet_coordinator()
                await GROUP_CASES[name](session)
            except Exception as error:  # the test of this case raises it
                error.add_note("\n".join(f"{label}: {note}" for label, note in session.notes.items()))
                return error
            finally:
                await session.close()
            return session.notes

    return dict(zip(names, await asyncio.gather(*(run(name) for name in names)), strict=True))


def subscription(*topics: str) -> bytes:
    """What a consumer of the classic protocol says about itself."""
    body = ConsumerProtocolSubscription(topics=list(topics)).encode(1)
    return b"\0\1" + b"".join(bytes(part) for part in body)
