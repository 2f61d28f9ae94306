"""Row groups read back from pieces of a file: its footer, and the bytes of the row group that is wanted.

The caller fetches both, each by one range request, since the index entry of a file knows where they are.
A file that is not as it was written is `ParquetCorrupt`: every page has a checksum, which is checked, and the
rows must be those that the caller expects.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Final

from dray.kafka.records.arrow import schema
from dray.log.parquet.statistics import RowGroup, first_byte

if TYPE_CHECKING:
    import pyarrow

    from dray.kafka.records import Buffer

_MAGIC: Final = b"PAR1"
_MICROSECONDS: Final = 1000  # in a millisecond


class ParquetCorrupt(Exception):
    """The bytes are not the file that was written."""


class Footer:
    """The metadata in a file's footer, decoded once for all of its row groups."""

    def __init__(self, footer: Buffer, file_size: int) -> None:
        """`footer` is the tail of the file, from the start of its footer to its last byte."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if len(footer) > file_size:
            raise ParquetCorrupt("its footer is longer than the file")
        try:
            # A file of nothing but a footer, as far as this call can tell: rows are not looked for.
            self._metadata = pq.read_metadata(pa.BufferReader(b"".join((_MAGIC, footer))))
        except (pa.ArrowException, OSError) as error:
            raise ParquetCorrupt(f"its footer makes no sense: {_first_line(error)}") from error
        self._file_size = file_size
        self.size = len(footer)

    @property
    def group_count(self) -> int:
        return int(self._metadata.num_row_groups)

    def row_groups(self) -> list[RowGroup]:
        """As their writer counted them, by what the file says of its columns; their raw bytes are about so
        many."""
        names = self._metadata.schema.names
        found = []
        for number in range(self.group_count):
            group = self._metadata.row_group(number)
            leaves = [group.column(column) for column in range(group.num_columns)]
            offsets, times = (leaves[names.index(name)].statistics for name in ("offset", "timestamp"))
            if not all(each is not None and each.has_min_max for each in (offsets, times)):
                raise ParquetCorrupt("it does not say which offsets it has")
            found.append(
                RowGroup(
                    position=min(first_byte(leaf) for leaf in leaves),
                    length=sum(leaf.total_compressed_size for leaf in leaves),
                    record_count=group.num_rows,
                    first_offset=int(offsets.min_raw),
                    raw_bytes=group.total_byte_size,
                    min_timestamp=times.min_raw // _MICROSECONDS,
                    max_timestamp=times.max_raw // _MICROSECONDS,
                    last_offset=int(offsets.max_raw),
                )
            )
        if not found:
            raise ParquetCorrupt("it has no rows")
        return found

    def read_group(
        self,
        number: int,
        position: int,
        data: Buffer,
        first_offset: int,
        record_count: int,
        last_offset: int | None = None,
        columns: list[str] | None = None,
    ) -> pyarrow.RecordBatch:
        """Row group `number`, whose bytes begin at `position` of the file. It must hold the records from
        `first_offset` on, one per offset, unless they end at `last_offset`: then others are missing.
        `columns`: only these, the offset among them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if number >= self.group_count:
            raise ParquetCorrupt(f"it has no row group {number}")
        window = _Window(self._file_size, position, data)
        try:
            file = pq.ParquetFile(
                pa.PythonFile(window, mode="r"),
                metadata=self._metadata,
                pre_buffer=False,
                page_checksum_verification=True,
            )
            table = file.read_row_group(number, columns=columns, use_threads=False)
        except (pa.ArrowException, OSError) as error:
            raise ParquetCorrupt(f"row group {number} makes no sense: {_first_line(error)}") from error
        if not self._metadata.schema.to_arrow_schema().equals(schema()):
            raise ParquetCorrupt("its columns are not those of a topic's table")
        batch = one_batch(table)
        if last_offset is None:
            last_offset = first_offset + record_count - 1
        if len(batch) != record_count or not is_rising(batch, first_offset, last_offset):
            raise ParquetCorrupt(
                f"row group {number} does not hold the {record_count} records from offset {first_offset} on"
            )
        return batch


def one_batch(table: pyarrow.Table) -> pyarrow.RecordBatch:
    import pyarrow as pa

    batches = table.combine_chunks().to_batches()
    if len(batches) == 1:
        return batches[0]
    return pa.RecordBatch.from_pylist([], table.schema)


def is_dense(batch: pyarrow.RecordBatch, first_offset: int) -> bool:
    """One row per offset, in order, from `first_offset` on."""
    import pyarrow.compute as pc

    offsets = batch.column("offset")
    if not len(offsets):
        return True
    if offsets.null_count or offsets[0].as_py() != first_offset:
        return False
    steps = pc.min_max(pc.pairwise_diff(offsets)).as_py()
    return len(offsets) == 1 or steps == {"min": 1, "max": 1}


def is_rising(batch: pyarrow.RecordBatch, first_offset: int, last_offset: int) -> bool:
    """At most one row per offset, in order, the first and the last of them at these offsets."""
    import pyarrow.compute as pc

    offsets = batch.column("offset")
    if not len(offsets) or offsets.null_count:
        return False
    if offsets[0].as_py() != first_offset or offsets[-1].as_py() != last_offset:
        return False
    return len(offsets) == 1 or pc.min(pc.pairwise_diff(offsets)).as_py() >= 1


class _Window:
    """A file of which one range is here. To read outside of it is to believe damaged bytes."""

    closed = False

    def __init__(self, size: int, position: int, data: Buffer) -> None:
        self._size = size
        self._start = position
        self._data = memoryview(data).cast("B")
        self._at = 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self._size

    def read_buffer(self, length: int = -1) -> Any:
        import pyarrow as pa

        return pa.py_buffer(self._take(length))

    def read(self, length: int = -1) -> bytes:
        return bytes(self._take(length))

    def _take(self, length: int) -> memoryview:
        if length < 0:
            length = self._size - self._at
        first = self._at - self._start
        if first < 0 or first + length > len(self._data):
            raise OSError(f"bytes {self._at} to {self._at + length} are not where they should be")
        self._at += length
        return self._data[first : first + length]

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None: ...


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def find_time(rows: pyarrow.RecordBatch, start: int, timestamp: int) -> tuple[int, int] | None:
    """Offset and time of the first row from offset `start` on whose time is at least `timestamp`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = _from(rows, start)
    place = pc.index(pc.greater_equal(_milliseconds(rows), pa.scalar(timestamp, pa.int64())), True).as_py()
    return None if place < 0 else _at(rows, place)


def greatest_time(rows: pyarrow.RecordBatch, start: int) -> tuple[int, int]:
    """Offset and time of the first row from offset `start` on that has the greatest time of these."""
    import pyarrow.compute as pc

    rows = _from(rows, start)
    times = _milliseconds(rows)
    return _at(rows, pc.index(times, pc.max(times)).as_py())


def _from(rows: pyarrow.RecordBatch, start: int) -> pyarrow.RecordBatch:
    return rows.slice(place_of(rows, start))


def place_of(rows: pyarrow.RecordBatch, offset: int) -> int:
    """The first row at `offset` or after it; as many as there are rows where there is none. Offsets rise, and
    some may be missing."""
    offsets = rows.column("offset")
    return bisect_left(range(len(offsets)), offset, key=lambda row: offsets[row].as_py())


def _milliseconds(rows: pyarrow.RecordBatch) -> Any:
    import pyarrow as pa

    return rows.column("timestamp").cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())


def _at(rows: pyarrow.RecordBatch, place: int) -> tuple[int, int]:
    return rows.column("offset")[place].as_py(), _milliseconds(rows.slice(place, 1))[0].as_py()
