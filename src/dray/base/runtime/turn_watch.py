"""Notices turns of the event loop that take long, and says what ran in them.

While one callback runs, nothing else of the process does: no heartbeat is answered, no session kept alive. A
thread looks at the processor time that the loop's thread has used, and not at the clock on the wall: a
machine that is busy with others is no fault of ours. When the loop is at work, the thread sends it a beat,
and what the loop uses until it takes the beat is what others wait for. In between, the thread looks what the
loop is at. A turn of 100 ms may be missed by the 20 ms between two looks; one of 120 ms is not.

A look costs some microseconds, and an idle loop is not woken. Waking up is what costs an idle process most,
so a loop that does nothing is looked at every 100 ms: the first turn after that may be missed up to 200 ms.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from traceback import walk_stack
from typing import Final

LIMIT: Final = 0.1
INTERVAL: Final = 0.02
_IDLE_INTERVALS: Final = 5
_FRAMES: Final = 10


class TurnWatch:
    """Made and started on the loop that it watches, and stopped there. `held_up` is called there, with the
    seconds of processor time and the frames that were seen, innermost first."""

    def __init__(
        self,
        held_up: Callable[[float, list[str]], None],
        *,
        limit: float = LIMIT,
        interval: float = INTERVAL,
    ) -> None:
        self._held_up = held_up
        self._limit = limit
        self._interval = interval
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._watched)
        self._beating = False
        self._seen: list[str] = []
        # A bare lock: waiting on a `threading.Event` takes several times the processor time.
        self._running = threading.Lock()
        self._running.acquire()
        self._thread = threading.Thread(target=self._watch, name="dray-turn-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No look is taken after this: the clock of a thread that has ended must not be read."""
        if self._thread.is_alive():
            self._running.release()
            self._thread.join()

    def _watch(self) -> None:
        before = sent = self._used()
        pause = self._interval
        while not self._running.acquire(timeout=pause):
            used = self._used()
            is_idle = used - before <= self._interval / 10 and not self._beating
            pause = self._interval * _IDLE_INTERVALS if is_idle else self._interval
            if self._beating:
                if used - sent > self._limit / 2 and not self._seen:
                    self._seen = self._look()
            elif not is_idle:
                sent, self._beating = used, True
                try:
                    self._loop.call_soon_threadsafe(self._beat, sent)
                except RuntimeError:  # the loop is closed
                    return
            before = used

    def _used(self) -> float:
        return time.clock_gettime(self._clock)

    def _look(self) -> list[str]:
        frame = sys._current_frames().get(self._watched)
        return [
            f"{_short(found.f_code.co_filename)}:{line} {found.f_code.co_qualname}"
            for found, line in islice(walk_stack(frame), _FRAMES)
        ]

    def _beat(self, sent: float) -> None:
        seconds = self._used() - sent
        seen, self._seen = self._seen, []
        self._beating = False
        if seconds > self._limit:
            self._held_up(seconds, seen)


def _short(path: str) -> str:
    """From the package on."""
    return path.rpartition("/site-packages/")[2].rpartition("/src/")[2]
