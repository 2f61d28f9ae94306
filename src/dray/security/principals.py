"""Principals, and how a certificate's name becomes one: Kafka's `ssl.principal.mapping.rules`.

A rule is `RULE:pattern/replacement/` with an L or U behind for lower or upper case, or `DEFAULT`, the name
as it is. The first rule whose pattern matches the whole name decides; no match is no principal. Patterns
are RE2's: a name that a client brings cannot make them slow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import re2

USER: Final = "User"
ANONYMOUS: Final = "User:ANONYMOUS"
WILDCARD: Final = "User:*"

_ESCAPED: Final = r"(?:\\.|[^\\/])*"
_RULE: Final = (
    rf"(?P<default>DEFAULT)|RULE:(?P<pattern>{_ESCAPED})/(?P<replacement>{_ESCAPED})/(?P<case>[LU]?)"
)
_SPLITTER: Final = re.compile(rf"\s*(?P<rule>{_RULE}|[^,]*?)\s*(?:,\s*|$)", re.DOTALL)


class InvalidRule(ValueError):
    """A mapping rule that cannot be understood; the message says which and why."""


class NoRuleApplies(Exception):
    """A certificate's name that no rule maps: the client has no principal."""


def user(name: str) -> str:
    return f"{USER}:{name}"


def parse_principal(text: str) -> tuple[str, str] | None:
    """Type and name; None for what is no principal."""
    kind, colon, name = text.partition(":")
    return (kind, name) if kind and colon and name else None


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: Any  # None: DEFAULT
    parts: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        mapped = self._replaced(name)
        if self.case == "L":
            return mapped.lower()
        return mapped.upper() if self.case == "U" else mapped

    def _replaced(self, name: str) -> str:
        """As Java's `replaceAll`: every occurrence, also an empty one at the end."""
        pieces = []
        position = 0
        for found in self.pattern.finditer(name):
            pieces.append(name[position : found.start()])
            pieces += [part if isinstance(part, str) else found.group(part) or "" for part in self.parts]
            position = found.end()
        return "".join([*pieces, name[position:]])


class MappingRules:
    def __init__(self, text: str = "DEFAULT") -> None:
        self._rules = _parse(text.strip())

    def __len__(self) -> int:
        return len(self._rules)

    def principal(self, distinguished_name: str) -> str:
        for rule in self._rules:
            mapped = rule.apply(distinguished_name)
            if mapped is not None:
                return user(mapped)
        raise NoRuleApplies(f"no mapping rule applies to {distinguished_name!r}")


def _parse(text: str) -> tuple[_Rule, ...]:
    rules = []
    position = 0
    while position < len(text):
        found = _SPLITTER.match(text, position)
        if found is None or found.end() == position:
            raise InvalidRule(f"{text[position:]!r} is no mapping rule: RULE:pattern/replacement/ or DEFAULT")
        position = found.end()
        if found["default"]:
            rules.append(_Rule(None))
        elif found["pattern"] is not None:
            rules.append(_rule(found["pattern"], found["replacement"], found["case"]))
        elif found["rule"]:
            raise InvalidRule(f"{found['rule']!r} is no mapping rule: RULE:pattern/replacement/ or DEFAULT")
    return tuple(rules)


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as error:
        raise InvalidRule(f"the pattern {pattern!r} of a mapping rule is not understood: {error}") from error
    return _Rule(compiled, tuple(_parts(replacement, compiled.groups)), case)


def _parts(replacement: str, groups: int) -> list[str | int]:
    """`$n` is a group where there is one, with as many digits as name one; `\\x` is x; all else is text."""
    parts: list[str | int] = []
    position = 0
    while position < len(replacement):
        character = replacement[position]
        if character == "\\" and position + 1 < len(replacement):
            parts.append(replacement[position + 1])
            position += 2
            continue
        digits = re.compile(r"\d+").match(replacement, position + 1) if character == "$" else None
        if digits is None:
            parts.append(character)
            position += 1
            continue
        number = digits[0]
        while len(number) > 1 and int(number) > groups:
            number = number[:-1]
        parts.append(int(number) if int(number) <= groups else f"${number}")
        position += 1 + len(number)
    return parts
