"""What tables have is read from their files, and what they lack from the log: each record once."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestContent, ManifestFile
from tests.services.iceberg_files import TopicFiles, other_topic
from tests.unit.tables.iceberg.harness import CLUSTER, ours

from dray.base.runtime import SystemRuntime
from dray.kafka.client.cluster import Place
from dray.tables.iceberg import reading
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.reading import SnapshotFile, SnapshotFiles
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables
from dray.tables.spark_source import source
from dray.tables.spark_source.files import divided
from dray.tables.spark_source.log import LogState
from dray.tables.spark_source.options import OptionRefused, SourceOptions
from dray.tables.spark_source.ranges import Range, SourceError
from dray.tables.spark_source.source import BatchReader, FilePartition, RangePartition


@given(st.data())
def test_each_offset_is_in_one_piece(data: st.DataObject) -> None:
    """Whatever files a table has, with holes in them and between them, and wherever the log starts."""
    edges = sorted(data.draw(st.sets(st.integers(0, 60), max_size=9)))
    files = [
        SnapshotFile(f"{start}", 0, start, end) for start, end in zip(edges[::2], edges[1::2], strict=False)
    ]
    reached = max((file.end for file in files), default=0) + data.draw(st.integers(0, 5))
    table = SnapshotFiles(UUID(int=1), [*files, SnapshotFile("other", 1, 0, 60)], {0: reached, 1: 60}, None)
    first, log_start, length = (data.draw(st.integers(0, 70)) for _ in range(3))
    wanted = Range("t", 0, first, first + length)
    parts, rest = divided([wanted, Range("u", 0, 0, 5)], {("t", 0): log_start}, {"t": table})
    assert [each for each in rest if each.topic == "u"] == [Range("u", 0, 0, 5)], "without a table"
    for offset in range(first, first + length):
        of_log = [each for each in rest if each.topic == "t" and each.start <= offset < each.end]
        of_files = [each for each in parts if each.wanted.start <= offset < each.wanted.end]
        holding = [file.location for file in files if file.start <= offset < file.end]
        if offset < log_start or offset >= reached:
            assert (len(of_log), of_files) == (1, [])
        else:
            assert (of_log, [each.location for each in of_files]) == ([], holding)
    pieces = [each.wanted for each in parts] + [each for each in rest if each.topic == "t"]
    assert all(first <= each.start < each.end <= first + length for each in pieces)


class Lake:
    """A topic of two partitions, with a log to offset 10, and what its table has."""

    def __init__(self, directory: Path) -> None:
        self.files = TopicFiles(directory / "objects")
        self.url, self.uri = f"file:{directory / 'objects'}", f"sqlite:///{directory / 'catalog.sqlite'}"
        self.topic_id = self.files.topic.topic_id
        self.ends: dict[Place, int] = {("orders", 0): 10, ("orders", 1): 10}
        self.starts: dict[Place, int] = dict.fromkeys(self.ends, 0)
        self.runtime = SystemRuntime(threads=2)
        self.with_tables(self._make)

    def with_tables(self, work: Callable[[IcebergTables], Awaitable[None]]) -> None:
        async def run() -> None:
            tables = IcebergTables(
                CatalogSettings("sql", self.uri, "dray"), locations(self.url, {}, {}), CLUSTER, self.runtime
            )
            await work(tables)
            await tables.close()

        asyncio.run(run())

    async def _make(self, tables: IcebergTables) -> None:
        await tables.ensure(self.files.topic)
        added = [self.files.write(0, 0, 3), self.files.write(0, 4, 3, job=2), self.files.write(1, 0, 5)]
        await tables.commit(self.files.topic, [self.files.change("7-1", *added)], ours)

    # --- the log, as the source asks it

    async def state(self) -> LogState:
        return LogState({"orders": self.topic_id}, self.starts, self.ends)

    async def topics(self) -> tuple[dict[str, UUID], str]:
        return {"orders": self.topic_id}, CLUSTER

    def asked(self, _: SourceOptions, question: Any, __: Any = None) -> Any:
        return asyncio.run(question(self))

    def reader(self, *columns: str, **more: str) -> BatchReader:
        given = {"topic": "orders", "objects.url": self.url, "iceberg.uri": self.uri, **more}
        chosen = SourceOptions.parse(given, streaming=False)
        return BatchReader(chosen, columns or tuple(source.COLUMNS))

    def planned(self, **more: str) -> tuple[list[Range], list[Range]]:
        pieces = self.reader(**more).partitions()
        return (
            [each.part.wanted for each in pieces if isinstance(each, FilePartition)],
            [each.wanted for each in pieces if isinstance(each, RangePartition)],
        )


FILES = [Range("orders", 0, 0, 3), Range("orders", 0, 4, 7), Range("orders", 1, 0, 5)]
BEHIND = [Range("orders", 0, 7, 10), Range("orders", 1, 5, 10)]
ALL = [Range("orders", 0, 0, 10), Range("orders", 1, 0, 10)]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    made = Lake(tmp_path)
    monkeypatch.setattr(source, "asked", made.asked)
    yield made
    made.runtime.close()


def test_the_log_takes_over_where_the_table_ends(lake: Lake) -> None:
    files, log = lake.planned()
    assert (sorted(files, key=str), log) == (FILES, BEHIND)
    files, log = lake.planned(compacted="true")
    assert (sorted(files, key=str), log) == (FILES, [])
    files, log = lake.planned(startingOffsets='{"0": 6, "1": 8}', endingOffsets='{"0": 9}')
    assert (files, log) == ([Range("orders", 0, 6, 7)], [Range("orders", 0, 7, 9), Range("orders", 1, 8, 10)])


def test_what_was_deleted_is_not_read_from_a_file_that_still_has_it(lake: Lake) -> None:
    lake.starts["orders", 0] = 5
    files, log = lake.planned(startingOffsets='{"0": 2}')
    assert sorted(files, key=str) == [Range("orders", 0, 5, 7), Range("orders", 1, 0, 5)]
    assert log == [Range("orders", 0, 2, 5), *BEHIND], "the log says what became of it"


def test_rows_of_files_are_those_of_the_log(lake: Lake) -> None:
    reader = pickle.loads(pickle.dumps(lake.reader()))  # as it goes to a task
    rows = [
        row
        for piece in lake.reader(endingOffsets='{"0": 6, "1": 5}').partitions()
        if isinstance(piece, FilePartition)
        for batch in reader.read(pickle.loads(pickle.dumps(piece)))
        for row in batch.to_pylist()
    ]
    for row in rows:
        row["timestamp"] = round(row["timestamp"].timestamp() * 1_000_000)
    expected = [
        {**row, "topic": "orders", "timestampType": row["attributes"] >> 3 & 1}
        for row in lake.files.records_of(set(lake.files.rows))
        if row["partition"] == 1 or row["offset"] < 6
    ]
    assert sorted(rows, key=lambda row: (row["partition"], row["offset"])) == expected
    few = lake.reader("value", "topic")
    [piece, *_] = few.partitions()
    assert next(iter(few.read(piece))).schema.names == ["value", "topic"]


def test_a_table_that_is_not_the_logs_is_passed_over(lake: Lake) -> None:
    lake.topic_id = other_topic(lake.files.topic).topic_id
    assert lake.planned() == ([], ALL), "of another topic of that name"
    with pytest.raises(SourceError, match="topic orders: it has no table yet; without option compacted"):
        lake.planned(compacted="true")
    lake.topic_id = lake.files.topic.topic_id

    async def change(tables: IcebergTables) -> None:
        table = await tables.load("orders")
        assert table is not None
        table.delete("offset = 1")

    lake.with_tables(change)
    assert lake.planned() == ([], ALL), "another writer changed its rows"
    with pytest.raises(SourceError, match=r"topic orders: snapshot .* of another writer .* changed its"):
        lake.planned(compacted="true")


def test_a_snapshot_of_what_the_log_never_writes(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that do not say their offsets, and files of deleted rows, whatever their writer says of both."""
    with monkeypatch.context() as patched:
        patched.setattr(reading, "start_of", lambda _: None)
        assert lake.planned() == ([], ALL)

    monkeypatch.setattr(ManifestFile, "content", property(lambda _: ManifestContent.DELETES))
    assert lake.planned() == ([], ALL)


def test_a_file_that_is_gone_is_one_line(lake: Lake) -> None:
    reader = lake.reader()
    [piece, *_] = reader.partitions()
    assert isinstance(piece, FilePartition)
    Path(piece.part.location.removeprefix("file://")).unlink()
    with pytest.raises(SourceError, match=r"cannot be read: .*; ask again: the table may have") as told:
        list(reader.read(piece))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("more", "streaming", "line"),
    [
        ({"iceberg.uri": "sqlite:///c"}, False, "option objects.url: it is needed"),
        ({"objects.url": "file:/o"}, False, "option iceberg.uri: a catalog of type sql needs one"),
        ({"objects.url": "file:/o", "iceberg.catalog": "hive"}, False, "'hive' is none of sql, rest, glue"),
        ({"objects.url": "file:/o", "iceberg.ur": "x"}, False, "option iceberg.ur: there is no such option"),
        ({"compacted": "true"}, False, "option compacted: iceberg.* and objects.* say where"),
        ({"objects.url": "file:/o", "iceberg.uri": "sqlite:///c"}, True, "only batches read tables"),
    ],
)
def test_options_are_refused_in_one_line(more: Mapping[str, str], streaming: bool, line: str) -> None:
    with pytest.raises(OptionRefused) as told:
        SourceOptions.parse({"topic": "t", **more}, streaming=streaming)
    assert line in str(told.value)


def test_secrets_of_stores_are_not_shown() -> None:
    options = {
        "objects.url": "s3://bucket/log",
        "objects.secrets.secret_access_key": "hunter2",
        "iceberg.catalog": "rest",
        "iceberg.uri": "http://127.0.0.1:9/c",
        "iceberg.secrets.credential": "id:hunter3",
    }
    chosen = SourceOptions.parse({"topic": "t", **options}, streaming=False)
    assert "hunter" not in repr(chosen)
    assert chosen.tables is not None
    assert "hunter2" in str(chosen.tables.locations.properties)
    assert chosen.tables.catalog.secrets == {"credential": "id:hunter3"}
