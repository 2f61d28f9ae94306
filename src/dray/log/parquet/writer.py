"""A Parquet file, written piece by piece: rows go in, bytes come out, and nothing is kept but statistics.

The caller hands in record batches of a few mebibytes and takes the bytes away at once, so the
memory this needs does not grow with the file. Row groups are small, 4 to 8 MiB of records: one is what a
consumer's read brings in.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dray.kafka.records import HEADER_SIZE
from dray.kafka.records.arrow import schema
from dray.log.parquet.statistics import ColumnSizes, FileStatistics, RowGroup, first_byte

if TYPE_CHECKING:
    import pyarrow


# --- the ids of the table's columns, and the schema of its files with these ids
#
# Iceberg knows columns by id, never by name: a file that says which column is which survives every later
# change of the table. The ids are those that Iceberg itself gives to a new table of this schema: the
# columns in their order first, then what is nested in them. They are fixed for ever: a file once written
# keeps them.


FIELD_IDS: Final = {
    "partition": 1,
    "offset": 2,
    "timestamp": 3,
    "key": 4,
    "value": 5,
    "headers": 6,
    "producer_id": 7,
    "producer_epoch": 8,
    "base_sequence": 9,
    "attributes": 10,
}
HEADER_ID: Final = 11  # the element of the list
HEADER_KEY_ID: Final = 12
HEADER_VALUE_ID: Final = 13

# By the path that a Parquet file has for a column that holds values.
LEAF_IDS: Final = {
    **{name: number for name, number in FIELD_IDS.items() if name != "headers"},
    "headers.list.element.key": HEADER_KEY_ID,
    "headers.list.element.value": HEADER_VALUE_ID,
}


@cache
def file_schema() -> pyarrow.Schema:
    """`records.arrow.schema`, each field with its id."""
    import pyarrow as pa

    def marked(field: pyarrow.Field, number: int) -> pyarrow.Field:
        return field.with_metadata({"PARQUET:field_id": str(number)})

    fields = []
    for field in schema():
        if field.name == "headers":
            header = field.type.value_field
            parts = [
                marked(part, number)
                for part, number in zip(header.type, (HEADER_KEY_ID, HEADER_VALUE_ID), strict=True)
            ]
            element = marked(header.with_type(pa.struct(parts)), HEADER_ID)
            field = field.with_type(pa.list_(element))  # noqa: PLW2901
        fields.append(marked(field, FIELD_IDS[field.name]))
    return pa.schema(fields)


# --- the writer


MIB: Final = 1 << 20
GROUP_BYTES: Final = 4 * MIB  # a row group is closed once it has this much,
MOST_GROUP_BYTES: Final = 8 * MIB  # and before it has more than this, if one piece alone is not larger
COMPRESSION_LEVEL: Final = 1

# About what Kafka's format takes for a record beside key, value and headers.
_RECORD_BYTES: Final = 10
_TAIL_BYTES: Final = 8  # behind the footer: its length, and the magic
_MICROSECONDS: Final = 1000

# The same in long runs. For the others a dictionary costs time and saves nothing: they hardly repeat.
_REPETITIVE: Final = ["partition", "producer_id", "producer_epoch", "base_sequence", "attributes"]
_WITH_STATISTICS: Final = ["partition", "offset", "timestamp"]


class _Sink:
    """The file that pyarrow believes to write to. Bytes stay only until they are taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._position = 0

    def write(self, data: bytes) -> int:
        self._pieces.append(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def take(self) -> list[bytes]:
        taken, self._pieces = self._pieces, []
        return taken

    def flush(self) -> None: ...

    def close(self) -> None: ...

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


class _Group(NamedTuple):
    first_offset: int
    raw_bytes: int
    min_timestamp: int
    max_timestamp: int
    last_offset: int


class FileWriter:
    """Not for several threads at once, but each call may come from another one."""

    def __init__(self, compression_level: int = COMPRESSION_LEVEL) -> None:
        import pyarrow.parquet as pq

        self._sink = _Sink()
        self._writer = pq.ParquetWriter(
            self._sink,
            file_schema(),
            version="2.6",
            data_page_version="1.0",  # what every reader of Iceberg tables takes, vectorised ones too
            compression="zstd",
            compression_level=compression_level,
            use_dictionary=_REPETITIVE,
            write_statistics=_WITH_STATISTICS,
            write_page_checksum=True,
            store_schema=False,
        )
        self._pending: list[pyarrow.RecordBatch] = []
        self._pending_bytes = 0
        self._groups: list[_Group] = []
        self._nulls = dict.fromkeys(LEAF_IDS.values(), 0)

    def add(self, batch: pyarrow.RecordBatch) -> list[bytes]:
        """Rows that follow those before, whole Kafka batches of them. Answers the bytes that are ready."""
        if not len(batch):
            return self._sink.take()
        size = _raw_bytes(batch)
        if self._pending and self._pending_bytes + size > MOST_GROUP_BYTES:
            self._write_group()
        self._pending.append(batch)
        self._pending_bytes += size
        if self._pending_bytes >= GROUP_BYTES:
            self._write_group()
        return self._sink.take()

    def finish(self) -> tuple[list[bytes], FileStatistics]:
        """The last bytes, and what is to be known of the file."""
        if self._pending:
            self._write_group()
        self._writer.close()
        pieces = self._sink.take()
        tail = b"".join(pieces[-2:])[-_TAIL_BYTES:]
        return pieces, self._statistics(int.from_bytes(tail[:4], "little") + _TAIL_BYTES)

    def _write_group(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = pa.Table.from_batches(self._pending)
        offsets = table.column("offset")
        times = pc.min_max(table.column("timestamp").cast(pa.int64())).as_py()
        self._groups.append(
            _Group(
                offsets[0].as_py(),
                self._pending_bytes + HEADER_SIZE,
                times["min"] // _MICROSECONDS,
                times["max"] // _MICROSECONDS,
                offsets[-1].as_py(),
            )
        )
        for batch in self._pending:
            for name, number in LEAF_IDS.items():
                self._nulls[number] += _nulls(batch, name)
        self._pending, self._pending_bytes = [], 0
        self._writer.write_table(table, row_group_size=len(table))

    def _statistics(self, footer_length: int) -> FileStatistics:
        metadata = self._writer.writer.metadata
        groups = []
        sizes = dict.fromkeys(LEAF_IDS.values(), 0)
        values = dict.fromkeys(LEAF_IDS.values(), 0)
        for place, known in enumerate(self._groups):
            group = metadata.row_group(place)
            leaves = [group.column(number) for number in range(group.num_columns)]
            position = min(first_byte(leaf) for leaf in leaves)
            length = sum(leaf.total_compressed_size for leaf in leaves)
            groups.append(
                RowGroup(
                    position,
                    length,
                    group.num_rows,
                    known.first_offset,
                    known.raw_bytes,
                    known.min_timestamp,
                    known.max_timestamp,
                    known.last_offset,
                )
            )
            for leaf in leaves:
                number = LEAF_IDS[leaf.path_in_schema]
                sizes[number] += leaf.total_compressed_size
                values[number] += leaf.num_values
        return FileStatistics(
            file_size=self._sink.tell(),
            footer_length=footer_length,
            record_count=metadata.num_rows,
            row_groups=tuple(groups),
            columns=tuple(
                ColumnSizes(number, sizes[number], values[number], self._nulls[number])
                for number in LEAF_IDS.values()
            ),
        )


def _nulls(batch: pyarrow.RecordBatch, leaf: str) -> int:
    """In Parquet a row without headers is a null of the headers' leaves."""
    import pyarrow.compute as pc

    name, *nested = leaf.split(".")
    column = batch.column(name)
    if not nested:
        return int(column.null_count)
    empty = int(pc.sum(pc.equal(pc.list_value_length(column), 0)).as_py() or 0)
    return empty + int(column.flatten().field(nested[-1]).null_count)


def _raw_bytes(batch: pyarrow.RecordBatch) -> int:
    """From the offsets of the columns: what the batch shares with others does not count."""
    headers = batch.column("headers")
    size = _RECORD_BYTES * len(batch) + _data_bytes(batch.column("key")) + _data_bytes(batch.column("value"))
    header = headers.flatten()
    if len(header):
        size += _data_bytes(header.field("key")) + _data_bytes(header.field("value")) + 2 * len(header)
    return size


def _data_bytes(array: Any) -> int:
    """Of an array of 32-bit offsets, what its values take together."""
    if not len(array):
        return 0
    offsets = memoryview(array.buffers()[1]).cast("i")
    return int(offsets[array.offset + len(array)] - offsets[array.offset])
