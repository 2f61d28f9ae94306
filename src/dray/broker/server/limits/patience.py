"""When to give up on a connection that makes us wait.

A sweep looks at all connections now and then, so that no request has to read the clock. The sweep sees by the
byte counts whether anything has moved since the last one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from dray.broker.server.settings import ServerSettings

NO_REQUEST: Final = "no request"
_STRANGERS_WAIT: Final = 2
"""How much longer a stranger may stay that waits for us: those that come all at once wait for each other."""


@dataclass(slots=True)
class ConnectionProgress:
    """A connection as a sweep sees it."""

    received_bytes: int
    frames: int
    unfinished: int
    """Size of the frame that is arriving, -1 when there is none or we are not reading."""
    unsent: int
    busy: bool
    """Requests are being worked on, or wait for memory: the peer waits for us."""
    closing: bool
    taken: int = 0
    """Bytes of answers that the peer has acknowledged, so far."""
    pauses: int = 0
    """How often we have stopped reading, so far."""
    stranger: bool = False
    """The peer was asked who it is, and has not said it yet."""


class Patience:
    """Returns the reason to give up on a connection, or None. Pure: the clock is an argument.

    It also knows which peers are slow: that matters only while memory is short (`relieve_frames`)."""

    __slots__ = (
        "_frame",
        "_frame_since",
        "_made_at",
        "_moved_at",
        "_pace_from",
        "_progress",
        "_slow_reader",
        "_taken",
        "_taken_at",
        "_taken_from",
        "pace",
    )

    def __init__(self, now: float) -> None:
        self._made_at = now
        self._progress = (0, 0)
        self._moved_at = now
        self._frame = -1
        self._frame_since = now
        self._pace_from: tuple[int, int, float, int] | None = None
        self.pace: float | None = None
        """Bytes per second of a frame that is too slow to stay when memory is short, else None."""
        self._taken = 0
        self._taken_at: float | None = None
        self._taken_from = (now, 0)
        self._slow_reader = False

    def exhausted(self, now: float, standing: ConnectionProgress, settings: ServerSettings) -> str | None:
        self._watch_frame(now, standing, settings)
        self._watch_answers(now, standing, settings)
        # At the end only our answers count: what a peer still sends is thrown away.
        progress = (0 if standing.closing else standing.received_bytes, standing.unsent)
        if progress != self._progress:
            self._progress = progress
            self._moved_at = now
        still = now - self._moved_at
        if standing.closing:
            return "unsent answers at close" if still > settings.frame_seconds else None
        if standing.stranger or not standing.frames:
            allowed = settings.first_request_seconds
            if standing.busy:  # with attempts of a stranger, it may be without end
                allowed *= _STRANGERS_WAIT if standing.stranger else inf
            if now - self._made_at > allowed:
                return NO_REQUEST
        if standing.unfinished >= 0:
            if self._frame != standing.frames:
                self._frame = standing.frames
                self._frame_since = now
            if still > settings.frame_seconds:
                return "silent in the middle of a frame"
            allowed = settings.frame_seconds + standing.unfinished / settings.slowest_frame_bytes_per_second
            return "frame too slow" if now - self._frame_since > allowed else None
        self._frame = -1
        if standing.unsent:
            return "answers not read" if still > settings.idle_seconds else None
        if standing.busy:
            self._moved_at = now
        return "idle" if still > settings.idle_seconds and not standing.busy else None

    def unread_for(self, now: float, settings: ServerSettings) -> float:
        """How long a peer with unsent answers has taken none of them; 0 for one that makes progress. One
        that takes next to nothing, for long, makes none."""
        if self._taken_at is None:
            return 0.0
        still = now - self._taken_at
        if still >= settings.unread_seconds:
            return still
        return settings.unread_seconds if self._slow_reader else 0.0

    def _watch_frame(self, now: float, standing: ConnectionProgress, settings: ServerSettings) -> None:
        """The pace is that of a whole span in which we were reading the same frame."""
        if standing.unfinished < 0 or standing.closing:
            self._pace_from = self.pace = None
            return
        began = self._pace_from
        if began is None or began[:2] != (standing.frames, standing.pauses):
            self.pace = None
        else:
            seconds = now - began[2]
            if seconds < settings.short_seconds:
                return
            pace = (standing.received_bytes - began[3]) / seconds
            self.pace = pace if pace < settings.short_frame_bytes_per_second else None
        self._pace_from = (standing.frames, standing.pauses, now, standing.received_bytes)

    def _watch_answers(self, now: float, standing: ConnectionProgress, settings: ServerSettings) -> None:
        if not standing.unsent:
            self._taken_at = None
            self._slow_reader = False
        elif self._taken_at is None:
            self._taken_at = now
            self._taken_from = (now, standing.taken)
        else:
            if standing.taken > self._taken:
                self._taken_at = now
            since, taken = self._taken_from
            seconds = now - since
            if seconds >= settings.frame_seconds:
                wanted = settings.slowest_frame_bytes_per_second * seconds
                self._slow_reader = standing.taken - taken < wanted
                self._taken_from = (now, standing.taken)
        self._taken = standing.taken


# --- a client above its quota is not read for a while


class Mute:
    """`over` is called when it has ended."""

    __slots__ = ("_over", "_timer", "_until", "muted")

    def __init__(self, over: Callable[[], None]) -> None:
        self._over: Callable[[], None] | None = over
        self._timer: asyncio.TimerHandle | None = None
        self._until = 0.0
        self.muted = False

    def begin(self, seconds: float) -> None:
        """From now on, for so long; or for what is left of it, if that is more."""
        if self._over is None or seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        self._until = max(self._until, loop.time() + seconds)
        if self._timer is None:
            self.muted = True
            self._timer = loop.call_at(self._until, self._wake)

    def end(self) -> None:
        """The connection is gone."""
        self._over = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        if loop.time() < self._until:
            self._timer = loop.call_at(self._until, self._wake)
            return
        self.muted = False
        if self._over is not None:
            self._over()
