"""Columns as an Arrow record batch with the table's schema, and back.

Only compaction and the reading of its files need Arrow, and it is large, so it is imported on first use.
Going there copies the timestamps alone: the other buffers are shared.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from dray.kafka.records.columns import BytesColumn, Columns
from dray.kafka.records.header import (
    CONTROL,
    HEADER_SIZE,
    NO_PRODUCER,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    read_header,
)

if TYPE_CHECKING:
    import pyarrow

KEY_COLUMNS: Final = ("offset", "key")


@cache
def schema() -> pyarrow.Schema:
    """The columns of a topic's table. Headers are a list and no map: their order and duplicates count."""
    import pyarrow as pa

    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("partition", pa.int32(), nullable=False),
            pa.field("offset", pa.int64(), nullable=False),
            pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("element", header, nullable=False)), nullable=False),
            pa.field("producer_id", pa.int64()),
            pa.field("producer_epoch", pa.int32()),
            pa.field("base_sequence", pa.int32()),
            pa.field("attributes", pa.int32(), nullable=False),
        ]
    )


def to_arrow(columns: Columns, partition: int) -> pyarrow.RecordBatch:
    """Raises `pyarrow.ArrowInvalid` for a timestamp that microseconds cannot hold."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = columns.row_count

    def numbers(kind: pyarrow.DataType, data: Buffer) -> Any:
        return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(data)])

    def binary(kind: pyarrow.DataType, column: BytesColumn, count: int) -> Any:
        validity = None if column.validity is None else pa.py_buffer(column.validity)
        buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
        return pa.Array.from_buffers(kind, count, buffers)

    table = schema()
    list_type = table.field("headers").type
    header = pa.Array.from_buffers(
        list_type.value_type,
        columns.header_count,
        [None],
        children=[
            binary(pa.string(), columns.header_keys, columns.header_count),
            binary(pa.binary(), columns.header_values, columns.header_count),
        ],
    )
    headers = pa.Array.from_buffers(list_type, rows, [None, pa.py_buffer(columns.headers)], children=[header])
    producer_ids = numbers(pa.int64(), columns.producer_ids)
    has_producer = pc.not_equal(producer_ids, whole(NO_PRODUCER, pa.int64()))

    def of_producer(values: Any) -> Any:
        return pc.if_else(has_producer, values, pa.nulls(1, values.type)[0])

    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(whole(partition, pa.int32()), rows),
            numbers(pa.int64(), columns.offsets),
            numbers(pa.timestamp("ms", tz="UTC"), columns.timestamps).cast(pa.timestamp("us", tz="UTC")),
            binary(pa.binary(), columns.keys, rows),
            binary(pa.binary(), columns.values, rows),
            headers,
            of_producer(producer_ids),
            of_producer(numbers(pa.int32(), columns.producer_epochs)),
            of_producer(numbers(pa.int32(), columns.base_sequences)),
            numbers(pa.int32(), columns.attributes),
        ],
        schema=table,
    )


def whole(number: int, kind: pyarrow.DataType) -> pyarrow.Scalar:
    """A whole number for Arrow's functions. Arrow's own `scalar` loads pandas, where that is installed:
    0.2 s and 30 MB."""
    import pyarrow as pa

    data = number.to_bytes(kind.bit_width // 8, sys.byteorder, signed=True)
    return pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(data)])[0]


def keys_to_arrow(row_count: int, offsets: Buffer, keys: BytesColumn) -> pyarrow.RecordBatch:
    """Offsets and keys alone, as `decode_keys` gives them."""
    import pyarrow as pa

    validity = None if keys.validity is None else pa.py_buffer(keys.validity)
    buffers = [validity, pa.py_buffer(keys.offsets), pa.py_buffer(keys.data)]
    columns = [
        pa.Array.from_buffers(pa.int64(), row_count, [None, pa.py_buffer(offsets)]),
        pa.Array.from_buffers(pa.binary(), row_count, buffers),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([schema().field(n) for n in KEY_COLUMNS]))


def keys_from_arrow(batch: pyarrow.RecordBatch) -> tuple[BytesColumn, int, Buffer]:
    """The column of keys, the row of it that is the batch's first, and the offsets. Nothing is copied."""
    keys, offsets = batch.column("key"), batch.column("offset")
    validity, bounds, data = keys.buffers()
    column = BytesColumn(
        offsets=memoryview(bounds),
        data=b"" if data is None else memoryview(data),
        validity=None if validity is None else memoryview(validity),
    )
    return column, keys.offset, _numbers(offsets)


def from_arrow(batch: pyarrow.RecordBatch) -> Columns:
    """Columns that `encode` turns into Kafka batches. Takes what table readers make of the schema too:
    large types, slices, columns in another order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = schema()

    def column(name: str) -> Any:
        return batch.column(name).cast(table.field(name).type)

    def numbers(name: str) -> Buffer:
        array = column(name)
        if array.null_count:
            array = array.fill_null(whole(NO_PRODUCER, array.type))
        return _numbers(array)

    headers = column("headers")
    if headers.null_count:
        headers = pc.coalesce(headers, pa.scalar([], headers.type))
    if headers.offset or headers.values.offset:
        headers = pa.concat_arrays([headers])
    # Not `flatten`: it would leave out the values that no row points to, and the offsets count them.
    header_keys, header_values = headers.values.field(0), headers.values.field(1)
    return Columns(
        row_count=len(batch),
        header_count=len(headers.values),
        offsets=numbers("offset"),
        timestamps=_numbers(column("timestamp").cast(pa.timestamp("ms", tz="UTC"))),
        producer_ids=numbers("producer_id"),
        producer_epochs=numbers("producer_epoch"),
        base_sequences=numbers("base_sequence"),
        attributes=numbers("attributes"),
        keys=_bytes_column(column("key")),
        values=_bytes_column(column("value")),
        headers=_list_offsets(headers),
        header_keys=_bytes_column(header_keys),
        header_values=_bytes_column(header_values),
    )


def _numbers(array: Any) -> Buffer:
    width = array.type.bit_width // 8
    return memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]


def _list_offsets(array: Any) -> Buffer:
    """An array of nothing may come without offsets: then the one that is needed is 0."""
    offsets = array.buffers()[1]
    return memoryview(offsets) if offsets is not None and offsets.size else bytes(4)


def _bytes_column(array: Any) -> BytesColumn:
    import pyarrow as pa

    if array.offset:
        array = pa.concat_arrays([array])
    validity, _, data = array.buffers()
    return BytesColumn(
        offsets=_list_offsets(array),
        data=b"" if data is None else memoryview(data),
        validity=memoryview(validity) if validity is not None and array.null_count else None,
    )


def is_control(header: BatchHeader) -> bool:
    return bool(header.attributes & CONTROL)


class Uncommitted:
    """The batches of an answer that are no committed records: markers, and what they took back. An answer
    names an aborted transaction by its producer and first offset; it ends with the producer's next marker."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """`aborted`: producer id and first offset."""
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._open: set[int] = set()

    def __call__(self, header: BatchHeader) -> bool:
        """Asked of every batch, in their order."""
        while self._coming and self._coming[-1][0] <= header.base_offset + header.last_offset_delta:
            self._open.add(self._coming.pop()[1])
        if is_control(header):
            self._open.discard(header.producer_id)
            return True
        return bool(header.attributes & TRANSACTIONAL) and header.producer_id in self._open


def whole_batches(
    data: bytes | bytearray | memoryview, left_out: Callable[[BatchHeader], bool] = is_control
) -> tuple[list[memoryview], int | None]:
    """Runs of record batches without what is `left_out` (and a batch cut off at the end), and the offset
    after the last batch, None if there is none."""
    view = memoryview(data)
    runs: list[memoryview] = []
    begun = position = 0
    following: int | None = None
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        if header.size < HEADER_SIZE or position + header.size > len(view):
            break
        following = header.base_offset + header.last_offset_delta + 1
        if left_out(header):
            if begun < position:
                runs.append(view[begun:position])
            begun = position + header.size
        position += header.size
    if begun < position:
        runs.append(view[begun:position])
    return runs, following
