"""Rows of a query, printed: a table for people, CSV and JSON for programs."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from rich.cells import cell_len
from rich.console import Console

from dray.cli.output import print_table

Rows = Iterable[Sequence[Any]]

NULL: Final = "null"
_GAP: Final = 2  # between two columns of a table
# What a terminal would act upon, or what would break a row in two.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


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
    cells = [tuple(NULL if value is None else printable(_cell(value)) for value in row) for row in rows]
    lines = [tuple(columns), *cells]
    wide = sum(max(cell_len(line[place]) for line in lines) + _GAP for place in range(len(columns))) - _GAP
    console = Console(highlight=False, markup=False, soft_wrap=True)
    if not console.is_terminal or wide <= console.width or not rows:
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


def printable(value: object) -> str:
    """Records may hold any bytes: they must not move the terminal's cursor, nor break a line in two."""
    return _CONTROL.sub(_escaped, str(value))


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    code = ord(character)
    return _NAMED.get(character, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _cell(value: Any) -> Any:
    found = plain(value)
    return json_text(found) if isinstance(found, dict | list | Decimal) else found
