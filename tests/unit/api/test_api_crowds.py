"""Much of the same in one request."""

from __future__ import annotations

import asyncio

from dray.api.shared import AT_A_TIME, gather_some


async def test_some_at_a_time_and_in_their_order() -> None:
    running = most = 0

    async def one(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    count = 3 * AT_A_TIME + 7
    assert await gather_some(one(number) for number in range(count)) == list(range(count))
    assert most == AT_A_TIME
    assert await gather_some(one(number) for number in range(0)) == []
