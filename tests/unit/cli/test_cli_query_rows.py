"""Rows of a query on a terminal and in a pipe: wide ones, null, bytes, and what a terminal would act upon."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from dray.cli.commands.query import print_rows

WIDE = ("offset", "value")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch, width: int, columns: tuple[str, ...], *rows: object) -> str:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    print_rows("table", columns, rows)  # type: ignore[arg-type]
    lines = terminal.getvalue().replace("\x1b[1m", "").replace("\x1b[2m", "").replace("\x1b[0m", "")
    return "\n".join(line.rstrip() for line in lines.splitlines())


def test_rows_that_fit_are_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    told = on_terminal(monkeypatch, 60, WIDE, (7, b"seven"), (None, None), (1000, b"\xff\x00"))
    assert told == "offset  value\n     7  seven\n  null  null\n  1000  \\xff00"


def test_rows_that_do_not_fit_are_told_value_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    told = on_terminal(monkeypatch, 40, WIDE, (7, b"x" * 50), (8, None))
    first, second, third, fourth, *rest = told.splitlines()
    assert first.startswith("row 1 ──")
    assert (second, third) == ("offset  7", "value   " + "x" * 50)
    assert fourth.startswith("row 2 ──")
    assert rest == ["offset  8", "value   null"]


def test_a_pipe_gets_one_line_per_row_however_wide(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("table", WIDE, [(7, b"x" * 500)])
    assert capsys.readouterr().out.splitlines()[1].split() == ["7", "x" * 500]


def test_a_table_escapes_and_the_formats_for_programs_do_not(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(1, b"a\nb")]
    print_rows("table", WIDE, rows)
    assert capsys.readouterr().out.splitlines()[1].split() == ["1", "a\\nb"]
    print_rows("csv", WIDE, rows)
    assert capsys.readouterr().out == 'offset,value\n1,"a\nb"\n'
    print_rows("json", WIDE, rows)
    assert json.loads(capsys.readouterr().out) == [{"offset": 1, "value": "a\nb"}]


def test_numbers_stand_right_though_some_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ("average", "flag")
    told = on_terminal(monkeypatch, 60, columns, (Decimal("1.5"), True), (None, None), (22.25, False))
    assert told == "average  flag\n    1.5  True\n   null  null\n  22.25  False"


def test_no_rows_and_no_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows("table", WIDE, [])
    assert capsys.readouterr().out.split() == ["offset", "value"]
    print_rows("csv", [], [])
    assert capsys.readouterr().out == ""


def test_times_and_nested_values(capsys: pytest.CaptureFixture[str]) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC)
    print_rows("csv", ("at", "headers"), [(at, [{"key": "k", "value": b"\xff"}])])
    told = capsys.readouterr().out.splitlines()[1]
    assert told == '2026-01-02T03:04:05.006000Z,"[{""key"": ""k"", ""value"": ""\\\\xff""}]"'


DIGITS = "12345678901234567890.123456789012345678"


def test_a_decimal_keeps_every_digit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = ("price", "parts")
    row = (Decimal(DIGITS), {"a": [Decimal(DIGITS), Decimal("1E-10")]})
    print_rows("csv", columns, [row])
    parts = f'{{"a": [{DIGITS}, 0.0000000001]}}'
    assert capsys.readouterr().out.splitlines()[1] == DIGITS + ',"' + parts.replace('"', '""') + '"'
    print_rows("json", columns, [row])
    printed = capsys.readouterr().out
    assert json.loads(printed, parse_float=Decimal) == [dict(zip(columns, row, strict=True))]
    assert DIGITS in on_terminal(monkeypatch, 200, columns, row)


def test_json_is_laid_out_as_the_library_does(capsys: pytest.CaptureFixture[str]) -> None:
    value: dict[str, object] = {
        "none": None,
        "empty": [{}, []],
        "text": 'é"\n',
        "deep": [{"a": [1, True, 2.5]}],
    }
    print_rows("json", tuple(value), [tuple(value.values()), tuple(value.values())])
    assert capsys.readouterr().out == json.dumps([value, value], indent=2, ensure_ascii=False) + "\n"
    print_rows("json", ("none",), [])
    assert capsys.readouterr().out == "[]\n"
