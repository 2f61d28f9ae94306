"""Hints at streams that carry: keys by which packers find them after the broker that carried is gone.

A hint is put beside the first carried commit of a stream, and again every half hour that the stream carries.
So one that has stood for longer than that is of a broker that no longer carries, or no longer is.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from dray.metadata import keys
from dray.metadata.contract import Put
from dray.metadata.values import ValueCorrupt, seal, unseal

FORMAT: Final = 1
_HINT: Final = Struct(">q")

RENEW_SECONDS: Final = 1800.0
STANDING_SECONDS: Final = 2 * RENEW_SECONDS
"""A hint that was not renewed for so long, on the clock of the process that sees it, may be followed."""


def encode_hint(now_ms: int) -> bytes:
    """The time is for people."""
    return seal(FORMAT, _HINT.pack(now_ms))


def check_hint(value: bytes) -> None:
    """Raises `UnreadableValue`: the hint of another build may ask for something else."""
    _, body = unseal("a hint at carried entries", value, FORMAT)
    if len(body) != _HINT.size:
        raise ValueCorrupt("a hint at carried entries", f"it has {len(body)} bytes")


class CarriedHints:
    """When this broker last put the hint of each stream."""

    def __init__(self) -> None:
        self._put: dict[int, float] = {}

    def due(self, streams: Iterable[int], now: float) -> list[int]:
        return [stream for stream in streams if now - self._put.get(stream, -RENEW_SECONDS) >= RENEW_SECONDS]

    @staticmethod
    def puts(streams: Iterable[int], now_ms: int) -> dict[int, Put]:
        return {stream: Put(keys.carried_hint(stream), encode_hint(now_ms)) for stream in streams}

    def put_at(self, streams: Iterable[int], now: float) -> None:
        """The write that held them is known to have applied."""
        self._put.update(dict.fromkeys(streams, now))

    def forget_idle(self, now: float) -> None:
        self._put = {stream: at for stream, at in self._put.items() if now - at < RENEW_SECONDS}
