"""KafScale's segments: a header, Kafka's batches, a footer; and the index beside them. Version 1, big-endian.

A segment without an index is one whose upload was not finished.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from dray.kafka.records import Buffer, crc32c
from dray.migration.formats.batches import ForeignDamage, ForeignUnsupported, walk_batches

_HEADER: Final = Struct(">4sHHqiqI")
_FOOTER: Final = Struct(">Iq4s")
_INDEX_HEADER: Final = Struct(">4sHiiH")
_INDEX_ROW: Final = Struct(">qi")
_MAGIC: Final = b"KAFS"
_END: Final = b"END!"
_INDEX_MAGIC: Final = b"IDX\0"
_VERSION: Final = 1
FIRST_BATCH: Final = _HEADER.size
FOOTER_SIZE: Final = _FOOTER.size


class KafscaleSegment(NamedTuple):
    base_offset: int
    last_offset: int
    record_count: int
    created_ms: int
    body_end: int
    """Batches lie from `FIRST_BATCH` to here."""


class KafscaleRow(NamedTuple):
    """`offset` is the *first* one of the batch at `position`, which counts from the start of the file."""

    offset: int
    position: int


def read_bounds(header: Buffer, footer: Buffer, size: int) -> tuple[KafscaleSegment, int]:
    """The header and footer of a segment of this size, decoded, and the checksum of the bytes between
    them."""
    if size < FIRST_BATCH + FOOTER_SIZE or len(header) < FIRST_BATCH or len(footer) < FOOTER_SIZE:
        raise ForeignDamage(f"a segment of {size} bytes", size)
    magic, version, flags, base, count, created_ms, _ = _HEADER.unpack_from(header)
    if magic != _MAGIC:
        raise ForeignDamage("it does not begin with KAFS")
    if version != _VERSION or flags:
        raise ForeignUnsupported(f"version {version} of a segment, with the flags {flags}", 4)
    checksum, last, end = _FOOTER.unpack_from(footer)
    if end != _END:
        raise ForeignDamage("it does not end with END!", size - len(_END))
    if not 0 <= base <= last or count < 0:
        raise ForeignDamage(f"{count} records of offsets {base} to {last}", 8)
    return KafscaleSegment(base, last, count, created_ms, size - FOOTER_SIZE), checksum


def read_segment(data: Buffer) -> KafscaleSegment:
    """Checked as a whole: header and footer, the checksum over the batches, every batch, and its offsets."""
    view = memoryview(data)
    segment, checksum = read_bounds(view[:FIRST_BATCH], view[-FOOTER_SIZE:], len(view))
    base, last, count, _, body_end = segment
    body = view[_HEADER.size : body_end]
    if crc32c(body) != checksum:
        raise ForeignDamage("the checksum of the segment is wrong", body_end)
    records = 0
    found = base - 1
    for batch in walk_batches(view[:body_end], _HEADER.size, from_offset=base):
        records += batch.header.record_count
        found = batch.last_offset
    if found != last:
        raise ForeignDamage(f"the batches end at offset {found}, the footer says {last}", body_end)
    if records != count:
        raise ForeignDamage(f"{records} records, the header says {count}", 16)
    return segment


def read_index(data: Buffer, segment: KafscaleSegment) -> list[KafscaleRow]:
    view = memoryview(data)
    if len(view) < _INDEX_HEADER.size:
        raise ForeignDamage(f"an index of {len(view)} bytes", len(view))
    magic, version, count, interval, _ = _INDEX_HEADER.unpack_from(view)
    if magic != _INDEX_MAGIC:
        raise ForeignDamage("it does not begin with IDX")
    if version != _VERSION:
        raise ForeignUnsupported(f"version {version} of an index", 4)
    if count < 0 or interval < 0 or len(view) != _INDEX_HEADER.size + count * _INDEX_ROW.size:
        raise ForeignDamage(f"{count} rows in an index of {len(view)} bytes", 6)
    rows: list[KafscaleRow] = []
    for at, (offset, position) in enumerate(_INDEX_ROW.iter_unpack(view[_INDEX_HEADER.size :])):
        where = _INDEX_HEADER.size + at * _INDEX_ROW.size
        within = segment.base_offset <= offset <= segment.last_offset
        if not within or not FIRST_BATCH <= position < segment.body_end:
            raise ForeignDamage(f"row {offset}, {position} is not within its segment", where)
        if rows and (offset <= rows[-1].offset or position <= rows[-1].position):
            raise ForeignDamage("the rows of an index must grow", where)
        rows.append(KafscaleRow(offset, position))
    return rows
