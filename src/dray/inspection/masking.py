"""Parts of records that are hidden here. A record is masked where it is read, before anything else is done
with it: pages, searches, live views, saved bytes and exports all see the mask, so none of them can be asked
what is behind it.

What cannot be taken apart is masked whole: a value that is no JSON, where a field of it is to be hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import re2

from dray.inspection.shown import Members, exact_json, written_json
from dray.records import Record

MASK: Final = b"***"
_MASKED_TEXT: Final = MASK.decode()
LONGEST_PATTERN: Final = 1000


class BadMask(ValueError):
    """A rule cannot be used; the text says why."""


@dataclass(frozen=True)
class TopicMask:
    """What is hidden in a topic's records."""

    key: bool = False
    value: bool = False
    headers: bool = False
    """Whether they are hidden whole."""
    key_fields: Sequence[Sequence[str]] = ()
    value_fields: Sequence[Sequence[str]] = ()
    """Paths into JSON."""
    header_names: frozenset[str] = frozenset()
    patterns: Sequence[Any] = ()
    """What they match is hidden, wherever it stands."""

    def applied(self, record: Record) -> Record:
        return record._replace(
            key=self._hidden(record.key, self.key, self.key_fields),
            value=self._hidden(record.value, self.value, self.value_fields),
            headers=[
                (name, self._hidden(value, self.headers or name in self.header_names, ()))
                for name, value in record.headers
            ],
        )

    def _hidden(self, data: bytes | None, is_whole: bool, fields: Sequence[Sequence[str]]) -> bytes | None:
        if not data:
            return data
        if is_whole:
            return MASK
        if fields:
            data = _without_fields(bytes(data), fields)
        return _without_matches(bytes(data), self.patterns) if self.patterns else data


class Masking:
    """The rules of all topics, by patterns of their names (`*` is any text)."""

    def __init__(self, rules: Mapping[str, str] | None = None) -> None:
        """Rules such as `value.email; value.cards.*.number; header.token; ~[0-9]{16}`. Raises `BadMask`."""
        self._rules = [(pattern, parse_mask(text)) for pattern, text in (rules or {}).items()]

    def of(self, topic: str) -> TopicMask | None:
        """Of all patterns that match, together."""
        found = [mask for pattern, mask in self._rules if fnmatchcase(topic, pattern)]
        if not found:
            return None
        return TopicMask(
            any(mask.key for mask in found),
            any(mask.value for mask in found),
            any(mask.headers for mask in found),
            [path for mask in found for path in mask.key_fields],
            [path for mask in found for path in mask.value_fields],
            frozenset(name for mask in found for name in mask.header_names),
            [pattern for mask in found for pattern in mask.patterns],
        )


def parse_mask(text: str) -> TopicMask:
    whole: set[str] = set()
    fields: dict[str, list[list[str]]] = {"key": [], "value": []}
    names: set[str] = set()
    patterns: list[Any] = []
    for rule in (each.strip() for each in text.split(";")):
        place, dot, rest = rule.partition(".")
        if rule in ("key", "value", "headers"):
            whole.add(rule)
        elif rule.startswith("~") and len(rule) > 1:
            patterns.append(_compiled(rule[1:]))
        elif dot and rest and place == "header":
            names.add(rest)
        elif dot and place in fields and all(rest.split(".")):
            fields[place].append(rest.split("."))
        elif rule:
            raise BadMask(
                f"{rule!r}: must be key, value, headers, key.FIELD, value.FIELD, header.NAME or ~EXPRESSION"
            )
    if not (whole or names or patterns or fields["key"] or fields["value"]):
        raise BadMask("nothing is named that is to be hidden")
    return TopicMask(
        "key" in whole,
        "value" in whole,
        "headers" in whole,
        fields["key"],
        fields["value"],
        frozenset(names),
        patterns,
    )


def _compiled(text: str) -> Any:
    if len(text) > LONGEST_PATTERN:
        raise BadMask(f"an expression is at most {LONGEST_PATTERN} characters long")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options=options)
    except re2.error as error:
        raise BadMask(f"{text!r} is no regular expression") from error


def _without_matches(data: bytes, patterns: Sequence[Any]) -> bytes:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return MASK
    for pattern in patterns:
        text = pattern.sub(_MASKED_TEXT, text)
    return text.encode()


def _without_fields(data: bytes, paths: Sequence[Sequence[str]]) -> bytes:
    try:
        parsed = exact_json(data.decode())
    except (UnicodeDecodeError, ValueError, RecursionError):
        return MASK
    if not isinstance(parsed, list):
        return MASK  # a bare text or number: it may be the very thing
    for path in paths:
        parsed = _masked(parsed, path)
    return written_json(parsed).encode(errors="surrogatepass")


def _masked(value: Any, path: Sequence[str]) -> Any:
    if not path:
        return _MASKED_TEXT
    step, rest = path[0], path[1:]
    if isinstance(value, Members):
        return Members((name, _masked(item, rest) if step in ("*", name) else item) for name, item in value)
    if isinstance(value, list):
        # A name goes into every item of a list; a number, or *, is also an item's own.
        own: Callable[[int], bool] = lambda number: step in ("*", str(number))  # noqa: E731
        return [
            _masked(item, rest) if own(number) else _masked(item, path) for number, item in enumerate(value)
        ]
    return value
