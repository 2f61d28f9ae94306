"""The base of all generated messages.

A generated class knows how to read and write its own fields (`read`, `write`); this module gives it
equality, a readable form, the check of the version, and the one place where what can go wrong on hostile
bytes becomes a `DecodeError`.
"""

from __future__ import annotations

import struct
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

from dray.kafka.protocol.wire import ENDLESS, Buffer, Cuts, DecodeError, EncodeError, elements

NEVER_FLEXIBLE: Final = 0x8000
"""`FLEXIBLE_FROM` of a message that has no flexible version: one more than the largest version."""


SECRET_FIELDS: Final = frozenset({"auth_bytes", "salt", "salted_password"})
"""Never shown: a message may end up in a log line, or in a traceback."""


class Struct:
    """A group of fields. Subclasses are dataclasses with slots; build them with keywords."""

    __slots__: tuple[str, ...] = ()
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={'(hidden)' if name in SECRET_FIELDS else repr(getattr(self, name))}"
            for name in self.__slots__
        )
        return f"{type(self).__name__}({fields})"


class Message(Struct):
    """A struct that stands on its own on the wire."""

    __slots__ = ()
    VERSIONS: ClassVar[tuple[int, int]]
    FLEXIBLE_FROM: ClassVar[int]

    @staticmethod
    def read(buffer: memoryview, position: int, limit: int, version: int) -> tuple[Any, int]:
        raise NotImplementedError

    def write(self, out: bytearray, version: int, cuts: Cuts) -> None:
        raise NotImplementedError

    @classmethod
    def decode(cls, buffer: memoryview, position: int, version: int, most: int = ENDLESS) -> tuple[Self, int]:
        """The message that starts at `position`, and the position behind it. `most`: how many elements its
        arrays and tagged fields may have together.

        Record fields are slices of `buffer`, not copies. Anything malformed raises `DecodeError`.
        """
        first, last = cls.VERSIONS
        elements.left = most
        try:
            if not first <= version <= last:
                raise DecodeError(f"{cls.__name__} has no version {version}, only {first} to {last}")
            return cls.read(buffer, position, len(buffer), version)
        except (IndexError, struct.error):
            raise DecodeError(f"{cls.__name__} v{version} is cut short") from None
        except UnicodeDecodeError as error:
            raise DecodeError(f"{cls.__name__} v{version} has a string that is not UTF-8") from error
        finally:
            elements.used, elements.left = most - elements.left, ENDLESS

    def encode(self, version: int) -> list[Buffer]:
        """The buffers to send, in order. Records are sent from where they lie: leave them unchanged."""
        first, last = self.VERSIONS
        if not first <= version <= last:
            raise EncodeError(f"{type(self).__name__} has no version {version}, only {first} to {last}")
        out = bytearray()
        cuts: Cuts = []
        try:
            self.write(out, version, cuts)
        except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
            raise EncodeError(f"{type(self).__name__} v{version}: {error}") from error
        if not cuts:
            return [out]
        return scatter(out, cuts)


def scatter(out: bytearray, cuts: Cuts) -> list[Buffer]:
    """The encoded bytes, with what belongs at the cuts between them."""
    view = memoryview(out)
    buffers: list[Buffer] = []
    start = 0
    for position, records in cuts:
        buffers.append(view[start:position])
        start = position
        if isinstance(records, (bytes, bytearray, memoryview)):
            buffers.append(records)
        else:
            buffers.extend(records)
    if start < len(out):
        buffers.append(view[start:])
    return buffers


class Response(Message):
    __slots__ = ()
    API_KEY: ClassVar[int]


ResponseType = TypeVar("ResponseType", bound=Response)


class Request(Message, Generic[ResponseType]):
    """A request, typed with the response that answers it."""

    __slots__ = ()
    API_KEY: ClassVar[int]
