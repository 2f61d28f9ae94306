"""Topic names: Kafka's rules, to the letter."""

from __future__ import annotations

import re
from typing import Final

from dray.base.runtime import cut
from dray.broker.topics.errors import InvalidTopicName

MAX_NAME_LENGTH: Final = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]*")

# Kafka keeps its own state in topics of these names, and tools treat them as internal.
_INTERNAL: Final = {
    "__consumer_offsets": "committed offsets are in the metadata store, and tools ask for the group's",
    "__transaction_state": "there are no transactions",
    "__share_group_state": "there are no share groups",
}


def check_name(name: str) -> None:
    """Raises `InvalidTopicName` for a name that Kafka would refuse."""
    if not name:
        fault = "the empty string is not allowed"
    elif name in {".", ".."}:
        fault = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        fault = f"the length of '{cut(name)}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        fault = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopicName(f"Topic name is invalid: {fault}")


def check_not_internal(name: str) -> None:
    """Raises `InvalidTopicName` for a topic in which only Kafka keeps something: a reader waits for
    records that never come, and a creator finds nothing in it."""
    if (reason := _INTERNAL.get(name)) is not None:
        raise InvalidTopicName(f"There is no topic '{name}' here: {reason}.")


def is_internal(name: str) -> bool:
    return name in _INTERNAL


def unified(name: str) -> str:
    """Two names with the same unified form collide: metric and table names cannot tell '.' from '_'."""
    return name.replace(".", "_")
