"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Numbers, and the columns named in `right`, stand right. Nothing is cut off: a pipe or a narrow
    terminal gets the whole text."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = list(rows)
    for index, column in enumerate(columns):
        numeric = column in right or (bool(rows) and all(isinstance(row[index], int) for row in rows))
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=100_000, no_color=True)
    console.print(table, highlight=False, markup=False)


def say(line: str) -> None:
    """Progress, on standard error: it is seen while it happens, and is no part of what a program reads."""
    print(line, file=sys.stderr, flush=True)
