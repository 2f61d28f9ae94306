"""A bound on what is done on the event loop before others get their turn."""

from __future__ import annotations

import asyncio

from dray.runtime.contract import Runtime


class Turns:
    """Work on the loop is paid for from `left`. Where that is used up, the next one that has work waits for
    another turn of the loop. Each turn there is as much again: a callback is due after the first payment of a
    turn. Without it, a steady load of small work would have to wait now and then; and behind one request that
    waits, all that follow it on its connection do."""

    __slots__ = ("_renewal_due", "left", "limit")

    def __init__(self, limit: int) -> None:
        self._renewal_due = False
        self.limit = self.left = limit

    def pay(self, cost: int) -> None:
        self.left -= cost
        if not self._renewal_due:
            self._renewal_due = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._renewal_due = False
        self.left = self.limit

    async def wait(self, runtime: Runtime) -> None:
        """Until something may be done. Those that wait go on in the order they came."""
        while self.left <= 0:
            self.pay(0)
            await runtime.sleep(0)
