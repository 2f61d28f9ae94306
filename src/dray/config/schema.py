"""The model seen as a flat list of settings: what the loader, the printer and the reference page walk.

Settings are added in `model.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from dray.config.kinds import Kind
from dray.config.model import Settings
from dray.config.section import Section


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
def sections() -> dict[str, type[Section]]:
    """The sections by name, in the model's order."""
    return {
        name: info.annotation
        for name, info in Settings.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section)
    }


def _walk(model: type[Section], path: tuple[str, ...]) -> Iterator[FieldOfModel]:
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from _walk(info.annotation, (*path, name))
            continue
        kind = next(item for item in info.metadata if isinstance(item, Kind))
        default = info.get_default(call_default_factory=True)
        yield FieldOfModel((*path, name), kind, default, info.description or "")
