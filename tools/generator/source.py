"""Lines of Python with indentation, and the words that describe versions and types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tools.generator.schema import NUMBERS, STRUCT, Field

# Names that generated functions use themselves; a field of that name gets a local with an underscore.
RESERVED = {"self", "buffer", "position", "limit", "version", "out", "cuts"}
RESERVED |= {"tags", "tagged", "tag", "start", "end", "count", "value"}


class Source:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        self.lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def block(self, opening: str | None) -> Iterator[None]:
        """Indent what follows under `opening`; without one, do not indent at all."""
        if opening is None:
            yield
            return
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def condition(versions: set[int], among: set[int]) -> str | None:
    """The test that picks `versions` out of `among`, or None if they are all of it."""
    chosen = versions & among
    first, last = min(chosen), max(chosen)
    if chosen != {version for version in among if first <= version <= last}:
        raise ValueError(f"versions with a hole: {sorted(chosen)}")
    if chosen == among:
        return None
    if last == max(among):
        return f"version >= {first}"
    if first == min(among):
        return f"version <= {last}"
    return f"{first} <= version <= {last}"


def snake_case(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def local(field: Field) -> str:
    return field.name + "_" if field.name in RESERVED else field.name


def optional(field: Field) -> bool:
    """Whether the attribute may be None. A tagged struct is None when absent: its defaults are meant."""
    return bool(field.nullable) or (field.tag is not None and field.kind == STRUCT and not field.array)


def annotation(field: Field, direction: str) -> str:
    if field.kind == STRUCT:
        assert field.struct is not None
        inner = field.struct
    elif field.kind == "records":
        inner = "Buffer" if direction == "request" else "Records"
    elif field.kind == "float64":
        inner = "float"
    elif field.kind in NUMBERS:
        inner = "int"
    else:
        inner = {"string": "str", "bytes": "bytes", "bool": "bool", "uuid": "UUID"}[field.kind]
    if field.array:
        inner = f"list[{inner}]"
    return f"{inner} | None" if optional(field) else inner


def literal(field: Field) -> str:
    """The default as an expression; a list or a struct is a new one each time."""
    if field.array:
        return "None" if field.default is None else "[]"
    if field.kind == "uuid":
        return "ZERO_UUID"
    if field.kind == STRUCT:
        return "None" if optional(field) else f"{field.struct}()"
    return repr(field.default)


def attribute_default(field: Field) -> str:
    """The right side of the dataclass field."""
    if field.array and field.default is not None:
        return "field(default_factory=list)"
    if field.kind == STRUCT and not field.array and not optional(field):
        return f"field(default_factory={field.struct})"
    return literal(field)


def is_default(field: Field, expression: str) -> str:
    """The test that a tagged field need not be sent."""
    if field.array and field.default is not None:
        return f"not {expression}"
    default = literal(field)
    return f"{expression} is None" if default == "None" else f"{expression} == {default}"


def is_set(field: Field, expression: str) -> str:
    """The test that a tagged field must be sent."""
    if field.array and field.default is not None:
        return expression
    if field.kind == STRUCT and not field.array:
        return f"{expression} is not None and {expression} != {field.struct}()"
    default = literal(field)
    return f"{expression} is not None" if default == "None" else f"{expression} != {default}"
