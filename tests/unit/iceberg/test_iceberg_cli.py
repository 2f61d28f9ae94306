"""`drayd query` and `drayd admin table`, on stores made by hand: no broker, no Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, LongType, StringType
from tests.services.iceberg_files import TopicFiles
from tests.unit.iceberg.harness import ours

from dray.cli.main import main
from dray.cluster.identity import open_cluster
from dray.log.entries import HighWatermark
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Put
from dray.metadata.sqlite import SqliteStore
from dray.runtime.system import SystemRuntime
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables
from dray.topics.model import Topic, encode_topic
from dray.topics.settings import TopicSettings

STREAMS = (7, 8)


class Lake:
    """A data directory with a cluster, a topic of two partitions with 20 and 5 records, and its table."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = TopicFiles(directory / "objects")

    def do(self, work: Callable[[IcebergTables], Awaitable[Any]]) -> Any:
        self.directory.mkdir(exist_ok=True)

        async def run() -> Any:
            runtime = SystemRuntime(threads=4)
            store = SqliteStore(self.directory / "metadata.sqlite", runtime)
            await store.open()
            try:
                cluster = await open_cluster(store, runtime, 4)
                await self._make_topic(store, cluster.domains)
                uri = f"sqlite:///{self.directory.resolve() / 'catalog.sqlite'}"
                tables = IcebergTables(
                    CatalogSettings("sql", uri, "dray"),
                    locations(f"file:{self.directory / 'objects'}", {}, {}),
                    cluster.cluster_id,
                    runtime,
                )
                try:
                    return await work(tables)
                finally:
                    await tables.close()
            finally:
                await store.close()
                runtime.close()

        return asyncio.run(run())

    async def _make_topic(self, store: SqliteStore, domains: int) -> None:
        name = self.files.topic.topic
        topic = Topic(name, self.files.topic.topic_id, STREAMS, {}, 0, TopicSettings.of({}, {}))
        await store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic(name), encode_topic(topic), ABSENT)])
        streams = StreamStore(store, domains, 0)
        for stream, end in zip(STREAMS, (20, 5), strict=True):
            mark = Put(keys.high_watermark(stream), HighWatermark(end).encode(), ABSENT)
            await store.write(streams.domain(stream), [mark])

    def fill(self) -> None:
        async def work(tables: IcebergTables) -> None:
            await tables.ensure(self.files.topic)
            changes = [
                self.files.change("7-1", self.files.write(0, 0, 10)),
                self.files.change("7-2", self.files.write(0, 10, 8)),
                self.files.change("8-1", self.files.write(1, 0, 5)),
            ]
            await tables.commit(self.files.topic, changes, ours)

        self.do(work)

    def alter(self, change: Callable[[Table], None]) -> None:
        async def work(tables: IcebergTables) -> None:
            table = await tables.load(self.files.topic.topic)
            assert table is not None
            change(table)

        self.do(work)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """For those that only read."""
    made = Lake(tmp_path_factory.mktemp("full"))
    made.fill()
    return made


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """The one that the commands work on: the full one where a test asks for it, else nothing yet."""
    if "full" in request.fixturenames:
        found: Lake = request.getfixturevalue("full")
        return found
    return Lake(tmp_path / "data")


Run = Callable[..., str]


@pytest.fixture
def drayd(lake: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("COLUMNS", "400")

    def run(*arguments: str, code: int = 0) -> str:
        """What it printed; where it fails, the line on standard error."""
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--data-dir", str(lake.directory)])
        said = capsys.readouterr()
        assert ended.value.code == code, said.err
        if code:
            assert said.err.count("\n") == 1
            return said.err
        return said.out

    return run


class TestQuery:
    def test_counts(self, full: Lake, drayd: Run) -> None:
        out = drayd(
            "query", 'select partition, count(*) n, max("offset") last from orders group by all', "-f", "csv"
        )
        assert sorted(out.splitlines()) == ["0,18,17", "1,5,4", "partition,n,last"]

    def test_every_column_as_the_log_has_it(self, full: Lake, drayd: Run) -> None:
        out = json.loads(drayd("query", 'select * from orders order by partition, "offset"', "-f", "json"))
        wanted = full.files.records_of(set(full.files.rows))
        assert len(out) == len(wanted) == 23
        for row, record in zip(out, wanted, strict=True):
            assert row["key"] == (None if record["key"] is None else record["key"].decode())
            assert row["value"] == (None if record["value"] is None else record["value"].decode())
            assert (row["partition"], row["offset"]) == (record["partition"], record["offset"])
            assert [header["key"] for header in row["headers"]] == [h["key"] for h in record["headers"]]
            assert row["producer_id"] == record["producer_id"]
            assert row["timestamp"].startswith("2023-11-14T22:13:20")
            assert row["timestamp"].endswith("Z")

    def test_a_table_for_people(self, full: Lake, drayd: Run) -> None:
        out = drayd("query", "select partition, key from orders where key is null order by all limit 1")
        assert [line.split() for line in out.splitlines()] == [["partition", "key"], ["0", "null"]]

    def test_joins_and_expressions_of_its_own(self, full: Lake, drayd: Run) -> None:
        sql = (
            'with late as (select * from orders where "offset" >= 15) '
            'select count(*) n from late join orders o using (partition, "offset")'
        )
        assert drayd("query", sql, "-f", "csv") == "n\n3\n"

    def test_the_latest_row_of_every_key(self, full: Lake, drayd: Run) -> None:
        """Keys were written once here: what is missing has no key, or was deleted by its last row."""
        out = drayd("query", 'select partition, count(*) n from "orders$latest" group by all', "-f", "csv")
        assert sorted(out.splitlines()) == ["0,13", "1,4", "partition,n"]
        both = 'select count(*) n from orders join "orders$latest" using (partition, "offset")'
        assert drayd("query", both, "-f", "csv") == "n\n17\n"
        assert "does not exist" in drayd("query", 'from "nothing$latest"', code=1)

    def test_show_tables(self, full: Lake, drayd: Run) -> None:
        assert drayd("query", "show tables", "-f", "csv") == "name\norders\n"

    def test_bytes_that_are_no_text(self, full: Lake, drayd: Run) -> None:
        out = drayd("query", "select '\\xFF\\x00'::blob b, {'a': [1]} s", "-f", "csv")
        assert out == 'b,s\n\\xff00,"{""a"": [1]}"\n'

    def test_the_limit_is_told(self, full: Lake, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["query", "from orders", "-n", "2", "-f", "csv", "--data-dir", str(lake.directory)])
        said = capsys.readouterr()
        assert ended.value.code == 0
        assert said.out.count("\n") == 3
        assert said.err == "drayd: only the first 2 rows are shown; --limit 0 prints all\n"

    def test_columns_that_the_owner_changed(self, lake: Lake, drayd: Run) -> None:
        lake.fill()

        def change(table: Table) -> None:
            with table.update_schema() as update:
                update.rename_column("value", "payload")
                update.add_column("region", StringType())
                update.add_column("price", DecimalType(9, 2))
                update.update_column("producer_epoch", field_type=LongType())

        lake.alter(change)
        sql = "select count(payload) p, count(region) r, typeof(any_value(price)) t from orders"
        assert drayd("query", sql, "-f", "csv") == 'p,r,t\n21,0,"DECIMAL(9,2)"\n'

    def test_an_empty_table_has_its_columns(self, lake: Lake, drayd: Run) -> None:
        lake.do(lambda tables: tables.ensure(lake.files.topic))
        out = drayd("query", "select * from orders", "-f", "csv")
        assert out.split(",")[:3] == ["partition", "offset", "timestamp"]

    @pytest.mark.parametrize(
        ("sql", "line"),
        [
            ("selec 1", "drayd: not SQL: syntax error"),
            ("select * from nowhere", "nowhere does not exist; tables: orders"),
            ("select nothing from orders", 'Referenced column "nothing" not found'),
        ],
    )
    def test_mistakes(self, full: Lake, drayd: Run, sql: str, line: str) -> None:
        assert line in drayd("query", sql, code=1)

    def test_an_unknown_format(self, full: Lake, drayd: Run) -> None:
        assert "must be one of table, csv, json" in drayd("query", "select 1", "-f", "xml", code=2)

    def test_names_with_dots_and_quotes(self, tmp_path: Path) -> None:
        from dray.tables.iceberg.duckdb_views import quoted

        assert quoted('a.b"c') == '"a.b""c"'

    def test_nothing_is_made_where_nothing_is(self, lake: Lake, drayd: Run) -> None:
        assert "there is no cluster here yet" in drayd("query", "select 1", code=1)
        assert not lake.directory.exists()


class TestTable:
    def test_what_it_holds_and_how_far_it_is_behind(self, full: Lake, drayd: Run) -> None:
        found = json.loads(drayd("admin", "table", "orders", "--json"))
        assert (found["table"], found["rows"], found["files"], found["snapshots"]) == (
            "dray.orders",
            23,
            3,
            1,
        )
        assert found["trouble"] is None
        assert found["partitions"] == [
            {"partition": 0, "log_start": 0, "log_end": 20, "table_end": 18, "behind": 2},
            {"partition": 1, "log_start": 0, "log_end": 5, "table_end": 5, "behind": 0},
        ]
        out = drayd("admin", "table", "orders")
        assert "23 rows in 3 files" in out
        assert out.splitlines()[-2].split() == ["0", "0", "20", "18", "2"]

    def test_trouble_is_shown(self, lake: Lake, drayd: Run) -> None:
        lake.fill()
        lake.alter(lambda table: table.delete("partition = 1"))
        assert "another writer changed its rows; roll it back" in drayd("admin", "table", "orders")

    def test_no_topic_and_no_table(self, lake: Lake, drayd: Run) -> None:

        async def nothing(_: IcebergTables) -> None:
            return None

        lake.do(nothing)
        assert drayd("admin", "table", "nowhere", code=1) == "drayd: there is no topic nowhere\n"
        assert "topic orders has no table yet" in drayd("admin", "table", "orders", code=1)

    def test_without_iceberg(self, full: Lake, drayd: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DRAY_ICEBERG__ENABLED", "false")
        assert "iceberg.enabled is false" in drayd("admin", "table", "orders", code=2)

    def test_why_a_topic_has_no_table(self, lake: Lake, drayd: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        async def nothing(_: IcebergTables) -> None:
            return None

        lake.do(nothing)
        monkeypatch.setenv("DRAY_ICEBERG__EXCLUDE_TOPICS", "x*, ord*s")
        line = drayd("admin", "table", "orders", code=1)
        assert "topic orders has no table: its name matches ord*s of iceberg.exclude_topics" in line
        assert "dray.iceberg.enabled=true" in line
        [told] = json.loads(drayd("admin", "table", "--json"))
        assert (told["topic"], told["table"]) == ("orders", False)
        assert "matches ord*s" in told["why"]
        monkeypatch.setenv("DRAY_ICEBERG__EXCLUDE_TOPICS", "")
        assert "not compacted yet" in drayd("admin", "table")

    def test_a_table_that_is_not_written_any_more_is_shown_and_dropped_when_asked(
        self, lake: Lake, drayd: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lake.fill()
        assert "would be made again" in drayd("admin", "table", "orders", "--drop", code=1)
        assert "unwritten" not in drayd("admin", "table", "orders")
        assert drayd("admin", "table").split() == ["topic", "table", "orders", "yes"]
        monkeypatch.setenv("DRAY_ICEBERG__EXCLUDE_TOPICS", "orders")
        assert "unwritten its name matches orders" in drayd("admin", "table", "orders")
        assert json.loads(drayd("admin", "table", "orders", "--json"))["rows"] == 23
        assert "yes" in drayd("admin", "table")
        assert "not written: its name" in drayd("admin", "table")
        assert "of which topic" in drayd("admin", "table", "--drop", code=2)
        assert "is dropped" in drayd("admin", "table", "orders", "--drop")
        assert drayd("admin", "table", "orders", "--drop", code=1) == "drayd: topic orders has no table\n"
        assert all((lake.files.root / path).exists() for path in lake.files.rows), "the log reads these"
