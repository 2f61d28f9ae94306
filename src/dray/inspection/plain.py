"""Views as JSON: every view is a frozen dataclass, and becomes an object of its fields.

JavaScript reads every number as a float and rounds what does not fit. So a whole number beyond that is a
string here: the digits are right for every reader, and a reader that wants a number can make one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence, Set
from enum import Enum
from typing import Any, Final
from uuid import UUID

LARGEST_EXACT: Final = 2**53 - 1


def as_plain(value: Any) -> Any:
    if isinstance(value, bool) or value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int):
        return value if -LARGEST_EXACT <= value <= LARGEST_EXACT else str(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, UUID):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: as_plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if not field.metadata.get("hidden")
        }
    if isinstance(value, Mapping):
        return {str(key): as_plain(item) for key, item in value.items()}
    if isinstance(value, Sequence | Set) and not isinstance(value, bytes | bytearray | memoryview):
        return [as_plain(item) for item in value]
    raise TypeError(f"{type(value).__name__} is no part of a view")
