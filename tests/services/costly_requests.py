"""The most expensive requests of a size that there are, made from the schema of each API.

Each array of a request is filled in turn, with all others at one element: with names that differ, with one
name again and again, with names as long as they may be. Fields that switch something on are on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints
from uuid import UUID

from dray.kafka.protocol import RequestHeader, Struct, encode_request_header
from dray.kafka.protocol.messages.schemas import SCHEMAS

LONGEST: Final = "x" * 0x7FFF

SENSIBLE: Final[dict[str, Any]] = {
    "acks": -1,  # else there is no answer
    "entity_type": "user",
    "iterations": 4096,
    "key": "producer_byte_rate",
    "mechanism": 1,
    "num_partitions": 1,
    "operation": 3,
    "pattern_type_filter": 3,
    "permission_type": 3,
    "replication_factor": 1,
    "resource_pattern_type": 3,
    "resource_type": 2,
    "resource_type_filter": 2,
    "salt": b"salt",
    "salted_password": bytes(32),
}
"""What a field must have for its request to be worked on."""

Place = tuple[str, ...]
"""The names of the fields that lead to an array."""


@dataclass(frozen=True)
class Names:
    """What the texts of a request are: by the number of the element that they are in."""

    label: str
    text: Callable[[int], str]
    number: Callable[[int], int]
    repeats: bool = False
    others: int = 1
    """How many elements the arrays have that are not filled."""


def names(existing: str) -> Sequence[Names]:
    return (
        Names("distinct", lambda at: f"{at:x}", lambda at: at),
        Names("repeated", lambda _at: existing, lambda _at: 0, repeats=True),
        Names("bare", lambda at: f"{at:x}", lambda at: at, others=0),
        Names("partitions", lambda _at: existing, lambda at: at),
        Names("long", lambda at: f"{at}{LONGEST}"[: len(LONGEST)], lambda at: at),
    )


def kind_of(annotation: Any) -> Any:
    """The type without "or None"."""
    if get_origin(annotation) is UnionType or type(None) in get_args(annotation):
        return next(kind for kind in get_args(annotation) if kind is not type(None))
    return annotation


@cache
def fields_of(kind: Any) -> tuple[tuple[str, Any], ...]:
    """The names of the fields, and their types."""
    return tuple(
        (name, kind_of(hint)) for name, hint in get_type_hints(kind).items() if name in kind.__slots__
    )


def arrays(kind: Any, before: Place = ()) -> Iterator[Place]:
    for name, found in fields_of(kind):
        if get_origin(found) is list:
            place = (*before, name)
            yield place
            (element,) = get_args(found)
            if issubclass(element, Struct):
                yield from arrays(element, place)
        elif isinstance(found, type) and issubclass(found, Struct):
            yield from arrays(found, (*before, name))


def made(kind: Any, place: Place, count: int, words: Names, at: int = 0) -> Any:
    """One struct, with `count` elements in the array at `place`."""
    values = {
        name: _value(found, place[1:] if place[:1] == (name,) else None, count, words, at)
        for name, found in fields_of(kind)
    }
    sensible = {name: value for name, value in SENSIBLE.items() if type(values.get(name)) is type(value)}
    return kind(**values | sensible)


def _value(kind: Any, place: Place | None, count: int, words: Names, at: int) -> Any:
    if get_origin(kind) is list:
        (element,) = get_args(kind)
        if place:
            return [_value(element, place, count, words, 0)]
        if place is None:
            return [_value(element, None, 1, words, 0)] * words.others
        if words.repeats:
            return [_value(element, None, 1, words, 0)] * count
        return [_value(element, None, 1, words, number) for number in range(count)]
    if kind is str:
        return words.text(at)
    if kind is bool:
        return True
    if kind is float:
        return float(words.number(at))
    if kind is int:
        return words.number(at) % 100
    if kind is UUID:
        return UUID(int=words.number(at) + 1)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return made(kind, place or (), count, words, at)
    return b""


def elements_of(value: Any) -> int:
    """In all arrays together."""
    if isinstance(value, list):
        return len(value) + sum(map(elements_of, value))
    if isinstance(value, Struct):
        return sum(elements_of(getattr(value, name)) for name in value.__slots__)
    return 0


def frames(
    kind: Any, version: int, existing: str, most_elements: int, most_bytes: int, *labels: str
) -> Iterator[tuple[str, bytes]]:
    """Each with a line that says what it is: of so many elements that they are just taken, and one of as many
    as there is room for. With `labels`, only with these names, and only of the innermost array."""
    header = encode_request_header(RequestHeader(kind.API_KEY, version, 7, "costly"))

    def encoded(request: Any) -> bytes:
        return header + b"".join(request.encode(version))

    def is_there(place: Place) -> bool:
        """Not every version has every array."""
        one, two = (encoded(made(kind, place, count, names(existing)[0])) for count in (1, 2))
        return len(one) < len(two)

    chosen = [words for words in names(existing) if not labels or words.label in labels]
    places = list(filter(is_there, arrays(kind)))
    if not places:
        yield "1 long", encoded(made(kind, (), 1, names(existing)[-1]))
    for place in places[-1 if labels else 0 :]:
        for words in chosen:
            one, more = made(kind, place, 1, words), made(kind, place, 11, words)
            size, each = len(encoded(one)), (len(encoded(more)) - len(encoded(one))) / 10
            if words.label == "long" and each < 1000:
                continue  # no texts
            parts = (elements_of(more) - elements_of(one)) // 10
            taken = (most_elements - elements_of(one)) // parts
            fitting = int((most_bytes - size) // each)
            counts = {min(fitting, taken), fitting} if words.repeats else {min(fitting, taken)}
            for count in sorted(counts):
                yield f"{count} {words.label} of {'.'.join(place)}", encoded(made(kind, place, count, words))


def frames_of_tags(kind: Any, version: int, most_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Tagged fields in the header, and behind the request."""
    if version < SCHEMAS[kind.API_KEY].flexible_from:
        return
    header = encode_request_header(RequestHeader(kind.API_KEY, version, 7, "costly"))
    tags = bytearray()
    for number in range(100, most_bytes // 4):
        tags += _uvarint(number) + b"\0"
    count = _uvarint(len(range(100, most_bytes // 4)))
    body = b"".join(bytes(part) for part in made(kind, (), 1, names("x")[0]).encode(version))
    yield "tags in the header", header[:-1] + count + tags + body
    yield "tags of the request", header + body[:-1] + count + tags


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
