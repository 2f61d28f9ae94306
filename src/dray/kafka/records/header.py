"""The header of a record batch (magic 2): where its fields lie, what its bits say, and the leader epoch.

Python knows the layout from here and from nowhere else; `batch.h` says it to the compiled core.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

MAGIC: Final = 2

LEADER_EPOCH: Final = 0
"""Leadership never changes hands, as no broker leads: one epoch everywhere, and never -1 after it."""

NO_PRODUCER: Final = -1
"""The producer id of a batch without one."""

# base offset, length, leader epoch, magic, checksum (of all that follows)
OPENING: Final = Struct(">qiibI")
# attributes, last offset delta, base and max timestamp, producer id, epoch, base sequence, record count
REST: Final = Struct(">hiqqqhii")
HEADER_SIZE: Final = OPENING.size + REST.size
# Base offset and length again: a batch's length counts what comes behind these two.
PREFIX: Final = Struct(">qi")
MAGIC_AT: Final = 16

_HEADER: Final = Struct(OPENING.format + REST.format[1:])

# Attributes.
CODEC_BITS: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    checksum: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Of the whole batch, in bytes."""
        return PREFIX.size + self.length


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """As the bytes say it, checked for nothing. There must be `HEADER_SIZE` of them."""
    return BatchHeader._make(_HEADER.unpack_from(buffer, position))


Buffer: TypeAlias = bytes | bytearray | memoryview
