"""The findings about a log that another system wrote: segments, and why something is refused."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from struct import Struct
from typing import Final
from uuid import UUID

from dray.migration.formats.batches import ForeignFault
from dray.migration.formats.kafka_files import AbortedTransaction, EpochStart, TimeRow

ROW: Final = Struct(">qI")
"""An offset, and where its batch begins."""

TIME_ROW: Final = Struct(">qq")
"""A time, and an offset up to which no record is younger."""

ROW_STEP: Final = 1 << 20
"""A row for every so many bytes of a segment is enough to read from: so many are read at once anyway."""


class MigrationRefused(Exception):
    """Why it cannot be done, in one line that says what to do."""


class PartitionRefused(MigrationRefused):
    """One partition cannot be attached. Others may."""

    def __init__(self, partition: int, reason: str) -> None:
        super().__init__(f"partition {partition}: {reason}")
        self.partition = partition
        self.reason = reason


@contextmanager
def naming(path: str) -> Iterator[None]:
    """A fault in foreign bytes, with the name of the object that has them."""
    try:
        yield
    except ForeignFault as fault:
        raise MigrationRefused(f"{path}, {fault}") from None


@dataclass(frozen=True, slots=True)
class FoundSegment:
    """A segment whose copy was finished."""

    segment_id: UUID
    path: str
    """The object with its batches."""
    object_size: int
    segment_size: int
    """The batches' own bytes, whatever they take where they lie."""
    start: int
    end: int
    """The offset after its last one."""
    max_timestamp: int
    """No record is younger."""
    min_timestamp: int = -1
    """That of its first record; -1 where it is not known."""
    epochs: tuple[EpochStart, ...] = ()
    """The leaders' epochs from the log's start to this segment's end, as the broker that copied it knew
    them. None are known of logs without leaders."""
    rows: bytes = b""
    times: bytes = b""
    aborted: tuple[AbortedTransaction, ...] = ()
    """Those whose end is in this segment."""
    state_path: str = ""
    """The path of the producers' snapshot at its end, if there is one."""


def thinned_times(times: Sequence[TimeRow], rows: bytes) -> bytes:
    """For each row the first time that stands for all that lies before it; and the last one of all."""
    if not times:
        return b""
    kept: list[TimeRow] = []
    at = 0
    for offset, _ in ROW.iter_unpack(rows):
        while at < len(times) - 1 and times[at].offset < offset:
            at += 1
        if not kept or kept[-1] is not times[at]:
            kept.append(times[at])
    if kept[-1] is not times[-1]:
        kept.append(times[-1])
    return b"".join([TIME_ROW.pack(*row) for row in kept])


def thinned(rows: list[tuple[int, int]]) -> bytes:
    """Rows of (offset, position), growing, with at most one for each `ROW_STEP` bytes."""
    kept: list[bytes] = []
    following = 0
    for offset, position in rows:
        if position >= following:
            kept.append(ROW.pack(offset, position))
            following = position + ROW_STEP
    return b"".join(kept)
