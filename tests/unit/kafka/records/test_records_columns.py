"""Batches to columns and back, with the plain twin as the judge."""

import mmap
import struct
from array import array
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.services import batches

from dray.kafka.records import (
    HEADER_SIZE,
    BatchHeader,
    Codec,
    Columns,
    RecordError,
    RecordFault,
    _core,
    decode,
    encode,
    recompress,
    stamp_append_time,
    twin,
    validate,
)
from dray.kafka.records.arrow import to_arrow
from dray.kafka.records.columns import BytesColumn, Record
from dray.kafka.records.header import DELETE_HORIZON, TRANSACTIONAL

LIMITS = {"max_batch_bytes": 1 << 24, "max_decompressed_bytes": 1 << 24}
CODECS = pytest.mark.parametrize("codec", list(Codec))

timestamps = st.one_of(st.integers(0, 2**42), st.integers(-(2**62), 2**62))
payloads = st.none() | st.binary(max_size=70) | st.binary(min_size=1, max_size=3).map(lambda part: part * 60)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=9)), max_size=3)


@st.composite
def record_lists(draw: st.DrawFn, max_size: int = 12) -> list[Record]:
    base = draw(st.integers(0, 2**62))
    rows = draw(st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=max_size))
    return [Record(base + index, *row) for index, row in enumerate(rows)]


def numbers(kind: Any, buffer: Any) -> list[int]:
    return list(memoryview(buffer).cast("B").cast(kind))


def columns_of(records: list[Record], **batch) -> Columns:
    return decode(twin.encode(records, **batch))


def encoded(buffer) -> list[tuple[BatchHeader, list[Record]]]:
    validate(buffer, **LIMITS)
    return twin.decode(buffer)


@pytest.mark.parametrize(
    ("validity", "nulls"), [(None, []), (b"\xff", []), (b"\x07", []), (b"\xf5", [1]), (b"\x0d", [1])]
)
def test_nulls_are_counted_within_the_rows(validity, nulls):
    assert BytesColumn(bytes(16), b"", validity).nulls(3) == nulls


@given(record_lists(), st.sampled_from(Codec))
@settings(deadline=None)
def test_columns_hold_what_the_batch_holds(records, codec):
    columns = columns_of(records, codec=codec)
    assert list(columns.records()) == records
    assert columns.header_count == sum(len(record.headers) for record in records)
    assert columns.keys.nulls(len(records)) == [n for n, record in enumerate(records) if record.key is None]


@given(record_lists(), st.sampled_from(Codec))
@settings(deadline=None)
def test_encode_gives_the_batch_that_was_decoded(records, codec):
    batch = twin.encode(
        records, codec=codec, leader_epoch=9, producer_id=3, producer_epoch=1, base_sequence=5
    )
    assert encode(decode(batch), codec=codec, leader_epoch=9) == batch


@given(st.lists(record_lists(max_size=4), max_size=4))
@settings(deadline=None)
def test_many_batches_become_one_table(lists):
    batches = [twin.encode(records, codec=index % 5) for index, records in enumerate(lists)]
    columns = decode(bytearray().join(batches))
    assert list(columns.records()) == [record for records in lists for record in records]


def test_batch_fields_are_repeated_in_every_row():
    stamped = twin.encode([Record(5, 1), Record(6, 2)], codec=Codec.LZ4)
    stamp_append_time(stamped, validate(stamped, **LIMITS)[0], 77)
    idempotent = twin.encode([Record(7, 3)], producer_id=2**40, producer_epoch=4, base_sequence=2**30)
    columns = decode(stamped + idempotent)
    assert columns.row_count == 3
    assert numbers("q", columns.offsets) == [5, 6, 7]
    assert numbers("q", columns.timestamps) == [77, 77, 3]
    assert numbers("q", columns.producer_ids) == [-1, -1, 2**40]
    assert numbers("i", columns.producer_epochs) == [-1, -1, 4]
    assert numbers("i", columns.base_sequences) == [-1, -1, 2**30]
    assert numbers("i", columns.attributes) == [8, 8, 0]


def test_no_batch_is_no_row():
    columns = decode(b"")
    assert columns.row_count == 0
    assert list(columns.records()) == []
    assert encode(columns) == b""


def test_decode_checks_like_validate():
    batch = twin.encode([Record(0, 1)])
    for bad in (batch[:-1], batch[:30] + b"x" + batch[31:]):
        with pytest.raises(RecordError):
            decode(bad)


def test_decode_bounds_all_batches_together():
    batch = twin.encode([Record(0, 1, value=bytes(1000))], codec=Codec.ZSTD)
    assert decode(batch + batch, max_decompressed_bytes=2100).row_count == 2
    with pytest.raises(RecordError) as caught:
        decode(batch + batch, max_decompressed_bytes=1900)
    assert caught.value.fault is RecordFault.TOO_LARGE


def test_decode_and_encode_of_more_than_the_gil_is_held_for():
    records = [Record(n, n, None, b"%06d" % n * 10, []) for n in range(9000)]
    columns = columns_of(records)
    assert list(columns.records()) == records
    assert encode(columns, leader_epoch=-1) == twin.encode(records)


@given(record_lists(), st.data())
@settings(deadline=None)
def test_encode_of_some_rows(records, data):
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    parts = encoded(encode(columns_of(records), start=start, stop=stop))
    assert [record for _, part in parts for record in part] == records[start:stop]


@given(record_lists(), st.integers(0, 400), st.sampled_from(Codec))
@settings(deadline=None)
def test_encode_cuts_batches_at_their_size(records, batch_bytes, codec):
    columns = columns_of(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2)
    parts = encoded(encode(columns, codec=codec, batch_bytes=batch_bytes))
    assert [record for _, part in parts for record in part] == records
    row = 0
    for header, part in parts:
        section = len(twin.encode(part)) - 61
        assert section <= batch_bytes or len(part) == 1
        assert header.base_sequence == (2**31 - 2 + row) % 2**31
        row += len(part)


def test_encode_starts_a_batch_where_rows_cannot_share_one():
    def run(offset, count, timestamp=0, **batch):
        rows = [Record(offset + n, timestamp, b"k") for n in range(count)]
        return twin.encode(rows, **batch)

    producer = {"producer_id": 1, "producer_epoch": 0}
    runs = [
        run(0, 2),
        run(3, 1),  # an offset left out
        run(4, 2, **producer, base_sequence=0),
        run(6, 2, **producer, base_sequence=2),
        run(8, 1, producer_id=1, producer_epoch=1, base_sequence=2),
        run(9, 1, producer_id=2, producer_epoch=1, base_sequence=2),
        run(10, 2, attributes=8),
        run(12, 2, timestamp=5, attributes=8),
        run(14, 1, timestamp=2**62),
        run(15, 1, timestamp=-(2**62) - 1),  # more than 64 bits apart
    ]
    assert encode(decode(bytearray().join(runs)), leader_epoch=-1) == bytearray().join(runs)


def test_encode_joins_small_batches():
    parts = [twin.encode([Record(n, n, b"k")], codec=n % 5) for n in range(10)]
    [(header, records)] = encoded(encode(decode(bytearray().join(parts))))
    assert header.record_count == 10
    assert [record.offset for record in records] == list(range(10))


@pytest.mark.parametrize(("start", "stop"), [(-1, 1), (2, 1), (0, 3), (3, None)])
def test_encode_of_rows_that_are_not_there(start, stop):
    with pytest.raises(ValueError, match="no rows"):
        encode(columns_of([Record(0, 0), Record(1, 0)]), start=start, stop=stop)


def ints(*values: int) -> bytes:
    return array("i", values).tobytes()


GOOD = columns_of([Record(0, 0, b"key", b"value", [("a", b"b")]), Record(1, 0, None, b"", [])])
BROKEN = {
    "offsets too short": replace(GOOD, offsets=bytes(15)),
    "timestamps too short": replace(GOOD, timestamps=bytes(15)),
    "producer ids too short": replace(GOOD, producer_ids=bytes(15)),
    "epochs too short": replace(GOOD, producer_epochs=bytes(7)),
    "sequences too short": replace(GOOD, base_sequences=bytes(7)),
    "attributes too short": replace(GOOD, attributes=bytes(7)),
    "header bounds too short": replace(GOOD, headers=bytes(11)),
    "key offsets too short": replace(GOOD, keys=BytesColumn(bytes(11), b"", None)),
    "validity too short": replace(GOOD, keys=BytesColumn(bytes(12), b"", b"")),
    "more rows than buffers": replace(GOOD, row_count=3),
    "negative count": replace(GOOD, row_count=-1),
    "key past the data": replace(GOOD, keys=BytesColumn(ints(0, 4, 4), b"key", None)),
    "key offsets backwards": replace(GOOD, keys=BytesColumn(ints(0, 3, 2), b"key", None)),
    "key offset negative": replace(GOOD, keys=BytesColumn(ints(-1, 3, 3), b"key", None)),
    "value past the data": replace(GOOD, values=BytesColumn(ints(0, 4, 2**31 - 1), b"value", None)),
    "headers past their count": replace(GOOD, headers=ints(0, 2, 2)),
    "headers backwards": replace(GOOD, headers=ints(1, 0, 1)),
    "headers negative": replace(GOOD, headers=ints(-1, 1, 1)),
    "header key null": replace(GOOD, header_keys=BytesColumn(ints(0, 1), b"a", b"\0")),
    "header key past the data": replace(GOOD, header_keys=BytesColumn(ints(0, 2), b"a", None)),
    "header value past the data": replace(GOOD, header_values=BytesColumn(ints(0, 2), b"a", None)),
}


@pytest.mark.parametrize("columns", BROKEN.values(), ids=BROKEN.keys())
def test_encode_reads_nothing_outside_the_columns(columns):
    with pytest.raises(ValueError, match="columns"):
        encode(columns)


def test_a_record_too_large_for_a_batch():
    """Two gigabytes that are mapped and never touched."""
    with mmap.mmap(-1, 2**31) as huge:
        column = BytesColumn(ints(0, 2**31 - 62), cast(bytes, huge), None)
        columns = replace(GOOD, row_count=1, values=column)
        with pytest.raises(ValueError, match="a record is too large"):
            encode(columns)


SHAPES = {
    "another key": ([Record(0, 0, b"1234", b"1234567890", [])], [Record(0, 0, b"1234567890", b"1234", [])]),
    "another value": ([Record(0, 0, b"1234567890", b"1234", [])], [Record(0, 0, b"1234", b"1234567890", [])]),
    "more headers": ([Record(0, 0, b"", b"12", [])], [Record(0, 0, b"", b"", [("", b"")])]),
    "longer header keys": (
        [Record(0, 0, b"", b"12", [("a", b"b")])],
        [Record(0, 0, b"", b"", [("abc", b"b")])],
    ),
    "longer header values": (
        [Record(0, 0, b"", b"12", [("a", b"b")])],
        [Record(0, 0, b"", b"", [("a", b"bcd")])],
    ),
}


@pytest.mark.parametrize(("before", "after"), SHAPES.values(), ids=SHAPES.keys())
def test_batches_that_change_while_they_are_decoded(monkeypatch, before, after):
    """They were measured in one pass and are copied in the next: the second must not trust the first."""
    batch, other = twin.encode(before), twin.encode(after)
    assert len(batch) == len(other)

    def change(*buffers):
        batch[:] = other
        return Columns(*buffers)

    monkeypatch.setattr(_core, "Columns", change)
    with pytest.raises(BufferError, match="changed"):
        decode(batch)


def test_batches_that_break_while_they_are_decoded(monkeypatch):
    batch = twin.encode([Record(0, 0, b"1234")])

    def break_it(*buffers):
        batch[61] = 0x7F
        return Columns(*buffers)

    monkeypatch.setattr(_core, "Columns", break_it)
    with pytest.raises(BufferError, match="changed"):
        decode(batch)


@CODECS
@pytest.mark.parametrize("before", list(Codec))
def test_recompress_changes_the_codec_alone(before, codec):
    records = [Record(n, 40 - n, b"k" * n, None, [("h", b"v")]) for n in range(30)]
    one = twin.encode(records, codec=before, producer_id=5, producer_epoch=6, base_sequence=7, leader_epoch=8)
    other = recompress(one + one, codec)
    assert (
        other
        == twin.encode(records, codec=codec, producer_id=5, producer_epoch=6, base_sequence=7, leader_epoch=8)
        * 2
    )
    assert recompress(memoryview(other), before) == one + one


def test_recompress_keeps_append_time():
    batch = twin.encode([Record(0, 1)])
    stamp_append_time(batch, validate(batch, **LIMITS)[0], 99)
    [(header, records)] = encoded(recompress(batch, Codec.GZIP, 9))
    assert (header.attributes, header.max_timestamp, records[0].timestamp) == (8 | Codec.GZIP, 99, 99)


def test_recompress_bounds_and_refusals():
    batch = twin.encode([Record(0, 1, value=bytes(5000))], codec=Codec.ZSTD)
    with pytest.raises(RecordError, match="decompresses to more"):
        recompress(batch, Codec.NONE, max_decompressed_bytes=4000)
    with pytest.raises(ValueError):
        recompress(batch, 5)
    with pytest.raises(ValueError, match="has no level"):
        recompress(batch, Codec.GZIP, 77)
    struct.pack_into(">I", batch, 17, 0)
    with pytest.raises(RecordError, match="checksum"):
        recompress(batch, Codec.NONE)


def test_levels_make_a_difference():
    words = b" ".join(b"word%d" % (n * n % 97) for n in range(5000))
    batch = twin.encode([Record(0, 1, value=words)])
    for codec in (Codec.GZIP, Codec.LZ4, Codec.ZSTD):
        assert len(recompress(batch, codec, 9)) < len(recompress(batch, codec, 1))


# --- records that are missing


@given(st.sets(st.integers(0, 400), min_size=1), st.sampled_from([60, 300, 1 << 20]), st.integers(0, 4))
def test_batches_with_holes_come_back(offsets: set[int], batch_bytes: int, codec: int) -> None:
    rows = [Record(offset, offset % 7, b"%d" % offset, b"v" * (offset % 9), []) for offset in sorted(offsets)]
    data = bytearray().join(
        twin.encode([row], producer_id=7, producer_epoch=1, base_sequence=row.offset) for row in rows
    )
    sparse = encode(decode(data), codec=codec, batch_bytes=batch_bytes, sparse=True)
    found = twin.decode(sparse, sparse=True)
    assert [record for _, records in found for record in records] == rows
    assert list(decode(sparse, sparse=True).records()) == rows
    for header, records in found:
        assert header.base_offset + header.last_offset_delta == records[-1].offset
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    if batch_bytes > 100_000:
        assert len(found) == 1, "a hole ends no batch"


def test_only_readers_that_say_so_take_batches_with_holes() -> None:
    """A producer's batch must have none."""
    batch = twin.encode([Record(5, 1, b"a"), Record(9, 2, b"b")])
    assert [record.offset for record in decode(batch, sparse=True).records()] == [5, 9]
    for refuse in (
        lambda: decode(batch),
        lambda: twin.decode(batch),
        lambda: validate(batch, max_batch_bytes=1 << 20, max_decompressed_bytes=1 << 20),
    ):
        with pytest.raises(RecordError):
            refuse()


@pytest.mark.parametrize("bit", [TRANSACTIONAL, DELETE_HORIZON])
def test_only_such_readers_take_what_other_logs_say_of_batches(bit: int) -> None:
    """Transactions, and when tombstones may go: no producer here may say so, and no row repeats it."""
    batch = batches.batch(batches.plain(b"a"), producer=7, epoch=0, sequence=0, attributes=bit)
    for records in (list(decode(batch, sparse=True).records()), twin.decode(batch, sparse=True)[0][1]):
        assert [record.value for record in records] == [b"a"]
    assert to_arrow(decode(batch, sparse=True), 0).column("attributes").to_pylist() == [0]
    for refuse in (lambda: decode(batch), lambda: twin.decode(batch)):
        with pytest.raises(RecordError):
            refuse()


@pytest.mark.parametrize(
    ("deltas", "last"), [((0, 0), 5), ((3, 1), 5), ((0, 6), 5), ((5, 5), 5), ((0, 5), 4), ((0, 1), -1)]
)
def test_offsets_of_a_sparse_batch_rise_and_end_where_it_says(deltas: tuple[int, int], last: int) -> None:
    batch = twin.encode([Record(0, 1), Record(1, 1)])
    at = HEADER_SIZE
    for delta in deltas:
        batch[at + 3] = delta << 1
        at += 1 + (batch[at] >> 1)
    batch[23:27] = last.to_bytes(4, "big", signed=True)
    batch[17:21] = twin.crc32c(batch[21:]).to_bytes(4, "big")
    for refuse in (lambda: decode(batch, sparse=True), lambda: twin.decode(batch, sparse=True)):
        with pytest.raises(RecordError):
            refuse()


def test_a_batch_of_which_all_records_are_gone() -> None:
    """As Kafka's own cleaner leaves one."""
    batch = twin.encode([Record(5, 1)])[:HEADER_SIZE]
    batch[8:12] = (49).to_bytes(4, "big")
    batch[57:61] = bytes(4)
    batch[17:21] = twin.crc32c(batch[21:]).to_bytes(4, "big")
    assert decode(batch, sparse=True).row_count == 0
    assert twin.decode(batch, sparse=True)[0][1] == []
    for refuse in (lambda: decode(batch), lambda: twin.decode(batch)):
        with pytest.raises(RecordError):
            refuse()
