"""What is stored of a written file comes back as it was; what is not right is said."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dray.log.jobs.values import WrittenFile
from dray.log.parquet.statistics import ColumnSizes, RowGroup
from dray.metadata.values import ValueCorrupt
from dray.tables.compaction.model import Unit
from dray.tables.compaction.paths import file_path, unit_prefix
from dray.tables.compaction.saga import mismatch
from dray.tables.contract import TableFile

numbers = st.integers(0, 2**62)
groups = st.builds(RowGroup, *[numbers] * 8)
columns = st.builds(ColumnSizes, *[numbers] * 4)
files = st.builds(
    WrittenFile,
    stream=numbers,
    job=numbers,
    path=st.text(max_size=30),
    parquet_id=st.uuids(),
    file_size=numbers,
    footer_length=numbers,
    record_count=numbers,
    min_timestamp=st.integers(-(2**62), 2**62),
    max_timestamp=st.integers(-(2**62), 2**62),
    start=numbers,
    end=numbers,
    row_groups=st.lists(groups, max_size=3).map(tuple),
    columns=st.lists(columns, max_size=3).map(tuple),
    split_offsets=st.lists(numbers, max_size=3).map(tuple),
)


@given(files)
def test_a_written_file_survives_its_job(file: WrittenFile) -> None:
    assert WrittenFile.from_json(json.loads(json.dumps(file.to_json()))) == file


@given(files)
def test_a_table_gets_what_the_writer_counted(file: WrittenFile) -> None:
    described = TableFile(3, file)
    assert (described.partition, described.path, described.written) == (3, file.path, file)
    assert (described.first_offset, described.last_offset) == (file.start, file.end - 1)


@pytest.mark.parametrize("broken", [{}, {"path": 1}, {"row_groups": [[1]]}])
def test_what_is_no_written_file_is_refused(broken: dict[str, object]) -> None:
    with pytest.raises(ValueCorrupt):
        WrittenFile.from_json(broken)


PREFIX = unit_prefix("orders", UUID(int=1), 0, 5)
UNIT = Unit("orders", UUID(int=1), 0, 5, 7, (), 10, 20, PREFIX)
FILE = WrittenFile(
    stream=5,
    job=7,
    path=file_path(PREFIX, 7, UUID(int=2)),
    parquet_id=UUID(int=2),
    file_size=100,
    footer_length=50,
    record_count=10,
    min_timestamp=0,
    max_timestamp=0,
    start=10,
    end=20,
    row_groups=(RowGroup(4, 10, 6, 10, 1, 0, 0, 15), RowGroup(14, 10, 4, 16, 1, 0, 0, 19)),
    columns=(),
    split_offsets=(4, 14),
)


def test_a_file_is_what_its_unit_asked_for() -> None:
    assert mismatch(UNIT, FILE) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (replace(FILE, path=FILE.path + "x"), "its path"),
        (replace(FILE, path=file_path(PREFIX, 8, UUID(int=2))), "its path"),
        (replace(FILE, start=9), "its offsets"),
        (replace(FILE, end=21), "its offsets"),
        (replace(FILE, record_count=9), "its number of records"),
        (replace(FILE, row_groups=FILE.row_groups[:1]), "its row groups"),
        (replace(FILE, row_groups=FILE.row_groups[::-1]), "its row groups"),
    ],
)
def test_a_file_that_is_something_else_is_named(wrong: WrittenFile, said: str) -> None:
    reason = mismatch(UNIT, wrong)
    assert reason is not None
    assert said in reason
    assert wrong.path in reason
