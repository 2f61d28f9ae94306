"""When a connection has made us wait long enough.

Looked at now and then by a sweep over all connections, so a request pays no clock call for it: the
sweep sees by the byte counts whether anything has moved since it last came by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dray.server.settings import ServerSettings


@dataclass(slots=True)
class Standing:
    """What a sweep sees of a connection."""

    received_bytes: int
    frames: int
    unfinished: int
    """Size of the frame that is arriving, -1 when there is none or we are not reading."""
    unsent: int
    busy: bool
    """Requests are being worked on, or wait for memory: the peer waits for us."""
    closing: bool


class Patience:
    """Returns the reason to give up on a connection, or None. Pure: the clock is an argument."""

    __slots__ = ("_frame", "_frame_since", "_moved_at", "_progress")

    def __init__(self, now: float) -> None:
        self._progress = (0, 0)
        self._moved_at = now
        self._frame = -1
        self._frame_since = now

    def exhausted(self, now: float, standing: Standing, settings: ServerSettings) -> str | None:
        # At the end only our answers count: what a peer still sends is thrown away.
        progress = (0 if standing.closing else standing.received_bytes, standing.unsent)
        if progress != self._progress:
            self._progress = progress
            self._moved_at = now
        still = now - self._moved_at
        if standing.closing:
            return "unsent answers at close" if still > settings.frame_seconds else None
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
