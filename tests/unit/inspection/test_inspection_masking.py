"""What is hidden of records, and that nothing goes around it."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from dray.inspection.records.shown import MASK, BadMask, Masking, parse_mask
from dray.kafka.records import Record

BIG = b"9223372036854775807"
ORDER = b'{"id":%s,"card":{"number":"4111","name":"A"},"mail":"a@b","mail":"c@d","x":0.10}' % BIG


def masked(rules: str, record: Record) -> Record:
    return parse_mask(rules).applied(record)


def test_fields_are_hidden_and_all_else_stays_as_it_was_written() -> None:
    found = masked("value.card.number; value.mail", Record(0, 0, b"k", ORDER))
    assert found.value == (
        b'{"id":%s,"card":{"number":"***","name":"A"},"mail":"***","mail":"***","x":0.10}' % BIG
    )
    assert found.key == b"k"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("value.a.*", b'{"a":{"b":1,"c":[2]}}', b'{"a":{"b":"***","c":"***"}}'),
        ("value.a.b", b'{"a":[{"b":1},{"b":2}]}', b'{"a":[{"b":"***"},{"b":"***"}]}'),
        ("value.a.1", b'{"a":[1,2]}', b'{"a":[1,"***"]}'),
        ("value.b", b'[{"b":{"deep":1}},[{"b":2}]]', b'[{"b":"***"},[{"b":"***"}]]'),
        ("value.b", b'{"a":1}', b'{"a":1}'),
    ],
)
def test_paths(path: str, value: bytes, expected: bytes) -> None:
    assert masked(path, Record(0, 0, None, value)).value == expected


@pytest.mark.parametrize(
    "value", [b"no json", b"\xff\x00", b'"4111"', b"4111", b'{"a":', b"[" * 5000, b'{"a": NaN}']
)
def test_what_cannot_be_taken_apart_is_hidden_whole(value: bytes) -> None:
    assert masked("value.a", Record(0, 0, b"key", value)).value == MASK


def test_keys_headers_and_patterns() -> None:
    record = Record(
        0, 0, b"card 4111222233334444!", b"\xff4111222233334444", [("t", b"s"), ("u", None), ("v", b"x")]
    )
    found = masked("header.t; ~[0-9]{16}", record)
    assert found.key == b"card ***!"
    assert found.value == MASK, "what is no text may hide it in any way"
    assert list(found.headers) == [("t", MASK), ("u", None), ("v", b"x")]
    found = masked("key; value; headers", Record(0, 0, None, b"", [("t", b"s")]))
    assert (found.key, found.value, list(found.headers)) == (None, b"", [("t", MASK)])


def test_every_pattern_that_fits_a_topic_counts() -> None:
    masking = Masking({"pay*": "key", "*ments": "value.a", "other": "headers"})
    mask = masking.of("payments")
    assert mask is not None
    assert (mask.key, list(mask.value_fields), mask.headers) == (True, [["a"]], False)
    assert masking.of("orders") is None


@pytest.mark.parametrize(
    "rules", ["", ";", "values", "value.", "value..a", "header.", "~", "~(", "~" + "x" * 2000]
)
def test_rules_that_mean_nothing_are_refused(rules: str) -> None:
    with pytest.raises(BadMask):
        parse_mask(rules)


def test_the_console_has_one_way_to_records() -> None:
    """Each reader of a topic is made where the masks are."""
    found = [
        path.name
        for path in Path(str(files("dray.console"))).glob("*.py")
        if re.search(r"\bTopicReader\(", path.read_text())
    ]
    assert found == ["app.py"]
