"""What work costs, in processor time of the thread that does it: other work does not count."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_seconds(work: Callable[[], object], tries: int = 3) -> float:
    """Of some tries: on a machine that shares its cores with others, one may take twice as long."""

    def once() -> float:
        started = time.thread_time()
        work()
        return time.thread_time() - started

    return min(once() for _ in range(tries))
