"""A unit becomes a file: the same records, all of them, or a failure that names the place."""

from __future__ import annotations

import datetime
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.tables.compaction.executor_inputs import (
    START,
    kafka_batch,
    parquet_entry,
    records,
    unit_of,
    wal_entry,
)

from dray.base.runtime import SystemRuntime
from dray.kafka.records import Codec
from dray.kafka.records.columns import Record
from dray.log.jobs.values import WrittenFile
from dray.log.parquet import writer
from dray.log.parquet.writer import FIELD_IDS
from dray.objects.memory import MemoryObjects
from dray.tables.compaction.model import UnitFailed
from dray.tables.compaction.paths import parse_file_path
from dray.tables.compaction.writing import sources
from dray.tables.compaction.writing.executor import LocalUnitWriter, write_unit


@pytest.fixture
async def runtime() -> AsyncIterator[SystemRuntime]:
    made = SystemRuntime(threads=4)
    yield made
    made.close()


@pytest.fixture
def objects(runtime: SystemRuntime) -> MemoryObjects:
    return MemoryObjects(runtime)


async def read_table(objects: MemoryObjects, written: WrittenFile) -> list[dict[str, Any]]:
    """By a reader that knows nothing of ours."""
    data = await objects.get(written.path)
    assert len(data) == written.file_size
    rows: list[dict[str, Any]] = pq.read_table(pa.BufferReader(data)).to_pylist()
    return rows


def row_of(record: Record, partition: int = 3) -> dict[str, Any]:
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": datetime.datetime.fromtimestamp(record.timestamp / 1000, datetime.UTC),
        "key": record.key,
        "value": record.value,
        "headers": [{"key": key, "value": value} for key, value in record.headers],
    }


async def written(unit: Any, objects: MemoryObjects, runtime: SystemRuntime) -> WrittenFile:
    answer = await write_unit(unit, objects, runtime)
    assert isinstance(answer, WrittenFile), answer
    return answer


async def failed(unit: Any, objects: MemoryObjects, runtime: SystemRuntime) -> UnitFailed:
    answer = await write_unit(unit, objects, runtime)
    assert isinstance(answer, UnitFailed), answer
    assert (answer.stream, answer.job) == (unit.stream, unit.job)
    return answer


async def test_all_records_of_all_entries(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    wanted = records(100, 60)
    first = await wal_entry(
        objects,
        100,
        [
            kafka_batch(wanted[:10], Codec.ZSTD, producer=(9, 2, 70)),
            kafka_batch(wanted[10:30], Codec.LZ4),
            kafka_batch(wanted[30:31]),
        ],
    )
    second = await wal_entry(
        objects,
        131,
        [kafka_batch(wanted[31:50], Codec.SNAPPY), kafka_batch(wanted[50:], append_time=START + 5)],
    )
    unit = unit_of([first, second])
    file = await written(unit, objects, runtime)
    rows = await read_table(objects, file)
    stamped = [record._replace(timestamp=START + 5) for record in wanted[50:]]
    for row, record in zip(rows, [*wanted[:50], *stamped], strict=True):
        assert row.items() >= row_of(record).items()
    assert [row["attributes"] for row in rows] == [0] * 50 + [8] * 10, (
        "codec bits clear, the kind of time kept"
    )
    assert [row["producer_id"] for row in rows] == [9] * 10 + [None] * 50
    assert [row["base_sequence"] for row in rows] == [70] * 10 + [None] * 50
    assert (file.start, file.end, file.record_count) == (100, 160, 60)
    assert (file.min_timestamp, file.max_timestamp) == (START + 5, START + 149)
    parsed = parse_file_path(file.path)
    assert parsed is not None
    assert (parsed.stream, parsed.job, parsed.parquet_id) == (unit.stream, unit.job, file.parquet_id)
    assert WrittenFile.from_json(file.to_json()) == file


async def test_only_what_the_index_lists(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    """A batch that was refused after the upload lies in the object too."""
    good = records(0, 4)
    entry = await wal_entry(
        objects,
        0,
        [kafka_batch(good[:2]), kafka_batch(records(50, 9)), kafka_batch(good[2:])],
        refused=[1],
    )
    file = await written(unit_of([entry]), objects, runtime)
    assert [row["value"] for row in await read_table(objects, file)] == [record.value for record in good]


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PIECE_BYTES", 900)
    monkeypatch.setattr(writer, "GROUP_BYTES", 1000)
    monkeypatch.setattr(writer, "MOST_GROUP_BYTES", 2000)


async def test_row_groups_and_statistics(
    objects: MemoryObjects, runtime: SystemRuntime, small_pieces: None
) -> None:
    wanted = records(0, 120, size=60)
    entries = [
        await wal_entry(objects, at, [kafka_batch(wanted[at + n : at + n + 3]) for n in range(0, 12, 3)])
        for at in range(0, 120, 12)
    ]
    file = await written(unit_of(entries), objects, runtime)
    data = bytes(await objects.get(file.path))
    metadata = pq.read_metadata(pa.BufferReader(data))
    assert len(file.row_groups) == metadata.num_row_groups > 3
    assert data[-8:-4] == (file.footer_length - 8).to_bytes(4, "little")
    following = 0
    for place, group in enumerate(file.row_groups):
        known = metadata.row_group(place)
        assert (group.record_count, group.first_offset) == (known.num_rows, following)
        following += known.num_rows
        leaves = {known.column(n).path_in_schema: known.column(n) for n in range(known.num_columns)}
        assert group.length == sum(leaf.total_compressed_size for leaf in leaves.values())
        assert group.min_timestamp == int(leaves["timestamp"].statistics.min.timestamp() * 1000)
        assert group.max_timestamp == int(leaves["timestamp"].statistics.max.timestamp() * 1000)
        assert leaves["offset"].statistics.min == group.first_offset
        assert leaves["value"].statistics is None, "statistics of payloads cost and leak"
        assert all(leaf.compression == "ZSTD" for leaf in leaves.values())
        assert group.raw_bytes <= 2000 + 100
    assert file.split_offsets == tuple(group.position for group in file.row_groups)
    assert file.row_groups[0].position == 4
    columns = {column.field_id: column for column in file.columns}
    assert columns[FIELD_IDS["value"]].null_count == sum(record.value is None for record in wanted)
    assert columns[FIELD_IDS["key"]].value_count == 120
    assert sum(column.compressed_bytes for column in file.columns) == sum(g.length for g in file.row_groups)


async def test_what_unfolds_far_is_taken_in_small_pieces(
    objects: MemoryObjects, runtime: SystemRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded by what batches become, not by what they are."""
    monkeypatch.setattr(sources, "PIECE_BYTES", 200_000)
    value = bytes(range(250)) * 4 * 100
    batches = [kafka_batch([Record(at, START, None, value)], Codec.ZSTD) for at in range(300)]
    assert max(map(len, batches)) < 1000
    unit = unit_of([await wal_entry(objects, 0, batches)])
    sizes = [rows.nbytes async for rows in sources.rows_of(unit, objects, runtime)]
    assert sizes[0] > 1_000_000, "nobody could know"
    assert max(sizes[4:]) <= 200_000 + 100_200
    plain = await wal_entry(
        objects, 0, [kafka_batch([Record(at, START, None, b"x" * 300)]) for at in range(40)]
    )
    assert len([rows async for rows in sources.rows_of(unit_of([plain]), objects, runtime)]) == 1


async def test_parquet_files_are_merged(
    objects: MemoryObjects, runtime: SystemRuntime, small_pieces: None
) -> None:
    wanted = records(0, 90, size=40)
    inputs, merged = [], []
    for at in range(0, 60, 20):
        entry = await wal_entry(
            objects, at, [kafka_batch(wanted[at : at + 20], producer=(4, 0, at), append_time=START + at)]
        )
        inputs.append(entry)
        merged.append(parquet_entry([entry], await written(unit_of([entry]), objects, runtime)))
    tail = await wal_entry(objects, 60, [kafka_batch(wanted[60:])])
    once = await written(unit_of([*inputs, tail]), objects, runtime)
    again = await written(unit_of([*merged, tail], job=2), objects, runtime)
    assert await read_table(objects, again) == await read_table(objects, once)
    assert (again.start, again.end) == (0, 90)


async def test_a_damaged_batch_is_named(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    entry = await wal_entry(objects, 10, [kafka_batch(records(10, 5)), kafka_batch(records(15, 5))])
    reference = list(entry.batches())[1][1]
    data = bytearray(await objects.get(entry.path))
    data[reference.position + 80] ^= 4
    await objects.put(entry.path, [bytes(data)])
    answer = await failed(unit_of([entry]), objects, runtime)
    assert not answer.retriable
    where = f"{entry.path}: the batch at byte {reference.position} (offset 15) is not what was stored"
    assert answer.reason.startswith(where)
    assert [info.path async for info in objects.list("compaction/")] == []


async def test_a_batch_with_other_counts_is_named(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    """Together the counts are right: only batch by batch does it show."""
    entry = await wal_entry(objects, 0, [kafka_batch(records(0, 5)), kafka_batch(records(5, 5))])
    table = bytearray(entry.table)
    table[8:12] = (4).to_bytes(4, "big")
    size = len(entry.table) // 2
    table[size + 8 : size + 12] = (6).to_bytes(4, "big")
    lying = type(entry)(**{name: getattr(entry, name) for name in entry.__slots__} | {"table": bytes(table)})
    answer = await failed(unit_of([lying]), objects, runtime)
    assert not answer.retriable
    assert "is not the one that the index lists" in answer.reason


async def test_entries_that_do_not_adjoin(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    first = await wal_entry(objects, 0, [kafka_batch(records(0, 5))])
    third = await wal_entry(objects, 9, [kafka_batch(records(9, 5))])
    answer = await failed(unit_of([first, third]), objects, runtime)
    assert not answer.retriable
    assert "orders-3" in answer.reason


async def test_entries_that_end_too_early(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    entry = await wal_entry(objects, 0, [kafka_batch(records(0, 5))])
    unit = unit_of([entry])
    longer = type(unit)(**{name: getattr(unit, name) for name in unit.__slots__} | {"end": 6})
    assert "end at offset 5, not 6" in (await failed(longer, objects, runtime)).reason


async def test_an_object_that_is_gone_or_short(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    gone = await wal_entry(objects, 0, [kafka_batch(records(0, 5))])
    await objects.delete(gone.path)
    answer = await failed(unit_of([gone]), objects, runtime)
    assert answer.retriable
    assert gone.path in answer.reason
    short = await wal_entry(objects, 0, [kafka_batch(records(0, 5))])
    await objects.put(short.path, [bytes(await objects.get(short.path))[:-10]])
    answer = await failed(unit_of([short]), objects, runtime)
    assert not answer.retriable
    assert short.path in answer.reason


async def test_damaged_parquet_is_named(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    entry = await wal_entry(objects, 0, [kafka_batch(records(0, 50))])
    file = await written(unit_of([entry]), objects, runtime)
    data = bytearray(await objects.get(file.path))
    data[len(data) // 3] ^= 1
    await objects.put(file.path, [bytes(data)])
    answer = await failed(unit_of([parquet_entry([entry], file)], job=2), objects, runtime)
    assert not answer.retriable
    assert answer.reason.startswith(file.path)


async def test_a_timestamp_that_no_table_can_hold(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    entry = await wal_entry(objects, 0, [kafka_batch([Record(0, 2**60, b"k", b"v")])])
    answer = await failed(unit_of([entry]), objects, runtime)
    assert not answer.retriable
    assert "(offset 0) has a timestamp that no table can hold" in answer.reason


async def test_one_failure_leaves_the_others_alone(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    good = await wal_entry(objects, 0, [kafka_batch(records(0, 5))])
    gone = await wal_entry(objects, 0, [kafka_batch(records(0, 5))])
    await objects.delete(gone.path)
    seen: list[tuple[int, int]] = []
    units = [unit_of([good], stream=1), unit_of([gone], stream=2), unit_of([good], stream=3)]
    answers = await LocalUnitWriter(objects, runtime).write(units, lambda done, of: seen.append((done, of)))
    assert [type(answer) for answer in answers] == [WrittenFile, UnitFailed, WrittenFile]
    assert [answer.stream for answer in answers] == [1, 2, 3]
    assert seen == [(1, 3), (2, 3), (3, 3)]


async def test_two_attempts_never_meet(objects: MemoryObjects, runtime: SystemRuntime) -> None:
    unit = unit_of([await wal_entry(objects, 0, [kafka_batch(records(0, 5))])])
    first, second = [await written(unit, objects, runtime) for _ in range(2)]
    assert first.path != second.path


header = st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4))
record_body = st.tuples(
    st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=60), st.lists(header, max_size=3)
)
made_batch = st.tuples(
    st.lists(record_body, min_size=1, max_size=6),
    st.sampled_from(list(Codec)),
    st.booleans(),  # idempotent
    st.booleans(),  # LogAppendTime
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(made_batch, min_size=1, max_size=4), min_size=1, max_size=4), st.integers(200, 3000))
async def test_whatever_was_written_comes_back(plan: list[list[Any]], piece: int) -> None:
    runtime = SystemRuntime(threads=2)
    objects = MemoryObjects(runtime)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources, "PIECE_BYTES", piece)
        patched.setattr(writer, "GROUP_BYTES", piece)
        offset, entries, wanted = 0, [], []
        for made in plan:
            start, batches = offset, []
            for bodies, codec, idempotent, stamped in made:
                rows = [Record(offset + n, START + n, *body) for n, body in enumerate(bodies)]
                offset += len(rows)
                batches.append(
                    kafka_batch(
                        rows,
                        codec,
                        (1, 2, 3) if idempotent else (-1, -1, -1),
                        START - 1 if stamped else None,
                    )
                )
                wanted += [row._replace(timestamp=START - 1) for row in rows] if stamped else rows
            entries.append(await wal_entry(objects, start, batches))
        file = await written(unit_of(entries), objects, runtime)
        for row, record in zip(await read_table(objects, file), wanted, strict=True):
            assert row.items() >= row_of(record).items()
    runtime.close()
