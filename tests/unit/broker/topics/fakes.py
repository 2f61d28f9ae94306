"""What the tests of topics and of the APIs above them stand on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from tests.services import room_settings

from dray.base.runtime import SystemRuntime
from dray.log.types import LogUnavailable

# Nothing happens by itself in these tests unless one asks for it.
QUIET = room_settings.topics(reread_interval=3600, sweep_interval=3600, sweep_grace=0, unknown_id_pause=0)


class ImpatientRuntime(SystemRuntime):
    """Pauses between attempts take no time; long sleeps do not end."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0 if seconds < 60 else seconds)


class FakeStreams:
    """The log's streams, seen by every broker of a test."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.closed: set[int] = set()
        self.swept: set[int] = set()
        self.events: list[tuple[str, tuple[int, ...]]] = []
        self.failing: set[str] = set()
        self._next = 100

    async def create_streams(self, count: int) -> list[int]:
        self._may_fail("create")
        streams = list(range(self._next, self._next + count))
        self._next += count
        self.open.update(streams)
        self.events.append(("create", tuple(streams)))
        return streams

    async def close_streams(self, streams: Sequence[int]) -> None:
        self._may_fail("close")
        self.events.append(("close", tuple(streams)))
        self.open.difference_update(streams)
        self.closed.update(stream for stream in streams if stream not in self.swept)

    async def sweep_streams(self, streams: Sequence[int]) -> None:
        self._may_fail("sweep")
        assert not self.open.intersection(streams), "an open stream was swept"
        self.events.append(("sweep", tuple(streams)))
        self.closed.difference_update(streams)
        self.swept.update(streams)

    def _may_fail(self, what: str) -> None:
        if what in self.failing:
            raise LogUnavailable(f"{what} fails in this test")


async def settle() -> None:
    """Let what was spawned run to its end: everything here is in memory."""
    for _ in range(50):
        await asyncio.sleep(0)


async def eventually(true: Callable[[], object]) -> None:
    """Until it holds: what brings it about is on its way, and nothing here takes time."""
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)
