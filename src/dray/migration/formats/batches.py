"""The batches of a Kafka segment, one after the other. Their bytes stay as they are.

Offsets may have holes: where compaction removed records, and where a transaction's markers once were.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from dray.kafka.records import HEADER_SIZE, BatchHeader, Buffer, read_header, sound_headers
from dray.kafka.records.header import CONTROL, MAGIC, MAGIC_AT, PREFIX, TRANSACTIONAL

# --- why foreign bytes are refused


class ForeignFault(Exception):
    """`position` is the byte, counted from the start of what was read. The reader knows the object's name,
    and puts it in front."""

    def __init__(self, reason: str, position: int = 0) -> None:
        super().__init__(f"byte {position}: {reason}")
        self.reason = reason
        self.position = position


class ForeignDamage(ForeignFault):
    """The bytes are not what their writer wrote, or are not of this format."""


class ForeignUnsupported(ForeignFault):
    """The bytes may be whole, in a version or with a feature that is not known here."""


# --- batches

_LARGEST_DELTA: Final = 2**31 - 1
_LARGEST_OFFSET: Final = 2**63 - 1
"""No record has it: a log ends at the offset behind its last record."""

ABORT: Final = 0
COMMIT: Final = 1
_MARKER_KEY: Final = Struct(">hh")  # version, kind


class SegmentBatch(NamedTuple):
    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        """The position of the next batch."""
        return self.position + self.header.size

    @property
    def last_offset(self) -> int:
        return self.header.base_offset + self.header.last_offset_delta

    @property
    def is_control(self) -> bool:
        return bool(self.header.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.header.attributes & TRANSACTIONAL)


def walk_batches(
    segment: Buffer, position: int = 0, *, from_offset: int = 0, checksums: bool = True
) -> Iterator[SegmentBatch]:
    """Every batch from this position, which must be where one begins, to the end. Each is whole, its checksum
    holds, and its offsets are above those before it and at least `from_offset`. Raises `ForeignFault`.
    Without `checksums`: they are looked at elsewhere."""
    view = memoryview(segment)
    next_offset = from_offset
    while position < len(view):
        found = sound_headers(view, position, next_offset, checksums)
        if not found:
            raise _fault(view, position, next_offset)
        for place, header in found:
            yield SegmentBatch(place, header)
        next_offset = header.base_offset + header.last_offset_delta + 1
        position = place + header.size


def _fault(view: memoryview, position: int, next_offset: int) -> ForeignFault:
    """The fault of the batch that should be here."""
    try:
        header = _read(view, position)
    except ForeignFault as fault:
        return fault
    if header.base_offset < next_offset:
        return ForeignDamage(
            f"a batch begins at offset {header.base_offset}, and {next_offset} is the least it may be",
            position,
        )
    return ForeignDamage(f"the checksum of the batch at offset {header.base_offset} is wrong", position)


def marker_of(segment: Buffer, batch: SegmentBatch) -> int | None:
    """The decision in a transaction's marker: `ABORT` or `COMMIT`. None for a batch that is none, for control
    records of other kinds, and where compaction has removed the marker and left its batch. `segment` is what
    the batch's position counts in."""
    if not batch.is_control or not batch.header.record_count:
        return None
    view = memoryview(segment)[batch.position + HEADER_SIZE : batch.end]
    at = 0
    for _ in range(5):  # the record's size, attributes, time, offset; then its key's size
        while at < len(view) and view[at] & 0x80:
            at += 1
        at += 1
    if at + _MARKER_KEY.size > len(view):
        raise ForeignDamage("a control record without a key", batch.position)
    _, kind = _MARKER_KEY.unpack_from(view, at)
    return kind if kind in (ABORT, COMMIT) else None


def cut_torn_tail(segment: Buffer, *, from_offset: int = 0) -> int:
    """How much of the last file of a log is whole. A broker that was killed may leave half a batch behind, or
    a batch whose bytes did not all reach the disk: only at the very end, so bytes that make a batch again
    after such a place are damage, and are refused."""
    end = 0
    try:
        for batch in walk_batches(segment, from_offset=from_offset):
            end = batch.end
    except ForeignUnsupported:
        raise
    except ForeignFault as fault:
        if _holds_a_batch_behind(memoryview(segment), end):
            raise ForeignDamage(f"{fault.reason}; and there are batches behind it", fault.position) from None
    return end


def _read(view: memoryview, position: int) -> BatchHeader:
    """Checked as `sound_headers` does, but for the checksum and what comes before it."""
    left = len(view) - position
    if left > MAGIC_AT and PREFIX.unpack_from(view, position)[1] <= 0:
        raise ForeignDamage("a batch without a length", position)  # zeros, where a file grew before its bytes
    if left > MAGIC_AT and view[position + MAGIC_AT] in (0, 1):
        raise ForeignUnsupported(
            f"records of message format {view[position + MAGIC_AT]}: rewrite them at the source first "
            "(they are of before Kafka 0.11)",
            position,
        )
    if left < HEADER_SIZE:
        raise ForeignDamage(f"{left} bytes are left, and the header of a batch has {HEADER_SIZE}", position)
    header = read_header(view, position)
    if header.magic != MAGIC:
        raise ForeignUnsupported(f"message format {header.magic} is not known", position)
    if header.size < HEADER_SIZE or header.size > left:
        raise ForeignDamage(f"a batch of {header.size} bytes, where {left} are left", position)
    if header.base_offset < 0 or not 0 <= header.last_offset_delta <= _LARGEST_DELTA:
        raise ForeignDamage(
            f"offsets {header.base_offset} and on, {header.last_offset_delta} more of them", position
        )
    if header.base_offset + header.last_offset_delta >= _LARGEST_OFFSET:
        raise ForeignDamage("offsets beyond the largest", position)
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise ForeignDamage(
            f"{header.record_count} records in {header.last_offset_delta + 1} offsets", position
        )
    return header


def _holds_a_batch_behind(view: memoryview, position: int) -> bool:
    """Is there a whole batch after the one at `position` that is broken? Only where that one says where it
    ends, as a length that is lost says nothing."""
    if len(view) - position < PREFIX.size:
        return False
    _, length = PREFIX.unpack_from(view, position)
    behind = position + PREFIX.size + length
    if length <= 0 or behind >= len(view):
        return False
    try:
        next(walk_batches(view, behind), None)
    except ForeignFault:
        return False
    return True
