"""Turns of a broker's loop that are too long for the machine that the tests run on.

A broker complains of a turn of more than 100 ms of processor time, and that stays so. Here a slower processor
is allowed for, and that a machine which stood still hands a broker more work at once.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterable
from typing import Final

ALLOWED_SECONDS: Final = 0.15
_WORK_SECONDS: Final = 0.002
"""What `_work` takes of the processor that the bound was found on (AMD EPYC, Python 3.11)."""


def _work() -> None:
    counts: dict[int, int] = {}
    for number in range(20_000):
        counts[number % 997] = counts.get(number % 997, 0) + number


def slowness() -> float:
    """How many times slower than that this machine is now; never less than 1."""

    def once() -> float:
        started = time.thread_time()
        _work()
        return time.thread_time() - started

    return max(1.0, statistics.median(once() for _ in range(9)) / _WORK_SECONDS)


def too_long(
    lines: Iterable[str], slowness: Callable[[], float] = slowness, allowed: float = ALLOWED_SECONDS
) -> list[str]:
    """Of a broker's complaints (name, colon, JSON), those that count. The machine is measured only if there
    are some."""
    complaints = list(lines)
    bound = allowed * slowness() if complaints else 0.0
    return [line for line in complaints if json.loads(line[line.index("{") :])["seconds"] > bound]
