"""Which values the objects of a process hold: a walk from a few of them to all that they lead to."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial
from ipaddress import IPv4Network
from pathlib import Path
from types import FunctionType, MethodType

from dray.base.config.kinds import Secret

Value = str | int | float | bytes | None
Place = tuple[str, str]
"""A class, and an attribute of its instances."""

NOT_WALKED = ("dray.base.telemetry", "dray.base.runtime", "dray.kafka.protocol")
"""Counters, clocks and messages: they hold no settings."""


class HeldValues:
    """By place, the values of all instances; those inside of collections are apart, since there are many."""

    def __init__(self, roots: Iterable[object]) -> None:
        self.plain: dict[Place, set[Value]] = defaultdict(set)
        self.collected: dict[Place, set[Value]] = defaultdict(set)
        self._seen: set[int] = set()
        self._kept: list[object] = []  # so that no id is used twice while this walks
        waiting = list(roots)
        while waiting:
            waiting.extend(self._look_at(waiting.pop()))

    def add(self, place: Place, value: object) -> None:
        """What was handed over, and is held by nothing."""
        held = self.plain if is_plain(value) else self.collected
        held[place].update(_inside(value))

    def at(self, place: Place) -> set[Value]:
        return self.plain.get(place, set()) | self.collected.get(place, set())

    def places(self) -> set[Place]:
        return self.plain.keys() | self.collected.keys()

    def _look_at(self, item: object) -> list[object]:
        if id(item) in self._seen or isinstance(item, type) or _is_config(type(item)):
            return []
        self._seen.add(id(item))
        self._kept.append(item)
        if isinstance(item, MethodType):
            return [item.__self__]
        if isinstance(item, partial):
            return [item.func, *item.args, *item.keywords.values()]
        if isinstance(item, FunctionType):
            return [cell.cell_contents for cell in item.__closure__ or () if _is_filled(cell)]
        if isinstance(item, Mapping):
            return [*item.keys(), *item.values()]
        if isinstance(item, (list, tuple, set, frozenset)) and not hasattr(item, "_fields"):
            return list(item)
        module = type(item).__module__
        if not module.startswith("dray.") or module.startswith(NOT_WALKED):
            return []
        return self._look_inside(item)

    def _look_inside(self, item: object) -> list[object]:
        following = []
        for name, value in _attributes(item).items():
            place = (type(item).__qualname__, name)
            if is_plain(value):
                self.plain[place].add(as_value(value))
            elif isinstance(value, (Mapping, list, tuple, set, frozenset)):
                self.collected[place].update(_inside(value))
            following.append(value)
        return following


def _is_config(kind: type) -> bool:
    """It holds all settings, also those that reach no room."""
    return kind.__module__.startswith("dray.daemons.config") and kind.__name__.endswith(
        ("Section", "Settings")
    )


def _attributes(item: object) -> dict[str, object]:
    found = dict(getattr(item, "__dict__", {}))
    found |= {name: getattr(item, name) for name in getattr(item, "_fields", ())}  # of a named tuple
    for each in type(item).__mro__:
        for name in getattr(each, "__slots__", ()):
            if hasattr(item, name):
                found[name] = getattr(item, name)
    return found


def _is_filled(cell: object) -> bool:
    try:
        cell.cell_contents  # type: ignore[attr-defined]  # noqa: B018 - an empty one raises
    except ValueError:
        return False
    return True


def is_plain(value: object) -> bool:
    return value is None or isinstance(value, (str, int, float, bytes, Path, Secret, enum.Enum, IPv4Network))


def as_value(value: object) -> Value:
    if isinstance(value, Secret):
        return value.text
    if isinstance(value, (Path, IPv4Network)):
        return str(value)
    if isinstance(value, enum.Enum):
        return str(value.value)
    assert value is None or isinstance(value, (str, int, float, bytes))
    return round(value, 6) if isinstance(value, float) else value


def _inside(value: object, depth: int = 3) -> set[Value]:
    """What is plain in a collection, and in those inside of it."""
    if is_plain(value):
        return {as_value(value)}
    items: list[object] = []
    if isinstance(value, Mapping):
        items = [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset)):
        items = list(value)
    found: set[Value] = set()
    for item in items if depth else ():
        found |= _inside(item, depth - 1)
    if items and all(isinstance(item, str) for item in items):
        found.add(",".join(map(str, items)))  # their order says something too
    return found
