"""Topic names: Kafka's rules, to the letter."""

from __future__ import annotations

import re
from typing import Final

from dray.topics.errors import InvalidTopicName

MAX_NAME_LENGTH: Final = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")

# Kafka keeps its own state in topics of these names, and tools treat them as internal.
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def check_name(name: str) -> None:
    """Raises `InvalidTopicName` for a name that Kafka would refuse."""
    if not name:
        fault = "the empty string is not allowed"
    elif name in {".", ".."}:
        fault = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        fault = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        fault = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopicName(f"Topic name is invalid: {fault}")


def is_internal(name: str) -> bool:
    return name in _INTERNAL


def unified(name: str) -> str:
    """Two names with the same unified form collide: metric and table names cannot tell '.' from '_'."""
    return name.replace(".", "_")
