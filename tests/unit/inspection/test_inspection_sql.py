"""SQL in its locked process: what it answers, and everything that it refuses in one line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dray.base.runtime import SystemRuntime
from dray.inspection.sql.child import cell
from dray.inspection.sql.queries import (
    LONGEST_STATEMENT,
    WAITING,
    QueriesBusy,
    QueryLimits,
    QuerySource,
    SqlQueries,
    SqlRefused,
)

SMALL = QueryLimits(rows=5, bytes=100_000, cell=100, seconds=20.0)
PROBE = """
import os, socket, sys
from dray.inspection.sql.lock import limit_process, refuse_calls
locked = refuse_calls(network=False)
limit_process(1 << 32, 60)
def tried(act):
    try:
        act()
    except OSError as error:
        return error.errno
    return 0
here = sys.argv[1]
print(int(locked), tried(lambda: open(here + "/written", "w")), tried(lambda: open(here + "/there").close()),
      tried(lambda: socket.socket()), tried(lambda: os.unlink(here + "/there")),
      tried(lambda: os.execv("/bin/true", ["true"])), tried(lambda: os.rename(here + "/there", here + "/x")),
      tried(lambda: os.write(int(sys.argv[2]), b"x")))
"""


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


class OneTable:
    """A table `t` of two rows, and a table that may not be read."""

    needs_network = False

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "a.parquet")
        columns = {"partition": [0, 1], "offset": [2**62, 2**63 - 1], "value": [b"<b>", b"\xff\x00"]}
        pq.write_table(pa.table(columns), self.path)

    async def sources(self, names: Sequence[str]) -> list[QuerySource]:
        if "secret" in names:
            raise SqlRefused("topic secret may not be read")
        view = f"create view t as select * from read_parquet(['{self.path}'])"
        return [QuerySource(view, [self.path])] if "t" in names else []


@pytest.fixture
def table(tmp_path: Path) -> OneTable:
    return OneTable(tmp_path)


@pytest.fixture
async def queries() -> AsyncIterator[SqlQueries]:
    runtime = SystemRuntime()
    yield SqlQueries(runtime)
    runtime.close()


async def answered(
    queries: SqlQueries, table: OneTable, statement: str, limits: QueryLimits = SMALL
) -> tuple[list[list[Any]], bool]:
    async with queries.run(statement, limits, table) as running:
        rows = [row async for row in running.rows]
    return rows, running.more


async def test_rows_have_every_digit(queries: SqlQueries, table: OneTable) -> None:
    async with queries.run("select * from t order by partition;", SMALL, table) as running:
        assert running.tables == ["t"]
        assert [(column.name, column.kind) for column in running.columns] == [
            ("partition", "BIGINT"),
            ("offset", "BIGINT"),
            ("value", "BLOB"),
        ]
        assert [row async for row in running.rows] == [[0, 2**62, "<b>"], [1, 2**63 - 1, "\\xff00"]]
    exact = "select 170141183460469231731687303715884105727, 0.1::decimal(38, 20), 'nan'::double, {'a': [1]}"
    [[huge, decimal, nan, nested]], _ = await answered(queries, table, exact)
    assert (huge, decimal, nan) == (2**127 - 1, "0.10000000000000000000", "nan")
    assert nested == ["json", {"a": [1]}]


HOSTILE = {
    "copy (select 1) to '{directory}/out.csv'": "only queries",
    "export database '{directory}'": "only queries",
    "attach '{directory}/a.db' as a": "only queries",
    "install httpfs": "only queries",
    "load httpfs": "only queries",
    "pragma database_list": "only queries",
    "set memory_limit = '10GB'": "only queries",
    "reset lock_configuration": "only queries",
    "create table x (a int)": "only queries",
    "insert into t values (1)": "only queries",
    "call pragma_version()": "only queries",
    "explain select 1": "only queries",
    "select 1; select 2": "one query at a time",
    "": "there is no query",
    "   ": "there is no query",
    "nonsense": "syntax error",
    "select * from read_text('/etc/passwd')": "file system operations are disabled",
    "select * from read_blob('/proc/self/environ')": "file system operations are disabled",
    "select * from read_csv('/etc/passwd')": "file system operations are disabled",
    "select * from '/etc/passwd'": "does not exist",
    "select * from glob('/etc/*')": "file system operations are disabled",
    "select * from sniff_csv('/etc/passwd')": "file system operations are disabled",
    "select * from read_parquet('{directory}/other.parquet')": "file system operations are disabled",
    "select * from read_parquet('s3://bucket/key')": "file system operations are disabled",
    "select * from query('copy (select 1) to ''{directory}/out.csv''')": "",
    "select * from t, secret": "may not be read",
    "with a as (select * from secret) select * from a": "may not be read",
    "select (select max(value) from secret)": "may not be read",
    "select * from names_in_python": "does not exist",
    "select list(range) from range(1000000000)": "",
}


@pytest.mark.parametrize("statement", HOSTILE)
async def test_hostile_sql_is_refused_in_one_line(
    queries: SqlQueries, table: OneTable, tmp_path: Path, statement: str
) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    before = names_in(tmp_path)
    with pytest.raises(SqlRefused) as refused:
        await answered(queries, table, statement.replace("{directory}", str(tmp_path)))
    assert HOSTILE[statement] in str(refused.value)
    assert "\n" not in str(refused.value)
    assert names_in(tmp_path) == before


async def test_a_query_that_does_not_end_is_killed(queries: SqlQueries, table: OneTable) -> None:
    endless = "with recursive n(i) as (select 1 union all select i + 1 from n) select count(*) from n"
    brief = QueryLimits(rows=5, bytes=1000, cell=10, seconds=1.0)
    with pytest.raises(SqlRefused, match="took longer than 1 s"):
        await answered(queries, table, endless, brief)
    assert (await answered(queries, table, "select 1"))[0] == [[1]], "and the next one has its turn"


async def test_a_reader_that_stops_reading_has_no_more_time_than_the_query(
    queries: SqlQueries, table: OneTable
) -> None:
    """An export that nobody read held the one place for queries as long as its reader liked."""
    brief = QueryLimits(rows=5, bytes=1000, cell=10, seconds=1.0)
    never = asyncio.Event()
    with pytest.raises(SqlRefused, match="took longer than 1 s"):
        async with asyncio.timeout(60), queries.run("select 1", brief, table):
            await never.wait()
    assert (await answered(queries, table, "select 1"))[0] == [[1]], "and the next one has its turn"


async def test_users_take_turns(queries: SqlQueries, table: OneTable) -> None:
    """Whatever one asks, another's query is the next but one, and is not refused."""
    done: list[str] = []

    async def ask(user: str) -> None:
        async with queries.run("select 1", SMALL, table, user) as running:
            done.append(user)
            assert [row async for row in running.rows] == [[1]]

    many = [asyncio.create_task(ask("many")) for _ in range(4)]
    await asyncio.sleep(0)
    await asyncio.wait_for(asyncio.gather(*many, ask("few")), 60)
    assert done.index("few") <= 2
    assert len(done) == 5


async def test_a_large_result_is_cut(queries: SqlQueries, table: OneTable) -> None:
    rows, more = await answered(queries, table, "select * from range(1000000000000)")
    assert ([row[0] for row in rows], more) == ([0, 1, 2, 3, 4], True)
    assert (await answered(queries, table, "select * from range(5)"))[1] is False
    rows, more = await answered(queries, table, "select repeat('x', 60000) from range(4)")
    assert rows[0] == [["cut", "x" * 100, 60000]]
    wide = QueryLimits(rows=5, bytes=100_000, cell=10**6)
    rows, more = await answered(queries, table, "select repeat('x', 60000) from range(4)", wide)
    assert (len(rows), more) == (1, True), "all rows together have a size"


async def test_memory_beyond_duckdbs_own_count_is_bounded(queries: SqlQueries, table: OneTable) -> None:
    """One text of a gigabyte: DuckDB's limit does not see it, the process's does."""
    with pytest.raises(SqlRefused, match="Out of Memory"):
        await answered(
            queries, table, "select length(x), x from (select repeat('x', 2000000000) as x)", SMALL
        )


async def test_one_at_a_time_and_a_short_queue(queries: SqlQueries, table: OneTable) -> None:
    async with queries.run("select 1", SMALL, table):
        waiting = [asyncio.create_task(answered(queries, table, "select 2")) for _ in range(WAITING)]
        await asyncio.sleep(0)  # each comes as far as the queue
        assert not any(task.done() for task in waiting)
        one_more = asyncio.create_task(answered(queries, table, "select 3"))
        done, _ = await asyncio.wait({one_more}, timeout=10)
    assert [(await task)[0] for task in waiting] == [[[2]]] * WAITING
    assert done
    assert isinstance(one_more.exception(), QueriesBusy)


async def test_a_long_statement_is_refused_unread(queries: SqlQueries, table: OneTable) -> None:
    with pytest.raises(SqlRefused, match="characters long"):
        await answered(queries, table, "select " + "1" * LONGEST_STATEMENT)


def test_the_operating_system_holds_the_second_lock(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("kept")
    with (tmp_path / "open").open("w") as opened:
        ran = subprocess.run(
            [sys.executable, "-c", PROBE, str(tmp_path), str(opened.fileno())],
            check=True,
            capture_output=True,
            text=True,
            pass_fds=[opened.fileno()],
            timeout=240,
        )
    if ran.stdout.startswith("0"):
        pytest.skip("this system has no filter of calls")
    # write, read, socket, unlink, exec, rename: EPERM but for the read; a file opened before: EFBIG.
    assert ran.stdout.split() == ["1", "1", "0", "1", "1", "1", "1", "27"]
    assert names_in(tmp_path) == ["open", "there"]


def test_cells_are_bounded() -> None:
    assert cell("x" * 11, 10) == ["cut", "x" * 10, 11]
    assert cell([1, 2], 10) == ["json", [1, 2]]
    assert cell({"a": "x" * 20}, 10)[0] == "cut"
    assert cell(2**200, 10) == 2**200
    assert json.dumps(cell({b"\xff": float("inf")}, 99)) == '["json", {"\\\\xff": "inf"}]'
