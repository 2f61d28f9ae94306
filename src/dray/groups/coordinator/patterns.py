"""Patterns of topic names, in RE2's syntax as Kafka's brokers take them: a whole name must match.

RE2 matches in time linear in the name and refuses what it could not match so (back references, look-around):
a client cannot make a broker think for ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import re2


class InvalidPattern(ValueError):
    """Not a pattern; the text says why."""


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    return options


_OPTIONS = _options()


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        [reason] = error.args
        raise InvalidPattern(
            reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        ) from None


def fault_of(pattern: str) -> str | None:
    """Why this is no pattern; None if it is one."""
    try:
        compiled(pattern)
    except InvalidPattern as error:
        return str(error)
    return None


def resolve(patterns: Iterable[str], names: Iterable[str]) -> dict[str, frozenset[str]]:
    """The names that each of the patterns stands for."""
    names = list(names)
    resolved = {}
    for pattern in patterns:
        matches = compiled(pattern).fullmatch
        resolved[pattern] = frozenset(name for name in names if matches(name) is not None)
    return resolved
