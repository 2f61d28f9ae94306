"""How a class of settings declares them: a frozen dataclass whose fields say what an operator may set.

A field under `setting` has a default, a kind and a text; the class is a section of the config, and its
docstring the text of that. Durations are in seconds, sizes in bytes. No config can name the other fields of
such a class: they are for tests, or follow from other settings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from dray.base.config.kinds import Kind

T = TypeVar("T")

SETTING: Final = "setting"
SECTION: Final = "section"


@dataclass(frozen=True)
class Definition:
    kind: Kind
    text: str


def setting(default: T, kind: Kind, text: str) -> T:
    """`text` is the setting's description in `docs/configuration.md`."""
    marks = {SETTING: Definition(kind, text)}
    made: Any = (
        field(default_factory=lambda: default, metadata=marks)
        if isinstance(default, dict)
        else field(default=default, metadata=marks)
    )
    return made  # type: ignore[no-any-return]


def section(of: type[T]) -> T:
    """Settings within settings, under the field's name."""
    made: Any = field(default_factory=of, metadata={SECTION: of})
    return made  # type: ignore[no-any-return]
