"""Bytes as people can read them: text, JSON, or a dump; always bounded, and always exact.

Numbers in JSON keep the digits that they were written with: nothing here goes through a float.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

PREVIEW_CHARACTERS: Final = 400
WHOLE_BYTES: Final = 256 * 1024
"""As much of a value as a page of its own shows; what is longer can be saved."""

_DUMPED_BYTES: Final = 2048
_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0))} | {
    9: "\\t",
    10: "\\n",
    13: "\\r",
}
_LINES: Final = {code: escape for code, escape in _CONTROLS.items() if code not in (9, 10)}
# Characters that turn around or hide what stands beside them.
_HIDDEN: Final = {
    code: f"\\u{code:04x}"
    for code in (0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
}


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
    return Shown(kind, printable(text[:characters], lines=False), len(data), cut)


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
        return Shown("json", printable(laid_out), len(data))
    return Shown("text", printable(text), len(data), not complete)


def printable(text: str, *, lines: bool = True) -> str:
    """Control characters escaped, and those that turn around or hide what stands beside them: none reaches a
    page or a terminal."""
    return text.translate(_LINES if lines else _CONTROLS).translate(_HIDDEN)


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
    """What `exact_json` read, as text again."""
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
