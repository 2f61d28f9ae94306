"""Bytes as people can read them: text, JSON, or a dump; always bounded, and always exact.

Numbers in JSON keep the digits that they were written with: nothing here goes through a float.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import re2

from dray.base.runtime.shown import printable
from dray.kafka.records import Record

PREVIEW_CHARACTERS: Final = 400
WHOLE_BYTES: Final = 256 * 1024
"""As much of a value as a page of its own shows; what is longer can be saved."""

_DUMPED_BYTES: Final = 2048


@dataclass(frozen=True)
class Shown:
    """A key, a value or a header's value."""

    kind: str
    """null, empty, text, json or binary"""
    text: str
    size: int
    """In bytes, of the whole."""
    cut: bool = False
    """Whether `text` is only the beginning of it."""


def preview(data: bytes | None, characters: int = PREVIEW_CHARACTERS) -> Shown:
    """One line, for a list."""
    if data is None:
        return Shown("null", "", 0)
    if not data:
        return Shown("empty", "", 0)
    head = data[: 4 * characters]
    text = _decoded(head, whole=len(head) == len(data))
    if text is None:
        dumped = head[: characters // 3].hex(" ")
        return Shown("binary", dumped, len(data), len(data) > characters // 3)
    kind = "json" if text.lstrip()[:1] in ("{", "[") else "text"
    cut = len(text) > characters or len(head) < len(data)
    return Shown(kind, printable(text[:characters]), len(data), cut)


def whole(data: bytes | None) -> Shown:
    """As much as a page of its own shows; JSON is laid out."""
    if data is None:
        return Shown("null", "", 0)
    if not data:
        return Shown("empty", "", 0)
    head = data[:WHOLE_BYTES]
    complete = len(head) == len(data)
    text = _decoded(head, whole=complete)
    if text is None:
        return Shown("binary", hex_dump(data[:_DUMPED_BYTES]), len(data), len(data) > _DUMPED_BYTES)
    laid_out = lay_out(text) if complete else None
    if laid_out is not None:
        return Shown("json", printable(laid_out, lines=True), len(data))
    return Shown("text", printable(text, lines=True), len(data), not complete)


def hex_dump(data: bytes) -> str:
    lines = []
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        plain = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row.hex(' '):<47}  {plain}")
    return "\n".join(lines)


def lay_out(text: str) -> str | None:
    """JSON with indentation, its numbers untouched and its names in their order; None where it is none."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return "".join(_laid_out(exact_json(text), ""))
    except (ValueError, RecursionError):
        return None


def exact_json(text: str) -> Any:
    """JSON with the digits of its numbers, and every member of its objects in its place. Raises `ValueError`
    and `RecursionError`."""
    return json.loads(
        text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse, object_pairs_hook=Members
    )


def written_json(value: Any) -> str:
    """The value that `exact_json` read, as text again."""
    if isinstance(value, Members):
        return "{" + ",".join(f"{_quoted(name)}:{written_json(item)}" for name, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(written_json, value)) + "]"
    return str(value) if isinstance(value, _Number) else json.dumps(value, ensure_ascii=False)


class _Number(str):
    """A number in JSON, with the digits that it was written with."""

    __slots__ = ()


class Members(list[tuple[str, Any]]):
    """The members of a JSON object; a name may stand twice."""


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _laid_out(value: Any, indent: str) -> Iterator[str]:
    deeper = indent + "  "
    if isinstance(value, Members):
        yield from _enclosed("{", "}", [(f"{_quoted(name)}: ", item) for name, item in value], indent, deeper)
    elif isinstance(value, list):
        yield from _enclosed("[", "]", [("", item) for item in value], indent, deeper)
    elif isinstance(value, _Number):
        yield str(value)
    else:
        yield json.dumps(value, ensure_ascii=False)


def _enclosed(
    opening: str, closing: str, items: Sequence[tuple[str, Any]], indent: str, deeper: str
) -> Iterator[str]:
    yield opening
    for position, (label, item) in enumerate(items):
        yield f"{',' if position else ''}\n{deeper}{label}"
        yield from _laid_out(item, deeper)
    yield f"\n{indent}{closing}" if items else closing


def _quoted(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _decoded(data: bytes, *, whole: bool) -> str | None:
    """None for what is no text. A character that is cut in two at the end does not make it none."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(data) - 3:
            return None
        text = data[: error.start].decode()
    strange = sum(1 for character in text[:1000] if character in _STRANGE)
    return None if strange * 10 > min(len(text), 1000) else text


_STRANGE: Final = frozenset(chr(code) for code in (*range(9), *range(14, 27), *range(28, 32)))


# --- parts of records that are hidden
# A record is masked where it is read, before anything else is done with it: pages, searches, live views,
# saved bytes and exports all see the mask, so none of them can be asked what is behind it. A part that cannot
# be taken apart is masked whole: a value that is no JSON, where a field of it is to be hidden.


MASK: Final = b"***"
_MASKED_TEXT: Final = MASK.decode()
LONGEST_PATTERN: Final = 1000


class BadMask(ValueError):
    """A rule cannot be used; the text says why."""


@dataclass(frozen=True)
class TopicMask:
    """The parts of a topic's records that are hidden."""

    key: bool = False
    value: bool = False
    headers: bool = False
    """Whether they are hidden whole."""
    key_fields: Sequence[Sequence[str]] = ()
    value_fields: Sequence[Sequence[str]] = ()
    """Paths into JSON."""
    header_names: frozenset[str] = frozenset()
    patterns: Sequence[Any] = ()
    """Text that they match is hidden, wherever it stands."""

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
