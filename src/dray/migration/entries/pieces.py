"""A piece of a foreign segment: batches one behind the other, checked, and made ready to be served.

Bytes that another system wrote are not trusted: every batch must be whole, of the format that is known, with
a sound checksum, and its offsets above those before it. The bytes stay as they are but for the leader epoch,
which the checksum does not cover.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left

from dray.kafka.records import HEADER_SIZE, NO_PRODUCER, BatchHeader, crc32c, read_header, restore
from dray.kafka.records.header import CONTROL, DELETE_HORIZON, MAGIC, OPENING, REST, TRANSACTIONAL
from dray.log.entries import IndexEntry
from dray.log.outside_table import OutsideTable
from dray.log.read.parquet_cache import Batches
from dray.log.types import OutsideFault
from dray.objects.contract import Buffer, OwnBuffer

_LARGEST_DELTA = 2**31 - 1


class ForeignBatches(Batches):
    """As the batches of a row group, with where each begins in the log, and its greatest time."""

    __slots__ = ("starts", "times")

    def __init__(self, data: OwnBuffer, headers: list[tuple[int, BatchHeader]]) -> None:
        self.data = memoryview(data)
        self.starts = array("q", [header.base_offset for _, header in headers])
        self.lasts = array("q", [header.base_offset + header.last_offset_delta for _, header in headers])
        self.times = array("q", [header.max_timestamp for _, header in headers])
        self.positions = array("q", [*[position for position, _ in headers], len(data)])
        self.size = len(data) + 32 * len(headers)
        self.used = 0

    def below(self, end: int) -> int:
        """How many of the batches begin below an offset."""
        return bisect_left(self.starts, end)

    def batch(self, number: int) -> memoryview:
        return self.data[self.positions[number] : self.positions[number + 1]]


def walk(data: OwnBuffer, path: str, at: int) -> list[tuple[int, BatchHeader]]:
    """The headers of the batches, each with its place in `data`, which begins at byte `at` of the segment.
    Their checksums are not looked at. Raises `OutsideFault`."""
    headers: list[tuple[int, BatchHeader]] = []
    position, next_offset, size = 0, 0, len(data)
    while position < size:
        if size - position < HEADER_SIZE:
            raise _fault(path, at + position, "a batch is cut off in its header")
        header = read_header(data, position)
        if header.magic != MAGIC:
            raise _fault(path, at + position, f"the message format {header.magic}, and only 2 is known")
        if not HEADER_SIZE <= header.size <= size - position:
            raise _fault(path, at + position, f"a batch of {header.size} bytes does not fit")
        if header.base_offset < next_offset or not 0 <= header.last_offset_delta <= _LARGEST_DELTA:
            raise _fault(path, at + position, f"a batch at offset {header.base_offset} is out of order")
        headers.append((position, header))
        next_offset = header.base_offset + header.last_offset_delta + 1
        position += header.size
    return headers


def prepare(data: OwnBuffer, path: str, at: int, leader_epoch: int) -> ForeignBatches:
    """Check a piece and patch its batches, in place. It belongs in a thread. Raises
    `OutsideFault`."""
    headers = walk(data, path, at)
    places = array("q")
    for position, header in headers:
        places.extend((position, header.size, header.base_offset))
    unsound = restore(data, places, leader_epoch)
    if unsound >= 0:
        raise _fault(path, at + headers[unsound][0], "a batch is not what was stored: its checksum is wrong")
    return ForeignBatches(data, headers)


def check_offsets(batches: ForeignBatches, entry: IndexEntry, table: OutsideTable, number: int) -> None:
    """Kafka's checksum does not cover base offsets. So those at the edges of a piece are held against the
    rows of the index: a wrong one would skip records in silence. Raises `OutsideFault`.

    A row names an offset of what was appended at its position, perhaps of the last of several batches; the
    first row may name any offset from which its entry begins. If an overlap was trimmed, batches lie before
    or behind all that is of the entry."""
    wrong = _wrong_begin(batches, entry, table, number)
    if wrong is None:
        wrong = _wrong_end(batches, entry, table, number)
    if wrong is not None:
        raise OutsideFault(
            f"{entry.path}: a batch says that it is at offset {wrong}, and the index has it elsewhere"
        )


def _wrong_begin(batches: ForeignBatches, entry: IndexEntry, table: OutsideTable, number: int) -> int | None:
    first, row = batches.starts[0], table.rows[number]
    if not number:
        return first if batches.lasts[0] < entry.start <= row.offset else None
    named = bisect_left(batches.lasts, row.offset)
    is_there = named < len(batches.starts) and batches.starts[named] <= row.offset
    return None if is_there and first > table.rows[number - 1].offset else first


def _wrong_end(batches: ForeignBatches, entry: IndexEntry, table: OutsideTable, number: int) -> int | None:
    last = batches.lasts[-1]
    if number + 1 < len(table.rows):
        return last if last >= table.rows[number + 1].offset else None
    kept = batches.below(entry.end)
    if kept == len(batches.starts) or (batches.lasts[kept - 1] >= entry.end - 1 if kept else number):
        return None
    return batches.starts[kept]


def as_data(batch: Buffer) -> bytearray:
    """A batch without its producer, and without what the log here does not know: transactions, markers,
    delete horizons. So a marker can be read like any batch. Its checksum is made anew."""
    data = bytearray(batch)
    header = read_header(data)
    REST.pack_into(
        data,
        OPENING.size,
        header.attributes & ~(TRANSACTIONAL | CONTROL | DELETE_HORIZON),
        header.last_offset_delta,
        header.base_timestamp,
        header.max_timestamp,
        NO_PRODUCER,
        -1,
        -1,
        header.record_count,
    )
    checksum = crc32c(memoryview(data)[OPENING.size :])
    OPENING.pack_into(data, 0, header.base_offset, header.length, header.leader_epoch, header.magic, checksum)
    return data


def _fault(path: str, position: int, reason: str) -> OutsideFault:
    return OutsideFault(f"{path}: byte {position}: {reason}")
