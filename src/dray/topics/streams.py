"""What the topics need of the log: to make streams, to close them, and to sweep them away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Streams(Protocol):
    async def create_streams(self, count: int) -> list[int]:
        """Fresh stream ids; each can be appended to when this returns, before any topic names it."""

    async def close_streams(self, streams: Sequence[int]) -> None:
        """From now on no broker can append to them. Closing one that is closed or swept does nothing."""

    async def sweep_streams(self, streams: Sequence[int]) -> None:
        """Remove what closed streams left behind. Sweeping twice does nothing."""
