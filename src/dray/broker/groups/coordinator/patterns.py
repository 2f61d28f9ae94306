"""Patterns of topic names, in RE2's syntax as Kafka's brokers take them: a whole name must match.

RE2 matches in time linear in the name and refuses what it could not match so (back references, look-around):
a client cannot make a broker think for ever. A compiled pattern is large and slow if a client means it to be
(a pattern of eight characters takes 4 MiB), and it holds the interpreter meanwhile: a new pattern is short,
has little memory, and is judged away from the event loop. None stays in memory after its call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import re2

LONGEST: Final = 1000
"""Characters of a new pattern. The dearest pattern of this length takes 25 ms to refuse."""

MEMORY: Final = 256 << 10
"""Bytes that a new pattern may compile to: one of 1,000 plain characters takes an eighth."""


class InvalidPattern(ValueError):
    """Not a pattern; the text says why."""


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return options


_OPTIONS = _options()
"""With RE2's own bound, 8 MiB: groups that were stored before new patterns had a lower one are served."""

_OF_NEW_ONES = _options()
_OF_NEW_ONES.max_mem = MEMORY


def compiled(pattern: str, options: Any = _OPTIONS) -> Any:
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        [reason] = error.args
        raise InvalidPattern(
            reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        ) from None
    finally:
        re2.purge()  # the library would remember the last 128


def fault_of(pattern: str) -> str | None:
    """Why this cannot be the pattern of a member; None if it can. Not for the event loop."""
    if len(pattern) > LONGEST:
        return f"it is longer than {LONGEST} characters"
    try:
        compiled(pattern, _OF_NEW_ONES)
    except InvalidPattern as error:
        return str(error)
    return None


def resolve(patterns: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """The names that each of the patterns stands for. Not for the event loop."""
    names = list(names)
    resolved = {}
    for pattern in patterns:
        matches = compiled(pattern).fullmatch
        resolved[pattern] = frozenset(name for name in names if matches(name) is not None)
    return resolved
