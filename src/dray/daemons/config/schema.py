"""The model seen as a flat list of settings: what the loader, the printer and the reference page walk.

A setting is added in the class of its section.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, dataclass
from dataclasses import fields as inner
from functools import cache
from typing import Any

from dray.base.config.kinds import Kind
from dray.base.config.setting import SECTION, SETTING
from dray.daemons.config.model import Settings


@dataclass(frozen=True)
class FieldOfModel:
    path: tuple[str, ...]
    kind: Kind
    default: Any
    description: str

    @property
    def key(self) -> str:
        return ".".join(self.path)

    @property
    def variable(self) -> str:
        """The environment variable that sets it: two underscores between the parts of the key."""
        return "DRAY_" + "__".join(self.path).upper()


@cache
def fields() -> tuple[FieldOfModel, ...]:
    return tuple(_walk(Settings, ()))


@cache
def fields_by_path() -> dict[tuple[str, ...], FieldOfModel]:
    return {field.path: field for field in fields()}


@cache
def sections() -> dict[str, type]:
    """The sections by name, in the model's order."""
    return {each.name: each.metadata[SECTION] for each in inner(Settings) if SECTION in each.metadata}


def _walk(section: type, path: tuple[str, ...]) -> Iterator[FieldOfModel]:
    for each in inner(section):
        inside = (*path, each.name)
        if SECTION in each.metadata:
            yield from _walk(each.metadata[SECTION], inside)
        elif (found := each.metadata.get(SETTING)) is not None:
            default = each.default if each.default_factory is MISSING else each.default_factory()
            yield FieldOfModel(inside, found.kind, default, found.text)
