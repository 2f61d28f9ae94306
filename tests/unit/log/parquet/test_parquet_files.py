"""Files of the table's schema: what is written, what is read back, and what is refused."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dray.kafka.records import decode, twin
from dray.kafka.records.arrow import schema, to_arrow
from dray.kafka.records.columns import Record
from dray.log.parquet import writer
from dray.log.parquet.reader import Footer, ParquetCorrupt, find_time, greatest_time, is_dense
from dray.log.parquet.statistics import FileStatistics
from dray.log.parquet.writer import (
    FIELD_IDS,
    HEADER_ID,
    HEADER_KEY_ID,
    HEADER_VALUE_ID,
    FileWriter,
    file_schema,
)

START = 1_700_000_000_000


def rows(first: int, count: int, size: int = 10) -> pa.RecordBatch:
    records = [
        Record(
            place,
            START + place % 7,
            None if place % 2 else b"k",
            None if place % 3 else b"v" * size,
            [("a", b"1"), ("a", None)] if place % 4 == 0 else [],
        )
        for place in range(first, first + count)
    ]
    return to_arrow(decode(twin.encode(records)), 5)


def written(*batches: pa.RecordBatch) -> tuple[bytes, FileStatistics]:
    file = FileWriter()
    pieces = [piece for batch in batches for piece in file.add(batch)]
    last, statistics = file.finish()
    return b"".join((*pieces, *last)), statistics


def read_back(data: bytes, statistics: FileStatistics) -> list[pa.RecordBatch]:
    footer = Footer(data[-statistics.footer_length :], len(data))
    return [
        footer.read_group(
            number,
            group.position,
            data[group.position : group.position + group.length],
            group.first_offset,
            group.record_count,
        )
        for number, group in enumerate(statistics.row_groups)
    ]


def test_every_field_has_its_id() -> None:
    """Iceberg's own: the columns in order, then what is nested. Never to be changed."""
    assert list(FIELD_IDS.values()) == list(range(1, 11))
    assert (HEADER_ID, HEADER_KEY_ID, HEADER_VALUE_ID) == (11, 12, 13)
    data, _ = written(rows(0, 3))
    found = pq.read_schema(io.BytesIO(data))

    def id_of(field: pa.Field) -> int:
        return int(field.metadata[b"PARQUET:field_id"])

    assert {field.name: id_of(field) for field in found} == FIELD_IDS
    element = found.field("headers").type.value_field
    assert [id_of(element), *map(id_of, element.type)] == [11, 12, 13]
    assert file_schema().equals(schema()), "ids aside, the schema of the records"


def test_groups_are_neither_too_small_nor_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "GROUP_BYTES", 4_000)
    monkeypatch.setattr(writer, "MOST_GROUP_BYTES", 8_000)
    batches = [rows(at, 10, size=300) for at in range(0, 300, 10)]  # about 1,200 bytes each
    data, statistics = written(*batches)
    assert [group.record_count for group in statistics.row_groups[:-1]] == [40] * 7
    assert read_back(data, statistics)[3].to_pylist() == [
        row for batch in batches[12:16] for row in batch.to_pylist()
    ]
    large = rows(0, 100, size=900)
    _, statistics = written(rows(0, 10, size=300), large.slice(10))
    assert [group.record_count for group in statistics.row_groups] == [10, 90], (
        "no group takes two that are too much"
    )


def test_bytes_leave_as_they_are_ready() -> None:
    """What a file takes in memory does not grow with it."""
    file = FileWriter()
    batch = rows(0, 1000, size=20_000)
    for _ in range(5):
        assert sum(map(len, file.add(batch))) > 0
    last, statistics = file.finish()
    assert sum(map(len, last)) < statistics.file_size / 2


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(100, 4000))
def test_rows_come_back(counts: list[int], group_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writer, "GROUP_BYTES", group_bytes)
        patched.setattr(writer, "MOST_GROUP_BYTES", 2 * group_bytes)
        first, batches = 100, []
        for count in counts:
            batches.append(rows(first, count))
            first += count
        data, statistics = written(*batches)
    assert statistics.file_size == len(data)
    assert statistics.record_count == sum(counts)
    wanted = [row for batch in batches for row in batch.to_pylist()]
    assert [row for batch in read_back(data, statistics) for row in batch.to_pylist()] == wanted
    assert pq.read_table(io.BytesIO(data)).to_pylist() == wanted
    metadata = pq.read_metadata(io.BytesIO(data))
    nulls = {leaf.field_id: leaf.null_count for leaf in statistics.columns}
    assert nulls[FIELD_IDS["value"]] == sum(row["value"] is None for row in wanted)
    assert nulls[FIELD_IDS["producer_id"]] == len(wanted)
    assert nulls[HEADER_VALUE_ID] == sum(
        sum(header["value"] is None for header in row["headers"]) or not row["headers"] for row in wanted
    )
    values = {leaf.field_id: leaf.value_count for leaf in statistics.columns}
    assert values[HEADER_KEY_ID] == sum(
        metadata.row_group(number).column(5).num_values for number in range(metadata.num_row_groups)
    )


def test_only_the_rows_that_are_expected() -> None:
    data, statistics = written(rows(50, 30))
    footer = Footer(data[-statistics.footer_length :], len(data))
    [group] = statistics.row_groups
    part = data[group.position : group.position + group.length]
    footer.read_group(0, group.position, part, 50, 30)
    for first, count in ((49, 30), (51, 30), (50, 29), (50, 31)):
        with pytest.raises(ParquetCorrupt, match="does not hold"):
            footer.read_group(0, group.position, part, first, count)
    with pytest.raises(ParquetCorrupt, match="no row group 1"):
        footer.read_group(1, group.position, part, 50, 30)


def test_files_of_others_are_refused() -> None:
    table = pa.table({"offset": pa.array([0, 1], pa.int64()), "word": ["a", "b"]})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    data = sink.getvalue()
    footer = Footer(data[-int.from_bytes(data[-8:-4], "little") - 8 :], len(data))
    with pytest.raises(ParquetCorrupt, match="columns"):
        footer.read_group(0, 4, data[4:], 0, 2)
    for nonsense in (b"", b"PAR1", b"x" * 100, data[-20:]):
        with pytest.raises(ParquetCorrupt):
            Footer(nonsense, 1000)
    with pytest.raises(ParquetCorrupt, match="longer"):
        Footer(data, 10)


def test_bytes_outside_of_what_was_fetched_are_never_believed() -> None:
    data, statistics = written(rows(0, 30))
    footer = Footer(data[-statistics.footer_length :], len(data))
    [group] = statistics.row_groups
    part = data[group.position : group.position + group.length]
    for shifted in (group.position + 3, group.position - 3):
        with pytest.raises(ParquetCorrupt):
            footer.read_group(0, shifted, part, 0, 30)


@pytest.mark.parametrize(
    ("offsets", "first", "dense"),
    [([3, 4, 5], 3, True), ([3, 4, 5], 2, False), ([3, 5], 3, False), ([4, 3], 4, False), ([3, 3], 3, False)],
)
def test_dense(offsets: list[int], first: int, dense: bool) -> None:
    batch = pa.RecordBatch.from_pydict({"offset": pa.array(offsets, pa.int64())})
    assert is_dense(batch, first) is dense


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=20), st.integers(0, 19), st.integers(-6, 6))
def test_by_time(times: list[int], skipped: int, wanted: int) -> None:
    records = [Record(100 + place, START + time) for place, time in enumerate(times)]
    batch = to_arrow(decode(twin.encode(records)), 0)
    start = 100 + skipped % len(times)
    left = [(record.offset, record.timestamp) for record in records if record.offset >= start]
    assert find_time(batch, start, START + wanted) == next(
        (found for found in left if found[1] >= START + wanted), None
    )
    assert greatest_time(batch, start) == max(left, key=lambda found: (found[1], -found[0]))
