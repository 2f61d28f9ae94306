"""The audit log: who did, or was not allowed to do, what to which resource. One structured line each, and
never more than so many.

What reads and writes records is noted only where it is refused: a line for each request would cost more than
the request. The same again within a minute is counted, and its number is in the next line. Beyond
`LINES_A_SECOND` lines are left out, and the next one says how many: a client must not fill a disk, nor hide
behind its own noise for longer than that. All of them are counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import structlog

_log = structlog.get_logger("dray.audit")

LINES_A_SECOND: Final = 20.0
BURST: Final = 200.0
QUIET_SECONDS: Final = 60.0
_REMEMBERED: Final = 5_000
_LONGEST_SHOWN: Final = 256


class AuditedAct(NamedTuple):
    allowed: bool
    principal: str
    host: str
    operation: str
    resource: str
    name: str
    about: str = ""
    """What is changed, where the resource is the cluster: a topic, a user, an ACL."""


class AuditLog:
    """`monotonic` gives seconds; `write` is for tests."""

    def __init__(
        self, monotonic: Callable[[], float], write: Callable[[AuditedAct, int, int], None] | None = None
    ) -> None:
        self._monotonic = monotonic
        self._write = write or write_line
        self._allowance = BURST
        self._refilled = monotonic()
        self._recent: dict[
            AuditedAct, list[float]
        ] = {}  # since when it is quiet, and how often it came since
        self._left_out = 0
        self.count: Callable[[str], None] = lambda _: None
        """Called with `allowed` or `denied` for each act, and with `left out` for each line that is, for its
        rate."""

    def note(self, act: AuditedAct) -> None:
        self.count("allowed" if act.allowed else "denied")
        if len(act.name) > _LONGEST_SHOWN or len(act.about) > _LONGEST_SHOWN:
            act = act._replace(name=act.name[:_LONGEST_SHOWN], about=act.about[:_LONGEST_SHOWN])
        now = self._monotonic()
        recent = self._recent.get(act)
        if recent is not None and now - recent[0] < QUIET_SECONDS:
            recent[1] += 1
            return
        self._allowance = min(BURST, self._allowance + (now - self._refilled) * LINES_A_SECOND)
        self._refilled = now
        if self._allowance < 1:
            self._left_out += 1
            self.count("left out")
            return
        self._allowance -= 1
        if len(self._recent) >= _REMEMBERED:
            self._recent.clear()
        self._recent[act] = [now, 0]
        times = 1 if recent is None else 1 + int(recent[1])
        left_out, self._left_out = self._left_out, 0
        self._write(act, times, left_out)


def write_line(act: AuditedAct, times: int, left_out: int, log: Any = _log) -> None:
    """The request that it was part of is in the line too: the dispatcher bound it."""
    more: dict[str, object] = {"about": act.about} if act.about else {}
    if left_out:
        more["lines_left_out"] = left_out
    log.info(
        "allowed" if act.allowed else "denied",
        audit=True,
        principal=act.principal,
        host=act.host,
        operation=act.operation,
        resource=act.resource,
        name=act.name,
        times=times,
        **more,
    )
