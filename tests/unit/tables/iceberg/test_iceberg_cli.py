"""`drayd query` and `drayd admin table`, on stores made by hand: no broker, no Spark."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, DecimalType, LongType, StringType
from tests.services.iceberg_files import TopicFiles
from tests.unit.log.harness import append, batch_bytes
from tests.unit.tables.iceberg.harness import ours

from dray.base.runtime.system import SystemRuntime
from dray.broker.cluster import TallyKeeper
from dray.broker.cluster.bucket_owner import put_owner
from dray.broker.cluster.identity import open_cluster
from dray.broker.cluster.tally import Mark, encode_mark, mark_path
from dray.broker.topics.model import Topic, TopicSettings, encode_topic
from dray.cli.main import main
from dray.log import Log, LogSettings
from dray.log.entries import HighWatermark, IndexEntry
from dray.log.jobs.machine import Job, put_job
from dray.log.jobs.values import WrittenFile
from dray.log.parquet.statistics import RowGroup
from dray.log.producer_state import ProducerSnapshot, ProducerStates
from dray.log.stream_store import StreamStore
from dray.metadata import keys
from dray.metadata.contract import ABSENT, Put
from dray.metadata.sqlite import SqliteStore
from dray.objects.factory import open_store
from dray.objects.local.store import LocalStore
from dray.tables.iceberg.locations import locations
from dray.tables.iceberg.settings import CatalogSettings
from dray.tables.iceberg.tables import IcebergTables

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

    def index(self) -> None:
        """The log knows the files too."""

        async def run() -> None:
            runtime = SystemRuntime(threads=2)
            store = SqliteStore(self.directory / "metadata.sqlite", runtime)
            await store.open()
            try:
                streams = StreamStore(store, 4, 0)
                for file in self.files.written:
                    stream, found = STREAMS[file.partition], _entry_of(file.written)
                    key = keys.index_entry(stream, found.end, found.cumulative_size)
                    await streams.write(stream, [Put(key, found.encode(), ABSENT)])
            finally:
                await store.close()
                runtime.close()

        asyncio.run(run())

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
    monkeypatch.setenv("DRAY_CLUSTER__TALLY_INTERVAL", "100ms")

    def run(*arguments: str, code: int = 0, whole: bool = False) -> str:
        """What it printed; where it fails, the line on standard error."""
        with pytest.raises(SystemExit) as ended:
            # Most of these have a table, and no log.
            alone = ["--compacted"] if arguments[0] == "query" and not whole else []
            main([*arguments, *alone, "--data-dir", str(lake.directory)])
        said = capsys.readouterr()
        assert ended.value.code == code, said.err
        if code:
            assert said.err.count("\n") == 1
            return said.err
        return said.out

    return run


class Behind(Lake):
    """A topic whose log is there too: twelve records in partition 0, of which the table has ten, and two in
    partition 1, of which it has none. They were written a second apart."""

    async def _make_topic(self, store: SqliteStore, domains: int) -> None:
        if await store.get(keys.CLUSTER_DOMAIN, keys.topic("orders")) is not None:
            return
        runtime = SystemRuntime(threads=2)
        objects = await open_store(f"file:{self.directory / 'objects'}", {}, runtime)
        log = Log(store, objects, runtime, domains, LogSettings())
        await log.start()
        try:
            streams = tuple(await log.create_streams(2))
            topic = Topic("orders", self.files.topic.topic_id, streams, {}, 0, TopicSettings.of({}, {}))
            await store.write(keys.CLUSTER_DOMAIN, [Put(keys.topic("orders"), encode_topic(topic), ABSENT)])
            for stream, count in zip(streams, (12, 2), strict=True):
                for number in range(count):
                    data = batch_bytes([b"new %d" % number], timestamps=[1_000 * number])
                    await append(log, stream, data)
        finally:
            await log.stop()
            await objects.close()
            runtime.close()

    def fill(self) -> None:
        async def work(tables: IcebergTables) -> None:
            await tables.ensure(self.files.topic)
            await tables.commit(
                self.files.topic, [self.files.change("7-1", self.files.write(0, 0, 10))], ours
            )

        self.do(work)


HEAVY = {
    "pandas",
    "pyiceberg",
    "sqlalchemy",
    "prometheus_client",
    "dray.broker.api",
    "dray.daemons.assembly.settings",
}


def loaded(lake: Lake, *arguments: str) -> tuple[str, set[str]]:
    """The last line that a command printed, and the modules that it took: these are most of the time of a
    short one."""
    script = (
        "import json, sys\nfrom dray.cli.main import main\n"
        "try: main(json.loads(sys.argv[1]))\nfinally: print(*sys.modules)"
    )
    asked = json.dumps([*arguments, "--data-dir", str(lake.directory)])
    ran = subprocess.run([sys.executable, "-c", script, asked], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    *_, said, modules = ran.stdout.splitlines()
    return said, set(modules.split())


class TestBehindTheTable:
    @pytest.fixture
    def lake(self, tmp_path: Path) -> Lake:
        return Behind(tmp_path / "data")

    def test_each_record_once(self, lake: Lake, drayd: Run) -> None:
        lake.fill()
        counted = (
            'select partition, count(*) n, count(distinct "offset") m from orders group by all order by 1'
        )
        assert drayd("query", counted, "-f", "csv", whole=True) == "partition,n,m\n0,12,12\n1,2,2\n"
        newest = 'select "offset", decode(value) v, headers from orders where partition = 0 and "offset" > 9'
        assert drayd("query", newest + " order by 1", "-f", "csv", whole=True) == (
            "offset,v,headers\n10,new 10,[]\n11,new 11,[]\n"
        )
        assert drayd("query", counted, "-f", "csv") == "partition,n,m\n0,10,10\n"

    def test_as_of_a_time(self, lake: Lake, drayd: Run) -> None:
        """Before the table had a snapshot, the times of the records say what was there."""
        lake.fill()
        counted = "select partition, count(*) n from orders group by all order by 1"

        def then(time: str, **more: Any) -> str:
            return drayd("query", counted, "-f", "csv", "--as-of", time, **more)

        assert then("1970-01-01T00:00:05.500", whole=True) == "partition,n\n0,6\n1,2\n"
        assert then("1970-01-01T00:00:10.500", whole=True) == "partition,n\n0,11\n1,2\n"
        assert then("2100-01-01", whole=True) == "partition,n\n0,12\n1,2\n"
        assert then("2100-01-01") == "partition,n\n0,10\n"
        assert "orders has no snapshot from then" in then("1970-01-01T00:00:05.500", code=1)
        assert "--as-of = 'once': must be a time such as" in then("once", code=2)

    def test_arrow_brings_no_other_library(self, lake: Lake) -> None:
        lake.fill()
        counted, found = loaded(lake, "query", "select count(*) from orders")
        assert counted.strip() == "14"
        assert "pyarrow" in found
        assert found & (HEAVY | {"rich"}) == set()
        assert len(found) < 740

    def test_a_topic_without_a_table_yet(self, lake: Lake, drayd: Run) -> None:
        async def nothing(_: IcebergTables) -> None: ...

        lake.do(nothing)
        counted, found = loaded(lake, "query", "select count(*) n from orders", "-f", "csv")
        assert counted == "14"
        assert found & HEAVY == set(), "a newcomer's first query waits for no library"
        assert drayd("query", "select count(*) n from orders", "-f", "csv", whole=True) == "n\n14\n"
        assert drayd("query", 'select count(*) n from "orders$latest"', "-f", "csv", whole=True) == "n\n0\n"
        assert "topic orders has no table yet" in drayd("query", "from orders", code=1)

    def test_a_topic_without_tables(self, lake: Lake, drayd: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        async def nothing(_: IcebergTables) -> None: ...

        lake.do(nothing)
        monkeypatch.setenv("DRAY_ICEBERG__EXCLUDE_TOPICS", "or*")
        said = drayd("query", "from orders", code=1, whole=True)
        assert said.startswith(
            "drayd: topic orders has no table: its name matches or* of iceberg.exclude_topics"
        )


class TestQuery:
    def test_a_plain_table_is_read_without_its_library(self, full: Lake) -> None:
        counted, found = loaded(full, "query", "select count(*) from orders", "--compacted")
        assert counted.strip() == "23"
        assert found & (HEAVY | {"pyarrow", "rich"}) == set()
        assert len(found) < 660

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
        assert "there is no topic nothing" in drayd("query", 'from "nothing$latest"', code=1)

    def test_show_tables(self, full: Lake, drayd: Run) -> None:
        assert drayd("query", "show tables", "-f", "csv") == "name\norders\n"

    def test_bytes_that_are_no_text(self, full: Lake, drayd: Run) -> None:
        out = drayd("query", "select '\\xFF\\x00'::blob b, {'a': [1]} s", "-f", "csv")
        assert out == 'b,s\n\\xff00,"{""a"": [1]}"\n'

    def test_the_limit_is_told(self, full: Lake, lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    "query",
                    "from orders",
                    "--compacted",
                    "-n",
                    "2",
                    "-f",
                    "csv",
                    "--data-dir",
                    str(lake.directory),
                ]
            )
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
            ("select * from nowhere", "drayd: there is no topic nowhere; topics: orders\n"),
            ("select * from ordres", "drayd: there is no topic ordres; near it: orders\n"),
            (
                "select offset from orders",
                'drayd: offset has to stand in double quotes: select "offset" from orders\n',
            ),
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
    @pytest.mark.parametrize(("command", "most"), [("compact", 620), ("lost", 700)])
    def test_a_look_loads_no_broker_and_no_library(self, lake: Lake, command: str, most: int) -> None:
        fill_with_its_log(lake)
        _, found = loaded(lake, "admin", command, "orders")
        assert found & HEAVY == set()
        assert len(found) < most

    def test_it_loads_the_library_and_no_broker(self, full: Lake) -> None:
        """The library judges what others changed in a table."""
        _, found = loaded(full, "admin", "table", "orders")
        assert found & HEAVY == {"pandas", "pyiceberg", "sqlalchemy"}

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
        assert "changed its rows; roll it back" in drayd("admin", "table", "orders")

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
        drayd("admin", "adopt-bucket", "--execute")
        assert "would drop the table" in drayd("admin", "table", "orders", "--drop")
        assert "is dropped" in drayd("admin", "table", "orders", "--drop", "--execute")
        assert (
            drayd("admin", "table", "orders", "--drop", "--execute", code=1)
            == "drayd: topic orders has no table\n"
        )
        assert all((lake.files.root / path).exists() for path in lake.files.rows), "the log reads these"


def fill_with_its_log(lake: Lake) -> None:
    """The files of the table are those of the log's index, too, in a bucket of the cluster."""
    lake.fill()

    async def work(_: IcebergTables) -> None:
        runtime = SystemRuntime(threads=2)
        store = SqliteStore(lake.directory / "metadata.sqlite", runtime)
        await store.open()
        objects = await LocalStore.open(lake.directory / "objects", runtime)
        cluster = await open_cluster(store, runtime, 4)
        await put_owner(objects, cluster)
        streams = StreamStore(store, cluster.domains, 0)
        for path, rows in lake.files.rows.items():
            stream = STREAMS[rows[0]["partition"]]
            start, end = rows[0]["offset"], rows[-1]["offset"] + 1
            entry = IndexEntry.parquet(
                [replace(AN_ENTRY, end=end, cumulative_size=end)],
                runtime.uuid(),
                path,
                (lake.files.root / path).stat().st_size,
                100,
                [RowGroup(4, 100, end - start, start, 100, 0, 0, end - 1)],
                start,
            )
            await streams.write(stream, [Put(keys.index_entry(stream, end, end), entry.encode())])
        for stream in STREAMS:
            producers = ProducerSnapshot(20, ProducerStates(0))
            done = [put_job(stream, Job(number=5), 0), streams.put_snapshot(stream, producers, 0)]
            await streams.write(stream, done)
        await objects.close()
        await store.close()
        runtime.close()

    lake.do(work)


AN_ENTRY = IndexEntry(0, 1, 0, 0, 0, 0, 0, 0, UUID(int=1), "", b"")


class TestRepair:
    def test_rows_of_others_are_taken_out(self, lake: Lake, drayd: Run) -> None:
        fill_with_its_log(lake)
        lake.alter(lambda table: table.delete("partition = 1"))
        said = drayd("admin", "table", "orders", "--put-back")
        assert "would hold 3 files of the log, 23 rows, and nothing else; do it with --execute" in said
        assert "admin table orders --put-back" in drayd("admin", "table", "orders")
        assert drayd("admin", "table", "orders", "--put-back", "--execute").startswith(
            "the table of orders holds 3"
        )
        found = json.loads(drayd("admin", "table", "orders", "--json"))
        assert (found["trouble"], found["rows"], found["files"]) == (None, 23, 3)
        assert "nothing to put back" in drayd("admin", "table", "orders", "--put-back", "--execute")

    def test_a_column_that_was_dropped_and_added_again_has_a_way_out(self, lake: Lake, drayd: Run) -> None:
        def alter(table: Table) -> None:
            with table.update_schema(allow_incompatible_changes=True) as update:
                update.delete_column("value")
            with table.update_schema() as update:
                update.add_column("value", BinaryType())

        fill_with_its_log(lake)
        lake.alter(alter)
        assert "admin table orders --rebuild" in drayd("admin", "table", "orders")
        [line] = json.loads(drayd("admin", "table", "--json"))
        assert "--rebuild" in line["why"], "the list of all topics says so, too"
        assert "log's files, which are all there" in drayd("admin", "table", "orders", "--rebuild")
        drayd("admin", "table", "orders", "--rebuild", "--execute")
        found = json.loads(drayd("admin", "table", "orders", "--json"))
        assert (found["trouble"], found["rows"], found["files"]) == (None, 23, 3)

    def test_nothing_is_dropped_that_may_be_the_last_copy(self, lake: Lake, drayd: Run) -> None:
        fill_with_its_log(lake)
        lake.alter(lambda table: table.delete("partition = 1"))
        path = next((lake.directory / "objects" / "compaction").rglob("*.parquet"))
        path.unlink()
        for option in ("--put-back", "--rebuild"):
            said = drayd("admin", "table", "orders", option, "--execute", code=1)
            assert "Do not drop it: drayd admin lost orders --recover" in said
        said = drayd("admin", "table", "orders")
        assert "drayd admin lost orders says what can be done" in said
        [line] = json.loads(drayd("admin", "table", "--json"))
        assert "files of the log are gone (1)" in line["why"]

    def test_a_table_without_its_topic_id_says_so(self, lake: Lake, drayd: Run) -> None:
        def alter(table: Table) -> None:
            with table.transaction() as changed:
                changed.remove_properties("dray.topic_id")

        fill_with_its_log(lake)
        lake.alter(alter)
        assert "dray.topic_id is not among its properties" in drayd("admin", "table", "orders", code=1)

    def test_a_table_that_lost_a_manifest_is_made_again_from_the_log(self, lake: Lake, drayd: Run) -> None:
        lake.fill()
        lake.index()
        before = json.loads(drayd("admin", "table", "orders", "--json"))
        lake.alter(_lose_a_manifest)
        assert "orders" in drayd("query", "select count(*) from orders", code=1)
        assert "would drop" in drayd("admin", "table", "orders", "--rebuild")
        assert "orders" in drayd("query", "select count(*) from orders", code=1), "it was only shown"
        drayd("admin", "adopt-bucket", "--execute")
        assert "with 3 files" in drayd("admin", "table", "orders", "--rebuild", "--execute")
        after = json.loads(drayd("admin", "table", "orders", "--json"))
        assert (after["rows"], after["files"]) == (before["rows"], before["files"]) == (23, 3)
        assert after["uuid"] != before["uuid"]
        assert "23" in drayd("query", "select count(*) from orders")
        assert "of which topic" in drayd("admin", "table", "--rebuild", code=2)

    @pytest.mark.parametrize("way", ["--drop", "--put-back", "--rebuild"])
    @pytest.mark.parametrize("is_seen", [True, False], ids=["a strange mark", "no proof"])
    def test_a_copy_of_the_metadata_changes_no_table(
        self, lake: Lake, drayd: Run, monkeypatch: pytest.MonkeyPatch, way: str, is_seen: bool
    ) -> None:
        """As in a restore drill, which has the catalog of production."""

        async def unproven(_: TallyKeeper) -> str:
            return "whether another cluster uses this bucket is not known yet"

        fill_with_its_log(lake)
        lake.alter(lambda table: table.delete("partition = 1"))
        assert "would hold" in drayd("admin", "table", "orders", "--put-back"), "whoever looks may"
        before = json.loads(drayd("admin", "table", "orders", "--json"))
        if way == "--drop":
            monkeypatch.setenv("DRAY_ICEBERG__EXCLUDE_TOPICS", "orders")
        if is_seen:
            mark = lake.directory / "objects" / mark_path(1)
            mark.parent.mkdir()
            mark.write_bytes(encode_mark(Mark("production", 1, "another's", 1000)))
        else:
            monkeypatch.setattr(TallyKeeper, "__call__", unproven)
        said = drayd("admin", "table", "orders", way, "--execute", code=1)
        assert ("is a copy of the cluster's" if is_seen else "is not known yet") in said
        after = json.loads(drayd("admin", "table", "orders", "--json"))
        assert (after["uuid"], after["snapshot"]) == (before["uuid"], before["snapshot"])

    def test_a_table_that_lost_its_metadata_is_made_again_from_the_log(self, lake: Lake, drayd: Run) -> None:
        fill_with_its_log(lake)
        lake.alter(lambda table: Path(table.metadata_location.removeprefix("file:")).unlink())
        said = drayd("admin", "table", "orders", code=1)
        assert "cannot be read" in said
        assert "the log is as it was; if this stays so, drayd admin table orders --rebuild" in said
        [line] = json.loads(drayd("admin", "table", "--json"))
        assert "cannot be read" in line["why"]
        assert "would drop" in drayd("admin", "table", "orders", "--rebuild")
        assert "with 3 files" in drayd("admin", "table", "orders", "--rebuild", "--execute")
        assert "23" in drayd("query", "select count(*) from orders")

    def test_the_list_shows_a_table_that_takes_no_commit(self, lake: Lake, drayd: Run) -> None:
        lake.fill()
        lake.index()
        lake.alter(_lose_a_manifest)
        [line] = json.loads(drayd("admin", "table", "--json"))
        assert line["table"]
        assert "--rebuild" in line["why"]

    def test_gc_now_leaves_the_files_of_a_commit_that_is_under_way(self, lake: Lake, drayd: Run) -> None:
        """It wrote its manifest, and the table does not know it yet: nothing but its age tells it from
        garbage."""
        lake.fill()
        [metadata] = lake.files.root.glob("iceberg/*/*/metadata")
        written = metadata / "snap-1-0-0000.avro"
        written.write_bytes(b"a manifest list")
        drayd("admin", "adopt-bucket", "--execute")
        assert json.loads(drayd("admin", "gc", "--now", "--json"))["metadata_deleted"] == 0
        assert written.exists()


def _entry_of(file: WrittenFile) -> IndexEntry:
    group = RowGroup(4, file.file_size, file.record_count, file.start, 0, 0, 0, file.end - 1)
    batch = IndexEntry(file.start, file.end, file.end, 0, 0, 0, 0, 0, file.parquet_id, "a WAL object", b"")
    sizes = file.file_size, file.footer_length
    entry = IndexEntry.parquet([batch], file.parquet_id, file.path, *sizes, [group])
    return replace(entry, min_timestamp=file.min_timestamp, max_timestamp=file.max_timestamp)


def _lose_a_manifest(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifests(table.io)[0].manifest_path.removeprefix("file:")).unlink()


def test_rows_of_lost_files_come_back_from_the_table(lake: Lake, drayd: Run) -> None:
    """As after `rewrite_data_files` and `expire_snapshots` with the guard off."""
    fill_with_its_log(lake)
    lake.alter(_written_again)
    for path in (lake.directory / "objects" / "compaction").rglob("*.parquet"):
        path.unlink()
    lost = ("admin", "lost", "orders", "--json")
    assert "rows are in the table" in drayd(*lost, "--recover")
    said = json.loads(drayd(*lost, "--recover"))
    assert sorted(each["state"] for each in said) == [
        "10 of 10 rows are in the table",
        "5 of 5 rows are in the table",
        "8 of 8 rows are in the table",
    ]
    assert len(json.loads(drayd(*lost))) == 3, "a preview changes nothing"
    drayd(*lost, "--recover", "--execute")
    assert json.loads(drayd(*lost)) == []
    drayd("admin", "table", "orders", "--put-back", "--execute")
    found = json.loads(drayd("admin", "table", "orders", "--json"))
    assert (found["trouble"], found["rows"], found["files"]) == (None, 23, 3)
    assert "23" in drayd("query", "select count(*) from orders")


def _written_again(table: Table) -> None:
    rows = table.scan().to_arrow()
    table.overwrite(rows)
