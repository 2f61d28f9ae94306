"""Columns as Arrow record batches with the table's schema, and back to Kafka batches."""

import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.kafka.records import Codec, decode, encode, stamp_append_time, twin, validate
from dray.kafka.records.arrow import from_arrow, schema, to_arrow
from dray.kafka.records.columns import Record

LIMITS = {"max_batch_bytes": 1 << 24, "max_decompressed_bytes": 1 << 24}
START = 1_700_000_000_123
RECORDS = [
    Record(100, START, b"k", b"v", [("a", b"1"), ("a", None), ("ü", b"")]),
    Record(101, START + 1, None, b"", []),
    Record(102, -1, b"", None, [("b", b"2")]),
    Record(103, START + 3, b"kk", b"vv" * 50, []),
    Record(104, START - 3, None, None, [("c", b"3"), ("d", b"4")]),
    *(Record(n, START + n, b"%d" % n, None if n % 3 else b"x", [("n", b"%d" % n)]) for n in range(105, 125)),
]


def batches() -> bytearray:
    stamped = twin.encode(RECORDS[5:10], codec=Codec.GZIP)
    stamp_append_time(stamped, validate(stamped, **LIMITS)[0], START)
    idempotent = {"producer_id": 9, "producer_epoch": 1, "base_sequence": 0}
    parts = [
        twin.encode(RECORDS[:5], codec=Codec.ZSTD, **idempotent),
        stamped,
        twin.encode(RECORDS[10:]),
    ]
    return bytearray().join(parts)


def test_schema_is_that_of_the_table():
    batch = to_arrow(decode(batches()), 7)
    batch.validate(full=True)
    assert batch.schema.equals(schema())
    assert batch.schema.names == [
        *("partition", "offset", "timestamp", "key", "value", "headers"),
        *("producer_id", "producer_epoch", "base_sequence", "attributes"),
    ]


def test_rows_say_what_the_records_say():
    rows = to_arrow(decode(batches()), 7).to_pylist()
    assert len(rows) == len(RECORDS)
    assert rows[0] == {
        "partition": 7,
        "offset": 100,
        "timestamp": datetime.datetime.fromtimestamp(START / 1000, datetime.UTC),
        "key": b"k",
        "value": b"v",
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "ü", "value": b""}],
        "producer_id": 9,
        "producer_epoch": 1,
        "base_sequence": 0,
        "attributes": 0,
    }
    assert [(row["key"], row["value"]) for row in rows] == [(record.key, record.value) for record in RECORDS]
    assert [row["attributes"] for row in rows] == [0] * 5 + [8] * 5 + [0] * 15
    assert [row["producer_id"] for row in rows] == [9] * 5 + [None] * 20
    assert {row["producer_epoch"] for row in rows[5:]} == {None} == {row["base_sequence"] for row in rows[5:]}


def test_back_to_the_same_batches():
    original = batches()
    [first, second, third] = twin.decode(original)
    again = encode(from_arrow(to_arrow(decode(original), 0)), leader_epoch=-1)
    for (header, records), (expected, wanted) in zip(twin.decode(again), [first, second, third], strict=True):
        assert records == wanted
        assert header.attributes == expected.attributes & ~7
        of_producer = header._fields.index("producer_id")
        assert header[of_producer:] == expected[of_producer:]


@pytest.mark.parametrize(("start", "length"), [(0, 25), (0, 3), (1, 7), (8, 9), (13, 12), (4, 0), (25, 0)])
def test_slices(start, length):
    sliced = to_arrow(decode(batches()), 0).slice(start, length)
    assert list(from_arrow(sliced).records()) == list(decode(batches()).records())[start : start + length]


def test_what_table_readers_make_of_the_schema():
    """Large types, another order of columns, and rows that went through Parquet."""
    batch = to_arrow(decode(batches()), 0)
    large = {"key": pa.large_binary(), "value": pa.large_binary()}
    table = pa.table(
        {
            name: batch.column(name).cast(large.get(name, batch.column(name).type))
            for name in reversed(batch.schema.names)
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    [read] = pq.read_table(pa.BufferReader(sink.getvalue())).combine_chunks().to_batches()
    assert list(from_arrow(read).records()) == list(decode(batches()).records())


def test_headers_that_are_null_are_none():
    batch = to_arrow(decode(batches()), 0)
    column = pa.array(
        [None, *batch.column("headers").to_pylist()[1:]],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    arrays = [column if name == "headers" else batch.column(name) for name in batch.schema.names]
    changed = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    records = list(from_arrow(changed).records())
    assert records[0].headers == []
    assert records[1:] == list(decode(batches()).records())[1:]


def test_no_rows():
    batch = to_arrow(decode(b""), 3)
    assert batch.num_rows == 0
    assert encode(from_arrow(batch)) == b""


def test_a_timestamp_that_microseconds_cannot_hold():
    columns = decode(twin.encode([Record(0, 2**60)]))
    with pytest.raises(pa.ArrowInvalid, match="out of bounds"):
        to_arrow(columns, 0)
