"""A search's match: text, a regular expression in linear time, or a JSON path. Nothing is run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import re2

from dray.kafka.records import Record

Match: TypeAlias = Callable[[Record], bool]

PLACES: Final = ("any", "key", "value", "headers")
WAYS: Final = ("contains", "regex", "json")
LONGEST_PATTERN: Final = 1000

_JSON_TERM: Final = re.compile(r"\$?\.?([A-Za-z0-9_.\[\]*-]+)\s*(!=|=|~)\s*(.*)", re.DOTALL)


class BadSearch(ValueError):
    """The search cannot be run as written; the text says why."""


def matcher(where: str, way: str, text: str) -> Match | None:
    """None where nothing is searched for."""
    if not text:
        return None
    if where not in PLACES:
        raise BadSearch(f"search in one of {', '.join(PLACES)}")
    if len(text) > LONGEST_PATTERN:
        raise BadSearch(f"a search is at most {LONGEST_PATTERN} characters long")
    test = _test(way, text)

    def match(record: Record) -> bool:
        return any(test(data) for data in _parts(record, where))

    return match


def _parts(record: Record, where: str) -> Iterator[bytes]:
    if where in ("any", "key") and record.key is not None:
        yield record.key
    if where in ("any", "value") and record.value is not None:
        yield record.value
    if where in ("any", "headers"):
        for name, value in record.headers:
            yield name.encode()
            if value is not None:
                yield value


def _test(way: str, text: str) -> Callable[[bytes], bool]:
    match way:
        case "contains":
            needle = text.encode()
            return lambda data: needle in data
        case "regex":
            return _regex(text)
        case "json":
            return _json(text)
    raise BadSearch(f"search by one of {', '.join(WAYS)}")


def _regex(text: str) -> Callable[[bytes], bool]:
    options = re2.Options()
    options.log_errors = False
    options.encoding = re2.Options.Encoding.UTF8
    try:
        compiled = re2.compile(text.encode(), options=options)
    except re2.error as error:
        raise BadSearch(f"{text!r} is no regular expression: {_words(error)}") from error
    return lambda data: compiled.search(data) is not None


def _words(error: Exception) -> str:
    said = error.args[0] if error.args else error
    return said.decode(errors="replace") if isinstance(said, bytes) else str(said)


def _json(text: str) -> Callable[[bytes], bool]:
    """`customer.id = 17`, `items[*].sku ~ X-1` (contains), `state != "paid"`. Numbers are compared by the
    digits that they were written with."""
    found = _JSON_TERM.fullmatch(text.strip())
    if found is None:
        raise BadSearch('a JSON search is such as customer.id = 17, state != "paid" or items[*].sku ~ X-1')
    path = re.findall(r"[^.\[\]]+", found[1])
    operator, wanted = found[2], found[3].strip().strip('"')

    def test(data: bytes) -> bool:
        if data[:1] not in (b"{", b"["):
            return False
        try:
            values = list(_at(json.loads(data, parse_int=str, parse_float=str), path))
        except (ValueError, RecursionError):
            return False
        texts = [_text(value) for value in values]
        if operator == "!=":
            return bool(texts) and wanted not in texts
        return wanted in texts if operator == "=" else any(wanted in each for each in texts)

    return test


def _at(value: Any, path: list[str]) -> Iterator[Any]:
    if not path:
        yield value
        return
    step, rest = path[0], path[1:]
    if isinstance(value, dict):
        if step == "*":
            for item in value.values():
                yield from _at(item, rest)
        elif step in value:
            yield from _at(value[step], rest)
    elif isinstance(value, list):
        if step == "*":
            for item in value:
                yield from _at(item, rest)
        elif step.isascii() and step.isdigit() and int(step) < len(value):
            yield from _at(value[int(step)], rest)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
