"""Principals, and how a certificate's name becomes one: Kafka's `ssl.principal.mapping.rules`.

A rule is `RULE:pattern/replacement/` with an L or U behind for lower or upper case, or `DEFAULT`, the name
as it is. The first rule whose pattern matches the whole name decides; no match is no principal. Patterns
are RE2's: a name that a client brings cannot make them slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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


# --- the name in a certificate
#
# Written as Java's `X500Principal.getName()` writes it: RFC 2253, and what that leaves open as Java decides
# it, since Kafka's mapping rules and ACLs are written for such names. The certificate has been verified: its
# encoding is good. It is still read with bounds.

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_TEXTS: Final = (0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E)
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString. Java reads the bytes of all of
them as UTF-8; where they are not, there is no name here."""
_ESCAPED_IN_NAMES: Final = ',=+<>#;"\\'
_BLANK: Final = " \r"


class UnreadableCertificate(ValueError):
    """It is no certificate as RFC 5280 has it."""


def distinguished_name(certificate: bytes) -> str:
    """Of the subject of a certificate in DER. Raises `UnreadableCertificate`."""
    try:
        _, signed, _ = _element(certificate, 0)
        _, body, _ = _element(signed, 0)
        parts = _elements(body)
        tag, _, _ = next(parts)
        for _ in range(4 if tag == _VERSION else 3):  # up to the validity; the subject follows
            next(parts)
        tag, subject, _ = next(parts)
        if tag != _SEQUENCE:
            raise ValueError
        sets = [
            "+".join(_attribute(value) for _, value, _ in _elements(group))
            for _, group, _ in _elements(subject)
        ]
    except (IndexError, StopIteration, ValueError):
        raise UnreadableCertificate("the certificate is not understood") from None
    return ",".join(reversed(sets))


def _element(data: bytes, position: int) -> tuple[int, bytes, int]:
    """Tag, content, and where the next one begins."""
    tag, length, position = data[position], data[position + 1], position + 2
    if length & 0x80:
        size = length & 0x7F
        length, position = int.from_bytes(data[position : position + size]), position + size
    if position + length > len(data):
        raise IndexError
    return tag, data[position : position + length], position + length


def _elements(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Tag, content, and all of it."""
    position = 0
    while position < len(data):
        begin = position
        tag, content, position = _element(data, position)
        yield tag, content, data[begin:position]


def _attribute(data: bytes) -> str:
    (_, kind, _), (tag, content, whole) = _elements(data)
    number = _object_identifier(kind)
    keyword = _KEYWORDS.get(number)
    if keyword is None or tag not in _TEXTS:
        return f"{keyword or number}=#{whole.hex()}"
    return f"{keyword}={_escaped(content.decode())}"


def _object_identifier(data: bytes) -> str:
    numbers, number = [], 0
    for byte in data:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """Blanks at both ends are escaped, and what has a meaning in a name."""
    plain = "".join(
        f"\\{each}" if each in _ESCAPED_IN_NAMES else "\\00" if each == "\0" else each for each in text
    )
    begin = len(plain) - len(plain.lstrip(_BLANK))
    end = max(begin, len(plain.rstrip(_BLANK)))
    return (
        "".join(f"\\{each}" for each in plain[:begin])
        + plain[begin:end]
        + "".join(f"\\{each}" for each in plain[end:])
    )
