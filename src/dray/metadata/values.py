"""Stored values, from the outside: a version byte, and behind it what the format of that version says.

An older format is read for ever (a fixture of each is kept in the tests); a newer one is refused with a line
that says what to do, because a broker that guessed would write back a value from which the newer fields are
gone.

Formats whose bodies are read on no hot path are JSON behind that byte: plain to inspect, and a field can be
added without a new version. `JsonCodec` stores a dataclass so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, Generic, TypeVar
from uuid import UUID

from pydantic import Field, PlainSerializer, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from dray.metadata.contract import MetadataError

FIRST_FORMAT: Final = 1


class UnreadableValue(MetadataError):
    """A stored value cannot be used by this build."""

    kind = "a value"
    """Which values are like it, in the words of the code: no name of anybody's is in it."""


class FormatTooNew(UnreadableValue):
    """The value was written by a newer build."""

    def __init__(self, what: str, version: int, newest: int) -> None:
        super().__init__(
            f"{what} is stored in format {version}, and this build reads formats up to {newest}: upgrade it"
        )
        self.kind = _kind(what)
        self.version = version
        self.newest = newest


class ValueCorrupt(UnreadableValue):
    """The value is not what its format says."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} is stored as something unreadable: {why}")
        self.kind = _kind(what)


def _kind(what: str) -> str:
    """Names that somebody gave stand in quotes, and behind the kind."""
    return re.split(r"\s['\"]|[0-9:/]", what, maxsplit=1)[0].removeprefix("a ").removeprefix("an ").strip()


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


# --- a dataclass as JSON
#
# The dataclass is the format: its fields are those of the JSON object, and tuples with names are lists.
# Every field that this build would write must be there and of its type, whether or not the dataclass has a
# default for it: what a value does not say is not guessed. Else it is unreadable, in one line that names
# the field. A field can be added without a new version if it is `NOT_IF_NONE`; so a field that this build
# does not know is read past, since another build may have added it. `docs/design/0071` says why pydantic
# reads the values.


T = TypeVar("T")

HexUuid = Annotated[UUID, PlainSerializer(lambda value: value.hex, return_type=str)]
"""Stored as 32 hexadecimal digits."""

FROM_KEY: Final = Field(exclude=True)
"""A field that is not stored: the key says it, and the caller of `decode` does."""

NOT_IF_NONE: Final = Field(exclude_if=lambda value: value is None)
"""A field that is stored only where there is something to store: values from before it stay as they are."""

_MOST_NAMED: Final = 3


class JsonCodec(Generic[T]):
    """How values of one dataclass are stored. `newest` is the newest format that this build reads."""

    def __init__(self, kind: type[T], newest: int = FIRST_FORMAT) -> None:
        self._kind = kind
        self.newest = newest

    @cached_property
    def _adapter(self) -> TypeAdapter[T]:
        """Made when it is first needed: that takes a millisecond, and not every process stores everything."""
        return TypeAdapter(self._kind)

    def encode(self, value: T, version: int | None = None) -> bytes:
        """Equal values give equal bytes, so that a writer can recognise its own. In the newest format, or in
        an older one that says all there is to say."""
        return seal_json(self.newest if version is None else version, self.fields(value))

    def decode(self, what: str, value: bytes, **given: str | int) -> T:
        """Raises `UnreadableValue`; `what` names the value in it. `given`: the fields that the key says."""
        return self.decode_versioned(what, value, **given)[1]

    def decode_versioned(self, what: str, value: bytes, **given: str | int) -> tuple[int, T]:
        """With the format in which it was stored."""
        version, body = unseal(what, value, self.newest)
        return version, self._read(what, bytes(body), given)

    # --- as a part of another value

    def fields(self, value: T) -> dict[str, Any]:
        """The JSON object."""
        fields: dict[str, Any] = self._adapter.dump_python(value, mode="json", by_alias=True)
        return fields

    def from_fields(self, what: str, fields: object) -> T:
        return self._read(what, to_json(fields), {})

    def _read(self, what: str, body: bytes, given: dict[str, str | int]) -> T:
        try:
            stored = from_json(body)
            if given and isinstance(stored, dict):
                body = to_json(stored | given)
            value = self._adapter.validate_json(body, strict=True)
        except ValidationError as error:
            raise ValueCorrupt(what, _line(error)) from error
        except ValueError as error:
            raise ValueCorrupt(what, str(error)) from error
        missing = _missing(stored, self.fields(value))
        if missing is not None:
            raise ValueCorrupt(what, f"{missing}: Field required")
        return value


def _missing(stored: Any, whole: Any) -> str | None:
    """The first field that a stored value lacks."""
    if isinstance(stored, dict) and isinstance(whole, dict):
        for name, inner in whole.items():
            if name not in stored:
                return str(name)
            if (deeper := _missing(stored[name], inner)) is not None:
                return f"{name}.{deeper}"
    return None


def _line(error: ValidationError) -> str:
    """Which fields are wrong, without what is in them: that may be long, or of several lines."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    named = [f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in found[:_MOST_NAMED]]
    more = len(found) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")
