"""Compaction by key: which rows of a unit go.

A row goes if the unit itself holds a later one of the same key: that one is written to the same file, so no
reader can miss both. Later means a greater offset; timestamps say nothing. Keys are compared as bytes; an
empty key is a key. A merge from the stream's start on (a *bottom merge*) also drops rows without a key, as
Kafka does. A tombstone goes only where the unit says so (`log/jobs/cleaned.py` has the rule). The last row
always stays, so that every file has one.

This takes two passes over the unit: the first one reads keys and offsets only, and finds the last offset of
every key. It keeps the distinct keys in memory. Every row passes both, so both are compiled: the first hashes
keys, and the second makes rows only of what stays.

A stream that is too large for one merge is compacted by key file by file. Each of these jobs knows
the keys of its later files by one object, which a cleaning round has made: the last offset of every key of
the stream's dirty part. A row is superseded if the object has a greater offset for its key. Keys
are there as digests, 24 bytes each with their offset, so that what a job holds in memory is bounded whatever
the keys are. The digest is keyed with a secret of the object: with a bare hash a producer could choose two
keys of one digest, and erase a record of another.

How many keys an object holds is bounded too. If a stream's dirty part has more, the object ends with the last
file that fits, as Kafka's cleaner ends where its buffer is full; the next round goes on from there. The first
file is taken in any case: it has no more keys than rows.

    magic, format, checksum of what follows, secret, start, end, count;
    then three columns in the order of the first two: both halves of the digests, and the offsets
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from dray.kafka.records import Kept, KeyOffsets
from dray.kafka.records.arrow import KEY_COLUMNS, keys_from_arrow
from dray.log.jobs.machine import Cleaning
from dray.log.types import ObjectCorrupt

if TYPE_CHECKING:
    import pyarrow

COLUMNS: Final = KEY_COLUMNS


class LastOffsets:
    """The last offset of every key, of rows that come piece by piece. `secret`: 16 bytes that no producer
    knows."""

    def __init__(self, secret: bytes) -> None:
        self._keys = KeyOffsets(secret)
        self._last_row = -1

    def add(self, rows: pyarrow.RecordBatch) -> None:
        """Rows that follow those before."""
        if not len(rows):
            return
        self._last_row = max(self._last_row, rows.column("offset")[-1].as_py())
        keys, first, offsets = keys_from_arrow(rows)
        self._keys.add(keys, offsets, first, len(rows))

    def survivors(self) -> Survivors:
        import pyarrow as pa

        offsets = pa.Array.from_buffers(
            pa.int64(), len(self._keys), [None, pa.py_buffer(self._keys.offsets())]
        )
        return Survivors(offsets.sort(), self._last_row)


class Survivors:
    """The rows that no later one supersedes, by their offsets."""

    def __init__(self, offsets: Any, last_row: int) -> None:
        self._array = offsets
        self._offsets = (
            memoryview(offsets.buffers()[1]).cast("q") if len(offsets) else memoryview(b"").cast("q")
        )
        self._last_row = last_row

    def kept(self, cleaning: Cleaning) -> Kept:
        """The same rule, for those who decode records: what goes need not become rows first."""
        return Kept(
            offsets=self._offsets,
            tombstones_below=cleaning.tombstones_below,
            keyless=not cleaning.drops_keyless,
            last=self._last_row,
        )

    def filtered(self, rows: pyarrow.RecordBatch, cleaning: Cleaning) -> pyarrow.RecordBatch:
        """The rows that are left of some rows of the unit."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not len(rows):
            return rows
        offsets, keys = rows.column("offset"), rows.column("key")
        first = bisect_left(self._offsets, offsets[0].as_py(), hi=len(self._array))
        end = bisect_left(self._offsets, offsets[-1].as_py() + 1, hi=len(self._array))
        keep = pc.is_in(offsets, value_set=self._array.slice(first, end - first))
        if not cleaning.drops_keyless:
            keep = pc.or_(keep, pc.is_null(keys))
        if cleaning.tombstones_below > 0:
            below = pc.less(offsets, pa.scalar(cleaning.tombstones_below, pa.int64()))
            tombstone = pc.and_(pc.is_null(rows.column("value")), pc.is_valid(keys))
            keep = pc.and_not(keep, pc.and_(tombstone, below))
        keep = pc.or_(keep, pc.equal(offsets, pa.scalar(self._last_row, pa.int64())))
        return rows if pc.all(keep).as_py() else rows.filter(keep)


# --- the object of a cleaning round

FORMAT: Final = 1
SECRET_BYTES: Final = 32
_MAGIC: Final = b"DRAYKEYS"
_HEAD: Final = struct.Struct("<8sBI")
_DESCRIPTION: Final = struct.Struct(f"<{SECRET_BYTES}sqqQ")
_DIGEST_BYTES: Final = 16
_ROW_BYTES: Final = 24
_FOLD_ROWS: Final = 1 << 20
_NEVER: Final = -1


def _digests(keys: Sequence[bytes], secret: bytes) -> tuple[array[int], array[int]]:
    """Both halves of each."""
    halves = array("Q")
    halves.frombytes(b"".join([blake2b(key, digest_size=_DIGEST_BYTES, key=secret).digest() for key in keys]))
    return halves[0::2], halves[1::2]


class KeyCollection:
    """Takes in keys and offsets, and makes an object of them. `most`: how many keys it may hold."""

    def __init__(self, secret: bytes, most: int, start: int) -> None:
        self._secret = secret
        self._most = most
        self._start = start
        self._end = start
        self._taken: list[
            pyarrow.Table
        ] = []  # of files that are wholly in it: none, or one with distinct keys
        self._pieces: list[pyarrow.Table] = []  # of the file that is being read
        self._rows = self._folded = 0  # of those pieces

    @property
    def end(self) -> int:
        return self._end

    def add(self, rows: pyarrow.RecordBatch) -> None:
        """Rows of one file, with their keys and offsets."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.table({"key": rows.column("key"), "offset": rows.column("offset")})
        table = table.filter(pc.is_valid(table.column("key")))
        if not len(table):
            return
        distinct = table.group_by("key").aggregate([("offset", "max")])
        high, low = _digests(distinct.column("key").to_pylist(), self._secret)
        columns = {"high": _as_arrow(high), "low": _as_arrow(low), "offset": distinct.column("offset_max")}
        self._pieces.append(pa.table(columns))
        self._rows += len(distinct)
        if self._rows - self._folded > max(_FOLD_ROWS, self._folded):
            self._pieces = [_fold(self._pieces)]
            self._rows = self._folded = len(self._pieces[0])

    def end_file(self, end: int) -> bool:
        """The file ends there. False: with it there would be too many keys, so it is left out."""
        pieces = self._taken + self._pieces
        folded = [_fold(pieces)] if pieces else []
        self._pieces, self._rows, self._folded = [], 0, 0
        if self._end > self._start and folded and len(folded[0]) > self._most:
            return False
        self._taken = folded
        self._end = end
        return True

    def encode(self) -> tuple[list[bytes], int]:
        """The object, and how many keys it has."""
        import pyarrow as pa

        columns: list[bytes] = []
        count = 0
        if self._taken:
            table = self._taken[0].sort_by([("high", "ascending"), ("low", "ascending")])
            count = len(table)
            for name, kind in (("high", pa.uint64()), ("low", pa.uint64()), ("offset", pa.int64())):
                column = table.column(name).cast(kind).combine_chunks()
                columns.append(memoryview(column.buffers()[1])[8 * column.offset :][: 8 * count].tobytes())
        description = _DESCRIPTION.pack(self._secret, self._start, self._end, count)
        checksum = crc32(description)
        for part in columns:
            checksum = crc32(part, checksum)
        return [_HEAD.pack(_MAGIC, FORMAT, checksum), description, *columns], count


def _fold(pieces: list[pyarrow.Table]) -> pyarrow.Table:
    """One row per digest, with the greatest offset."""
    import pyarrow as pa

    folded = pa.concat_tables(pieces).group_by(["high", "low"]).aggregate([("offset", "max")])
    return folded.rename_columns({"offset_max": "offset"}).select(["high", "low", "offset"])


def _as_arrow(values: array[int]) -> Any:
    import pyarrow as pa

    kind = pa.uint64() if values.typecode == "Q" else pa.int64()
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


class KeyObject:
    """The object, in memory: says which rows are superseded. It leaves no dead row but one: see `last`."""

    def __init__(self, path: str, data: bytes | bytearray | memoryview) -> None:
        """Raises `ObjectCorrupt`."""
        view = memoryview(data)
        try:
            magic, version, checksum = _HEAD.unpack_from(view)
            self._secret, self.start, self.end, self.count = _DESCRIPTION.unpack_from(view, _HEAD.size)
        except struct.error as error:
            raise ObjectCorrupt(f"{path}: {error}") from error
        body = view[_HEAD.size + _DESCRIPTION.size :]
        if magic != _MAGIC or len(body) != _ROW_BYTES * self.count:
            raise ObjectCorrupt(f"{path}: this is no object of keys, or not all of it")
        if version != FORMAT:
            raise ObjectCorrupt(f"{path} is in format {version}, and this build reads format {FORMAT}")
        if crc32(view[_HEAD.size :]) != checksum:
            raise ObjectCorrupt(f"{path}: its checksum does not fit")
        size = 8 * self.count
        # Copied, since columns must lie at multiples of eight.
        self._high, self._low = (array("Q", bytes(body[at : at + size])) for at in (0, size))
        self._offsets = array("q", bytes(body[2 * size :]))

    def _last_offset(self, high: int, low: int) -> int:
        place = bisect_left(self._high, high)
        while place < self.count and self._high[place] == high:
            if self._low[place] == low:
                return self._offsets[place]
            place += 1
        return _NEVER

    def is_superseded(self, rows: pyarrow.RecordBatch) -> Any:
        """By row: does the object have a greater offset for its key? Rows without a key never are."""
        import pyarrow.compute as pc

        encoded = rows.column("key").dictionary_encode()
        halves = _digests(encoded.dictionary.to_pylist(), self._secret)
        last = array("q", map(self._last_offset, *halves))
        return pc.fill_null(pc.less(rows.column("offset"), _as_arrow(last).take(encoded.indices)), False)

    def filtered(self, rows: pyarrow.RecordBatch, cleaning: Cleaning) -> pyarrow.RecordBatch:
        """The rows that are left of some rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not len(rows):
            return rows
        keys = rows.column("key")
        goes = pc.or_(self.is_superseded(rows), pc.is_null(keys))
        if cleaning.tombstones_below > 0:
            below = pc.less(rows.column("offset"), pa.scalar(cleaning.tombstones_below, pa.int64()))
            tombstone = pc.and_(pc.is_null(rows.column("value")), pc.is_valid(keys))
            goes = pc.or_(goes, pc.and_(tombstone, below))
        return rows.filter(pc.invert(goes)) if pc.any(goes).as_py() else rows
