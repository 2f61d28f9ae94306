"""A topic's table and SQL over it, as pages and files."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus, urlencode
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.unit.console.console_client import ConsoleClient
from tests.unit.inspection.inspection_fakes import TOPIC_ID, FakeKafka, FakePartition

from dray.base.runtime import SystemRuntime
from dray.console.table_pages import quoted, row_query, saved_as
from dray.console.text import MOST_BARS, chart_of
from dray.inspection.sql.queries import SqlQueries
from dray.inspection.storage.tables import ClusterTables
from dray.kafka.protocol import ErrorCode
from dray.tables.contract import TableSnapshot, TablesUnavailable
from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.view import Column, TableView

BIG = 2**63 - 1
HOSTILE = "<script>alert(1)</script>"
KINDS = {"partition": "int", "offset": "long", "value": "binary", HOSTILE: "string"}


class Times:
    """A store that knows when everything was written."""

    async def time_of(self, topic: str, partition: int, offset: int) -> int:
        return 1000

    async def live_migration(self, topic: str) -> None:
        return None


class FakeTables:
    def __init__(self, directory: Path) -> None:
        self.path = directory / "a.parquet"
        columns = {
            "partition": [0, 0],
            "offset": [BIG - 1, BIG],
            "value": [HOSTILE.encode(), b"\x00\x1b[31m"],
        }
        pq.write_table(pa.table(columns), self.path)
        self.failure: Exception | None = None
        self.trouble: str | None = None
        self.topic_id = TOPIC_ID

    async def view(self, topic: str) -> TableView | None:
        if self.failure is not None:
            raise self.failure
        if topic not in ("t", "other"):
            return None
        columns = [
            Column(name, name if name in KINDS and name != HOSTILE else None, kind)
            for name, kind in KINDS.items()
        ]
        return TableView(
            f"dray.{topic}",
            topic,
            self.topic_id,
            UUID(int=8),
            HOSTILE,
            HOSTILE,
            BIG,
            5,
            2,
            1,
            BIG,
            BIG,
            [f"file://{self.path}"],
            {0: 7},
            columns,
            False,
            self.trouble,
        )

    async def rows_view(self, topic: str) -> TableView | None:
        return await self.view(topic)

    async def snapshots(self, topic: str) -> list[TableSnapshot] | None:
        many = dict.fromkeys(range(20), BIG)
        return [
            TableSnapshot(BIG, None, 5, "append", BIG, 0, 1, 0, BIG, 1, BIG, {0: 7, 1: BIG}, True),
            TableSnapshot(1, None, BIG, "delete", 0, 1, 0, 1, 0, 0, 0, None, False),
            TableSnapshot(2, None, -1, HOSTILE, 0, 1, 0, 1, 0, 0, 0, many, True),
        ]

    async def ends_of(self, topic: str, snapshot_id: int) -> Mapping[int, int] | None:
        return None


@pytest.fixture
def tables(tmp_path: Path) -> FakeTables:
    return FakeTables(tmp_path)


@pytest.fixture
def cluster() -> FakeKafka:
    first, second = FakePartition(), FakePartition()
    first.produce(10)
    return FakeKafka({"t": [first, second], "none": [FakePartition()], "other": [FakePartition()]})


@pytest.fixture
def client(tables: FakeTables, cluster: FakeKafka, tmp_path: Path) -> ConsoleClient:
    async def why_not(topic: str) -> str | None:
        return "its name matches x" if topic == "none" else None

    found = ClusterTables(tables, Locations(f"file://{tmp_path}/"), SqlQueries(SystemRuntime()), why_not)
    return ConsoleClient(cluster, Times(), tables=found)  # type: ignore[arg-type]


async def test_a_table_beside_its_log(client: ConsoleClient) -> None:
    view = (await client.get("/api/topics/t/table")).json
    assert (view["rows"], view["behind"], view["snapshot_id"]) == (str(BIG), 3, str(BIG))
    first, second = view["partitions"]
    assert (first["table_end"], first["behind"], first["behind_ms"] > 0) == (7, 3, True)
    assert (second["table_end"], second["behind"], second["behind_ms"]) == (0, 0, 0)
    assert view["columns"][3] == {"name": HOSTILE, "kind": "string", "source": None}
    assert view["snapshots"][0]["ends"] == {"0": 7, "1": str(BIG)}
    text = (await client.get("/topics/t/table")).text
    assert HOSTILE not in text
    assert "another writer" in text
    assert "and 12 more" in text


async def test_what_has_no_table_says_why(client: ConsoleClient, tables: FakeTables) -> None:
    assert "its name matches x" in (await client.get("/topics/none/table")).text
    tables.failure = TablesUnavailable("the catalog is down")
    page = await client.get("/topics/t/table")
    assert (page.status, "the catalog is down" in page.text) == (200, True)
    tables.failure, tables.trouble = None, "another writer changed its rows"
    assert "another writer changed its rows" in (await client.get("/topics/t/table")).text
    assert (await client.get("/topics/absent/table")).status == 404


def asked(statement: str) -> str:
    return f"?q={quote_plus(statement)}"


async def test_rows_are_exact_and_lead_to_their_records(client: ConsoleClient) -> None:
    statement = 'select * from t order by "offset"'
    page = await client.get(f"/topics/t/sql{asked(statement)}")
    assert f'href="/topics/t/0/{BIG}">record</a>' in page.text
    assert HOSTILE not in page.text
    assert "\x1b" not in page.text
    view = (await client.get(f"/api/topics/t/sql{asked(statement)}")).json
    assert [row[1] for row in view["rows"]] == [str(BIG - 1), str(BIG)]
    assert (view["more"], view["refused"], view["tables"]) == (False, None, ["t"])


async def test_a_row_of_two_tables_has_no_record(client: ConsoleClient) -> None:
    statement = 'select t.partition, t."offset" from t, other'
    assert ">record</a>" not in (await client.get(f"/topics/t/sql{asked(statement)}")).text


async def test_a_query_that_is_refused_says_so(client: ConsoleClient) -> None:
    page = await client.get(f"/topics/t/sql{asked('copy t to 1')}")
    assert page.status == 200
    assert 'role="alert"' in page.text
    assert (await client.get(f"/topics/t/sql/csv{asked('select * from nope')}")).status == 400
    assert (await client.get(f"/topics/t/sql/exe{asked('select 1')}")).status == 400


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_link_from_elsewhere_runs_nothing(client: ConsoleClient, site: str) -> None:
    page = await client.get(f"/topics/t/sql{asked('select 42 as answer')}", sec_fetch_site=site)
    assert "This link brought a query" in page.text
    assert "select 42 as answer" in page.text
    assert "<th scope" not in page.text
    assert (await client.get(f"/topics/t/sql/csv{asked('select 1')}", sec_fetch_site=site)).status == 400


async def test_a_topic_that_may_not_be_read_is_not_queried(client: ConsoleClient, cluster: FakeKafka) -> None:
    cluster.failures = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    view = (await client.get(f"/api/topics/none/sql{asked('select * from t')}")).json
    assert "TOPIC_AUTHORIZATION_FAILED" in view["refused"]
    assert view["rows"] == []


async def test_a_table_of_an_earlier_topic_is_neither_queried_nor_shown(
    client: ConsoleClient, tables: FakeTables
) -> None:
    """The user may read the topic that has the name now."""
    statement = asked("select * from t")
    assert (await client.get(f"/api/topics/t/sql{statement}")).json["refused"] is None
    tables.topic_id = UUID(int=6)
    view = (await client.get(f"/api/topics/t/sql{statement}")).json
    assert (view["rows"], "of an earlier topic" in view["refused"]) == ([], True)
    assert (await client.get(f"/topics/t/sql/csv{statement}")).status == 400
    view = (await client.get("/api/topics/t/table")).json
    assert (view["columns"], "of an earlier topic" in view["why_not"]) == ([], True)


async def test_a_topic_with_hidden_parts_is_not_queried(
    tables: FakeTables, cluster: FakeKafka, tmp_path: Path
) -> None:
    async def why_not(_topic: str) -> str | None:
        return None

    found = ClusterTables(tables, Locations(f"file://{tmp_path}/"), SqlQueries(SystemRuntime()), why_not)
    client = ConsoleClient(cluster, Times(), tables=found, masked={"t": "value.a"})  # type: ignore[arg-type]
    view = (await client.get(f"/api/topics/other/sql{asked('select count(*) from t')}")).json
    assert (view["rows"], "hidden here" in view["refused"]) == ([], True)
    assert (await client.get(f"/topics/other/sql/csv{asked('select * from t')}")).status == 400


async def test_results_are_saved_whole(client: ConsoleClient) -> None:
    statement = 'select "offset", value, null as n, [1] as l from t order by 1'
    saved = await client.get(f"/topics/t/sql/csv{asked(statement)}")
    assert saved.headers["content-disposition"] == 'attachment; filename="t.csv"'
    rows = list(csv.reader(io.StringIO(saved.text)))
    assert rows == [
        ["offset", "value", "n", "l"],
        [str(BIG - 1), HOSTILE, "", "[1]"],
        [str(BIG), "\x00\x1b[31m", "", "[1]"],
    ]
    saved = await client.get(f"/topics/t/sql/json{asked(statement)}")
    assert saved.headers["content-type"] == "application/json"
    assert saved.json["rows"][1] == [str(BIG), "\x00\x1b[31m", None, [1]]
    assert saved.json["more"] is False


async def test_without_tables_there_are_no_such_pages(cluster: FakeKafka) -> None:
    client = ConsoleClient(cluster)
    assert (await client.get("/topics/t/table")).status == 404
    assert (await client.get("/topics/t/sql")).status == 404
    assert "/sql" not in (await client.get("/topics/t")).text


def test_names_in_statements_and_headers() -> None:
    assert quoted('a"b') == '"a""b"'
    assert row_query("t", 1, 2) == 'select * from "t" where partition = 1 and "offset" = 2'
    assert saved_as('a/b"\n<é', "csv") == 'attachment; filename="a_b____.csv"'


def test_a_chart_for_every_shape() -> None:
    def drawn(kinds: list[str], rows: list[list[Any]]) -> Any:
        return chart_of([str(number) for number in range(len(kinds))], kinds, rows)

    assert drawn(["VARCHAR", "BIGINT"], [["a", 1]]) is None
    assert drawn(["BIGINT"], [[1], [2]]) is None
    assert drawn(["BIGINT"] * 4, [[1] * 4, [2] * 4]) is None, "records, not figures"
    assert drawn(["VARCHAR", "VARCHAR"], [["a", "b"], ["c", "d"]]) is None
    assert drawn(["VARCHAR", "BIGINT"], [["a", None], ["b", None]]) is None
    few = drawn(["VARCHAR", "HUGEINT"], [["a", -(2**127)], ["b", 2**127], ["c", None], ["d", 0]])
    assert [bar.text for bar in few.bars] == [str(-(2**127)), str(2**127), "null", "0"]
    assert all(0 <= bar.start <= 1000 and 0 <= bar.start + bar.width <= 1001 for bar in few.bars)
    many = drawn(["BIGINT", "DECIMAL(3,1)"], [[n, f"{n}.5"] for n in range(5000)])
    assert not many.bars
    assert len(many.curve.split()) <= 400
    assert (many.lowest, many.highest, many.count) == ("0.5", "4999.5", 5000)
    assert len(drawn(["BIGINT", "DOUBLE"], [[n, "nan"] for n in range(5)] + [[9, 1.0]]).bars) == 6
    assert MOST_BARS < 500


async def test_a_query_as_of_a_time_reads_the_rows_that_the_table_had_then(
    client: ConsoleClient, tables: FakeTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def snapshots(topic: str) -> list[TableSnapshot] | None:
        return [
            TableSnapshot(number, None, made_ms, "append", 1, 0, 1, 0, 1, 1, 1, ends, True)
            for number, made_ms, ends in ((3, 9000, {0: BIG}), (2, 8000, None), (1, 7000, {}))
        ]

    monkeypatch.setattr(tables, "snapshots", snapshots)

    async def rows(as_of: str) -> Any:
        query = urlencode({"q": 'select "offset" from t order by 1', "as_of": as_of})
        saved = await client.get(f"/topics/t/sql/csv?{query}")
        view = (await client.get(f"/api/topics/t/sql?{query}")).json
        if view["refused"] is None:
            assert [[cell] for cell in saved.text.split()[1:]] == view["rows"]
        return view["refused"] or view["rows"]

    assert await rows("") == [[str(BIG - 1)], [str(BIG)]]
    assert await rows("1970-01-01 00:00:09.500") == [[str(BIG - 1)]]
    assert await rows("7999") == [], "it was empty"
    for expired in ("8500", "6999"):
        assert "t has no snapshot from then" in await rows(expired)
    assert (await client.get("/topics/t/sql?q=select+1&as_of=yesterday")).status == 400
    page = (await client.get("/topics/t/sql?q=select+1&as_of=9500")).text
    assert "1970-01-01 00:00:09.500 UTC; rows that were deleted since are not there" in page
    assert "as_of=1970-01-01+00%3A00%3A09.000" in (await client.get("/topics/t/table")).text
