"""New records as they come. Nothing is dropped and nothing is missed: a position moves only behind what was
handed on, and a slow reader is waited for, since the log keeps what it has not read yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Final

from dray.inspection.matching import Match
from dray.inspection.reading import OffsetGone, TopicReader
from dray.inspection.records import RecordRow, row_of
from dray.runtime import Runtime

MOST_PARTITIONS: Final = 32
"""As many are followed at once: each has a connection of its own."""

_WAIT_MS: Final = 1000
_AHEAD: Final = 4
"""Fetches that may wait to be handed on, over all partitions."""


@dataclass(frozen=True)
class TailPiece:
    """Rows of one partition, and where every partition stands after them."""

    rows: list[RecordRow]
    positions: Mapping[int, int]
    gone: str | None = None


async def follow(
    readers: Mapping[int, TopicReader],
    positions: Mapping[int, int],
    runtime: Runtime,
    match: Match | None = None,
) -> AsyncIterator[TailPiece]:
    """Endless; close it to stop. A reader per partition, each with connections of its own, since a fetch
    that waits holds up what comes after it."""
    at = dict(positions)
    pieces: asyncio.Queue[tuple[int, list[RecordRow], int, str | None]] = asyncio.Queue(_AHEAD)

    async def read(partition: int, reader: TopicReader) -> None:
        position = at[partition]
        while True:
            try:
                fetched = await reader.fetch(partition, position, match=match, wait_ms=_WAIT_MS)
            except OffsetGone as error:
                if error.start > position:
                    await pieces.put((partition, [], error.start, str(error)))
                    position = error.start
                else:  # the end is behind us: a topic that was made anew, or a log that lost its end
                    await pieces.put((partition, [], error.end, str(error)))
                    position = error.end
                continue
            rows = [row_of(partition, item) for item in fetched.items]
            position = fetched.following
            await pieces.put((partition, rows, position, None))

    tasks = [
        runtime.spawn(read(partition, reader), f"follow partition {partition}")
        for partition, reader in readers.items()
    ]
    try:
        while True:
            taking = runtime.spawn(pieces.get(), "take what was followed")
            try:
                await asyncio.wait({taking, *tasks}, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    if task.done():
                        task.result()  # a reader ends only by failing
                if not taking.done():
                    continue
            finally:
                taking.cancel()
            partition, rows, position, gone = taking.result()
            at[partition] = position
            yield TailPiece(rows, dict(at), gone)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
