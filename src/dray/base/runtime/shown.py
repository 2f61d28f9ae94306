"""Names and texts that others choose, where people read them.

A name may be as long as a string of Kafka's protocol can be. Then no message that repeats it fits into one,
and the answer cannot be sent. And it may hold any character: a terminal does what control characters say.
"""

from __future__ import annotations

from typing import Final

LONGEST_SHOWN: Final = 256
"""Longer than any name of a topic."""

_CONTROLS: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(0x7F, 0xA0))} | {
    9: "\\t",
    10: "\\n",
    13: "\\r",
}
_LINES: Final = {code: escape for code, escape in _CONTROLS.items() if code not in (9, 10)}
# Characters that turn around or hide what stands beside them, or break a line in two.
_HIDDEN: Final = {
    code: f"\\u{code:04x}"
    for code in (0xAD, 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xFEFF)
}


def cut(name: str) -> str:
    return name if len(name) <= LONGEST_SHOWN else f"{name[:LONGEST_SHOWN]}..."


def printable(text: str, *, lines: bool = False) -> str:
    """Control characters escaped, and those that turn around or hide what stands beside them: none reaches a
    page or a terminal. `lines`: of several lines, so ends of lines and tabs stay."""
    return text.translate(_LINES if lines else _CONTROLS).translate(_HIDDEN)
