"""The right spelling of a query that DuckDB does not take, and the nearest topic to a name that is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Final

RESERVED: Final = "offset"
"""A column of every table, and a word of SQL."""
_APART: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*""")
_PLAIN: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LISTED: Final = 20
_NEAR: Final = 3
_SHOWN: Final = 300


def spelled(statement: str, topics: Iterable[str], parses: Callable[[str], bool]) -> str | None:
    """One line with the query as it should be written: names that SQL would take apart stand in double
    quotes. None where that is not what is wrong with it."""
    names = [name for name in sorted(topics, key=len, reverse=True) if not _PLAIN.fullmatch(name)]
    patterns = [re.escape(name) + r"(?:\$latest)?" for name in names]
    patterns.append(r"(?:" + _PLAIN.pattern + r")\$latest")
    named = re.compile(rf"(?<![\w.\"-])(?:{'|'.join(patterns)})(?![\w\"-])", re.ASCII)
    reserved = re.compile(rf"(?<![\w\"])(?:{RESERVED})(?![\w\"])(?!\s+\d)", re.IGNORECASE)
    by_name = _outside_of_quotes(statement, lambda text: named.sub(_quoted, text))
    by_both = _outside_of_quotes(by_name, lambda text: reserved.sub(_quoted, text))
    for better in (by_name, by_both):
        if better != statement and parses(better):
            found = named.findall(_without_quoted(statement)) if better == by_name else [RESERVED]
            whole = " ".join(better.split())
            shown = whole if len(whole) <= _SHOWN else quoted(found[0])
            return f"{found[0]} has to stand in double quotes: {shown}"
    return None


def nearest(name: str, topics: Iterable[str]) -> str:
    """For a name that no topic has."""
    known = sorted(topics)
    near = get_close_matches(name, known, _NEAR, 0.6) or [
        each for each in known if each.lower() == name.lower()
    ]
    if near:
        return f"there is no topic {name}; near it: {', '.join(map(written, near))}"
    if not known:
        return f"there is no topic {name}, and no other yet"
    listed = ", ".join(map(written, known[:_LISTED])) + (", ..." if len(known) > _LISTED else "")
    return f"there is no topic {name}; topics: {listed}"


def written(name: str) -> str:
    """As it has to stand in a query."""
    return name if _PLAIN.fullmatch(name) else quoted(name)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(found: re.Match[str]) -> str:
    return quoted(found[0])


def _without_quoted(statement: str) -> str:
    return _APART.sub(" ", statement)


def _outside_of_quotes(statement: str, change: Callable[[str], str]) -> str:
    parts, at = [], 0
    for apart in _APART.finditer(statement):
        parts += [change(statement[at : apart.start()]), apart[0]]
        at = apart.end()
    return "".join([*parts, change(statement[at:])])
