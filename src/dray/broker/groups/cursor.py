"""Stored groups are read with the bounded readers of the wire: one cursor for the codecs of both kinds."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TypeVar

from dray.kafka.protocol.wire import (
    read_compact_bytes,
    read_compact_count,
    read_compact_nullable_count,
    read_compact_nullable_string,
    read_compact_string,
    read_numbers,
    read_uvarint,
)
from dray.metadata.values import ValueCorrupt

Group = TypeVar("Group")


class Cursor:
    """A place in a stored value, which every read moves on."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self.position = 0

    def fixed(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._body, self.position)
        self.position += layout.size
        return values

    def raw(self, size: int) -> bytes:
        """Short where the value ends: a caller that needs them all finds out."""
        start = self.position
        self.position += size
        return bytes(self._body[start : self.position])

    def unsigned(self) -> int:
        value, self.position = read_uvarint(self._body, self.position)
        return value

    def count(self, least: int) -> int:
        """The length of an array whose elements take `least` bytes each, or more."""
        count, self.position = read_compact_count(self._body, self.position, len(self._body), least)
        return count

    def nullable_count(self, least: int) -> int:
        """-1 where there is no array."""
        count, self.position = read_compact_nullable_count(self._body, self.position, len(self._body), least)
        return count

    def int32s(self, count: int) -> list[int]:
        numbers, self.position = read_numbers(self._body, self.position, "i", 4, count)
        return numbers

    def string(self) -> str:
        string, self.position = read_compact_string(self._body, self.position, len(self._body))
        return string

    def nullable_string(self) -> str | None:
        string, self.position = read_compact_nullable_string(self._body, self.position, len(self._body))
        return string

    def bytes(self) -> bytes:
        raw, self.position = read_compact_bytes(self._body, self.position, len(self._body))
        return raw


def read_whole(what: str, body: memoryview, read: Callable[[Cursor], Group]) -> Group:
    """A value that `read` takes in to its end. Raises `ValueCorrupt`."""
    cursor = Cursor(body)
    try:
        group = read(cursor)
    except (IndexError, struct.error, ValueError) as error:
        raise ValueCorrupt(what, str(error)) from error
    if cursor.position != len(body):
        raise ValueCorrupt(what, f"{len(body) - cursor.position} bytes follow its end")
    return group
