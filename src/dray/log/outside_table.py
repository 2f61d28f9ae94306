"""The part of an index entry about an object that the log did not write: where it lies, and what is in it.

The batches of such an object are not listed one by one: the entry has a row for about every mebibyte, and a
reader walks the batches from there. Their offsets stand in the batches themselves, and may have holes. The
layout of the bytes is a number here: the object that reads them knows what it means (`outside_entries.py`).
Positions count in the batches as they were written, before these were cut into chunks, compressed and
encrypted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from struct import Struct
from typing import Final, NamedTuple

from dray.metadata.values import ValueCorrupt

OWN_STORE: Final = ""
"""The name of the cluster's own object store."""

# layout, length of the store's name, length of the manifest's path, size of the object, end of the entry's
# last batch, number of aborted transactions
_HEADER: Final = Struct(">BBHQQI")
_ABORTED: Final = Struct(">qqq")
_ROW: Final = Struct(">qIq")
_WHAT: Final = "an offset index entry"
_LAYOUTS: Final = 3
"""So many are known. An entry of another one is of a newer build."""


class OutsideRow(NamedTuple):
    """`offset` is one of the batch that begins at `position`: as a rule its last, or its first. No record of
    the entry that lies before it is younger than `time`."""

    offset: int
    position: int
    time: int


class AbortedRange(NamedTuple):
    """A transaction that was aborted: its records are none to a client that reads what is committed."""

    producer_id: int
    first_offset: int
    last_offset: int  # of its marker


@dataclass(frozen=True, slots=True)
class OutsideTable:
    layout: int
    store: str  # its name in the config; empty for our own
    manifest: str  # the path of a second object that says how to read the first, where the layout has one
    object_size: int  # of the object that the entry's path names, as it is stored
    end_position: int  # where the last batch of the entry ends
    rows: tuple[OutsideRow, ...]  # the first is where the entry's batches begin
    aborted: tuple[AbortedRange, ...] = ()  # those that overlap the entry

    @property
    def size(self) -> int:
        """Bytes of the entry's batches, as they were written."""
        return self.end_position - self.rows[0].position

    def piece_of(self, offset: int) -> int:
        """The number of the row from where to look for an offset. It is there, or in a piece behind it:
        a row may name the last offset of its batch."""
        return max(0, bisect_right(self.rows, offset, key=lambda row: row.offset) - 1)

    def bounds_of(self, number: int) -> tuple[int, int]:
        """The positions where a piece begins and ends: at both, a batch does too."""
        following = number + 1
        end = self.rows[following].position if following < len(self.rows) else self.end_position
        return self.rows[number].position, end

    def encode(self) -> bytes:
        store, manifest = self.store.encode(), self.manifest.encode()
        return b"".join(
            [
                _HEADER.pack(
                    self.layout,
                    len(store),
                    len(manifest),
                    self.object_size,
                    self.end_position,
                    len(self.aborted),
                ),
                store,
                manifest,
                *[_ABORTED.pack(*aborted) for aborted in self.aborted],
                *[_ROW.pack(*row) for row in self.rows],
            ]
        )

    @classmethod
    def decode(cls, table: bytes) -> OutsideTable:
        layout, store_size, manifest_size, object_size, end_position, aborted = _HEADER.unpack_from(table)
        store_at = _HEADER.size
        manifest_at = store_at + store_size
        aborted_at = manifest_at + manifest_size
        rows_at = aborted_at + aborted * _ABORTED.size
        if layout >= _LAYOUTS:
            raise ValueCorrupt(_WHAT, f"of a foreign segment: its layout is {layout}")
        try:
            return cls(
                layout,
                table[store_at:manifest_at].decode(),
                table[manifest_at:aborted_at].decode(),
                object_size,
                end_position,
                tuple([OutsideRow._make(row) for row in _ROW.iter_unpack(table[rows_at:])]),
                tuple([AbortedRange._make(row) for row in _ABORTED.iter_unpack(table[aborted_at:rows_at])]),
            )
        except UnicodeDecodeError as error:
            raise ValueCorrupt(_WHAT, f"of a foreign segment: {error}") from error


def check_table(table: bytes, rows: int) -> bool:
    """Is it as long as it says, with so many rows, and do they grow? The numbers of a hostile value are
    compared with the bytes that are there, before anything is made of them."""
    if len(table) < _HEADER.size or rows < 1:
        return False
    _, store_size, manifest_size, _, end_position, aborted = _HEADER.unpack_from(table)
    rows_at = _HEADER.size + store_size + manifest_size + aborted * _ABORTED.size
    if len(table) != rows_at + rows * _ROW.size:
        return False
    return grow([OutsideRow._make(row) for row in _ROW.iter_unpack(table[rows_at:])], end_position)


def row_count(table: bytes) -> int:
    _, store_size, manifest_size, _, _, aborted = _HEADER.unpack_from(table)
    rows_at = _HEADER.size + store_size + manifest_size + aborted * _ABORTED.size
    count: int = (len(table) - rows_at) // _ROW.size
    return count


def grow(rows: Sequence[OutsideRow], end_position: int) -> bool:
    """Do offsets and positions grow, up to the end?"""
    for row, following in pairwise(rows):
        if following.offset <= row.offset or following.position <= row.position:
            return False
    return bool(rows) and rows[-1].position < end_position
