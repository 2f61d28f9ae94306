"""The process that runs one query, and ends: `python -m dray.inspection.sql.child`.

It reads two lines of JSON and writes many. First what is to be run; it answers with the names of the tables
that the query reads from. Then where those lie; it answers with the columns, the rows, and the end. A refusal
is one line, `{"refused": ...}`.

Before anything is read it gives up writing, the network and other programs (`sql_lock`). Before the query
runs, DuckDB gives up every file but those of the tables, and the right to change its settings.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
from base64 import b64decode
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from dray.inspection.sql.lock import limit_process, refuse_calls

ROWS_AT_ONCE: Final = 256
OVERHEAD: Final = 1536 * 1024 * 1024
"""Address space of Python, DuckDB's code and its threads, beyond the memory of a query."""

Cell = Any
"""None, a number or text; `["json", value]` for what has parts; `["cut", text, size]` for the beginning."""


class Refused(Exception):
    """The query is not run, or not to its end. The message is one line."""


def main() -> None:
    network = "--network" in sys.argv[1:]
    refuse_calls(network=network)
    try:
        asked = _heard()
        # The address space is not only memory: what threads reserve and never touch counts as well.
        limit_process(asked["memory"] + OVERHEAD, asked["seconds"])
        _answer(asked)
    except Refused as error:
        _say({"refused": str(error)})
    except (MemoryError, RecursionError):
        _say({"refused": "the query needs more memory than it may have"})


def _answer(asked: Mapping[str, Any]) -> None:
    try:
        duckdb = importlib.import_module("duckdb")
    except ImportError as error:
        raise Refused(
            "duckdb not installed: run `make setup-pipeline`, or pip install 'dray[pipeline]'"
        ) from error
    offline = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    connection = duckdb.connect(config={**offline, "python_enable_replacements": False})
    try:
        connection.execute("set TimeZone = 'UTC'")
        connection.execute(f"set memory_limit = '{asked['memory'] // 1_000_000}MB'")
        connection.execute("set threads = 2")
        connection.execute("set temp_directory = ''")
        statement = _only_select(duckdb, asked["statement"])
        _say({"tables": sorted(tables_in(statement, connection))})
        given = _heard()
        for source in given["sources"]:
            if source["locations"]:
                connection.register(source["name"], _dataset(source))
            if source["tail"]:
                connection.register(source["tail_name"], _tail(source["tail"]))
            connection.execute(source["view"])
        paths = ", ".join("'" + path.replace("'", "''") + "'" for path in given["paths"])
        connection.execute(f"set allowed_paths = [{paths}]")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
        _run(connection.execute(statement), asked)
    except duckdb.Error as error:
        raise Refused(_words(error)) from error


def _only_select(duckdb: Any, statement: str) -> str:
    found = duckdb.extract_statements(statement)
    if len(found) != 1:
        raise Refused(f"one query at a time, not {len(found)}")
    if found[0].type != duckdb.StatementType.SELECT:
        kind = str(found[0].type).rpartition(".")[2].replace("_", " ")
        raise Refused(f"only queries (select) are run here, not {kind}")
    return str(found[0].query)


def tables_in(statement: str, connection: Any) -> set[str]:
    """The names that a query reads from. Raises `Refused` where they cannot be known: what is not known
    cannot be permitted."""
    [(text,)] = connection.execute("select json_serialize_sql($1)", [statement]).fetchall()
    tree = json.loads(text)
    if tree.get("error"):
        raise Refused(f"the query cannot be taken apart: {' '.join(str(tree.get('error_message')).split())}")
    found: set[str] = set()
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE" and isinstance(node.get("table_name"), str):
                found.add(node["table_name"])
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return found


def _dataset(source: Mapping[str, Any]) -> Any:
    """Files in a cloud, read by Arrow with the object store's credentials."""
    access = importlib.import_module("dray.tables.iceberg.cloud_files").CloudFiles(dict(source["properties"]))
    return access.dataset(source["locations"])


def _tail(text: str) -> Any:
    return importlib.import_module("pyarrow").ipc.open_stream(b64decode(text)).read_all()


def _run(result: Any, asked: Mapping[str, Any]) -> None:
    described = result.description or []
    _say({"columns": [{"name": str(column[0]), "kind": str(column[1])} for column in described]})
    left, room = asked["rows"], asked["bytes"]
    while True:
        rows = result.fetchmany(min(ROWS_AT_ONCE, left + 1))
        if not rows:
            _say({"end": True, "more": False})
            return
        for row in rows:
            line = json.dumps([cell(value, asked["cell"]) for value in row], separators=(",", ":"))
            if not left or len(line) > room:
                _say({"end": True, "more": True})
                return
            sys.stdout.write(line + "\n")
            left, room = left - 1, room - len(line)


def cell(value: Any, most: int) -> Cell:
    """Whole numbers and decimals keep every digit. `most`: characters of a text."""
    found = plain(value)
    if isinstance(found, list | dict):
        text = json.dumps(found, ensure_ascii=False)
        return ["cut", text[:most], len(text)] if len(text) > most else ["json", found]
    if isinstance(found, str) and len(found) > most:
        return ["cut", found[:most], len(found)]
    return found


def plain(value: Any) -> Any:
    """As JSON has it. Bytes that are text are shown as such, others in hexadecimal."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        try:
            return data.decode()
        except UnicodeDecodeError:
            return "\\x" + data.hex()
    if isinstance(value, datetime):
        return value.isoformat(sep=" ").replace("+00:00", "Z")
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(plain(name)): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, date | time | timedelta | UUID | Decimal):
        return str(value)
    return value if isinstance(value, int | str | None) else str(value)


def _words(error: Exception) -> str:
    """DuckDB's own words in one line, without its picture of the query, and without its advice on settings,
    which are locked here."""
    return " ".join(str(error).partition("\n\nLINE ")[0].split()).partition(" Database is launched")[0]


def _heard() -> Any:
    line = sys.stdin.readline()
    if not line:
        raise SystemExit(0)  # the console is gone
    return json.loads(line)


def _say(message: Mapping[str, Any] | Sequence[Any]) -> None:
    sys.stdout.write(json.dumps(message, separators=(",", ":")) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
