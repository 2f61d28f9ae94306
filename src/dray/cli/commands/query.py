"""`drayd query`: SQL over the topics' tables, with DuckDB."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import pyarrow.dataset as ds
import typer

from dray.cli.options import ConfigOption, DataDirOption, load_config
from dray.cli.query_rows import FORMATS, print_rows
from dray.compaction.packages import needs
from dray.config import Settings
from dray.daemon.catalogs import OpenTables, open_tables
from dray.daemon.failures import USAGE, Failure

if TYPE_CHECKING:
    from dray.tables.iceberg.reading import TableView


_LISTED_TOPICS: Final = 20


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
) -> None:
    """Ask the topics' tables with SQL: a topic's name is a table's name.

    What is in the tables is what has been compacted; `drayd admin table` says how far they are behind.
    Names with dots or dashes stand in double quotes. Keys, values and header values are bytes: print them
    with decode(value), take JSON apart with decode(value)::JSON. "orders$latest" is the last row of every
    key: the state that the topic orders stands for.

    [dim]Example:[/] drayd query 'select partition, count(*), max("offset") from orders group by all'
    """
    if format not in FORMATS:
        raise Failure(f"--format = {format!r}: must be one of {', '.join(FORMATS)}", USAGE)

    columns, rows, more = asyncio.run(_ask(load_config(config, data_dir).settings, statement, limit))
    print_rows(format, columns, rows)
    if more:
        print(f"drayd: only the first {limit} rows are shown; --limit 0 prints all", file=sys.stderr)


async def _ask(
    settings: Settings, statement: str, limit: int
) -> tuple[list[str], list[tuple[Any, ...]], bool]:
    """Columns, rows, and whether there are more."""
    try:
        import duckdb
    except ImportError as error:
        raise Failure(needs("queries", error)) from error
    from dray.tables.iceberg.duckdb_views import QueryRefused

    async with open_tables(settings) as opened:
        # Nothing is fetched from elsewhere: what this process needs, it has.
        offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
        with duckdb.connect(config=dict(offline)) as connection:
            connection.execute("set TimeZone = 'UTC'")
            try:
                await _make_views(connection, opened, statement)
                result = connection.execute(statement)
                if result.description is None:
                    return [], [], False
                columns = [str(column[0]) for column in result.description]
                rows = result.fetchmany(limit + 1) if limit else result.fetchall()
            except QueryRefused as error:
                raise Failure(str(error)) from error
            except duckdb.Error as error:
                raise Failure(await _explained(error, opened)) from error
    return columns, rows[:limit] if limit else rows, bool(limit) and len(rows) > limit


async def _make_views(connection: Any, opened: OpenTables, statement: str) -> None:
    from dray.tables.iceberg.duckdb_views import LATEST, latest_statement, tables_in, view_statement

    names = tables_in(statement, connection)
    if names is None:
        names = {topic.topic for topic in await opened.tables.topics()}
    latest = {name.removesuffix(LATEST) for name in names if name.endswith(LATEST)}
    for number, name in enumerate(sorted({name.removesuffix(LATEST) for name in names})):
        view = await opened.tables.view(name)
        if view is None:
            continue  # a name that the query makes itself, or a mistake: DuckDB will tell
        source = None
        if not opened.locations.is_local and view.files:
            source = f"dray_files_{number}"
            connection.register(source, _dataset(view, opened))
        connection.execute(view_statement(view, opened.locations, source))
        if name in latest:
            connection.execute(latest_statement(view))


def _dataset(view: TableView, opened: OpenTables) -> Any:
    """Files in a cloud, read by Arrow with the object store's credentials; DuckDB hands its filters down."""
    from dray.tables.iceberg.cloud_files import CloudFiles

    access = CloudFiles(dict(opened.locations.properties))
    scheme, host, _ = access.parse_location(view.files[0], access.properties)
    paths = [access.parse_location(location, access.properties)[2] for location in view.files]
    return ds.dataset(paths, filesystem=access.fs_by_scheme(scheme, host), format="parquet")


async def _explained(error: Exception, opened: OpenTables) -> str:
    """DuckDB's own words, without its picture of the query; and which tables there are, where one is
    missing."""
    text = " ".join(str(error).partition("\n\nLINE ")[0].split())
    if "does not exist" in text and "Table with name" in text:
        known = sorted(topic.topic for topic in await opened.tables.topics())
        listed = ", ".join(known[:_LISTED_TOPICS]) + (", ..." if len(known) > _LISTED_TOPICS else "")
        return (
            f"{text.partition('!')[0]}; tables: {listed or 'none yet, a topic gets one when it is compacted'}"
        )
    return text
