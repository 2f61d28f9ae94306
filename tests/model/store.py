"""The metadata store of the model: one domain, atomic writes, a condition per operation.

An operation whose condition fails is skipped; the others of its write apply. Versions never come again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

ANY: Final = "any"
ABSENT: Final = "absent"


class Violation(Exception):
    """A promise of the log was broken."""


class Key(NamedTuple):
    """`family` and `group` name a range of keys, `name` the key in it."""

    family: str
    group: int
    name: int


class Versioned(NamedTuple):
    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    key: Key
    value: Any
    expect: int | str


@dataclass(frozen=True, slots=True)
class Delete:
    key: Key
    expect: int | str = ANY


@dataclass(frozen=True, slots=True)
class DeleteBetween:
    """Every key of a range strictly between two names."""

    family: str
    group: int
    low: int
    high: int


Operation = Put | Delete | DeleteBetween
Reply = list[int | bool]
"""For each operation: the version a put was given, or whether it applied."""


class Store:
    def __init__(self, on_put: Callable[[Key, Any, Any], None]) -> None:
        self._ranges: dict[tuple[str, int], dict[int, Versioned]] = {}
        self._version = 0
        self._on_put = on_put  # called with key, old value, new value: where the oracle listens

    def get(self, family: str, name: int) -> Any:
        """The value and version of a key that is there once the world is made."""
        found = self.find(Key(family, 0, name))
        assert found is not None
        return found

    def find(self, key: Key) -> Versioned | None:
        return self._ranges.get((key.family, key.group), {}).get(key.name)

    def scan(self, family: str, group: int) -> list[tuple[int, Versioned]]:
        return sorted(self._ranges.get((family, group), {}).items())

    def groups(self, family: str) -> dict[int, set[int]]:
        return {group: set(names) for (found, group), names in self._ranges.items() if found == family}

    def write(self, operations: list[Operation]) -> Reply:
        return [self._apply(operation) for operation in operations]

    def _apply(self, operation: Operation) -> int | bool:
        if isinstance(operation, DeleteBetween):
            names = self._ranges.get((operation.family, operation.group), {})
            for name in [name for name in names if operation.low < name < operation.high]:
                del names[name]
            return True
        names = self._ranges.setdefault((operation.key.family, operation.key.group), {})
        current = names.get(operation.key.name)
        if operation.expect == ANY:
            holds = True
        elif operation.expect == ABSENT:
            holds = current is None
        else:
            holds = current is not None and current.version == operation.expect
        if isinstance(operation, Delete):
            if holds:
                names.pop(operation.key.name, None)
            return holds
        if not holds:
            return False
        self._version += 1
        names[operation.key.name] = Versioned(operation.value, self._version)
        self._on_put(operation.key, current and current.value, operation.value)
        return self._version
