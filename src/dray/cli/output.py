"""Tables for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Numbers, and the columns named in `right`, stand right. Nothing is cut off: a pipe or a narrow
    terminal gets the whole text."""
    rows = list(rows)
    numeric = [
        column in right or (bool(rows) and all(isinstance(row[index], int) for row in rows))
        for index, column in enumerate(columns)
    ]
    lines = [tuple(columns), *[tuple(map(str, row)) for row in rows]]
    if sys.stdout.isatty() or not all(
        cell.isascii() and cell.isprintable() for line in lines for cell in line
    ):
        _draw_table(lines, numeric)
        return
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(line, widths, numeric, strict=True)
        ]
        print("  ".join(cells))


def _draw_table(lines: Sequence[Sequence[str]], numeric: Sequence[bool]) -> None:
    """For who reads it, and for letters of all widths."""
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, is_number in zip(lines[0], numeric, strict=True):
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in lines[1:]:
        table.add_row(*row)
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=100_000, no_color=True)
    console.print(table, highlight=False, markup=False)


def say(line: str) -> None:
    """Progress, on standard error: it is seen while it happens, and is no part of what a program reads."""
    print(line, file=sys.stderr, flush=True)
