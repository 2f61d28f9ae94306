"""Bytes for people: exact, bounded, and harmless."""

from __future__ import annotations

import json
from dataclasses import dataclass
from uuid import UUID

import pytest

from dray.inspection.plain import as_plain
from dray.inspection.records.matching import BadSearch, matcher
from dray.inspection.records.shown import lay_out, preview, whole
from dray.kafka.records import Record


@pytest.mark.parametrize(
    "number",
    ["9223372036854775807", "-9223372036854775808", "0.1000000000000000055511151231257827", "1e400", "-0"],
)
def test_numbers_keep_their_digits(number: str) -> None:
    assert lay_out(f'{{"n": {number}}}') == f'{{\n  "n": {number}\n}}'


def test_names_keep_their_order_even_where_one_stands_twice() -> None:
    assert lay_out('{"b":1,"a":[],"b":{}}') == '{\n  "b": 1,\n  "a": [],\n  "b": {}\n}'


@pytest.mark.parametrize("text", ["{", "NaN", "[NaN]", '{"a": 1}}', "7", "[" * 100_000])
def test_what_is_no_json_is_left_as_it_is(text: str) -> None:
    assert lay_out(text) is None
    assert whole(text.encode()).text == text


def test_a_preview_is_one_short_line() -> None:
    shown = preview("é\n\t\r".encode() + b"x" * 1_000_000, 100)
    assert shown.text == "é\\n\\t\\r" + "x" * 96
    assert (shown.cut, shown.size) == (True, 1_000_005)
    assert preview("日".encode() * 500, 100).text == "日" * 100, "no character is cut in two"
    assert whole(b"x" * 1_000_000).cut


def test_nothing_and_no_bytes_are_told_apart() -> None:
    assert [preview(each).kind for each in (None, b"", b"x", b"{}", b"\xff")] == [
        "null",
        "empty",
        "text",
        "json",
        "binary",
    ]
    assert whole(b"\xff\x00A").text.endswith("ff 00 41                                         ..A")


@pytest.mark.parametrize(
    ("where", "way", "text", "found"),
    [
        ("any", "contains", "needle", True),
        ("key", "contains", "needle", False),
        ("headers", "contains", "trace", True),
        ("value", "regex", "n.+dle", True),
        ("value", "regex", "^needle", False),
        ("value", "json", "a.big = 9007199254740993", True),
        ("value", "json", "a.big = 9007199254740992", False),
        ("value", "json", "$.list[*].x ~ eed", True),
        ("value", "json", "list[1].x = needle", False),
        ("value", "json", "a.big != 1", True),
        ("value", "json", "missing != 1", False),
    ],
)
def test_searches(where: str, way: str, text: str, found: bool) -> None:
    value = b'{"a": {"big": 9007199254740993}, "list": [{"x": "needle"}]}'
    match = matcher(where, way, text)
    assert match is not None
    assert match(Record(0, 0, b"key", value, [("trace", b"t"), ("none", None)])) is found
    assert match(Record(0, 0, None, None)) is False


def test_a_search_that_cannot_be_run_says_why() -> None:
    for where, way, text in (
        ("any", "regex", "("),
        ("any", "json", "a"),
        ("any", "python", "x"),
        ("body", "contains", "x"),
        ("any", "contains", "x" * 1001),
    ):
        with pytest.raises(BadSearch):
            matcher(where, way, text)
    assert matcher("any", "contains", "") is None


def test_an_expression_takes_time_in_proportion_to_its_text() -> None:
    match = matcher("value", "regex", "(a*)*(a*)*$")
    assert match is not None
    match(
        Record(0, 0, None, b"a" * 100_000 + b"b")
    )  # with backtracking this would take longer than the sun lasts


@dataclass(frozen=True)
class View:
    big: int
    small: int
    inner: tuple[UUID, None]


def test_numbers_that_a_browser_would_round_are_strings() -> None:
    plain = as_plain(View(2**63 - 1, 2**53 - 1, (UUID(int=1), None)))
    assert plain == {
        "big": "9223372036854775807",
        "small": 9007199254740991,
        "inner": ["00000000-0000-0000-0000-000000000001", None],
    }
    assert as_plain({"edge": -(2**53)}) == {"edge": "-9007199254740992"}
    json.dumps(plain)
    with pytest.raises(TypeError):
        as_plain(object())
