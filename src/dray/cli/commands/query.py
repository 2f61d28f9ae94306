"""`drayd query`: SQL over the topics' tables, with DuckDB."""

from __future__ import annotations

import asyncio
import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final
from uuid import UUID

import typer

from dray.base.runtime.logger import load_structlog
from dray.base.runtime.shown import printable
from dray.cli.options import ConfigOption, DataDirOption, load_config, parse_time
from dray.cli.output import print_table
from dray.daemons.assembly.failures import USAGE, Failure
from dray.tables.compaction.packages import needs

if TYPE_CHECKING:
    from dray.broker.topics.model import Topic
    from dray.daemons.compactor.catalogs import OpenTables
    from dray.daemons.config import Settings
    from dray.inspection.sql.tail import Tail
    from dray.tables.iceberg.view import TableView


_TRIES: Final = 3
_MISSING: Final = re.compile(r"Table with name (.+) does not exist")


def query(
    statement: Annotated[str, typer.Argument(metavar="SQL", help="One query, in DuckDB's SQL.")],
    *,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    format: Annotated[
        str, typer.Option("--format", "-f", help=f"How rows are printed: {', '.join(FORMATS)}.")
    ] = "table",
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=0, help="Print no more rows than this; 0: all of them.")
    ] = 1000,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Only what the tables have, without the newest records.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option("--as-of", metavar="TIME", help="The topics as they were then; UTC without a zone."),
    ] = None,
) -> None:
    """Ask topics with SQL: a topic's name is a table's name.

    A topic is its table and, behind that, the records that no compactor has touched yet, up to now.
    Names with dots or dashes stand in double quotes. Keys, values and header values are bytes: print them
    with decode(value), take JSON apart with decode(value)::JSON. "orders$latest" is the last row of every
    key: the state that the topic orders stands for. --as-of leaves out what came later; what was deleted
    since is not there either.

    [dim]Example:[/] drayd query 'select partition, count(*), max("offset") from orders group by all'
    """
    if format not in FORMATS:
        raise Failure(f"--format = {format!r}: must be one of {', '.join(FORMATS)}", USAGE)

    asked = _Question(statement, compacted, None if as_of is None else parse_time(as_of, "--as-of"))
    columns, rows, more = asyncio.run(_ask(load_config(config, data_dir).settings, asked, limit))
    print_rows(format, columns, rows)
    if more:
        print(f"drayd: only the first {limit} rows are shown; --limit 0 prints all", file=sys.stderr)


@dataclass(frozen=True)
class _Question:
    statement: str
    compacted: bool
    as_of_ms: int | None


async def _ask(
    settings: Settings, asked: _Question, limit: int
) -> tuple[list[str], list[tuple[Any, ...]], bool]:
    """Columns, rows, and whether there are more."""
    try:
        import duckdb
    except ImportError as error:
        raise Failure(needs("queries", error)) from error
    load_structlog()
    from dray.daemons.compactor.catalogs import open_tables
    from dray.tables.iceberg.duckdb_views import QueryRefused

    async with open_tables(settings) as opened:
        # Nothing is fetched from elsewhere: what this process needs, it has.
        offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        with duckdb.connect(config=dict(offline)) as connection:
            connection.execute("set TimeZone = 'UTC'")
            try:
                await _make_views(connection, opened, settings, asked)
                result = connection.execute(asked.statement)
                if result.description is None:
                    return [], [], False
                columns = [str(column[0]) for column in result.description]
                rows = result.fetchmany(limit + 1) if limit else result.fetchall()
            except (QueryRefused, duckdb.Error) as error:
                raise Failure(await _explained(error, opened, asked.statement, connection)) from error
    return columns, rows[:limit] if limit else rows, bool(limit) and len(rows) > limit


async def _make_views(connection: Any, opened: OpenTables, settings: Settings, asked: _Question) -> None:
    from dray.tables.iceberg.duckdb_views import LATEST, latest_statement, tables_in, view_statement

    names = tables_in(asked.statement, connection)
    is_select = names is not None
    if names is None:  # it may list them, or name some in its own way
        names = {topic.topic for topic in await opened.tables.topics()}
        names |= {name for name in await opened.topic_names() if name in asked.statement}
    latest = {name.removesuffix(LATEST) for name in names if name.endswith(LATEST)}
    for number, name in enumerate(sorted({name.removesuffix(LATEST) for name in names})):
        is_named = is_select or name in asked.statement
        found = await _relation(opened, settings, name, asked if is_named else _ONLY_LISTED)
        if found is None:
            continue  # a name that the query makes itself, or a mistake: DuckDB will tell
        view, tail = found.view, found.tail
        source = rest = None
        if not opened.locations.is_local and view.files:
            source = f"dray_files_{number}"
            connection.register(source, _dataset(view, opened))
        if tail is not None and tail.batches:
            import pyarrow

            rest = f"dray_tail_{number}"
            connection.register(rest, pyarrow.Table.from_batches(tail.batches))
        starts = None if tail is None else tail.starts
        connection.execute(view_statement(view, opened.locations, source, found.ends, starts, rest))
        if name in latest:
            connection.execute(latest_statement(view))


_ONLY_LISTED: Final = _Question("", compacted=True, as_of_ms=None)


@dataclass(frozen=True)
class _Relation:
    view: TableView
    tail: Tail | None
    ends: Mapping[int, int] | None
    """Of each partition only the rows below; None: all of them."""


async def _relation(opened: OpenTables, settings: Settings, name: str, asked: _Question) -> _Relation | None:
    """The table, and the records behind it. A table that changed meanwhile is read again: a job may have
    taken away by key what this snapshot still has."""
    from dray.inspection.sql.tail import TailRefused

    topic = await opened.topic(name)
    if topic is None:
        left = await opened.view(name)  # of a topic that was deleted
        alone = replace(asked, compacted=True)
        return None if left is None else _Relation(left, None, await _ends_then(opened, left, alone))
    for _ in range(_TRIES):
        view = await _view(opened, settings, topic, asked)
        then = await _ends_then(opened, view, asked)
        if asked.compacted:
            return _Relation(view, None, then)
        try:
            tail = await opened.tails.read(topic.name, topic.streams, view.ends, asked.as_of_ms, then)
        except TailRefused as error:
            raise Failure(str(error)) from error
        after = await opened.view(topic.name) if tail.batches else view
        if after is None or after.metadata_location == view.metadata_location:
            break
    return _Relation(view, tail, None if asked.as_of_ms is None else tail.ends)


async def _view(opened: OpenTables, settings: Settings, topic: Topic, asked: _Question) -> TableView:
    from dray.daemons.assembly.store_settings import table_names
    from dray.tables.iceberg.view import no_table_yet

    found = await opened.view(topic.name)
    if found is not None and found.topic_id == topic.topic_id:
        return found
    why_not = table_names(settings).why_not(topic, settings.topics.defaults)
    if why_not is not None:
        raise Failure(f"topic {topic.name} has no table: {why_not}")
    if asked.compacted:
        raise Failure(
            f"topic {topic.name} has no table yet: it gets one when it is first compacted "
            "(drayd compactor --once); without --compacted its records are read from the log"
        )
    return no_table_yet(topic.name, topic.topic_id)


async def _ends_then(opened: OpenTables, view: TableView, asked: _Question) -> Mapping[int, int] | None:
    """What the table is known to have held at that time. Behind it, the times of the records say it."""
    if asked.as_of_ms is None or view.snapshot_id is None:
        return None
    from dray.inspection.storage.tables import no_snapshot_then, table_as_of

    found = await table_as_of(opened.tables, view.topic, asked.as_of_ms)
    if found is None and asked.compacted:
        raise Failure(no_snapshot_then(view.topic))
    return None if found is None else found.ends


def _dataset(view: TableView, opened: OpenTables) -> Any:
    """Files in a cloud, read by Arrow with the object store's credentials; DuckDB hands its filters down."""
    from dray.tables.iceberg.cloud_files import CloudFiles

    return CloudFiles(dict(opened.locations.properties)).dataset(view.files)


async def _explained(error: Exception, opened: OpenTables, statement: str, connection: Any) -> str:
    """The query as it should be written, or the topics that there are, where that is what is wrong; else
    DuckDB's own words, without its picture of the query."""
    from dray.inspection.sql.hints import nearest, spelled
    from dray.tables.iceberg.duckdb_views import LATEST, parses

    text = " ".join(str(error).partition("\n\nLINE ")[0].split())
    missing = _MISSING.search(text)
    if missing is None and "syntax error" not in text:
        return text
    topics = await opened.topic_names()
    hint = spelled(statement, topics, lambda better: parses(better, connection))
    if hint is not None:
        return hint
    return text if missing is None else nearest(missing[1].removesuffix(LATEST), topics)


# --- rows, printed: a table for people, CSV and JSON for programs


Rows = Iterable[Sequence[Any]]

NULL: Final = "null"
_GAP: Final = 2  # between two columns of a table


def print_rows(format: str, columns: Sequence[str], rows: Rows) -> None:
    if columns:
        _PRINTERS[format](columns, rows)


def _print_table(columns: Sequence[str], rows: Rows) -> None:
    """On a terminal that is too narrow for the rows, one value per line, record by record: a column of two
    letters is of no use."""
    rows = list(rows)
    numbers = [
        column
        for place, column in enumerate(columns)
        if all(row[place] is None or _is_number(row[place]) for row in rows)
    ]
    cells = [tuple(NULL if value is None else printable(str(_cell(value))) for value in row) for row in rows]
    lines = [tuple(columns), *cells]
    if not sys.stdout.isatty():
        print_table(columns, cells, right=numbers if rows else ())
        return
    from rich.cells import cell_len
    from rich.console import Console

    wide = sum(max(cell_len(line[place]) for line in lines) + _GAP for place in range(len(columns))) - _GAP
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if wide <= console.width or not rows:
        print_table(columns, cells, right=numbers if rows else ())
        return
    name_width = max(map(cell_len, columns))
    for number, row in enumerate(cells, 1):
        title = f"row {number} "
        console.print(title + "─" * max(0, min(console.width, 60) - len(title)), style="dim")
        for column, cell in zip(columns, row, strict=True):
            console.print(f"{column}{' ' * (name_width - cell_len(column) + _GAP)}{cell}")


def _print_csv(columns: Sequence[str], rows: Rows) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if value is None else _cell(value) for value in row])


def _print_json(columns: Sequence[str], rows: Rows) -> None:
    print(json_text([dict(zip(columns, map(plain, row), strict=True)) for row in rows], "\n"))


_PRINTERS: Final[dict[str, Callable[[Sequence[str], Rows], None]]] = {
    "table": _print_table,
    "csv": _print_csv,
    "json": _print_json,
}
FORMATS: Final = tuple(_PRINTERS)


def plain(value: Any) -> Any:
    """A value as JSON has it; a decimal stays one. Bytes that are text are shown as such, others in
    hexadecimal."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "\\x" + data.hex()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time | UUID):
        return str(value)
    if isinstance(value, dict):
        return {str(plain(name)): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, int | float | str | Decimal | None) else str(value)


def json_text(value: Any, margin: str | None = None) -> str:
    """JSON, with every digit of a decimal: the library would round it to a float. `margin`: the line break
    and the indentation of this place; None: all in one line."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value, ensure_ascii=False)
    inner = None if margin is None else margin + "  "
    if isinstance(value, dict):
        first, last = "{}"
        items = [
            f"{json.dumps(name, ensure_ascii=False)}: {json_text(item, inner)}"
            for name, item in value.items()
        ]
    else:
        first, last = "[]"
        items = [json_text(item, inner) for item in value]
    return first + (inner or "") + ("," + (inner or " ")).join(items) + (margin or "") + last


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _cell(value: Any) -> Any:
    found = plain(value)
    return json_text(found) if isinstance(found, dict | list | Decimal) else found
