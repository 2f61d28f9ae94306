"""A bound on what is done on the event loop before others get their turn."""

from __future__ import annotations

from dray.runtime.contract import Runtime


class Turns:
    """Work on the loop is paid for from `left`. Where that is used up, the next one that has work waits for
    another turn of the loop, and then there is as much again. It is not renewed before: little work now and
    then means one short wait in a long while, and nothing has to run at every turn."""

    __slots__ = ("_number", "left", "limit")

    def __init__(self, limit: int) -> None:
        self._number = 0
        self.limit = self.left = limit

    async def wait(self, runtime: Runtime) -> None:
        """Until something may be done. Those that wait go on in the order they came."""
        while self.left <= 0:
            number = self._number
            await runtime.sleep(0)
            if number == self._number:  # the first of those that waited through this turn
                self._number += 1
                self.left = self.limit
