"""A table as a view of DuckDB: the table's columns over the Parquet files of its current snapshot.

DuckDB's own Iceberg extension is not used: it has to be downloaded, and knows fewer catalogs. The files hold
the log's columns under fixed names, so the view gives each the name that the table has for it by now, and
columns that the table's owner added are null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dray.tables.iceberg.locations import Locations
from dray.tables.iceberg.view import Column, TableView

_KINDS: Final = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "string": "VARCHAR",
    "uuid": "UUID",
    "binary": "BLOB",
}
LATEST: Final = "$latest"
"""Behind a topic's name, which cannot have a dollar sign: the last row of every key."""
_HEADERS: Final = 'STRUCT("key" VARCHAR, "value" BLOB)[]'


class QueryRefused(Exception):
    """The query cannot be answered. The message is one line."""


def tables_in(statement: str, connection: Any) -> set[str] | None:
    """The names that a query reads from; None if they are not known (the query is no `select`). Raises
    `QueryRefused` for what is no SQL."""
    # All of the result, though it is one row: a connection with rows left does nothing else.
    [(text,)] = connection.execute("select json_serialize_sql($1)", [statement]).fetchall()
    tree = json.loads(text)
    if tree.get("error"):
        if tree.get("error_type") == "parser":
            raise QueryRefused(f"not SQL: {tree['error_message']}")
        return None
    return set(_base_tables(tree)) or None


def parses(statement: str, connection: Any) -> bool:
    [(text,)] = connection.execute("select json_serialize_sql($1)", [statement]).fetchall()
    return not json.loads(text).get("error")


def view_statement(
    view: TableView,
    locations: Locations,
    source: str | None = None,
    ends: Mapping[int, int] | None = None,
    starts: Mapping[int, int] | None = None,
    tail: str | None = None,
) -> str:
    """`source` is a relation that DuckDB has already, in place of local files. `starts`, `ends`: of each
    partition only the rows from there on, and the rows below. `tail`: a relation of the rows behind the
    table, of the same columns as the files."""
    if view.has_delete_files:
        raise QueryRefused(f"table {view.name}: {view.trouble or 'another writer deleted rows in it'}")
    parts = []
    if view.files:
        kept = [] if ends is None else [_below(ends)]
        kept += [_above(starts)] if starts and any(starts.values()) else []
        within = f" where {' and '.join(kept)}" if kept else ""
        parts.append(f"{_select(view)} from {source or _parquet(_local_paths(view, locations))}{within}")
    if tail is not None:
        parts.append(f"{_select(view)} from {tail}")
    if not parts:
        parts.append(f"{_select(view, has_rows=False)} where false")
    return f"create view {quoted(view.topic)} as {' union all '.join(parts)}"


def _below(ends: Mapping[int, int]) -> str:
    cases = "".join(f" when {partition:d} then {end:d}" for partition, end in sorted(ends.items()))
    return f'"offset" < case "partition"{cases} else 0 end' if cases else "false"


def _above(starts: Mapping[int, int]) -> str:
    cases = "".join(f" when {partition:d} then {start:d}" for partition, start in sorted(starts.items()))
    return f'"offset" >= case "partition"{cases} else 0 end'


def _select(view: TableView, *, has_rows: bool = True) -> str:
    return "select " + ", ".join(_selected(column, has_rows) for column in view.columns)


def latest_statement(view: TableView) -> str:
    """The last row of every key, without keys that were deleted: the state of a topic, as far as its table
    has come. A view over the topic's own, under its name with `LATEST` behind it."""
    names = {column.source: quoted(column.name) for column in view.columns}
    try:
        partition, key, offset, value = (names[each] for each in ("partition", "key", "offset", "value"))
    except KeyError as error:
        raise QueryRefused(f"table {view.name}: it has no column {error.args[0]} any more") from error
    last = f"row_number() over (partition by {partition}, {key} order by {offset} desc) = 1"
    rows = f"select * from {quoted(view.topic)} where {key} is not null qualify {last}"
    return f"create view {quoted(view.topic + LATEST)} as select * from ({rows}) where {value} is not null"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _selected(column: Column, has_rows: bool) -> str:
    kind = _HEADERS if column.source == "headers" else _kind(column.kind)
    value = quoted(column.source) if has_rows and column.source is not None else "null"
    return f"cast({value} as {kind}) as {quoted(column.name)}"


def _kind(iceberg: str) -> str:
    if iceberg.startswith("decimal("):
        return iceberg.upper()
    return _KINDS.get(iceberg, "BLOB" if iceberg.startswith("fixed") else "VARCHAR")


def _local_paths(view: TableView, locations: Locations) -> list[str]:
    prefix = "file://"
    return [location.removeprefix(prefix) for location in view.files if locations.is_local]


def _parquet(paths: Sequence[str]) -> str:
    listed = ", ".join("'" + path.replace("'", "''") + "'" for path in paths)
    return f"read_parquet([{listed}], hive_partitioning = false)"


def _base_tables(node: Any) -> list[str]:
    if isinstance(node, dict):
        found = [name for value in node.values() for name in _base_tables(value)]
        if node.get("type") == "BASE_TABLE" and isinstance(node.get("table_name"), str):
            found.append(node["table_name"])
        return found
    if isinstance(node, list):
        return [name for value in node for name in _base_tables(value)]
    return []
