"""The events of a run, in words, to understand a failure by. Kept short: the last steps."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

_LAST: Final = 4000


class TraceStep(NamedTuple):
    at: float
    """In seconds of simulated time."""
    who: str
    what: str


class Trace:
    """Lines are put together only when they are read: most runs end well, and need none."""

    def __init__(self) -> None:
        self._steps: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=_LAST)

    def __call__(self, who: str, *what: object) -> None:
        self._steps.append((asyncio.get_running_loop().time(), who, what))

    def steps(self, last: int = _LAST) -> list[TraceStep]:
        steps = list(self._steps)[-last:]
        return [TraceStep(moment, who, " ".join(map(str, what))) for moment, who, what in steps]

    def lines(self, last: int = _LAST) -> list[str]:
        return [f"{step.at:9.4f}  {step.who:<12} {step.what}" for step in self.steps(last)]
