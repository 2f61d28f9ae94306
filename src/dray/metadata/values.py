"""Versioned values: what every stored value looks like from the outside.

A value starts with one byte, the version of its format. An older format is read for ever (a fixture
of each is kept in the tests); a newer one is refused with a line that says what to do, because a
broker that guessed would write back a value from which the newer fields are gone.

Formats whose bodies are read on no hot path are JSON behind that byte (`codec.py`): plain to inspect, and a
field can be added with a default without a new version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from dray.metadata.contract import MetadataError

FIRST_FORMAT: Final = 1


class UnreadableValue(MetadataError):
    """A stored value cannot be used by this build."""


class FormatTooNew(UnreadableValue):
    """The value was written by a newer build."""

    def __init__(self, what: str, version: int, newest: int) -> None:
        super().__init__(
            f"{what} is stored in format {version}, and this build reads formats up to {newest}: upgrade it"
        )
        self.version = version
        self.newest = newest


class ValueCorrupt(UnreadableValue):
    """The value is not what its format says."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} is stored as something unreadable: {why}")


def seal(version: int, body: bytes) -> bytes:
    """The stored form of `body`, which is in format `version`."""
    return bytes((version,)) + body


def unseal(what: str, value: bytes, newest: int) -> tuple[int, memoryview]:
    """The format version and the body of a stored value. `what` names it in the errors."""
    if not value:
        raise ValueCorrupt(what, "it is empty")
    version = value[0]
    if version > newest:
        raise FormatTooNew(what, version, newest)
    if version == 0:
        raise ValueCorrupt(what, "there is no format 0")
    return version, memoryview(value)[1:]


def seal_json(version: int, body: Mapping[str, Any]) -> bytes:
    """Equal bodies give equal bytes, so that a writer can recognise its own value."""
    return seal(version, json.dumps(body, sort_keys=True, separators=(",", ":")).encode())


def unseal_json(what: str, value: bytes, newest: int) -> tuple[int, dict[str, Any]]:
    version, body = unseal(what, value, newest)
    try:
        fields = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        raise ValueCorrupt(what, str(error)) from error
    if not isinstance(fields, dict):
        raise ValueCorrupt(what, "it is not a JSON object")
    return version, fields
